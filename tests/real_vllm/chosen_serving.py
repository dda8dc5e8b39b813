"""A middleware that lets a request to `/v1/responses` choose the class of examples/vllm_events.py and the parsers of its model.

`--middleware chosen_serving.ChosenServing` loads it. The header `x-serving` names a tool parser, a reasoning parser and a kind of
context: `hermes/qwen3/simple`, `//harmony`. So one server plays the turns of all families, and vLLM's own class answers the
requests without that header. Requests with different kinds of context must come one after another.
"""

from __future__ import annotations

import os
import sys
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

from vllm.entrypoints.openai.responses import api_router
from vllm.parser import ParserManager

from interlock.parsers.families import family, has_family

sys.path.append(str(Path(__file__).parents[2] / "examples"))

from vllm_events import EventServing


class ChosenServing:
    """Replaces the function with which vLLM's routes find the serving object."""

    def __init__(self, app: Any) -> None:
        self._app, find = app, api_router.responses

        def responses(request: Any) -> Any:
            name = request.headers.get("x-serving")
            return find(request) if name is None else _chosen(find(request), name)

        api_router.responses = responses

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass all requests to the application."""
        await self._app(scope, receive, send)


def _chosen(serving: Any, name: str) -> Any:
    os.environ["VLLM_USE_EXPERIMENTAL_PARSER_CONTEXT"] = str(int(name.endswith("/parsable")))
    return _with_events(serving, *name.split("/")[:2])


@cache
def _with_events(serving: Any, tool_parser: str, reasoning_parser: str) -> Any:
    """Return a copy of a serving object, with the example's class and other parsers."""
    chosen = copy(serving)
    chosen.__class__ = EventServing
    names = tool_parser or None, reasoning_parser or None
    chosen.family = family(*names) if has_family(*names) else None
    if not chosen.use_harmony:
        chosen.parser = ParserManager.get_parser(*names, enable_auto_tools=True, tokenizer=serving.renderer.tokenizer)
        chosen.online_renderer = copy(serving.online_renderer)
        chosen.online_renderer.parser = chosen.parser
        chosen.enable_auto_tools = True
    return chosen
