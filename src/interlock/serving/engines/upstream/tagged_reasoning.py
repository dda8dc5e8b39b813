"""Separates the reasoning from the content of services that send it in the content, between tags, but parse calls themselves."""

from __future__ import annotations

from attrs import define, field

from interlock.fsm.deltas import Delta, Open, Usage
from interlock.parsers import Chunk
from interlock.parsers.families import FamilyParser


@define(eq=False)
class TaggedReasoning:
    """Finds reasoning with the parser of a family without calls."""

    _parser: FamilyParser
    _kind: str = field(default="message", init=False)
    """The kind of the item to which the next text belongs."""

    def feed(self, content: str) -> tuple[str, str]:
        """Return the reasoning and the text that are certain after some content."""
        return self._texts(self._parser.feed(Chunk(text=content)))

    def flush(self) -> tuple[str, str]:
        """Return the reasoning and the text that waited because they might have been the beginning of a tag."""
        return self._texts(self._parser.end("stop", Usage()))

    def _texts(self, deltas: list[Delta]) -> tuple[str, str]:
        texts = {"reasoning": "", "message": ""}
        for delta in deltas:
            match delta:
                case Open(kind):
                    self._kind = kind
                case str():
                    texts[self._kind] += delta
                case _:
                    pass
        return texts["reasoning"], texts["message"]
