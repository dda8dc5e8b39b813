"""An item of a response while it is being made: its state, and what is known of it so far.

It keeps what the events need and nothing that could be derived. Its methods are what emissions record; they fire nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from operator import attrgetter
from typing import Final, TypeAlias, cast

from attrs import define, field

from interlock.events.items import ITEMS, ItemKind, ItemSpec, PartSpec, lasting, snapshot
from interlock.events.json import clean, dumps, kept, members, parsed
from interlock.events.spec import Scope
from interlock.fsm.lifecycle import Given, Saved, Subject

_LIST_OF: Final = {
    Scope.PART: "content",
    Scope.SUMMARY: "summary",
    Scope.COMMAND: "action.commands",
    Scope.COMMAND_OUTPUT: "output",
}
"""The list that a part belongs to, by the scope of its events."""

Late: TypeAlias = Callable[[Mapping[str, object]], Given]
"""Returns the fields of an item that are known only when it is done, of the item as it is shown then."""


_EXITED: Final = {"type": "exit", "exit_code": 0}
_TIMED_OUT: Final = {"type": "timeout"}

_EMPTY: Final = b'""'
_NO_LIST: Final = b"[]"
_NO_PARTS: Final[Mapping[ItemKind, Mapping[str, tuple[bytes, ...]]]] = {
    kind: dict.fromkeys(spec.lists, ()) for kind, spec in ITEMS.items()
}
"""The lists of parts of an item that has none yet, by its kind."""

_ASSIGNED: Final = (
    *("state", "output_index", "place", "fields", "lasting", "parts", "part", "part_index", "sent", "logprobs", "annotations"),
    *("unsent", "unsent_logprobs", "delta", "delta_logprobs", "text", "progress", "progressed", "printed", "shown"),
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
        late: Returns what is known only when it is done; None if that is nothing.
    """

    spec: ItemSpec
    id: str
    output: list[Item] = field(repr=False)
    fields: Mapping[str, object]
    late: Late | None = field(default=None, repr=False)
    output_index: int = -1
    place: bytes = b""
    """The JSON of the fields that address an event about it, each with a comma before it."""
    lasting: int = 0
    """How many bytes of `shown` are the same in every state; 0 if they have to be made anew."""
    parts: Mapping[str, tuple[bytes, ...]] = field(init=False)
    """The JSON of its whole parts, by the name of their list."""
    part: bytes = b""
    """The JSON of the part that opened or ended last."""
    part_index: int = -1
    sent: BytesIO = field(factory=BytesIO)
    """What was sent of the text that is open, the part's or the item's own, in UTF-8. A list of its deltas would hold an object
    for each of them for as long as the stream is open."""
    logprobs: list[Mapping[str, object]] | tuple[()] = ()
    """The same for its log probabilities."""
    annotations: tuple[Mapping[str, object], ...] = ()
    """The annotations of the open part."""
    unsent: str = ""
    """What came and was not sent yet: white space that is held back (rule R18), or the piece of the delta being fired."""
    unsent_logprobs: Sequence[Mapping[str, object]] = ()
    delta: bytes = _EMPTY
    """What the delta that is being emitted carries, as JSON."""
    delta_logprobs: bytes = _NO_LIST
    text: bytes = _EMPTY
    """The JSON of the text that is whole: the item's own, or that of the part that ended last."""
    progress: bytes = b""
    """The JSON of what a running tool showed last, each field with a comma before it."""
    progressed: int = 0
    """How many times a running tool has shown something."""
    printed: Mapping[str, object] | None = None
    """The output of the command that runs."""
    _found: tuple[int, int] = field(default=(0, 0), init=False)
    """Where the mark that was found last ends in the open text, in bytes and in characters."""
    shown: bytes = b""
    """The item as its last `added` or `done` showed it, as JSON, and so as the response shows it (rule R13)."""

    def __attrs_post_init__(self) -> None:
        """Start without parts."""
        self.parts = _NO_PARTS[self.spec.kind]

    def save(self) -> Saved:
        """Return what firing an edge may change."""
        return _assigned(self), self.sent.tell(), len(self.output), len(self.logprobs)

    def restore(self, saved: Saved) -> None:
        """Undo what firing an edge has recorded.

        Args:
            saved: What `save` returned before.
        """
        values, position, items, logprobs = cast("tuple[tuple[object, ...], int, int, int]", saved)
        for name, value in zip(_ASSIGNED, values, strict=True):
            setattr(self, name, value)
        self.sent.seek(position)
        self.sent.truncate()
        del self.output[items:]
        if self.logprobs:
            del self.logprobs[logprobs:]

    @property
    def all_logprobs(self) -> bytes:
        """The JSON of the log probabilities of the open text."""
        return dumps(self.logprobs) if self.logprobs else _NO_LIST

    @property
    def name(self) -> bytes:
        """The JSON of the name of what is called."""
        return dumps(self.fields["name"])

    @property
    def annotation(self) -> bytes:
        """The JSON of the annotation that came last."""
        return dumps(self.annotations[-1])

    @property
    def annotation_index(self) -> bytes:
        """The JSON of its index."""
        return dumps(len(self.annotations) - 1)

    @property
    def progress_index(self) -> bytes:
        """The JSON of the number of times that the tool had shown something before."""
        return dumps(self.progressed - 1)

    @property
    def output_part(self) -> bytes:
        """The JSON of the list that holds the part that ended last."""
        return b"[%b]" % self.part

    @property
    def said(self) -> str:
        """Its own text, as far as it was sent."""
        return cast("str", parsed(self.text)) or self.sent.getvalue().decode()

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
        self.unsent_logprobs = (*self.unsent_logprobs, *logprobs) if whole else ()

    @property
    def is_opaque(self) -> bool:
        """Whether it says something that nobody can read."""
        return any(self.fields.get(name) for name in self.spec.opaque)

    @property
    def mixes(self) -> bool:
        """Whether what was sent of the open text has log probabilities and what is unsent has none, or the other way round."""
        return bool(self.logprobs) is not bool(self.unsent_logprobs)

    def join(self) -> None:
        """Record that the item is added: it takes the next index (rule R6)."""
        self.output_index = len(self.output)
        self.place = b',"item_id":%b,"output_index":%d' % (dumps(self.id), self.output_index)
        self.output.append(self)
        self.show()

    def show(self) -> None:
        """Record how the item is shown now."""
        known = self.shown[: self.lasting] or lasting(self.spec, self.id, self.fields)
        self.lasting = len(known) if self.spec.frame else 0
        self.shown = snapshot(self.spec, known, self.state.name, self.text, self.parts)

    def finish(self) -> None:
        """Record how the item is shown when it is done, with what is known only now."""
        self.show()
        if self.late is not None:
            late = self.late(cast("Mapping[str, object]", parsed(self.shown)))
            if late:
                self.learn(late)
                self.show()

    def open_part(self, part: PartSpec, scope: Scope) -> None:
        """Record that a part begins: it takes the next index of its list (rule R8)."""
        self.part, self.text = part.empty, _EMPTY
        self.part_index = len(self.parts[_LIST_OF[scope]])
        self.logprobs = self.annotations = ()
        self._found = (0, 0)

    def send(self) -> None:
        """Record that what was unsent goes out in a delta."""
        unsent, self.unsent = self.unsent, ""
        self.delta = kept(unsent)
        self.sent.write(unsent.encode())
        if self.unsent_logprobs:
            self.logprobs = self.logprobs or []
            self.logprobs += self.unsent_logprobs
            self.delta_logprobs, self.unsent_logprobs = kept(self.unsent_logprobs), ()
        else:
            self.delta_logprobs = _NO_LIST

    def end_text(self, part: PartSpec) -> None:
        """Record that the text of the open part is whole (rule R9)."""
        self.end_own_text()
        if part.lists:
            annotations = dumps(self.annotations) if self.annotations else _NO_LIST
            self.part = part.whole % (self.text, annotations, self.all_logprobs)
        else:
            self.part = part.whole % self.text

    def close_part(self, scope: Scope) -> None:
        """Record that the open part is whole."""
        self._add(scope, self.part)

    def end_command(self) -> None:
        """Record that the open command is whole, which its item shows as a plain text."""
        self.end_own_text()
        self._add(Scope.COMMAND, self.text)

    def _add(self, scope: Scope, part: bytes) -> None:
        name = _LIST_OF[scope]
        self.parts = {**self.parts, name: (*self.parts[name], part)}

    def print(self, given: Given) -> None:
        """Record what a command printed: `stdout`, `stderr`."""
        printed = self.printed
        if printed is None:
            printed = {"stdout": "", "stderr": "", "outcome": _EXITED}
            self.part_index = len(self.parts[_LIST_OF[Scope.COMMAND_OUTPUT]])
        new = {name: str(given.get(name, "")) for name in ("stdout", "stderr")}
        self.printed = {**printed, **{name: f"{printed[name]}{text}" for name, text in new.items()}}
        self.delta = kept(new)

    def end_output(self, given: Given) -> None:
        """Record how the command ended that printed last: `outcome`."""
        self.print({})
        self.part = kept({**cast("Given", self.printed), "outcome": given.get("outcome", _EXITED)})
        self.close_part(Scope.COMMAND_OUTPUT)
        self.printed = None

    def cut_output(self, _given: Given) -> None:
        """Record that the command that printed last never ended."""
        self.end_output({"outcome": _TIMED_OUT})

    def end_own_text(self) -> None:
        """Record that the item's own text is whole (rule R9)."""
        sent, self.sent = self.sent, BytesIO()
        self.text = kept(sent.getvalue().decode())

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
        if given:
            self.fields, self.lasting = {**self.fields, **given}, 0

    def annotate(self, given: Given) -> None:
        """Add an annotation to the open part."""
        self.annotations = (*self.annotations, given)

    def show_progress(self, given: Given) -> None:
        """Set what a running tool shows."""
        self.progress = members(given)
        self.progressed += 1
