"""The acceptor and the oracle, which share nothing but the rules, say the same of legal streams and of mutated ones.

`INTERLOCK_FUZZ_STREAMS` sets how many streams are made, and `INTERLOCK_FUZZ_SEED` where they begin.
"""

import os
import random

import pytest
from corpus.broken import BROKEN
from corpus.legal import LEGAL
from stream_mutations import mutated

from interlock.events.dialects import from_open_responses
from interlock.fsm import oracle
from interlock.testing import findings
from interlock.testing.legality import stream

STREAMS = int(os.environ.get("INTERLOCK_FUZZ_STREAMS", "1000"))
SEED = int(os.environ.get("INTERLOCK_FUZZ_SEED", "0"))
MUTANTS = 9
PIECES = ("rain", "", " ", "\n", "é", "a b", "{", "𝄞", " x")


class Seeded(random.Random):
    """Makes the choices of a generator from a seed."""

    def text(self):
        return self.choice(PIECES)


PARTS = 5
every_part = pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, PARTS))])
"""Parts of the streams; the first is enough to cover all branches of the judges."""


def seeds(part):
    return range(SEED + part, SEED + STREAMS, PARTS)


def verdicts(bodies, dialect="openai"):
    """The rules that a stream breaks by the acceptor, and by the oracle."""
    return (
        {finding.rule for finding in findings(bodies, dialect=dialect)},
        {violation.rule for violation in oracle.check(bodies, dialect=dialect)},
    )


@every_part
def test_both_accept_what_the_driver_says_in_both_dialects(part):
    for seed in seeds(part):
        assert verdicts(stream(Seeded(seed))) == (set(), set()), seed
        assert verdicts(stream(Seeded(seed), dialect="open_responses"), "open_responses") == (set(), set()), seed


@every_part
def test_both_accept_the_same_mutants_and_refuse_the_others_by_a_rule_in_common(part):
    refused = 0
    for seed in seeds(part):
        chance = Seeded(seed)
        legal = stream(chance)
        for _ in range(MUTANTS):
            what, bodies = mutated(chance, legal)
            by_acceptor, by_oracle = verdicts(bodies)
            assert bool(by_acceptor) == bool(by_oracle), (seed, what, by_acceptor, by_oracle)
            assert not by_acceptor or by_acceptor & by_oracle, (seed, what, by_acceptor, by_oracle)
            refused += bool(by_acceptor)
    assert refused > len(seeds(part)) * MUTANTS // 2


@every_part
def test_both_accept_the_same_mutants_of_mutants(part):
    for seed in seeds(part):
        chance = Seeded(seed)
        bodies = stream(chance, min_items=2)
        for _ in range(3):
            if bodies:
                _, bodies = mutated(chance, bodies)
        by_acceptor, by_oracle = verdicts(bodies)
        assert bool(by_acceptor) == bool(by_oracle), (seed, by_acceptor, by_oracle)


def test_both_judge_the_corpus_alike():
    for name, bodies in {**LEGAL, **BROKEN}.items():
        by_acceptor, by_oracle = verdicts(bodies)
        assert bool(by_acceptor) == bool(by_oracle) == (name in BROKEN), name


def test_a_stream_of_the_other_dialect_says_the_same():
    for seed in range(SEED, SEED + 20):
        bodies = [from_open_responses(body) for body in stream(Seeded(seed), dialect="open_responses")]
        assert [body["type"] for body in bodies] == [body["type"] for body in stream(Seeded(seed))]
