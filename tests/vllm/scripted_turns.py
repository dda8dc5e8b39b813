"""A middleware of vLLM's server that has the model write a script, turn by turn, whoever asks and whatever is asked.

It is loaded by `--middleware scripted_turns.ScriptedTurns`, for clients whose requests cannot carry a script of their own. The
folder that `INTERLOCK_TURNS` names has `turns.json`, the texts that are written, one for each generation; each prompt is added to
`prompts.jsonl` as text, so that a test sees what the model was given. `INTERLOCK_TURNS_MODEL` is one of `tiny_models.BUILDERS`.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import playing


class ScriptedTurns:
    """Replaces the one function of the engine's client that generates, when the first request comes."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass everything on."""
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
