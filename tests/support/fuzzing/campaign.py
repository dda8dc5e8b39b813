"""A long run of the properties over random scenarios.

A scenario is a random list of deltas. Each round draws 250 for each property. A scenario that breaks one is shrunk, printed and
written to `counterexamples/`, where the ordinary tests replay it; the exit status is then 1.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from campaigns import options
from fuzzing.properties import PROPERTIES
from fuzzing.scenarios import SCENARIOS, to_json
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")

FOUND = Path(__file__).parents[2] / "counterexamples"
ROUND = 250
"""The scenarios for each property in a round."""


def broken_by(
    examples: SearchStrategy[T], holds: Callable[[T], None], count: int = ROUND, number: int | None = None
) -> tuple[T, BaseException] | None:
    """Test a property with new examples, or with those of a seed; return the shortest one that breaks it, with the error."""
    last: list[T] = []

    def attempt(example: T) -> None:
        last[:] = [example]
        holds(example)

    limits = settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    property_test = limits(given(examples)(attempt))
    try:
        (property_test if number is None else seed(number)(property_test))()
    except BaseException as error:  # an assertion, an exception of what is tested, or several of them at once
        if isinstance(error, KeyboardInterrupt):
            raise
        return last[0], error  # Hypothesis repeats the shortest example last
    return None


def show(progress: str) -> None:
    """Write the progress over the line before it."""
    sys.stdout.write(f"\r{progress}")
    sys.stdout.flush()


def main(minutes: float) -> int:
    """Run for some minutes, and return the exit status."""
    start, scenarios = time.monotonic(), 0
    while (seconds := time.monotonic() - start) < minutes * 60:
        for holds in PROPERTIES:
            broken = broken_by(SCENARIOS, holds)
            if broken is not None:
                scenario, error = broken
                path = FOUND / time.strftime(f"{holds.__name__}-%Y%m%d-%H%M%S.json")
                path.write_text(json.dumps(to_json(scenario), indent=1) + "\n")
                show(f"{holds.__name__} does not hold: {error!r}\n{scenario!r}\nwritten to {path}\n")
                return 1
            scenarios += ROUND
        show(f"{scenarios:,} scenarios, {seconds / 60:.1f} of {minutes:g} minutes")
    show(f"{scenarios:,} scenarios in {minutes:g} minutes, and every property holds\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(**options(__doc__, minutes=5.0)))
