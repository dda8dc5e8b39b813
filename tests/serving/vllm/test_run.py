"""A response inside vLLM ends legally whatever the engine, vLLM's parsers, the tools or the client do."""

import asyncio
import json
from functools import partial
from types import ModuleType, SimpleNamespace

import fake_vllm as fake
import pytest
from attrs import evolve
from fake_vllm import ENCODING, Output, Request, Serving, Session, outputs, result
from openai_harmony import HarmonyError

from interlock.events.dialects import OPENAI
from interlock.fsm.deltas import Cancel, Fault
from interlock.fsm.oracle import check
from interlock.parsers.families import family
from interlock.serving.runs.archive import Archive
from interlock.serving.runs.run import OUR_FAULT
from interlock.serving.sealing import Envelope, SealingKeys, Seals
from interlock.serving.store import MemoryStore
from interlock.serving.vllm import seams
from interlock.serving.vllm.asking import ASKED, Asked
from interlock.serving.vllm.serving import Hooks

SEALS = Seals(Envelope(SealingKeys.random()), "m")
ANSWER = "<|channel|>final<|message|>Hello there.<|return|>"
RUN = "<|channel|>analysis to=python code<|message|>print(1)<|call|>"
SEARCH = '<|channel|>analysis to=browser.search code<|message|>{"query": "rome"}<|call|>'
CALL = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
TOOLS = [{"type": "code_interpreter", "container": {"type": "auto"}}, {"type": "web_search_preview"}]


@pytest.fixture(autouse=True)
def vllm(monkeypatch):
    return fake.install(monkeypatch)


def hooks_on(serving, timeout=5.0):
    hooks = Hooks(serving, Archive(MemoryStore()), timeout)
    hooks.install()
    return hooks


async def begin(serving, seconds=5.0, **settings):
    body = {"model": "m", "input": "Hi", "stream": True, **settings}
    hooks_on(serving, seconds)
    ASKED.set(Asked(body, OPENAI, body, SEALS))
    return await serving.create_responses(Request(**body), None)


async def read(run):
    return [[json.loads(frame.split(b"data: ", 1)[1]) for frame in frames] async for frames in run.events()]


def made(serving, timeout=5.0, **settings):
    """The steps of a response, which are legal together."""

    async def make():
        return await read(await begin(serving, timeout, **settings))

    steps = asyncio.run(make())
    assert check([event for events in steps for event in events]) == []
    return steps


def response(steps):
    return steps[-1][-1]["response"]


def summary(steps):
    shown = response(steps)
    return [(item["type"], item.get("status")) for item in shown["output"]], shown["status"]


def logs(steps):
    return [item["outputs"][0]["logs"] for item in response(steps)["output"] if item["type"] == "code_interpreter_call"]


COMPLETED, FAILED = ("message", "completed"), ("code_interpreter_call", "failed")
RAN = ("code_interpreter_call", "completed")


def test_harmony_becomes_items_with_what_vllm_resolved_and_counted():
    steps = made(Serving(fake.HarmonyContext, outputs(ANSWER)), temperature=0.1)
    assert summary(steps) == ([COMPLETED], "completed")
    shown = response(steps)
    assert (shown["id"], shown["model"], shown["temperature"], shown["max_output_tokens"]) == ("resp_1", "m", 0.5, 100)
    spent = len(ENCODING.encode(ANSWER, allowed_special="all"))
    assert shown["usage"] == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2},
        "output_tokens": spent,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 3 + spent,
    }


@pytest.mark.parametrize(("stop", "made_by_vllm"), [([], False), (["there"], True)])
def test_vllm_makes_text_of_harmony_only_to_find_what_stops_it(stop, made_by_vllm):
    serving = Serving(fake.HarmonyContext, outputs(ANSWER))
    assert summary(made(serving, stop=stop)) == ([COMPLETED], "completed")
    assert serving.sampling.detokenize is made_by_vllm


@pytest.mark.parametrize(("available", "messages"), [((), 1), (("python",), 2)])
def test_a_round_that_no_other_can_follow_is_not_parsed_a_second_time(available, messages):
    serving = Serving(partial(fake.HarmonyContext, available=available), outputs(ANSWER))
    assert response(made(serving))["status"] == "completed"
    assert len(serving.context.messages) == messages


def test_an_output_is_one_write():
    steps = made(Serving(fake.HarmonyContext, outputs(ANSWER, size=4)))
    assert len(steps) == 4  # the opening, two outputs with text, and the end of the last one with the end of the response


@pytest.mark.parametrize(("reason", "status"), [("length", "incomplete"), ("abort", "cancelled"), ("error", "failed")])
def test_the_engines_reason_is_the_responses_end(reason, status):
    assert summary(made(Serving(fake.HarmonyContext, outputs(ANSWER[:-10], reason))))[1] == status


def test_an_engine_that_raises_fails_the_response_in_words_for_clients():
    steps = made(Serving(fake.HarmonyContext, [*outputs(ANSWER)[:3], ValueError("a secret path")]))
    assert response(steps)["error"] == {"code": "server_error", "message": OUR_FAULT}


def test_what_vllm_says_to_clients_is_said():
    class GenerationError(Exception):
        pass

    steps = made(Serving(fake.HarmonyContext, [GenerationError("The engine is overloaded.")]))
    assert response(steps)["error"]["message"] == "The engine is overloaded."


def test_a_loop_that_ends_without_a_word_completes_the_response():
    assert summary(made(Serving(fake.HarmonyContext))) == ([], "completed")


def test_a_tool_is_told_of_when_it_starts_and_when_it_ended():
    session = Session(result("1"))
    serving = Serving(fake.HarmonyContext, outputs(RUN), outputs(ANSWER), sessions={"python": session})
    steps = made(serving, tools=TOOLS)
    assert summary(steps) == ([RAN, COMPLETED], "completed")
    assert logs(steps) == ["1"]
    assert session.asked == [("python", "print(1)")]
    place = next(number for number, events in enumerate(steps) if events[-1]["type"].endswith(".interpreting"))
    assert [event["type"] for event in steps[place + 1]] == [
        "response.code_interpreter_call.completed",
        "response.output_item.done",
    ]
    assert serving.sessions_closed
    assert response(steps)["usage"]["input_tokens"] == 6


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ValueError("It broke."), "The tool failed: It broke."),
        (OSError(), "The tool failed: OSError"),
        (None, "The tool gave no answer within 0.01 seconds."),
        (result("It is wrong.", is_error=True), "It is wrong."),
        (result(None, isError=True), "The tool failed."),
        (fake.SimpleNamespace(content=[]), "The tool gave no text."),
    ],
)
def test_a_tool_that_fails_is_a_failed_item_and_the_model_is_told(answer, said):
    serving = Serving(fake.HarmonyContext, outputs(RUN), outputs(ANSWER), sessions={"python": Session(answer)})
    steps = made(serving, timeout=0.01 if answer is None else 5.0, tools=TOOLS)
    assert summary(steps) == ([FAILED, COMPLETED], "completed")
    assert logs(steps) == [said]
    if getattr(answer, "is_error", None) is None and getattr(answer, "isError", None) is None:
        told = serving.context._messages[2]
        assert (told.author.name, told.recipient, told.content[0].text) == ("python", "assistant", said)


CLOSED = {"refuses": OSError("refused"), "cancels": asyncio.CancelledError(), "hangs": asyncio.Event()}


@pytest.mark.parametrize("fault", CLOSED.values(), ids=CLOSED)
def test_a_session_that_cannot_be_opened_fails_its_calls_alone(fault):
    sessions = {"python": fault, "browser": Session(result("found"))}
    serving = Serving(fake.HarmonyContext, outputs(RUN), outputs(SEARCH), outputs(ANSWER), sessions=sessions)
    steps = made(serving, timeout=0.2, tools=TOOLS)
    assert summary(steps) == ([FAILED, ("web_search_call", "completed"), COMPLETED], "completed")
    assert logs(steps) == ["The tool failed: its server cannot be reached"]
    assert serving.sessions_closed


def test_without_sessions_the_calls_fail_alone():
    serving = Serving(fake.HarmonyContext, outputs(RUN), outputs(ANSWER), sessions=None)
    steps = made(serving, tools=TOOLS)
    assert summary(steps) == ([FAILED, COMPLETED], "completed")
    assert logs(steps) == ["The tool is not available: 'python'."]


def test_a_session_that_breaks_is_no_fault_of_the_others():
    class Breaking(Session):
        async def call_tool(self, *_):
            self.server.cancel()  # what the package mcp does to the task that opened it
            raise ConnectionError("gone")

        async def __aenter__(self):
            self.server = asyncio.current_task()
            return self

        async def __aexit__(self, *_):
            pass

    sessions = {"python": Breaking(), "browser": Session(result("found"))}
    serving = Serving(fake.HarmonyContext, outputs(RUN), outputs(SEARCH), outputs(ANSWER), sessions=sessions)
    assert summary(made(serving, tools=TOOLS)) == ([FAILED, ("web_search_call", "completed"), COMPLETED], "completed")


def test_a_search_without_sense_is_not_run_and_the_model_is_told():
    session = Session()
    broken = SEARCH.replace("{", "")
    serving = Serving(fake.HarmonyContext, outputs(broken), outputs(ANSWER), sessions={"browser": session})
    assert summary(made(serving, tools=TOOLS)) == ([("web_search_call", "failed"), COMPLETED], "completed")
    assert session.asked == []
    assert serving.context._messages[2].content[0].text == "The call was not executed: its arguments make no sense."


def test_only_the_last_of_several_calls_in_a_round_is_run():
    both = RUN.replace("<|call|>", "<|end|><|start|>assistant") + RUN
    serving = Serving(fake.HarmonyContext, outputs(both), outputs(ANSWER), sessions={"python": Session(result("1"))})
    assert summary(made(serving, tools=TOOLS))[0] == [FAILED, RAN, COMPLETED]


def test_a_call_of_a_tool_that_vllm_would_not_run_fails():
    serving = Serving(fake.HarmonyContext, outputs(CALL.replace("functions.f", "docs.search")))
    assert summary(made(serving)) == ([("mcp_call", "failed")], "completed")


def test_max_tool_calls_are_all_that_are_run():
    serving = Serving(fake.HarmonyContext, outputs(RUN), outputs(RUN), sessions={"python": Session(result("1"))})
    assert summary(made(serving, tools=TOOLS, max_tool_calls=1)) == ([RAN, FAILED], "completed")


def test_the_tokens_of_a_request_are_those_of_all_its_rounds():
    spent = len(outputs(RUN))
    serving = Serving(fake.HarmonyContext, outputs(RUN), outputs(RUN), sessions={"python": Session(result("1"))})
    steps = made(serving, tools=TOOLS, max_output_tokens=2 * spent)
    assert serving.limits == [2 * spent, spent]
    assert summary(steps) == ([RAN, FAILED], "incomplete")


def test_a_round_that_goes_on_beyond_the_limit_is_cut():
    spent = len(outputs(RUN))
    serving = Serving(fake.HarmonyContext, outputs(RUN), outputs(ANSWER), sessions={"python": Session(result("1"))})
    steps = made(serving, tools=TOOLS, max_output_tokens=spent + 4)
    assert summary(steps) == ([RAN, ("message", "incomplete")], "incomplete")
    assert (response(steps)["usage"]["output_tokens"], serving.aborted) == (spent + 4, True)


def test_malformed_harmony_is_left_to_vllms_parser_for_its_own_messages():
    serving = Serving(fake.HarmonyContext, outputs("Hello.<|return|>"))
    assert summary(made(serving))[1] == "completed"
    assert len(serving.context._messages) == 2


def test_malformed_harmony_that_vllm_makes_nothing_of_is_one_message_for_the_model(monkeypatch):
    def process_chunk(_, token_ids):
        raise HarmonyError(f"{len(token_ids)} tokens of nonsense")

    serving = Serving(fake.HarmonyContext, outputs("<|channel|>final Hello.<|return|>"))
    monkeypatch.setattr(fake.RecoveringParser, "process_chunk", process_chunk)
    assert summary(made(serving)) == ([COMPLETED], "completed")
    assert serving.context._messages[1].content[0].text == "final Hello."


def test_a_round_in_one_piece_is_cut_at_the_limit_too():
    spent = len(outputs(RUN))
    rounds = [outputs(RUN), outputs(ANSWER, size=100)]
    serving = Serving(fake.HarmonyContext, *rounds, sessions={"python": Session(result("1"))})
    steps = made(serving, tools=TOOLS, max_output_tokens=spent + 4)
    assert summary(steps) == ([RAN, ("message", "incomplete")], "incomplete")
    assert response(steps)["usage"]["output_tokens"] == spent + 4


def test_an_interruption_ends_the_response_and_aborts_the_request():
    async def make(ending):
        serving = Serving(fake.HarmonyContext, [*outputs(ANSWER)[:4], asyncio.Event()])
        run = await begin(serving)
        steps = []
        async for frames in run.events():
            steps.append([json.loads(frame.split(b"data: ", 1)[1]) for frame in frames])
            if len(steps) == 2:
                asyncio.get_running_loop().call_soon(run.interrupt, ending)
        run.interrupt(ending)  # too late, and so without effect
        return serving, steps

    for ending, status in ((Cancel(), "cancelled"), (Fault("server_error", "It shuts down."), "failed")):
        serving, steps = asyncio.run(make(ending))
        assert check([event for events in steps for event in events]) == []
        assert (response(steps)["status"], serving.aborted) == (status, True)


def test_an_interruption_before_anything_happened_counts_too():
    async def make():
        serving = Serving(fake.HarmonyContext, [asyncio.Event()])
        run = await begin(serving)
        run.interrupt(Cancel())
        return await read(run)

    assert response(asyncio.run(make()))["status"] == "cancelled"


def test_a_cancelled_task_stays_cancelled_and_aborts_the_request():
    async def make(interrupts):
        serving = Serving(fake.HarmonyContext, [*outputs(ANSWER)[:4], asyncio.Event()])
        run = await begin(serving)
        task = asyncio.create_task(read(run))
        while run._waiting is None or run.driver.response["output"] == []:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
        if interrupts:
            run.interrupt(Cancel())
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled(), serving.aborted

    assert asyncio.run(make(interrupts=False)) == (True, True)
    assert asyncio.run(make(interrupts=True)) == (True, True)


def test_an_interruption_while_a_tool_runs_stops_the_tool():
    async def make():
        serving = Serving(fake.HarmonyContext, outputs(RUN), sessions={"python": Session(None)})
        run = await begin(serving, tools=TOOLS)
        steps = []
        async for frames in run.events():
            steps.append([json.loads(frame.split(b"data: ", 1)[1]) for frame in frames])
            if steps[-1][-1]["type"].endswith(".interpreting"):
                run.interrupt(Cancel())
        return serving, steps

    serving, steps = asyncio.run(make())
    assert summary(steps) == ([FAILED], "cancelled")
    assert (serving.aborted, serving.sessions_closed) == (True, True)


def test_a_fault_of_our_own_is_the_end_of_the_response_and_not_of_the_stream(monkeypatch):
    async def make():
        run = await begin(Serving(fake.HarmonyContext, outputs(ANSWER)))
        feed = run.driver.feed
        broken = iter([None, ZeroDivisionError()])

        def failing(told):
            if next(broken, None) is not None:
                raise ZeroDivisionError
            return feed(told)

        monkeypatch.setattr(type(run.driver), "feed", lambda _, told: failing(told))
        return await read(run)

    assert response(asyncio.run(make()))["status"] == "failed"


def test_a_loop_that_cannot_be_closed_is_no_fault_of_the_stream():
    class Steps:
        def __init__(self, steps):
            self._steps = steps

        def __aiter__(self):
            return self

        async def __anext__(self):
            return await anext(self._steps)

        async def aclose(self):
            raise OSError("It hangs.")

    async def make():
        serving = Serving(fake.HarmonyContext, outputs(ANSWER))
        run = await begin(serving)
        run._steps = Steps(run._steps)
        return await read(run)

    assert response(asyncio.run(make()))["status"] == "completed"


def delta(**fields):
    return fake.SimpleNamespace(**{"reasoning": None, "content": None, "tool_calls": None, **fields})


def steps_of(*texts, **others):
    made = [Output([fake.Completion(text, (number,), **others)]) for number, text in enumerate(texts)]
    made[-1] = evolve(made[-1], finished=True, outputs=[evolve(made[-1].outputs[0], finish_reason="stop")])
    return made


def call(index, name, arguments):
    return fake.SimpleNamespace(index=index, id=f"call_{index}", function=fake.SimpleNamespace(name=name, arguments=arguments))


def test_the_deltas_of_vllms_parsers_become_items():
    parser = fake.Parser(delta(reasoning="Hm."), None, delta(content="Hello."))
    steps = made(Serving.parsed(fake.SimpleContext, steps_of("a", "b", "c"), parser=parser))
    assert summary(steps) == ([("reasoning", "completed"), COMPLETED], "completed")


@pytest.mark.parametrize(("stopped_by", "hidden"), [(None, True), (7, True), ("stop", False)])
def test_a_parser_that_would_write_the_end_token_does_not_see_it(stopped_by, hidden):
    async def make(hide_end):
        parser = fake.Parser(delta(content="a"), delta(content="b"))
        serving = Serving.parsed(fake.SimpleContext, steps_of("a", "b", stop_reason=stopped_by), parser=parser)
        Hooks(serving, Archive(MemoryStore()), 5.0, hide_end).install()
        ASKED.set(Asked({"model": "m", "input": "Hi", "stream": True}, OPENAI, {}, SEALS))
        await read(await serving.create_responses(Request(model="m", input="Hi", stream=True), None))
        return parser.seen

    assert asyncio.run(make(hide_end=True)) == [[0], [] if hidden else [1]]
    assert asyncio.run(make(hide_end=False)) == [[0], [1]]


def test_a_model_without_parsers_says_text():
    steps = made(Serving.parsed(fake.SimpleContext, steps_of("Hello ", "there.")))
    assert response(steps)["output"][0]["content"][0]["text"] == "Hello there."


def test_a_parser_that_raises_fails_the_response():
    parser = fake.Parser(delta(content="Hello."), ValueError("a parser"))
    steps = made(Serving.parsed(fake.SimpleContext, steps_of("a", "b"), parser=parser))
    assert summary(steps) == ([("message", "incomplete")], "failed")


def test_one_call_is_left_where_no_parallel_ones_are_wanted():
    parser = fake.Parser(delta(content="Hm."), delta(tool_calls=[call(0, "f", "{}"), call(1, "g", "{}")]))
    serving = Serving.parsed(fake.SimpleContext, steps_of("a", "b"), parser=parser)
    assert summary(made(serving, parallel_tool_calls=False))[0] == [COMPLETED, ("function_call", "completed")]


def test_log_probabilities_are_vllms():
    serving = Serving.parsed(fake.SimpleContext, [*steps_of("Hello", logprobs=[("Hello", -0.5)]), *steps_of("")])
    serving.script[0][0].finished = False
    part = response(made(serving, include=["message.output_text.logprobs"]))["output"][0]["content"][0]
    assert [entry["token"] for entry in part["logprobs"]] == ["Hello"]


def test_other_models_have_their_tools_run_too():
    calls = {"call": fake.SimpleNamespace(type="function_call", call_id="call_0", arguments="{}")}
    parser = fake.Parser(delta(tool_calls=[call(0, "python", '{"code": "1"}')]), delta(content="Done."))
    session = Session(result("1"))
    serving = Serving.parsed(
        fake.ParsableContext, steps_of("call"), steps_of("said"), parser=parser, sessions={"python": session}
    )
    serving.calls = calls
    assert summary(made(serving, tools=TOOLS)) == ([RAN, COMPLETED], "completed")


def test_other_models_are_told_when_their_tools_fail():
    calls = {"call": fake.SimpleNamespace(type="function_call", call_id="call_0", arguments="{}")}
    parser = fake.Parser(delta(tool_calls=[call(0, "python", '{"code": "1"}')]), delta(content="Done."))
    serving = Serving.parsed(fake.ParsableContext, steps_of("call"), steps_of("said"), parser=parser)
    serving.calls = calls
    assert summary(made(serving, tools=TOOLS))[0] == [FAILED, COMPLETED]
    assert serving.context.response_messages[1] == {
        "type": "function_call_output",
        "call_id": "call_0",
        "output": "The tool is not available: 'python'.",
    }


def test_a_tool_that_gives_nothing_at_all_has_failed():
    async def nothing(_):
        return []

    class Context(fake.ParsableContext):
        call_tool = nothing

    parser = fake.Parser(delta(tool_calls=[call(0, "python", '{"code": "1"}')]), delta(content="Done."))
    serving = Serving.parsed(Context, steps_of("call"), steps_of("said"), parser=parser)
    serving.calls = {"call": fake.SimpleNamespace(type="function_call", call_id="call_0", arguments="{}")}
    assert logs(made(serving, tools=TOOLS)) == ["The tool gave no text."]


def test_a_request_that_did_not_come_through_our_routes_finds_vllms_own_functions():
    async def ask(**settings):
        serving = Serving(fake.HarmonyContext)
        hooks_on(serving)
        return await serving.create_responses(Request(input="Hi", **settings), None)

    assert asyncio.run(ask()) == "vLLM's own stream"


def test_what_a_transfer_needs_is_in_the_response_that_has_ended():
    *before, last = outputs(ANSWER)
    last.kv_transfer_params = {"block": 7}
    steps = made(Serving(fake.HarmonyContext, [*before, last]))
    assert response(steps)["kv_transfer_params"] == {"block": 7}
    assert "kv_transfer_params" not in steps[0][0]["response"]


def test_the_models_own_messages_are_there_for_requests_that_ask_for_them():
    shown = response(made(Serving(fake.HarmonyContext, outputs(ANSWER)), enable_response_messages=True))
    assert [message["content"][0]["text"] for message in shown["input_messages"]] == ["Hi"]
    assert [message["content"][0]["text"] for message in shown["output_messages"]] == ["Hello there."]
    script = [Output([fake.Completion("Hel")]), Output([fake.Completion("lo", finish_reason="stop")], finished=True)]
    shown = response(made(Serving.parsed(fake.SimpleContext, script), enable_response_messages=True))
    assert shown["input_messages"] == [{"message": "Hi", "tokens": [1]}]
    assert shown["output_messages"] == [{"message": "Hello", "tokens": [2]}]


def test_timings_are_vllms_where_it_has_them(monkeypatch):
    serving = Serving(fake.HarmonyContext, outputs(ANSWER))
    serving.enable_per_request_metrics = True
    monkeypatch.setattr(fake.HarmonyContext, "request_metrics_cover_all_generation_turns", True, raising=False)
    theirs = ModuleType("serving")
    theirs.build_per_request_timing_metrics = lambda metrics, tokens: fake.Raw(message=str(metrics), tokens=[tokens])
    monkeypatch.setattr(seams, "import_module", lambda _: theirs)
    assert response(made(serving))["metrics"] == {"message": "None", "tokens": [len(outputs(ANSWER))]}


def test_a_response_ends_without_what_vllm_cannot_give(monkeypatch):
    monkeypatch.setattr(fake.HarmonyContext, "messages", property(lambda _: [object()] * 2))
    steps = made(Serving(fake.HarmonyContext, outputs(ANSWER)), enable_response_messages=True)
    assert summary(steps) == ([COMPLETED], "completed")


def test_what_was_generated_is_logged_where_vllm_logs_it():
    serving, logged = Serving(fake.HarmonyContext, outputs(ANSWER)), []
    serving.enable_log_outputs = True
    serving.request_logger = SimpleNamespace(log_outputs=lambda *said, **how: logged.append((said, how)))
    shown = response(made(serving))
    said = (shown["id"], json.dumps(shown["output"], separators=(",", ":")), None)
    assert logged == [(said, {"finish_reason": "completed", "is_streaming": True})]


def test_a_log_that_fails_is_no_fault_of_the_stream():
    serving = Serving(fake.HarmonyContext, outputs(ANSWER))
    serving.enable_log_outputs, serving.request_logger = True, object()
    assert summary(made(serving)) == ([COMPLETED], "completed")


def stored(**body):
    """Make a response, and give what the store has of it then, for its tenant and for another."""

    async def make():
        serving = Serving(fake.HarmonyContext, outputs(ANSWER))
        hooks = Hooks(serving, Archive(MemoryStore()), 1.0)
        hooks.install()
        said = ({"type": "message", "id": "msg_0", "role": "user", "content": "Hi"},)
        ASKED.set(Asked({}, OPENAI, {}, Seals(hooks.envelope, "m", "tenant"), said))
        shown = response(await read(await serving.create_responses(Request(input="Hi", model="m", **body), None)))
        return shown, await hooks.archive.get("tenant", "resp_1"), await hooks.archive.get("", "resp_1")

    return asyncio.run(make())


def test_a_response_is_stored_for_its_tenant_with_what_it_answered():
    shown, kept, others = stored()
    assert (kept.response, [item["id"] for item in kept.items], others) == (shown, ["msg_0"], None)


def test_what_shall_not_be_stored_is_not():
    shown, kept, _ = stored(store=False)
    assert (shown["store"], kept) == (False, None)


def test_what_goes_back_to_the_model_has_the_ids_that_it_wrote():
    serving = fake.Serving(fake.ParsableContext, [])
    hooks = Hooks(serving, Archive(MemoryStore()), 1.0, family=family("kimi_k2"))
    called = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "call_functions.f:0"}
    answered = {"type": "function_call_output", "call_id": "call_functions.f:0", "output": "12"}
    theirs, asked = asyncio.run(hooks.read({"model": "m", "input": [called, answered]}, OPENAI))
    assert [item["call_id"] for item in theirs["input"]] == ["functions.f:0"] * 2
    assert [item["call_id"] for item in asked.items] == ["call_functions.f:0"] * 2
