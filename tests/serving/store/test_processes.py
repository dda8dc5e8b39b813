"""Several server processes with one store survive faults: every reader comes to a legal end, and nothing is lost.

A process is killed once with each store. If INTERLOCK_STORE_RUNS is set, every fault of `store_fleet.faults` happens with two
processes and with four, and each run creates that many responses.
"""

import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path

import pytest
from store_fleet.faults import FAULTS, scene_of
from store_fleet.fleet import fleet_of

from interlock.judges import judge

ALL = "INTERLOCK_STORE_RUNS" in os.environ
RUNS = int(os.environ.get("INTERLOCK_STORE_RUNS", "5"))
SEED = int(os.environ.get("INTERLOCK_STORE_SEED", "1"))
FIGURES = os.environ.get("INTERLOCK_STORE_FIGURES")
STRIKES = 3 if ALL else 1
CASES = (
    [(*fault, processes) for fault in FAULTS for processes in (2, 4)]
    if ALL
    else [
        pytest.param(store, "a process is killed", 2, marks=marks)
        for store, marks in (("sqlite", ()), ("postgres", pytest.mark.long))
    ]
)


@pytest.mark.parametrize(("store", "fault", "processes"), CASES)
def test_every_reader_comes_to_the_same_legal_end_whatever_fault_occurs(store, fault, processes) -> None:
    began = time.monotonic()
    chance = random.Random(SEED)  # noqa: S311 - a seed repeats the choices
    with scene_of(store, fault) as scene:
        served = {"store": scene.url, "prefix": scene.prefix, "environment": scene.environment}
        with fleet_of(processes, chance, **served) as fleet:
            readings, cancelled = campaign(fleet, scene.strike)
            responses = {name: fleet.ask("GET", f"/{name}") for name in readings}
    ends = {name: terminal_event(*read)["response"] for name, read in readings.items()}
    assert ends == responses
    assert {name: responses[name]["status"] for name in cancelled} == cancelled
    statuses = [end["status"] for end in ends.values()]
    assert {*statuses} <= scene.ends
    if FIGURES:
        read = [reading for pair in readings.values() for reading in pair]
        figures = [RUNS, len(read), sum(len(each.frames) for each in read), sum(each.resumed for each in read)]
        ended = ", ".join(f"{statuses.count(status)} {status}" for status in sorted({*statuses}))
        record(Path(FIGURES), [store, fault, processes], [*figures, ended, round(time.monotonic() - began)])


def campaign(fleet, strike):
    """Create responses on any server, read each twice, cancel some, and inject the fault.

    Return the readings and the statuses of cancelled responses, both by the id of the response.
    """
    chance, deadline = fleet.chance, time.monotonic() + 120 + 2 * RUNS
    struck = {*chance.sample(range(RUNS), STRIKES)}
    reading, cancelling, strikes = {}, {}, []
    with ThreadPoolExecutor(32) as threads, ThreadPoolExecutor(1) as striking:  # one fault after another
        for number in range(RUNS):
            name = fleet.begin()
            if chance.random() < 0.2:
                cancelling[name] = threads.submit(fleet.cancel, name)
            reading[name] = [threads.submit(fleet.read, name, deadline) for _ in range(2)]
            if number in struck:
                strikes.append(striking.submit(strike, fleet))
        for each in strikes:
            each.result()
        readings = {name: [each.result() for each in pair] for name, pair in reading.items()}
        return readings, {name: each.result() for name, each in cancelling.items()}


def terminal_event(first, second):
    """Check that both readers of a response have received the same legal stream, and return its last event."""
    assert first.frames == second.frames
    bodies = [json.loads(frame[frame.index(b"{") :]) for frame in first.frames]
    assert [body["sequence_number"] for body in bodies] == [*range(len(bodies))]
    assert judge([*first.frames, b"data: [DONE]\n\n"]).findings == {}
    return bodies[-1]


def record(page, key, cells):
    """Write a row into the table of a page. It replaces the row that begins with the same key."""
    beginning, row = (f"| {' | '.join(map(str, each))} |" for each in (key, [*key, *cells]))
    before, mark, rest = page.read_text().partition("<!-- runs with faults -->\n")
    rows = [*takewhile(lambda line: line.startswith("|"), rest.splitlines())]
    after = rest.splitlines()[len(rows) :]
    others = [line for line in rows[2:] if not line.startswith(beginning)]
    page.write_text("\n".join([before + mark + rows[0], rows[1], *sorted([*others, row]), *after]) + "\n")
