"""vLLM as a contender: its own generator of a response's events and its own writer of frames, on its own contexts.

`OpenAIServingResponses` wants an engine to be made, so its constructor is passed by, and what its events depend on is set.
Nothing of it is replaced, but where the outputs come from. None of its generators waits for anything then, so they run without
an event loop. Its frames are text, which its server encodes; so do we.
"""

from __future__ import annotations

import sys
from asyncio import Lock
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from vllm.entrypoints.openai.responses.api_router import _convert_stream_to_sse_events
from vllm.entrypoints.openai.responses.context import HarmonyContext, SimpleContext
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.openai.responses.serving import OpenAIServingResponses
from vllm.parser.harmony import HarmonyParser
from vllm.sampling_params import SamplingParams

from speed.outputs import REQUEST, Replay, begun, output
from speed.their_parsers import has_parsers, parse_pieces
from speed.timing import Drain, Feed, Write

sys.path.append(str(Path(__file__).parents[2] / "examples"))

from vllm_events import EventServing

__all__ = ["EventServing", "drain_deltas", "drain_harmony", "drain_parsed", "has_parsers", "open_harmony", "parse_pieces"]

T = TypeVar("T")
Context = HarmonyContext | SimpleContext

_REQUEST: Final = ResponsesRequest.model_validate(REQUEST)


def _serving(kind: type[OpenAIServingResponses], context: Context) -> OpenAIServingResponses:
    serving = object.__new__(kind)
    vars(serving).update(
        use_harmony=isinstance(context, HarmonyContext),
        tool_server=None,
        enable_per_request_metrics=False,
        enable_log_outputs=False,
        request_logger=None,
        # What follows is for the example: no parser of a family, a store, and the parser of the context for each turn.
        family=None,
        response_store={},
        response_store_lock=Lock(),
        _effective_chat_template_kwargs=lambda _request: {},
        _make_response_parser=lambda *_: context.response_parser,
    )
    return serving


def at_once(waiting: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing."""
    try:
        waiting.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("it waits for something")


def frames(
    context: Context, engine: AsyncIterator[Context], kind: type[OpenAIServingResponses] = OpenAIServingResponses
) -> AsyncGenerator[str, None]:
    """Return the frames of a response, as vLLM's route does with this serving class."""
    serving = _serving(kind, context)
    events = serving.responses_stream_generator(_REQUEST, SamplingParams(), engine, context, "m", None, None)
    return _convert_stream_to_sse_events(events)


async def engine(context: Context, steps: Iterable[Any]) -> AsyncGenerator[Context, None]:
    """Yield a context for each output of an engine, as vLLM's loop does."""
    for step in steps:
        context.append_output(step)
        yield context


def harmony_context() -> HarmonyContext:
    """Return the context of a response of a model that writes harmony."""
    parser = HarmonyParser(None, _REQUEST.tools)
    return HarmonyContext([], [], frozenset({"get_weather"}), parser, _REQUEST)


async def _written(stream: AsyncGenerator[str, None], write: Write) -> None:
    async for frame in stream:
        write(frame.encode())


def drain_harmony(steps: Iterable[Any], write: Write, kind: type[OpenAIServingResponses] = OpenAIServingResponses) -> None:
    """Create a response from the outputs of an engine whose model writes harmony."""
    context = harmony_context()
    at_once(_written(frames(context, engine(context, steps), kind), write))


def open_harmony() -> Feed:
    """Open a stream of a model that writes harmony, with an answer begun."""
    coming, context = deque([begun()]), harmony_context()
    stream = frames(context, engine(context, iter(coming.popleft, None)))
    for _ in range(5):  # created, in_progress, added, part added, the first delta
        at_once(anext(stream))

    def feed(output: object) -> bytes:
        coming.append(output)
        return at_once(anext(stream)).encode()

    return feed


def drain_parsed(messages: Sequence[object], kind: type[OpenAIServingResponses] = OpenAIServingResponses) -> Drain:
    """Create a response from outputs for which a parser of vLLM returns prepared messages."""

    def drain(steps: Iterable[Any], write: Write) -> None:
        context = SimpleContext(response_parser=Replay(iter(messages)))
        at_once(_written(frames(context, engine(context, steps), kind), write))

    return drain


def drain_deltas(steps: Iterable[object], write: Write) -> None:
    """Create a response from the deltas of one of vLLM's parsers, without the bookkeeping of outputs."""
    told = deque[object]()
    context = SimpleContext(response_parser=Replay(iter(told.popleft, None)))
    context.append_output(output([1]))

    async def engine() -> AsyncGenerator[SimpleContext, None]:
        for step in steps:
            told.append(step)
            yield context

    at_once(_written(frames(context, engine()), write))
