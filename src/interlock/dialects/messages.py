"""Anthropic's Messages as a transducer (rules M1 to M14, docs/guides/dialects.md).

Blocks come one after another: a text, reasoning with its signature, a call of a client's tool, or a call of a tool of the server
with its result. A call or result of the server's tools that comes while a block is open waits until the block ends.
A call whose arguments are no object is a text, because a client cannot run it, and its `input` would have to be invented.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import UnsetType
from msgspec.structs import replace

from interlock.dialects.transducer import OVERFLOW, EventTrigger, ServerCall, Transducer, begins_object, end_of
from interlock.events import items, stream
from interlock.events import messages as api
from interlock.events.json import EMPTY, as_json, as_text, dumps, elements, is_object, members, parse
from interlock.events.parts import OutputRefusal
from interlock.events.response_object import Response, ResponseUsage
from interlock.fsm.table import Edge, Table


class MessagesEffect(StrEnum):
    """The effects of the table."""

    MESSAGE_START = "message_start"
    """Begin the message."""
    TEXT_START = "text_start"
    """Begin a block of text."""
    TEXT = "text"
    """Send more text."""
    THINKING_START = "thinking_start"
    """Begin a block of reasoning."""
    THINKING = "thinking"
    """Send more reasoning."""
    SIGNATURE = "signature"
    """Send the signature of the reasoning."""
    CALL_START = "call_start"
    """Begin a block with a call of a client's tool."""
    NAME = "name"
    """Send the name of a call as text."""
    INPUT = "input"
    """Send more of the call's JSON."""
    STOP = "stop"
    """End the open block."""
    USE = "use"
    """Send a call of a tool of the server as a block."""
    RESULT = "result"
    """Send the result of such a call as a block."""
    HOLD_USE = "hold_use"
    """Keep the call until the open block ends."""
    HOLD_RESULT = "hold_result"
    """Keep the result until the open block ends."""
    RELEASE = "release"
    """Send the waiting events."""
    MESSAGE_STOP = "message_stop"
    """End the message, with its reason and usage."""
    ERROR = "error"
    """End the stream with an error."""


_T, _E = EventTrigger, MessagesEffect

MESSAGES: Final[Table[EventTrigger, MessagesEffect]] = Table(
    "messages",
    initial="absent",
    final={"ended"},
    regions={"open": ["text", "thinking", "call"]},
    edges=[
        #    in          on         goes to     effects
        Edge("absent",   _T.BEGIN,  "between",  [_E.MESSAGE_START]),

        Edge("between",  _T.TEXT,   "text",     [_E.TEXT_START, _E.TEXT]),
        Edge("between",  _T.REFUSE, "text",     [_E.TEXT_START, _E.TEXT]),
        Edge("between",  _T.THINK,  "thinking", [_E.THINKING_START, _E.THINKING]),
        Edge("between",  _T.SEAL,   "between",  [_E.THINKING_START, _E.SIGNATURE, _E.STOP]),
        Edge("between",  _T.CALL,   "call",     [_E.CALL_START]),
        Edge("between",  _T.QUOTE,  "text",     [_E.TEXT_START, _E.NAME]),
        Edge("between",  _T.USE,    "between",  [_E.USE]),
        Edge("between",  _T.RESULT, "between",  [_E.RESULT]),
        Edge("between",  _T.END,    "ended",    [_E.MESSAGE_STOP]),
        Edge("between",  _T.FAIL,   "ended",    [_E.ERROR]),

        Edge("text",     _T.TEXT,   "text",     [_E.TEXT]),
        Edge("text",     _T.REFUSE, "text",     [_E.TEXT]),
        Edge("text",     _T.ANNOTATE, "text"),
        Edge("text",     _T.ARGUE,  "text",     [_E.TEXT]),
        Edge("text",     _T.CLOSE,  "between",  [_E.STOP, _E.RELEASE]),

        Edge("thinking", _T.THINK,  "thinking", [_E.THINKING]),
        Edge("thinking", _T.SEAL,   "between",  [_E.SIGNATURE, _E.STOP, _E.RELEASE]),

        Edge("call",     _T.ARGUE,  "call",     [_E.INPUT]),
        Edge("call",     _T.CLOSE,  "between",  [_E.STOP, _E.RELEASE]),

        Edge("open",     _T.USE,    "open",     [_E.HOLD_USE]),
        Edge("open",     _T.RESULT, "open",     [_E.HOLD_RESULT]),
    ],
)  # fmt: skip
"""A stream of Messages: at most one block is open, and every block ends before the message does."""


class MessagesTransducer(Transducer[MessagesEffect, api.MessagesEvent]):
    """Turns the events of one response into a stream of Messages.

    Args:
        thinks: Whether the client wants the text of the reasoning, or only its signature.
        request_id: The id of the request, which an error has.
    """

    table = MESSAGES
    ping = b'event: ping\ndata: {"type":"ping"}\n\n'

    def __init__(self, *, thinks: bool = True, request_id: str | None = None) -> None:
        super().__init__(thinks=thinks)
        self._request_id = request_id
        self._index = 0
        """The number of blocks that have begun."""
        self._waiting: list[tuple[MessagesEffect, object]] = []

    @property
    def state_key(self) -> tuple[str, int, bool]:
        """The state, how many blocks wait until the open one ends, and whether a call has begun."""
        return self._machine.state.name, len(self._waiting), self._undecided_call is not None

    def frame(self, event: api.MessagesEvent) -> bytes:
        """Return an event as a frame whose name is its type (rule M12)."""
        return b"event: %b\ndata: %b\n\n" % (str(event.__struct_config__.tag).encode(), dumps(event))

    def make(  # noqa: C901, PLR0911, PLR0912 - one case for each effect, in one place
        self, effect: MessagesEffect, argument: object
    ) -> Sequence[api.MessagesEvent]:
        """Return the events of an effect; a `TypeError` is a fault of the table."""
        match effect, argument:
            case _E.MESSAGE_START, Response():
                name, usage = f"msg_{argument.id.removeprefix('resp_')}", api.MessagesUsage(input_tokens=self.input_tokens)
                return [api.MessageStart(message=api.MessageObject(id=name, model=argument.model, usage=usage))]
            case _E.TEXT_START, _:
                return [self._start(api.TextBlock())]
            case _E.TEXT, stream.TextDelta(delta=text) | str(text):
                return [self._delta(api.TextBlockDelta(text))]
            case _E.THINKING_START, _:
                return [self._start(api.ThinkingBlock())]
            case _E.THINKING, str():
                return [self._delta(api.ThinkingBlockDelta(argument))]
            case _E.SIGNATURE, str():
                return [self._delta(api.SignatureBlockDelta(argument))]
            case _E.CALL_START, items.FunctionCall() | items.CustomToolCall():
                return [self._start(api.ToolUseBlock(id=argument.call_id, name=argument.name))]
            case _E.NAME, items.FunctionCall():
                return [self._delta(api.TextBlockDelta(f"{argument.name}: "))]
            case _E.INPUT, str():
                return [self._delta(api.InputBlockDelta(argument))]
            case _E.INPUT, items.CustomToolCall():
                return [self._delta(api.InputBlockDelta(dumps({"input": argument.input}).decode()))]
            case _E.STOP, _:
                return [api.BlockStop(index=self._index - 1)]
            case _E.USE, items.McpCall() | items.CodeInterpreterCall() | items.WebSearchCall():
                start = self._start(_use_block(argument))
                return [start, self._delta(api.InputBlockDelta(_input(argument))), *self.make(_E.STOP, None)]
            case _E.RESULT, items.McpCall() | items.CodeInterpreterCall() | items.WebSearchCall() as call:
                return [self._start(_result_block(call)), *self.make(_E.STOP, None)]
            case _E.HOLD_USE | _E.HOLD_RESULT, _:
                self._waiting.append((_E.USE if effect is _E.HOLD_USE else _E.RESULT, argument))
                return []
            case _E.RELEASE, _:
                waiting, self._waiting = self._waiting, []
                return [event for each in waiting for event in self.make(*each)]
            case _E.MESSAGE_STOP, Response() as response:
                reason = _stop_reason(response, stopped=self.stop_sequence is not None)
                delta = api.StopDelta(reason, self.stop_sequence if reason == "stop_sequence" else None)
                usage = replace(self._usage(response.usage), server_tool_use=_server_tool_use(response))
                return [api.MessageDelta(delta=delta, usage=usage), api.MessageStop()]
            case _E.ERROR, Response() as response:
                message = response.error.message if response.error else "The response failed."
                return [replace(error_message(self.status, message), request_id=self._request_id)]
            case _:
                raise TypeError(f"{effect} cannot use {argument!r}")

    def fold(self, events: Iterable[api.MessagesEvent]) -> api.MessageObject | api.ErrorMessage:
        """Return the whole message, or the error; see `fold_messages`."""
        return fold_messages(events)

    def _usage(self, usage: ResponseUsage | UnsetType | None) -> api.MessagesUsage:
        """Return the usage of a message; a prompt that nobody counted has the tokens that its start said."""
        if isinstance(usage, ResponseUsage) and usage.input_tokens:
            return _usage(usage)
        return replace(_usage(usage) if isinstance(usage, ResponseUsage) else api.MessagesUsage(), input_tokens=self.input_tokens)

    def _start(self, block: api.Block) -> api.BlockStart:
        self._index += 1
        return api.BlockStart(index=self._index - 1, content_block=block)

    def _delta(
        self, chunk: api.TextBlockDelta | api.ThinkingBlockDelta | api.SignatureBlockDelta | api.InputBlockDelta
    ) -> api.BlockDelta:
        return api.BlockDelta(index=self._index - 1, delta=chunk)


def error_message(status: int, message: str) -> api.ErrorMessage:
    """Return the error for an HTTP status; clients look for `prompt is too long`."""
    kind = api.ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")  # noqa: PLR2004 - HTTP's own bound
    is_too_long = status == 400 and OVERFLOW.search(message)  # noqa: PLR2004 - HTTP's own number
    return api.ErrorMessage(
        error=api.MessagesError(type=kind, message=f"prompt is too long: {message}" if is_too_long else message)
    )


def _use_block(call: ServerCall) -> api.Block:
    match call:
        case items.McpCall():
            return api.McpToolUseBlock(id=_use_id(call), name=call.name, server_name=call.server_label)
        case items.CodeInterpreterCall():
            return api.ServerToolUseBlock(id=_use_id(call), name="code_execution")
        case _:
            return api.ServerToolUseBlock(id=_use_id(call), name="web_search")


def _use_id(call: ServerCall) -> str:
    """Return the id of a call in the form that the API has for its type."""
    return f"{'mcptoolu' if isinstance(call, items.McpCall) else 'srvtoolu'}_{str(call.id).rpartition('_')[2]}"


def _input(call: ServerCall) -> str:
    """Return the input of a call as JSON of an object."""
    match call:
        case items.McpCall():
            return call.arguments if is_object(parse(call.arguments)) else "{}"
        case items.CodeInterpreterCall():
            return dumps({"code": call.code or ""}).decode()
        case _:
            action = members(as_json(call.action))
            return dumps({name: value for name, value in action.items() if name not in ("type", "sources")}).decode()


def _result_block(call: ServerCall) -> api.Block:
    match call:
        case items.McpCall():
            texts = [api.TextBlock(text=items.McpCall.result_text(members(as_json(call))))]
            return api.McpResultBlock(tool_use_id=_use_id(call), is_error=call.status != "completed", content=texts)
        case items.CodeInterpreterCall():
            outputs = elements(members(as_json(call)).get("outputs"))
            logs = "\n".join(as_text(members(each).get("logs")) for each in outputs)
            failed = call.status != "completed"
            result = api.CodeResult(stdout="" if failed else logs, stderr=logs if failed else "", return_code=int(failed))
            return api.CodeBlock(tool_use_id=_use_id(call), content=result)
        case _:
            urls = [as_text(members(each).get("url")) for each in elements(members(as_json(call.action)).get("sources"))]
            pages = [api.WebSearchResult(url=url, title=url) for url in urls if url]
            found = pages if call.status == "completed" else api.WebSearchError()
            return api.WebSearchBlock(tool_use_id=_use_id(call), content=found)


def _stop_reason(response: Response, *, stopped: bool) -> api.StopReason:
    """Return why a message ended; `tool_use` if and only if the client has a complete call to run (rule M8).

    `stopped` is whether a stop string ended the output.
    """
    end = end_of(response)
    if end is not None and end.stop_reason:
        return end.stop_reason
    calls = [item for item in response.output if isinstance(item, items.ClientCall) and _is_block(item)]
    if calls and response.status == "completed" and all(map(_can_run, calls)):
        return "tool_use"
    if stopped and response.status != "cancelled":
        return "stop_sequence"
    if calls:
        return "max_tokens"  # an incomplete call must not run
    parts = [part for item in response.output if isinstance(item, items.Message) for part in item.content]
    return "refusal" if any(isinstance(part, OutputRefusal) for part in parts) else "end_turn"


def _is_block(call: items.ClientCall) -> bool:
    """Return whether a call is shown as one, and not as a text."""
    return not isinstance(call, items.FunctionCall) or begins_object(call.arguments)


def _can_run(call: items.ClientCall) -> bool:
    """Return whether the arguments of a complete call are an object."""
    return not isinstance(call, items.FunctionCall) or is_object(parse(call.arguments))


def _server_tool_use(response: Response) -> api.ServerToolUsage | None:
    """Return how many searches of the web have completed; None for none."""
    searches = sum(isinstance(item, items.WebSearchCall) and item.status == "completed" for item in response.output)
    return api.ServerToolUsage(web_search_requests=searches) if searches else None


def _usage(usage: ResponseUsage) -> api.MessagesUsage:
    read, written = usage.input_tokens_details.cached_tokens, usage.input_tokens_details.cache_write_tokens or 0
    return api.MessagesUsage(
        input_tokens=max(usage.input_tokens - read - written, 0),
        cache_creation_input_tokens=written,
        cache_read_input_tokens=read,
        output_tokens=usage.output_tokens,
        output_tokens_details=api.OutputDetails(thinking_tokens=usage.output_tokens_details.reasoning_tokens),
    )


def fold_messages(events: Iterable[api.MessagesEvent]) -> api.MessageObject | api.ErrorMessage:
    """Return the whole message that the events of a stream add up to, or the error that ended it (rule M13)."""
    message = api.MessageObject(id="", model="")
    chunks: list[str] = []
    for event in events:
        match event:
            case api.MessageStart():
                message = event.message
            case api.BlockStart():
                message.content.append(event.content_block)
                chunks = []
            case api.BlockDelta(delta=api.SignatureBlockDelta(signature)):
                message.content[-1] = replace(message.content[-1], signature=signature)
            case api.BlockDelta(delta=api.TextBlockDelta(chunk) | api.ThinkingBlockDelta(chunk) | api.InputBlockDelta(chunk)):
                chunks.append(chunk)
            case api.BlockStop():
                message.content[-1] = _whole(message.content[-1], "".join(chunks))
            case api.MessageDelta():
                message.stop_reason, message.stop_sequence = event.delta.stop_reason, event.delta.stop_sequence
                message.usage = event.usage
            case api.ErrorMessage():
                return event
            case _:
                pass
    return message


def _whole(block: api.Block, text: str) -> api.Block:
    match block:
        case api.TextBlock():
            return replace(block, text=text)
        case api.ThinkingBlock():
            return replace(block, thinking=text)
        case api.ToolUseBlock() | api.ServerToolUseBlock() | api.McpToolUseBlock():
            return replace(block, input=_object(text))
        case _:
            return block


_TOKEN: Final = re.compile(r'\s*(?:([{\[])|([}\]])|"(?:[^"\\]|\\.)*"|[,:]|[-+.\w]+)')
_CLOSING: Final = {"{": "}", "[": "]"}
_LAST: Final = 4
"""The most tokens at the end of cut JSON that belong to an incomplete member: a comma, a name, a colon and half a value."""


def _object(text: str) -> Mapping[str, object]:
    """Return the input that a call's JSON stands for; of JSON that is cut, its complete members, as clients read the stream."""
    value, opened, ends = parse(text), "", list[tuple[int, str]]()
    token = None if is_object(value) else _TOKEN.match(text)
    while token is not None:
        opened = opened[:-1] if token[2] else opened + _CLOSING.get(token[1], "")
        ends.append((token.end(), opened))
        token = _TOKEN.match(text, token.end())
    closed = (parse(text[:end] + rest[::-1]) for end, rest in reversed(ends[-_LAST:]))
    return dict(members(value) or next(filter(is_object, closed), EMPTY))
