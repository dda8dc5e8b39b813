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
from store.kinds import postgres_server, redis_server

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
def postgres_process_killed(_folder):
    with postgres_server() as server:
        yield Scene(server.url, kill_one, LOST)


@contextmanager
def postgres_killed(_folder):
    with postgres_server() as server:

        def kill(_fleet):
            server.kill()
            time.sleep(WHILE)
            server.start()

        yield Scene(server.url, kill)


@contextmanager
def postgres_stopped(_folder):
    """A server that does not answer, and then does what it was asked."""
    with postgres_server() as server:

        def stop(_fleet):
            server.signal(signal.SIGSTOP)
            time.sleep(LONG)
            server.signal(signal.SIGCONT)

        yield Scene(server.url, stop)


@contextmanager
def postgres_connections_closed(_folder):
    with postgres_server() as server:

        def close(_fleet):
            for _ in range(20):
                server.disconnect_all()
                time.sleep(WHILE / 20)

        yield Scene(server.url, close)


@contextmanager
def postgres_locked(_folder):
    """A program that keeps a table locked for longer than anybody waits for it."""
    with postgres_server() as server:

        def lock(_fleet):
            server.query(f"BEGIN; LOCK TABLE interlock.response IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep({LONG})")

        yield Scene(server.url, lock)


@contextmanager
def postgres_read_only(_folder):
    """Transactions that may only read, as services make them when a disk is nearly full."""
    with postgres_server() as server:

        def forbid(_fleet):
            for setting in ("on", "off"):
                server.query(f"ALTER SYSTEM SET default_transaction_read_only = {setting}")
                server.query("SELECT pg_reload_conf()")
                time.sleep(WHILE)

        yield Scene(server.url, forbid)


@contextmanager
def postgres_disk_full(folder):
    """Tables on a small disk of their own, which only the server sees as one."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a server a disk of its own")
    Path(folder).chmod(0o755)
    with small_disk(folder, "64m") as (prefix, path), postgres_server(prefix=prefix) as server:
        shutil.chown(path, "postgres", "postgres")
        server.query(f"CREATE TABLESPACE small LOCATION '{folder}'")
        server.query("ALTER ROLE interlock SET default_tablespace = small")

        yield Scene(server.url, lambda _fleet: fill_disk(path))


@contextmanager
def postgres_failover(_folder):
    """A primary that dies, and a replica that takes over with everything that was acknowledged; then it gets a replica too.

    Nothing can be written until that is there, on a busy machine for longer than a lease.
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
        yield Scene(f"postgresql://interlock@{hosts}/postgres", fail_over, LOST)


@contextmanager
def postgres_clock_of_processes_jumps(folder):
    with faked_clock(folder) as (environment, jump), postgres_server() as server:
        yield Scene(server.url, jump, environment=environment)


@contextmanager
def postgres_clock_of_postgres_jumps(folder):
    """By its clock all leases are over at once: whoever looks first ends the response."""
    Path(folder).chmod(0o755)
    with faked_clock(folder) as (environment, jump), postgres_server(environment=environment) as server:
        yield Scene(server.url, jump, LOST)


@contextmanager
def sqlite_process_killed(folder):
    yield Scene(f"sqlite:{folder}/store.db", kill_one, LOST)


@contextmanager
def small_disk(folder, size):
    """Mount a disk on a folder, for commands that begin with the prefix: nothing else is in its way, and it goes with them.

    Yield the prefix, and the path by which the folder is seen from here.
    """
    mount = f"mount -t tmpfs -o size={size} tmpfs {folder} && echo mounted && exec sleep infinity"
    users = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    with subprocess.Popen(  # noqa: S603 - commands of the system
        ["/usr/bin/env", "unshare", *users, "--mount", "sh", "-c", mount], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as holder:
        try:
            line = holder.stdout.readline()
            if line != b"mounted\n":
                pytest.skip(f"a disk to be filled cannot be mounted here: {line.decode().strip()}")
            entered = (("--user", "--preserve-credentials") if users else ()) + ("--mount",)
            yield ("nsenter", f"--target={holder.pid}", *entered, "--"), Path(f"/proc/{holder.pid}/root{folder}")
        finally:
            holder.kill()


def fill_disk(path):
    """Leave no room on a disk for a while."""
    ballast = path / "ballast"
    with ballast.open("wb", buffering=0) as file:
        while shutil.disk_usage(path).free:
            with suppress(OSError):
                file.write(bytes(2**16))
    time.sleep(WHILE)
    ballast.unlink()


@contextmanager
def sqlite_disk_full(folder):
    with small_disk(folder, "64m") as (prefix, path):
        yield Scene(f"sqlite:{folder}/store.db", lambda _fleet: fill_disk(path), prefix=prefix)


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
    ("postgres", "a process is killed"): postgres_process_killed,
    ("postgres", "the store is killed"): postgres_killed,
    ("postgres", "the store is stopped"): postgres_stopped,
    ("postgres", "its connections are closed"): postgres_connections_closed,
    ("postgres", "a table is locked"): postgres_locked,
    ("postgres", "transactions only read"): postgres_read_only,
    ("postgres", "the disk is full"): postgres_disk_full,
    ("postgres", "a replica takes over"): postgres_failover,
    ("postgres", "the clock jumps"): postgres_clock_of_processes_jumps,
    ("postgres", "the clock of Postgres jumps"): postgres_clock_of_postgres_jumps,
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
