"""What one API key has stored does not exist for another."""

import httpx
import pytest
from live.engines import ANSWER, StagedEngine, steps

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
