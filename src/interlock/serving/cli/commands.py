"""The list of the commands, each imported when it is needed, and the commands `record`, `replay` and `store`."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final, TypeVar

import click

import interlock
from interlock.events.dialects import DIALECTS, DialectName
from interlock.serving.cli.options import (
    FILE,
    UPSTREAM,
    bind,
    dialect_option,
    examples,
    fail,
    options_of,
    required_upstreams,
    settings_of,
)

if TYPE_CHECKING:
    from interlock.serving.store.response_store import ResponseStore


R = TypeVar("R")

COMMANDS: Final[Mapping[str, str]] = {
    "serve": "serving.cli.serve",
    "run": "serving.cli.run_client",
    "record": "serving.cli.commands",
    "doctor": "testing.conformance.commands",
    "check": "serving.cli.check",
    "conformance": "testing.conformance.commands",
    "view": "serving.cli.view",
    "verify": "serving.cli.machines",
    "diagram": "serving.cli.machines",
    "replay": "serving.cli.commands",
    "store": "serving.cli.commands",
}
"""The modules of the commands below `interlock`, in the order of the help."""


class Commands(click.Group):
    """The command `interlock`, which imports a command when it runs it or lists it in its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        del ctx
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return None if there is none of this name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"interlock.{COMMANDS[cmd_name]}"), cmd_name)
        return command


def _show_completion(context: click.Context, _option: click.Parameter, shell: str | None) -> None:
    from click.shell_completion import get_completion_class

    completion = get_completion_class(shell or "")
    if completion is not None:
        click.echo(completion(context.command, {}, "interlock", "_INTERLOCK_COMPLETE").source())
        context.exit()


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="Run `interlock COMMAND --help` for the options of a command and examples.",
)
@click.version_option(interlock.__version__, "--version", "-V", message="interlock %(version)s")
@click.option(
    "--show-completion",
    type=click.Choice(["bash", "zsh", "fish"]),
    is_flag=False,
    flag_value=PurePath(os.environ.get("SHELL", "bash")).name,
    is_eager=True,
    expose_value=False,
    callback=_show_completion,
    help="Print the completion for a shell, by default the user's own; append it to the shell's configuration.",
)
def app() -> None:
    """Connect any agent to any model; check, view and mock streams."""
    gc.enable()


def run() -> None:
    """Run the command that the arguments name, and exit with its status; raise `KeyboardInterrupt` after Ctrl-C."""
    try:
        sys.exit(app(standalone_mode=False))  # otherwise click ends the process with status 1 after Ctrl-C
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort as error:
        raise KeyboardInterrupt from error


@click.command(epilog=examples("interlock record --upstream http://127.0.0.1:11434 -o weather.json"))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="The script to write.",
)
@options_of("host", "port", *UPSTREAM)
def record(output: Path, **_options: object) -> None:
    """Record the answers of a server as a script.

    Clients use the models of the server through this one. The script, a JSON file, has the users' messages and the answers, but
    no keys and no headers.
    """
    from interlock.serving.build import build_tools, compose
    from interlock.serving.engines.upstream.script_recorder import RecordingGateway, ScriptRecorder
    from interlock.serving.http import server

    settings = settings_of()
    upstreams = required_upstreams(settings)
    if output.suffix != ".json":
        fail(f"-o {output}: a recorded script is JSON; choose a name that ends with .json")
    listening = bind(server.listen, settings.host, settings.port)
    application = compose(settings, RecordingGateway(upstreams, recorder=ScriptRecorder(output)), build_tools(settings))
    message = f"Recording {output} at {server.url_of(listening)}/v1"
    server.serve(application, listening, on_ready=lambda: click.echo(message, err=True))


@click.command(
    epilog=examples(
        "interlock replay examples/recordings/web-search.jsonl",
        "interlock replay examples/recordings/answer.jsonl --chunk 1 | interlock check -",
    )
)
@click.argument("file", type=FILE, metavar="FILE|-")
@click.option("--chunk", type=click.IntRange(min=1), metavar="N", help="Split the output into chunks of N tokens.")
@click.option("--stream/--no-stream", default=True, help="Write the stream, or only the final response as JSON.")
@dialect_option("The dialect of the stream.")
def replay(file: Path, *, chunk: int | None, stream: bool, dialect: DialectName) -> None:
    """Write the stream of a recording.

    FILE is a recording of an engine's output, or - for standard input. It goes through the same parser, driver and writer as
    the output of an engine in the server.
    """
    import orjson

    from interlock.serving.cli.options import read_recording
    from interlock.serving.engines.recordings import rechunk, replay_frames, replay_response

    recording = read_recording(file)
    recording = recording if chunk is None else rechunk(recording, chunk)
    if stream:
        sys.stdout.buffer.writelines(replay_frames(recording, DIALECTS[dialect]))
    else:
        response = DIALECTS[dialect].convert(replay_response(recording))
        sys.stdout.buffer.write(orjson.dumps(response, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


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
    """Inspect and clean up a store."""


@store.command(epilog=examples("interlock store info --store sqlite:responses.db"))
@url_option
def info(url: str) -> None:
    """Show the size and contents of a store, and its running responses."""
    contents = _in_store(url, lambda opened: opened.info())
    responses = ", ".join(f"{count} {state}" for state, count in sorted(contents.responses.items())) or "none"
    click.echo(f"{contents.kind}, layout {contents.version}, {contents.size:,} bytes")
    click.echo(f"responses: {responses}")
    click.echo(f"conversations: {contents.conversations}, items: {contents.items}, events: {contents.events}")
    for lease in contents.leases:
        click.echo(f"{lease.response_id} runs on {lease.owner} (lease {lease.epoch})")


@store.command(epilog=examples("interlock store sweep --store postgresql://127.0.0.1/interlock"))
@url_option
def sweep(url: str) -> None:
    """Delete expired responses and conversations now (servers do this periodically).

    The URL says what has expired: with `?ttl=7d&conversations=90d`, responses after 7 days and conversations after 90.
    """
    deleted = _in_store(url, lambda opened: opened.sweep())
    click.echo(f"deleted {deleted.expired} responses, {deleted.conversations} conversations and {deleted.trimmed} event logs")


def _in_store(url: str, work: Callable[[ResponseStore], Awaitable[R]]) -> R:
    """Open a store that exists, await the work on it, and close it; end the command if the store cannot be used."""
    from interlock.serving.store import open_store
    from interlock.serving.store.values import StoreError

    async def run() -> R:
        opened = open_store(url, create=False)
        try:
            return await work(opened)
        finally:
            await opened.close()

    try:
        return asyncio.run(run())
    except StoreError as error:
        fail(str(error))
