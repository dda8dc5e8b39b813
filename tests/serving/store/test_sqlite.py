"""The store in SQLite shares a file between processes, keeps acknowledged writes, and recovers when the file does."""

import asyncio
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest
from live.stores import message, stored

from interlock.serving.store import sqlite
from interlock.serving.store.rows import VERSION
from interlock.serving.store.sqlite import SqliteStore
from interlock.serving.store.values import StoreDown, StoreUnusable, WrongStore


def run(*scenarios):
    """Run scenarios one after another, each with a store that is closed at its end."""

    async def main():
        results = []
        for store, scenario in scenarios:
            try:
                results.append(await scenario(store))
            finally:
                await store.close()
        return results

    return asyncio.run(main())


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


def test_a_release_of_sqlite_that_can_lose_commits_is_refused(monkeypatch, path) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(StoreUnusable, match=r"^SQLite 3\.51\.2 can lose commits of processes that share a file; 3\.51\.3"):
        SqliteStore(path)
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.3")
    assert SqliteStore(path).path == path


def test_the_size_of_a_long_conversation_grows_linearly(path) -> None:
    def turns(count):
        items = [message(number, f"{number} " * 100) for number in range(2 * count)]
        return [stored(turn, *items[: 2 * turn + 1], output=items[2 * turn + 1 : 2 * turn + 2]) for turn in range(count)]

    async def size_after(store, count):
        for turn in turns(count):
            await store.put("", turn)
        last = await store.get("", f"resp_{count - 1}")
        return (await store.info()).items, len(last.conversation), (await store.info()).size

    (short,) = run((SqliteStore(f"{path}.short"), lambda store: size_after(store, 50)))
    (long,) = run((SqliteStore(f"{path}.long"), lambda store: size_after(store, 200)))
    run((SqliteStore(f"{path}.short"), lambda store: store.sweep()), (SqliteStore(f"{path}.long"), lambda store: store.sweep()))
    sizes = [Path(f"{path}.{name}").stat().st_size for name in ("short", "long")]
    assert (short[:2], long[:2]) == ((100, 100), (400, 400))
    assert sizes[1] < 5 * sizes[0]


def test_no_file_contains_deleted_content(path) -> None:
    async def scenario(store):
        lease = await store.enqueue("", stored(1, message(1, "a secret question")), "a")
        await store.finish(
            lease, 0, [b"a secret event"], stored(1, message(1, "a secret question"), output=[message(2, "a secret")])
        )
        before = b"".join(file.read_bytes() for file in Path(path).parent.iterdir())
        await store.delete("", "resp_1")
        await store.sweep()
        return b"a secret" in before

    assert run((SqliteStore(path), scenario)) == [True]
    assert [file.name for file in Path(path).parent.iterdir() if b"a secret" in file.read_bytes()] == []


def test_a_sweep_returns_free_pages_in_slices_and_lets_others_write_in_between(monkeypatch, path) -> None:
    monkeypatch.setattr(sqlite, "VACUUMED", 10, raising=False)
    pages = []

    async def scenario(store):
        await store.put("", stored(1, message(1, os.urandom(150_000).hex())))
        await store.delete("", "resp_1")
        other = apsw.Connection(path)
        other.execute("CREATE TABLE other (step)")

        def pause(_seconds):
            pages.append(next(other.execute("PRAGMA freelist_count"))[0])
            other.execute("INSERT INTO other VALUES (1)")

        free = next(other.execute("PRAGMA freelist_count"))[0]
        with monkeypatch.context() as patch:
            patch.setattr(sqlite.time, "sleep", pause)
            await store.sweep()
        steps = next(other.execute("SELECT count(*) FROM other"))[0]
        other.close()
        return free, steps

    [(free, steps)] = run((SqliteStore(path), scenario))
    assert free > 30
    assert pages == [max(free - 10 * step, 0) for step in range(1, steps + 1)]
    assert pages[-1] == 0


def test_acknowledged_writes_of_two_processes_survive_when_one_is_killed(path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("writer.py")), path]
    writers = [subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in ("a", "b")]
    acknowledged = []
    try:
        first, second = (writer.stdout for writer in writers)
        acknowledged += [first.readline() for _ in range(20)]
        writers[0].kill()
        acknowledged += first.readlines()
        acknowledged += [second.readline() for _ in range(20)]
    finally:
        for writer in writers:
            writer.kill()
            acknowledged += writer.stdout.readlines()
            writer.wait()
            writer.stdout.close()

    async def scenario(store):
        names = [line.strip() for line in acknowledged if line.endswith("\n")]
        logs = [await store.read("", name, 0, 10) for name in names]
        return len(names) >= 40, {(log.frames, log.state) for log in logs}

    assert run((SqliteStore(path), scenario)) == [(True, {((b"one", b"two", b"three"), "ended")})]


def test_a_change_by_another_process_wakes_a_subscriber_of_a_busy_store(monkeypatch, path) -> None:
    monkeypatch.setattr(sqlite, "POLL", 0.3)  # longer than the writer is ever idle

    async def scenario(store):
        other = SqliteStore(path)
        await store.put("", stored(1))
        with store.subscribe("", "resp_1") as watch:
            await asyncio.wait_for(watch.wait(60), 30)
            await other.put("", stored(1, message(1)))
            change = asyncio.create_task(watch.wait(60))
            async with asyncio.timeout(10):
                while not change.done():
                    await store.put("", stored(2))
        await other.close()

    run((SqliteStore(path), scenario))


def test_a_change_by_another_process_while_the_connection_is_lost_wakes_a_subscriber(path) -> None:
    async def scenario(store):
        other = SqliteStore(path)
        lease = await store.enqueue("", stored(1), "a")
        with store.subscribe("", "resp_1") as watch:
            await asyncio.wait_for(watch.wait(60), 30)
            await store.close()
            await other.append(lease, 0, [b"one"])
            await watch.wait(0)
            await store.put("", stored(2))  # opens the connection
            await asyncio.wait_for(watch.wait(60), 30)
        await other.close()

    run((SqliteStore(path), scenario))


def test_a_locked_file_is_down_until_it_is_unlocked(path) -> None:
    async def scenario(store):
        await store.put("", stored(1))
        other = apsw.Connection(path)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreDown, match="is locked by another process"):
            await store.put("", stored(2))
        present = await store.get("", "resp_1") is not None  # reading still works
        other.execute("ROLLBACK")
        other.close()
        await store.put("", stored(3))
        return present, [await store.get("", f"resp_{number}") is not None for number in (2, 3)]

    assert run((SqliteStore(path, busy=0.01), scenario)) == [(True, [False, True])]


def test_a_full_disk_refuses_a_response_until_there_is_room(path) -> None:
    async def scenario(store):
        await store.put("", stored(1, message(1, "x" * 100_000)))
        with pytest.raises(StoreDown, match="cannot grow: the disk is full, or the file is as large as max_bytes=250000 allows"):
            await store.put("", stored(2, message(2, "y" * 100_000)))
        present = [await store.get("", f"resp_{number}") is not None for number in (1, 2)]
        await store.delete("", "resp_1")
        await store.put("", stored(3, message(3, "z" * 100_000)))
        return present, await store.get("", "resp_3") is not None

    assert run((SqliteStore(path, max_bytes=250_000), scenario)) == [([True, False], True)]


def test_a_disk_without_room_for_the_index_of_the_log_is_full(path) -> None:
    failure = SqliteStore(path).failure(apsw.exception_for(apsw.SQLITE_IOERR_SHMSIZE))
    assert str(failure.error) == f"{path} cannot grow: the disk is full."
    failure = SqliteStore(path).failure(apsw.exception_for(apsw.SQLITE_IOERR_READ))
    assert str(failure.error).startswith(f"{path} cannot be used: ")


def test_a_sweep_needs_little_room_for_its_log(monkeypatch, path) -> None:
    sizes = []

    async def free_space():
        sizes.append(Path(f"{path}-wal").stat().st_size)

    async def scenario(store):
        for number in range(80):
            await store.put("", stored(number, message(number, os.urandom(50_000).hex())))
        await store.close()  # removes the log of these writes
        monkeypatch.setattr(store, "_free_space", free_space)
        return (await store.sweep()).expired

    assert run((SqliteStore(path, ttl=0.0), scenario)) == [80]
    assert 0 < sizes[0] < 6 * 2**20  # 4 MiB, after which SQLite begins again, and ten responses


def test_a_size_limit_below_one_page_is_enforced(path) -> None:
    with pytest.raises(StoreDown, match="cannot grow"):
        run((SqliteStore(path, max_bytes=1), lambda store: store.put("", stored(1))))


def test_an_oversized_value_fails_only_its_own_write(path) -> None:
    class LimitedStore(SqliteStore):
        def connect(self):
            connection = super().connect()
            connection._connection.limit(apsw.SQLITE_LIMIT_LENGTH, 10_000)
            return connection

    store = LimitedStore(path)

    async def scenario():
        results = await asyncio.gather(
            store.put("", stored(1, message(1, "x" * 20_000))), store.put("", stored(2)), return_exceptions=True
        )
        present = await store.get("", "resp_2") is not None
        await store.close()
        return type(results[0]), present

    assert asyncio.run(scenario()) == (apsw.TooBigError, True)


def test_a_damaged_file_is_down_and_a_missing_one_is_created_again(path) -> None:
    async def scenario(store):
        await store.put("", stored(1))
        await store.close()
        Path(path).rename(f"{path}.old")
        Path(path).write_bytes(b"no database at all " * 1000)
        with pytest.raises(StoreDown, match="is damaged, or is no SQLite database"):
            await store.put("", stored(2))
        with pytest.raises(StoreDown, match="is damaged, or is no SQLite database"):
            await store.info()
        for file in Path(path).parent.glob("store.db*"):
            if not file.name.endswith(".old"):
                file.unlink()
        await store.put("", stored(3))
        return [await store.get("", f"resp_{number}") is not None for number in (1, 3)]

    assert run((SqliteStore(path), scenario)) == [[False, True]]


async def present(store, *numbers):
    return [await store.get("", f"resp_{number}") is not None for number in numbers]


def test_a_write_waits_while_another_process_creates_the_file(path) -> None:
    async def scenario(store):
        creating = apsw.Connection(path)
        creating.execute("VACUUM; BEGIN IMMEDIATE")
        put = asyncio.create_task(store.put("", stored(1)))
        await asyncio.wait([put], timeout=0.1)
        creating.execute("COMMIT")
        await put
        return await store.get("", "resp_1") == stored(1)

    assert run((SqliteStore(path, busy=60), scenario)) == [True]


def test_a_new_file_that_another_process_locks_for_too_long_is_down(path) -> None:
    async def scenario(store):
        creating = apsw.Connection(path)
        creating.execute("VACUUM; BEGIN IMMEDIATE")
        with pytest.raises(StoreDown, match="is locked by another process"):
            await store.put("", stored(1))

    run((SqliteStore(path, busy=0.01), scenario))


def test_a_connection_to_a_file_that_was_replaced_leaves_the_new_log_alone(path) -> None:
    async def scenario(store):
        await store.put("", stored(1))
        await present(store, 1)
        for file in Path(path).parent.glob("store.db*"):
            file.unlink()
        found = [await present(store, 1)]
        log = Path(f"{path}-wal").stat()
        await store.put("", stored(2))
        found += [await present(store, 1, 2)]
        return found, Path(f"{path}-wal").stat().st_ino == log.st_ino

    assert run((SqliteStore(path), scenario)) == [([[False], [False, True]], True)]


def test_a_file_that_was_deleted_or_replaced_is_logged_once(path, caplog) -> None:
    async def scenario(store):
        await store.put("", stored(1))
        await present(store, 1)
        for file in Path(path).parent.glob("store.db*"):
            file.rename(f"{file}.old")
        found = [await present(store, 1)]
        await store.put("", stored(2))
        await store.info()
        found.append([record.getMessage() for record in caplog.records])
        for file in Path(path).parent.glob("store.db*.old"):
            file.rename(str(file).removesuffix(".old"))
        return *found, await present(store, 1, 2), len(caplog.records)

    said = [f"the file {path} was deleted or replaced, and with it what it stored"]
    assert run((SqliteStore(path), scenario)) == [([False], said, [True, False], 2)]


def test_a_missing_folder_is_down_until_it_exists(tmp_path) -> None:
    async def scenario(store):
        with pytest.raises(
            StoreDown, match=r"later/store.db cannot be opened: its folder is missing, or belongs to another user \(.*"
        ):
            await store.put("", stored(1))
        with pytest.raises(StoreDown, match="unable to open database file"):
            await store.info()
        (tmp_path / "later").mkdir()
        await store.put("", stored(1))
        return await store.get("", "resp_1") == stored(1)

    assert run((SqliteStore(str(tmp_path / "later" / "store.db")), scenario)) == [True]


@contextmanager
def unprivileged():
    """Run as a user other than root, so that permissions are checked."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_read_only_file_is_down_for_writers_until_it_is_writable() -> None:
    async def scenario(store):
        await store.put("", stored(1))
        await store.close()
        Path(store.path).chmod(0o444)
        Path(store.path).parent.chmod(0o555)
        with pytest.raises(WrongStore, match=r"is read-only|unable to open"):
            await store.put("", stored(2))
        await store.close()
        with pytest.raises(WrongStore, match=r"is read-only|unable to open"):
            await store.get("", "resp_1")
        Path(store.path).parent.chmod(0o755)
        Path(store.path).chmod(0o644)
        await store.put("", stored(3))
        return [await store.get("", f"resp_{number}") is not None for number in (1, 2, 3)]

    with unprivileged(), tempfile.TemporaryDirectory(dir="/tmp") as folder:
        assert run((SqliteStore(str(Path(folder, "store.db"))), scenario)) == [[True, False, True]]


def test_a_file_of_another_program_or_of_a_newer_release_is_refused(path, tmp_path) -> None:
    other = apsw.Connection(str(tmp_path / "other.db"))
    other.execute("CREATE TABLE letters (body TEXT)")
    other.close()

    async def put(store):
        with pytest.raises(StoreDown) as refused:
            await store.put("", stored(1))
        return str(refused.value)

    (error,) = run((SqliteStore(str(tmp_path / "other.db")), put))
    assert error == f"{tmp_path / 'other.db'} is a database of another program."
    run((SqliteStore(path), lambda store: store.put("", stored(1))))
    newer = apsw.Connection(path)
    newer.execute("UPDATE layout SET version = version + 1")
    newer.close()
    (error,) = run((SqliteStore(path), put))
    assert error == f"The store has layout {VERSION + 1}, but this release of Interlock needs layout {VERSION}."
