"""A middleware of vLLM's server that has the engine fail, or yield in steps of a size, for the requests that ask for it.

It is loaded by `--middleware failing_engine.FailingEngine`. A request says in its `vllm_xargs` what is to happen once it has a
few tokens: `fault` is one of the names below. And it says how many tokens make an output: `interval`, which is otherwise a flag
of the server (`--stream-interval`); requests with different ones must not be sent at once. `kept` names a file that gets a line
for each turn: the tokens of its prompt and of its output. All the rest, the engine included, is real.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

TOKENS: Final = 8
"""Tokens that come before the fault, unless all come in one piece."""

ERRORS: Final = {
    "raises": RuntimeError("what only the operator should read"),
    "cannot generate": EngineGenerateError("The engine cannot generate this."),
    "is dead": EngineDeadError(),
}
"""What the engine's client raises."""

REASONS: Final = ("error", "abort")
"""Why a request ends that the engine gives up."""


class FailingEngine:
    """Replaces the one function of the engine's client that generates, when the first request comes."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass everything on."""
        if scope["type"] == "http":
            _break(scope["app"].state.engine_client)
        await self._app(scope, receive, send)


def _break(client: Any) -> None:
    if "generate" in vars(client):
        return
    original, interval = client.generate, client.output_processor.stream_interval

    async def generate(prompt: Any, sampling: Any, request_id: str, **options: Any) -> AsyncGenerator[Any]:
        extra = sampling.extra_args or {}
        fault, seen = extra.get("fault"), 0
        written: list[int] = []
        client.output_processor.stream_interval = int(extra.get("interval", interval))
        async for output in original(prompt, sampling, request_id, **options):
            if fault and (seen >= TOKENS or output.finished):
                if fault in ERRORS:
                    raise ERRORS[fault]
                if fault == "aborts":
                    await client.abort(request_id)
                elif fault in REASONS:
                    output.finished, output.outputs[0].finish_reason = True, fault
            written += output.outputs[0].token_ids
            if output.finished and "kept" in extra:
                _keep(Path(extra["kept"]), [list(prompt["prompt_token_ids"]), written])
            yield output
            if output.finished:
                return
            seen += len(output.outputs[0].token_ids)

    client.generate = generate


def _keep(file: Path, turn: list[list[int]]) -> None:
    with file.open("a", encoding="utf-8") as log:
        log.write(json.dumps(turn) + "\n")
