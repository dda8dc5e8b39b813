"""Which text belongs to which token, for parsers that are given both.

vLLM's engine yields tokens and text, but not always the text of those tokens: with stop sequences the text lags behind; with a
stream interval, or on a busy machine, many tokens come at once; where a stop sequence ends the turn, the text is cut. vLLM's
parsers go wrong with each of these. So each token is paired with its own text here, and they see the same whatever the engine
makes of it (rule R16).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence

from attrs import define, field

from interlock.parsers.chunk import Chunk
from interlock.parsers.vocabulary import Entry

__all__ = ["Pairing"]


@define(eq=False)
class Pairing:
    """Pairs the tokens of one round with their text.

    Args:
        decode: Returns the text that a token adds to those before it, "" while a character is not whole. Called once for each
            token, in order.
        controls: The tokens that end a round. Their text is dropped where the engine passes it on, because what follows from
            them is not text (rule R17).
    """

    _decode: Callable[[int], str]
    _controls: Container[int] = frozenset[int]()
    _waiting: deque[Chunk] = field(factory=deque[Chunk], init=False)
    """Tokens whose text was not given yet, each with the text that it should have."""
    _given: str = field(default="", init=False)
    """Text that was given and belongs to the tokens that wait."""

    def pair(
        self, token_ids: Sequence[int], text: str, logprobs: Sequence[Entry] | None = None, *, finished: bool = False
    ) -> Sequence[Chunk]:
        """Return the tokens whose text is there: a chunk for each, and for several only where they cannot be told apart.

        Args:
            token_ids: New tokens.
            text: New text, of these tokens or of earlier ones.
            logprobs: One object for each new token, or None if they were not asked for.
            finished: Whether no text comes any more: what waits then has what text is left, and is given as one.
        """
        return [Chunk(token_ids, text, logprobs)] if self.take(token_ids, text, logprobs) else self.paired(finished=finished)

    def take(self, token_ids: Sequence[int], text: str, logprobs: Sequence[Entry] | None = None) -> bool:
        """Take new tokens and text; return whether they are a pair as they are: one token with its own text, as a rule.

        Args:
            token_ids: As for `pair`.
            text: As for `pair`.
            logprobs: As for `pair`.

        Returns:
            False if they wait; then `paired` gives them.
        """
        if len(token_ids) == 1 and not self._waiting and not self._given:
            token = token_ids[0]
            expected = self._decode(token)
            if expected == text and token not in self._controls:
                return True
            self._waiting.append(Chunk(token_ids, expected, logprobs))
        else:
            for place, token in enumerate(token_ids):
                entries = None if logprobs is None else logprobs[place : place + 1]
                self._waiting.append(Chunk([token], self._decode(token), entries))
        self._given += text
        return False

    def paired(self, *, finished: bool) -> list[Chunk]:
        """Return those that wait whose text is there, as `pair` does.

        Args:
            finished: As for `pair`.
        """
        return [*self._paired(finished=finished)]

    def _paired(self, *, finished: bool) -> Iterator[Chunk]:
        """Yield those that wait whose text is there, in order."""
        while self._waiting and self._given.startswith(self._waiting[0].text):
            chunk = self._waiting.popleft()
            self._given = self._given[len(chunk.text) :]
            yield _silent(*chunk.token_ids) if chunk.token_ids[0] in self._controls else chunk
        if self._waiting and (finished or not self._waiting[0].text.startswith(self._given)):
            yield self._rest()

    def _rest(self) -> Chunk:
        """Return what waits, with whatever text is there: the end of a round, or a text that its tokens do not say."""
        token_ids = [token for chunk in self._waiting for token in chunk.token_ids]
        logprobs = [entry for chunk in self._waiting for entry in chunk.logprobs or ()]
        self._waiting.clear()
        text, self._given = self._given, ""
        return Chunk(token_ids, text, logprobs or None)


def _silent(token: int) -> Chunk:
    """Return a token whose text is none."""
    return Chunk([token])
