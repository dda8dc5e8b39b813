"""The endpoints of Anthropic's Messages and OpenAI's Chat Completions, in front of the same service as the Responses API.

A request is read as a request for a response, and a transducer turns the events of the response into the stream of the API.
docs/guides/dialects.md says what is served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeAlias, TypeVar

import orjson
from attrs import frozen
from msgspec import Struct, convert
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from interlock.dialects import ApiName
from interlock.dialects.transducer import EntryWriter, StreamEntry, Transducer
from interlock.events.chat import CompletionChunk, ErrorChunk
from interlock.events.messages import ErrorMessage, MessagesEvent
from interlock.events.sse import EventWriter
from interlock.events.stream import StreamEvent
from interlock.parsers.hosted_tools import HostedTool
from interlock.serving.http.answers import AnswerLine, JsonResponse, answer_error, cancelled_on_disconnect, socket_of
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.api_keys import tenant_of
from interlock.serving.requests.chat_request import CHAT_NAMES, translate_chat
from interlock.serving.requests.create import ResponseRequest, read_translated
from interlock.serving.requests.logs import current_request_id
from interlock.serving.requests.messages_request import MESSAGES_NAMES, translate_messages
from interlock.serving.requests.runtime import is_fault
from interlock.serving.responses.run import ResponseRun
from interlock.serving.responses.sealing import Seals
from interlock.serving.responses.service import PendingRun, ResponseService

logger = logging.getLogger(__name__)

D = TypeVar("D", bound=Struct)
AnyTransducer: TypeAlias = Transducer[Any, D]


@frozen(eq=False)
class DialectApi(Generic[D]):
    """What an answer needs to know of an API."""

    error: type[D]  # the event for an error after the first write of a stream; its JSON is the body for an error of a request
    names: Mapping[str, str]  # the API's names of parameters, by the beginnings of those of the Responses API
    counts_first: bool = False  # whether an answer begins with the number of tokens in its prompt


MESSAGES_API: Final = DialectApi[MessagesEvent](ErrorMessage, MESSAGES_NAMES, counts_first=True)
CHAT_API: Final = DialectApi[CompletionChunk | ErrorChunk](ErrorChunk, CHAT_NAMES)


def refuse(api: DialectApi[D], request: Request, error: Exception) -> Response:
    """Return the answer to a request that is refused, in the API's words."""
    if not isinstance(error, ApiError | ClientDisconnect):
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return answer_error(request, error.rename(api.names) if isinstance(error, ApiError) else error)


@frozen(eq=False)
class TransducedStream(Generic[D]):
    """Streams the events of a run in another API; pings break every silence, also before the engine has accepted the request.

    `keep_alive` is the longest silence in seconds, or 0 for no pings.
    """

    pending: PendingRun[StreamEntry]
    transducer: AnyTransducer[D]
    api: DialectApi[D]
    request: Request
    keep_alive: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the frames of each step; a request that is refused after a ping ends with the error as an event."""
        line = AnswerLine(send)

        def encode(entries: list[StreamEntry]) -> bytes:
            if data := self.transducer.encode(entries):
                line.written_at = asyncio.get_running_loop().time()
            return data

        run: ResponseRun[StreamEntry] | None = None
        try:
            async with (
                line.kept_alive(self.transducer.ping, self.keep_alive),
                cancelled_on_disconnect(self.pending.control, receive),
                self.pending.admitted(socket_of(scope, encode)) as run,
            ):
                if self.api.counts_first:
                    self.transducer.input_tokens = await run.count_prompt()
                async for entries in run:
                    await self._write(line, run, entries)
        except Exception as error:
            if not is_fault(error):
                raise
            answer = refuse(self.api, self.request, error)
            if line.written_at is None:
                await answer(scope, receive, send)
                return
            last = convert(orjson.loads(bytes(answer.body)), self.api.error)
            await line.write(self.transducer.frame(last) + self.transducer.end, more=False)
        finally:
            if run is not None and line.written_at is not None and (rest := run.conclude()):
                await self._write(line, run, rest)

    async def _write(self, line: AnswerLine, run: ResponseRun[StreamEntry], entries: Iterable[StreamEntry]) -> None:
        self.transducer.stop_sequence = run.progress.stop_sequence
        if data := self.transducer.encode(entries):
            await line.write(data, more=not self.transducer.has_ended)


@frozen(eq=False)
class TransducedAnswer(Generic[D]):
    """Sends the whole answer that the events of a run add up to in another API."""

    pending: PendingRun[StreamEvent]
    transducer: AnyTransducer[D]
    api: DialectApi[D]
    request: Request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the response to its end and send the answer, or the error with its status."""
        made: list[D] = []
        try:
            async with cancelled_on_disconnect(self.pending.control, receive), self.pending.admitted() as run:
                if self.api.counts_first:
                    self.transducer.input_tokens = await run.count_prompt()
                async for step in run:
                    self.transducer.stop_sequence = run.progress.stop_sequence
                    for event in step:
                        made += self.transducer.feed(event)
        except Exception as error:
            if not is_fault(error):
                raise
            await refuse(self.api, self.request, error)(scope, receive, send)
            return
        await JsonResponse(self.transducer.fold(made), self.transducer.status)(scope, receive, send)


@frozen(eq=False)
class DialectRoutes:
    """The endpoints of other APIs than Responses; `read` reads the body of a request."""

    service: ResponseService
    read: Callable[[Request], Awaitable[dict[str, object]]]
    keep_alive: float

    def by_api(self) -> Mapping[ApiName, Sequence[BaseRoute]]:
        return {
            "messages": [
                Route("/v1/messages", self.create_message, methods=["POST"]),
                Route("/v1/messages/count_tokens", self.count_tokens, methods=["POST"]),
            ],
            "chat": [Route("/v1/chat/completions", self.create_completion, methods=["POST"])],
        }

    async def create_message(self, request: Request) -> ASGIApp:
        try:
            body, transducer = await translate_messages(
                await self.read(request), self._opener(request), self._runs, request_id=current_request_id()
            )
            parameters = self._parameters(body)
        except Exception as error:  # noqa: BLE001 - `refuse` logs faults
            return refuse(MESSAGES_API, request, error)
        return self._answer(request, parameters, MESSAGES_API, transducer)

    async def count_tokens(self, request: Request) -> ASGIApp:
        try:
            body, _ = await translate_messages(await self.read(request), self._opener(request), self._runs, counts=True)
            count = await self.service.count(self.service.engine.read(body), tenant_of(request), request)
        except Exception as error:  # noqa: BLE001 - `refuse` logs faults
            return refuse(MESSAGES_API, request, error)
        return JsonResponse({"input_tokens": count})

    async def create_completion(self, request: Request) -> ASGIApp:
        try:
            body, transducer = await translate_chat(await self.read(request), self._opener(request), self._runs)
            parameters = self._parameters(body)
        except Exception as error:  # noqa: BLE001 - `refuse` logs faults
            return refuse(CHAT_API, request, error)
        return self._answer(request, parameters, CHAT_API, transducer)

    def _answer(self, request: Request, parameters: ResponseRequest, api: DialectApi[D], transducer: AnyTransducer[D]) -> ASGIApp:
        tenant = tenant_of(request)
        if parameters.stream:
            entries = PendingRun(self.service, parameters, tenant, EntryWriter(), connection=request)
            return TransducedStream(entries, transducer, api, request, self.keep_alive)
        events = PendingRun[StreamEvent](self.service, parameters, tenant, EventWriter(), connection=request)
        return TransducedAnswer(events, transducer, api, request)

    def _parameters(self, body: Mapping[str, object]) -> ResponseRequest:
        return read_translated(body, self.service.engine.read)

    async def _runs(self, model: str, tool: HostedTool) -> bool:
        """Return whether a hosted tool runs for a model: on a tool server, or perhaps on the server of the model."""
        return tool in self.service.tools.hosted or await self.service.engine.has_tools(model)

    def _opener(self, request: Request) -> Callable[[str, str], Awaitable[object]]:
        """Return a function that opens encrypted reasoning of a model, or raises an `ApiError`."""
        tenant = tenant_of(request)

        async def open_signature(model: str, signature: str) -> object:
            return await Seals(self.service.sealing_keys, model, tenant).open("reasoning", signature, "signature")

        return open_signature


def messages_model(name: str, created: int) -> dict[str, object]:
    """Return a model as clients of Messages read it."""
    return {"type": "model", "id": name, "display_name": name, "created_at": datetime.fromtimestamp(created, UTC).isoformat()}


def list_messages_models(names: Iterable[str], created: int) -> dict[str, object]:
    """Return the list of models as clients of Messages read it."""
    data = [messages_model(name, created) for name in names]
    ends = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"data": data, "has_more": False, "first_id": ends[0], "last_id": ends[1]}
