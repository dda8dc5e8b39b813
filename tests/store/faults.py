"""What may befall several processes and the store that they share: each fault comes, and goes again, while they are at work."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw
import pytest
import redis
from attrs import field, frozen
from store.kinds import redis_server

from interlock.serving.store import StoreUnusable
from interlock.serving.store.opening import open_store
from interlock.serving.store.redis_client import TIMEOUT

WHILE = 2.0
"""Seconds for which a fault lasts: long for a client, and short for a lease."""

LONG = TIMEOUT + 2.0
"""Seconds for one that is to be longer than what is waited for: an answer of Redis, and a lock of SQLite."""

HOUR = 3600

ANSWERED = frozenset({"completed", "cancelled"})
LOST = ANSWERED | {"failed"}


@frozen
class Scene:
    """A store, and a fault.

    Args:
        url: The store.
        strike: Has the fault come, and go again; it is given the fleet.
        ends: How responses may end: nobody fails where nobody is lost.
        prefix: What the commands of the servers begin with.
        environment: What their environment has beside ours.
    """

    url: str
    strike: Callable
    ends: frozenset = ANSWERED
    prefix: tuple = ()
    environment: dict = field(factory=dict)


def kill_one(fleet):
    """Kill a process, which is started again."""
    victim = fleet.chance.choice(fleet.servers)
    victim.kill()
    victim.start()


@contextmanager
def sqlite_process_killed(folder):
    yield Scene(f"sqlite:{folder}/store.db", kill_one, LOST)


@contextmanager
def sqlite_disk_full(folder):
    """A small disk of its own, which only the servers see as one: nothing else is in its way, and it goes with them."""
    mount = f"mount -t tmpfs -o size=64m tmpfs {folder} && echo mounted && exec sleep infinity"
    users = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    with subprocess.Popen(  # noqa: S603 - commands of the system
        ["/usr/bin/env", "unshare", *users, "--mount", "sh", "-c", mount], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as holder:
        try:
            line = holder.stdout.readline()
            if line != b"mounted\n":
                pytest.skip(f"a disk to be filled cannot be mounted here: {line.decode().strip()}")
            ballast = Path(f"/proc/{holder.pid}/root{folder}/ballast")

            def fill(_fleet):
                with ballast.open("wb", buffering=0) as file:
                    while shutil.disk_usage(ballast.parent).free:
                        with suppress(OSError):
                            file.write(bytes(2**16))
                time.sleep(WHILE)
                ballast.unlink()

            entered = (("--user", "--preserve-credentials") if users else ()) + ("--mount",)
            prefix = ("nsenter", f"--target={holder.pid}", *entered, "--")
            yield Scene(f"sqlite:{folder}/store.db", fill, prefix=prefix)
        finally:
            holder.kill()


@contextmanager
def sqlite_read_only(folder):
    """A file system that takes nothing more, not even through files that are open: what an error of the disk makes of it."""
    store = Path(folder, "store.db")

    def flag(sign):
        files = [path for path in (store, Path(f"{store}-wal")) if path.exists()]
        return subprocess.run(["chattr", f"{sign}i", *files], check=False, capture_output=True, text=True)  # noqa: S603, S607 - likewise

    def forbid(_fleet):
        assert flag("+").returncode == 0
        time.sleep(WHILE)
        assert flag("-").returncode == 0

    store.touch()
    tried = flag("+")
    if tried.returncode:
        pytest.skip(f"a file cannot be made immutable here: {tried.stderr.strip()}")
    flag("-")
    try:
        yield Scene(f"sqlite:{store}", forbid)
    finally:
        flag("-")


@contextmanager
def sqlite_locked(folder):
    """A program that keeps the file locked for longer than anybody waits for it."""
    path = f"{folder}/store.db"

    def lock(_fleet):
        with closing(apsw.Connection(path)) as connection:
            connection.set_busy_timeout(10_000)
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(LONG)

    yield Scene(f"sqlite:{path}", lock)


@contextmanager
def sqlite_clock_jumps(folder):
    with faked_clock(folder) as (environment, jump):
        yield Scene(f"sqlite:{folder}/store.db", jump, environment=environment)


@contextmanager
def redis_process_killed(_folder):
    with redis_server() as redis:
        yield Scene(redis.url, kill_one, LOST)


@contextmanager
def redis_killed(_folder):
    with redis_server() as redis:

        def kill(_fleet):
            redis.kill()
            time.sleep(WHILE)
            redis.start()

        yield Scene(redis.url, kill)


@contextmanager
def redis_stopped(_folder):
    """A Redis that does not answer, and then does all that it was asked meanwhile."""
    with redis_server() as redis:

        def stop(_fleet):
            redis.process.send_signal(signal.SIGSTOP)
            time.sleep(LONG)
            redis.process.send_signal(signal.SIGCONT)

        yield Scene(redis.url, stop)


@contextmanager
def redis_connections_closed(_folder):
    """A Redis that closes all connections again and again, as a proxy in front of it may."""
    with redis_server() as server, closing(redis.Redis.from_url(server.url)) as client:

        def close(_fleet):
            for _ in range(20):
                client.client_kill_filter(skipme=True)
                time.sleep(WHILE / 20)

        yield Scene(server.url, close)


@contextmanager
def redis_clock_of_processes_jumps(folder):
    with faked_clock(folder) as (environment, jump), redis_server() as redis:
        yield Scene(redis.url, jump, environment=environment)


@contextmanager
def redis_clock_of_redis_jumps(folder):
    """By its clock all leases are over at once: whoever looks first ends the response."""
    with faked_clock(folder) as (environment, jump), redis_server(environment) as redis:
        yield Scene(redis.url, jump, LOST)


FAULTS = {
    ("sqlite", "a process is killed"): sqlite_process_killed,
    ("sqlite", "the disk is full"): sqlite_disk_full,
    ("sqlite", "the file is read-only"): sqlite_read_only,
    ("sqlite", "the file is locked"): sqlite_locked,
    ("sqlite", "the clock jumps"): sqlite_clock_jumps,
    ("redis", "a process is killed"): redis_process_killed,
    ("redis", "the store is killed"): redis_killed,
    ("redis", "the store is stopped"): redis_stopped,
    ("redis", "its connections are closed"): redis_connections_closed,
    ("redis", "the clock jumps"): redis_clock_of_processes_jumps,
    ("redis", "the clock of Redis jumps"): redis_clock_of_redis_jumps,
}
"""The faults of the table in docs/performance/stores.md."""


@contextmanager
def scene_of(store, fault):
    """Make the store and the fault ready, or skip where that cannot be done."""
    with tempfile.TemporaryDirectory(prefix="interlock-store-") as folder, FAULTS[store, fault](folder) as scene:
        try:
            open_store(scene.url)
        except StoreUnusable as unfit:
            pytest.skip(str(unfit))
        yield scene


@contextmanager
def faked_clock(folder):
    """Give the environment of a process whose time of day can be set, and what lets it jump by an hour, forth and back."""
    libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    if not libraries:
        pytest.skip("there is no libfaketime (Debian's package of that name brings it)")
    clock = Path(folder, "clock")
    clock.write_text("+0\n")

    def jump(_fleet):
        for offset in (HOUR, -HOUR, 0):
            new = clock.with_suffix(".new")
            new.write_text(f"{offset:+}\n")
            shutil.move(new, clock)  # which is never seen half written
            time.sleep(WHILE)

    # The C library comes second, so that its allocator is the one of Redis too: another one asks for the time before it is there.
    preload = {"LD_PRELOAD": f"{libraries[0]}:libc.so.6", "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_CACHE_DURATION": "1"}
    yield {**preload, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}, jump
