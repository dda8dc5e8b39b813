"""OpenAI's Chat Completions as a transducer (rules C1 to C9, docs/guides/dialects.md).

A call of a tool of the server, and its result, have no place in the API and are not shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from interlock.dialects.transducer import OVERFLOW, STATUSES, EventTrigger, Transducer, end_of
from interlock.events import chat as api
from interlock.events import items, stream
from interlock.events.chat import split_extras
from interlock.events.json import as_json, dumps, is_object, members
from interlock.events.response_object import Response, ResponseUsage
from interlock.fsm.table import Edge, Table


class ChatEffect(StrEnum):
    """The effects of the table."""

    BASE = "base"
    """Note what all chunks have."""
    ROLE = "role"
    """Send the role, with an empty text."""
    NULL_ROLE = "null_role"
    """Send the role, without a text: clients show that of an answer that only calls, even if it is empty."""
    CONTENT = "content"
    """Send more text."""
    REFUSAL = "refusal"
    """Send more of a refusal."""
    ANNOTATION = "annotation"
    """Send an annotation of the text."""
    REASONING = "reasoning"
    """Send more reasoning."""
    SEALED = "sealed"
    """Send reasoning that only the server can read, if there is any."""
    CALL = "call"
    """Begin a call, with its id and name."""
    ARGUMENTS = "arguments"
    """Send more arguments."""
    FINISH = "finish"
    """Send why the choice ended, and the usage if the client wants it."""
    ERROR = "error"
    """Send an error."""


_T, _E = EventTrigger, ChatEffect

CHAT: Final[Table[EventTrigger, ChatEffect]] = Table(
    "chat",
    initial="absent",
    final={"ended"},
    regions={"started": ["created", "open", "call"]},
    edges=[
        #    in         on           goes to    effects
        Edge("absent",  _T.BEGIN,    "created", [_E.BASE]),

        Edge("created", _T.TEXT,     "open",    [_E.ROLE, _E.CONTENT]),
        Edge("created", _T.REFUSE,   "open",    [_E.NULL_ROLE, _E.REFUSAL]),
        Edge("created", _T.THINK,    "open",    [_E.NULL_ROLE, _E.REASONING]),
        Edge("created", _T.SEAL,     "open",    [_E.NULL_ROLE, _E.SEALED]),
        Edge("created", _T.CALL,     "call",    [_E.NULL_ROLE, _E.CALL]),
        Edge("created", _T.QUOTE,    "call",    [_E.NULL_ROLE, _E.CALL]),
        Edge("created", _T.END,      "ended",   [_E.ROLE, _E.FINISH]),
        Edge("created", _T.FAIL,     "ended",   [_E.ERROR]),

        Edge("open",    _T.TEXT,     "open",    [_E.CONTENT]),
        Edge("open",    _T.REFUSE,   "open",    [_E.REFUSAL]),
        Edge("open",    _T.ANNOTATE, "open",    [_E.ANNOTATION]),
        Edge("open",    _T.THINK,    "open",    [_E.REASONING]),
        Edge("open",    _T.SEAL,     "open",    [_E.SEALED]),
        Edge("open",    _T.CALL,     "call",    [_E.CALL]),
        Edge("open",    _T.QUOTE,    "call",    [_E.CALL]),
        Edge("open",    _T.CLOSE,    "open"),
        Edge("open",    _T.END,      "ended",   [_E.FINISH]),
        Edge("open",    _T.FAIL,     "ended",   [_E.ERROR]),

        Edge("call",    _T.ARGUE,    "call",    [_E.ARGUMENTS]),
        Edge("call",    _T.CLOSE,    "open"),

        Edge("started", _T.USE,      "started"),
        Edge("started", _T.RESULT,   "started"),
    ],
)  # fmt: skip
"""A stream of Chat Completions: the role, deltas, calls one after another, and one reason at the end.

In `created` no chunk has been sent, because the first one depends on what the model writes first.
"""


class ChatTransducer(Transducer[ChatEffect, api.CompletionChunk | api.ErrorChunk]):
    """Turns the events of one response into a stream of Chat Completions.

    Args:
        usage: Whether the client wants the usage in a chunk of its own (rule C5).
        logprobs: Whether the client wants log probabilities.
        names_function: Whether the request names the function to call, which makes the reason of its call `stop` (rule C3).
    """

    table = CHAT
    end = b"data: [DONE]\n\n"

    def __init__(self, *, usage: bool = False, logprobs: bool = False, names_function: bool = False) -> None:
        super().__init__()
        self._usage, self._logprobs, self._names_function = usage, logprobs, names_function
        self._base = api.CompletionChunk(id="", created=0, model="", choices=[])
        self._call = -1
        """The index of the last call."""
        self._annotations = -1
        """The index of the last annotation."""
        self._details = -1
        """The index of the last encrypted reasoning."""

    def frame(self, event: api.CompletionChunk | api.ErrorChunk) -> bytes:
        """Return a chunk as a frame without a name."""
        return b"data: %b\n\n" % dumps(event)

    def make(  # noqa: C901, PLR0911, PLR0912 - one case for each effect
        self, effect: ChatEffect, argument: object
    ) -> Sequence[api.CompletionChunk | api.ErrorChunk]:
        """Return the chunks of an effect; a `TypeError` is a fault of the table."""
        match effect, argument:
            case _E.BASE, Response():
                name, created = f"chatcmpl-{argument.id.removeprefix('resp_')}", int(argument.created_at)
                self._base = api.CompletionChunk(id=name, created=created, model=argument.model, choices=[])
                if self._usage:
                    self._base = replace(self._base, usage=None)
                return []
            case _E.ROLE | _E.NULL_ROLE, _:
                text = "" if effect is _E.ROLE else None
                return [self._chunk(api.ChunkDelta(role="assistant", content=text))]
            case _E.CONTENT, stream.TextDelta():
                return [self._scored(self._chunk(api.ChunkDelta(content=argument.delta)), argument)]
            case _E.REFUSAL, str():
                return [self._chunk(api.ChunkDelta(refusal=argument))]
            case _E.ANNOTATION, _ if is_object(argument):
                return [self._annotation(argument)]
            case _E.REASONING, str():
                return [self._chunk(api.ChunkDelta(reasoning_content=argument, reasoning=argument))]
            case _E.SEALED, str():
                return self._sealed(argument)
            case _E.CALL, items.FunctionCall() | items.CustomToolCall():
                self._call += 1
                call = api.ChatCall(index=self._call, id=argument.call_id, **_tool_of(argument))
                call = replace(call, **split_extras(argument.call_id)[1])
                return [self._chunk(api.ChunkDelta(tool_calls=[call]))]
            case _E.ARGUMENTS, str():
                call = api.ChatCall(index=self._call, function=api.ChatFunction(arguments=argument))
                return [self._chunk(api.ChunkDelta(tool_calls=[call]))]
            case _E.ARGUMENTS, items.CustomToolCall() as custom:
                call = api.ChatCall(index=self._call, custom=api.ChatCustom(input=custom.input))
                return [self._chunk(api.ChunkDelta(tool_calls=[call]))] if custom.input else []
            case _E.FINISH, Response() as response:
                choice = api.ChunkChoice(delta=api.ChunkDelta(), finish_reason=self._finish_reason(response))
                usage = [replace(self._base, usage=usage_of_chat(response.usage))] if self._usage else []
                return [replace(self._base, choices=[choice]), *usage]
            case _E.ERROR, Response() as response:
                return [api.ErrorChunk(error=error_of(response))]
            case _:
                raise TypeError(f"{effect} cannot use {argument!r}")

    def fold(self, events: Iterable[api.CompletionChunk | api.ErrorChunk]) -> api.ChatCompletion | api.ErrorChunk:
        """Return the whole completion, or the error; see `fold_chat`."""
        return fold_chat(events)

    def _chunk(self, delta: api.ChunkDelta) -> api.CompletionChunk:
        return replace(self._base, choices=[api.ChunkChoice(delta=delta)])

    def _annotation(self, annotation: Mapping[str, object]) -> api.CompletionChunk:
        """Return a chunk with an annotation, whose fields the API nests; clients join lists by the index."""
        kind = str(annotation["type"])
        fields = {name: value for name, value in annotation.items() if name != "type"}
        self._annotations += 1
        return self._chunk(api.ChunkDelta(annotations=[{"index": self._annotations, "type": kind, kind: fields}]))

    def _sealed(self, data: str) -> Sequence[api.CompletionChunk]:
        if not data:
            return []
        self._details += 1
        return [self._chunk(api.ChunkDelta(reasoning_details=[api.EncryptedReasoning(index=self._details, data=data)]))]

    def _scored(self, chunk: api.CompletionChunk, event: stream.TextDelta) -> api.CompletionChunk:
        """Return a chunk with the log probabilities of its text, if the client wants them."""
        if not (self._logprobs and event.logprobs):
            return chunk
        logprobs = api.ChatLogprobs(content=[as_json(each) for each in event.logprobs])
        return replace(chunk, choices=[replace(chunk.choices[0], logprobs=logprobs)])

    def _finish_reason(self, response: Response) -> api.StopWord:
        if (end := end_of(response)) is not None:
            return end.finish_reason or "length"
        if self._call >= 0 and response.status != "completed":
            return "length"  # `stop` would say that the call may run
        return "tool_calls" if self._call >= 0 and not self._names_function else "stop"


def _tool_of(call: items.FunctionCall | items.CustomToolCall) -> dict[str, Any]:
    if isinstance(call, items.CustomToolCall):
        return {"type": "custom", "custom": api.ChatCustom(name=call.name)}
    return {"type": "function", "function": api.ChatFunction(name=call.name)}


def error_of(response: Response) -> api.ChatError:
    """Return the error of a response; clients look for the code of a prompt that is too long."""
    error = response.error
    message, code = (error.message, error.code) if error else ("The response failed.", "server_error")
    if code not in STATUSES:
        return api.ChatError(message=message, type="server_error", code=code)
    is_too_long = STATUSES[code] == 400 and OVERFLOW.search(message)  # noqa: PLR2004 - HTTP's own number
    return api.ChatError(message=message, type="invalid_request_error", code="context_length_exceeded" if is_too_long else code)


def usage_of_chat(usage: ResponseUsage | UnsetType | None) -> api.ChatUsage | None:
    """Return the usage of a response as that of a completion."""
    if not isinstance(usage, ResponseUsage):
        return None
    return api.ChatUsage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        prompt_tokens_details=api.PromptDetails(cached_tokens=usage.input_tokens_details.cached_tokens),
        completion_tokens_details=api.CompletionDetails(reasoning_tokens=usage.output_tokens_details.reasoning_tokens),
    )


def _without_index(annotation: object) -> Mapping[str, object]:
    return {name: value for name, value in members(annotation).items() if name != "index"}


_NO_FUNCTION: Final = api.ChatFunction()


def fold_chat(chunks: Iterable[api.CompletionChunk | api.ErrorChunk]) -> api.ChatCompletion | api.ErrorChunk:
    """Return the whole completion that the chunks of a stream add up to, or the error that ended it."""
    last: api.CompletionChunk | None = None
    texts: dict[str, list[str]] = {"content": [], "reasoning": [], "refusal": []}
    calls: list[api.ChatCall] = []
    sealed: list[api.EncryptedReasoning] = []
    annotations: list[object] = []
    logprobs: list[object] = []
    usage: api.ChatUsage | None = None
    finish_reason: api.StopWord = "stop"
    for chunk in chunks:
        if isinstance(chunk, api.ErrorChunk):
            return chunk
        last, usage = chunk, chunk.usage or usage
        for choice in chunk.choices:
            finish_reason = choice.finish_reason or finish_reason
            logprobs += (choice.logprobs and choice.logprobs.content) or ()
            for name, parts in texts.items():
                parts.append(getattr(choice.delta, name) or "")
            sealed += choice.delta.reasoning_details or ()
            annotations += map(_without_index, choice.delta.annotations or ())
            for call in choice.delta.tool_calls or ():
                if call.id is not UNSET:
                    tool = (
                        {"custom": replace(call.custom)} if call.custom else {"function": replace(call.function or _NO_FUNCTION)}
                    )
                    calls.append(replace(call, index=UNSET, **tool))
                elif call.custom:
                    calls[-1].custom = replace(calls[-1].custom or call.custom, input=call.custom.input)
                else:
                    function, more = calls[-1].function or _NO_FUNCTION, call.function or _NO_FUNCTION
                    calls[-1].function = replace(function, arguments=function.arguments + more.arguments)
    assert last is not None  # noqa: S101 - every stream has a chunk with the role
    content, reasoning, refusal = ("".join(parts) for parts in texts.values())
    message = api.ChatMessage(
        content=content or None,
        refusal=refusal or None,
        annotations=annotations,
        reasoning_content=reasoning or UNSET,
        reasoning=reasoning or UNSET,
        reasoning_details=sealed or UNSET,
        tool_calls=calls or UNSET,
    )
    scored = api.ChatLogprobs(content=logprobs) if logprobs else None
    choices = [api.WholeChoice(message=message, logprobs=scored, finish_reason=finish_reason)]
    return api.ChatCompletion(id=last.id, created=last.created, model=last.model, choices=choices, usage=usage)
