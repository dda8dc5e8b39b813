"""A long run of the properties over random stories: `python -m fuzzing.campaign MINUTES` in the folder tests/.

Each round draws some hundred stories for each property. The story that breaks one is shrunk, kept under
`counterexamples/`, where the ordinary tests replay it, and printed; the exit status is then 1.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fuzzing.properties import PROPERTIES
from fuzzing.stories import STORIES, to_json
from hypothesis import HealthCheck, given, settings

from interlock.fsm.deltas import Delta

KEPT = Path(__file__).parents[1] / "counterexamples"
ROUND = 250
"""How many stories each property gets in a round."""


def broken_by(holds: Callable[[Sequence[Delta]], None]) -> tuple[Sequence[Delta], BaseException] | None:
    """Try a property on new stories; give the shortest that breaks it, and how."""
    stories_tried: list[Sequence[Delta]] = []

    @settings(max_examples=ROUND, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(STORIES)
    def attempt(story: Sequence[Delta]) -> None:
        stories_tried[:] = [story]
        holds(story)

    try:
        attempt()
    except BaseException as error:  # an assertion, an exception of the driver, or several of them at once
        if isinstance(error, KeyboardInterrupt):
            raise
        return stories_tried[0], error  # Hypothesis comes back to the shortest last
    return None


def keep(story: Sequence[Delta], name: str) -> Path:
    """Write a story where the ordinary tests find it."""
    path = KEPT / f"{name}.json"
    path.write_text(json.dumps(to_json(story), indent=1) + "\n")
    return path


def tell(progress: str) -> None:
    """Write over what was told before."""
    sys.stdout.write(f"\r{progress}")
    sys.stdout.flush()


def main(minutes: float) -> int:
    """Run for some minutes; give the exit status."""
    start, stories = time.monotonic(), 0
    while (spent := time.monotonic() - start) < minutes * 60:
        for holds in PROPERTIES:
            broken = broken_by(holds)
            if broken is not None:
                story, error = broken
                path = keep(story, time.strftime(f"{holds.__name__}-%Y%m%d-%H%M%S"))
                tell(f"{holds.__name__} does not hold: {error!r}\n{story!r}\nkept as {path}\n")
                return 1
            stories += ROUND
        tell(f"{stories:,} stories, {spent / 60:.1f} of {minutes:g} minutes")
    tell(f"{stories:,} stories in {minutes:g} minutes, and every property holds\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
