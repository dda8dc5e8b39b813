"""The `interlock store` commands, which work on a server's store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from interlock.serving.cli.sources import fail

if TYPE_CHECKING:
    from interlock.serving.store import ResponseStore

R = TypeVar("R")

Url = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="INTERLOCK_STORE",
        metavar="URL",
        help="The store: sqlite:PATH, postgresql://HOST/DATABASE, redis://HOST or valkey://HOST.",
    ),
]

store = typer.Typer(help="Inspect, clean up, migrate, copy and export a store.", no_args_is_help=True)


@store.command(epilog="\b\nExamples:\n  interlock store info --store sqlite:responses.db")
def info(url: Url) -> None:
    """Show the size and contents of a store, and its running responses."""
    contents = _run(url, lambda store: store.info())
    responses = ", ".join(f"{count} {state}" for state, count in sorted(contents.responses.items())) or "none"
    typer.echo(f"{contents.kind}, layout {contents.version}, {contents.size:,} bytes")
    typer.echo(f"responses: {responses}")
    typer.echo(f"conversations: {contents.conversations}, items: {contents.items}, events: {contents.events}")
    for lease in contents.leases:
        typer.echo(f"{lease.response_id} runs on {lease.owner} (lease {lease.epoch})")


@store.command(epilog="\b\nExamples:\n  interlock store sweep --store redis://127.0.0.1")
def sweep(url: Url) -> None:
    """Delete expired responses now (servers do this periodically)."""
    deleted = _run(url, lambda store: store.sweep())
    typer.echo(f"deleted {deleted.expired} expired responses and {deleted.trimmed} event logs")


@store.command(epilog="\b\nExamples:\n  interlock store migrate --store sqlite:responses.db")
def migrate(url: Url) -> None:
    """Update the layout of a store; stop its servers first."""

    async def update(store: ResponseStore) -> tuple[int, int]:
        return await store.migrate(), (await store.info()).version

    before, after = _run(url, update)
    typer.echo(f"layout {after} is up to date" if before == after else f"migrated from layout {before} to {after}")


@store.command(epilog="\b\nExamples:\n  interlock store copy sqlite:responses.db postgresql://127.0.0.1/interlock")
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The URL of the store to read.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The URL of the store to write.")],
) -> None:
    """Copy everything from one store to another; stop the servers of both first."""
    from interlock.serving.store.copying import Copied, copy_store

    async def copy_to(store: ResponseStore) -> Copied:
        return await _with(target, lambda new: copy_store(store, new), create=True)

    copied = _run(source, copy_to)
    rest = f"; {copied.skipped} responses were there already" if copied.skipped else ""
    typer.echo(f"copied {copied.responses} responses and {copied.conversations} conversations{rest}")


@store.command(
    epilog="\b\nExamples:\n  interlock store export resp_123 --store sqlite:responses.db > resp_123.sse\n"
    "  interlock store export resp_123 --store sqlite:responses.db | interlock check -"
)
def export(
    response_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the response.")],
    url: Url,
    *,
    tenant: Annotated[
        str,
        typer.Option(metavar="NAME", help="The response's tenant, if the server has several API keys; see docs/security.md."),
    ] = "",
    body: Annotated[bool, typer.Option("--body", help="Write the response as JSON instead of its events.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file.")] = None,
) -> None:
    """Write the events of a background response as a stream."""
    from interlock.events.json import dumps

    async def read(store: ResponseStore) -> bytes | None:
        if not body:
            return await _events(store, tenant, response_id)
        stored = await store.get(tenant, response_id)
        return None if stored is None else dumps(stored.response) + b"\n"

    content = _run(url, read)
    if content is None:
        fail(f"the store has no response {response_id!r}")
    if not content:
        fail(f"{response_id} has no events: it did not run in the background, or its log was deleted; add --body for its JSON")
    if output is None:
        sys.stdout.buffer.write(content)
    else:
        output.write_bytes(content)


async def _events(store: ResponseStore, tenant: str, response_id: str) -> bytes | None:
    """Return the stream of all committed events, with `[DONE]` if the response has ended; None if the response is unknown."""
    from interlock.events.sse import DONE_FRAME

    frames: list[bytes] = []
    while log := await store.read(tenant, response_id, len(frames), limit=500):
        frames += log.frames
        if not log.frames:
            return b"".join([*frames, DONE_FRAME] if frames and log.complete else frames)
    return None


def _run(url: str, work: Callable[[ResponseStore], Awaitable[R]]) -> R:
    """Open a store, await the work on it, and close it; end the command if the store cannot be used."""
    from interlock.serving.store import StoreError

    try:
        return asyncio.run(_with(url, work))
    except StoreError as error:
        fail(str(error))


async def _with(url: str, work: Callable[[ResponseStore], Awaitable[R]], *, create: bool = False) -> R:
    from interlock.serving.store import open_store

    store = open_store(url, create=create)
    try:
        return await work(store)
    finally:
        await store.close()
