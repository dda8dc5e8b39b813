"""The `interlock store` commands, which work on a server's store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from interlock.serving.cli.options import FILE, examples
from interlock.serving.cli.sources import fail

if TYPE_CHECKING:
    from interlock.serving.store import ResponseStore

R = TypeVar("R")

url_option = click.option(
    "--store",
    "url",
    envvar="INTERLOCK_STORE",
    show_envvar=True,
    required=True,
    metavar="URL",
    help="The store: sqlite:PATH, postgresql://HOST/DATABASE, redis://HOST or valkey://HOST.",
)


@click.group()
def store() -> None:
    """Inspect, clean up, migrate, copy and export a store."""


@store.command(epilog=examples("interlock store info --store sqlite:responses.db"))
@url_option
def info(url: str) -> None:
    """Show the size and contents of a store, and its running responses."""
    contents = _run(url, lambda store: store.info())
    responses = ", ".join(f"{count} {state}" for state, count in sorted(contents.responses.items())) or "none"
    click.echo(f"{contents.kind}, layout {contents.version}, {contents.size:,} bytes")
    click.echo(f"responses: {responses}")
    click.echo(f"conversations: {contents.conversations}, items: {contents.items}, events: {contents.events}")
    for lease in contents.leases:
        click.echo(f"{lease.response_id} runs on {lease.owner} (lease {lease.epoch})")


@store.command(epilog=examples("interlock store sweep --store redis://127.0.0.1"))
@url_option
def sweep(url: str) -> None:
    """Delete expired responses now (servers do this periodically)."""
    deleted = _run(url, lambda store: store.sweep())
    click.echo(f"deleted {deleted.expired} expired responses and {deleted.trimmed} event logs")


@store.command(epilog=examples("interlock store migrate --store sqlite:responses.db"))
@url_option
def migrate(url: str) -> None:
    """Update the layout of a store; stop its servers first."""

    async def update(store: ResponseStore) -> tuple[int, int]:
        return await store.migrate(), (await store.info()).version

    before, after = _run(url, update)
    if before == after:
        click.echo(f"layout {after} is up to date")
    else:
        click.echo(f"migrated from layout {before} to {after}" if before else f"created with layout {after}")


@store.command(epilog=examples("interlock store copy sqlite:responses.db postgresql://127.0.0.1/interlock"))
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
def copy(source: str, target: str) -> None:
    """Copy everything from one store to another. Stop the servers of both first.

    FROM and TO are the URLs of the stores.
    """
    from interlock.serving.store.copying import Copied, copy_store

    async def copy_to(store: ResponseStore) -> Copied:
        return await _run_with(target, lambda new: copy_store(store, new), create=True)

    copied = _run(source, copy_to)
    rest = f"; {copied.skipped} were there already" if copied.skipped else ""
    click.echo(f"copied {copied.responses} responses and {copied.conversations} conversations{rest}")


@store.command(
    epilog=examples(
        "interlock store export resp_123 --store sqlite:responses.db > resp_123.sse",
        "interlock store export resp_123 --store sqlite:responses.db | interlock check -",
    )
)
@click.argument("response_id", metavar="ID")
@url_option
@click.option(
    "--tenant",
    default="",
    show_default=False,
    metavar="NAME",
    help="The response's tenant, if the server has several API keys; see docs/security.md.",
)
@click.option("--body", is_flag=True, help="Write the response as JSON instead of its events.")
@click.option("--output", "-o", type=FILE, metavar="FILE", help="Write to a file.")
def export(response_id: str, url: str, *, tenant: str, body: bool, output: Path | None) -> None:
    """Write the events of the background response ID as a stream."""
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
        return asyncio.run(_run_with(url, work))
    except StoreError as error:
        fail(str(error))


async def _run_with(url: str, work: Callable[[ResponseStore], Awaitable[R]], *, create: bool = False) -> R:
    from interlock.serving.store import open_store

    store = open_store(url, create=create)
    try:
        return await work(store)
    finally:
        await store.close()
