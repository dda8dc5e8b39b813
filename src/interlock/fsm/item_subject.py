"""An item of a response while it is being made: where its lifecycle stands, and the item itself as far as it is known.

Its methods record what an edge's events say. They fire nothing and make no event: `interlock.fsm.emissions` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar, cast

from msgspec import UNSET, field
from msgspec.structs import replace

from interlock.events import items
from interlock.events.items import statuses_of
from interlock.events.json import as_json, clean
from interlock.events.parts import AnyAnnotation, Logprob, Part
from interlock.events.stream import wire_name
from interlock.fsm.lifecycle import Fields, Subject

B = TypeVar("B", bound=items.Item)
"""The kind of an item: its type in the vocabulary."""

Late: TypeAlias = Callable[[Mapping[str, object]], Fields]
"""Returns the fields of an item that are known only when it is done, of the item as it is shown then."""

Logprobs: TypeAlias = Sequence[Mapping[str, object]]
"""The log probabilities of a text: an object in the API's shape for each token."""

RESULTS: Final[Mapping[str, Fields]] = {"mcp_call": {"output": ""}}
"""The result of a tool that returned nothing, by the kind of the call, for a kind that must show one."""


class ItemState(Subject["ItemState[Any]"], Generic[B], kw_only=True):
    """One item.

    Args:
        state: Where its lifecycle stands.
        id: Its id.
        body: It as the API shows it. It is replaced and never changed, so what an event carries stays as it was.
        output_index: The place that it takes when it is added (rule R6).
        late: Returns what is known only when it is done; None if that is nothing.
    """

    id: str
    body: B
    output_index: int
    late: Late | None = None
    shown: B | None = None
    """The item as its last `added` or `done` showed it, and so as the response shows it (rule R13)."""
    part: Part | None = None
    """The part whose text is whole, until the part is."""
    part_index: int = -1
    sent: BytesIO = field(default_factory=BytesIO)
    """The UTF-8 of the open text as far as it was sent. A list of its deltas would hold an object for each, and so would a
    `StringIO` up to Python 3.12."""
    whole: str = ""
    """The text that ended last."""
    logprobs: list[Logprob] = []  # noqa: RUF012 - msgspec makes a new one for each item
    """The log probabilities of the open text as far as they were sent."""
    annotations: tuple[AnyAnnotation, ...] = ()
    """The annotations of the open part."""
    marked: tuple[int, int] = (0, 0)
    """Where the mark of the last annotation ends in the open text, in characters and in bytes."""
    unsent: str = ""
    """Text that was not sent yet: white space that is held back (rule R18), or the text of the delta being fired."""
    unsent_logprobs: Sequence[Logprob] = ()
    printed: Mapping[str, str] | None = None
    """The output of the command that runs."""
    sent_size: int = 0
    logprob_count: int = 0
    progressed: int = 0
    """How many times a running tool has shown something."""

    @property
    def kind(self) -> str:
        """Its type."""
        return wire_name(type(self.body))

    @property
    def text(self) -> str:
        """The text that was written last: the item's own or a part's, as far as it was sent."""
        return self.whole or self.sent.getvalue().decode()

    @property
    def is_opaque(self) -> bool:
        """Whether it says something that nobody can read."""
        return bool(self.body.opaque and getattr(self.body, self.body.opaque))

    @property
    def mixes(self) -> bool:
        """Whether what was sent of the open text has log probabilities and what is unsent has none, or the other way round."""
        return bool(self.logprobs) is not bool(self.unsent_logprobs)

    def save(self) -> Self:
        """Return a copy that says how much the containers hold which only grow."""
        self.sent_size, self.logprob_count = self.sent.tell(), len(self.logprobs)
        return replace(self)

    def restore(self, saved: Subject[ItemState[Any]]) -> None:
        """Undo what firing an edge has recorded."""
        super().restore(saved)
        self.sent.truncate(self.sent.seek(self.sent_size))
        del self.logprobs[self.logprob_count :]

    def update(self, **fields: object) -> None:
        """Record fields of the item, by the API's names."""
        self.body = replace(self.body, **fields)

    def show(self) -> B:
        """Record that an event shows the item as it is now, and return it."""
        body: Any = self.body
        statuses = statuses_of(type(self.body))
        if statuses and (body.status is UNSET or body.status == "in_progress"):
            name = self.state.name
            self.body = replace(body, status=name if name in statuses else "in_progress")
        self.shown = self.body
        return self.body

    def hold(self, text: str, logprobs: Logprobs) -> None:
        """Hold text until the next delta event sends it.

        Log probabilities that are not those of all that is unsent are dropped, because a delta has them for the whole of its
        text or not at all (rule R15).

        Args:
            text: The text; it may be empty if only its log probabilities are known yet.
            logprobs: One object for each of its tokens.
        """
        whole = bool(logprobs) and bool(self.unsent_logprobs or not self.unsent)
        self.unsent += text
        self.unsent_logprobs = (*self.unsent_logprobs, *cast("Sequence[Logprob]", logprobs)) if whole else ()

    def send(self) -> str:
        """Record that the unsent text goes out in a delta, and return it."""
        text, self.unsent = self.unsent, ""
        self.sent.write(text.encode())
        return text

    def send_logprobs(self) -> list[Logprob]:
        """Record that the unsent log probabilities go out in a delta, and return them."""
        logprobs, self.unsent_logprobs = [*self.unsent_logprobs], ()
        self.logprobs += logprobs
        return logprobs

    def end_text(self) -> str:
        """Record that the open text is whole (rule R9), and return it."""
        self.whole, self.sent = self.sent.getvalue().decode(), BytesIO()
        return self.whole

    def open_part(self, parts: Sequence[object]) -> int:
        """Record that a part begins behind the others, and return its index (rule R8)."""
        self.part_index = len(parts)
        self.logprobs, self.annotations, self.marked = [], (), (0, 0)
        return self.part_index

    def find(self, text: str) -> tuple[int, tuple[int, int]] | None:
        """Find a text in the open part, behind the mark of the last annotation.

        Args:
            text: At least one character.

        Returns:
            Where it starts, in characters, and where it ends, in characters and in bytes; None if it is not there, or not whole.
        """
        wanted = clean(text).encode()
        characters, position = self.marked
        with self.sent.getbuffer() as sent:
            rest = bytes(sent[position:])
        at = rest.find(wanted)
        if at < 0:
            return None
        start = characters + len(rest[:at].decode())
        return start, (start + len(text), position + at + len(wanted))

    def shown_as_json(self) -> Mapping[str, object]:
        """Return the item as it was shown last, as plain JSON values."""
        return cast("Mapping[str, object]", as_json(self.shown))
