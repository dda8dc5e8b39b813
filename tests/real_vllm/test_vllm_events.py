"""examples/vllm_events.py on real engines: vLLM's routes, store and tools, with legal streams of every turn."""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from http.client import HTTPConnection
from uuid import uuid4

import httpx
import pytest
from playing import TIMEOUT, at_once, body, events, is_aborted, judged, metric, stream, summary, until, without_chance
from servers import FAMILIES, HAS_EXAMPLE, HERE
from turns import FUNCTION, GRAMMATICAL, HARMONY, PARSED, PYTHON, THINK, WEATHER, Turn, family_turns

from interlock import DONE_FRAME

pytestmark = pytest.mark.skipif(not HAS_EXAMPLE, reason="the example is for vLLM 0.32 and 0.33")

DOCS = HERE.parents[1] / "docs"
HEADER = "x-serving"
GPT_OSS, SIMPLE, PARSABLE = "//harmony", "hermes/qwen3/simple", "hermes/qwen3/parsable"
HARMONY_SERVER = pytest.mark.parametrize("server", ["stock-harmony"], indirect=True)
PARSED_SERVER = pytest.mark.parametrize("server", ["stock-parsed"], indirect=True)

PLAYED = [
    ("stock-harmony", GPT_OSS, HARMONY),
    ("stock-parsed", SIMPLE, PARSED),
    *(
        ("stock-families", f"{name}/{reasoning}/simple", family_turns(name, reasoning))
        for name, reasoning in FAMILIES.items()
        if name not in GRAMMATICAL
    ),
]
"""The turns that are played on each server, with the value of `HEADER`."""
WITH_FLAGS = [
    (f"example-{name}", "", family_turns(name, reasoning)) for name, reasoning in FAMILIES.items() if name in GRAMMATICAL
]
"""The turns whose grammar vLLM's engine applies after the reasoning, for which it needs the flags of the family."""
NIGHTLY = {"stock-families"}
"""The servers of the turns that `make nightly` plays."""
WITHOUT_VLLM_LOOP = {
    "a tool of an MCP server that nobody declared": [["mcp_call failed"], "completed"],
    "two recipients": [["mcp_call failed"], "completed"],
    "a search whose arguments are no JSON": [["web_search_call failed"], "completed"],
    "python that nobody asked for": [["code_interpreter_call failed"], "completed"],
    "python that fails": [["code_interpreter_call", "message"], "completed"],
    "python that says nothing": [["code_interpreter_call failed"], "failed"],
}
"""The turns with other items than the plugin's: vLLM's loop ends where no tool of its own runs, and hides the faults of tools."""


def headers(serving):
    return {HEADER: serving} if serving else {}


def play(server, serving, turn, **fields):
    """Return the events of a turn. vLLM's route sends no end marker."""
    return judged(stream(server.url, body(server.setup.model, turn, **fields), **headers(serving)) + DONE_FRAME)


def post(server, serving, request):
    return httpx.post(f"{server.url}/v1/responses", json=request, headers=headers(serving), timeout=TIMEOUT)


def check(server, serving, turn):
    response = play(server, serving, turn)[-1]["response"]
    assert [summary(response), response["status"]] == WITHOUT_VLLM_LOOP.get(turn.name, [list(turn.items), turn.status])
    answer = post(server, serving, body(server.setup.model, turn))
    assert answer.status_code == 200
    assert without_chance(answer.json()) == without_chance(response)


@pytest.mark.parametrize(
    ("server", "serving", "turns"),
    [pytest.param(*each, id=each[1], marks=pytest.mark.long if each[0] in NIGHTLY else ()) for each in PLAYED],
    indirect=["server"],
)
def test_turns_are_legal_streams_and_the_same_without_streaming(server, serving, turns):
    at_once(turns, partial(check, server, serving))


@pytest.mark.long
@pytest.mark.parametrize(
    ("server", "serving", "turns"), [pytest.param(*each, id=each[0]) for each in WITH_FLAGS], indirect=["server"]
)
def test_turns_with_a_grammar_are_legal_with_the_flags_of_their_family(server, serving, turns):
    at_once(turns, partial(check, server, serving))


@PARSED_SERVER
def test_turns_are_legal_with_the_parsable_context(server):
    at_once(PARSED, partial(check, server, PARSABLE))


def test_the_page_says_how_many_turns_of_the_comparison_were_played():
    page = (DOCS / "evidence" / "conformance" / "turns.md").read_text("utf-8").partition("\n## Messages")[0]
    compared = re.findall(r"^\| ([^|]+?) \| ", page.partition("|---")[2], re.MULTILINE)
    played = {turn.name for _, _, turns in (*PLAYED, *WITH_FLAGS) for turn in turns}
    always = {turn.name for server, _, turns in PLAYED if server not in NIGHTLY for turn in turns}
    assert {*compared} - played == set()
    page = (DOCS / "library" / "engine.md").read_text("utf-8")
    assert f"{len({*compared} & always)} of the {len(compared)} of [the comparison]" in page


@PARSED_SERVER
def test_vllm_runs_a_tool_with_the_parsable_context(server):
    call = '<tool_call>\n{"name": "code_interpreter", "arguments": {"code": "print(1)"}}\n</tool_call><|im_end|>'
    run = Turn("run", [call, "It is done.<|im_end|>"], body={"tools": [PYTHON]})
    run_call, message = play(server, PARSABLE, run)[-1]["response"]["output"]
    assert (run_call["status"], run_call["code"]) == ("completed", "print(1)")
    assert run_call["outputs"] == [{"type": "logs", "logs": "ran: print(1)"}]
    assert message["content"][0]["text"] == "It is done."
    assert echo(server, PARSABLE, [run_call, message], Turn("an answer", ["Yes.<|im_end|>"])) == "completed"


@pytest.mark.parametrize("server", ["example"], indirect=True)
def test_every_process_of_the_example_serves_its_events(server):
    request = body("families", Turn("an answer", ["Hello, how are you?<|im_end|>"]), max_output_tokens=2)

    def end(_):
        return judged(stream(server.url, request) + DONE_FRAME)[-1]["type"]

    with ThreadPoolExecutor() as pool:
        assert {*pool.map(end, range(16))} == {"response.incomplete"}  # vLLM 0.32 itself ends it with `response.completed`


@HARMONY_SERVER
def test_vllm_stores_a_response_and_continues_it(server):
    call = Turn("a call", [f'{WEATHER}{{"city": "Rome"}}<|call|>'], body={"tools": [FUNCTION]})
    response = play(server, GPT_OSS, call)[-1]["response"]
    found = httpx.get(f"{server.url}/v1/responses/{response['id']}", headers={HEADER: GPT_OSS}, timeout=TIMEOUT)
    assert found.json() == response
    result = {"type": "function_call_output", "call_id": response["output"][0]["call_id"], "output": "Sunny."}
    answer = Turn("an answer", ["", "<|channel|>final<|message|>It is sunny.<|return|>"], body={"tools": [FUNCTION]})
    continued = play(server, GPT_OSS, answer, input=[result], previous_response_id=response["id"])[-1]["response"]
    assert [item["content"][0]["text"] for item in continued["output"]] == ["It is sunny."]


def echo(server, serving, output, answer):
    """Return the status of a response to the items of an earlier one and a question."""
    question = {"type": "message", "role": "user", "content": "And now?"}
    return play(server, serving, answer, input=[*output, question], store=False)[-1]["response"]["status"]


@HARMONY_SERVER
def test_a_hosted_call_is_read_as_the_input_of_the_next_request(server):
    run, answer = (next(turn for turn in HARMONY if turn.name == name) for name in ("python", "an answer"))
    output = play(server, GPT_OSS, run, store=False)[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["code_interpreter_call", "message"]
    assert echo(server, GPT_OSS, output, answer) == "completed"


@HARMONY_SERVER
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("name", ["reasoning and an answer", "cut in an answer"])
def test_vllm_creates_a_background_response(server, name, streamed):
    (turn,) = (each for each in HARMONY if each.name == name)
    request = body("gpt_oss", turn, background=True)
    if streamed:
        response = judged(stream(server.url, request, **{HEADER: GPT_OSS}) + DONE_FRAME)[-1]["response"]
    else:
        queued = post(server, GPT_OSS, request).json()
        get = partial(httpx.get, f"{server.url}/v1/responses/{queued['id']}", headers={HEADER: GPT_OSS}, timeout=TIMEOUT)
        until(lambda: get().json()["status"] == turn.status)
        response = get().json()
    assert (summary(response), response["status"]) == (turn.items, turn.status)


@HARMONY_SERVER
def test_a_disconnect_aborts_the_generation(server):
    request = {**body("gpt_oss", Turn("endless", [f"{THINK}On and on"])), "stream": True}

    def leave():
        headers = {HEADER: GPT_OSS}
        with httpx.stream("POST", f"{server.url}/v1/responses", json=request, headers=headers, timeout=TIMEOUT) as answer:
            next(line for line in answer.iter_lines() if "delta" in line)

    assert is_aborted(server, leave)


def read(lines, mark):
    """Return the lines of a stream up to one with a mark."""
    seen = []
    for line in lines:
        seen.append(line)
        if mark in line:
            break
    return seen


def stored(server, response_id):
    return httpx.get(f"{server.url}/v1/responses/{response_id}", headers={HEADER: GPT_OSS}, timeout=TIMEOUT)


ENDLESS = {**body("gpt_oss", Turn("endless", [f"{THINK}On and on"])), "stream": True}
CANCELLED = (["reasoning incomplete"], "cancelled")


def begins(server):
    """Return a function that says whether the model has written more since."""
    before = metric(server.url, "vllm:generation_tokens_total")
    return lambda: metric(server.url, "vllm:generation_tokens_total") > before


@HARMONY_SERVER
@pytest.mark.parametrize("streamed", [True, False])
def test_a_response_whose_client_leaves_is_stored_as_cancelled(server, streamed):
    response_id = f"resp_{uuid4().hex}"
    request, has_begun = {**ENDLESS, "stream": streamed, "request_id": response_id}, begins(server)
    with closing(HTTPConnection(httpx.URL(server.url).netloc.decode(), timeout=TIMEOUT)) as connection:
        connection.request("POST", "/v1/responses", json.dumps(request), {"content-type": "application/json", HEADER: GPT_OSS})
        until(has_begun)
    until(lambda: stored(server, response_id).status_code == 200)
    response = stored(server, response_id).json()
    assert (summary(response), response["status"]) == CANCELLED


@HARMONY_SERVER
@pytest.mark.parametrize("streamed", [True, False])
def test_a_background_response_that_is_cancelled_has_what_was_written(server, streamed):
    request, has_begun = {**ENDLESS, "stream": streamed, "background": True}, begins(server)
    with httpx.stream("POST", f"{server.url}/v1/responses", json=request, headers={HEADER: GPT_OSS}, timeout=TIMEOUT) as answer:
        if streamed:
            lines = answer.iter_lines()
            seen = read(lines, "delta")
            response_id = json.loads(seen[1].removeprefix("data: "))["response"]["id"]
        else:
            response_id = json.loads(answer.read())["id"]
            until(has_begun)
        url = f"{server.url}/v1/responses/{response_id}/cancel"
        assert httpx.post(url, headers={HEADER: GPT_OSS}, timeout=TIMEOUT).json()["status"] == "cancelled"
        if streamed:
            seen += [*lines, ""]
            response = judged("\n".join(seen).encode() + DONE_FRAME)[-1]["response"]
            assert stored(server, response_id).json() == response
        response = stored(server, response_id).json()
    assert (summary(response), response["status"]) == CANCELLED


def failing(fault):
    return {"vllm_xargs": {**ENDLESS["vllm_xargs"], "fault": fault}}


@HARMONY_SERVER
@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({"logit_bias": {"999999999": 1}}, ([], "failed", "invalid_prompt")),
        (failing("raises"), (["reasoning incomplete"], "failed", "server_error")),
        (failing("abort"), (*CANCELLED, None)),
    ],
    ids=["refused", "failed", "aborted"],
)
def test_a_response_that_the_engine_ends_is_stored_as_it_is_answered_unless_it_is_refused_at_once(
    server, fields, end, streamed, background
):
    request = {**ENDLESS, **fields, "stream": streamed, "background": background}
    if streamed:
        response = judged(stream(server.url, request, **{HEADER: GPT_OSS}) + DONE_FRAME)[-1]["response"]
    else:
        answer = post(server, GPT_OSS, request)
        if "logit_bias" in fields and not background:
            assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BadRequestError")
            return
        response = answer.json()
    until(lambda: stored(server, response["id"]).json().get("status") not in (None, "queued", "in_progress"))
    found = stored(server, response["id"]).json()
    assert (summary(found), found["status"], (found["error"] or {}).get("code")) == end
    assert found == response or (background and not streamed)


((CODE, SHOWN),) = re.findall(
    r"```sh\npython - <<'END'\n(.*?)END\n```\n\n```text\n(.*?)```", (DOCS / "library" / "engine.md").read_text("utf-8"), re.DOTALL
)
"""What the page runs on both classes, and the events that it prints."""


def test_the_command_of_the_page_prints_the_events_of_a_call_that_is_cut():
    done = subprocess.run([sys.executable, "-c", CODE], cwd=HERE.parents[1], capture_output=True, text=True, check=False)  # noqa: S603
    assert (done.returncode, done.stdout) == (0, SHOWN), done.stderr


@HARMONY_SERVER
def test_the_page_shows_the_events_of_a_call_that_is_cut_on_a_server(server):
    (turn,) = (turn for turn in HARMONY if turn.name == "cut in arguments")
    streams = events((HERE.parent / "corpus" / "vllm" / "cut-in-arguments.sse").read_bytes()), play(server, GPT_OSS, turn)
    shown = [block.split() for block in re.split(r"^\w+$", SHOWN, flags=re.MULTILINE)[1:]]
    assert shown == [[event["type"].removeprefix("response.") for event in bodies] for bodies in streams]
