"""The commands `interlock store …`: what is in a store, and what has to be done to it by hand.

They open the store that servers use, which may go on meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from interlock.serving.cli.inputs import fail

if TYPE_CHECKING:
    from interlock.serving.store import Info, ResponseStore

R = TypeVar("R")

AT_ONCE: Final = 500
"""Events that are read at once."""

Url = Annotated[
    str,
    typer.Option(
        "--store", envvar="INTERLOCK_STORE", metavar="URL", help="The store: sqlite:PATH, redis://HOST or valkey://HOST."
    ),
]

store = typer.Typer(help="Look into a store of responses, clear it, and bring it up to date.", no_args_is_help=True)


@store.command(epilog="\b\nExamples:\n  interlock store info --store sqlite:responses.db")
def info(url: Url) -> None:
    """Count what is in a store, and show who makes what."""
    typer.echo("\n".join(_told(_run(url, lambda opened: opened.info()))))


@store.command(epilog="\b\nExamples:\n  interlock store sweep --store redis://127.0.0.1")
def sweep(url: Url) -> None:
    """Clear away what is stored no longer. Servers do so too; nobody sees it before either."""
    swept = _run(url, lambda opened: opened.sweep())
    typer.echo(f"{swept.expired} expired responses and {swept.trimmed} logs removed")


@store.command(epilog="\b\nExamples:\n  interlock store migrate --store sqlite:responses.db")
def migrate(url: Url) -> None:
    """Bring the layout of a store up to date. Stop the servers first."""

    async def migrated(opened: ResponseStore) -> tuple[int, int]:
        before = await opened.migrate()
        return before, (await opened.info()).version

    before, after = _run(url, migrated)
    typer.echo(f"layout {after}, as it was" if before == after else f"layout {before} is layout {after} now")


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
    """Write the events of a response that was made in the background, as `interlock check` and `interlock view` read them."""
    from interlock.events.json import dumps

    async def read(opened: ResponseStore) -> bytes | None:
        if not body:
            return await _events(opened, tenant, response_id)
        stored = await opened.get(tenant, response_id)
        return None if stored is None else dumps(stored.response) + b"\n"

    written = _run(url, read)
    if written is None:
        fail(f"the store has no response {response_id!r}")
    if not written:
        fail(f"{response_id} has no events: it was made in the foreground, or its log has gone; --body writes the response")
    if output is None:
        sys.stdout.buffer.write(written)
    else:
        output.write_bytes(written)


async def _events(opened: ResponseStore, tenant: str, response_id: str) -> bytes | None:
    """Return all events that are committed, as they are sent; None if there is no such response."""
    frames: list[bytes] = []
    while log := await opened.read(tenant, response_id, len(frames), AT_ONCE):
        frames += log.frames
        if not log.frames:
            return b"".join(frames)
    return None


def _told(told: Info) -> list[str]:
    responses = ", ".join(f"{count} {state}" for state, count in sorted(told.responses.items())) or "none"
    return [
        f"{told.kind}, layout {told.version}, {told.size:,} bytes",
        f"responses: {responses}",
        f"conversations: {told.conversations}, items: {told.items}, events: {told.events}",
        *(f"{lease.response_id} is made by {lease.owner}, owner number {lease.epoch}" for lease in told.leases),
    ]


def _run(url: str, work: Callable[[ResponseStore], Awaitable[R]]) -> R:
    """Open a store, do something with it, and close it; a store that cannot be used ends the command.

    Raises:
        typer.Exit: It cannot be used.
    """
    from interlock.serving.store import StoreError, open_store

    async def worked() -> R:
        opened = open_store(url)
        try:
            return await work(opened)
        finally:
            await opened.close()

    try:
        return asyncio.run(worked())
    except StoreError as error:
        fail(str(error))
