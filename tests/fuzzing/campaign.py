"""A long run of the properties over random scenarios: `python -m fuzzing.campaign MINUTES` in the folder tests/.

Each round draws some hundred scenarios for each property. The scenario that breaks one is shrunk, kept under
`counterexamples/`, where the ordinary tests replay it, and printed; the exit status is then 1.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fuzzing.properties import PROPERTIES
from fuzzing.scenarios import SCENARIOS, to_json
from hypothesis import HealthCheck, given, settings

from interlock.fsm.deltas import Delta

KEPT = Path(__file__).parents[1] / "counterexamples"
ROUND = 250
"""How many scenarios each property gets in a round."""


def broken_by(holds: Callable[[Sequence[Delta]], None]) -> tuple[Sequence[Delta], BaseException] | None:
    """Try a property on new scenarios; give the shortest that breaks it, and how."""
    scenarios_tried: list[Sequence[Delta]] = []

    @settings(max_examples=ROUND, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(SCENARIOS)
    def attempt(scenario: Sequence[Delta]) -> None:
        scenarios_tried[:] = [scenario]
        holds(scenario)

    try:
        attempt()
    except BaseException as error:  # an assertion, an exception of the driver, or several of them at once
        if isinstance(error, KeyboardInterrupt):
            raise
        return scenarios_tried[0], error  # Hypothesis comes back to the shortest last
    return None


def keep(scenario: Sequence[Delta], name: str) -> Path:
    """Write a scenario where the ordinary tests find it."""
    path = KEPT / f"{name}.json"
    path.write_text(json.dumps(to_json(scenario), indent=1) + "\n")
    return path


def tell(progress: str) -> None:
    """Write over what was told before."""
    sys.stdout.write(f"\r{progress}")
    sys.stdout.flush()


def main(minutes: float) -> int:
    """Run for some minutes; give the exit status."""
    start, scenarios = time.monotonic(), 0
    while (spent := time.monotonic() - start) < minutes * 60:
        for holds in PROPERTIES:
            broken = broken_by(holds)
            if broken is not None:
                scenario, error = broken
                path = keep(scenario, time.strftime(f"{holds.__name__}-%Y%m%d-%H%M%S"))
                tell(f"{holds.__name__} does not hold: {error!r}\n{scenario!r}\nkept as {path}\n")
                return 1
            scenarios += ROUND
        tell(f"{scenarios:,} scenarios, {spent / 60:.1f} of {minutes:g} minutes")
    tell(f"{scenarios:,} scenarios in {minutes:g} minutes, and every property holds\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
