"""Ends a turn at a stop string in its answer, for engines that cannot do so themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from attrs import define, evolve, field

from interlock.fsm.deltas import Close, Delta, EndTurn, Open, Reject, Text, Usage
from interlock.parsers.chunk import Chunk, ListReader, Parser, Recoveries
from interlock.parsers.item_writers import Alignment, TokenizedText
from interlock.parsers.routing import EndReason


def _listed(stop: object) -> tuple[str, ...]:
    strings = cast("Iterable[object]", stop) if isinstance(stop, Iterable) and not isinstance(stop, str) else (stop,)
    return tuple(each for each in strings if isinstance(each, str) and each)


def stops_in(request: Mapping[str, object]) -> Sequence[str]:
    """Return the stop strings of a request that must not appear in the text."""
    return () if request.get("include_stop_str_in_output") is True else _listed(request.get("stop"))


def _begun(string: str, text: str) -> int:
    """Return how many characters at the end of a text begin a string."""
    return next((size for size in range(min(len(string) - 1, len(text)), 0, -1) if text.endswith(string[:size])), 0)


@define(eq=False)
class StopStrings:
    """Cuts a text before the stop string that is complete first, however the text is divided."""

    strings: Sequence[str]
    found: str | None = field(default=None, init=False)
    """The stop string at which the text ended."""
    _rest: str = field(default="", init=False)
    """The end of the text so far, which may begin a stop string."""

    def feed(self, text: str) -> str:
        """Return the text that belongs to no stop string; nothing once one is `found`."""
        if self.found is not None:
            return ""
        text = self._rest + text
        ends = [(start + len(each), start, each) for each in self.strings if (start := text.find(each)) >= 0]
        if ends:
            _, end, self.found = min(ends)
        else:
            end = len(text) - max((_begun(each, text) for each in self.strings), default=0)
        self._rest = "" if ends else text[end:]
        return text[:end]

    def end(self) -> str:
        """Return the rest of the text, which has not come to a stop string."""
        rest, self._rest = self._rest, ""
        return rest


@define(eq=False)
class StopParser(ListReader):
    """Parses as another parser does, and cuts a turn before the first stop string in a message; see `Parser`.

    Reasoning and calls may contain the strings. Once one is `found`, end the turn: no further output has deltas.

    Args:
        parser: Parses the output.
        stop: The `stop` of a request: a string, several, or None.
    """

    parser: Parser
    stop: Sequence[str] = field(converter=_listed)
    _strings: StopStrings = field(init=False)
    """Cuts the text of the open item: at no string if it is not a message."""
    _alignment: Alignment = field(factory=Alignment, init=False)
    """Finds the log probabilities of the text that is not cut."""

    def __attrs_post_init__(self) -> None:
        self._strings = StopStrings(self.stop)

    @property
    def found(self) -> str | None:
        """The stop string in the turn that has not ended yet."""
        return self._strings.found

    @property
    def recoveries(self) -> Recoveries:
        """The repairs of the other parser."""
        recoveries: Recoveries | None = getattr(self.parser, "recoveries", None)
        return recoveries or Recoveries()

    def read_lists(self, items: Iterable[Mapping[str, object]]) -> None:
        """Have the other parser take the schemas, if it needs them."""
        if isinstance(self.parser, ListReader):
            self.parser.read_lists(items)

    def feed(self, chunk: Chunk) -> list[Delta]:
        """Return the deltas of a chunk, without text that may belong to a stop string."""
        return [each for delta in self.parser.feed(chunk) for each in self._read(delta)]

    def end(self, reason: EndReason, usage: Usage) -> list[Delta]:
        """End the turn, with the reason `stop` if the output after a stop string would have another one."""
        *deltas, end = self.parser.end(reason, usage)
        out = [each for delta in deltas for each in self._read(delta)]
        out += self._flush()
        if self.found is not None and isinstance(end, EndTurn) and end.reason in ("length", "cut"):
            end = evolve(end, reason="stop")
        self._strings = StopStrings(self.stop)
        return [*out, end]

    def _read(self, delta: Delta) -> list[Delta]:
        if self.found is not None:
            return []
        if isinstance(delta, str | Text):
            text, entries = (delta, ()) if isinstance(delta, str) else (delta.text, delta.logprobs)
            for entry in entries:
                self._alignment.add(entry)
            before = self._strings.feed(text)
            return self._write(before) if self.found is None else [*self._write(before), *self._flush()]
        out = self._flush()
        if isinstance(delta, Open | Close | Reject):
            self._strings = StopStrings(() if isinstance(delta, Open) and delta.kind != "message" else self.stop)
        return [*out, delta]

    def _write(self, text: str) -> list[Delta]:
        return _deltas(self._alignment.find(text))

    def _flush(self) -> list[Delta]:
        """Return the text that waits, at the end of an item or of the turn."""
        out = [*self._write(self._strings.end()), *_deltas(self._alignment.flush())]
        self._alignment = Alignment()
        return out


def _deltas(tokenized: TokenizedText) -> list[Delta]:
    text, entries = tokenized
    if entries:
        return [Text(text, entries)]
    return [text] if text else []
