"""What one API key has stored does not exist for another."""

import httpx
import pytest
from live.chunk_shapes import chunk
from live.engines import ANSWER, StagedEngine, steps
from live.upstream import gateway, stream

REQUEST = {"model": "staged", "input": "Hi"}
ONE, TWO = ({"authorization": f"Bearer {key}"} for key in ("one", "two"))


def statuses(url, response, headers):
    """Give the statuses of all that can be asked about a response with a key."""
    one, item = f"{url}/v1/responses/{response['id']}", response["output"][0]["id"]
    reference = [{"type": "item_reference", "id": item}]
    requests = [
        httpx.get(one, headers=headers),
        httpx.get(f"{one}/input_items", headers=headers),
        httpx.post(f"{url}/v1/responses", json={**REQUEST, "previous_response_id": response["id"]}, headers=headers),
        httpx.post(f"{url}/v1/responses", json={**REQUEST, "input": reference}, headers=headers),
        httpx.post(f"{one}/cancel", headers=headers),
        httpx.delete(one, headers=headers),
    ]
    return [answer.status_code for answer in requests]


@pytest.mark.parametrize(
    ("share", "others", "own"), [(False, [404, 404, 400, 404, 404, 404], 200), (True, [200, 200, 200, 200, 400, 200], 404)]
)
def test_stored_responses_are_visible_to_other_keys_only_if_shared(serve, share, others, own) -> None:
    with serve(StagedEngine(steps(ANSWER)), api_key=["one", "two"], share_between_keys=share) as url:
        response = httpx.post(f"{url}/v1/responses", json=REQUEST, headers=ONE).json()
        assert statuses(url, response, TWO) == others
        assert httpx.get(f"{url}/v1/responses/{response['id']}", headers=ONE).status_code == own


def test_a_key_that_a_gateway_passes_on_is_a_tenant() -> None:
    with gateway(stream(chunk({"content": "Yes."}), chunk({}, "stop")), pass_key=True) as (url, upstream):
        request = {**REQUEST, "model": "m"}
        response = httpx.post(f"{url}/v1/responses", json=request, headers=ONE).json()
        unnamed = httpx.post(f"{url}/v1/responses", json=request).json()
        for headers, other in [(TWO, response), ({}, response), (ONE, unnamed)]:
            assert [status for status in statuses(url, other, headers) if status != 400] == [404] * 5
        assert httpx.get(f"{url}/v1/responses/{response['id']}", headers=ONE).status_code == 200
        assert httpx.get(f"{url}/v1/responses/{unnamed['id']}").status_code == 200
    assert [sent.headers.get("authorization") for sent in upstream.requests if sent.body] == ["Bearer one", None]
