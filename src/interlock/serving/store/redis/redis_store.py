"""A store in Redis or Valkey, which the processes of several hosts may share.

What is acknowledged is there as long as Redis keeps it: with `appendfsync always` whatever happens, with `everysec` but for the
last second before the machine stops. Redis must not evict (`maxmemory-policy noeviction`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from attrs import define, field

from interlock.fsm.processes.conversation import ConversationTrigger
from interlock.fsm.processes.stored import StoredTrigger
from interlock.serving.requests.input_items import Item
from interlock.serving.store.chain import Chunk, body_of, chunks_of, links_of, pack, put_together, unpack, unpack_item
from interlock.serving.store.edits import Edit, EditResult, ResponseEdits
from interlock.serving.store.notifications import Notifications, Subscription
from interlock.serving.store.records import Conversation, Expired, Info, Lease, Log, StoredResponse
from interlock.serving.store.redis.client import CONNECTIONS, VERSION, Calls, Disconnected
from interlock.serving.store.redis.listening import Listener
from interlock.serving.store.store_errors import Conflict, Gap, LeaseLost, StoreDown

__all__ = ["RedisStore"]

_T = ConversationTrigger

LONG: Final = 16
"""Items of a conversation from which on it is arguments first how much of it is stored already, to send the rest only."""

SWEPT_AT_ONCE: Final = 100
"""Responses that are removed by one script, during which Redis does nothing else."""

_LEASED: Final = frozenset({StoredTrigger.APPEND, StoredTrigger.RENEW, StoredTrigger.FINISH})
_NEW: Final = frozenset({StoredTrigger.PUT, StoredTrigger.ENQUEUE})

_ONCE: Final = frozenset({_T.CHANGE, _T.DELETE})
"""What does something else to a conversation when it is done again."""


@define(eq=False)
class RedisStore(ResponseEdits):
    """Holds responses in Redis; see `ResponseStore`.

    Args:
        url: `redis://` or `rediss://`, with host, port, database, and perhaps a password.
        ttl: Seconds for which a response is stored after it was written last; None for ever. Conversations stay.
        logs: Seconds for which the events of a response are, after its end; None for as long as it.
        clock: Tells the time in seconds; None for the clock of Redis, which all processes have in common. Another is for tests.
        max_connections: How many connections this process has at most, two or more: one of them only listens for changes.
    """

    url: str
    ttl: float | None = None
    logs: float | None = field(default=None, kw_only=True)
    clock: Callable[[], float] | None = field(default=None, kw_only=True)
    max_connections: int = field(default=CONNECTIONS, kw_only=True)
    _notifications: Notifications = field(factory=Notifications, init=False)
    _calls: Calls = field(init=False)
    _listener: Listener = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make what connects when it is needed."""
        self._calls = Calls(self.url, self.ttl, self.logs, self.clock, self.max_connections)
        self._listener = Listener(self._calls, self._notifications)

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """Return a response."""
        reply = await self._calls.run("get", tenant, {"id": response_id})
        if reply is None:
            return None
        body, outputs, items = reply
        return put_together(body, reversed(items), int(outputs))

    async def find(self, tenant: str, item_ids: Iterable[str]) -> Mapping[str, Item]:
        """Return items that are stored."""
        wanted = [*item_ids]
        bodies: list[bytes] = await self._calls.run("find", tenant, {"ids": wanted}) if wanted else []
        return {item_id: unpack_item(body) for item_id, body in zip(wanted, bodies, strict=True) if body}

    async def read(self, tenant: str, response_id: str, first: int, limit: int) -> Log | None:
        """Return events of a response."""
        reply = await self._calls.run("read", tenant, {"id": response_id, "first": first, "limit": limit})
        if reply is None:
            return None
        frames, oldest, following, state, cancelled = reply
        return Log(tuple(frames), first, int(oldest), int(following), state.decode(), bool(cancelled))

    @contextmanager
    def watching(self, tenant: str, response_id: str) -> Generator[Subscription]:
        """Subscribe to a response."""
        with self._notifications.subscribe(tenant, response_id) as subscription:
            self._listener.hurry()
            yield subscription
        self._listener.hurry()

    async def create_conversation(self, tenant: str, conversation: Conversation, items: Sequence[Item] = ()) -> None:
        """Store a new conversation."""
        fields = {"created_at": conversation.created_at, "version": conversation.version}
        await self._converse(tenant, conversation.id, _T.CREATE, items, [pack(conversation.metadata)], **fields)

    async def conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        """Return a conversation."""
        return _conversation(conversation_id, await self._converse(tenant, conversation_id, "look"))

    async def update_conversation(self, tenant: str, conversation_id: str, metadata: Mapping[str, object]) -> Conversation | None:
        """Give a conversation other metadata."""
        return _conversation(conversation_id, await self._converse(tenant, conversation_id, _T.DESCRIBE, (), [pack(metadata)]))

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Delete a conversation."""
        return await self._converse(tenant, conversation_id, _T.DELETE) is not None

    async def conversation_items(self, tenant: str, conversation_id: str) -> tuple[Item, ...] | None:
        """Return the items of a conversation."""
        reply = await self._converse(tenant, conversation_id, "items")
        return None if reply is None else tuple(unpack_item(body) for body in reply[0])

    async def add_items(self, tenant: str, conversation_id: str, items: Sequence[Item]) -> Conversation | None:
        """Add items to a conversation that nobody holds."""
        return _conversation(conversation_id, await self._converse(tenant, conversation_id, _T.CHANGE, items))

    async def delete_item(self, tenant: str, conversation_id: str, item_id: str) -> Conversation | None:
        """Remove an item from a conversation that nobody holds."""
        return _conversation(conversation_id, await self._converse(tenant, conversation_id, _T.CHANGE, item=item_id))

    async def hold(self, tenant: str, conversation_id: str, owner: str) -> int | None:
        """Keep others from adding to a conversation."""
        conversation = _conversation(conversation_id, await self._converse(tenant, conversation_id, _T.HOLD, owner=owner))
        return None if conversation is None else conversation.version

    async def release(self, tenant: str, conversation_id: str, owner: str) -> None:
        """Let others add to a conversation again."""
        await self._converse(tenant, conversation_id, _T.RELEASE, owner=owner)

    async def lost(self, limit: int) -> Sequence[tuple[str, str]]:
        """Return responses whose owner is lost."""
        lost: list[tuple[str, str]] = []
        for tenant in await self._calls.tenants():
            reply = await self._calls.run("lost", tenant, {"limit": limit})
            lost += [(tenant, name.decode()) for name in reply]
        return lost[:limit]

    async def sweep(self) -> Expired:
        """Remove what is stored no longer."""
        expired, trimmed = 0, 0
        for tenant in await self._calls.tenants():
            while True:
                removed, names = await self._calls.run("sweep", tenant, {"limit": SWEPT_AT_ONCE})
                for name in names:
                    trimmed += await self._write(tenant, name.decode(), Edit(StoredTrigger.TRIM)) is not None
                expired += removed
                if max(removed, len(names)) < SWEPT_AT_ONCE:
                    break
        return Expired(expired, trimmed)

    async def info(self) -> Info:
        """Return what is in the store; the size is that of all of the server."""
        counts: Counter[str] = Counter()
        leases: list[Lease] = []
        conversations = items = events = 0
        for tenant in await self._calls.tenants():
            states, owners, logged, talks, chunks = await self._calls.run("census", tenant, {})
            counts.update(state.decode() for state in states)
            leases += [Lease(tenant, name.decode(), owner.decode(), int(epoch)) for name, owner, epoch in owners]
            conversations, items, events = conversations + talks, items + int(chunks), events + logged
        about = await self._calls.about()
        kind = f"Redis {about['redis_version']}"
        return Info(kind, VERSION, counts, conversations, items, events, int(about["used_memory"]), tuple(leases))

    async def migrate(self) -> int:
        """Bring the layout up to date; there is one only.

        Raises:
            StoreDown: The server has the layout of a newer release.
        """
        version = await self._calls.layout()
        if version > VERSION:
            message = f"The store has the layout {version}, of a newer release of Interlock; {VERSION} is known here."
            raise StoreDown(message)
        return version

    async def close(self) -> None:
        """Let go of the connections. What is arguments for afterwards connects again."""
        await self._listener.stop()
        await self._calls.close()

    async def _converse(
        self,
        tenant: str,
        conversation_id: str,
        what: str,
        items: Sequence[Item] = (),
        values: Sequence[bytes] = (),
        **fields: object,
    ) -> Any:  # noqa: ANN401 - Redis'
        chunks = chunks_of(tenant, items)
        named = [[chunk.digest.hex(), chunk.id] for chunk in chunks]
        arguments = {"id": conversation_id, "what": what, "items": named, **fields}
        bodies = [*values, *(chunk.packed for chunk in chunks)]
        reply = await self._calls.run("converse", tenant, arguments, bodies, again=what not in _ONCE)
        if reply == b"held":
            raise Conflict(f"A response is being made that adds to the conversation '{conversation_id}'.")
        return reply

    async def _write(self, tenant: str, response_id: str, edit: Edit) -> EditResult | None:
        """Fire the edge of an edit in a script."""
        chunks = () if edit.stored is None else chunks_of(tenant, edit.stored.conversation)
        links = [link.hex() for link in links_of(tenant, chunks)]
        known = await self._calls.run("known", tenant, {"links": links}) if len(links) > LONG else 0
        try:
            reply = await self._run_write(tenant, response_id, edit, chunks, links, known)
        except Disconnected:
            if not _may_come_again(edit):
                raise
            reply = await self._run_write(tenant, response_id, edit, chunks, links, 0)
            if _was_made(edit, reply):
                return EditResult(max(edit.epoch, 1), cancelled=False)
        if reply[0] == b"again":  # what was there of the conversation has been deleted meanwhile
            reply = await self._run_write(tenant, response_id, edit, chunks, links, 0)
        match reply:
            case [b"ok", epoch, cancelled]:
                return EditResult(int(epoch), bool(cancelled))
            case [b"gap", expected]:
                raise Gap(int(expected), edit.first)
            case [b"lease", state, _]:
                raise LeaseLost(f"The lease of {edit.owner!r} is over: the response is {state.decode()}.")
            case [b"none", state, _] if edit.trigger in _NEW:
                raise Conflict(f"There is a response with that id already; it is {state.decode()}.")
            case [b"changed"]:
                raise Conflict(f"The conversation '{_joined(edit)}' has changed meanwhile.")
            case _:
                return None

    async def _run_write(
        self, tenant: str, response_id: str, edit: Edit, chunks: Sequence[Chunk], links: Sequence[str], known: int
    ) -> list[Any]:
        """Run the script that writes."""
        stored, addition = edit.stored, edit.addition
        added = () if addition is None else chunks_of(tenant, addition.items)
        arguments: dict[str, object] = {
            "id": response_id,
            "trigger": edit.trigger,
            "leased": edit.trigger in _LEASED,
            "owner": edit.owner,
            "epoch": edit.epoch,
            "first": edit.first,
            "known": links[known - 1] if known else "",
            "links": [[link, *_named(chunk)] for link, chunk in zip(links[known:], chunks[known:], strict=True)],
            "outputs": 0 if stored is None else len(stored.output),
            "conversation": _joined(edit),
            "version": 0 if addition is None else addition.version,
            "added": [[*_named(chunk)] for chunk in added],
        }
        body = b"" if stored is None else body_of(stored)
        values = [body, *(chunk.packed for chunk in (*chunks[known:], *added)), *edit.frames]
        reply: list[Any] = await self._calls.run("write", tenant, arguments, values, again=False)
        return reply


def _joined(edit: Edit) -> str:
    """Return the conversation to which an edit adds."""
    return "" if edit.addition is None else edit.addition.conversation_id


def _may_come_again(edit: Edit) -> bool:
    """Return whether an edit may be made again when it is not known whether it was made: whether it can be seen afterwards."""
    return edit.trigger not in {StoredTrigger.ADOPT, StoredTrigger.DELETE} and edit.addition is None


def _was_made(edit: Edit, reply: Sequence[Any]) -> bool:
    """Return whether the refusal of an edit that came again says that it was made the first time: by nobody else."""
    match reply:
        case [b"gap", expected]:
            return int(expected) == edit.first + len(edit.frames)
        case [b"lease", b"ended", epoch]:
            return edit.trigger is StoredTrigger.FINISH and int(epoch) == edit.epoch
        case [b"none", b"queued", owner]:
            return edit.trigger is StoredTrigger.ENQUEUE and owner.decode() == edit.owner
        case _:
            return False


def _named(chunk: Chunk) -> tuple[str, str]:
    return chunk.digest.hex(), chunk.id


def _conversation(conversation_id: str, reply: Any) -> Conversation | None:  # noqa: ANN401 - Redis'
    if reply is None:
        return None
    created_at, metadata, version = reply
    return Conversation(conversation_id, int(created_at), cast("Mapping[str, object]", unpack(metadata)), int(version))
