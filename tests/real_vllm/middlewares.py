"""Middlewares for vLLM's server, loaded by `--middleware middlewares.FailingEngine`.

All but `ExceptionLog` change the output of the engine: each replaces the engine client's `generate` when the first request
arrives. Everything else, also the engine, is real.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from textwrap import shorten
from typing import Any, ClassVar, Final

TOKENS: Final = 8
"""The tokens before a fault, unless the output comes in a single step."""
LONGEST: Final = 120
"""The most characters of an exception and its message in the log."""
REASONS: Final = ("error", "abort")
"""The faults that end a request with this finish reason."""


class _Middleware:
    replace: ClassVar[Callable[[Any], Callable[..., AsyncGenerator[Any]]]]
    """Returns a function in place of the `generate` of an engine client."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            client = scope["app"].state.engine_client
            if "generate" not in vars(client):
                client.generate = type(self).replace(client)
        await self._app(scope, receive, send)


def _append(file: Path, value: object) -> None:
    with file.open("a", encoding="utf-8") as log:
        log.write(json.dumps(value) + "\n")


def _failing(client: Any) -> Callable[..., AsyncGenerator[Any]]:
    from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError  # noqa: PLC0415 - the other one needs no vLLM

    original, interval = client.generate, client.output_processor.stream_interval
    errors = {
        "raises": RuntimeError("what only the operator should read"),
        "cannot generate": EngineGenerateError("The engine cannot generate this."),
        "is dead": EngineDeadError(),
    }

    async def generate(prompt: Any, sampling: Any, request_id: str, **options: Any) -> AsyncGenerator[Any]:
        extra = sampling.extra_args or {}
        fault, seen = extra.get("fault"), 0
        written: list[int] = []
        client.output_processor.stream_interval = int(extra.get("interval", interval))
        async for output in original(prompt, sampling, request_id, **options):
            if fault and (seen >= TOKENS or output.finished):
                if fault in errors:
                    raise errors[fault]
                if fault == "aborts":
                    await client.abort(request_id)
                elif fault in REASONS:
                    output.finished, output.outputs[0].finish_reason = True, fault
            written += output.outputs[0].token_ids
            if output.finished and "kept" in extra:
                _append(Path(extra["kept"]), [list(prompt["prompt_token_ids"]), written])
            yield output
            if output.finished:
                return
            seen += len(output.outputs[0].token_ids)

    return generate


class FailingEngine(_Middleware):
    """Makes the engine fail, or changes the size of its steps, when a request says so in its `vllm_xargs`.

    `fault`, an exception of the engine's client or one of `REASONS`, or `aborts`, happens after a few tokens. `interval` is the
    number of tokens in an output, otherwise a flag of the server (`--stream-interval`); concurrent requests must not differ in
    it. `kept` names a file that gets a line for each turn, with the tokens of its prompt and output.
    """

    replace = staticmethod(_failing)


def _scripted(client: Any) -> Callable[..., AsyncGenerator[Any]]:
    import playing  # noqa: PLC0415 - it needs packages of the tests

    original, model = client.generate, os.environ["INTERLOCK_TURNS_MODEL"]
    folder = Path(os.environ["INTERLOCK_TURNS"])

    async def generate(prompt: Any, sampling: Any, request_id: str, **options: Any) -> AsyncGenerator[Any]:
        prompts = folder / "prompts.jsonl"
        before = len(prompts.read_text(encoding="utf-8").splitlines()) if prompts.exists() else 0
        _append(prompts, playing.text(model, prompt["prompt_token_ids"]))
        turns = json.loads((folder / "turns.json").read_text(encoding="utf-8"))
        sampling.extra_args = {"round_0": playing.tokens(model, turns[before])}
        async for output in original(prompt, sampling, request_id, **options):
            yield output

    return generate


class ScriptedTurns(_Middleware):
    """Makes the model write a script, turn by turn, for clients whose requests cannot have a script.

    The environment variable `INTERLOCK_TURNS` names a folder with `turns.json`, the output of each generation; each prompt is
    added to its `prompts.jsonl` as text, for the tests to read. `INTERLOCK_TURNS_MODEL` is one of `tiny_models.BUILDERS`.
    """

    replace = staticmethod(_scripted)


class ExceptionLog:
    """Writes the exception that ends a request to the log, as a JSON object in a line.

    `turn` is the request's header of this name; `raised` is the exception with its message; and `at` is the line of vLLM that
    raised it, or that called what raised it.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            cause = _cause(error)
            raised = shorten(f"{type(cause).__name__}: {cause}", LONGEST, placeholder=" …")
            turn = dict(scope["headers"]).get(b"turn", b"").decode()
            sys.stderr.write(json.dumps({"turn": turn, "raised": raised, "at": next(_lines_of_vllm(cause), "")}) + "\n")
            raise


def _cause(error: BaseException) -> BaseException:
    """Return the exception behind groups of tasks and behind Starlette's own."""
    while True:
        match error:
            case BaseExceptionGroup(exceptions=(first, *_)):
                error = first
            case RuntimeError(__cause__=BaseException() as cause) if "response already started" in str(error):
                error = cause
            case _:
                return error


def _lines_of_vllm(error: BaseException) -> Iterator[str]:
    """Yield the lines of vLLM in a traceback, the innermost first."""
    import vllm  # noqa: PLC0415 - a test of the others needs none

    root = Path(vllm.__file__).parent
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(root):
            yield f"{Path(frame.filename).relative_to(root.parent)}:{frame.lineno}"
