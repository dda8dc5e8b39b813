"""Ends a text before a stop string, for parsers of token ids: an engine truncates only its own text, and its tokens go on.

Text that may be the beginning of a stop string waits for more. Whether a complete one ended the turn shows only at the next
output: if there is one, the engine has not stopped, such as before its minimum of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define, field

from interlock.events.json import elements
from interlock.parsers.harmony_vocabulary import TokenText


def stops_in(request: Mapping[str, object]) -> Sequence[str]:
    """Return the stop strings of a request that are not to be part of the text."""
    if request.get("include_stop_str_in_output") is True:
        return ()
    stop = request.get("stop")
    return [each for each in ([stop] if isinstance(stop, str) else elements(stop)) if isinstance(each, str) and each]


@define(eq=False)
class StopFilter:
    """Holds back the text of an item from where a stop string may begin."""

    _stops: Sequence[str]
    _waiting: list[TokenText] = field(factory=list[TokenText], init=False)

    def feed(self, chunk: TokenText) -> list[TokenText]:
        """Return the text that no stop string includes, in chunks."""
        self._waiting.append(chunk)
        return self._take(self._start())

    def go_on(self) -> list[TokenText]:
        """Return the text that waits with a complete stop string, because the engine has not stopped there."""
        text = self._text
        return self.flush() if any(stop in text for stop in self._stops) else []

    def flush(self) -> list[TokenText]:
        """Return all text that waits."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def cut(self) -> list[TokenText]:
        """Return the text that waits, up to a complete stop string: the turn has ended."""
        text = self._text
        start = min((at for stop in self._stops if (at := text.find(stop)) >= 0), default=len(text))
        before = self._take(start)
        rest = start - sum(len(chunk.text) for chunk in before)
        before += [chunk.cut(end=rest) for chunk in self._waiting[:1] if rest]
        self._waiting = []
        return before

    @property
    def _text(self) -> str:
        return "".join(chunk.text for chunk in self._waiting)

    def _start(self) -> int:
        """Return where a stop string begins, or may begin."""
        text = self._text
        longest = max(map(len, self._stops))
        starts = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        tails = range(max(len(text) - longest + 1, 0), len(text))
        starts += [at for at in tails if any(stop.startswith(text[at:]) for stop in self._stops)][:1]
        return min(starts, default=len(text))

    def _take(self, end: int) -> list[TokenText]:
        """Return the chunks that end before a position."""
        chunks: list[TokenText] = []
        while self._waiting and (end := end - len(self._waiting[0].text)) >= 0:
            chunks.append(self._waiting.pop(0))
        return chunks
