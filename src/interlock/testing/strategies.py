"""Hypothesis strategies for legal streams, broken streams, and their bytes in chunks."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Final, TypeVar

from attrs import frozen

from interlock.events.dialects import DIALECTS, DialectName
from interlock.events.items import ItemKind
from interlock.testing.streams import ENDINGS, KINDS, MUTATIONS, RULES, Body, Ending, Mutation, findings, frames, stream

try:
    from hypothesis import assume
    from hypothesis import strategies as st
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "the strategies of interlock.testing need Hypothesis: pip install hypothesis",
        name=error.name,
    ) from error

T = TypeVar("T")

_TEXTS: Final = st.one_of(
    st.sampled_from(["rain", "", " ", "\n", "é", '"\\', "\u2028", "𝄞", "data: [DONE]\n\n"]),
    st.text(max_size=5),
)


@frozen
class Broken:
    """A stream that breaks `rule`, and perhaps other rules as a consequence; `what` describes the change to a legal stream."""

    events: list[Body]
    rule: str
    what: str


@frozen
class _HypothesisChance:
    draw: st.DrawFn

    def choice(self, options: Sequence[T]) -> T:
        return self.draw(st.sampled_from(options))

    def randint(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def text(self) -> str:
        return self.draw(_TEXTS)


@st.composite
def legal_streams(
    draw: st.DrawFn,
    *,
    kinds: Sequence[ItemKind] = KINDS,
    endings: Sequence[Ending] = ENDINGS,
    dialect: DialectName = "openai",
    max_items: int = 4,
) -> list[Body]:
    """Draw a legal stream, as the bodies of its events, with items of the given `kinds` and one of the `endings`."""
    return stream(_HypothesisChance(draw), kinds=kinds, endings=endings, max_items=max_items, dialect=dialect)


@st.composite
def broken_streams(draw: st.DrawFn, *, rule: str | None = None, dialect: DialectName = "openai") -> Broken:
    """Draw a legal stream with one change that breaks `rule`, or any rule if None.

    Raises:
        ValueError: The rule is not one of `RULES`.
    """
    if rule not in {None, *RULES}:
        raise ValueError(f"rule must be one of {', '.join(RULES)}, not {rule!r}")
    mutation: Mutation = draw(st.sampled_from([mutation for mutation in MUTATIONS if rule in {None, mutation.rule}]))
    chance = _HypothesisChance(draw)
    events = copy.deepcopy(stream(chance, kinds=mutation.kinds, endings=mutation.endings, min_items=1, max_items=3))
    assume(mutation.apply(chance, events))
    bodies = events if dialect == "openai" else [DIALECTS[dialect].convert(body) for body in events]
    assume(any(finding.rule == mutation.rule for finding in findings(bodies, dialect=dialect)))
    return Broken(bodies, mutation.rule, mutation.what)


@st.composite
def sse_bytes(draw: st.DrawFn, events: Sequence[Body]) -> list[bytes]:
    """Draw the bytes of a stream in non-empty chunks, split anywhere."""
    data = frames(events)
    cuts = sorted(draw(st.sets(st.integers(1, len(data) - 1), max_size=20)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
