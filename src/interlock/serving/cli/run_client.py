"""The command `interlock run`, which starts a gateway, runs a client against it, and stops both."""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final, Unpack
from urllib.parse import urlsplit

import click

from interlock.serving.cli.options import UpstreamOptions, examples, upstream_options, upstreams_of
from interlock.serving.cli.sources import fail

KEY_NAME: Final = "OPENAI_API_KEY"
NOT_FOUND: Final = 127


@click.command(
    epilog=examples(
        "interlock run codex --upstream http://127.0.0.1:11434",
        "interlock run codex --upstream http://127.0.0.1:8000 -- exec 'Fix the tests.'",
        "interlock run python agent.py --upstream https://api.deepseek.com/v1 --upstream-key KEY",
    )
)
@click.argument("command", nargs=-1, required=True, metavar="COMMAND [-- ARGUMENTS]")
@upstream_options
@click.option("--family", metavar="NAME", help="The format of a model family, in which the gateway reads the text.")
@click.option("--model", metavar="NAME", help="The model for Codex. Default: the first one of the upstream.")
def run(command: tuple[str, ...], *, family: str | None, model: str | None, **upstream: Unpack[UpstreamOptions]) -> None:
    """Run a client of the Responses API with a gateway of its own.

    COMMAND is the client, such as codex. Codex is configured by arguments, and any other command by OPENAI_BASE_URL and
    OPENAI_API_KEY in its environment. No file is changed. The exit status is the client's.
    """
    from interlock.serving.engines.upstream.gateway import Gateway
    from interlock.serving.http.app import create_app
    from interlock.serving.http.server import ServerThread

    upstreams = upstreams_of(upstream, family=family)
    if not upstreams:
        fail("name a server: --upstream URL, or --config FILE")
    program = shutil.which(command[0])
    if program is None:
        click.echo(f"interlock: {command[0]}: command not found", err=True)
        sys.exit(NOT_FOUND)
    logging.disable(logging.WARNING)  # log messages would garble the client's screen
    key = secrets.token_urlsafe()  # other users of this machine can reach the port
    with ServerThread(create_app(Gateway(upstreams), api_key=key)) as url:
        arguments = [*command[1:]]
        if PurePath(program).stem == "codex":
            arguments = [*codex_arguments(f"{url}/v1", model or _first_model(url, key)), *arguments]
        environment = {**os.environ, **_without_proxy(url), "OPENAI_BASE_URL": f"{url}/v1", KEY_NAME: key}
        status = _wait([program, *arguments], environment)
    sys.exit(status)


def codex_arguments(base_url: str, model: str) -> list[str]:
    """Return the arguments that configure Codex for a server; Codex calls `/compact` only for a provider of this name."""
    provider = {"name": "OpenAI", "base_url": base_url, "wire_api": "responses", "env_key": KEY_NAME}
    settings = {"model": model, "model_provider": "interlock"}
    settings |= {f"model_providers.interlock.{name}": value for name, value in provider.items()}
    return [argument for name, value in settings.items() for argument in ("-c", f"{name}={json.dumps(value)}")]


def _first_model(url: str, key: str) -> str:
    from urllib.request import ProxyHandler, Request, build_opener

    request = Request(f"{url}/v1/models", headers={"Authorization": f"Bearer {key}"})  # noqa: S310 - our own URL
    with build_opener(ProxyHandler({})).open(request) as answer:
        models = json.load(answer)["data"]
    if not models:
        fail("the upstream lists no models: name one with --model NAME")
    return str(models[0]["id"])


def _without_proxy(url: str) -> dict[str, str]:
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
