"""Deltas: the inputs of `ResponseDriver.feed`, made by parsers, tool runners and servers.

A delta has no indices or sequence numbers; the driver adds them to the events. A delta checks its fields when it is made, so the
driver accepts every delta in every state: it opens the item that the delta needs, closes an item in the way, and ignores a delta
without effect.

A plain `str`, the most frequent delta, is a chunk of text for the item that is being written, or else for a new message. The
other deltas are frozen classes. `docs/evidence/rules.md` has the rules (R7, …).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from sys import maxsize
from types import MappingProxyType
from typing import Annotated, Final, Literal, NotRequired, TypeAlias, TypedDict, get_args

from attrs import Attribute, asdict, field, frozen
from msgspec import Meta, convert

from interlock.events.items import Exit, Item, ItemKind, Timeout, check_fields, open_item
from interlock.events.parts import AnyAnnotation, set_position
from interlock.events.stream import PartialImage, ShellDelta, own_fields

FinishReason: TypeAlias = Literal["stop", "length", "content_filter", "abort", "error", "cut", "steered"]
"""Why a turn ended. In order: the model stopped, it reached its token limit, a content filter stopped it, the engine aborted
it, the engine failed, the model stopped inside a call, or the client has sent input to steer the response."""


@frozen
class TurnEnd:
    """What the end of a turn means to the response, and what each API calls it.

    Args:
        trigger: The trigger of the response's lifecycle; empty if the response goes on.
        detail: The `reason` in `incomplete_details`; empty if the Responses API has none.
        finish_reason: The reason in Chat Completions; empty if it depends on the calls of the response.
        stop_reason: The reason in Messages; empty if it depends on the contents of the response.
    """

    trigger: Literal["", "cut", "fail", "cancel"]
    detail: Literal["", "max_output_tokens", "content_filter", "steered"] = ""
    finish_reason: Literal["", "length", "content_filter"] = ""
    stop_reason: Literal["", "max_tokens", "refusal"] = ""


TURN_ENDS: Final[Mapping[FinishReason, TurnEnd]] = MappingProxyType(
    {
        "stop": TurnEnd(""),
        "length": TurnEnd("cut", "max_output_tokens", "length", "max_tokens"),
        "content_filter": TurnEnd("cut", "content_filter", "content_filter", "refusal"),
        "steered": TurnEnd("cut", "steered", "length"),
        "cut": TurnEnd("cut"),  # none of the API's reasons applies, so none is sent (rule R12)
        "abort": TurnEnd("cancel"),
        "error": TurnEnd("fail"),
    }
)
"""The end of a turn, by its reason. The driver, the parsers and the dialects read it."""

REASON_OF_DETAIL: Final[Mapping[object, FinishReason]] = MappingProxyType(
    {end.detail: reason for reason, end in TURN_ENDS.items() if end.detail}
)
"""The reason of the last turn's end, by the `reason` in `incomplete_details`."""


def _check_count(_usage: object, attribute: Attribute[int], count: object) -> None:
    """Reject what is no count, which would spoil only the last event of a response."""
    if type(count) is not int or not 0 <= count <= maxsize:
        raise ValueError(f"{attribute.name} is {count!r:.100}, and not a number of tokens")


@frozen(kw_only=True)
class Usage:
    """The tokens of one turn; the driver adds up the turns of a response.

    Args:
        input_tokens: Tokens in the prompt.
        cached_tokens: Prompt tokens that were read from a prefix cache.
        output_tokens: Tokens that the model generated, including control tokens.
        reasoning_tokens: Generated tokens that are reasoning.
        cache_write_tokens: Prompt tokens that were written to a prefix cache.

    Raises:
        ValueError: A field is no integer, or negative.
    """

    input_tokens: int = field(default=0, validator=_check_count)
    cached_tokens: int = field(default=0, validator=_check_count)
    output_tokens: int = field(default=0, validator=_check_count)
    reasoning_tokens: int = field(default=0, validator=_check_count)
    cache_write_tokens: int = field(default=0, validator=_check_count)

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: count + getattr(other, name) for name, count in asdict(self).items()})


def total(one: Usage | None, other: Usage | None) -> Usage | None:
    """Add two usages, of which None is unknown. The sum has the known tokens, and is None if none are known."""
    if one is not None and other is not None:
        return one + other
    known = one or other
    return None if known == Usage() else known


@frozen
class Start:
    """The response begins. Feed it first, or after `Enqueue`; the driver adds it if it is missing."""


@frozen
class Enqueue:
    """The response waits in a queue before it begins (background requests)."""


@frozen
class Open:
    """The model or the server began an item. The driver first closes an item that is still being written.

    Args:
        kind: The item's type, as in the API.
        fields: The fields known when it opens, by the API's names, such as `name`, `call_id`, `namespace`, `server_label`,
            `phase`, `container_id` or `action`. The driver makes a missing `call_id`, and adds the prefix `call_` if it is
            missing (rule R7). The mapping is not copied: do not change it.
        text: The arguments of a hosted call whose events do not show them, such as a web search, for its tool.

    Raises:
        ValueError: The kind or a field is unknown, a field has a wrong type, or a required field is missing.
    """

    kind: ItemKind
    fields: Mapping[str, object] = field(factory=dict[str, object])
    text: str = field(default="", repr=False)
    body: Item = field(init=False, eq=False, repr=False)
    """The item, without the ids that the driver makes."""

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "body", open_item(self.kind, self.fields))


class ScoredToken(TypedDict):
    """A token with its log probability."""

    token: str
    logprob: float
    bytes: NotRequired[list[Annotated[int, Meta(ge=0, le=255)]] | None]


class TokenLogprob(ScoredToken):
    """The log probability of a token of the text, and the most likely tokens in its place."""

    top_logprobs: NotRequired[list[ScoredToken]]


LEAST_PROBABLE: Final = -9999.0
"""The log probability that OpenAI's service gives to the least probable tokens."""


def _read_logprobs(logprobs: Sequence[TokenLogprob]) -> Sequence[TokenLogprob]:
    return [
        {**_complete(entry), "top_logprobs": [*map(_complete, entry.get("top_logprobs", ()))]}
        for entry in convert(logprobs, list[TokenLogprob])
    ]


def _complete(entry: ScoredToken) -> ScoredToken:
    token, logprob, content = entry["token"], entry["logprob"], entry.get("bytes")
    return {
        "token": token,
        "logprob": logprob if isfinite(logprob) else LEAST_PROBABLE,  # a token that a mask excludes, or a faulty kernel
        "bytes": [*token.encode(errors="replace")] if content is None else content,
    }


@frozen
class Text:
    """A chunk of text with the log probabilities of its tokens. Without them, use a plain `str`.

    A part of a message has log probabilities for all of its text or for none (rule R15), so the driver begins a new part where
    they begin or end.

    Args:
        text: The chunk; it may be empty if its log probabilities come first.
        logprobs: An object for each token, in the API's shape: `token`, `logprob`, `bytes`, `top_logprobs`. The last two are
            added if they are missing, other fields are dropped, and what is not finite becomes -9999.0.

    Raises:
        ValueError: A log probability has another shape.
    """

    text: str
    logprobs: Sequence[TokenLogprob] = field(converter=_read_logprobs)


@frozen
class Refusal:
    """A chunk of a refusal, which is a part of a message."""

    text: str


@frozen
class Summary:
    """A chunk of a reasoning summary, which is a part of a reasoning item."""

    text: str


@frozen
class Annotate:
    """An annotation (a citation) of the output text that is being written.

    Args:
        annotation: The annotation in the API's shape, with its `type`.
        mark: The annotated text. The driver finds it in the open part, after the previous annotation's mark, and adds its
            position in characters: `start_index` and `end_index`, or the `index` of its end for a `file_citation`. It drops
            the annotation if it does not find the mark, and sends it unchanged if the mark is empty.

    Raises:
        ValueError: The API has no such annotation.
    """

    annotation: Mapping[str, object]
    mark: str = ""

    def __attrs_post_init__(self) -> None:
        convert(set_position(self.annotation, 0, 0) if self.mark else self.annotation, AnyAnnotation)


@frozen
class EndPart:
    """The part that is being written is complete; further text of the item begins another part."""


@frozen
class Close:
    """The item that is being written is complete. A hosted call, which the server runs, then waits for its tool.

    Args:
        fields: The fields known only when the item closes, by the API's names: `action`, `arguments` of a tool search, or
            `encrypted_content`, which adds a reasoning item even if it has no text. Fields of other kinds than that of the item
            are ignored.

    Raises:
        ValueError: The `known_at_done` of no class in `interlock.events.items` lists a field, or none gives it this type.
    """

    fields: Mapping[str, object] = field(factory=dict[str, object])

    def __attrs_post_init__(self) -> None:
        if self.fields:
            check_fields("known_at_done", self.fields)

    def __repr__(self) -> str:
        """Return the constructor call, without arguments if there are no fields."""
        return f"Close({dict(self.fields) or ''})"


@frozen
class Reject:
    """The hosted call that is being written cannot run, because its arguments are invalid: it fails, and the stream goes on.

    Args:
        message: The reason, for the item's `error` if its kind has one.
    """

    message: str


def _check_item_id(_delta: object, _attribute: Attribute[str], item_id: str) -> None:
    """Reject a call id, which is easily confused with an item id; no item id has its prefix (rule R7)."""
    if item_id.startswith("call_"):
        raise ValueError(f"{item_id!r} is a call_id; pass the item's id, as in ResponseDriver.ready")


@frozen
class ToolDelta:
    """A delta about the tool of an item.

    Args:
        item_id: The id of the item; that of a hosted call is in `ResponseDriver.ready`. An empty one means the open item that
            began last; parsers use it for tools that another server runs.

    Raises:
        ValueError: `item_id` is a `call_id`.
    """

    item_id: str = field(validator=_check_item_id)


_OUTPUT_FIELDS: Final = sorted({*own_fields(PartialImage), *ShellDelta.__struct_fields__} - {"partial_image_index"})
"""The fields of the events with the output of a tool."""


@frozen
class Run(ToolDelta):
    """The tool of a hosted call started."""


@frozen
class Progress(ToolDelta):
    """A running tool has output: a partial image, or text that a shell command printed.

    Args:
        fields: The fields of the event, by the API's names: `partial_image_b64` in an `image_generation_call`, `stdout` and
            `stderr` in a `shell_call_output`. Fields of other kinds are ignored.

    Raises:
        ValueError: The event of no kind has a field, or it is not a string.
    """

    fields: Mapping[str, object]

    def __attrs_post_init__(self) -> None:
        for name, value in self.fields.items():
            if name not in _OUTPUT_FIELDS or not isinstance(value, str):
                raise ValueError(f"no tool has output {name!r} with the value {value!r}; strings are {', '.join(_OUTPUT_FIELDS)}")


@frozen
class EndOutput(ToolDelta):
    """A command of a shell call ended; further `Progress` is output of the next command.

    Args:
        outcome: How the command ended: `{"type": "exit", "exit_code": 0}` or `{"type": "timeout"}`.

    Raises:
        ValueError: The outcome is another one.
    """

    outcome: Mapping[str, object]

    def __attrs_post_init__(self) -> None:
        convert(self.outcome, Exit | Timeout)  # its `ValidationError` is a `ValueError`


@frozen
class Succeed(ToolDelta):
    """The tool of a hosted call returned a result.

    Args:
        fields: The result, by the API's names for that kind of item: `output`, `outputs`, `results`, `result` or `tools`.
            `interlock.events.items.result_fields` converts plain text to them. Fields of other kinds are ignored.

    Raises:
        ValueError: The `tool_result` of no class in `interlock.events.items` lists a field, or none gives it this type.
    """

    fields: Mapping[str, object] = field(factory=dict[str, object])

    def __attrs_post_init__(self) -> None:
        if self.fields:
            check_fields("tool_result", self.fields)


@frozen
class Fail(ToolDelta):
    """The tool of a hosted call failed or could not be started; the stream goes on.

    Args:
        message: The reason, for the item's `error` if its kind has one.
    """

    message: str


@frozen
class EndTurn:
    """The model's turn ended.

    After `stop` the response goes on: tools run, another turn follows, or `Finish` ends it. Any other reason ends the response
    (`TURN_ENDS`). Parsers use `cut` if the model stopped inside a call, by itself or at a stop sequence. If no call is being
    written, `cut` equals `stop`. A server uses `steered` if the client sent input to continue with.

    Args:
        reason: Why the turn ended.
        usage: The tokens of the turn, or None if nobody counted them.

    Raises:
        ValueError: The reason is unknown.
    """

    reason: FinishReason
    usage: Usage | None = Usage()

    def __attrs_post_init__(self) -> None:
        if self.reason not in TURN_ENDS:
            reasons = ", ".join(get_args(FinishReason))
            raise ValueError(f"unknown finish reason {self.reason!r}; choose one of {reasons} ('stop' if a turn ends with calls)")


@frozen
class Silence:
    """Nothing was sent for a while: emit `keepalive`, which has a number like every event (rule R4a).

    Feed it only if the client reads this very stream. The number of an event that is not sent to everyone, or not stored, would
    be missing elsewhere; send a comment there, as in the dialect of Open Responses, which has no such event.
    """


@frozen
class Finish:
    """No further turn follows: the response is complete. Hosted calls without a result fail."""


@frozen
class Fault:
    """The engine, a parser or the server failed (rule R4). For a tool, feed `Fail`.

    Args:
        code: One of the API's codes for a response's error, usually `server_error`.
        message: The reason, sent to the client; it must not contain secrets.
        usage: Tokens of the interrupted turn, if any, or None if nobody counted them.
    """

    code: str
    message: str
    usage: Usage | None = Usage()


@frozen
class Cancel:
    """The client cancelled the response or disconnected.

    Args:
        usage: Tokens of the interrupted turn, if any, or None if nobody counted them.
    """

    usage: Usage | None = Usage()


# fmt: off
Delta: TypeAlias = (
    str | Text | Open | Close | Reject | EndTurn | Refusal | Summary | Annotate | EndPart | Run | Progress | EndOutput | Succeed
    | Fail | Start | Enqueue | Silence | Finish | Fault | Cancel
)
# fmt: on
"""Any delta."""

DELTAS: Final = get_args(Delta)
"""The classes of all deltas."""
