"""The conversations of a store in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import getsizeof
from time import monotonic
from typing import Final, Literal, TypeAlias, assert_never

from attrs import define, evolve, field

from interlock.fsm.processes.conversation import ConversationEffect, ConversationTrigger
from interlock.serving.requests.conversation import Item
from interlock.serving.store.errors import Conflict
from interlock.serving.store.holds import effects_of, is_held
from interlock.serving.store.leases import LEASE
from interlock.serving.store.packing import pack
from interlock.serving.store.shelf import Shelf, unpacked
from interlock.serving.store.values import Addition, Conversation

__all__ = ["MemoryConversations"]

Key: TypeAlias = tuple[str, str]
"""Tenant and id."""
Kind: TypeAlias = Literal["response", "conversation"]
Entry: TypeAlias = tuple[Kind, Key]

_T, _E = ConversationTrigger, ConversationEffect

PER_CONVERSATION: Final = 1500
"""Bytes that the tables take for a conversation beside its items and its metadata."""


@define(eq=False)
class HeldConversation:
    """A conversation as it is held.

    Args:
        said: What the client knows of it.
        items: Its items as JSON, in their order.
        owner: Who keeps others from adding to it.
        until: When that ends, by the clock of the store.
        size: Bytes that it takes beside its items.
    """

    said: Conversation
    items: list[bytes] = field(factory=list[bytes])
    owner: str = ""
    until: float = 0.0
    size: int = 0


@define(eq=False)
class MemoryConversations:
    """Holds conversations until the process ends; see `ConversationStore`.

    Args:
        clock: Tells the time in seconds; one that is never set back.
    """

    clock: Callable[[], float] = field(default=monotonic, kw_only=True)
    _shelf: Shelf = field(factory=Shelf, init=False)
    _conversations: dict[Key, HeldConversation] = field(factory=dict[Key, HeldConversation], init=False)
    _conversations_size: int = field(default=0, init=False)
    """Bytes that they take beside their items."""
    _order: OrderedDict[Entry, None] = field(factory=OrderedDict[Entry, None], init=False)
    """All that is held; what was used last is the last."""

    async def create_conversation(self, tenant: str, conversation: Conversation, items: Sequence[Item] = ()) -> None:
        """Store a new conversation."""
        await self.delete_conversation(tenant, conversation.id)
        held = self._conversations[tenant, conversation.id] = HeldConversation(conversation)
        self._use("conversation", (tenant, conversation.id))
        self._grow(tenant, held, items)
        self._make_room()

    async def conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        """Return a conversation."""
        held = self._conversation(tenant, conversation_id)
        return None if held is None else held.said

    async def update_conversation(self, tenant: str, conversation_id: str, metadata: Mapping[str, object]) -> Conversation | None:
        """Give a conversation other metadata."""
        held = self._conversation(tenant, conversation_id)
        if held is None:
            return None

        def write() -> None:
            held.said = evolve(held.said, metadata=metadata)

        self._fire(held, _T.DESCRIBE, write)
        self._measure(held)
        return held.said

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Delete a conversation."""
        key = tenant, conversation_id
        held = self._conversations.get(key)
        if held is not None:
            self._fire(held, _T.DELETE, lambda: self._evict(("conversation", key)))
        return held is not None

    async def conversation_items(self, tenant: str, conversation_id: str) -> tuple[Item, ...] | None:
        """Return the items of a conversation."""
        held = self._conversation(tenant, conversation_id)
        return None if held is None else tuple(map(unpacked, held.items))

    async def add_items(self, tenant: str, conversation_id: str, items: Sequence[Item]) -> Conversation | None:
        """Add items to a conversation that nobody holds."""
        held = self._conversation(tenant, conversation_id)
        if held is None:
            return None
        self._fire(held, _T.CHANGE, lambda: self._grow(tenant, held, items))
        self._make_room()
        return held.said

    async def delete_item(self, tenant: str, conversation_id: str, item_id: str) -> Conversation | None:
        """Remove an item from a conversation that nobody holds."""
        held = self._conversation(tenant, conversation_id)
        places = [] if held is None else [place for place, packed in enumerate(held.items) if unpacked(packed)["id"] == item_id]
        if held is None or not places:
            return None
        self._fire(held, _T.CHANGE, lambda: self._shelf.drop(tenant, held.items.pop(places[0])))
        self._measure(held)
        return held.said

    async def hold(self, tenant: str, conversation_id: str, owner: str) -> int | None:
        """Keep others from adding to a conversation."""
        held = self._conversation(tenant, conversation_id)
        if held is None:
            return None
        self._fire(held, _T.HOLD, by=owner)
        return held.said.version

    async def release(self, tenant: str, conversation_id: str, owner: str) -> None:
        """Let others add to a conversation again."""
        held = self._conversation(tenant, conversation_id)
        if held is not None:
            self._fire(held, _T.RELEASE, by=owner)

    def _conversation(self, tenant: str, conversation_id: str) -> HeldConversation | None:
        """Return a conversation, which is now the one used last."""
        key = tenant, conversation_id
        if key in self._conversations:
            self._use("conversation", key)
        return self._conversations.get(key)

    def _grow(self, tenant: str, held: HeldConversation, items: Iterable[Item]) -> None:
        held.items += [self._shelf.take(tenant, item) for item in items]
        self._measure(held)

    def _measure(self, held: HeldConversation) -> None:
        before, held.size = held.size, PER_CONVERSATION + len(pack(held.said.metadata)) + getsizeof(held.items)
        self._conversations_size += held.size - before

    def _fire(
        self, held: HeldConversation, trigger: ConversationTrigger, write: Callable[[], None] = lambda: None, by: str = ""
    ) -> None:
        """Fire an edge of a conversation, and carry out its effects.

        Args:
            held: The conversation.
            trigger: What is fired.
            write: Changes what an edge changes beside the hold and the version.
            by: Who holds it, or is to.

        Raises:
            Conflict: Another holds it.
        """
        for effect in effects_of(held.said.id, held.owner, held.until, self.clock(), trigger, by):
            match effect:
                case _E.KEEP | _E.DESCRIBE | _E.REMOVE:
                    write()
                case _E.WRITE:
                    write()
                    held.said = evolve(held.said, version=held.said.version + 1)
                case _E.TAKE:
                    held.owner, held.until = by, self.clock() + LEASE
                case _E.FREE:
                    held.owner = ""
                case _:
                    assert_never(effect)

    def _require_version(self, tenant: str, addition: Addition | None) -> None:
        """Refuse an addition to a conversation that has changed, before anything is written.

        Raises:
            Conflict: The conversation has changed, or is gone.
        """
        if addition is None:
            return
        held = self._conversations.get((tenant, addition.conversation_id))
        if held is None or held.said.version != addition.version:
            raise Conflict(f"The conversation '{addition.conversation_id}' has changed meanwhile.")

    def _join(self, tenant: str, addition: Addition | None) -> None:
        """Add to a conversation what `_require_version` has let through."""
        if addition is not None:
            held = self._conversations[tenant, addition.conversation_id]
            self._fire(held, _T.JOIN, lambda: self._grow(tenant, held, addition.items))

    def _use(self, kind: Kind, key: Key) -> None:
        """Note that something is used now."""
        self._order[kind, key] = None
        self._order.move_to_end((kind, key))

    def _may_go(self, entry: Entry) -> bool:
        """Return whether something may be evicted: a conversation that nobody holds."""
        held = self._conversations[entry[1]]
        return not is_held(held.owner, held.until, self.clock())

    def _evict(self, entry: Entry) -> None:
        """Remove something."""
        tenant, _ = entry[1]
        held = self._conversations.pop(entry[1])
        del self._order[entry]
        self._conversations_size -= held.size
        for packed in held.items:
            self._shelf.drop(tenant, packed)

    def _evict_one(self, *kinds: Kind) -> bool:
        """Evict what was not used longest of these kinds, but not what was used last of all; return whether something was."""
        last = next(reversed(self._order))
        for entry in self._order:
            if entry[0] in kinds and entry is not last and self._may_go(entry):
                self._evict(entry)
                return True
        return False

    def _make_room(self) -> None:
        """Make room where too much is held."""
        raise NotImplementedError
