"""The options that several commands have: the dialect, the request for a URL, and the servers behind a gateway."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click
from attrs import Attribute, AttrsInstance, field, fields, frozen

from interlock.events.dialects import DIALECTS
from interlock.fsm.errors import InterlockError
from interlock.serving.cli.sources import DEFAULT_TIMEOUT, fail
from interlock.serving.engines.upstream.apis import UPSTREAM_APIS

if TYPE_CHECKING:
    from interlock.serving.engines.upstream.translator import Upstream

CommandFunction: TypeAlias = Callable[..., None]
Decorator: TypeAlias = Callable[[CommandFunction], CommandFunction]

_OPTION: Final = "option"
_FROM_ENVIRONMENT: Final = "from_environment"
"""The keys of a field's metadata: the settings of its option, and whether the environment has its default."""

FILE: Final = click.Path(path_type=Path)
KEY_VARIABLE: Final = "INTERLOCK_API_KEY"


class NumberType(click.FloatRange):
    """A number with a minimum, but not NaN, which click accepts because it compares as neither smaller nor greater."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; fail if it is too small or not a number."""
        number: float = super().convert(value, param, ctx)
        if isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def examples(*lines: str) -> str:
    """Return the examples at the end of a command's help."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])  # `\b` keeps the line breaks


def dialect_option(text: str) -> Decorator:
    """Return the option for the dialect of a stream, with this help."""
    return click.option("--dialect", type=click.Choice([*DIALECTS]), default="openai", help=text)


def option(*, from_environment: bool = False, **settings: Any) -> Any:  # noqa: ANN401 - a field of any type, as click has it
    """Return a field of a command's settings, for an option with the same name.

    Its default can be in the environment: `INTERLOCK_UPSTREAM_KEY` for `--upstream-key`.
    """
    return field(metadata={_OPTION: settings, _FROM_ENVIRONMENT: from_environment})


def options_of(settings: type[AttrsInstance]) -> Decorator:
    """Return a decorator that adds the options of settings: its own, and then those of its base class."""
    return _all(*map(_option, sorted(fields(settings), key=lambda each: each.inherited)))


def _option(setting: Attribute[object]) -> Decorator:
    variable = f"INTERLOCK_{setting.name.upper()}" if setting.metadata[_FROM_ENVIRONMENT] else None
    name = f"--{setting.name.replace('_', '-')}"
    return click.option(name, envvar=variable, show_envvar=variable is not None, **setting.metadata[_OPTION])


def _all(*options: Decorator) -> Decorator:
    """Return a decorator that adds several options, in this order."""

    def add(command: CommandFunction) -> CommandFunction:
        for option in reversed(options):
            command = option(command)
        return command

    return add


url_options = _all(
    click.option("--body", type=FILE, metavar="FILE", help="POST the request in this JSON file to the URL, instead of GET."),
    click.option("--header", multiple=True, metavar="NAME:VALUE", help="Add a header to the request; can be repeated."),
    click.option("--api-key", metavar="KEY", help="The API key to send to the URL."),
    click.option(
        "--timeout",
        type=NumberType(min=0.1),
        default=DEFAULT_TIMEOUT,
        metavar="SECONDS",
        help="Stop reading a URL after this time, connecting included.",
    ),
)
"""The options that describe the request for a URL; `UrlRequest.from_options` takes their values."""


@contextmanager
def option_errors(name: str = "") -> Generator[None]:
    """End the command with a message if the value of an option is invalid."""
    try:
        yield
    except (OSError, ValueError, InterlockError) as error:
        fail(f"{name}: {error}" if name else str(error))


def _read_defaults(context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Use a file's `[serve]` table as defaults of the options of `serve`; environment variables take precedence."""
    if path is None or context.info_name != "serve":
        return path
    from interlock.serving.engines.upstream.gateway_config import read_config

    with option_errors(f"--config {path}"):
        defaults = read_config(path).serve
    options = {str(option.name): option for option in context.command.params if option.name != "config"}
    for name, value in defaults.items():
        if name not in options:
            fail(f"--config {path}: serve.{name}: unknown option; choose one of {', '.join(sorted(options))}")
        if isinstance(value, list) != options[name].multiple:
            fail(f"--config {path}: serve.{name}: {'write a list' if options[name].multiple else 'write one value, not a list'}")
    if KEY_VARIABLE in os.environ:
        defaults.pop("api_key", None)
    # The options validate texts, as on the command line.
    context.default_map = {
        name: [str(each) for each in value] if isinstance(value, list) else str(value) for name, value in defaults.items()
    }
    return path


@frozen(kw_only=True)
class UpstreamOptions:
    """The options that describe the upstreams of a gateway; `upstreams_of` returns them."""

    upstream: str | None = option(
        from_environment=True, metavar="URL", help="Serve the models of this server, as a gateway to it."
    )
    upstream_api: str = option(
        from_environment=True,
        type=click.Choice([*UPSTREAM_APIS]),
        default="chat",
        help="The API of that server; vllm exchanges tokens with any vLLM server.",
    )
    upstream_key: str | None = option(from_environment=True, metavar="KEY", help="The API key for that server.")
    upstream_timeout: str = option(
        from_environment=True,
        default="600,600",
        metavar="FIRST,BETWEEN",
        help="The most seconds to wait for the first chunk of that server, and for each further one.",
    )
    upstream_retries: int = option(
        from_environment=True,
        type=click.IntRange(0, 10),
        default=2,
        metavar="N",
        help="The most retries; there are none after the first chunk.",
    )
    config: Path | None = option(
        from_environment=True,
        type=FILE,
        is_eager=True,
        callback=_read_defaults,
        metavar="FILE",
        help="A TOML file with several upstreams, and with defaults of the options of `serve`.",
    )


def upstreams_of(
    settings: UpstreamOptions, *, models: Iterable[str] = (), family: str | None = None, pass_key: bool = False
) -> list[Upstream]:
    """Return the upstream at the URL, or those of the file if there is no URL; a model `ALIAS=NAME` is an alias."""
    url, config = settings.upstream, settings.config
    if url is None and config is None:
        return []
    from interlock.serving.engines.upstream.gateway_config import read_config, read_upstream

    if url is None:
        with option_errors(f"--config {config}"):
            return read_config(Path(str(config))).upstreams()
    first, _, between = settings.upstream_timeout.partition(",")
    with option_errors("--upstream-timeout"):
        waits = {"first_timeout": float(first), "between_timeout": float(between or first)}
    names = [*models]
    table: dict[str, object] = {
        "url": url,
        "api": settings.upstream_api,
        "models": [name for name in names if "=" not in name],
        "aliases": dict(name.split("=", 1) for name in names if "=" in name),
        "family": family,
        "key": settings.upstream_key,
        "pass_key": pass_key,
        "retries": settings.upstream_retries,
        **waits,
    }
    with option_errors("--upstream"):
        return [read_upstream(table)]
