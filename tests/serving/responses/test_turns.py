"""A response consists of its turns, and ends legally after any fault or interruption."""

import asyncio
import logging

import httpx
import pytest
from live.engines import ANSWER, CALL, ENCODING, HOSTED_CALL, REASONING, Gate, ScriptedTools, StagedEngine, step, steps
from live.wire import without_chance
from one_run import begin_response

from interlock.events.json import as_json
from interlock.events.response_object import Response
from interlock.events.sse import EventWriter
from interlock.fsm import driver
from interlock.fsm.deltas import Cancel, Fail, Fault, Run, Succeed
from interlock.fsm.driver import SequentialIds
from interlock.parsers import Chunk, Tagged
from interlock.serving.engines import engine as engines
from interlock.serving.engines.engine import Engine, EngineOutput
from interlock.serving.requests.api_errors import EngineError
from interlock.serving.requests.create import read_request
from interlock.serving.responses.run import GENERATION_ERROR, NullWriter, RequestContext
from interlock.verify.oracle import check

SHUTDOWN = Fault("server_error", "The server is shutting down.")

LOGPROBS = "message.output_text.logprobs"


def begin(engine, writer=None, tools=None, **settings):
    request = read_request({"model": "staged", "input": "Hi", **settings})
    return begin_response(
        RequestContext(request, request.input),
        engine,
        writer or EventWriter(),
        tools=tools,
        ids=SequentialIds(),
        clock=lambda: 0,
    )


async def collect(run):
    return [[as_json(event) for event in events] async for events in run.events()]


def make(*scripts, tools=None, **settings):
    """Return the events of each step of a response, after a check that the whole is legal."""
    engine = StagedEngine(*scripts)
    batches = asyncio.run(collect(begin(engine, tools=tools, **settings)))
    assert check([event for events in batches for event in events]) == []
    assert engine.closed.is_set()
    return batches


def final(batches):
    return batches[-1][-1]["response"]


def failed(batches):
    assert batches[-1][-1]["type"] == "response.failed"
    return final(batches)["error"]


def test_each_step_of_the_engine_gives_its_events_at_once() -> None:
    batches = make([step(REASONING), step(ANSWER + "<|return|>", "stop")])
    bracket = "output_item.added content_part.added {0}.delta {0}.done content_part.done output_item.done"
    assert [" ".join(event["type"].removeprefix("response.") for event in events) for events in batches] == [
        "created in_progress",
        bracket.format("reasoning_text"),
        bracket.format("output_text"),
        "completed",
    ]


def test_the_first_events_do_not_wait_for_the_engine() -> None:
    async def first():
        run = begin(StagedEngine([Gate()]))
        events = run.events()
        names = [event.type for event in await anext(events)]
        await events.aclose()
        return names

    assert asyncio.run(first()) == ["response.created", "response.in_progress"]


def test_a_response_without_a_writer_equals_the_streamed_one() -> None:
    async def whole():
        run = begin(StagedEngine(steps(REASONING + ANSWER)), NullWriter())
        written = [event async for events in run.events() for event in events]
        return run.driver.response, set(written)

    response, written = asyncio.run(whole())
    assert written == {None}
    assert without_chance(response) == without_chance(final(make(steps(REASONING + ANSWER))))


def test_the_prompt_tokens_of_the_engine_are_counted_once_per_turn() -> None:
    batches = make([step(ANSWER, input_tokens=9, cached_tokens=4), step("!", "stop", input_tokens=9)])
    assert final(batches)["usage"]["input_tokens"] == 9
    assert final(batches)["usage"]["input_tokens_details"]["cached_tokens"] == 4


def test_the_message_of_an_engine_error_reaches_the_client() -> None:
    batches = make([step(ANSWER), EngineError("Out of memory.")])
    assert failed(batches) == {"code": "server_error", "message": "Out of memory.", "type": "server_error"}
    assert final(batches)["output"][0]["status"] == "incomplete"


def test_partial_output_before_an_engine_error_is_sent_and_counted() -> None:
    token_ids = ENCODING.encode("<|channel|>final<|message|>Hi 👩🏽", allowed_special="all")[:-1]
    batches = make([EngineOutput(Chunk(token_ids), input_tokens=7), EngineError("Out of memory.")])
    response = final(batches)
    assert response["output"][0]["content"][0]["text"] == ENCODING.decode(token_ids[3:])
    assert response["output"][0]["content"][0]["text"].endswith("\ufffd")
    assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (7, len(token_ids))


@pytest.mark.parametrize(
    "script",
    [
        pytest.param([RuntimeError("a secret")], id="at once"),
        pytest.param([step(REASONING + ANSWER), ValueError("a secret")], id="in the middle of an item"),
        pytest.param([step(REASONING), StopAsyncIteration("a secret")], id="between items"),
    ],
)
def test_any_other_engine_exception_is_logged_and_hidden_from_the_client(script, caplog) -> None:
    assert failed(make(script)) == {"code": "server_error", "message": GENERATION_ERROR, "type": "server_error"}
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_an_engine_that_stops_without_a_reason_fails_the_response() -> None:
    assert failed(make([step(ANSWER)]))["message"] == "The engine stopped without a finish reason."
    late = [EngineOutput(Chunk(), "length"), EngineOutput(Chunk(), "stop"), EngineOutput(Chunk(), output_tokens=1)]
    assert failed(make(late))["message"] == "The engine yielded an output after its finish reason 'stop'."


@pytest.mark.parametrize("method", ["feed", "end"])
def test_a_parser_that_raises_fails_the_response(method, monkeypatch) -> None:
    class Broken:
        def feed(self, _chunk):
            return ["Some text"] if method == "end" else 1 / 0

        def end(self, _reason, _usage):
            return 1 / 0

    monkeypatch.setattr(engines, "parser_for", lambda *_: Broken())
    assert failed(make([step(ANSWER, "stop")])) == {"code": "server_error", "message": GENERATION_ERROR, "type": "server_error"}


def test_a_parser_that_returns_invalid_deltas_fails_the_response(monkeypatch) -> None:
    class Nonsense:
        def feed(self, _chunk):
            return ["Some text", object()]

    monkeypatch.setattr(engines, "parser_for", lambda *_: Nonsense())
    batches = make([step(ANSWER, "stop")])
    assert failed(batches)["message"] == GENERATION_ERROR
    assert final(batches)["output"][0]["content"][0]["text"] == "Some text"


@pytest.mark.parametrize(
    ("ending", "terminal", "status"),
    [(SHUTDOWN, "response.failed", "failed"), (Cancel(), "response.incomplete", "cancelled")],
)
@pytest.mark.parametrize("script", [[Gate], [step(REASONING), Gate], [step(ANSWER), Gate]])
def test_an_interruption_ends_the_wait_for_the_engine_and_the_response(script, ending, terminal, status) -> None:
    async def interrupted():
        gate = Gate()
        engine = StagedEngine([gate if each is Gate else each for each in script])
        run = begin(engine)
        collecting = asyncio.create_task(collect(run))
        await asyncio.to_thread(gate.reached.wait)
        run.control.interrupt(ending)
        run.control.interrupt(Fault("server_error", "too late"))
        batches = await collecting
        assert engine.closed.is_set()
        assert not collecting.cancelling()
        return batches

    batches = asyncio.run(interrupted())
    assert check([event for events in batches for event in events]) == []
    assert (batches[-1][-1]["type"], final(batches)["status"]) == (terminal, status)
    assert final(batches)["error"] == (
        {"code": "server_error", "message": SHUTDOWN.message, "type": "server_error"} if status == "failed" else None
    )


def test_an_interruption_between_two_steps_ends_the_response_at_the_next() -> None:
    async def interrupted():
        engine = StagedEngine(steps(ANSWER))
        run = begin(engine)
        batches = []
        async for events in run.events():
            batches.append([as_json(event) for event in events])
            run.control.interrupt(SHUTDOWN)
        return batches, engine.turns

    batches, turns = asyncio.run(interrupted())
    assert [len(events) for events in batches] == [2, 1]
    assert failed(batches)["message"] == SHUTDOWN.message
    assert turns == []


def test_output_that_an_engine_yields_on_cancellation_is_ignored() -> None:
    class Stubborn(StagedEngine):
        async def generate(self, _turn):
            try:
                await gate.wait()
            except asyncio.CancelledError:
                yield step(ANSWER, "stop")
            finally:
                self.closed.set()

    gate = Gate()

    async def interrupted():
        engine = Stubborn()
        run = begin(engine)
        collecting = asyncio.create_task(collect(run))
        await asyncio.to_thread(gate.reached.wait)
        run.control.interrupt(SHUTDOWN)
        batches = await collecting
        return batches, engine.closed.is_set(), collecting.cancelling()

    batches, closed, cancelling = asyncio.run(interrupted())
    assert (failed(batches)["message"], final(batches)["output"], closed, cancelling) == (SHUTDOWN.message, [], True, 0)


@pytest.mark.parametrize("interrupted_too", [False, True])
def test_a_task_cancelled_from_outside_stops_the_engine_and_stays_cancelled(interrupted_too) -> None:
    async def cancelled():
        gate = Gate()
        engine = StagedEngine([step(ANSWER), gate])
        run = begin(engine)
        collecting = asyncio.create_task(collect(run))
        await asyncio.to_thread(gate.reached.wait)
        if interrupted_too:
            run.control.interrupt(Cancel())
        collecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await collecting
        return engine.closed.is_set()

    assert asyncio.run(cancelled())


def test_a_reader_that_stops_reading_stops_the_engine() -> None:
    async def abandoned():
        engine = StagedEngine([step(ANSWER), Gate()])
        events = begin(engine).events()
        await anext(events)
        await anext(events)
        await events.aclose()
        return engine.closed.is_set()

    assert asyncio.run(abandoned())


def test_an_error_while_an_engine_is_closed_is_logged(caplog) -> None:
    class Sticky(StagedEngine):
        async def generate(self, _turn):
            try:
                yield step(ANSWER)
                yield step(ANSWER)
            finally:
                raise RuntimeError("stuck")

    async def abandoned():
        events = begin(Sticky()).events()
        await anext(events)
        await anext(events)
        await events.aclose()

    asyncio.run(abandoned())
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (logging.ERROR, "resp_1: the engine or a tool could not be closed")
    ]


HOSTED = [steps(HOSTED_CALL + "<|call|>"), steps(ANSWER)]


def test_the_model_gets_another_turn_with_the_results_of_its_tools() -> None:
    tools = ScriptedTools(lambda call: [Run(call.id), Succeed(call.id, {"output": "42"})])
    engine = StagedEngine(*HOSTED)
    batches = asyncio.run(collect(begin(engine, tools=tools)))
    events = [event for each in batches for event in each]
    assert check(events) == []
    assert [item["type"] for item in final(batches)["output"]] == ["mcp_call", "message"]
    ((call,),) = tools.calls
    assert (call.kind, call.fields["name"], call.text) == ("mcp_call", "ask", '{"q": "a"}')
    first, second = engine.turns
    assert (first.index, second.index) == (0, 1)
    assert second.items[:1] == first.items
    assert [(item["type"], item["output"]) for item in second.items[1:]] == [("mcp_call", "42")]


def test_a_response_with_tools_is_copied_once(monkeypatch) -> None:
    copied = []
    monkeypatch.setattr(driver, "as_json", lambda value: copied.append(type(value)) or as_json(value))
    tools = ScriptedTools(lambda call: [Run(call.id), Succeed(call.id, {"output": "42"})])
    run = begin(StagedEngine(*HOSTED), writer=NullWriter(), tools=tools)
    asyncio.run(collect(run))
    assert run.stored.response == run.driver.response
    assert copied == [Response]


def test_each_delta_of_a_tool_sends_its_events_at_once() -> None:
    tools = ScriptedTools(lambda call: [Run(call.id), Fail(call.id, "no")])
    batches = make(*HOSTED, tools=tools)
    assert ["response.mcp_call.failed", "response.output_item.done"] in [[event["type"] for event in each] for each in batches]


def test_without_tools_a_hosted_call_fails_and_the_response_is_complete() -> None:
    batches = make(*HOSTED)
    assert final(batches)["status"] == "completed"
    assert [(item["type"], item["status"]) for item in final(batches)["output"]] == [("mcp_call", "failed")]


REJECTED_CALL = '<|channel|>commentary to=browser.search<|message|>{"words": 1}'


def test_the_model_gets_another_turn_after_a_rejected_call() -> None:
    tools = ScriptedTools(lambda _call: [])
    engine = StagedEngine(steps(REJECTED_CALL + "<|call|>"), steps(ANSWER))
    batches = asyncio.run(collect(begin(engine, tools=tools)))
    assert check([event for each in batches for event in each]) == []
    assert [(item["type"], item["status"]) for item in final(batches)["output"]] == [
        ("web_search_call", "failed"),
        ("message", "completed"),
    ]
    assert [[item["type"] for item in turn.items] for turn in engine.turns] == [["message"], ["message", "web_search_call"]]
    assert tools.calls == []


def test_a_rejected_call_that_uses_up_the_budget_ends_the_response() -> None:
    thought = "<|channel|>analysis<|message|>I wonder what it is that I should look for.<|end|><|start|>assistant"
    turn = steps(thought + REJECTED_CALL + "<|call|>")
    batches = make(turn, steps(ANSWER), tools=ScriptedTools(lambda _call: []), max_output_tokens=len(turn) - 1)
    assert final(batches)["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["type"] for item in final(batches)["output"]] == ["reasoning", "web_search_call"]
    assert final(batches)["output"][1]["status"] == "failed"


def test_a_rejected_call_ends_the_response_without_tools() -> None:
    batches = make(steps(REJECTED_CALL + "<|call|>"))
    assert (final(batches)["status"], [item["status"] for item in final(batches)["output"]]) == ("completed", ["failed"])


def test_calls_that_the_tools_do_not_run_fail_and_no_turn_follows() -> None:
    batches = make(*HOSTED, tools=ScriptedTools(lambda _call: []))
    assert [(item["type"], item["status"]) for item in final(batches)["output"]] == [("mcp_call", "failed")]


def test_tools_that_raise_fail_the_response_and_the_call() -> None:
    batches = make(*HOSTED, tools=ScriptedTools(lambda call: [Run(call.id), RuntimeError("a secret")]))
    assert failed(batches)["message"] == GENERATION_ERROR
    assert [item["status"] for item in final(batches)["output"]] == ["failed"]


def test_a_function_call_ends_the_response_after_the_hosted_tools() -> None:
    tools = ScriptedTools(lambda call: [Run(call.id), Succeed(call.id, {"output": "42"})])
    batches = make(steps(HOSTED_CALL + "<|call|><|start|>assistant" + CALL + "<|call|>"), tools=tools)
    assert [(item["type"], item["status"]) for item in final(batches)["output"]] == [
        ("mcp_call", "completed"),
        ("function_call", "completed"),
    ]


def test_all_turns_share_the_budget() -> None:
    tools = ScriptedTools(lambda call: [Run(call.id), Succeed(call.id, {"output": "42"})])
    engine = StagedEngine(*HOSTED)
    batches = asyncio.run(collect(begin(engine, tools=tools, max_output_tokens=100)))
    spent = len(HOSTED[0]) - 1
    assert [turn.budget for turn in engine.turns] == [100, 100 - spent]
    assert final(batches)["status"] == "completed"


def test_a_budget_used_up_by_the_first_turn_ends_the_response() -> None:
    tools = ScriptedTools(lambda call: [Run(call.id), Succeed(call.id, {"output": "42"})])
    batches = make(*HOSTED, tools=tools, max_output_tokens=len(HOSTED[0]) - 1)
    assert final(batches)["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["type"] for item in final(batches)["output"]] == ["mcp_call"]


@pytest.mark.parametrize(
    ("reason", "terminal", "status"),
    [
        ("length", "response.incomplete", "incomplete"),
        ("content_filter", "response.incomplete", "incomplete"),
        ("abort", "response.incomplete", "cancelled"),
        ("error", "response.failed", "failed"),
    ],
)
def test_an_unfinished_turn_ends_the_response(reason, terminal, status) -> None:
    batches = make(steps(ANSWER, reason))
    assert (batches[-1][-1]["type"], final(batches)["status"]) == (terminal, status)


# Settings that a conversation changes, and requests that only warm the cache


SCHEMA = {"type": "json_schema", "name": "answer", "schema": {"type": "object"}}
LOW = {"type": "configuration_update", "reasoning": {"effort": "low"}}
JSON = {"type": "configuration_update", "text": {"format": SCHEMA}}
BOTH = {"type": "configuration_update", "reasoning": {"effort": "high"}, "text": {"format": {"type": "text"}}}
HI = {"role": "user", "content": "Hi"}


def ask(url, *items, **more):
    answer = httpx.post(f"{url}/v1/responses", json={"model": "staged", "input": [*items, HI], **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def effects(engine):
    return [(turn.request.reasoning_effort, turn.request.text_format["type"]) for turn in engine.turns]


@pytest.mark.parametrize(
    ("items", "settings", "effect"),
    [
        ([], {}, (None, "text")),
        ([LOW], {}, ("low", "text")),
        ([LOW], {"reasoning": {"effort": "high", "summary": "auto"}}, ("low", "text")),
        ([JSON], {"reasoning": {"effort": "high"}}, ("high", "json_schema")),
        ([LOW, JSON], {"text": {"verbosity": "low"}}, ("low", "json_schema")),
        ([JSON, LOW, BOTH], {}, ("high", "text")),
        ([{"type": "configuration_update"}], {"reasoning": {"effort": "high"}}, ("high", "text")),
    ],
)
def test_the_last_update_of_a_setting_replaces_the_requests_own(serve, items, settings, effect):
    engine = StagedEngine(steps(ANSWER))
    with serve(engine) as url:
        response = ask(url, *items, **settings)
    assert effects(engine) == [effect]
    assert (response["reasoning"]["effort"], response["text"]["format"]["type"]) == effect
    assert response["reasoning"]["summary"] == settings.get("reasoning", {}).get("summary")
    assert response["text"].get("verbosity", "medium") == settings.get("text", {}).get("verbosity", "medium")


def test_a_configuration_update_applies_to_later_responses(serve):
    engine = StagedEngine(steps(ANSWER))
    with serve(engine) as url:
        first = ask(url, LOW)
        second = ask(url, JSON, previous_response_id=first["id"])
        ask(url, previous_response_id=second["id"])
        ask(url)
    assert effects(engine) == [("low", "text"), ("low", "json_schema"), ("low", "json_schema"), (None, "text")]


def test_a_prewarm_request_runs_the_engine_and_has_no_output(serve):
    engine = StagedEngine(steps(f"{REASONING}{ANSWER}"))
    with serve(engine) as url:
        response = ask(url, prompt_cache_options={"prewarm": True}, max_output_tokens=500)
        plain = ask(url, prompt_cache_options={"prewarm": False})
    assert [turn.budget for turn in engine.turns] == [16, None]
    assert (response["status"], response["output"], response["usage"]["output_tokens"]) == ("completed", [], 0)
    assert len(plain["output"]) == 2


class Wrong(Engine):
    models = ("staged",)
    format = "text"

    def __init__(self, output):
        self.output = output

    async def generate(self, turn):
        del turn
        yield EngineOutput(Chunk(text="Hi"))
        yield self.output


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        (" there", "' there', and not an EngineOutput, such as EngineOutput(Chunk(text='Hi'), 'stop')"),
        (
            EngineOutput(Chunk(text=5)),
            "an EngineOutput whose chunk.text is 5, and not str or None: Expected `str | null`, got `int`",
        ),
        (
            EngineOutput(Chunk(text="a", logprobs=[{"token": "a"}])),
            (
                "an EngineOutput whose chunk.logprobs is [{'token': 'a'}], and not Sequence[TokenLogprob] or None: "
                "Object missing required field `logprob` - at `$[0]`"
            ),
        ),
        (
            EngineOutput(Chunk(), input_tokens=2.5),
            "an EngineOutput whose input_tokens is 2.5, and not int: Expected `int`, got `float`",
        ),
        (EngineOutput(Chunk(), output_tokens=-1), "an EngineOutput whose output_tokens is -1, and not int: Expected `int` >= 0"),
        (
            EngineOutput(Chunk(), "stop", stop_sequence=5),
            "an EngineOutput whose stop_sequence is 5, and not str or None: Expected `str | null`, got `int`",
        ),
        (
            EngineOutput(Chunk([1])),
            (
                "a wrong chunk: this parser reads a chunk's text, but got Chunk(token_ids=[1], text=None, logprobs=None, "
                "delta=None); the text of a token that has none is ''"
            ),
        ),
    ],
    ids=str,
)
def test_a_wrong_output_fails_the_response_and_the_log_says_what_is_wrong(output, problem, caplog) -> None:
    events = [event for batch in asyncio.run(collect(begin(Wrong(output), include=[LOGPROBS]))) for event in batch]
    assert check(events) == []
    response = events[-1]["response"]
    assert (response["status"], response["error"]["message"]) == ("failed", GENERATION_ERROR)
    assert response["output"][0]["content"][0]["text"] == "Hi"
    (record,) = caplog.records
    assert (record.getMessage(), record.exc_info) == (
        f"resp_1: the response failed: 'generate' of Wrong yielded {problem}",
        None,
    )


class Scored(Engine):
    models = ("staged",)
    format = "text"

    async def generate(self, turn):
        del turn
        others = [{"token": "ë", "logprob": -1.5}, {"token": "e", "logprob": -2.5}]
        scored = {"token": "é", "logprob": -0.5}
        yield EngineOutput(Chunk(text="éé", logprobs=[{**scored, "top_logprobs": others}, {**scored, "bytes": None}]), "stop")


@pytest.mark.parametrize(
    ("settings", "others"),
    [({}, None), ({"include": [LOGPROBS]}, []), ({"include": [LOGPROBS], "top_logprobs": 1}, [("ë", -1.5)])],
    ids=["unrequested", "no alternatives", "one alternative"],
)
def test_log_probabilities_are_those_that_the_request_wants_with_all_fields(settings, others) -> None:
    def entry(token, logprob, **fields):
        return {"token": token, "logprob": logprob, "bytes": [*token.encode()], **fields}

    (message,) = final(asyncio.run(collect(begin(Scored(), **settings))))["output"]
    expected = [entry("é", -0.5, top_logprobs=[entry(*one) for one in others or ()]), entry("é", -0.5, top_logprobs=[])]
    part = {"type": "output_text", "text": "éé", "annotations": [], "logprobs": [] if others is None else expected}
    assert message["content"] == [part]


class Wordy(Engine):
    models = ("staged",)
    format = Tagged("hermes", "qwen3")
    spoken = 0

    async def generate(self, turn):
        del turn
        for word in ("The END? ", "</think>", "\n\n", "It rains. E", "ND", " of it."):
            self.spoken += 1
            yield EngineOutput(Chunk([1], word))
        yield EngineOutput(Chunk(), "length")


class Endless(Engine):
    models = ("staged",)
    format = "text"
    closed = False

    def __init__(self, counts):
        self.counts = counts

    async def generate(self, turn):
        del turn
        try:
            for number in range(1, 21):
                ids = [number] if self.counts == "token_ids" else ()
                yield EngineOutput(Chunk(ids, "word "), output_tokens=20 if self.counts == "output_tokens" else 0)
            yield EngineOutput(Chunk(), "stop")
        finally:
            self.closed = True


@pytest.mark.parametrize(
    ("counts", "budget", "words", "status", "tokens"),
    [
        ("token_ids", 16, 16, "incomplete", 16),
        ("token_ids", 20, 20, "completed", 20),
        ("output_tokens", 16, 20, "completed", 20),
        ("nothing", 16, 20, "completed", 0),
    ],
)
def test_a_turn_ends_at_its_budget_if_its_outputs_have_token_ids(counts, budget, words, status, tokens) -> None:
    engine = Endless(counts)
    response = final(asyncio.run(collect(begin(engine, max_output_tokens=budget))))
    assert (response["status"], engine.closed) == (status, True)
    assert response["output"][0]["content"][0]["text"] == "word " * words
    assert response["usage"]["output_tokens"] == tokens


def test_a_turn_ends_at_a_stop_string_in_its_answer() -> None:
    engine = Wordy()
    run = begin(engine, stop=["END"])
    events = [event for batch in asyncio.run(collect(run)) for event in batch]
    assert check(events) == []
    response = events[-1]["response"]
    texts = [item["content"][0]["text"] for item in response["output"]]
    assert (response["status"], texts, run.run.progress.stop_sequence, engine.spoken) == (
        "completed",
        ["The END? ", "It rains. "],
        "END",
        5,
    )
