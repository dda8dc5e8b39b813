"""Loaded into a vLLM server beside Interlock's plugin: two more places where the same request can be sent.

`/vllm/v1/responses` is vLLM's own route over its own generator of events, and `/floor/v1/responses` a route that writes one
constant frame for each output of the engine. `/v1/responses` itself is Interlock's. All three are served by one process and one
engine, so that nothing differs but what makes the events.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from copy import copy
from typing import Any, Final

from attrs import define, field
from fastapi import Depends, FastAPI
from server.leaps import LEAPT, hook
from server.load import MARK
from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from vllm.entrypoints.openai.responses.api_router import router, validate_json_request, with_cancellation
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.openai.responses.serving import OpenAIServingResponses
from vllm.entrypoints.serve.utils.api_utils import load_aware_call

VLLM: Final = "/vllm"
FLOOR: Final = "/floor"

FRAME: Final = (
    b'event: response.output_text.delta\ndata: {"content_index":0,"delta":" lock","item_id":"msg_%032d","logprobs":[],'
    b'"output_index":0,"sequence_number":100,"type":"response.output_text.delta"}\n\n' % 0
)
"""The frame of the floor for each output, of the size of a text delta."""
MARKED: Final = FRAME.replace(b" lock", b" l%b" % MARK + b"k")
"""The same for an output with a leap."""


@define(eq=False)
class Routes:
    """The endpoint plugin."""

    name: str = "interlock_bench"
    required_tasks: tuple[str, ...] = ("generate",)
    _apps: Mapping[str, FastAPI] = field(factory=dict[str, FastAPI], init=False)

    def attach_router(self, app: FastAPI) -> None:
        """Mount an application for each route: one with vLLM's own router in it, one with the floor's."""
        self._apps = {path: FastAPI() for path in (VLLM, FLOOR)}
        self._apps[VLLM].include_router(router)
        floor = with_cancellation(load_aware_call(write_constant))
        self._apps[FLOOR].add_api_route(
            "/v1/responses", floor, methods=["POST"], dependencies=[Depends(validate_json_request)], response_model=None
        )
        for path, mounted in self._apps.items():
            app.mount(path, mounted)

    async def init_state(self, engine_client: Any, state: Any, _args: object) -> None:  # noqa: ANN401 - vLLM's
        """Set a copy of the server's state on each application, in which its own object serves responses."""
        hook(engine_client)
        served = {path: _unhooked(state.openai_serving_responses) for path in self._apps}
        vars(served[FLOOR]).update(responses_stream_generator=_constant, responses_full_generator=_constant_answer)
        for path, mounted in self._apps.items():
            mounted.state = State({**state._state, "openai_serving_responses": served[path]})  # noqa: SLF001 - there is no other way


def _unhooked(serving: OpenAIServingResponses) -> OpenAIServingResponses:
    """Copy the object that serves responses, without the wrappers of a plugin around its methods."""
    bare = copy(serving)
    for name in [name for name in vars(bare) if callable(getattr(type(bare), name, None))]:
        del vars(bare)[name]
    return bare


async def write_constant(request: ResponsesRequest, raw_request: Request) -> Response:
    """Answer as vLLM's route does, with the floor's frames, or its answer."""
    answer = await raw_request.app.state.openai_serving_responses.create_responses(request, raw_request)
    return answer if isinstance(answer, Response) else StreamingResponse(answer, media_type="text/event-stream")


async def _constant_answer(
    _request: object,
    _sampling: object,
    steps: AsyncGenerator[Any, None],
    context: Any,  # noqa: ANN401 - vLLM's
    *_more: object,
) -> Response:
    """Read the output of the engine, and return a constant answer."""
    context.append_output = lambda _output: None
    context.need_builtin_tool_call = lambda: False
    async for _ in steps:
        pass
    return Response(b"{}", media_type="application/json")


async def _constant(
    _request: object,
    _sampling: object,
    steps: AsyncGenerator[Any, None],
    context: Any,  # noqa: ANN401 - vLLM's
    *_more: object,
) -> AsyncGenerator[bytes, None]:
    """Yield a frame for each output of the engine."""
    frame = FRAME

    def look(output: Any) -> None:  # noqa: ANN401 - vLLM's
        nonlocal frame
        frame = MARKED if hasattr(output, LEAPT) else FRAME

    context.append_output = look
    context.need_builtin_tool_call = lambda: False
    async for _ in steps:
        yield frame
