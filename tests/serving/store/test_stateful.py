"""Every store matches the model, for any calls of any owner, however the clock moves."""

import asyncio
from copy import copy

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from live.stores import needs_postgres

from interlock.fsm.table import Machine
from interlock.serving.store.tables import (
    CONVERSATION,
    STORED,
    ConversationEffect,
    ConversationTrigger,
    StoredEffect,
    StoredTrigger,
)
from interlock.serving.store.values import LEASE, Addition, Lease, StoredConversation, StoredResponse, StoreError

TTL = 3600
CONVERSATION_TTL = 1800
EXPIRED = "expired"


class Row:
    """A response in the model."""

    def __init__(self):
        self.life = Machine.at_start(STORED)
        self.owner, self.epoch, self.until, self.written = None, 0, 0.0, 0.0
        self.frames, self.cancelled, self.stored = [], False, None


class ModelConversation:
    """A conversation in the model."""

    def __init__(self, items, now):
        self.life = Machine.at_start(CONVERSATION)
        self.life.fire(ConversationTrigger.CREATE)
        self.items, self.version, self.owner, self.until, self.written = [*items], 0, None, 0.0, now


class Model:
    """All responses and conversations of one tenant."""

    def __init__(self):
        self.now = 10_000.0
        self.rows = {}
        self.conversations = {}

    def over(self, until):
        return until <= self.now or until > self.now + 2 * LEASE

    def row(self, name):
        """Return a response as it is now, or an absent one if there is none or it has expired."""
        row = copy(self.rows.get(name, Row()))
        row.life = Machine(row.life.state)  # a lapse is not stored, because the clock may be set back
        if self.over(row.until) and StoredTrigger.LAPSE in row.life.state.rows:
            row.life.fire(StoredTrigger.LAPSE)
        expired = self.now >= row.written + TTL and StoredTrigger.EXPIRE in row.life.state.rows
        if expired or not row.life.state.rows:
            del self.rows[name]
            return Row()
        return row

    def write(self, name, trigger, *, lease=None, owner=None, first=0, frames=(), stored=None, addition=None):
        """Fire an edge; return the row, the name of the error that a store must raise, or None if a store writes nothing."""
        row = self.row(name)
        edge = row.life.state.row_for(trigger, is_owner=(row.owner, row.epoch) == lease)
        if edge is None:
            return "LeaseLost" if lease is not None else "Conflict" if stored is not None else None
        _, effects = edge
        if StoredEffect.LOG in effects and first != len(row.frames):
            return "SequenceError"
        if addition is not None and not self.may_change(addition.conversation_id, ConversationTrigger.JOIN, addition.owner):
            return "Conflict"
        row.life.fire(trigger)
        self.rows[name] = row
        for effect in effects:
            self.carry_out(name, row, effect, owner, frames, stored, addition)
        return row

    def carry_out(self, name, row, effect, owner, frames, stored, addition):
        match effect:
            case StoredEffect.KEEP:
                row.stored, row.written = stored, self.now
            case StoredEffect.TAKE:
                row.owner, row.epoch, row.until, row.written = owner, row.epoch + 1, self.now + LEASE, self.now
            case StoredEffect.EXTEND:
                row.until, row.written = self.now + LEASE, self.now
            case StoredEffect.LOG:
                row.frames += frames
            case StoredEffect.FLAG:
                row.cancelled = True
            case StoredEffect.RELEASE:
                row.owner = None
            case StoredEffect.ERASE:
                row.stored, row.until = None, self.now + LEASE
            case StoredEffect.REMOVE:
                del self.rows[name]
            case StoredEffect.JOIN if addition is not None:
                self.conversations[addition.conversation_id].items += addition.items
                self.change(addition.conversation_id, ConversationTrigger.JOIN, addition.owner)
            case _:
                pass

    def state(self, conversation):
        """Return the state of a conversation as it is now, which is not stored, because the clock may be set back."""
        state = conversation.life.state
        if ConversationTrigger.LAPSE in state.rows and self.over(conversation.until):
            state, _ = state.rows[ConversationTrigger.LAPSE]
        if ConversationTrigger.EXPIRE in state.rows and self.now >= conversation.written + CONVERSATION_TTL:
            state, _ = state.rows[ConversationTrigger.EXPIRE]
        return state

    def conversation(self, conversation_id):
        """Return a conversation, or None if there is none or it has expired."""
        conversation = self.conversations.get(conversation_id)
        if conversation is not None and not self.state(conversation).rows:
            del self.conversations[conversation_id]
            return None
        return conversation

    def conversation_edge(self, conversation, trigger, owner):
        return self.state(conversation).row_for(trigger, is_owner=owner == conversation.owner)

    def may_change(self, conversation_id, trigger, owner=None):
        conversation = self.conversation(conversation_id)
        return conversation is not None and self.conversation_edge(conversation, trigger, owner) is not None

    def change(self, conversation_id, trigger, owner=None):
        """Fire an edge of a conversation that `may_change`."""
        conversation = self.conversations[conversation_id]
        conversation.life.state, effects = self.conversation_edge(conversation, trigger, owner)
        for effect in effects:
            match effect:
                case ConversationEffect.TAKE:
                    conversation.owner, conversation.until, conversation.written = owner, self.now + LEASE, self.now
                case ConversationEffect.WRITE:
                    conversation.version, conversation.written = conversation.version + 1, self.now
                case ConversationEffect.FREE:
                    conversation.owner = None
                case _:
                    pass


NAMES = st.sampled_from(["resp_1", "resp_2", "resp_3"])
OWNERS = st.sampled_from(["a", "b"])
LEASES = st.tuples(OWNERS, st.integers(1, 3))
COUNTS = st.integers(0, 3)
PASSED = [1.3, 5.25, LEASE - 1.5, LEASE + 0.5, 2 * TTL, -LEASE - 1.1, -2 * LEASE - 1.7]
CONVERSATION_IDS = st.sampled_from(["conv_1", "conv_2"])


def item(number):
    return {"id": f"msg_{number}", "type": "message", "n": number}


def response(name, start, count, outputs=0):
    """A response whose conversation shares items with others: the first `start + count` of one sequence."""
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

    @rule(
        name=NAMES,
        lease=LEASES,
        count=COUNTS,
        conversation_id=st.one_of(st.none(), CONVERSATION_IDS),
        owner=OWNERS,
    )
    def finish(self, name, lease, count, conversation_id, owner):
        stored = response(name, 0, count, 1)
        first = len(self.model.row(name).frames)
        addition = None if conversation_id is None else Addition(conversation_id, owner, stored.conversation)
        arguments = {"first": first, "frames": [b"end"], "stored": stored, "addition": addition}
        expected = self.model.write(name, StoredTrigger.FINISH, lease=lease, **arguments)
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
    def hide(self, name):
        expected = self.model.write(name, StoredTrigger.HIDE) is not None
        assert self.ask(self.store.hide("", name)) is expected

    @rule(name=NAMES)
    def delete(self, name):
        expected = self.model.write(name, StoredTrigger.DELETE) is not None
        assert self.ask(self.store.delete("", name)) is expected

    @rule(name=NAMES, first=COUNTS, limit=st.integers(1, 4))
    def read(self, name, first, limit):
        row = self.model.row(name)
        log = self.ask(self.store.read("", name, first, limit))
        assert self.ask(self.store.get("", name)) == row.stored
        assert self.ask(self.store.get("another", name)) is None
        if row.life.state.name == "absent":
            assert log is None
        else:
            frames = tuple(row.frames[first : first + limit])
            expected = (frames, first, 0, len(row.frames), row.life.state.name, row.cancelled)
            assert (log.frames, log.first, log.oldest, log.following, log.state, log.cancelled) == expected
            rows = {str(each["id"]): each for each in (row.stored.conversation if row.stored else ())}
            assert self.ask(self.store.find("", rows)) == rows

    @rule()
    def find_lost(self):
        names = [name for name in [*self.model.rows] if self.model.row(name).life.state.name == "lost"]
        assert sorted(self.ask(self.store.lost(10))) == sorted(("", name) for name in names)

    @rule(seconds=st.sampled_from(PASSED))
    def pass_time(self, seconds):
        before = {*self.model.rows, *self.model.conversations}
        for name in before:
            self.model.row(name)
            self.model.conversation(name)
        if before != self.model.rows.keys() | self.model.conversations.keys():
            self.sweep()  # otherwise, lapsed rows would return if the clock was set back
        self.model.now += seconds

    @rule()
    def sweep(self):
        self.ask(self.store.sweep())

    @rule(conversation_id=CONVERSATION_IDS, count=COUNTS)
    def create(self, conversation_id, count):
        items = [item(number) for number in range(count)]
        self.model.conversations[conversation_id] = ModelConversation(items, self.model.now)
        assert self.ask(self.store.create_conversation("", StoredConversation(conversation_id, 1, {}), items)) is None

    @rule(conversation_id=CONVERSATION_IDS, number=COUNTS)
    def add(self, conversation_id, number):
        conversation = self.model.conversation(conversation_id)
        answer = self.ask(self.store.add_items("", conversation_id, [item(number)]))
        if conversation is None:
            assert answer is None
        elif not self.model.may_change(conversation_id, ConversationTrigger.CHANGE):
            assert answer == "Conflict"
        else:
            conversation.items.append(item(number))
            self.model.change(conversation_id, ConversationTrigger.CHANGE)
            assert answer.version == conversation.version

    @rule(conversation_id=CONVERSATION_IDS, number=COUNTS)
    def take_away(self, conversation_id, number):
        conversation = self.model.conversation(conversation_id)
        answer = self.ask(self.store.delete_item("", conversation_id, f"msg_{number}"))
        if conversation is None or item(number) not in conversation.items:
            assert answer is None
        elif not self.model.may_change(conversation_id, ConversationTrigger.CHANGE):
            assert answer == "Conflict"
        else:
            conversation.items.remove(item(number))
            self.model.change(conversation_id, ConversationTrigger.CHANGE)
            assert answer.version == conversation.version

    @rule(conversation_id=CONVERSATION_IDS, owner=OWNERS, renew=st.booleans())
    def hold(self, conversation_id, owner, renew):
        trigger, method = (
            (ConversationTrigger.RENEW, self.store.renew_hold) if renew else (ConversationTrigger.HOLD, self.store.hold)
        )
        conversation = self.model.conversation(conversation_id)
        if conversation is not None and conversation.owner == owner and not renew:
            return  # each response starts once
        answer = self.ask(method("", conversation_id, owner))
        if conversation is None:
            assert answer is False
        elif not self.model.may_change(conversation_id, trigger, owner):
            assert answer == "Conflict"
        else:
            self.model.change(conversation_id, trigger, owner)
            assert answer is True

    @rule(conversation_id=CONVERSATION_IDS, owner=OWNERS)
    def release(self, conversation_id, owner):
        if self.model.may_change(conversation_id, ConversationTrigger.RELEASE, owner):
            self.model.change(conversation_id, ConversationTrigger.RELEASE, owner)
        assert self.ask(self.store.release("", conversation_id, owner)) is None

    @rule(conversation_id=CONVERSATION_IDS)
    def read_conversation(self, conversation_id):
        conversation = self.model.conversation(conversation_id)
        expected = None if conversation is None else tuple(conversation.items)
        assert self.ask(self.store.conversation_items("", conversation_id)) == expected

    @rule(conversation_id=CONVERSATION_IDS)
    def delete_conversation(self, conversation_id):
        expected = self.model.conversation(conversation_id) is not None
        self.model.conversations.pop(conversation_id, None)
        assert self.ask(self.store.delete_conversation("", conversation_id)) is expected

    def teardown(self):
        """Check that deleted and expired rows leave nothing."""
        try:
            for conversation_id in self.model.conversations:
                self.ask(self.store.delete_conversation("", conversation_id))
            self.model.now += 2 * TTL
            self.ask(self.store.sweep())
            info = self.ask(self.store.info())
            assert (dict(info.responses), info.conversations, info.items, info.events) == ({}, 0, 0, 0)
        finally:
            self.runner.run(self.store.close())
            self.runner.close()


LIMITS = settings(max_examples=40, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("kind", ["memory", "sqlite", pytest.param("postgres", marks=[needs_postgres, pytest.mark.long])])
def test_every_store_matches_the_model(make_store, kind) -> None:
    class Machine(StoreMachine):
        def open(self, clock):
            return make_store(kind, ttl=TTL, conversations=CONVERSATION_TTL, clock=clock)

    run_state_machine_as_test(Machine, settings=LIMITS)
