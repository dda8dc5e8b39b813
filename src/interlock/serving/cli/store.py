"""The `interlock store` commands, which work on a server's store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from interlock.serving.cli.options import examples
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
    help="The store: sqlite:PATH or postgresql://HOST/DATABASE.",
)


@click.group()
def store() -> None:
    """Inspect, clean up and migrate a store."""


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


@store.command(epilog=examples("interlock store sweep --store postgresql://127.0.0.1/interlock"))
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


def _run(url: str, work: Callable[[ResponseStore], Awaitable[R]]) -> R:
    """Open a store that exists, await the work on it, and close it; end the command if the store cannot be used."""
    from interlock.serving.store import StoreError, open_store

    async def run() -> R:
        store = open_store(url, create=False)
        try:
            return await work(store)
        finally:
            await store.close()

    try:
        return asyncio.run(run())
    except StoreError as error:
        fail(str(error))
