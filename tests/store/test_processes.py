"""Several server processes over one store, with owners that are killed: every reader comes to a legal end, and nothing is lost.

INTERLOCK_STORE_RUNS says how many responses are made (9 in `make test`, 200 in `make test-store`).
"""

import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path

import pytest
from live.redis_server import COMMAND, RedisServer
from store.fleet import Fleet, Reading, Server

from interlock.fsm.acceptor import judge
from interlock.serving.store.errors import StoreUnfit
from interlock.serving.store.opening import open_store

RUNS = int(os.environ.get("INTERLOCK_STORE_RUNS", "9"))
SEED = int(os.environ.get("INTERLOCK_STORE_SEED", "1"))
FIGURES = os.environ.get("INTERLOCK_STORE_FIGURES")


@pytest.fixture
def redis():
    """A real redis-server that answers when a write is on the disk."""
    if COMMAND is None:
        pytest.skip("there is no redis-server")
    server = RedisServer("--appendonly", "yes", "--appendfsync", "always")
    yield server
    server.close()


def fit(url):
    """The URL of a store that can be used here."""
    try:
        open_store(url)
    except StoreUnfit as unfit:
        pytest.skip(str(unfit))
    return url


@pytest.fixture(params=["sqlite", "redis"])
def store(request, tmp_path):
    return fit(f"sqlite:{tmp_path}/store.db" if request.param == "sqlite" else request.getfixturevalue("redis").url)


def a_process_is_killed(fleet):
    """Kill a process, which is started again."""
    victim = fleet.chance.choice(fleet.servers)
    victim.kill()
    victim.start()


def campaign(fleet, fault):
    """Make responses on any server, read each twice, cancel some, and have a fault three times; give what was read."""
    chance, deadline = fleet.chance, time.monotonic() + 120 + RUNS
    readings = []
    with ThreadPoolExecutor(24) as threads:
        begun = []
        for number in range(RUNS):
            response_id = fleet.begin()
            cancelled = chance.random() < 0.2
            begun.append((response_id, cancelled))
            readings += [threads.submit(fleet.read, Reading(response_id), deadline) for _ in range(2)]
            if cancelled:
                threads.submit(fleet.cancel, response_id)
            if number % max(RUNS // 3, 1) == 1:
                fault(fleet)
        return begun, [reading.result() for reading in readings]


def numbers(frames):
    return [json.loads(frame[frame.index(b"{") :])["sequence_number"] for frame in frames]


def run(store, processes, said, fault):
    """Run a campaign, and judge what every reader has read; return how the responses ended."""
    fleet = Fleet([Server(store, rate=60) for _ in range(processes)], random.Random(SEED))  # noqa: S311 - a seed repeats a run
    began = time.monotonic()
    try:
        begun, readings = campaign(fleet, fault)
    finally:
        for server in fleet.servers:
            server.stop()
    ends = {}
    for reading in readings:
        assert numbers(reading.frames) == [*range(len(reading.frames))]
        assert judge([*reading.frames, b"data: [DONE]\n\n"]).reported == []
        ends.setdefault(reading.response_id, []).append(reading.frames)
    assert ends.keys() == {response_id for response_id, _ in begun}
    assert all(first == second for first, second in ends.values())
    statuses = [json.loads(frames[0][-1].partition(b"data: ")[2])["response"]["status"] for frames in ends.values()]
    if FIGURES:
        resumed, events = sum(reading.resumed for reading in readings), sum(len(reading.frames) for reading in readings)
        ended = ", ".join(f"{statuses.count(status)} {status}" for status in sorted({*statuses}))
        cells = [store.partition(":")[0], said, processes, RUNS, len(readings), events, resumed, ended]
        row = " | ".join(map(str, [*cells, round(time.monotonic() - began)]))
        record(Path(FIGURES), f"| {cells[0]} | {said} | {processes} |", f"| {row} |")
    return {*statuses}


@pytest.mark.parametrize("processes", [2, 4] if RUNS > 50 else [2])
def test_every_reader_of_every_response_comes_to_a_legal_end_although_owners_are_killed(store, processes) -> None:
    assert "completed" in run(store, processes, "a process is killed", a_process_is_killed)


def test_a_store_that_stops_and_starts_again_loses_nothing_and_fails_nobody(redis) -> None:
    def the_store_stops(_fleet):
        redis.kill()
        time.sleep(2)  # which is long for a client, and short for a lease
        redis.start()

    assert run(fit(redis.url), 2, "the store is killed", the_store_stops) <= {"completed", "cancelled"}


def record(page, key, row):
    """Write a row into the table of a page, in the place of the one that begins like it."""
    before, mark, rest = page.read_text().partition("<!-- runs with faults -->\n")
    rows = [*takewhile(lambda line: line.startswith("|"), rest.splitlines())]
    after = rest.splitlines()[len(rows) :]
    kept = [line for line in rows if not line.startswith(key)]
    page.write_text("\n".join([before + mark + kept[0], kept[1], *sorted([*kept[2:], row]), *after]) + "\n")
