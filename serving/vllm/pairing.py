"""Which text belongs to which token, for parsers that are given both.

vLLM's engine yields tokens and text, but not always the text of those tokens: with stop sequences the text lags behind; with a
stream interval, or on a busy machine, many tokens come at once; where a stop sequence ends the turn, the text is cut. vLLM's
parsers go wrong with each of these. So each token is paired with its own text here, and they see the same whatever the engine
makes of it (rule R16).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from attrs import define, field, frozen

__all__ = ["Pairing", "Said"]


@frozen
class Said:
    """A token and its text; several where they cannot be told apart.

    Args:
        token_ids: The tokens.
        text: Their text.
        logprobs: One object for each token, or nothing if none were asked for.
    """

    token_ids: list[int]
    text: str
    logprobs: Sequence[Mapping[str, object]] = ()


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
    _waiting: deque[Said] = field(factory=deque[Said], init=False)
    """Tokens whose text was not given yet, each with the text that it should have."""
    _given: str = field(default="", init=False)
    """Text that was given and belongs to the tokens that wait."""

    def pair(
        self, token_ids: Sequence[int], text: str, logprobs: Sequence[Mapping[str, object]] = (), *, finished: bool = False
    ) -> Iterator[Said]:
        """Return the tokens whose text is there.

        Args:
            token_ids: New tokens.
            text: New text, of these tokens or of earlier ones.
            logprobs: One object for each new token, or nothing.
            finished: Whether no text comes any more: what waits then has what text is left, and is given as one.
        """
        self._given += text
        for place, token in enumerate(token_ids):
            self._waiting.append(Said([token], self._decode(token), tuple(logprobs[place : place + 1])))
        while self._waiting and self._given.startswith(self._waiting[0].text):
            said = self._waiting.popleft()
            self._given = self._given[len(said.text) :]
            yield Said(said.token_ids, "", ()) if said.token_ids[0] in self._controls else said
        if self._waiting and (finished or not self._waiting[0].text.startswith(self._given)):
            yield self._rest()

    def _rest(self) -> Said:
        """Return what waits, with whatever text is there: the end of a round, or a text that its tokens do not say."""
        token_ids = [token for said in self._waiting for token in said.token_ids]
        logprobs = tuple(entry for said in self._waiting for entry in said.logprobs)
        self._waiting.clear()
        text, self._given = self._given, ""
        return Said(token_ids, text, logprobs)
