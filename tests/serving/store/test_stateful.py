"""Every store does what the model does, whatever is asked of it, by whom, and however the clock moves."""

import asyncio
import shutil
import socket
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from live.redis_server import needs_redis
from live.store_model import TTL, Model, Talk

from interlock.fsm.processes.stored import StoredTrigger
from interlock.serving.store import LEASE, Addition, Conversation, Lease, MemoryStore, StoredResponse, StoreError
from interlock.serving.store.redis import RedisStore
from interlock.serving.store.sqlite import SqliteStore

NAMES = st.sampled_from(["resp_1", "resp_2", "resp_3"])
OWNERS = st.sampled_from(["a", "b"])
LEASES = st.tuples(OWNERS, st.integers(1, 3))
COUNTS = st.integers(0, 3)
PASSED = [1.3, 5.25, LEASE - 1.5, LEASE + 0.5, 2 * TTL, -LEASE - 1.1, -2 * LEASE - 1.7]
"""No few of them make up a lease, because the clock of Redis goes on a little by itself."""
TALKS = st.sampled_from(["conv_1", "conv_2"])


def item(number):
    return {"id": f"msg_{number}", "type": "message", "n": number}


def response(name, start, count, outputs=0):
    """A response whose conversation goes on from others': some items from a number on."""
    items = [item(number) for number in range(start + count)]
    output = [item(f"{name}_{start}_{number}") for number in range(outputs)]
    return StoredResponse({"id": name, "output": output}, tuple(items))


class StoreMachine(RuleBasedStateMachine):
    """A store beside the model."""

    def open(self, clock):
        """Return the store."""
        raise NotImplementedError

    def __init__(self):
        super().__init__()
        self.model = Model()
        self.runner = asyncio.Runner()
        self.store = None

    @initialize()
    def begin(self):
        self.store = self.open(lambda: self.model.now)

    def ask(self, coroutine):
        """Return what the store returned, or the name of what it raised."""
        try:
            return self.runner.run(coroutine)
        except StoreError as error:
            return type(error).__name__

    @rule(name=NAMES, start=COUNTS, count=COUNTS, outputs=COUNTS)
    def put(self, name, start, count, outputs):
        stored = response(name, start, count, outputs)
        expected = self.model.write(name, StoredTrigger.PUT, stored=stored)
        assert self.ask(self.store.put("", stored)) == (expected if isinstance(expected, str) else None)

    @rule(name=NAMES, owner=OWNERS, count=COUNTS)
    def enqueue(self, name, owner, count):
        stored = response(name, 0, count)
        expected = self.model.write(name, StoredTrigger.ENQUEUE, owner=owner, stored=stored)
        lease = expected if isinstance(expected, str) else Lease("", name, owner, 1)
        assert self.ask(self.store.enqueue("", stored, owner)) == lease

    @rule(name=NAMES, lease=LEASES, off=st.sampled_from([0, 0, 0, 1, -1]), count=st.integers(1, 3))
    def append(self, name, lease, off, count):
        first = max(len(self.model.row(name).frames) + off, 0)
        frames = [f"{name}/{first + number}".encode() for number in range(count)]
        expected = self.model.write(name, StoredTrigger.APPEND, lease=lease, first=first, frames=frames)
        answer = expected if isinstance(expected, str) else expected.cancelled
        assert self.ask(self.store.append(Lease("", name, *lease), first, frames)) == answer

    @rule(name=NAMES, lease=LEASES)
    def renew(self, name, lease):
        expected = self.model.write(name, StoredTrigger.RENEW, lease=lease)
        answer = expected if isinstance(expected, str) else expected.cancelled
        assert self.ask(self.store.renew(Lease("", name, *lease))) == answer

    @rule(name=NAMES, lease=LEASES, count=COUNTS, talk=st.one_of(st.none(), TALKS), version=st.sampled_from([0, 0, 1]))
    def finish(self, name, lease, count, talk, version):
        stored = response(name, 0, count, 1)
        first = len(self.model.row(name).frames)
        behind = 0 if talk not in self.model.talks else self.model.talks[talk].version
        addition = None if talk is None else Addition(talk, behind + version, stored.conversation)
        asked = {"first": first, "frames": [b"end"], "stored": stored, "addition": addition}
        expected = self.model.write(name, StoredTrigger.FINISH, lease=lease, **asked)
        answer = self.ask(self.store.finish(Lease("", name, *lease), first, [b"end"], stored, addition))
        assert answer == (expected if isinstance(expected, str) else None)

    @rule(name=NAMES)
    def cancel(self, name):
        expected = self.model.write(name, StoredTrigger.CANCEL) is not None
        assert self.ask(self.store.cancel("", name)) is expected

    @rule(name=NAMES, owner=OWNERS)
    def adopt(self, name, owner):
        row = self.model.write(name, StoredTrigger.ADOPT, owner=owner)
        expected = None if row is None else Lease("", name, owner, row.epoch)
        assert self.ask(self.store.adopt("", name, owner)) == expected

    @rule(name=NAMES)
    def delete(self, name):
        expected = self.model.write(name, StoredTrigger.DELETE) is not None
        assert self.ask(self.store.delete("", name)) is expected

    @rule(name=NAMES, first=COUNTS, limit=st.integers(1, 4))
    def look(self, name, first, limit):
        row = self.model.row(name)
        log = self.ask(self.store.read("", name, first, limit))
        assert self.ask(self.store.get("", name)) == row.stored
        assert self.ask(self.store.get("another", name)) is None
        if row.stored is None:
            assert log is None
        else:
            frames = tuple(row.frames[first : first + limit])
            expected = (frames, first, 0, len(row.frames), row.life.state.name, row.cancelled)
            assert (log.frames, log.first, log.oldest, log.following, log.state, log.cancelled) == expected
            wanted = {str(each["id"]): each for each in row.stored.conversation}
            assert self.ask(self.store.find("", wanted)) == wanted

    @rule()
    def find_lost(self):
        names = [name for name in [*self.model.rows] if self.model.row(name).life.state.name == "lost"]
        assert sorted(self.ask(self.store.lost(10))) == sorted(("", name) for name in names)

    @rule(seconds=st.sampled_from(PASSED))
    def pass_time(self, seconds):
        for name in [*self.model.rows]:
            self.model.row(name)
        self.model.now += seconds

    @rule()
    def sweep(self):
        self.ask(self.store.sweep())

    @rule(talk=TALKS, count=COUNTS)
    def create(self, talk, count):
        items = [item(number) for number in range(count)]
        self.model.talks[talk] = Talk(items)
        assert self.ask(self.store.create_conversation("", Conversation(talk, 1, {}), items)) is None

    @rule(talk=TALKS, number=COUNTS)
    def add(self, talk, number):
        held = self.model.talks.get(talk)
        answer = self.ask(self.store.add_items("", talk, [item(number)]))
        if held is None:
            assert answer is None
        elif self.model.is_held(held):
            assert answer == "Conflict"
        else:
            held.items.append(item(number))
            held.version += 1
            assert answer.version == held.version

    @rule(talk=TALKS, number=COUNTS)
    def take_away(self, talk, number):
        held = self.model.talks.get(talk)
        answer = self.ask(self.store.delete_item("", talk, f"msg_{number}"))
        if held is None or item(number) not in held.items:
            assert answer is None
        elif self.model.is_held(held):
            assert answer == "Conflict"
        else:
            held.items.remove(item(number))
            held.version += 1
            assert answer.version == held.version

    @rule(talk=TALKS, owner=OWNERS)
    def hold(self, talk, owner):
        held = self.model.talks.get(talk)
        answer = self.ask(self.store.hold("", talk, owner))
        if held is None:
            assert answer is None
        elif self.model.is_held(held, owner):
            assert answer == "Conflict"
        else:
            held.owner, held.until = owner, self.model.now + LEASE
            assert answer == held.version

    @rule(talk=TALKS, owner=OWNERS)
    def release(self, talk, owner):
        held = self.model.talks.get(talk)
        if held is not None and held.owner == owner:
            held.owner = None
        assert self.ask(self.store.release("", talk, owner)) is None

    @rule(talk=TALKS)
    def look_at_talk(self, talk):
        held = self.model.talks.get(talk)
        expected = None if held is None else tuple(held.items)
        assert self.ask(self.store.conversation_items("", talk)) == expected

    @rule(talk=TALKS)
    def delete_talk(self, talk):
        expected = self.model.talks.pop(talk, None) is not None
        assert self.ask(self.store.delete_conversation("", talk)) is expected

    def teardown(self):
        """Nothing is left of what is deleted or expired."""
        try:
            for talk in self.model.talks:
                self.ask(self.store.delete_conversation("", talk))
            self.model.now += 2 * TTL
            self.ask(self.store.sweep())
            info = self.ask(self.store.info())
            assert (dict(info.responses), info.conversations, info.items, info.events) == ({}, 0, 0, 0)
        finally:
            self.runner.run(self.store.close())
            self.runner.close()


LIMITS = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_the_store_in_memory_does_what_the_model_does() -> None:
    class InMemory(StoreMachine):
        def open(self, clock):
            return MemoryStore(ttl=TTL, clock=clock)

    run_state_machine_as_test(InMemory, settings=LIMITS)


def test_the_store_in_sqlite_does_what_the_model_does() -> None:
    folders = []

    class InSqlite(StoreMachine):
        def open(self, clock):
            folders.append(tempfile.mkdtemp(prefix="interlock-store-"))
            return SqliteStore(str(Path(folders[-1], "store.db")), ttl=TTL, clock=clock, calendar=clock)

    try:
        run_state_machine_as_test(InSqlite, settings=LIMITS)
    finally:
        for folder in folders:
            shutil.rmtree(folder)


@needs_redis
def test_the_store_in_redis_does_what_the_model_does(redis_server) -> None:
    class InRedis(StoreMachine):
        def open(self, clock):
            with socket.create_connection(("127.0.0.1", redis_server.port)) as connection:
                connection.sendall(b"FLUSHALL\r\n")
                assert connection.recv(100) == b"+OK\r\n"
            return RedisStore(redis_server.url, ttl=TTL, clock=clock)

    run_state_machine_as_test(InRedis, settings=LIMITS)
