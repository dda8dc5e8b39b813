"""The command `interlock run`, which starts a gateway, runs a client against it, and stops both.

`CLIENTS` has how it configures Codex and Claude Code, by the names of their programs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import click
from attrs import frozen

from interlock.events.json import clean, dumps
from interlock.serving.cli.options import UPSTREAM, examples, fail, list_models, options_of, required_upstreams, settings_of
from interlock.serving.settings import Settings

if TYPE_CHECKING:
    from interlock.serving.engines.upstream.gateway import Gateway
    from interlock.serving.engines.upstream.upstream_client import Upstream

NOT_FOUND: Final = 127
MAX_NAMES: Final = 5
"""The most models that a message names."""
LIST_SECONDS: Final = 60.0
KEY_NAME: Final = "OPENAI_API_KEY"

ACCOUNTS: Final = ("ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
"""The variables that lead Claude Code to another service, or make it ask which key to use."""
TIERS: Final = ("FABLE", "OPUS", "SONNET", "HAIKU")
"""The models that Claude Code and its agents ask for by name."""
MOST_OUTPUT: Final = 32_000
"""The output tokens that Claude Code asks for by default."""


@frozen
class ServedModel:
    """A gateway and the model that a client uses there, its window in tokens, and the file of Codex's catalogue of models."""

    url: str
    key: str
    model: str
    window: int | None = None
    catalog: Path | None = None


@frozen
class ClientSettings:
    """The settings of a client: arguments, which precede the user's, and variables of its environment."""

    arguments: Sequence[str] = ()
    variables: Mapping[str, str] = {}


def configure_codex(served: ServedModel) -> ClientSettings:
    """Return the settings of Codex, which calls `/compact` only for a provider of this name."""
    provider = {"name": "OpenAI", "base_url": f"{served.url}/v1", "wire_api": "responses", "env_key": KEY_NAME}
    values: dict[str, object] = {"model": served.model, "model_provider": "interlock"}
    values |= {f"model_providers.interlock.{name}": value for name, value in provider.items()}
    if served.catalog is not None:
        values["model_catalog_json"] = str(served.catalog)
    return ClientSettings([argument for name, value in values.items() for argument in ("-c", f"{name}={json.dumps(value)}")])


def configure_claude(served: ServedModel) -> ClientSettings:
    """Return the settings of Claude Code, which assumes a window of 200,000 tokens or more unless a variable has another."""
    models = ("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", *(f"ANTHROPIC_DEFAULT_{tier}_MODEL" for tier in TIERS))
    variables = {
        **dict.fromkeys(ACCOUNTS, ""),
        **dict.fromkeys(models, served.model),
        "ANTHROPIC_BASE_URL": served.url,
        "ANTHROPIC_AUTH_TOKEN": served.key,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    if served.window is not None:
        variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(served.window)
        # A quarter, because a server may refuse a limit that does not fit into the window beside the prompt.
        variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(min(MOST_OUTPUT, served.window // 4))
    return ClientSettings(variables=variables)


CLIENTS: Final[Mapping[str, Callable[[ServedModel], ClientSettings]]] = {"codex": configure_codex, "claude": configure_claude}
"""The clients that need more than a URL and a key."""


class ClientCommand(click.Command):
    """The command, which explains where the options of a client belong."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; the error for an unknown option names `--`."""
        client = next((text for text in args if not text.startswith("-")), "COMMAND")
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            place = f"interlock run {client} … -- {error.option_name} …"
            message = f"{error.message.rstrip('.')}: if it is the client's, put -- before it: {place}"
            raise click.NoSuchOption(error.option_name, message, ctx=ctx) from None


@click.command(
    cls=ClientCommand,
    epilog=examples(
        "interlock run codex --upstream http://127.0.0.1:11434",
        "interlock run codex --upstream http://127.0.0.1:8000 -- exec 'Fix the tests.'",
        "interlock run claude --upstream http://127.0.0.1:8000 --model qwen3 -- -p 'Fix the tests.'",
        "interlock run python agent.py --upstream https://api.deepseek.com/v1 --upstream-key KEY",
    ),
)
@click.argument("command", nargs=-1, required=True, metavar="COMMAND [-- ARGUMENTS]")
@options_of(*UPSTREAM, "family")
@click.option("--model", metavar="NAME", help="The model for Codex and Claude Code. Default: the first one of the upstream.")
def run(command: tuple[str, ...], *, model: str | None, **_options: object) -> None:
    """Run a client with a gateway of its own.

    COMMAND is the client, such as codex or claude. Codex is configured by arguments, Claude Code by its environment, and any
    other command by OPENAI_BASE_URL and OPENAI_API_KEY in its environment. No file is changed. The exit status is the client's,
    or 1 if the upstream cannot be reached or its URL is wrong.
    """
    from interlock.serving.build import build
    from interlock.serving.engines.upstream.gateway import Gateway
    from interlock.serving.http.server import ServerThread

    upstreams = required_upstreams(settings_of())
    program = shutil.which(command[0])
    if program is None:
        click.echo(f"interlock: {command[0]}: command not found", err=True)
        sys.exit(NOT_FOUND)
    _look(upstreams, model)
    logging.disable(logging.WARNING)  # log messages would garble the client's screen
    key = secrets.token_urlsafe()  # other users of this machine can reach the port
    gateway = Gateway(upstreams)
    with ServerThread(build(Settings(api_key=(key,)), gateway)) as url, TemporaryDirectory() as folder:
        configure = CLIENTS.get(PurePath(program).stem)
        settings = (
            ClientSettings() if configure is None else configure(_served(gateway, url, key, model, Path(folder) / "models.json"))
        )
        environment = {**os.environ, **_drop_proxy(url), "OPENAI_BASE_URL": f"{url}/v1", KEY_NAME: key, **settings.variables}
        status = _wait([program, *settings.arguments, *command[1:]], environment)
    sys.exit(status)


def _look(upstreams: Sequence[Upstream], model: str | None) -> None:
    """Say what is wrong with the upstreams before the client starts, and end the command if nothing can work."""
    from interlock.serving.engines.upstream.upstreams import survey

    reports = asyncio.run(survey(upstreams))
    for report in reports:
        if report.fault is not None:
            _warn(f"the upstream {report.upstream.url} {report.fault}")
    if all(report.is_lost for report in reports):
        sys.exit(1)
    names = [name for report in reports for name in report.names]
    if model is not None and names and model not in names:
        _warn(f"no upstream lists the model {model!r}; known models: {', '.join(names[:MAX_NAMES])}")


def _warn(message: str) -> None:
    click.echo(clean(f"interlock: {message}"), err=True)


def _served(gateway: Gateway, url: str, key: str, name: str | None, catalog: Path) -> ServedModel:
    """Return the gateway with the model of a name, or with the first one that the upstream lists; write Codex's catalogue."""
    from interlock.serving.http.app import codex_model

    names = [*list_models(url, {"Authorization": f"Bearer {key}"}, LIST_SECONDS)]
    chosen = name or next(iter(names), None)
    if chosen is None:
        fail("the upstream lists no models: name one with --model NAME")
    if gateway.facts(chosen).window is None:
        _warn(f"the context window of {chosen!r} is unknown, so the client guesses when to compact: name it in a --config FILE")
    models = [codex_model(each, gateway.facts(each), index) for index, each in enumerate(dict.fromkeys([*names, chosen]))]
    catalog.write_bytes(dumps({"models": models}))
    return ServedModel(url, key, chosen, gateway.facts(chosen).window, catalog)


def _drop_proxy(url: str) -> dict[str, str]:
    """Return the variables that keep requests to the gateway, which contain its key, from a proxy in the environment."""
    host = str(urlsplit(url).hostname)
    direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or host
    return dict.fromkeys(("no_proxy", "NO_PROXY"), direct if direct in {host, "*"} else f"{direct},{host}")


def _wait(arguments: Sequence[str], environment: dict[str, str]) -> int:
    """Run a program and return its exit status; forward signals except Ctrl-C, which the terminal sends to both processes."""
    with subprocess.Popen(arguments, env=environment) as process:  # noqa: S603 - the user's own command
        signal.signal(signal.SIGINT, lambda _number, _frame: None)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda received, _: process.send_signal(received))
        status = process.wait()
    return 128 - status if status < 0 else status
