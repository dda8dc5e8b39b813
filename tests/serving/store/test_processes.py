"""Several servers with one store answer many requests at once, and survive faults: every reader receives a legal end.

A process is killed once with each store, and few requests go to two servers in threads. If INTERLOCK_STORE_RUNS is set, every
fault of `FAULTS` happens with two processes and with four, each run creates that many responses, and many requests go to four
processes.
"""

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from itertools import takewhile
from pathlib import Path

import apsw
import pytest
from attrs import field, frozen
from store_fleet import KINDS, SHARED, ask_at_once, create_at_once, fleet_of, postgres_server, stream_at_once

from interlock.judges import judge
from interlock.serving.build import build
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings
from interlock.serving.store import open_store
from interlock.serving.store.postgres import TIMEOUT
from interlock.serving.store.values import StoreUnusable

WHILE = 2.0
"""Seconds that most faults last: long for a client, short for a lease."""

LONG = TIMEOUT + 2.0
"""Seconds that the others last: longer than a store waits for an answer of its server, or for a lock."""

HOUR = 3600

NORMAL_ENDS = frozenset({"completed", "cancelled"})
ENDS_WITH_FAILURES = NORMAL_ENDS | {"failed"}


@frozen
class Scene:
    """A store, and a fault.

    Args:
        url: The URL of the store.
        strike: Injects and removes the fault. Its argument is the fleet.
        ends: The statuses with which responses may end.
        prefix: The beginning of the servers' command.
        environment: Variables that the servers have besides those of the tests.
    """

    url: str
    strike: Callable
    ends: frozenset = NORMAL_ENDS
    prefix: tuple = ()
    environment: dict = field(factory=dict)


def fault(kind, strike, ends=NORMAL_ENDS):
    """Return a fault of a kind of store; the arguments of `strike` are the store and the fleet."""

    @contextmanager
    def scene(folder):
        with KINDS[kind](folder) as store:
            yield Scene(store.url, partial(strike, store), ends)

    return scene


def kill_process(_store, fleet):
    """Kill a server process, and start it again."""
    victim = fleet.chance.choice(fleet.servers)
    victim.kill()
    victim.start()


def kill_store(store, _fleet):
    store.kill()
    time.sleep(WHILE)
    store.start()


def stop_store(store, _fleet):
    """Stop the store for a while; it then continues with the requests that have arrived meanwhile."""
    store.signal(signal.SIGSTOP)
    time.sleep(LONG)
    store.signal(signal.SIGCONT)


def close_connections(store, _fleet):
    """Close all connections to the store repeatedly, as a proxy may."""
    for _ in range(20):
        store.disconnect_all()
        time.sleep(WHILE / 20)


def lock_table(store, _fleet):
    store.query(f"BEGIN; LOCK TABLE interlock.response IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep({LONG})")


def forbid_writes(store, _fleet):
    """Allow only reading transactions, as hosting services do when a disk is nearly full."""
    for setting in ("on", "off"):
        store.query(f"ALTER SYSTEM SET default_transaction_read_only = {setting}")
        store.query("SELECT pg_reload_conf()")
        time.sleep(WHILE)


def lock_file(store, _fleet):
    with closing(apsw.Connection(store.url.removeprefix("sqlite:"))) as connection:
        connection.set_busy_timeout(10_000)
        connection.execute("BEGIN IMMEDIATE")
        time.sleep(LONG)


@contextmanager
def postgres_failover(_folder):
    """The primary dies, and its synchronous replica takes over. The old primary then becomes a replica.

    Nothing can be written until that replica runs, which can take longer than a lease on a busy machine.
    """
    synchronous = "synchronous_standby_names=*"
    with postgres_server(synchronous) as first, postgres_server(synchronous, primary=first) as second:
        servers = [first, second]

        def fail_over(_fleet):
            primary, standby = servers
            primary.kill()
            standby.promote()
            primary.replicate(standby)
            servers.reverse()
            time.sleep(WHILE)

        hosts = f"127.0.0.1:{first.port},127.0.0.1:{second.port}"
        yield Scene(f"postgresql://interlock@{hosts}/postgres", fail_over, ENDS_WITH_FAILURES)


@contextmanager
def small_disk(folder):
    """Mount a disk of 64 MiB on a folder, in a mount namespace that ends with the context.

    Yield the prefix of commands that run in the namespace, and the path of the folder from outside.
    """
    mount = f"mount -t tmpfs -o size=64m tmpfs {folder} && echo mounted && exec sleep infinity"
    users = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    with subprocess.Popen(
        ["/usr/bin/env", "unshare", *users, "--mount", "sh", "-c", mount], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as holder:
        try:
            line = holder.stdout.readline()
            if line != b"mounted\n":
                pytest.skip(f"a small disk cannot be mounted here: {line.decode().strip()}")
            entered = (("--user", "--preserve-credentials") if users else ()) + ("--mount",)
            yield ("nsenter", f"--target={holder.pid}", *entered, "--"), Path(f"/proc/{holder.pid}/root{folder}")
        finally:
            holder.kill()


def fill_disk(path, _fleet):
    ballast = path / "ballast"
    with ballast.open("wb", buffering=0) as file:
        while shutil.disk_usage(path).free:
            with suppress(OSError):
                file.write(bytes(2**16))
    time.sleep(WHILE)
    ballast.unlink()


@contextmanager
def postgres_disk_full(folder):
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk for a server")
    Path(folder).chmod(0o755)
    with small_disk(folder) as (prefix, path), postgres_server(prefix=prefix) as server:
        shutil.chown(path, "postgres", "postgres")
        server.query(f"CREATE TABLESPACE small LOCATION '{folder}'")
        server.query("ALTER ROLE interlock SET default_tablespace = small")
        yield Scene(server.url, partial(fill_disk, path))


@contextmanager
def sqlite_disk_full(folder):
    with small_disk(folder) as (prefix, path):
        yield Scene(f"sqlite:{folder}/store.db", partial(fill_disk, path), prefix=prefix)


@contextmanager
def sqlite_read_only(folder):
    """Writes fail even through open files, as after an error of the disk."""
    store = Path(folder, "store.db")

    def flag(sign):
        files = [path for path in (store, Path(f"{store}-wal")) if path.exists()]
        return subprocess.run(["chattr", f"{sign}i", *files], check=False, capture_output=True, text=True)  # noqa: S607 - likewise

    def forbid(_fleet):
        assert flag("+").returncode == 0
        time.sleep(WHILE)
        assert flag("-").returncode == 0

    store.touch()
    attempt = flag("+")
    if attempt.returncode:
        pytest.skip(f"a file cannot be made immutable here: {attempt.stderr.strip()}")
    flag("-")
    try:
        yield Scene(f"sqlite:{store}", forbid)
    finally:
        flag("-")


@contextmanager
def faked_clock(folder):
    """Yield the environment of processes with a faked clock, and a strike that sets the clock forward, back, and right again."""
    libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    if not libraries:
        pytest.skip("there is no libfaketime (Debian's package of that name contains it)")
    clock = Path(folder, "clock")
    clock.write_text("+0\n")

    def jump(_fleet):
        for offset in (HOUR, -HOUR, 0):
            new = clock.with_suffix(".new")
            new.write_text(f"{offset:+}\n")
            shutil.move(new, clock)  # atomically, so that no process reads half of it
            time.sleep(WHILE)

    preload = {"LD_PRELOAD": str(libraries[0]), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_CACHE_DURATION": "1"}
    yield {**preload, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}, jump


def process_clocks(kind):
    """Return the fault that the clock of all server processes jumps."""

    @contextmanager
    def scene(folder):
        with faked_clock(folder) as (environment, jump), KINDS[kind](folder) as store:
            yield Scene(store.url, jump, environment=environment)

    return scene


def store_clock(kind):
    """Return the fault that the clock of the store jumps, so that all leases end, and any process may end the responses."""

    @contextmanager
    def scene(folder):
        Path(folder).chmod(0o755)  # for the user of Postgres
        with faked_clock(folder) as (environment, jump), KINDS[kind](folder, environment=environment) as store:
            yield Scene(store.url, jump, ENDS_WITH_FAILURES)

    return scene


FAULTS = {
    ("postgres", "a process is killed"): fault("postgres", kill_process, ENDS_WITH_FAILURES),
    ("postgres", "the store is killed"): fault("postgres", kill_store),
    ("postgres", "the store is stopped"): fault("postgres", stop_store),
    ("postgres", "its connections are closed"): fault("postgres", close_connections),
    ("postgres", "a table is locked"): fault("postgres", lock_table),
    ("postgres", "transactions only read"): fault("postgres", forbid_writes),
    ("postgres", "the disk is full"): postgres_disk_full,
    ("postgres", "a replica takes over"): postgres_failover,
    ("postgres", "the clock jumps"): process_clocks("postgres"),
    ("postgres", "the clock of Postgres jumps"): store_clock("postgres"),
    ("sqlite", "a process is killed"): fault("sqlite", kill_process, ENDS_WITH_FAILURES),
    ("sqlite", "the disk is full"): sqlite_disk_full,
    ("sqlite", "the file is read-only"): sqlite_read_only,
    ("sqlite", "the file is locked"): fault("sqlite", lock_file),
    ("sqlite", "the clock jumps"): process_clocks("sqlite"),
}
"""The faults of the table in docs/evidence/performance/stores.md."""


@contextmanager
def scene_of(store, name):
    """Prepare a store and a fault, or skip the test if this machine cannot."""
    with tempfile.TemporaryDirectory(prefix="interlock-store-") as folder, FAULTS[store, name](folder) as scene:
        try:
            open_store(scene.url)
        except StoreUnusable as error:
            pytest.skip(str(error))
        yield scene


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
def test_all_readers_receive_the_same_legal_end_after_any_fault(store, fault, processes) -> None:
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


# Many requests at once.


FOREGROUND, CREATED, STREAMED = (400, 120, 200) if ALL else (40, 12, 10)
SERVERS = 4 if ALL else 2


@pytest.fixture(scope="module", params=KINDS)
def urls(request):
    """The URLs of servers with one store of a kind."""
    kind = request.param
    with tempfile.TemporaryDirectory(prefix="interlock-store-") as folder, KINDS[kind](folder) as store:
        count = SERVERS if kind in SHARED else 1
        if ALL:
            with fleet_of(count, random.Random(1), store=store.url) as fleet:  # noqa: S311 - repeats its choices
                yield [server.url for server in fleet.servers]
        else:
            with ExitStack() as servers:
                apps = [build(Settings(), EmbeddedEngine(), store=open_store(store.url)) for _ in range(count)]
                yield [f"{servers.enter_context(ServerThread(app))}/v1" for app in apps]


def test_every_response_of_many_requests_at_once_is_stored(urls) -> None:
    answers = asyncio.run(ask_at_once(urls, FOREGROUND))
    assert [created.body.get("status") for created, _ in answers] == ["completed"] * FOREGROUND
    assert [fetched.body for _, fetched in answers] == [created.body for created, _ in answers]


def test_many_background_responses_can_be_created_at_once(urls) -> None:
    answers = asyncio.run(create_at_once(urls, CREATED))
    assert [answer.status for answer in answers] == [200] * CREATED


def test_all_readers_of_many_streams_receive_the_same_events_to_a_legal_end(urls) -> None:
    streams = asyncio.run(stream_at_once(urls, STREAMED))
    for readers, fetched in streams:
        first, *others = [reader.frames for reader in readers]
        assert others == [first] * len(others)
        assert judge(first).findings == {}
        assert fetched.body["status"] == "completed"
        assert readers[0].body["response"] == fetched.body
