"""The store in Postgres is shared by hosts, keeps acknowledged writes, and recovers when the server does."""

import asyncio
import signal
import threading
from contextlib import closing
from pathlib import Path

import pytest
from for_each import for_each
from live.stores import PostgresServer, needs_postgres, run, stored

from interlock.serving.store import open_store
from interlock.serving.store.rows import VERSION
from interlock.serving.store.values import LEASE, SequenceError, StoredConversation, StoreDown

pytestmark = needs_postgres


@pytest.fixture
def own_server():
    """A server that a test may kill."""
    with closing(PostgresServer()) as server:
        yield server


@pytest.mark.long
def test_acknowledged_writes_survive_a_killed_server_and_the_store_recovers_by_itself(own_server) -> None:
    async def scenario(store):
        lease = await store.enqueue("", stored(1), "a")
        await store.append(lease, 0, [b"one"])
        own_server.kill()
        with pytest.raises(StoreDown, match=rf"postgresql://127.0.0.1:{own_server.port}/postgres cannot be used: "):
            await store.append(lease, 1, [b"two"])
        for ask in (store.lost(1), store.info()):
            with pytest.raises(StoreDown):
                await ask
        own_server.start()
        await store.append(lease, 1, [b"two"])
        log = await store.read("", "resp_1", 0, 10)
        return log.frames, log.state

    assert run(open_store(own_server.url), scenario) == ((b"one", b"two"), "running")


def test_a_closed_connection_is_opened_again_without_an_error(postgres_server, postgres_url) -> None:
    async def scenario(store):
        lease = await store.enqueue("", stored(1), "a")
        for number in range(3):
            postgres_server.disconnect_all()
            await store.append(lease, number, [b"event"])
            postgres_server.disconnect_all()
            log = await store.read("", "resp_1", 0, 10)
        return len(log.frames)

    assert run(open_store(postgres_url), scenario) == 3


def test_a_connection_that_is_lost_during_a_commit_fails_it_and_writes_nothing_twice(
    monkeypatch, postgres_server, postgres_url
) -> None:
    from interlock.serving.store.postgres import PostgresConnection  # noqa: PLC0415 - psycopg is not on every machine

    commit = PostgresConnection.commit
    losing = []

    def lost(connection):
        commit(connection)
        if losing:
            losing.pop()
            postgres_server.disconnect_all()
            connection.execute("SELECT 1")

    monkeypatch.setattr(PostgresConnection, "commit", lost)

    async def scenario(store):
        lease = await store.enqueue("", stored(1), "a")
        losing.append(True)
        with pytest.raises(StoreDown):
            await store.append(lease, 0, [b"one"])
        with pytest.raises(SequenceError) as refused:
            await store.append(lease, 0, [b"one"])
        return refused.value.expected, (await store.read("", "resp_1", 0, 10)).frames

    assert run(open_store(postgres_url), scenario) == (1, (b"one",))


def test_a_commit_whose_reply_is_lost_wakes_its_subscribers(monkeypatch, postgres_url) -> None:
    from interlock.serving.store.postgres import PostgresConnection  # noqa: PLC0415 - psycopg is not on every machine

    commit = PostgresConnection.commit
    losing = []

    def lost(connection):
        commit(connection)
        if losing:
            losing.pop()
            connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    monkeypatch.setattr(PostgresConnection, "commit", lost)

    async def scenario(store):
        lease = await store.enqueue("", stored(1), "a")
        with store.subscribe("", "resp_1") as watch:
            await asyncio.wait_for(watch.wait(60), 30)  # the listener listens
            await asyncio.sleep(0.5)
            await watch.wait(0)
            losing.append(True)
            with pytest.raises(StoreDown):
                await store.append(lease, 0, [b"one"])
            await asyncio.sleep(0.5)  # the listener receives the notification of its own process
            await store.renew(lease)
            await asyncio.wait_for(watch.wait(60), 30)
            return (await store.read("", "resp_1", 0, 10)).frames

    assert run(open_store(postgres_url), scenario) == (b"one",)


@pytest.mark.long
def test_a_server_that_does_not_answer_is_down_and_never_receives_the_refused_writes(own_server) -> None:
    async def scenario(store):
        await store.put("", stored(0))
        patience, store.timeout = store.timeout, 0.5
        own_server.signal(signal.SIGSTOP)
        for number in (1, 2):  # the writer abandons the second before it begins
            with pytest.raises(StoreDown, match=r"/postgres does not answer\."):
                await store.put("", stored(number))
        store.timeout = patience
        own_server.signal(signal.SIGCONT)
        await store.put("", stored(3))
        return [await store.get("", f"resp_{number}") is not None for number in (2, 3)]

    assert run(open_store(own_server.url), scenario) == [False, True]


async def until_it_works(ask):
    """Call until the store is not down any more, and return the result."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await ask()
            except StoreDown:
                await asyncio.sleep(0.05)


@pytest.mark.long
def test_all_connections_move_from_a_hanging_server_to_its_replica(monkeypatch, own_server) -> None:
    from interlock.serving.store import postgres  # noqa: PLC0415 - psycopg is not on every machine

    monkeypatch.setitem(postgres.SETTINGS, "connect_timeout", "2")

    async def scenario(store):
        lease = await store.enqueue("", stored(1), "a")
        await store.read("", "resp_1", 0, 10)
        with store.subscribe("", "resp_1") as watch:
            await asyncio.wait_for(watch.wait(60), 30)
            store.timeout = 0.5
            written = own_server.query("SELECT pg_current_wal_lsn()")
            while standby.query(f"SELECT pg_last_wal_replay_lsn() >= '{written[0][0]}'") != [(True,)]:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.05)
            own_server.signal(signal.SIGSTOP)
            standby.promote()
            await until_it_works(lambda: store.append(lease, 0, [b"one"]))
            log = await until_it_works(lambda: store.read("", "resp_1", 0, 10))
            while standby.query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'interlock'") != [(3,)]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            own_server.signal(signal.SIGCONT)
        return log.frames

    with closing(PostgresServer(primary=own_server)) as standby:
        url = f"postgresql://interlock@127.0.0.1:{own_server.port},127.0.0.1:{standby.port}/postgres"
        assert run(open_store(url), scenario) == (b"one",)


def test_writes_to_a_locked_table_are_refused_together_and_later_ones_succeed(monkeypatch, postgres_url) -> None:
    import psycopg  # noqa: PLC0415 - not on every machine

    from interlock.serving.store import postgres  # noqa: PLC0415 - likewise

    monkeypatch.setattr(postgres, "LOCK_WAIT", 1.0)
    monkeypatch.setitem(postgres.OPTIONS, "lock_timeout", "1000")

    async def scenario(store):
        await store.put("", stored(0))
        with psycopg.connect(postgres_url) as holder:
            holder.execute("LOCK TABLE interlock.response")
            async with asyncio.timeout(15):  # one after another, they would wait for 40 seconds
                results = await asyncio.gather(
                    *(store.put("", stored(number)) for number in range(1, 40)), return_exceptions=True
                )
        await store.put("", stored(40))
        refusals = {str(result).partition("/postgres ")[2] for result in results}
        return refusals, [await store.get("", f"resp_{number}") is not None for number in (0, 1, 39, 40)]

    assert run(open_store(postgres_url), scenario) == ({"is locked by another process."}, [True, False, False, True])


@pytest.mark.long
def test_a_store_that_is_closed_while_the_server_hangs_can_be_used_again(own_server) -> None:
    async def scenario(store):
        await store.put("", stored(0))
        store.timeout = 0.3
        own_server.signal(signal.SIGSTOP)
        for _ in range(2):
            with pytest.raises(StoreDown, match=r"/postgres does not answer\."):
                await store.put("", stored(1))
            await store.close()
        assert writers()  # the second waits for a connection
        own_server.signal(signal.SIGCONT)
        store.timeout = 5
        await asyncio.gather(*(store.put("", stored(number)) for number in range(2, 30)))
        present = [await store.get("", f"resp_{number}") is not None for number in range(2, 30)]
        await store.close()
        for writer in writers():
            writer.join(10)
        return all(present), writers()

    def writers():
        return [thread for thread in {*threading.enumerate()} - before if thread.name.startswith("interlock: ")]

    before = {*threading.enumerate()}

    assert run(open_store(own_server.url), scenario) == (True, [])


def test_a_change_by_another_process_wakes_a_subscriber_even_after_its_connection_was_lost(postgres_server, postgres_url) -> None:
    async def scenario(store):
        other = open_store(postgres_url)
        lease = await store.enqueue("", stored(1), "a")
        with store.subscribe("", "resp_1") as watch, store.subscribe("", "resp_2") as quiet:
            await asyncio.wait_for(watch.wait(60), 30)  # for changes before the listener started
            await quiet.wait(60)
            await other.append(lease, 0, [b"one"])
            await asyncio.wait_for(watch.wait(60), 30)
            postgres_server.disconnect_all()
            await asyncio.wait_for(watch.wait(60), 30)  # for changes while the connection was lost
            await other.append(lease, 1, [b"two"])
            await asyncio.wait_for(watch.wait(60), 30)
            log = await store.read("", "resp_1", 0, 10)
        await other.close()
        return log.frames

    assert run(open_store(postgres_url), scenario) == (b"one", b"two")


def test_a_locked_row_is_down_and_other_rows_are_not(monkeypatch, postgres_url) -> None:
    import psycopg  # noqa: PLC0415 - not on every machine

    from interlock.serving.store import postgres  # noqa: PLC0415 - likewise

    monkeypatch.setitem(postgres.OPTIONS, "lock_timeout", "200ms")

    async def scenario(store):
        lease = await store.enqueue("", stored(1), "a")
        other = await store.enqueue("", stored(2), "a")
        with psycopg.connect(postgres_url) as holder:
            holder.execute("SELECT 1 FROM interlock.response WHERE id = 'resp_1' FOR UPDATE")
            results = await asyncio.gather(
                store.append(lease, 0, [b"one"]), store.append(other, 0, [b"one"]), return_exceptions=True
            )
        await store.append(lease, 0, [b"one"])
        return [str(result) for result in results]

    (locked, appended) = run(open_store(postgres_url), scenario)
    assert locked.endswith("is locked by another process.")
    assert appended == "False"


def test_many_events_cost_few_round_trips(tmp_path, postgres_url) -> None:
    async def scenario(store):
        lease = await store.enqueue("", stored(1), "a")
        trace = tmp_path / "trace"
        with trace.open("w") as file:
            messages = store._threads["writer"].connection.connection.pgconn
            messages.trace(file.fileno())
            await store.append(lease, 0, [b"event"] * 100)
            messages.untrace()
        words = trace.read_text().split()
        committed = words.index("Sync")  # psycopg sends another Flush after it if it has not received all results yet
        return words[:committed].count("Flush") + words.count("Sync"), len((await store.read("", "resp_1", 0, 200)).frames)

    round_trips, events = run(open_store(postgres_url), scenario)
    assert (round_trips, events) == (2, 100)


def test_a_connection_prepares_statements_again_after_any_failure(postgres_url) -> None:
    import psycopg  # noqa: PLC0415 - not on every machine

    from interlock.serving.store.postgres import PostgresStore  # noqa: PLC0415 - likewise

    with closing(PostgresStore(postgres_url).connect()) as connection:
        for statements in [["SELECT 1 / 0"]] * 2 + [["SELECT 2"]] * 5 + [["SELECT 1 / 0", "SELECT 2"]]:
            connection.begin(write=True)
            try:
                for statement in statements:  # psycopg prepares the last one, which the server does not reach
                    connection.execute(statement)
                connection.commit()
            except psycopg.errors.DivisionByZero:
                connection.roll_back()
        connection.begin(write=True)
        assert connection.value("SELECT 2") == 2


@pytest.mark.parametrize("table", ["response", "conversation"])
def test_a_lease_begins_when_its_row_is_locked(postgres_server, postgres_url, table) -> None:
    import psycopg  # noqa: PLC0415 - not on every machine

    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'interlock'"

    async def scenario(store):
        lease = await store.enqueue("", stored(1), "a")
        await store.create_conversation("", StoredConversation("conv_1", 0, {}))
        with psycopg.connect(postgres_url) as holder:
            holder.execute(f"SELECT 1 FROM interlock.{table} FOR UPDATE")  # noqa: S608 - a parameter
            write = store.renew(lease) if table == "response" else store.hold("", "conv_1", "resp_1")
            renewal = asyncio.create_task(write)
            while not postgres_server.query(waiting):  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.01)
            (unlocked,) = holder.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
        await renewal
        with psycopg.connect(postgres_url) as reader:
            (until,) = reader.execute(f"SELECT until FROM interlock.{table}").fetchone()  # noqa: S608 - likewise
        return until - unlocked

    assert run(open_store(postgres_url), scenario) >= LEASE


def test_a_read_only_server_is_down_for_writers_until_it_accepts_writes(postgres_server, postgres_url) -> None:
    async def scenario(store):
        await store.put("", stored(1))
        postgres_server.query("ALTER SYSTEM SET default_transaction_read_only = on")
        postgres_server.query("SELECT pg_reload_conf()")
        try:
            while True:
                try:
                    await store.put("", stored(2))
                except StoreDown as error:
                    refused = str(error)
                    break
            present = await store.get("", "resp_1") is not None
        finally:
            postgres_server.query("ALTER SYSTEM RESET default_transaction_read_only")
            postgres_server.query("SELECT pg_reload_conf()")
        for _ in range(100):
            try:
                await store.put("", stored(3))
            except StoreDown:
                await asyncio.sleep(0.05)
            else:
                break
        return refused.partition(" ")[2], present, await store.get("", "resp_3") is not None

    assert run(open_store(postgres_url), scenario) == ("cannot be written: it is read-only.", True, True)


@pytest.mark.long
def test_a_standby_among_several_hosts_is_not_used(own_server) -> None:
    async def scenario(store):
        lease = await store.enqueue("", stored(1), "a")
        await store.append(lease, 0, [b"one"])
        return (await store.read("", "resp_1", 0, 10)).frames, (await store.info()).responses

    with closing(PostgresServer(primary=own_server)) as standby:
        standby.query("SELECT pg_wal_replay_pause()")
        url = f"postgresql://interlock@127.0.0.1:{standby.port},127.0.0.1:{own_server.port}/postgres"
        assert run(open_store(url), scenario) == ((b"one",), {"running": 1})


def test_text_with_null_characters_is_stored(postgres_url) -> None:
    strange = {"id": "msg_\0x", "type": "message", "content": "a\0b"}

    async def scenario(store):
        await store.put("ten\0ant", stored("\0", strange))
        lease = await store.enqueue("ten\0ant", stored("\0_2", strange), "a")
        await store.finish(lease, 0, [b"one"], stored("\0_2", strange))
        return (
            await store.get("ten\0ant", "resp_\0") == stored("\0", strange),
            dict(await store.find("ten\0ant", ["msg_\0x"])) == {"msg_\0x": strange},
        )

    assert run(open_store(postgres_url), scenario) == (True, True)


def test_a_value_that_a_column_cannot_hold_fails_only_its_own_write(postgres_url) -> None:
    import psycopg  # noqa: PLC0415 - not on every machine

    async def scenario(store):
        results = await asyncio.gather(
            store.create_conversation("", StoredConversation("conv_1", 2**80, {})),
            store.put("", stored(1)),
            return_exceptions=True,
        )
        return isinstance(results[0], psycopg.DataError), await store.get("", "resp_1") == stored(1)

    assert run(open_store(postgres_url), scenario) == (True, True)


@for_each(
    ("state", "is_down", "lost", "passing"),
    [
        (None, True, True, False),  # psycopg has lost the connection
        ("08006", True, True, False),  # connection failure
        ("0A000", True, True, False),  # a cached plan after another process has changed the layout
        ("21000", False, False, False),  # cardinality violation
        ("22001", False, False, False),  # string data right truncation
        ("22P05", False, False, False),  # untranslatable character
        ("23502", False, False, True),  # not null violation
        ("23505", False, False, True),  # unique violation, which concurrent transactions cause too
        ("25006", True, True, False),  # read-only transaction
        ("25P03", True, True, False),  # idle in transaction session timeout
        ("26000", True, True, False),  # invalid SQL statement name
        ("28P01", True, True, False),  # invalid password
        ("38000", False, False, False),  # external routine exception
        ("3D000", True, True, False),  # invalid catalog name
        ("3F000", True, True, False),  # invalid schema name
        ("40001", True, False, True),  # serialization failure
        ("40P01", True, False, True),  # deadlock detected
        ("42501", True, True, False),  # insufficient privilege
        ("42P01", True, True, False),  # undefined table
        ("44000", False, False, False),  # with check option violation
        ("53100", True, False, False),  # disk full
        ("53200", True, False, False),  # out of memory
        ("53300", True, False, False),  # too many connections
        ("54000", False, False, False),  # program limit exceeded, as by an entry of an index
        ("54001", False, False, False),  # statement too complex
        ("55P03", True, False, False),  # lock not available
        ("57014", True, False, False),  # query cancelled
        ("57P01", True, True, False),  # admin shutdown
        ("57P03", True, True, False),  # cannot connect now
        ("58030", True, False, False),  # IO error
        ("P0001", False, False, False),  # an exception that a trigger raises
        ("XX001", True, False, False),  # data corrupted
    ],
)
def test_each_class_of_errors_concerns_the_store_or_only_its_call(state, is_down, lost, passing) -> None:
    import psycopg  # noqa: PLC0415 - not on every machine

    store = open_store("postgresql://db/interlock")
    error = psycopg.OperationalError("Why") if state is None else psycopg.errors.lookup(state)("Why")
    failure = store.failure(error)
    if not is_down and not passing:
        assert failure is None
    else:
        assert (isinstance(failure.error, StoreDown), failure.lost, failure.passing) == (is_down, lost, passing)
        assert is_down or failure.error is error


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1 / 0",
        "SELECT '\\x00'::bytea::text::integer",
        "INSERT INTO item (tenant, id, digest, body) VALUES ('', '', NULL, '')",
        "INSERT INTO item (tenant,id,digest,body) SELECT string_agg(md5(n::text), ''), '', '', '' FROM generate_series(1,900) n",
    ],
)
def test_a_data_error_of_one_call_does_not_fail_others(postgres_url, statement) -> None:
    import psycopg  # noqa: PLC0415 - not on every machine

    async def scenario(store):
        await store.put("", stored(0))
        wrong = store._change(lambda tx: tx.connection.execute(statement))
        results = await asyncio.gather(
            store.put("", stored(1)), wrong, *(store.put("", stored(number)) for number in range(2, 9)), return_exceptions=True
        )
        present = [await store.get("", f"resp_{number}") is not None for number in range(9)]
        return [type(result) for result in results if not isinstance(result, psycopg.Error)], set(present)

    assert run(open_store(postgres_url), scenario) == ([type(None)] * 8, {True})


def test_a_user_without_the_right_to_create_schemas_can_use_one_of_its_own(postgres_server, postgres_url) -> None:
    postgres_server.query("CREATE ROLE guest LOGIN")
    guest = open_store(postgres_url.replace("interlock@", "guest@"))

    async def scenario(store):
        with pytest.raises(StoreDown, match="permission denied"):
            await store.put("", stored(1))
        postgres_server.query("CREATE SCHEMA interlock AUTHORIZATION guest")
        await store.put("", stored(1))
        return (await store.info()).responses

    try:
        assert run(guest, scenario) == {"ended": 1}
    finally:
        postgres_server.clear()
        postgres_server.query("DROP ROLE guest")


def test_a_schema_of_another_program_is_refused(postgres_server, postgres_url) -> None:
    postgres_server.query("CREATE SCHEMA interlock CREATE TABLE letters (body text)")
    store = open_store(postgres_url)
    for ask in (lambda store: store.put("", stored(1)), lambda store: store.info()):
        with pytest.raises(StoreDown, match="The schema interlock contains tables of another program"):
            run(store, ask)
    postgres_server.clear()


def test_another_layout_is_refused(postgres_server, postgres_url) -> None:
    run(open_store(postgres_url), lambda store: store.put("", stored(1)))
    postgres_server.query(f"UPDATE interlock.layout SET version = {VERSION + 1}")  # noqa: S608 - a number

    async def scenario(store):
        for ask in (store.get("", "resp_1"), store.put("", stored(2)), store.info()):
            with pytest.raises(StoreDown, match=f"layout {VERSION + 1}, but this release of Interlock needs layout {VERSION}"):
                await ask

    run(open_store(postgres_url), scenario)


def test_an_error_does_not_show_the_password(postgres_url) -> None:
    store = open_store(postgres_url.replace("interlock@", "interlock:secret@").replace("/postgres", "/missing"))

    async def scenario(store):
        with pytest.raises(StoreDown, match="/missing cannot be used") as refused:
            await store.get("", "resp_1")
        return str(refused.value)

    assert "secret" not in run(store, scenario)


def test_a_url_names_the_server_and_the_parameters() -> None:
    store = open_store("postgresql://me@a,b/data?ttl=1h&target_session_attrs=read-write&logs=never&sslmode=require")
    assert (store.url, store.ttl, store.logs) == (
        "postgresql://me@a,b/data?target_session_attrs=read-write&sslmode=require",
        3600,
        None,
    )


def test_the_server_of_the_tests_is_not_reachable_from_elsewhere(postgres_server) -> None:
    assert postgres_server.query("SHOW listen_addresses") == [("127.0.0.1",)]
    assert Path(postgres_server.folder).stat().st_mode & 0o077 == 0
