"""Messages and Chat Completions on real engines: every turn that has no tools of the server is legal, streamed and whole."""

import json

import httpx
import pytest
from playing import body
from turns import HARMONY, PARSED

from interlock.fsm.oracle import check_chat, check_messages

ASKED = {"messages": [{"role": "user", "content": "Hi."}]}
PATHS = {"messages": "/v1/messages", "chat": "/v1/chat/completions"}


def without(turns):
    return [turn for turn in turns if not turn.body]


def request(model, turn, api):
    limit = {"max_tokens": 500} if api == "messages" else {"stream_options": {"include_usage": True}}
    return {**{name: value for name, value in body(model, turn).items() if name != "input"}, **ASKED, **limit}


def check(server, model, turn, api):
    asked = request(model, turn, api)
    answer = httpx.post(f"{server.url}{PATHS[api]}", json={**asked, "stream": True}, timeout=120)
    assert answer.headers["content-type"].startswith("text/event-stream"), answer.text
    frames = [frame for frame in answer.text.split("\n\n") if frame and frame != "data: [DONE]"]
    events = [json.loads(frame.partition("data: ")[2]) for frame in frames]
    assert (check_messages(events) if api == "messages" else check_chat(events, usage=True)) == []
    whole = httpx.post(f"{server.url}{PATHS[api]}", json=asked, timeout=120)
    assert whole.status_code == (500 if "error" in events[-1] else 200)
    if whole.status_code == 200:
        assert text_of(whole.json(), api) == joined(events, api)


def text_of(whole, api):
    if api == "chat":
        return whole["choices"][0]["message"]["content"] or ""
    return "".join(block["text"] for block in whole["content"] if block["type"] == "text")


def joined(events, api):
    if api == "chat":
        return "".join(choice["delta"].get("content") or "" for event in events for choice in event.get("choices", ()))
    return "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")


@pytest.mark.parametrize("server", ["dialects"], indirect=True)
@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("turn", without(HARMONY), ids=lambda turn: turn.name)
def test_a_turn_of_gpt_oss(server, turn, api):
    check(server, "gpt_oss", turn, api)


@pytest.mark.parametrize("server", ["parsed-dialects"], indirect=True)
@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("turn", without(PARSED), ids=lambda turn: turn.name)
def test_a_turn_of_another_model(server, turn, api):
    check(server, "qwen3", turn, api)
