"""Code runs in a real sandbox, in containers that keep variables, take turns and belong to one tenant."""

import asyncio
import os
import signal
import sys
from itertools import pairwise

import httpx
import pytest
from for_each import for_each
from live.agents import ask, calling, servers, several

from interlock.serving.build import build_tools
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.requests.api_errors import ToolError, ToolFailedError
from interlock.serving.settings import Settings, SettingsError
from interlock.serving.tools.code_interpreter import MODULES, RESET, SHOWN, CodeInterpreter, FairSlots, prepare
from interlock.serving.tools.hosting import ToolServers

KEY = ("tenant", "cntr_1")
TOOL = {"type": "code_interpreter", "container": {"type": "auto"}}
OUTPUTS = {"include": ["code_interpreter_call.outputs"]}


async def outcome(interpreter, code, key=KEY):
    """What code prints, or the error."""
    try:
        return await interpreter.run(key, code)
    except ToolError as error:
        return error


def results(*codes, **settings):
    """The outcomes of codes that run one after another in a container."""

    async def run():
        interpreter = CodeInterpreter(**settings)
        try:
            return [await outcome(interpreter, code) for code in codes]
        finally:
            await interpreter.close()

    return asyncio.run(run())


@for_each(
    ("code", "printed"),
    [
        ("print(6 * 7)", "42\n"),
        ("6 * 7", "42\n"),
        ("x = 1", ""),
        ("None", ""),
        ("", ""),
        ("# nothing", ""),
        ("'é' * 2; (1,\r\n 2)  # the last", "(1, 2)\n"),
        ("print('a')\n'\\d'", "a\n'\\\\d'\n"),
        ("import asyncio\nasync def f(): return 3\nawait f()", "3\n"),
        ("import time\ntime.sleep(3600)\n1", "1\n"),
        ("class A:\n    def f(self): return 2\nA().f()", "2\n"),
    ],
)
def test_the_result_has_the_printed_text_and_the_last_value(code, printed) -> None:
    assert results(code) == [printed]


def test_prepare_leaves_long_or_invalid_code_unchanged() -> None:
    long = "1" + " " * SHOWN
    assert [prepare(code) for code in (long, "1 +", "\0", "'\ud800'")] == [long, "1 +", "\0", "'\ud800'"]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("print(1)\nraise SystemExit(3)\nprint(2)", "1\nThe program ended with status 3."),
        ("import sys\nprint(1)\nsys.exit()", "1"),
        ("def f():\n    exit('no data')\nf()", "The program ended with status no data."),
        ("quit(0)", ""),
        ("raise SystemExit", ""),
    ],
)
def test_an_exit_ends_the_program_without_a_failure(code, text) -> None:
    assert results(code) == [text]


def test_a_tenant_with_many_calls_leaves_the_next_slot_to_another() -> None:
    order = []

    async def use(slots, tenant, name, release):
        async with slots.taken_by(tenant):
            order.append(name)
            await release.wait()

    async def run():
        slots, first, last = FairSlots(2), asyncio.Event(), asyncio.Event()
        names = [("a", "a1", first), ("a", "a2", last), ("a", "a3", last), ("a", "a4", last), ("b", "b1", last)]
        tasks = [asyncio.create_task(use(slots, *name)) for name in names]
        await asyncio.sleep(0)
        tasks[2].cancel()
        first.set()
        await asyncio.sleep(0.01)
        last.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        return slots.free

    assert asyncio.run(run()) == 2
    assert order == ["a1", "a2", "b1", "a4"]


def test_a_call_that_gets_no_slot_in_time_fails() -> None:
    async def run():
        interpreter = CodeInterpreter(most=1, wait=0.2)
        try:
            await interpreter.run(("a", "1"), "1")
            async with interpreter._slots.taken_by("a"):
                with pytest.raises(ToolError) as error:
                    await interpreter.run(("b", "2"), "1")
            return str(error.value), await interpreter.run(("b", "2"), "1")
        finally:
            await interpreter.close()

    assert asyncio.run(run()) == ("The interpreter had no time for this call within 0.2 seconds.", "1\n")


def test_variables_are_kept_even_after_a_failure() -> None:
    first, failed, last = results("x = 5", "print('so far')\nx / 0", "x + 1")
    assert (first, last) == ("", "6\n")
    assert isinstance(failed, ToolFailedError)
    assert str(failed).startswith('so far\nTraceback (most recent call last):\n  File "')
    assert str(failed).endswith("ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("open('/etc/passwd').read()", "PermissionError: Permission denied: '/etc/passwd'"),
        ("import os\nos.listdir('/')", "PermissionError: Permission denied: '/'"),
        ("import subprocess", "ModuleNotFoundError: No module named 'subprocess'"),
        ("import socket", "ModuleNotFoundError: No module named 'socket'"),
        ("'x' * 16 * 2**30", "bytes > 134217728 bytes"),
        ("def f():\n    yield 1", "NotImplementedError: The monty syntax parser does not yet support yield expressions"),
        ("def f(:", "SyntaxError: Expected a parameter or the end of the parameter list"),
        ("print('\ud800')", "SyntaxError: source code is not valid UTF-8 (contains lone surrogates)"),
    ],
)
def test_a_forbidden_operation_fails_and_keeps_variables(code, message) -> None:
    _, failed, last = results("x = 5", code, "x")
    assert str(failed).endswith(message)
    assert last == "5\n"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("while True: pass", "TimeoutError: feed time limit exceeded: "),
        ("a = []\nwhile True: a = [a]", "MemoryError: memory limit exceeded: "),
        ("while True:\n    try: open('/x')\n    except OSError: pass", "RuntimeError: suspension limit 1000 exceeded"),
    ],
)
def test_exceeding_a_limit_resets_the_container(code, message) -> None:
    _, failed, last = results("x = 5", f"print('so far')\n{code}", "x", seconds=1.0, memory=2**23)
    assert str(failed).startswith("so far\n")
    assert message in str(failed)
    assert str(failed).endswith(f"\n{RESET}")
    assert str(last).endswith("NameError: name 'x' is not defined")


def test_output_is_limited() -> None:
    _, failed, last = results("x = 5", "for _ in range(99): print('y' * 1000)", "x", output=10_000)
    printed, _, end = str(failed).rpartition("\n")
    assert set(printed) == {"y", "\n"}
    assert len(printed) <= 10_000
    assert (end, last) == ("The code was stopped: it may print 10000 bytes.", "5\n")


def test_a_crashed_process_loses_its_container_and_the_next_call_works() -> None:
    async def run():
        interpreter = CodeInterpreter()
        await interpreter.run(KEY, "x = 5")
        os.kill(interpreter._containers[KEY].session.worker_pid, signal.SIGKILL)
        failed, last = await outcome(interpreter, "x"), await outcome(interpreter, "1")
        await interpreter.close()
        return str(failed), last

    failed, last = asyncio.run(run())
    assert failed.startswith("monty worker crashed")
    assert (failed.endswith(RESET), last) == (True, "1\n")


def test_a_process_that_ended_unnoticed_loses_its_container() -> None:
    async def run():
        interpreter = CodeInterpreter()
        await interpreter.run(KEY, "x = 5")
        await interpreter._containers[KEY].session.__aexit__(None, None, None)
        failed, last = await outcome(interpreter, "x"), await outcome(interpreter, "1")
        await interpreter.close()
        return str(failed), last

    assert asyncio.run(run()) == (f"this checkout has already been finished\n{RESET}", "1\n")


def test_the_description_lists_exactly_the_modules_that_can_be_imported() -> None:
    candidates = sorted({*MODULES, *sys.stdlib_module_names} - {"__future__", "posixpath"})  # not worth a mention
    outcomes = results(*(f"import {name}" for name in candidates))
    assert [name for name, result in zip(candidates, outcomes, strict=True) if result == ""] == sorted(MODULES)
    assert f"imported: {', '.join(MODULES)}." in CodeInterpreter().description


def test_concurrent_calls_in_one_container_take_turns_and_do_not_block_others() -> None:
    async def run():
        interpreter = CodeInterpreter(seconds=60.0)
        await interpreter.run(KEY, "steps = []")
        slow = "for i in range(20_000):\n    n = len(steps)\n    steps.append(1)\n    assert len(steps) == n + 1\nlen(steps)"
        lengths = await asyncio.gather(*(interpreter.run(KEY, slow) for _ in range(5)))
        others = await asyncio.gather(*(interpreter.run(("tenant", str(index)), f"y = {index}; y") for index in range(20)))
        await interpreter.close()
        return lengths, others

    lengths, others = asyncio.run(run())
    assert lengths == [f"{20_000 * count}\n" for count in range(1, 6)]
    assert others == [f"{index}\n" for index in range(20)]


def test_an_endless_loop_delays_neither_the_event_loop_nor_another_container() -> None:
    async def run():
        interpreter = CodeInterpreter(seconds=600.0)
        endless = asyncio.create_task(interpreter.run(KEY, "while True: pass"))
        other = await interpreter.run(("tenant", "cntr_2"), "1")
        assert not endless.done()
        endless.cancel()
        await asyncio.gather(endless, return_exceptions=True)
        again = await outcome(interpreter, "2")
        await interpreter.close()
        return other, again

    assert asyncio.run(run()) == ("1\n", "2\n")


def test_containers_and_tenants_are_isolated() -> None:
    async def run():
        interpreter = CodeInterpreter()
        keys = [("a", "1"), ("a", "2"), ("b", "1")]
        await asyncio.gather(*(interpreter.run(key, f"x = {key}") for key in keys[:1]))
        seen = await asyncio.gather(*(outcome(interpreter, "x", key) for key in keys))
        await interpreter.close()
        return seen

    mine, *others = asyncio.run(run())
    assert mine == "('a', '1')\n"
    assert [str(each).splitlines()[-1] for each in others] == ["NameError: name 'x' is not defined"] * 2


def test_the_least_recently_used_idle_container_makes_room() -> None:
    async def run():
        interpreter = CodeInterpreter(most=2)
        for name in ("first", "second", "first", "third"):
            await interpreter.run(("tenant", name), "x = 1")
        seen = [await outcome(interpreter, "x", ("tenant", name)) for name in ("first", "second")]
        busy = await asyncio.gather(*(interpreter.run(("tenant", str(index)), str(index)) for index in range(10)))
        await interpreter.close()
        return seen, busy

    (kept, lost), busy = asyncio.run(run())
    assert (kept, str(lost).splitlines()[-1]) == ("1\n", "NameError: name 'x' is not defined")
    assert busy == [f"{index}\n" for index in range(10)]


def test_an_idle_container_is_dropped() -> None:
    async def run():
        interpreter = CodeInterpreter(idle=0.0)
        await interpreter.run(KEY, "x = 1")
        while interpreter._containers:  # noqa: ASYNC110 - a timer drops it, without a notification
            await asyncio.sleep(0)
        lost = await outcome(interpreter, "x")
        await interpreter.close()
        return str(lost)

    assert asyncio.run(run()).endswith("NameError: name 'x' is not defined")


def test_a_process_that_cannot_start_is_a_tool_error(monkeypatch) -> None:
    monkeypatch.setenv("MONTY_BIN", "/nowhere/monty")
    (failed,) = results("1")
    assert str(failed) == "The interpreter cannot be started."
    assert not isinstance(failed, ToolFailedError)


def test_a_server_is_refused_if_its_interpreter_cannot_start(monkeypatch) -> None:
    settings = Settings(code_interpreter=True)
    build_tools(settings)
    monkeypatch.setenv("MONTY_BIN", "/nowhere/monty")
    with pytest.raises(SettingsError, match="the interpreter cannot be started: "):
        build_tools(settings)


def python(code):
    return calling("python", code)


def hosting(**settings):
    return servers(code_interpreter=CodeInterpreter(**settings))


def logs(call):
    return call["outputs"][0]["logs"]


def test_the_calls_of_a_response_share_a_container_and_items_have_their_output() -> None:
    outcome = ask(python("x = 6"), python("print(x * 7)"), tools=[TOOL], runner=hosting(), **OUTPUTS)
    first, second = outcome.of("code_interpreter_call")
    assert (first["container_id"], first["status"], logs(first)) == (second["container_id"], "completed", "")
    assert first["container_id"].startswith("cntr_")
    assert second["outputs"] == [{"type": "logs", "logs": "42\n"}]
    assert outcome.engine.turns[2].items[-1]["output"] == "42\n"


def test_a_failed_call_has_the_traceback_and_the_model_reads_it() -> None:
    outcome = ask(python("1 / 0"), tools=[TOOL], runner=hosting())
    (call,) = outcome.of("code_interpreter_call")
    assert (call["status"], logs(call).splitlines()[-1]) == ("failed", "ZeroDivisionError: division by zero")
    assert outcome.engine.turns[1].items[-1]["output"] == f"Error: {logs(call)}"
    assert outcome.response["status"] == "completed"


def test_the_calls_of_one_turn_take_turns_in_their_container() -> None:
    turn = several(*(calling("python", f"x = {index}; x", "<|end|>") for index in range(3)), calling("python", "x"))
    outcome = ask(turn, tools=[TOOL], runner=hosting(), **OUTPUTS)
    assert [logs(call) for call in outcome.of("code_interpreter_call")] == ["0\n", "1\n", "2\n", "2\n"]


def test_a_container_is_named_by_the_request_or_by_the_last_call_of_the_conversation() -> None:
    runner = hosting()
    named = {"type": "code_interpreter", "container": "cntr_mine"}
    (first,) = ask(python("x = 6"), tools=[named], runner=runner).of("code_interpreter_call")
    assert first["container_id"] == "cntr_mine"
    for tools, items in (([named], "Hi"), ([TOOL], [{**first, "outputs": None}, {"role": "user", "content": "Hi"}])):
        (again,) = ask(python("x"), tools=tools, items=items, runner=runner, **OUTPUTS).of("code_interpreter_call")
        assert (again["container_id"], logs(again)) == ("cntr_mine", "6\n")
    (other,) = ask(python("x"), tools=[TOOL], runner=runner, **OUTPUTS).of("code_interpreter_call")
    assert other["container_id"] != "cntr_mine"
    assert logs(other).endswith("NameError: name 'x' is not defined")


def test_a_server_label_for_the_interpreter_needs_code() -> None:
    tool = {"type": "mcp", "server_label": "code_interpreter", "server_url": "http://unused.example", "require_approval": "never"}
    outcome = ask(calling("mcp.code_interpreter.python", '{"cmd": "1"}'), tools=[tool], runner=hosting())
    (call,) = outcome.of("mcp_call")
    assert call["error"]["content"][0]["text"] == "The interpreter has no tool 'python', or the call has no 'code'."


@pytest.fixture
def url(serve):
    tools = ToolServers({"code_interpreter": CodeInterpreter()})
    with serve(EmbeddedEngine(), tools=tools, api_key=["a", "b"]) as url:
        yield url


def post(url, path, key, body):
    answer = httpx.post(f"{url}{path}", json={"model": "interlock-embedded", **body}, headers={"Authorization": f"Bearer {key}"})
    assert answer.status_code == 200
    return answer.json()


def test_tenants_never_share_a_container() -> None:
    tool, runner = {"type": "code_interpreter", "container": "cntr_shared"}, hosting()

    def run(tenant, code):
        (call,) = ask(python(code), tools=[tool], runner=runner, tenant=tenant, **OUTPUTS).of("code_interpreter_call")
        return call["container_id"], logs(call).splitlines()[-1:]

    assert run("a", "secret = 5") == ("cntr_shared", [])
    assert run("a", "secret") == ("cntr_shared", ["5"])
    assert run("b", "secret") == ("cntr_shared", ["NameError: name 'secret' is not defined"])


def test_messages_shows_the_result_of_code(url) -> None:
    def blocks(text):
        tool = {"type": "code_execution_20250825", "name": "code_execution"}
        body = {"max_tokens": 1000, "messages": [{"role": "user", "content": text}], "tools": [tool]}
        content = post(url, "/v1/messages", "a", body)["content"]
        use, result = (block for block in content if block["type"].startswith(("server_tool", "code_execution")))
        assert result["tool_use_id"] == use["id"]
        return use["name"], use["input"], result["content"]

    name, code, result = blocks("calculate 6 * 7")
    assert (name, code) == ("code_execution", {"code": "print(6 * 7)"})
    assert result == {"type": "code_execution_result", "stdout": "42\n", "stderr": "", "return_code": 0, "content": []}
    *_, failed = blocks("calculate 6 / 0")
    assert (failed["stdout"], failed["return_code"]) == ("", 1)
    assert failed["stderr"].endswith("ZeroDivisionError: division by zero")


def test_a_stream_shows_the_run_between_its_events(url) -> None:
    body = {"model": "interlock-embedded", "stream": True, "input": "calculate 6 * 7", "tools": [TOOL]}
    text = httpx.post(f"{url}/v1/responses", json=body, headers={"Authorization": "Bearer a"}).text
    names = [line.removeprefix("event: response.") for line in text.splitlines() if line.startswith("event: ")]
    run = [name for name in names if name.startswith("code_interpreter_call")]
    assert [name for name, following in pairwise([*run, ""]) if name != following] == [
        "code_interpreter_call.in_progress",
        "code_interpreter_call_code.delta",
        "code_interpreter_call_code.done",
        "code_interpreter_call.interpreting",
        "code_interpreter_call.completed",
    ]
    assert "python says: 42" in text
