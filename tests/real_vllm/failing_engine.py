"""A middleware for vLLM's server that makes the engine fail, or changes the size of its steps, when a request says so.

`--middleware failing_engine.FailingEngine` loads it. A request may have these fields in its `vllm_xargs`: `fault`, a name in
`ERRORS` or `REASONS`, or `aborts`, happens after a few tokens. `interval` is the number of tokens in an output, otherwise a flag
of the server (`--stream-interval`); concurrent requests must not differ in it. `kept` names a file that gets a line for each
turn, with the tokens of its prompt and output. Everything else, also the engine, is real.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

TOKENS: Final = 8
"""The tokens before a fault, unless the output comes in a single step."""

ERRORS: Final = {
    "raises": RuntimeError("what only the operator should read"),
    "cannot generate": EngineGenerateError("The engine cannot generate this."),
    "is dead": EngineDeadError(),
}
"""The exceptions that the engine's client raises, by fault."""

REASONS: Final = ("error", "abort")
"""The faults that end a request with this finish reason."""


class FailingEngine:
    """Replaces the engine client's `generate` when the first request arrives."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass all requests to the application."""
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
