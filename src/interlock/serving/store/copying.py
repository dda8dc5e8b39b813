"""Copies everything from one store to another, which may be of a different kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from interlock.embedding import random_id
from interlock.serving.store import SHARED, Log, ResponseStore, StoredResponse, StoreUnusable

OWNER: Final = "copy"  # owns a copied response in progress until the lease lapses and a server ends the response
PAGE: Final = 256  # events in one read


@frozen
class Copied:
    """The number of copied responses and conversations, and of all that were skipped because the target already had them."""

    responses: int
    conversations: int
    skipped: int


async def copy_store(source: ResponseStore, target: ResponseStore) -> Copied:
    """Copy all responses with their events, and all conversations. No server may write to either store meanwhile.

    What the target already has is skipped, but a partly copied response and an older version of a conversation are copied again.
    The time until a response expires starts anew.

    Raises:
        StoreUnusable: Both are the same store.
    """
    await _require_two_stores(source, target)
    responses = conversations = skipped = 0
    async for tenant, name in source.responses():
        stored = await source.get(tenant, name)
        log = await source.read(tenant, name, 0, PAGE)
        if stored is None or log is None:  # it has expired
            continue
        copy = await target.read(tenant, name, 0, 1)
        if copy is not None and not _is_partial(copy, log):
            skipped += 1
            continue
        if copy is not None:
            await target.delete(tenant, name)
        await _copy_response(source, target, tenant, stored, log)
        responses += 1
    async for tenant, name in source.conversations():
        conversation = await source.conversation(tenant, name)
        items = await source.conversation_items(tenant, name)
        if conversation is None or items is None:
            continue
        copied = await target.conversation(tenant, name)
        if copied is not None and copied.version >= conversation.version:
            skipped += 1
            continue
        await target.create_conversation(tenant, conversation, items)
        conversations += 1
    return Copied(responses, conversations, skipped)


async def _require_two_stores(source: ResponseStore, target: ResponseStore) -> None:
    """Raise `StoreUnusable` if a response in the target is in the source too, because their URLs can differ."""
    probe = StoredResponse({"id": random_id("resp"), "output": []}, ())
    await target.put(SHARED, probe)
    try:
        if await source.get(SHARED, probe.id) is not None:
            raise StoreUnusable("A store cannot be copied to itself.")
    finally:
        await target.delete(SHARED, probe.id)


def _is_partial(copy: Log, log: Log) -> bool:
    """Return whether the copy of a log is incomplete. A complete copy can be longer, if a server has continued it since."""
    if copy.state == "ended":
        return copy.oldest < log.oldest
    return log.state == "ended" or copy.following < log.following or (log.cancelled and not copy.cancelled)


async def _copy_response(source: ResponseStore, target: ResponseStore, tenant: str, stored: StoredResponse, log: Log) -> None:
    if log.state == "ended" and not log.following:  # it was not in the background
        await target.put(tenant, stored)
        return
    lease = await target.enqueue(tenant, stored, OWNER)
    written = 0
    frames: Sequence[bytes] = log.frames or [b""] * log.oldest  # empty frames for removed events, which `trim` removes below
    while written + len(frames) < log.following and frames:
        await target.append(lease, written, frames)
        written += len(frames)
        page = await source.read(tenant, stored.id, written, PAGE)
        frames = () if page is None else page.frames
    if log.state == "ended":
        await target.finish(lease, written, frames, stored)
    elif frames:
        await target.append(lease, written, frames)
    if log.oldest:
        await target.trim(tenant, stored.id)
    if log.cancelled and log.state != "ended":
        await target.cancel(tenant, stored.id)
