"""Loaded into a vLLM server beside Interlock's plugin: two more places where the same request can be sent.

`/vllm/v1/responses` is vLLM's own route over its own generator of events, and `/floor/v1/responses` the same route over a
generator that lets the engine's outputs go and writes nothing. `/v1/responses` itself is Interlock's. All three are served by one
process and one engine, so that nothing differs but what makes the events.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from copy import copy
from typing import Any, Final

from attrs import define, field
from fastapi import FastAPI
from starlette.datastructures import State
from vllm.entrypoints.openai.responses.api_router import router
from vllm.entrypoints.openai.responses.serving import OpenAIServingResponses

VLLM: Final = "/vllm"
FLOOR: Final = "/floor"


@define(eq=False)
class Routes:
    """The endpoint plugin."""

    name: str = "interlock_bench"
    required_tasks: tuple[str, ...] = ("generate",)
    _apps: Mapping[str, FastAPI] = field(factory=dict[str, FastAPI], init=False)

    def attach_router(self, app: FastAPI) -> None:
        """Mount an application for each route, with vLLM's own router in it."""
        self._apps = {path: FastAPI() for path in (VLLM, FLOOR)}
        for path, mounted in self._apps.items():
            mounted.include_router(router)
            app.mount(path, mounted)

    async def init_state(self, _engine_client: object, state: Any, _args: object) -> None:  # noqa: ANN401 - vLLM's
        """Set a copy of the server's state on each application, in which its own object serves responses."""
        served = {VLLM: _unhooked(state.openai_serving_responses), FLOOR: _unhooked(state.openai_serving_responses)}
        vars(served[FLOOR])["responses_stream_generator"] = _nothing
        for path, mounted in self._apps.items():
            mounted.state = State({**state._state, "openai_serving_responses": served[path]})  # noqa: SLF001 - there is no other way


def _unhooked(serving: OpenAIServingResponses) -> OpenAIServingResponses:
    """Copy the object that serves responses, without what a plugin has put in front of its methods."""
    bare = copy(serving)
    for name in [name for name in vars(bare) if callable(getattr(type(bare), name, None))]:
        del vars(bare)[name]
    return bare


async def _nothing(
    _request: object,
    _sampling: object,
    steps: AsyncGenerator[Any, None],
    context: Any,  # noqa: ANN401 - vLLM's
    *_more: object,
) -> AsyncGenerator[Any, None]:
    """Read the engine's outputs, and write no event."""
    context.append_output = lambda _output: None
    context.need_builtin_tool_call = lambda: False
    async for _ in steps:
        pass
    return
    yield
