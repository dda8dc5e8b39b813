"""A long run of hostile requests against a real server: `python -m fuzzing.request_campaign MINUTES` in the folder tests/.

Half of them are sent over HTTP, half over WebSockets.

Every answer is judged, every stream too, and `/health` is asked for meanwhile. What breaks something is shrunk, kept under
`counterexamples/requests/`, where the ordinary tests replay it, and printed; the exit status is then 1. Memory is looked at
after a first round, in which caches fill, and at the end.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from fuzzing.asking import Asker
from fuzzing.bodies import frames, requests
from fuzzing.campaign import tell
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from live.watched import serving

KEPT = Path(__file__).parents[1] / "counterexamples" / "requests"
ROUND = 25
"""Requests of a round."""

GROWTH = 100_000_000
"""Bytes by which the server may have grown since its first round."""


def broken_by(asker: Asker, number: int) -> tuple[Mapping[str, object], BaseException] | None:
    """Try a round; return the smallest request that breaks something, and how."""
    bodies_tried: list[Mapping[str, object]] = []

    @seed(number)
    @settings(max_examples=ROUND, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.one_of(requests(), frames()))
    def attempt(body: Mapping[str, object]) -> None:
        bodies_tried[:] = [body]
        asker.ask_watched(body)

    try:
        attempt()
    except BaseException as error:  # an assertion, an exception of the client, or several of them at once
        if isinstance(error, KeyboardInterrupt):
            raise
        return bodies_tried[0], error  # Hypothesis comes back to the smallest last
    return None


def main(minutes: float, number: int) -> int:
    """Run for some minutes; return the exit status."""
    began = time.monotonic()
    with serving() as (url, pid), Asker(url, pid) as asker:
        grown_from = 0
        while (spent := time.monotonic() - began) < minutes * 60:
            broken = broken_by(asker, number)
            if broken is not None:
                body, error = broken
                KEPT.mkdir(exist_ok=True)
                path = KEPT / time.strftime("%Y%m%d-%H%M%S.json")
                path.write_text(json.dumps(body, indent=1) + "\n")
                tell(f"{error!r}\n{str(body)[:2_000]}\nkept as {path}, seed {number}\n")
                return 1
            grown_from, number = grown_from or asker.memory, number + 1
            tell(f"{asker.count:,} requests, {spent / 60:.1f} of {minutes:g} minutes, held up {asker.busy * 1000:.0f} ms ")
        growth = asker.memory - grown_from
        wait, busy = asker.longest * 1000, asker.busy * 1000
        tell(f"{asker.count:,} requests in {minutes:g} minutes: {asker.statuses}\n")
        tell(f"/health waited {wait:.0f} ms at most, {busy:.0f} ms at most for something that the server computed\n")
        tell(f"memory grew by {growth / 1e6:.0f} MB to {asker.memory / 1e6:.0f} MB\n")
        return int(growth > GROWTH)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2])))
