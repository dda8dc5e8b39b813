"""Deltas: what a parser, a tool runner or a server says has happened, in the order in which it happened.

A delta is an input of `ResponseDriver.feed`. It knows nothing of events, indices or numbers; the driver turns it into triggers
of the lifecycles, and it is total: every delta is welcome in every state (what must be open is opened, what must be closed is
closed, what says nothing is passed over).

A plain `str` is a delta too, the commonest by far: a piece of the text of the item that is being written (a message if none is).
Everything else is one of the frozen classes below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, get_args

from attrs import Attribute, field, frozen

from interlock.events.items import Item, ItemKind, opened

FinishReason: TypeAlias = Literal["stop", "length", "content_filter", "abort", "error", "cut"]
"""Why a turn ended: the model stopped, its token budget ran out, a filter cut it, the engine aborted it, the engine failed, the
model stopped inside a call."""

FINISH_REASONS: Final[tuple[FinishReason, ...]] = get_args(FinishReason)


@frozen(kw_only=True)
class Usage:
    """The tokens of one turn; the driver adds up the turns of a response.

    Args:
        input_tokens: Tokens of the prompt.
        cached_tokens: Those of them that came from a prefix cache.
        output_tokens: Tokens that the model generated, control tokens included.
        reasoning_tokens: Those of them that were spent on reasoning.
        cache_write_tokens: Tokens of the prompt that were written to a prefix cache.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Add up two turns, field by field."""
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
        )


@frozen
class Start:
    """The response begins. Feed it first; if it is missing, the driver adds it."""


@frozen
class Enqueue:
    """The response waits in a queue before it begins (background requests)."""


@frozen
class Open:
    """The model, or the server for `mcp_list_tools`, began an item. An item that is still being written is closed first.

    Args:
        kind: The item's type, as in the API.
        fields: What is known of it at once, by the names of the API's fields: `name`, `call_id`, `namespace`,
            `server_label`, `phase`, `container_id`, `action`. A missing `call_id` is made by the driver;
            one that does not begin with `call_` is given that prefix (rule R7). They are not copied: do not change them.

    Raises:
        ValueError: There is no such kind, or a field is of a wrong type, or one that its `added` event must show is missing.
    """

    kind: ItemKind
    fields: Mapping[str, object] = field(factory=dict[str, object])
    body: Item = field(init=False, eq=False, repr=False)
    """The item, but for its ids."""

    def __attrs_post_init__(self) -> None:
        """Make the item, or refuse what no item can be made of."""
        object.__setattr__(self, "body", opened(self.kind, self.fields))


@frozen
class Text:
    """A piece of text with the log probabilities of its tokens. Without them, a plain `str` is enough.

    A part of a message has them for all of its text or for none: where they begin or end, so does a part (rule R15).

    Args:
        text: The piece; it may be empty if only its log probabilities are known yet.
        logprobs: One object for each token, in the API's shape: `token`, `bytes`, `logprob`, `top_logprobs`.
    """

    text: str
    logprobs: Sequence[Mapping[str, object]]


@frozen
class Refusal:
    """A piece of a refusal, which is a part of a message."""

    text: str


@frozen
class Summary:
    """A piece of a reasoning summary, which is a part of a reasoning item."""

    text: str


@frozen
class Annotate:
    """An annotation (a citation) of the output text that is being written.

    Args:
        annotation: In the API's shape, with its `type`.
        mark: The text that it is about. The driver finds it in the open part, behind the mark of the annotation before, and adds
            where it stands, in characters: `start_index` and `end_index`, or the `index` of its end for a `file_citation`. A
            mark that the open part does not hold gives no annotation. Without a mark the annotation is taken as it is.
    """

    annotation: Mapping[str, object]
    mark: str = ""


@frozen
class EndPart:
    """The part that is being written is whole; further text of the item begins another part."""


@frozen
class Close:
    """The item that is being written is whole. A hosted call then waits for its tool.

    Args:
        fields: What is known of the item only now, by the names of the API's fields: `action`, `arguments` of a tool search, or
            `encrypted_content`, which makes an item of reasoning without any text. Other fields than those that a kind of item
            may have only now (`interlock.events.items`) are passed over.
    """

    fields: Mapping[str, object] = field(factory=dict[str, object])

    def __repr__(self) -> str:
        """Return the call that makes it, without arguments if it has none."""
        return f"Close({dict(self.fields) or ''})"


@frozen
class Reject:
    """The hosted call that is being written can never run, because its arguments make no sense: it fails, and the stream goes on.

    Args:
        message: What is wrong with it, for the item's `error` where its kind has one.
    """

    message: str


def _check_item_id(_delta: object, _attribute: Attribute[str], item_id: str) -> None:
    """Refuse the id of a call, which is easily taken for that of its item.

    Raises:
        ValueError: The id begins as those of calls do, and so no item has it (rule R7).
    """
    if item_id.startswith("call_"):
        raise ValueError(f"{item_id!r} is the id of a call; what is wanted is the id of its item, as in ResponseDriver.ready")


@frozen
class Run:
    """The tool of a hosted call was started.

    Args:
        item_id: The id of the call's item, as in `ResponseDriver.ready`.

    Raises:
        ValueError: It is the id of a call and not of an item.
    """

    item_id: str = field(validator=_check_item_id)


@frozen
class Progress:
    """A running tool has something to show: a partial image, or what a command of a shell printed.

    Args:
        item_id: The id of the call's item.
        fields: What the event carries, by the API's names: `partial_image_b64`, or `stdout` and `stderr`.
    """

    item_id: str = field(validator=_check_item_id)
    fields: Mapping[str, object]


@frozen
class EndOutput:
    """A command of a shell call has ended; what further `Progress` prints is the next command's.

    Args:
        item_id: The id of the `shell_call_output`.
        outcome: How it ended: `{"type": "exit", "exit_code": 0}` or `{"type": "timeout"}`.
    """

    item_id: str = field(validator=_check_item_id)
    outcome: Mapping[str, object]


@frozen
class Succeed:
    """The tool of a hosted call came to its end with a result.

    Args:
        item_id: The id of the call's item.
        fields: The result, by the API's names for that kind of item: `output`, `outputs`, `results`, `result`, `tools`;
            `interlock.events.items.result_fields` makes them of a tool's plain text.
    """

    item_id: str = field(validator=_check_item_id)
    fields: Mapping[str, object] = field(factory=dict[str, object])


@frozen
class Fail:
    """The tool of a hosted call failed, or could not be started at all; the stream goes on.

    Args:
        item_id: The id of the call's item.
        message: What went wrong, for the item's `error` where its kind has one.
    """

    item_id: str = field(validator=_check_item_id)
    message: str


@frozen
class EndTurn:
    """The model's turn is over.

    After `stop` the response goes on (tools run, another turn follows, or `Finish`); any other reason ends it: `length` and
    `content_filter` incomplete, `abort` cancelled, `error` failed. Parsers say `cut` where the model stopped, by itself or at a
    stop sequence, inside a call: it ends the response incomplete, and means `stop` where no call is being written.

    Args:
        reason: Why it ended.
        usage: What the turn cost.
    """

    reason: FinishReason
    usage: Usage = Usage()

    def __attrs_post_init__(self) -> None:
        """Refuse a reason that some other API knows.

        Raises:
            ValueError: There is no such reason.
        """
        if self.reason not in FINISH_REASONS:
            known = ", ".join(FINISH_REASONS)
            raise ValueError(f"{self.reason!r} is no finish reason, which are: {known} (a turn that ends with calls has 'stop')")


@frozen
class Finish:
    """No further turn follows: the response is complete. Hosted calls that never ran fail."""


@frozen
class Fault:
    """Something broke that is not a tool: the engine, a parser, the server (rule R4).

    Args:
        code: One of the API's codes for a response's error, `server_error` above all.
        message: For the reader of the stream; it must not carry secrets.
        usage: What the turn had cost that it broke off, if it was in the middle of one.
    """

    code: str
    message: str
    usage: Usage = Usage()


@frozen
class Cancel:
    """The client cancelled the response, or went away.

    Args:
        usage: What the turn had cost that was broken off, if it was in the middle of one.
    """

    usage: Usage = Usage()


Delta: TypeAlias = (
    str
    | Text
    | Open
    | Close
    | Reject
    | EndTurn
    | Refusal
    | Summary
    | Annotate
    | EndPart
    | Run
    | Progress
    | EndOutput
    | Succeed
    | Fail
    | Start
    | Enqueue
    | Finish
    | Fault
    | Cancel
)
"""Everything that a driver can be fed."""

DELTAS: Final = get_args(Delta)
"""The classes of all deltas."""
