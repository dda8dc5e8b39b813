"""Hypothesis strategies: legal streams, broken ones, and their bytes in pieces."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Final, TypeVar

from attrs import frozen

from interlock.events.dialects import DIALECTS, DialectName
from interlock.events.items import ItemKind
from interlock.testing.faults import FAULTS, RULES, Fault
from interlock.testing.legality import findings
from interlock.testing.scripts import ENDINGS, KINDS, Body, Ending, frames, stream

try:
    from hypothesis import assume
    from hypothesis import strategies as st
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "the strategies of interlock.testing need Hypothesis: pip install hypothesis",
        name=error.name,
    ) from error

__all__ = ["Broken", "broken_streams", "legal_streams", "sse_bytes"]

T = TypeVar("T")

_PIECES: Final = st.one_of(
    st.sampled_from(["rain", "", " ", "\n", "é", '"\\', "\u2028", "𝄞", "data: [DONE]\n\n"]),
    st.text(max_size=5),
)


@frozen
class Broken:
    """A stream that breaks a rule.

    Args:
        events: The bodies of its events.
        rule: The rule: it is broken, and others may be broken in its wake.
        what: What was done to a legal stream, in a few words.
    """

    events: list[Body]
    rule: str
    what: str


@frozen
class _Drawn:
    """Lets Hypothesis make the choices."""

    draw: st.DrawFn

    def choice(self, options: Sequence[T]) -> T:
        """Choose one of some options."""
        return self.draw(st.sampled_from(options))

    def randint(self, low: int, high: int) -> int:
        """Choose a whole number."""
        return self.draw(st.integers(low, high))

    def text(self) -> str:
        """Choose a piece of text."""
        return self.draw(_PIECES)


@st.composite
def legal_streams(
    draw: st.DrawFn,
    *,
    kinds: Sequence[ItemKind] = KINDS,
    endings: Sequence[Ending] = ENDINGS,
    dialect: DialectName = "openai",
    max_items: int = 4,
) -> list[Body]:
    """Draw a stream that breaks no rule: the events of a driver that is fed what models, tools and servers may do.

    Args:
        draw: Passed by Hypothesis.
        kinds: The kinds of item that a stream may have.
        endings: The statuses in which it may end.
        dialect: The dialect of the stream.
        max_items: How many items it has at most.

    Returns:
        The bodies of its events.
    """
    return stream(_Drawn(draw), kinds=kinds, endings=endings, max_items=max_items, dialect=dialect)


@st.composite
def broken_streams(draw: st.DrawFn, *, rule: str | None = None, dialect: DialectName = "openai") -> Broken:
    """Draw a stream that was legal before one thing was changed.

    Args:
        draw: Passed by Hypothesis.
        rule: The rule to be broken, one of `RULES`; any if none is given.
        dialect: The dialect of the stream.

    Returns:
        The stream, with the rule that it breaks.

    Raises:
        ValueError: No stream can be made to break that rule.
    """
    if rule not in {None, *RULES}:
        raise ValueError(f"there are no streams that break {rule}; there are: {', '.join(RULES)}")
    fault: Fault = draw(st.sampled_from([fault for fault in FAULTS if rule in {None, fault.rule}]))
    chance = _Drawn(draw)
    events = copy.deepcopy(stream(chance, kinds=fault.kinds, endings=fault.endings, min_items=1, max_items=3))
    assume(fault.apply(chance, events))
    assume(any(found.rule == fault.rule for found in findings(events)))
    said = events if dialect == "openai" else [DIALECTS[dialect].spoken(body) for body in events]
    return Broken(said, fault.rule, fault.what)


@st.composite
def sse_bytes(draw: st.DrawFn, events: Sequence[Body]) -> list[bytes]:
    """Draw the bytes of a stream, cut into pieces at any places, as a network may.

    Args:
        draw: Passed by Hypothesis.
        events: The bodies of its events.

    Returns:
        The pieces, none of them empty.
    """
    data = frames(events)
    cuts = sorted(draw(st.sets(st.integers(1, len(data) - 1), max_size=20)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
