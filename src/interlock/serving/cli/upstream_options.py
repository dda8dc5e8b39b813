"""The upstream options of `serve` and `run`: flags, environment variables and a TOML file."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from interlock.fsm.errors import InterlockError
from interlock.serving.cli.sources import fail

if TYPE_CHECKING:
    from interlock.serving.engines.upstream.gateway import Upstream

KEY_VARIABLE: Final = "INTERLOCK_API_KEY"

TIMEOUTS: Final = "600,120"
RETRIES: Final = 2


@contextmanager
def option_errors(name: str = "") -> Generator[None]:
    """End the command with a message if the value of an option is invalid."""
    try:
        yield
    except (OSError, ValueError, InterlockError) as error:
        fail(f"{name}: {error}" if name else str(error))


def _read_defaults(context: typer.Context, path: Path | None) -> Path | None:
    """Use a file's `[serve]` table as defaults of the options of `serve`; environment variables take precedence."""
    if path is None or context.info_name != "serve":
        return path
    from interlock.serving.engines.upstream.gateway_config import read_config

    with option_errors(f"--config {path}"):
        defaults = read_config(path).serve
    known = {str(parameter.name) for parameter in context.command.params} - {"config", "help", "command"}
    for name in defaults.keys() - known:
        fail(f"--config {path}: serve.{name}: unknown option; choose one of {', '.join(sorted(known))}")
    if KEY_VARIABLE in os.environ:
        defaults.pop("api_key", None)
    context.default_map = defaults
    return path


UpstreamUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", envvar="INTERLOCK_UPSTREAM", help="Serve the models of this server, as a gateway to it."),
]
ApiName = Annotated[
    Literal["chat", "responses", "vllm"],
    typer.Option(envvar="INTERLOCK_UPSTREAM_API", help="The API of that server; vllm exchanges tokens with any vLLM server."),
]
UpstreamKey = Annotated[
    str | None, typer.Option(metavar="KEY", envvar="INTERLOCK_UPSTREAM_KEY", help="The API key for that server.")
]
UpstreamTimeout = Annotated[
    str,
    typer.Option(
        metavar="FIRST,BETWEEN",
        envvar="INTERLOCK_UPSTREAM_TIMEOUT",
        help="The longest waits in seconds for the first chunk of that server, and for each further one.",
    ),
]
UpstreamRetries = Annotated[
    int,
    typer.Option(
        min=0, max=10, metavar="N", envvar="INTERLOCK_UPSTREAM_RETRIES", help="The most retries, before the first chunk only."
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar="INTERLOCK_CONFIG",
        is_eager=True,
        callback=_read_defaults,
        help="A TOML file with several upstreams, and with defaults of the options of `serve`.",
    ),
]


def upstreams_of(  # noqa: PLR0913 - each is a setting of an upstream
    config: Path | None,
    url: str | None,
    *,
    api: str = "chat",
    models: Iterable[str] = (),
    family: str | None = None,
    key: str | None = None,
    pass_key: bool = False,
    timeouts: str = TIMEOUTS,
    retries: int = RETRIES,
) -> list[Upstream]:
    """Return the upstream at the URL, or those of the file if there is no URL; a model `NAME=MODEL` is an alias."""
    if url is None and config is None:
        return []
    from interlock.serving.engines.upstream.gateway_config import read_config, read_upstream

    if url is None:
        with option_errors(f"--config {config}"):
            return read_config(Path(str(config))).upstreams()
    first, _, between = timeouts.partition(",")
    with option_errors("--upstream-timeout"):
        waits = {"first_timeout": float(first), "between_timeout": float(between or first)}
    names = [*models]
    settings: dict[str, object] = {
        "url": url,
        "api": api,
        "models": [name for name in names if "=" not in name],
        "aliases": dict(name.split("=", 1) for name in names if "=" in name),
        "family": family,
        "key": key,
        "pass_key": pass_key,
        "retries": retries,
        **waits,
    }
    with option_errors("--upstream"):
        return [read_upstream(settings)]
