"""Several server processes over one store, with owners that are killed: every reader comes to a legal end, and nothing is lost.

INTERLOCK_STORE_RUNS says how many responses are made (12 in `make test`, 200 in `make test-store`).
"""

import json
import os
import random
import shutil
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path

import pytest
from store.fleet import Fleet, Reading, Server

from interlock.fsm.acceptor import judge
from interlock.serving.store.errors import StoreUnfit
from interlock.serving.store.opening import open_store

RUNS = int(os.environ.get("INTERLOCK_STORE_RUNS", "12"))
SEED = int(os.environ.get("INTERLOCK_STORE_SEED", "1"))
FIGURES = os.environ.get("INTERLOCK_STORE_FIGURES")


@pytest.fixture
def redis(tmp_path):
    """The URL of a real redis-server that answers when a write is on the disk."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("there is no redis-server")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--dir",
        str(tmp_path),
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ]
    process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)  # noqa: S603 - a program of this machine
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.05)
    yield f"redis://127.0.0.1:{port}"
    process.terminate()
    process.wait(10)


@pytest.fixture(params=["sqlite", "redis"])
def store(request, tmp_path):
    url = f"sqlite:{tmp_path}/store.db" if request.param == "sqlite" else request.getfixturevalue("redis")
    try:
        open_store(url)
    except StoreUnfit as unfit:
        pytest.skip(str(unfit))
    return url


def campaign(fleet, kill):
    """Make responses on any server, read each twice, cancel some, and kill owners meanwhile; give what was read."""
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
            if kill and number % max(RUNS // 3, 1) == 1:
                victim = chance.choice(fleet.servers)
                victim.kill()
                victim.start()
        return begun, [reading.result() for reading in readings]


def numbers(frames):
    return [json.loads(frame[frame.index(b"{") :])["sequence_number"] for frame in frames]


@pytest.mark.parametrize("processes", [2, 4] if RUNS > 50 else [2])
def test_every_reader_of_every_response_comes_to_a_legal_end_although_owners_are_killed(store, processes) -> None:
    fleet = Fleet([Server(store, rate=60) for _ in range(processes)], random.Random(SEED))  # noqa: S311 - a seed repeats a run
    began = time.monotonic()
    try:
        begun, readings = campaign(fleet, kill=True)
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
    assert "completed" in statuses
    if FIGURES:
        resumed, events = sum(reading.resumed for reading in readings), sum(len(reading.frames) for reading in readings)
        said = ", ".join(f"{statuses.count(status)} {status}" for status in sorted({*statuses}))
        cells = [store.partition(":")[0], processes, RUNS, len(readings), events, resumed, said, round(time.monotonic() - began)]
        record(Path(FIGURES), f"| {cells[0]} | {processes} |", f"| {' | '.join(map(str, cells))} |")


def record(page, key, row):
    """Write a row into the table of a page, in the place of the one that begins like it."""
    before, mark, rest = page.read_text().partition("<!-- runs with faults -->\n")
    rows = [*takewhile(lambda line: line.startswith("|"), rest.splitlines())]
    after = rest.splitlines()[len(rows) :]
    kept = [line for line in rows if not line.startswith(key)]
    page.write_text("\n".join([before + mark + kept[0], kept[1], *sorted([*kept[2:], row]), *after]) + "\n")
