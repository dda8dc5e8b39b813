"""Responses: writes the stateless request for a turn and reads its events. docs/guides/gateway.md has tables of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from attrs import define
from msgspec.json import Decoder

from interlock.events.items import ITEMS, McpItem
from interlock.events.json import EMPTY, dumps, elements, members
from interlock.parsers import Chunk
from interlock.parsers.hosted_tools import HOSTED_CALLS
from interlock.parsers.responses_events import ResponsesParser, finish_reason
from interlock.serving.engines.engine import EngineOutput, Turn
from interlock.serving.engines.prompt import estimate
from interlock.serving.engines.upstream.translator import Translator, UpstreamCall, api_call_id, count_of, upstream_call_id
from interlock.serving.engines.upstream.upstream_client import CODES, error_event, has_message, redact, upstream_error
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.input_items import JsonItem, normalize
from interlock.serving.requests.tool_offer import offer

DECODER: Final = Decoder()
"""Decodes an event. Events are also encoded with msgspec, so the processor's caches need no code of a second package."""

NOT_COUNTED: Final = frozenset({"include", "max_output_tokens", "store", "stream"})
"""The parameters that a request for the number of tokens leaves out."""

OURS: Final = frozenset(kind for kind, item in ITEMS.items() if issubclass(item, McpItem))
"""The items of tools that the gateway always runs; it runs `HOSTED_CALLS` only if an operator has configured them."""

NOT_AN_EVENT: Final = "The upstream server sent an event that is not of the Responses API: it has no type."

NO_COUNT: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED})
"""The statuses of upstreams that cannot count tokens."""


@define(eq=False)
class ResponsesTranslator(Translator):
    """Writes a response's turns as requests to another Responses service, without its state, and reads its events."""

    _events: ResponsesParser
    """The parser, by its own type."""
    path = "responses"
    not_sent = frozenset(
        {"background", "context_management", "conversation", "metadata", "previous_response_id", "stream_options"}
    )
    passes_tools = True
    usage_follows = False

    @classmethod
    def of(cls, call: UpstreamCall) -> ResponsesTranslator:
        parser = ResponsesParser(call.routing, frozenset(call.request.include), api_call_id)
        return cls(call, parser, parser)

    def read(self, data: bytes) -> Sequence[Chunk]:
        if data == b"[DONE]":  # the marker ends a response if no event has
            self.finish_reason = self.finish_reason or "stop"
            return ()
        try:
            value = DECODER.decode(data)
        except (ValueError, RecursionError):
            raise upstream_error("The upstream server sent an event that is not JSON.") from None
        event: Mapping[str, object] = value if value.__class__ is dict else EMPTY
        kind = event.get("type")
        if isinstance(kind, str) and kind.endswith(".delta"):
            return [Chunk(delta=event)]
        if event.get("object") == "response":  # the upstream answered without a stream
            event = {"type": f"response.{event.get('status')}", "response": event}
        if not isinstance(event.get("type"), str):
            raise error_event(data) if has_message(data) else upstream_error(NOT_AN_EVENT)
        reason = finish_reason(event)
        if reason is not None:
            self.finish_reason, self._usage = reason, members(members(event.get("response")).get("usage"))
        if reason == "error" or event.get("type") == "error":  # the parser passes on its code and its text
            event = _with_code(members(DECODER.decode(redact(dumps(event).decode(), self.call.keys))))
        return [Chunk(delta=event)]

    def end(self) -> EngineOutput:
        if self.finish_reason is None and self._events.all_done:  # some services end their streams without a terminal event
            self.finish_reason = "stop"
            self._events.count_repair("R3")
        return super().end()

    async def count(self, turn: Turn) -> int:
        """Return the number of tokens that the upstream counts, or an estimate if it cannot count."""
        body = await self._counted_body(turn)
        answer: object = None
        try:
            answer = await self.call.fetch("responses/input_tokens", body)
        except ApiError as error:
            if error.status not in NO_COUNT:
                raise
        return count_of(members(answer).get("input_tokens")) or estimate(body)

    async def count_locally(self, turn: Turn) -> int:
        return estimate(await self._counted_body(turn))

    async def _counted_body(self, turn: Turn) -> dict[str, object]:
        body = await self.body(turn)
        return self.call.upstream.rename_fields({name: value for name, value in body.items() if name not in NOT_COUNTED})

    async def _fields(self, turn: Turn) -> dict[str, object]:
        tools = [*self._tools(turn)]
        return {
            "input": [*map(self._with_upstream_id, self._input(turn.items))],
            "tools": tools or None,
            "tool_choice": self._choice(turn) if tools else None,
            "max_output_tokens": turn.budget,
            "store": False,
        }

    def _tools(self, turn: Turn) -> Iterator[Mapping[str, object]]:
        """Yield the tools of a turn, with functions in place of the tools that the gateway runs."""
        functions = self.call.functions
        for tool in turn.request.tools:
            if tool["type"] == "mcp" or tool["type"] in functions.tools:
                yield from offer([tool], None, turn.items, functions).tools
            else:
                yield _synchronous(tool)

    def _choice(self, turn: Turn) -> object:
        choice, functions = turn.request.tool_choice, self.call.functions
        if turn.index and choice not in ("none", "auto"):  # the first turn made the required call
            choice = {**members(choice), "mode": "auto"} if members(choice).get("type") == "allowed_tools" else "auto"
        named = [members(choice), *map(members, elements(members(choice).get("tools")))]
        if any(each.get("type") == "mcp" or each.get("type") in functions.tools for each in named):
            return offer(turn.request.tools, choice, turn.items, functions).choice
        return choice

    def _input(self, items: Sequence[JsonItem]) -> Iterator[Mapping[str, object]]:
        """Yield the conversation; calls that the gateway ran become function calls and their outputs."""
        approvals = [item for item in items if item["type"] == "mcp_approval_response"]
        for item in items:
            call = HOSTED_CALLS.get(item["type"])
            if item["type"] in OURS or (call is not None and call.tool in self.call.hosted):
                yield from normalize([item, *approvals])
            elif item["type"] == "reasoning":
                yield _reasoning(item)
            else:
                yield _without_id(item)

    def _with_upstream_id(self, item: JsonItem) -> JsonItem:
        """Return an item with the upstream's id of its call."""
        call_id = item.get("call_id")
        return {**item, "call_id": self.call.upstream.fit(upstream_call_id(call_id))} if isinstance(call_id, str) else item


def _with_code(event: Mapping[str, object]) -> Mapping[str, object]:
    """Return the event of an error with one of the API's codes in place of an HTTP status."""
    fields = {name: _with_code(members(event[name])) for name in ("error", "response") if members(event.get(name))}
    number = event.get("code") or event.get("status")
    return {**event, **fields, **({"code": CODES[str(number)]} if str(number) in CODES else {})}


def _synchronous(tool: Mapping[str, object]) -> Mapping[str, object]:
    """Return a tool without `async`: the server itself lets the model go on after such calls, whatever the service knows."""
    nested = {"tools": [_synchronous(members(each)) for each in elements(tool["tools"])]} if tool["type"] == "namespace" else {}
    return {**{name: value for name, value in tool.items() if name != "async"}, **nested}


def _without_id(item: JsonItem) -> Mapping[str, object]:
    """Return a message, a client's call or its output without the gateway's id, which a service may look up."""
    has_own_id = item["type"] != "message" and "call_id" not in item
    return item if has_own_id else {name: value for name, value in item.items() if name != "id"}


def _reasoning(item: JsonItem) -> Mapping[str, object]:
    """Return reasoning as a stateless service accepts it.

    The id is the gateway's own. OpenAI's service verifies that encrypted content belongs to the id, and looks up an item without
    content by it, so the id is dropped. Plain content keeps it, because other services require an id.
    """
    if item.get("content") and not item.get("encrypted_content"):
        return item
    return {name: value for name, value in item.items() if name != "id" and (name != "content" or value)}
