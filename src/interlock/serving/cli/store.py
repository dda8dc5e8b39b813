"""The commands `interlock store …`: what is in a store, and what an operator has to do to it by hand.

They open the store that servers use, which may go on meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from interlock.serving.cli.sources import fail

if TYPE_CHECKING:
    from interlock.serving.store import ResponseStore

R = TypeVar("R")

AT_ONCE: Final = 500
"""The most events that are read at once."""

Url = Annotated[
    str,
    typer.Option(
        "--store", envvar="INTERLOCK_STORE", metavar="URL", help="The store: sqlite:PATH, redis://HOST or valkey://HOST."
    ),
]

store = typer.Typer(help="Look into a store, delete what is expired, and migrate it.", no_args_is_help=True)


@store.command(epilog="\b\nExamples:\n  interlock store info --store sqlite:responses.db")
def info(url: Url) -> None:
    """Count what is in a store, and show which server makes which response."""
    stored = _run(url, lambda store: store.info())
    responses = ", ".join(f"{count} {state}" for state, count in sorted(stored.responses.items())) or "none"
    typer.echo(f"{stored.kind}, layout {stored.version}, {stored.size:,} bytes")
    typer.echo(f"responses: {responses}")
    typer.echo(f"conversations: {stored.conversations}, items: {stored.items}, events: {stored.events}")
    for lease in stored.leases:
        typer.echo(f"{lease.response_id} is made by {lease.owner}, owner number {lease.epoch}")


@store.command(epilog="\b\nExamples:\n  interlock store sweep --store redis://127.0.0.1")
def sweep(url: Url) -> None:
    """Delete expired responses now. Servers do this periodically."""
    deleted = _run(url, lambda store: store.sweep())
    typer.echo(f"{deleted.expired} expired responses and {deleted.trimmed} logs removed")


@store.command(epilog="\b\nExamples:\n  interlock store migrate --store sqlite:responses.db")
def migrate(url: Url) -> None:
    """Bring the layout of a store up to date. Stop the servers first."""

    async def work(store: ResponseStore) -> tuple[int, int]:
        return await store.migrate(), (await store.info()).version

    before, after = _run(url, work)
    typer.echo(f"layout {after} is up to date" if before == after else f"migrated from layout {before} to {after}")


@store.command(
    epilog="\b\nExamples:\n  interlock store export resp_123 --store sqlite:responses.db > resp_123.sse\n"
    "  interlock store export resp_123 --store sqlite:responses.db | interlock check -"
)
def export(
    response_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the response.")],
    url: Url,
    *,
    tenant: Annotated[str, typer.Option(help="To whom it belongs; by default to all who share the store.")] = "",
    body: Annotated[bool, typer.Option("--body", help="Write the response as JSON instead of its events.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write into a file.")] = None,
) -> None:
    """Write the events of a background response, for `interlock check` and `interlock view`."""
    from interlock.events.json import dumps

    async def work(store: ResponseStore) -> bytes | None:
        if not body:
            return await _events(store, tenant, response_id)
        stored = await store.get(tenant, response_id)
        return None if stored is None else dumps(stored.response) + b"\n"

    content = _run(url, work)
    if content is None:
        fail(f"the store has no response {response_id!r}")
    if not content:
        fail(f"{response_id} has no events: it was made in the foreground, or its log is deleted; --body writes the response")
    if output is None:
        sys.stdout.buffer.write(content)
    else:
        output.write_bytes(content)


async def _events(store: ResponseStore, tenant: str, response_id: str) -> bytes | None:
    """Return all committed events, as they are sent; None if there is no such response."""
    frames: list[bytes] = []
    while log := await store.read(tenant, response_id, len(frames), AT_ONCE):
        frames += log.frames
        if not log.frames:
            return b"".join(frames)
    return None


def _run(url: str, work: Callable[[ResponseStore], Awaitable[R]]) -> R:
    """Open a store, do something with it, and close it; end the command if the store cannot be used.

    Raises:
        typer.Exit: It cannot be used.
    """
    from interlock.serving.store import StoreError, open_store

    async def run() -> R:
        store = open_store(url)
        try:
            return await work(store)
        finally:
            await store.close()

    try:
        return asyncio.run(run())
    except StoreError as error:
        fail(str(error))
