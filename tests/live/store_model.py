"""A model of a store: the table `stored`, and a clock that the test moves."""

from copy import copy

from interlock.fsm.processes.stored import STORED, StoredEffect, StoredTrigger
from interlock.fsm.table import Machine
from interlock.serving.store import LEASE

TTL = 3600
EXPIRED = "expired"


class Row:
    """A response in the model."""

    def __init__(self):
        self.life = Machine.at_start(STORED)
        self.owner, self.epoch, self.until, self.written = None, 0, 0.0, 0.0
        self.frames, self.cancelled, self.stored = [], False, None


class ModelConversation:
    """A conversation in the model."""

    def __init__(self, items):
        self.items, self.version, self.owner, self.until = [*items], 0, None, 0.0


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
        if self.now >= row.written + TTL and StoredTrigger.EXPIRE in row.life.state.rows:
            del self.rows[name]
            return Row()
        return row

    def write(self, name, trigger, *, lease=None, owner=None, first=0, frames=(), stored=None, addition=None):
        """Fire an edge; return the row, the name of the error that a store must raise, or None if a store writes nothing."""
        row = self.row(name)
        if lease is not None and (trigger not in row.life.state.rows or (row.owner, row.epoch) != lease):
            return "LeaseLost"
        if trigger not in row.life.state.rows:
            return "Conflict" if stored is not None else None
        _, effects = row.life.state.rows[trigger]
        if StoredEffect.LOG in effects and first != len(row.frames):
            return "SequenceError"
        conversation = None if addition is None else self.conversations.get(addition.conversation_id)
        if addition is not None and (conversation is None or conversation.version != addition.version):
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
            case StoredEffect.REMOVE:
                del self.rows[name]
            case StoredEffect.JOIN if addition is not None:
                conversation = self.conversations[addition.conversation_id]
                conversation.items += addition.items
                conversation.version, conversation.owner = conversation.version + 1, None
            case _:
                pass

    def is_held(self, conversation, owner=None):
        return conversation.owner not in {None, owner} and not self.over(conversation.until)
