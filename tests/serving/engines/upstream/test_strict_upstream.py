"""The strictest services accept the requests of a gateway for any conversation."""

import json

import httpx
import pytest
from fuzzing.bodies import COLLIDING, MODEL, conversations
from fuzzing.request_campaign import GOOD, StrictChat, faults
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from live.upstream import serve_upstream

from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.upstreams import upstream_of
from interlock.serving.settings import UpstreamSettings


@pytest.fixture
def url(serve):
    with serve_upstream(StrictChat([GOOD])) as upstream:
        engine = Gateway([upstream_of(UpstreamSettings(url=upstream, retries=0, short_call_ids=True))])
        with serve(engine) as url:
            yield url


TOOLS = st.lists(st.sampled_from(COLLIDING), max_size=4, unique_by=lambda tool: tool["name"])
QUICK = settings(database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


def test_any_conversation_is_accepted(url):
    statuses = set()

    @seed(7)
    @settings(QUICK, max_examples=40)
    @given(conversations(), TOOLS)
    def attempt(items, tools):
        body = {"model": MODEL, "input": items, "tools": tools, "store": False}
        content = json.dumps(body)  # with escapes of lone surrogates
        answer = httpx.post(f"{url}/v1/responses", content=content, headers={"content-type": "application/json"}, timeout=60)
        statuses.add(answer.status_code)
        assert answer.status_code in (200, 400), answer.text

    attempt()
    assert statuses == {200, 400}


CALL = {"id": "123456789", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USER, ASSISTANT = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "", "tool_calls": [CALL]}
OUTPUT = {"role": "tool", "tool_call_id": "123456789", "content": "a"}
TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("messages", "tools", "found"),
    [
        ([USER, ASSISTANT, OUTPUT], [TOOL], []),
        ([ASSISTANT, USER, OUTPUT], [], ["the output 123456789 does not follow its call"]),
        ([USER], [TOOL, TOOL], ["two tools have the name f"]),
        ([USER], [{"type": "function", "function": {"name": "a.b"}}], ["the name 'a.b'"]),
        ([{"role": "assistant", "tool_calls": [{**CALL, "id": "call_1"}]}], [], ["the id 'call_1'"]),
    ],
)
def test_the_strict_upstream_reports_the_faults_of_a_request(messages, tools, found):
    assert faults({"messages": messages, "tools": tools}) == found
