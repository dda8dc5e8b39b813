"""An item of a response while it is being made: its state, and what is known of it so far.

It keeps what the events need and nothing that could be derived. Its methods are what emissions record; they fire nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from operator import attrgetter
from typing import Any, Final, TypeAlias, cast

from attrs import define, field

from interlock.events.items import COMMAND, ItemSpec, PartSpec, snapshot
from interlock.events.json import clean
from interlock.events.spec import Scope
from interlock.fsm.lifecycle import NO_FIELDS, Given, Subject, Undo

_LIST_OF: Final = {
    Scope.PART: "content",
    Scope.SUMMARY: "summary",
    Scope.COMMAND: "action.commands",
    Scope.COMMAND_OUTPUT: "output",
}
"""The list that a part belongs to, by the scope of its events."""

Late: TypeAlias = Callable[[Mapping[str, object]], Given]
"""Returns the fields of an item that are known only when it is done, of the item as it is shown then."""


def know_nothing(_shown: Mapping[str, object]) -> Given:
    """Return no field."""
    return NO_FIELDS


_EXITED: Final = {"type": "exit", "exit_code": 0}
_TIMED_OUT: Final = {"type": "timeout"}


_ASSIGNED: Final = (
    *("state", "output_index", "fields", "part", "part_index", "sent", "logprobs", "unsent", "unsent_logprobs"),
    *("delta", "delta_logprobs", "text", "progress", "progressed", "shown"),
)
"""The attributes that firing an edge may assign."""

_assigned: Final = attrgetter(*_ASSIGNED)


@define(eq=False)
class Item(Subject["Item"]):
    """One item.

    Args:
        state: Where its lifecycle stands.
        spec: Its kind.
        id: Its id.
        output: The items of the response in the order of their `added`, which the item joins when it is added.
        fields: What is known of it beside text and parts, by the API's names.
        late: Returns what is known only when it is done.
    """

    spec: ItemSpec
    id: str
    output: list[Item] = field(repr=False)
    fields: dict[str, object]
    late: Late = field(default=know_nothing, repr=False)
    output_index: int = -1
    parts: dict[str, list[object]] = field(init=False)
    part: dict[str, object] = field(factory=dict[str, object])
    """The part that is open."""
    part_index: int = -1
    sent: BytesIO = field(factory=BytesIO)
    """What was sent of the text that is open, the part's or the item's own, in UTF-8. A list of its deltas would hold an object
    for each of them for as long as the stream is open."""
    logprobs: list[Mapping[str, object]] = field(factory=list[Mapping[str, object]])
    """The same for its log probabilities."""
    unsent: str = ""
    """What came and was not sent yet: white space that is held back (rule R18), or the piece of the delta being fired."""
    unsent_logprobs: list[Mapping[str, object]] = field(factory=list[Mapping[str, object]])
    delta: str = ""
    """What the delta that is being emitted carries."""
    delta_logprobs: list[Mapping[str, object]] = field(factory=list[Mapping[str, object]])
    text: str = ""
    """The item's own text, once it is whole."""
    progress: Mapping[str, object] = field(factory=dict[str, object])
    """What a running tool showed last."""
    printed: Mapping[str, object] = field(factory=dict[str, object])
    """What a command printed last: `stdout`, `stderr`."""
    output_part: Mapping[str, object] = field(factory=dict[str, object])
    """The output of the command that ended last."""
    progressed: int = 0
    """How many times a running tool has shown something."""
    _found: tuple[int, int] = field(default=(0, 0), init=False)
    """Where the mark that was found last ends in the open text, in bytes and in characters."""
    shown: Mapping[str, object] = field(factory=dict[str, object])
    """The item as its last `added` or `done` showed it, and so as the response shows it (rule R13)."""

    def __attrs_post_init__(self) -> None:
        """Start with empty lists of parts."""
        self.parts = {name: [] for name in self.spec.lists}

    def save(self) -> Undo:
        """Return a function that undoes what firing an edge has recorded since."""
        values, sent, position = _assigned(self), self.sent, self.sent.tell()
        grown: list[list[Any]] = [self.output, self.logprobs, *self.parts.values()]
        if "annotations" in self.part:
            grown.append(self.annotations)
        lengths = [*map(len, grown)]

        def undo() -> None:
            for name, value in zip(_ASSIGNED, values, strict=True):
                setattr(self, name, value)
            sent.seek(position)
            sent.truncate()
            for each, length in zip(grown, lengths, strict=True):
                del each[length:]

        return undo

    def address(self, scope: Scope) -> dict[str, object]:
        """Return the fields that address an event about this item.

        Args:
            scope: The event's.
        """
        if scope is Scope.BRACKET:
            return {"output_index": self.output_index, "item": self.shown}
        known = {"item_id": self.id, "output_index": self.output_index}
        return {name: known.get(name, self.part_index) for name in scope.value}

    def hold(self, text: str, logprobs: Sequence[Mapping[str, object]]) -> None:
        """Hold a piece of text until the next delta event sends it.

        Log probabilities that are not those of all that is unsent are dropped, because a delta has them for the whole of its
        text or not at all (rule R15).

        Args:
            text: The piece; it may be empty if only its log probabilities are known yet.
            logprobs: One object for each of its tokens.
        """
        whole = bool(logprobs) and bool(self.unsent_logprobs or not self.unsent)
        self.unsent += text
        self.unsent_logprobs = [*self.unsent_logprobs, *logprobs] if whole else []

    @property
    def mixes(self) -> bool:
        """Whether what was sent of the open text has log probabilities and what is unsent has none, or the other way round."""
        return bool(self.logprobs) is not bool(self.unsent_logprobs)

    def join(self) -> None:
        """Record that the item is added: it takes the next index (rule R6)."""
        self.output_index = len(self.output)
        self.output.append(self)
        self.show()

    def show(self) -> None:
        """Record how the item is shown now."""
        self.shown = snapshot(self.spec, self.id, self.state.name, self.fields, self.text, self.parts)

    def finish(self) -> None:
        """Record how the item is shown when it is done, with what is known only now."""
        self.show()
        late = self.late(self.shown)
        if late:
            self.learn(late)
            self.show()

    def open_part(self, part: PartSpec, scope: Scope) -> None:
        """Record that a part begins: it takes the next index of its list (rule R8)."""
        self.part = part.empty()
        self.part_index = len(self.parts[_LIST_OF[scope]])
        self.logprobs = []
        self._found = (0, 0)

    def send(self) -> None:
        """Record that what was unsent goes out in a delta."""
        self.delta, self.unsent = self.unsent, ""
        self.delta_logprobs, self.unsent_logprobs = self.unsent_logprobs, []
        self.sent.write(self.delta.encode())
        self.logprobs.extend(self.delta_logprobs)

    def end_text(self, part: PartSpec) -> None:
        """Record that the text of the open part is whole (rule R9)."""
        logprobs = {"logprobs": self.logprobs} if "logprobs" in part.lists else {}
        self.part = {**self.part, part.text: self._take_sent(), **logprobs}

    def close_part(self, scope: Scope) -> None:
        """Record that the open part is whole."""
        self.parts[_LIST_OF[scope]].append(self.part)

    def close_command(self) -> None:
        """Record that the open command is whole, which its item shows as a plain text."""
        self.parts[_LIST_OF[Scope.COMMAND]].append(self.part[COMMAND.text])

    def print(self, given: Given) -> None:
        """Record what a command printed: `stdout`, `stderr`."""
        if not self.part:
            self.part = {"stdout": "", "stderr": "", "outcome": _EXITED}
            self.part_index = len(self.parts[_LIST_OF[Scope.COMMAND_OUTPUT]])
        self.printed = {name: str(given.get(name, "")) for name in ("stdout", "stderr")}
        self.part.update({name: f"{self.part[name]}{text}" for name, text in self.printed.items()})

    def end_output(self, given: Given) -> None:
        """Record how the command ended that printed last: `outcome`."""
        self.print({})
        self.part["outcome"] = given.get("outcome", _EXITED)
        self.close_part(Scope.COMMAND_OUTPUT)
        self.output_part, self.part = self.part, {}

    def cut_output(self, _given: Given) -> None:
        """Record that the command that printed last never ended."""
        self.end_output({"outcome": _TIMED_OUT})

    def end_own_text(self) -> None:
        """Record that the item's own text is whole (rule R9)."""
        self.text = self._take_sent()

    def _take_sent(self) -> str:
        sent, self.sent = self.sent, BytesIO()
        return sent.getvalue().decode()

    def find(self, mark: str) -> tuple[int, int] | None:
        """Return where a mark stands in what was sent of the open text: its start and its end, in characters.

        Marks are found one after another, each behind the one before, so that all together cost no more than one pass.

        Args:
            mark: What to look for, at least one character.

        Returns:
            None if the mark is not there, or not whole.
        """
        sought = clean(mark).encode()
        position, characters = self._found
        with self.sent.getbuffer() as sent:
            rest = bytes(sent[position:])
        at = rest.find(sought)
        if at < 0:
            return None
        start = characters + len(rest[:at].decode())
        end = start + len(mark)
        self._found = (position + at + len(sought), end)
        return start, end

    def learn(self, given: Given) -> None:
        """Set fields that are known at the end: the tool's result, or its error."""
        self.fields = {**self.fields, **given}

    def annotate(self, given: Given) -> None:
        """Add an annotation to the open part."""
        self.annotations.append(given)

    def show_progress(self, given: Given) -> None:
        """Set what a running tool shows."""
        self.progress = given
        self.progressed += 1

    @property
    def annotations(self) -> list[Mapping[str, object]]:
        """The annotations of the open part."""
        return cast("list[Mapping[str, object]]", self.part["annotations"])
