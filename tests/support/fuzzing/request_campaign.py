"""A long run of hostile requests against a real server.

A third of them are sent over HTTP and a third over WebSockets; the others are heads alone, some of them floods of headers. Every
second round goes to a gateway, whose upstream refuses what the strictest services refuse. Every answer and every stream is
judged, while another client fetches `/health`. A request that breaks something is shrunk, printed and written to
`counterexamples/hostile_requests/`, where the ordinary tests replay it; the exit status is then 1. Memory is compared between the
end and the first round, in which caches fill.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from campaigns import any_seed, options
from fuzzing.bodies import frames, heads, requests
from fuzzing.campaign import broken_by, show
from fuzzing.prober import Prober
from fuzzing.strict_chat import serving_gateway
from hypothesis import strategies as st
from live.watched import serving

FOUND = Path(__file__).parents[2] / "counterexamples" / "hostile_requests"
ROUND = 25
"""The requests of a round."""

GROWTH = 100_000_000
"""The most bytes by which the server's memory may grow after the first round."""


def main(minutes: float, seed: int) -> int:
    """Run for some minutes, and return the exit status."""
    start = time.monotonic()
    with serving() as server, serving_gateway() as gateway, Prober(*server) as plain, Prober(*gateway) as translating:
        probers, first_memory = (plain, translating), dict[int, int]()
        while (seconds := time.monotonic() - start) < minutes * 60:
            prober = probers[seed % 2]
            broken = broken_by(st.one_of(requests(), frames(), heads()), prober.send_watched, ROUND, seed)
            if broken is not None:
                body, error = broken
                FOUND.mkdir(exist_ok=True)
                path = FOUND / time.strftime("%Y%m%d-%H%M%S.json")
                path.write_text(json.dumps(body, indent=1) + "\n")
                show(f"{error!r}\n{str(body)[:2_000]}\nwritten to {path}, seed {seed}\n")
                return 1
            first_memory.setdefault(prober.pid, prober.memory)
            seed += 1
            count = sum(each.count for each in probers)
            show(f"{count:,} requests, {seconds / 60:.1f} of {minutes:g} minutes, delay {prober.busy * 1000:.0f} ms ")
        return max(_summarize(prober, minutes, first_memory.get(prober.pid, prober.memory)) for prober in probers)


def _summarize(prober: Prober, minutes: float, first_memory: int) -> int:
    """Write what a campaign has seen of a server, and return the exit status."""
    growth = prober.memory - first_memory
    wait, busy = prober.longest * 1000, prober.busy * 1000
    show(f"{prober.count:,} requests in {minutes:g} minutes: {prober.statuses}\n")
    show(f"/health took at most {wait:.0f} ms, of which the server computed something else for at most {busy:.0f} ms\n")
    show(f"memory grew by {growth / 1e6:.0f} MB to {prober.memory / 1e6:.0f} MB\n")
    return int(growth > GROWTH)


if __name__ == "__main__":
    sys.exit(main(**options(__doc__, minutes=5.0, seed=any_seed())))
