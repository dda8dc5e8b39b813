"""A middleware for vLLM's server that makes the model write a script, turn by turn, for any client and any request.

`--middleware scripted_turns.ScriptedTurns` loads it, for clients whose requests cannot have a script. The environment variable
`INTERLOCK_TURNS` names a folder with `turns.json`, the output of each generation; each prompt is added to its `prompts.jsonl` as
text, for the tests to read. `INTERLOCK_TURNS_MODEL` is one of `tiny_models.BUILDERS`.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import playing


class ScriptedTurns:
    """Replaces the engine client's `generate` when the first request arrives."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass all requests to the application."""
        if scope["type"] == "http":
            _script(scope["app"].state.engine_client)
        await self._app(scope, receive, send)


def _script(client: Any) -> None:
    if "generate" in vars(client):
        return
    original, model = client.generate, os.environ["INTERLOCK_TURNS_MODEL"]
    folder = Path(os.environ["INTERLOCK_TURNS"])

    async def generate(prompt: Any, sampling: Any, request_id: str, **options: Any) -> AsyncGenerator[Any]:
        with (folder / "prompts.jsonl").open("a+", encoding="utf-8") as prompts:
            prompts.seek(0)
            before = len(prompts.readlines())
            prompts.write(json.dumps(playing.text(model, prompt["prompt_token_ids"])) + "\n")
        turns = json.loads((folder / "turns.json").read_text(encoding="utf-8"))
        sampling.extra_args = {"round_0": playing.tokens(model, turns[before])}
        async for output in original(prompt, sampling, request_id, **options):
            yield output

    client.generate = generate
