"""A model of a store: the tables `stored` and `conversation`, and a clock that the test moves."""

from copy import copy

from interlock.fsm.table import Machine
from interlock.serving.store.tables import (
    CONVERSATION,
    STORED,
    ConversationEffect,
    ConversationTrigger,
    StoredEffect,
    StoredTrigger,
)
from interlock.serving.store.values import LEASE

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
        self.life = Machine.at_start(CONVERSATION)
        self.life.fire(ConversationTrigger.CREATE)
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

    def conversation_edge(self, conversation, trigger, owner):
        state = conversation.life.state
        if ConversationTrigger.LAPSE in state.rows and self.over(conversation.until):
            state, _ = state.rows[ConversationTrigger.LAPSE]  # not stored, because the clock may be set back
        return state.row_for(trigger, is_owner=owner == conversation.owner)

    def may_change(self, conversation_id, trigger, owner=None):
        conversation = self.conversations.get(conversation_id)
        return conversation is not None and self.conversation_edge(conversation, trigger, owner) is not None

    def change(self, conversation_id, trigger, owner=None):
        """Fire an edge of a conversation that `may_change`."""
        conversation = self.conversations[conversation_id]
        conversation.life.state, effects = self.conversation_edge(conversation, trigger, owner)
        for effect in effects:
            match effect:
                case ConversationEffect.TAKE:
                    conversation.owner, conversation.until = owner, self.now + LEASE
                case ConversationEffect.WRITE:
                    conversation.version += 1
                case ConversationEffect.FREE:
                    conversation.owner = None
                case _:
                    pass
