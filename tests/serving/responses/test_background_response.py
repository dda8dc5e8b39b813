"""An owner writes a background response to a store that may fail; every reader receives a legal end."""

import asyncio
import json
import re
from contextlib import aclosing

import pytest
from attrs import define, field
from live.engines import ANSWER, REASONING, Gate, StagedEngine, step, steps
from one_run import begin_response

from interlock.events.dialects import OPEN_RESPONSES, OPENAI
from interlock.events.sse import SseWriter
from interlock.judges import judge
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.create import read_request
from interlock.serving.responses import background_response as background
from interlock.serving.responses.archive import Archive, ConversationLease, adopt
from interlock.serving.responses.background_response import BackgroundRegistry
from interlock.serving.responses.run import RequestContext
from interlock.serving.settings import Times
from interlock.serving.store.sqlite import MemoryStore
from interlock.serving.store.values import Conflict, StoredConversation, StoreDown, StoredResponse, StoreFull
from interlock.testing.streams import assert_legal

TENANT = "somebody"
DONE = b"data: [DONE]\n\n"


@define(eq=False)
class Clock:
    """A clock that is set by hand."""

    now: float = 0.0

    def __call__(self):
        return self.now


@define(eq=False)
class Unreliable(MemoryStore):
    """A store whose calls fail for a while, before or after they have written."""

    down: dict = field(factory=dict)
    """For each method, how often it fails; a negative number is how often it fails after it has written."""

    async def _try(self, name, write, *arguments):
        remaining = self.down.get(name, 0)
        if remaining > 0:
            self.down[name] = remaining - 1
            raise StoreDown("It cannot be reached.")
        written = await write(*arguments)
        if remaining < 0:
            self.down[name] = remaining + 1
            raise StoreDown("It cannot be reached.")
        return written

    async def append(self, *arguments):
        return await self._try("append", super().append, *arguments)

    async def finish(self, *arguments):
        return await self._try("finish", super().finish, *arguments)

    async def read(self, *arguments):
        return await self._try("read", super().read, *arguments)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Retry at once where a server would wait for a store that is down."""
    monkeypatch.setattr(background, "RETRY_DELAY", 0.0)


FAST = Times(maintenance=0.0, poll=0.01)


def run_of(*script, dialect=OPENAI, lease=None, **body):
    request = read_request({"model": "staged", "input": "Hi", "background": True, **body})
    return begin_response(
        RequestContext(request, request.input, TENANT, lease=lease), StagedEngine(list(script)), SseWriter(dialect)
    )


async def read(archive, response_id, start=0):
    """Read a response's log to its end."""
    stored = await archive.store.get(TENANT, response_id)
    frames = []
    opened = await archive.tail(TENANT, stored, start)
    if isinstance(archive.store, Unreliable):
        archive.store.down["read"] = archive.store.down.pop("read later", 0)
    async with aclosing(opened) as tail:
        async for some in tail:
            frames += some
    return frames


def last(frames):
    return json.loads(frames[-1].partition(b"\ndata: ")[2])["response"]


async def run_to_end(store, *script):
    """Make a response, and return its events and the stored response."""
    archive = Archive(store, FAST)
    background_registry = BackgroundRegistry(archive)
    run = run_of(*script)
    queued = await background_registry.begin(run)
    frames = await asyncio.wait_for(read(archive, queued.id), 20)
    await background_registry.wait(20)
    return frames, await archive.get(TENANT, queued.id)


@pytest.mark.parametrize("down", [{}, {"append": 3}, {"append": -2}, {"finish": 2}, {"finish": -1}, {"read later": 2}], ids=str)
def test_a_store_outage_loses_and_repeats_no_event(down) -> None:
    frames, stored = asyncio.run(run_to_end(Unreliable(down=dict(down)), step(REASONING), *steps(ANSWER)))
    assert_legal([*frames, DONE], strict=True)
    assert (last(frames)["status"], last(frames)) == ("completed", stored.response)


def test_repeated_write_failures_are_logged_once(caplog) -> None:
    asyncio.run(run_to_end(Unreliable(down={"append": 4}), step(REASONING), *steps(ANSWER)))
    logged = [record.getMessage().partition(": ")[2] for record in caplog.records if record.name == background.__name__]
    assert logged == ["its events could not be stored: It cannot be reached."]


def test_a_lease_that_cannot_be_renewed_ends_the_run_and_a_reader_ends_the_response(monkeypatch) -> None:
    async def scenario():
        times = Clock()
        store = Unreliable(clock=times, down={"append": 10**6, "finish": 10**6})
        archive, gate = Archive(store, FAST), Gate()
        background_registry = BackgroundRegistry(archive)
        run = run_of(step(REASONING), gate, *steps(ANSWER))
        queued = await background_registry.begin(run)
        await background_registry.wait(20)
        times.now += 16
        store.down.clear()
        return run.driver.response, await read(archive, queued.id)

    monkeypatch.setattr(background, "LEASE", 0.0)
    monkeypatch.setattr(background, "FINISH_PATIENCE", 0.0)
    response, frames = asyncio.run(scenario())
    assert response["error"]["message"] == "The response could not be stored."
    assert_legal([*frames, DONE], strict=True)
    assert last(frames)["error"]["message"] == "The server that made the response was lost."
    assert last(frames)["usage"] is None


async def ended_run(run):
    """The response of a run as it was queued, and all its frames."""
    async with aclosing(run.events()) as events:
        frames = await anext(events)
        queued = StoredResponse({**run.stored.response, "status": "queued"}, run.stored.items)
        return queued, [*frames, *[frame async for some in events for frame in some]]


async def abandoned(store, times, count, dialect=OPENAI):
    """Leave a response after some of its events, as a process does that is killed."""
    run = run_of(step(REASONING), *steps(ANSWER), dialect=dialect)
    queued_response, frames = await ended_run(run)
    lease = await store.enqueue(TENANT, queued_response, "killed")
    if count:
        await store.append(lease, 0, frames[:count])
    times.now += 16
    return queued_response.id, frames[:count], lease


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("count", [0, 3, 6, 9])
def test_a_reader_ends_the_response_of_a_killed_owner_after_its_last_event(count, cancelled) -> None:
    async def scenario():
        times = Clock()
        store = MemoryStore(clock=times)
        response_id, frames, _ = await abandoned(store, times, count)
        if cancelled:
            await store.cancel(TENANT, response_id)
        read_on = await read(Archive(store, FAST), response_id)
        return frames, read_on, (await store.get(TENANT, response_id)).response

    frames, read_on, response = asyncio.run(scenario())
    assert_legal([*read_on, DONE], strict=True)
    assert read_on[:count] == frames
    assert last(read_on) == response
    assert response["status"] == ("cancelled" if cancelled else "failed")


def test_one_process_adopts_a_lost_response_and_its_owner_cannot_write() -> None:
    async def scenario():
        times = Clock()
        store = MemoryStore(clock=times)
        response_id, frames, lease = await abandoned(store, times, 6)
        taken = [await adopt(store, TENANT, response_id, f"process {number}") for number in range(3)]
        with pytest.raises(Exception, match="lease"):
            await store.append(lease, len(frames), [b"late"])
        return taken

    assert asyncio.run(scenario()) == [True, False, False]


def test_maintenance_ends_a_lost_response_without_readers() -> None:
    async def scenario():
        times = Clock()
        store = MemoryStore(clock=times)
        response_id, _, _ = await abandoned(store, times, 6)
        archive = Archive(store, FAST)
        with store.subscribe(TENANT, response_id) as watch:
            async with archive.maintained():
                while (await store.get(TENANT, response_id)).response["status"] == "queued":
                    await watch.wait(5)
        return (await store.get(TENANT, response_id)).response["status"]

    assert asyncio.run(asyncio.wait_for(scenario(), 10)) == "failed"


def test_an_error_about_a_trimmed_log_names_the_expired_events() -> None:
    async def scenario():
        store = MemoryStore()
        _, stored = await run_to_end(store, *steps(ANSWER))
        store._connection.execute("DELETE FROM event WHERE number < 4")
        store._connection.execute("UPDATE response SET oldest = 4")
        archive = Archive(store, FAST)
        with pytest.raises(ApiError) as refused:
            await archive.tail(TENANT, stored, 3)
        return refused.value.code, str(refused.value), len(await read(archive, stored.id, 4))

    code, message, remaining = asyncio.run(scenario())
    assert (code, message) == (
        "events_expired",
        "The events before number 4 have expired.",
    )
    assert remaining > 0


@pytest.mark.parametrize("dialect", [OPENAI, OPEN_RESPONSES], ids=["openai", "open-responses"])
@pytest.mark.parametrize("taken", ["deleted", "trimmed"])
def test_a_reader_whose_events_are_removed_too_early_receives_an_error(taken, dialect) -> None:
    async def scenario():
        store = MemoryStore()
        response_id, _, lease = await abandoned(store, Clock(), 6, dialect)
        tail = await Archive(store, FAST).tail(TENANT, await store.get(TENANT, response_id))
        async with aclosing(tail):
            frames = await anext(tail)
            if taken == "trimmed":
                ended = StoredResponse({**(await store.get(TENANT, response_id)).response, "status": "completed"}, ())
                await store.finish(lease, len(frames), [b"the last"], ended)
                await store.trim(TENANT, response_id)
            else:
                await store.delete(TENANT, response_id)
            return frames, [frame async for some in tail for frame in some]

    frames, (error,) = asyncio.run(scenario())
    reports = judge([*frames, error, DONE]).findings
    renamed = set() if dialect is OPENAI else {"nested-error", "unknown-event"}  # the other names
    assert {each.deviation for each in reports} == {"error-is-last", *renamed}
    event = json.loads(error.partition(b"\ndata: ")[2])
    message = "The response was deleted, or its events have expired."
    fields = {"code": "events_expired", "message": message, "param": None}
    assert event == dialect.convert({"type": "error", "sequence_number": 6, **fields})


@pytest.mark.parametrize("ended", [False, True])
def test_a_slow_reader_reads_the_end_of_a_deleted_response(ended) -> None:
    async def scenario():
        times = Clock()
        store = MemoryStore(clock=times)
        response_id, _, _ = await abandoned(store, times, 6)
        archive = Archive(store, FAST)
        if ended:
            await adopt(store, TENANT, response_id, "another")
        tail = await archive.tail(TENANT, await store.get(TENANT, response_id))
        async with aclosing(tail):
            frames = [*await anext(tail)]
            await archive.delete(TENANT, await archive.get(TENANT, response_id))
            frames += [frame async for some in tail for frame in some]
        return frames, await archive.get(TENANT, response_id)

    frames, response = asyncio.run(scenario())
    assert_legal([*frames, DONE], strict=True)
    assert (last(frames)["status"], response) == ("failed" if ended else "cancelled", None)


def test_deleting_a_foreground_response_leaves_nothing() -> None:
    async def scenario():
        store = MemoryStore()
        stored = StoredResponse({"id": "resp_1", "status": "completed", "background": False, "output": []}, ())
        await store.put(TENANT, stored)
        await Archive(store, FAST).delete(TENANT, stored)
        return (await store.info()).responses

    assert asyncio.run(scenario()) == {}


def test_a_conversation_is_locked_until_the_last_commit_of_its_response() -> None:
    async def scenario():
        store = Unreliable(down={"finish": 1})
        await store.create_conversation(TENANT, StoredConversation("conv_1", 1, {}))
        lease = await ConversationLease.acquire(store, TENANT, "conv_1")
        background_registry = BackgroundRegistry(Archive(store, FAST))
        run = run_of(*steps(ANSWER), lease=lease)
        await background_registry.begin(run)
        while not run.driver.ended:  # noqa: ASYNC110 - there is nothing to wait for
            await asyncio.sleep(0)
        with pytest.raises(Conflict):
            await store.hold(TENANT, "conv_1", "resp_2")
        await background_registry.wait(20)
        return await store.hold(TENANT, "conv_1", "resp_2"), await store.conversation_items(TENANT, "conv_1")

    is_free, items = asyncio.run(scenario())
    assert (is_free, [item["type"] for item in items]) == (True, ["message", "message"])


def test_a_conversation_is_unlocked_if_its_response_could_not_be_stored() -> None:
    class Full(MemoryStore):
        async def enqueue(self, *_):
            raise StoreFull("It is full.")

    async def scenario():
        store = Full()
        await store.create_conversation(TENANT, StoredConversation("conv_1", 1, {}))
        lease = await ConversationLease.acquire(store, TENANT, "conv_1")
        background_registry = BackgroundRegistry(Archive(store, FAST))
        run = run_of(*steps(ANSWER), lease=lease)
        with pytest.raises(StoreFull):
            await background_registry.begin(run)
        return await store.hold(TENANT, "conv_1", "resp_2")

    assert asyncio.run(scenario())


def test_a_store_counts_as_down_until_a_check_succeeds() -> None:
    class CheckedStore(MemoryStore):
        down = True
        checks = 0

        async def lost(self, limit):
            self.checks += 1
            if self.down:
                raise StoreDown("It cannot be reached.")
            return await super().lost(limit)

    async def check(store, archive):
        before = store.checks
        while store.checks < before + 2:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0)
        return archive.require_store

    async def watched():
        store = CheckedStore()
        archive = Archive(store, FAST)
        archive.require_store()
        async with archive.maintained():
            with pytest.raises(StoreDown):
                (await check(store, archive))()
            store.down = False
            (await check(store, archive))()

    asyncio.run(watched())


UNKNOWN = b'event: response.vision.delta\ndata: {"type":"response.vision.delta","sequence_number":%d%b}\n\n'


def renumbered(frames):
    """Give frames the sequence numbers of their places."""
    return [re.sub(rb'"sequence_number":\d+', b'"sequence_number":%d' % number, frame) for number, frame in enumerate(frames)]


@pytest.mark.parametrize("place", [0, 3, 6])
@pytest.mark.parametrize(
    "unknown",
    [
        [UNKNOWN % (0, b"")],
        [UNKNOWN % (0, b',"output_index":0')],
        [b"no event\n\n"],
        [
            b'data: {"type":"response.output_item.added","sequence_number":0,"output_index":7,"item":%b}\n\n'
            % b'{"type":"vision","id":"vis_1","status":"in_progress"}'
        ],
    ],
    ids=["event", "event of an item", "frame", "item"],
)
def test_a_lost_response_with_events_of_another_release_keeps_its_stored_events(unknown, place) -> None:
    async def scenario():
        times = Clock()
        store = MemoryStore(clock=times)
        run = run_of(step(REASONING), *steps(ANSWER))
        queued, frames = await ended_run(run)
        frames = renumbered([*frames[:place], *unknown, *frames[place:6]])
        await store.append(await store.enqueue(TENANT, queued, "killed"), 0, frames)
        archive = Archive(store, FAST)
        before = (await archive.get(TENANT, queued.id)).response
        times.now += 16
        read_on = await asyncio.wait_for(read(archive, queued.id), 20)
        return frames, read_on, before, (await store.get(TENANT, queued.id)).response, await archive.get(TENANT, queued.id)

    frames, read_on, before, response, after = asyncio.run(scenario())
    assert read_on[: len(frames)] == frames
    assert (last(read_on), after.response) == (response, response)
    assert (before["status"], response["status"], response["error"]["code"]) == ("in_progress", "failed", "server_error")
    types = [item["type"] for item in response["output"]]
    is_item = b"output_item.added" in unknown[0]
    assert types == ["reasoning", *(["vision"] if is_item else [])]
    assert [item["status"] for item in response["output"]] == ["incomplete"] * len(types)
    if not is_item and unknown[0] != b"no event\n\n":
        assert {each.deviation for each in judge([*read_on, DONE]).findings} == {"unknown-event"}


@define(eq=False)
class Forgetful(MemoryStore):
    """A store that can lose its last writes, as after a failover."""

    def forget(self, count):
        """Lose the last events of the only response."""
        number = self._connection.value("SELECT following FROM response") - count
        self._connection.execute("DELETE FROM event WHERE number >= ?", (number,))
        self._connection.execute("UPDATE response SET following = ?", (number,))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_response_fails_if_the_store_has_lost_its_last_events(count) -> None:
    async def scenario():
        store, gate = Forgetful(), Gate()
        archive = Archive(store, FAST)
        background_registry = BackgroundRegistry(archive)
        queued = await background_registry.begin(run_of(step(REASONING), gate, *steps(ANSWER)))
        early, frames = await archive.tail(TENANT, await store.get(TENANT, queued.id)), []
        async with aclosing(early):
            while not (frames and gate.reached.is_set() and len(frames) == (await store.read(TENANT, queued.id, 0, 1)).following):
                frames += await anext(early)
            store.forget(count)
            while_lost = (await archive.get(TENANT, queued.id)).response["status"]
            gate.open()
            frames += [frame async for some in early for frame in some]
        await background_registry.wait(20)
        return frames, while_lost, await read(archive, queued.id), await archive.get(TENANT, queued.id)

    early, while_lost, whole, stored = asyncio.run(scenario())
    assert_legal([*whole, DONE], strict=True)
    assert (while_lost, last(whole)) == ("in_progress", stored.response)
    assert (stored.response["status"], stored.response["error"]["message"]) == (
        "failed",
        "The store has lost events of the response.",
    )
    *seen, error = early
    shared = len(seen) - count
    assert seen[:shared] == whole[:shared]
    assert json.loads(error.partition(b"\ndata: ")[2])["code"] == "events_expired"
    assert {each.deviation for each in judge([*early, DONE]).findings} == {"error-is-last"}


def test_a_reader_of_lost_events_receives_an_error() -> None:
    async def scenario():
        store = MemoryStore()
        frames, stored = await run_to_end(store, *steps(ANSWER))
        return [await read(Archive(store, FAST), stored.id, len(frames) + more) for more in (0, 1)]

    nothing, (error,) = asyncio.run(scenario())
    assert nothing == []
    assert json.loads(error.partition(b"\ndata: ")[2])["code"] == "events_expired"
