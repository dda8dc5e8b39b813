"""Copies everything from one store to another, of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from interlock.serving.store.interface import ResponseStore, StoredResponse

__all__ = ["Copied", "copy_store"]

OWNER: Final = "copy"  # of a response in progress, until its lease lapses and a server ends it
PAGE: Final = 256  # events in one read


@frozen
class Copied:
    """What a copy has written, and how many responses it has left alone because the store had them."""

    responses: int
    conversations: int
    skipped: int


async def copy_store(source: ResponseStore, target: ResponseStore) -> Copied:
    """Copy all responses with their events, and all conversations. No server may write to either store meanwhile.

    Responses that the target has are left as they are, so that a copy that was interrupted can be repeated. The time until a
    response expires starts anew.
    """
    responses = conversations = skipped = 0
    async for tenant, name in source.responses():
        stored = await source.get(tenant, name)
        if stored is None:  # it has expired
            continue
        if await target.get(tenant, name) is None:
            await _copy_response(source, target, tenant, stored)
            responses += 1
        else:
            skipped += 1
    async for tenant, name in source.conversations():
        conversation = await source.conversation(tenant, name)
        items = await source.conversation_items(tenant, name)
        if conversation is not None and items is not None:
            await target.create_conversation(tenant, conversation, items)
            conversations += 1
    return Copied(responses, conversations, skipped)


async def _copy_response(source: ResponseStore, target: ResponseStore, tenant: str, stored: StoredResponse) -> None:
    log = await source.read(tenant, stored.id, 0, PAGE)
    if log is None or (log.state == "ended" and not log.following):  # it was not in the background
        await target.put(tenant, stored)
        return
    lease = await target.enqueue(tenant, stored, OWNER)
    written = 0
    frames: Sequence[bytes] = log.frames or [b""] * log.oldest  # events that have expired stay so
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
