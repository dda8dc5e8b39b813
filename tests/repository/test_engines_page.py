"""The page about a custom engine: its code runs, prints what the page says, and refuses as the page says."""

import re
from pathlib import Path

import pytest
from openai import OpenAI, RateLimitError

from interlock.serve import ApiError, ServerThread
from interlock.serving.build import build
from interlock.serving.settings import Settings
from interlock.testing import assert_legal

PAGE = (Path(__file__).parents[2] / "docs" / "library" / "engines.md").read_text("utf-8")
ASK = {"model": "parrot", "input": "Polly wants a cracker."}


@pytest.fixture
def names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(code, known)  # noqa: S102 - our own text
    return known


def client_of(url):
    return OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)


def test_the_page_prints_what_it_says(capsys, names):
    (output,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert capsys.readouterr().out == output
    assert names["app"].state.keys.tenants


def test_a_refusal_keeps_its_status_whether_the_client_streams_or_not(names):
    with ServerThread(build(Settings(), names["BusyParrot"]())) as url, client_of(url) as client:
        for stream in (False, True):
            with pytest.raises(RateLimitError, match=r"The parrot is asleep\.") as refused:
                client.responses.create(**ASK, stream=stream)
            assert refused.value.status_code == 429
            assert refused.value.response.headers["Retry-After"] == "5"


def test_an_engine_that_admits_a_turn_generates_it(names):
    engine = names["BusyParrot"]()
    engine.busy = False
    with ServerThread(build(Settings(), engine)) as url, client_of(url) as client:
        assert client.responses.create(**ASK).output_text == "Polly wants a cracker. "


def test_a_refusal_after_the_response_began_fails_it_with_the_message(names):
    class Late(names["Parrot"]):
        async def generate(self, turn):
            async for output in super().generate(turn):
                yield output
                raise ApiError(429, "The parrot fell asleep.")

    with ServerThread(build(Settings(), Late())) as url, client_of(url) as client:
        failed = client.responses.create(**ASK)
        assert (failed.status, failed.output_text) == ("failed", "Polly ")
        assert failed.error.to_dict() == {"code": "rate_limit_exceeded", "message": "The parrot fell asleep."}
        with client.responses.create(**ASK, stream=True) as stream:
            assert_legal([event.to_dict(mode="json") for event in stream])


def test_a_response_in_the_background_fails_where_another_is_refused(names):
    with ServerThread(build(Settings(), names["BusyParrot"]())) as url, client_of(url) as client:
        with client.responses.create(**ASK, background=True, stream=True) as stream:
            *_, last = stream
        assert (last.type, last.response.error.message) == ("response.failed", "The parrot is asleep.")
