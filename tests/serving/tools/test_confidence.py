"""Secrets for an MCP server reach only that server, at a checked address; also its sessions, approvals and citations."""

import asyncio
import gc
import json
import logging
import ssl
import threading
from contextlib import aclosing
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
import uvicorn
from live.agents import ANSWER, calling, mcp, servers
from live.engines import StagedEngine, prompt_text, step, steps
from live.mcp_servers import answer, plain, result, running
from one_run import begin_response

from interlock.events.sse import EventWriter
from interlock.fsm.deltas import Annotate, Close, EndPart, EndTurn, Finish, Open, Refusal, Text
from interlock.fsm.driver import ResponseDriver, SequentialIds
from interlock.serving.build import build
from interlock.serving.http.server import ServerThread, listen
from interlock.serving.requests.create import read_request
from interlock.serving.responses.run import NullWriter, RequestContext
from interlock.serving.settings import Settings
from interlock.serving.tools import address, mcp_session
from interlock.serving.tools.address import AddressPolicy
from interlock.serving.tools.hosting import Approvals, Citations, Page, ToolServers, pages_of
from interlock.serving.tools.mcp_session import Session

SECRET = "tk-5f3c9a"  # noqa: S105 - of nothing
CALL = '<|channel|>commentary to=mcp.shop.echo <|constrain|>json<|message|>{"text": "a"}<|call|>'
TURNS = [step(CALL), step("", "stop")], steps("<|channel|>final<|message|>Done.<|return|>")
CERTIFICATE = Path(__file__).parents[2] / "support" / "live" / "mcp_test.pem"


@pytest.fixture
def names(monkeypatch):
    """Resolve names to the given addresses in turn; the last one stays."""
    known, real = {}, address._look_up

    async def look_up(host, port):
        if host not in known:
            return await real(host, port)
        addresses = known[host]
        return [ip_address(addresses.pop(0) if len(addresses) > 1 else addresses[0])]

    monkeypatch.setattr(address, "_look_up", look_up)  # and not `socket.getaddrinfo`, which uvloop does not call
    return known


def tool(url, **members):
    return {"type": "mcp", "server_label": "shop", "server_url": url, "require_approval": "never", **members}


def ask(reach, *tools, **members):
    """Ask a real server once; gives the stream's text, the response as it is stored, and the engine."""
    engine = StagedEngine(*TURNS)
    with ServerThread(build(Settings(), engine, tools=ToolServers(policy=AddressPolicy.of(reach)))) as url:
        body = {"model": "staged", "input": "Hi", "tools": [*tools], **members}
        streamed = httpx.post(f"{url}/v1/responses", json={**body, "stream": True}, timeout=60)
        if streamed.status_code != 200:
            return streamed.text, None, engine
        created = json.loads(streamed.text.partition("data: ")[2].partition("\n")[0])
        stored = httpx.get(f"{url}/v1/responses/{created['response']['id']}", timeout=60)
        return streamed.text, stored, engine


def outcome(stored):
    (call,) = [item for item in stored.json()["output"] if item["type"] == "mcp_call"]
    return call["output"] if call["status"] == "completed" else call["error"]["content"][0]["text"]


@pytest.mark.parametrize("path", ["mcp", "refusing"])
def test_secrets_are_in_no_prompt_log_stream_or_store(caplog, path) -> None:
    caplog.set_level(logging.DEBUG)
    seen = []

    def note(scope):
        seen.append(dict(scope["headers"]))
        return 401 if scope["path"] == "/refusing" else None

    with running(plain(gate=note)) as base:
        secrets = {"authorization": SECRET, "headers": {"X-Key": f"{SECRET}-2"}}
        text, stored, engine = ask(["localhost"], tool(f"{base}/{path}", **secrets))
    assert {(head[b"authorization"], head[b"x-key"]) for head in seen} == {(f"Bearer {SECRET}".encode(), f"{SECRET}-2".encode())}
    rendered = "".join(map(prompt_text, engine.turns))
    assert "shop" in rendered
    for where, surface in {
        "the prompt": rendered,
        "what an engine is given": repr([turn.request.tools for turn in engine.turns]),
        "the object": repr(engine.turns),
        "the stream": text,
        "the store": stored.text,
        "the log": caplog.text + repr([record.args for record in caplog.records]),
    }.items():
        assert SECRET not in surface, where


@pytest.mark.parametrize(
    "secrets",
    [
        {"authorization": f"{SECRET}\n"},
        {"authorization": f"{SECRET}\u0142"},
        {"authorization": [SECRET]},
        {"headers": {"X-Key": f"{SECRET}\r\nHost: b"}},
        {"headers": {"X-Key": {"v": SECRET}}},
        {"headers": {"Host": SECRET}},
        {"headers": SECRET},
    ],
)
def test_a_secret_that_cannot_be_sent_is_not_repeated(caplog, secrets) -> None:
    caplog.set_level(logging.DEBUG)
    with running(plain()) as base:
        text, stored, engine = ask(["localhost"], tool(f"{base}/mcp", **secrets))
    assert SECRET not in text
    assert SECRET not in caplog.text
    assert stored is None or SECRET not in stored.text
    assert SECRET not in repr(engine.turns)


def test_a_name_is_resolved_and_checked_for_each_request(names) -> None:
    with running(plain()) as base:
        port = base.rpartition(":")[2]
        names["shop.test"] = ["127.0.0.1", "127.0.0.1", "127.0.0.1", "10.0.0.1"]
        url = f"http://shop.test:{port}/mcp"
        _, stored, _ = ask(["shop.test", "127.0.0.0/8"], tool(url))
    assert "10.0.0.1, an address that is not allowed on this server" in json.dumps(stored.json()["output"])


def test_a_connection_goes_to_the_checked_address_with_the_name_as_host(names) -> None:
    hosts = []

    def note(scope):
        hosts.append((dict(scope["headers"])[b"host"].decode(), scope["server"][0]))

    with running(plain(gate=note)) as base:
        port = base.rpartition(":")[2]
        names["shop.test"] = ["127.0.0.1"]
        _, stored, _ = ask(["shop.test", "127.0.0.1"], tool(f"http://shop.test:{port}/mcp"))
    assert outcome(stored) == "said"
    assert set(hosts) == {(f"shop.test:{port}", "127.0.0.1")}


@pytest.fixture
def secured():
    """An MCP server behind TLS whose certificate is for `mcp.test`; gives its port."""
    listening = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        plain(), log_level="critical", ssl_certfile=CERTIFICATE, ssl_keyfile=CERTIFICATE, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, args=([listening],), daemon=True).start()
    yield listening.getsockname()[1]
    server.should_exit = True


@pytest.mark.parametrize(("host", "text"), [("mcp.test", "said"), ("other.test", None)])
def test_tls_checks_the_name_and_not_the_address(names, secured, monkeypatch, host, text) -> None:
    trusting = ssl.create_default_context(cafile=CERTIFICATE)
    monkeypatch.setattr(mcp_session, "_certificates", lambda: trusting)
    names[host] = ["127.0.0.1"]
    _, stored, _ = ask([host, "127.0.0.1"], tool(f"https://{host}:{secured}/mcp"))
    if text is None:
        assert "The server cannot be reached." in json.dumps(stored.json()["output"])
    else:
        assert outcome(stored) == text


# A thousand responses with tools leave nothing behind: no session, no task, no connection


REQUESTS = 1_000
AT_ONCE = 25
ECHO = calling("mcp.shop.echo", '{"text": "a"}')
FATES = ("whole", "whole", "left", "failing", "cancelled")
"""How the responses end, in turn."""


async def respond(base, by, index):
    """Make a response, or begin to, and return its items."""
    fate = FATES[index % len(FATES)]
    engine = StagedEngine([step(ECHO, "stop")], [step(ANSWER, "stop")])
    url = "http://127.0.0.1:1/mcp" if fate == "failing" else f"{base}/mcp"
    request = read_request({"model": "staged", "input": "Hi", "tools": [mcp(url)]})
    run = begin_response(RequestContext(request, request.input), engine, NullWriter(), tools=by)

    async def read_events():
        async with aclosing(run.events()) as events:
            async for _ in events:
                if fate == "left" and len(run.driver.response["output"]) > 1:
                    return

    reading = asyncio.create_task(read_events())
    if fate == "cancelled":
        await asyncio.sleep(0.001 * (index % 20))
        reading.cancel()
    await asyncio.wait([reading])
    return run.driver.response["output"]


def sessions():
    """Return how many sessions there are in this process."""
    gc.collect()
    return sum(isinstance(each, Session) for each in gc.get_objects())


@pytest.mark.long
def test_a_thousand_responses_leave_nothing_behind() -> None:
    calls = []

    async def speak(request, send):
        calls.append(request)
        await answer(send, 200, result(request, {"content": [{"type": "text", "text": "said"}]}))

    async def count(base):
        by, before = servers(), asyncio.all_tasks()
        ends = set()
        for start in range(0, REQUESTS, AT_ONCE):
            many = await asyncio.gather(*(respond(base, by, start + index) for index in range(AT_ONCE)))
            ends |= {tuple((item["type"], item.get("status")) for item in output) for output in many}
        if late := asyncio.all_tasks() - before:
            await asyncio.wait(late, timeout=30)  # on a busy machine the last sessions may still be closing
        assert (by.open, asyncio.all_tasks()) == (set(), before)
        return ends

    others = sessions()
    with running(plain(speak)) as base:
        ends = asyncio.run(count(base))
    assert sessions() == others
    assert (("mcp_list_tools", None), ("mcp_call", "completed"), ("message", "completed")) in ends
    assert (("mcp_list_tools", None), ("mcp_call", "failed"), ("message", "completed")) in ends
    assert len(calls) >= REQUESTS * 2 / 5


# Between parser and driver: approval requests in place of calls, and annotations for citation marks, in any chunks


OPEN_CALL = Open("mcp_call", {"server_label": "s", "name": "t"})
FREE = Open("mcp_call", {"server_label": "s", "name": "free"})
MESSAGE = Open("message", {"phase": "final_answer"})


def approval(arguments):
    return Open("mcp_approval_request", {"server_label": "s", "name": "t", "arguments": arguments})


def approvals():
    return Approvals(lambda _label, name: name == "t")


@pytest.mark.parametrize(
    ("deltas", "output"),
    [
        ([OPEN_CALL, '{"a"', ":1}", Close()], [approval('{"a":1}')]),
        ([OPEN_CALL, Text("{}", []), MESSAGE, "x"], [approval("{}"), MESSAGE, "x"]),
        ([OPEN_CALL, OPEN_CALL, "{}", EndTurn("stop")], [approval(""), approval("{}"), EndTurn("stop")]),
        ([OPEN_CALL, '{"a', EndTurn("length")], [OPEN_CALL, '{"a', EndTurn("length")]),
        ([FREE, "{}", Close(), EndTurn("length")], [FREE, "{}", Close(), EndTurn("length")]),
    ],
)
def test_a_call_that_needs_approval_becomes_a_request_unless_it_is_truncated(deltas, output) -> None:
    assert approvals().feed(deltas) == output
    one_by_one = approvals()
    assert [delta for each in deltas for delta in one_by_one.feed([each])] == output


def citations():
    pages = Citations()
    pages.add_pages([Page(0, "Zero", "https://zero.example")])
    return pages


def annotation_places(*deltas):
    """The places of the annotations that a reader sees, after each delta of one stream."""
    pages = citations()
    output = [delta for each in deltas for delta in pages.feed([each])]
    assert [delta for delta in output if not isinstance(delta, Annotate)] == [*deltas]
    driver = ResponseDriver({}, writer=EventWriter(), ids=SequentialIds(), clock=lambda: 0)
    driver.feed([*output, Finish()])
    places = []
    for item in driver.response["output"]:
        for part in item.get("content", []):
            for mark in part.get("annotations", []):
                assert (mark["type"], mark["url"], mark["title"]) == ("url_citation", "https://zero.example", "Zero")
                assert part["text"][mark["start_index"] : mark["end_index"]].startswith("【0†")
                places.append((mark["start_index"], mark["end_index"]))
    return places


def test_a_citation_mark_is_found_in_any_chunks() -> None:
    text = "a【0†L1】b【0†】"
    assert annotation_places(MESSAGE, text, Close()) == [(1, 7), (8, 12)]
    assert annotation_places(MESSAGE, *text, Close()) == [(1, 7), (8, 12)]
    for cut in range(1, len(text)):
        assert annotation_places(MESSAGE, text[:cut], Text(text[cut:], [])) == [(1, 7), (8, 12)]


def test_an_annotation_follows_the_text_that_it_is_about() -> None:
    output = citations().feed([MESSAGE, "【0†L1】", "b", Close()])
    assert [type(delta) for delta in output] == [Open, str, Annotate, str, Close]
    assert all(isinstance(before, str) for before, delta in pairwise(output) if isinstance(delta, Annotate))


@pytest.mark.parametrize(
    "text",
    ["【1†L1】", "【0】", "【x†L1】", "【0†L1", "【0†" + "x" * 80 + "】", "【" + "9" * 5_000 + "†】"],
    ids=["unknown", "no dagger", "no number", "open", "too long", "too many digits"],
)
def test_text_that_resembles_a_mark_stays_text(text) -> None:
    assert annotation_places(MESSAGE, text, Close()) == []
    assert annotation_places(MESSAGE, *text, Close()) == []


def test_only_the_text_of_messages_is_annotated_and_each_part_begins_anew() -> None:
    assert annotation_places(Open("reasoning"), "【0†】", Close()) == []
    assert annotation_places(OPEN_CALL, "【0†】", Close()) == []
    assert annotation_places(MESSAGE, "ab", EndPart(), "【0†】", Refusal("no"), "【0†】") == [(0, 4), (0, 4)]


def test_a_mark_is_placed_in_the_part_that_the_driver_makes() -> None:
    scored = Text("ab", [{"token": "ab", "bytes": [97, 98], "logprob": -0.5, "top_logprobs": []}])
    assert annotation_places("c【0†】") == [(1, 5)]  # without an Open, the text is still in a message
    assert annotation_places(MESSAGE, scored, "c【0†】") == [(1, 5)]  # the driver begins a part where log probabilities end
    assert annotation_places(MESSAGE, "  \n", "é【0†】") == [(4, 8)]  # white space that was held back is in the part
    assert annotation_places(MESSAGE, "【0", scored, "†】") == []  # the two halves are in different parts


def test_a_page_begins_with_a_line_of_its_number_title_and_url() -> None:
    text = (
        "[0] A (b) page (https://a.example/x_(y))\nL0: [1] no (https://n.example)\n\n[12] B (http://b.example)\r\n[3] C (ftp://c)"
    )
    assert pages_of(text) == [Page(0, "A (b) page", "https://a.example/x_(y)"), Page(12, "B", "http://b.example")]
