"""The options of commands: those of `Settings`, and others that several commands have."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem
from msgspec.inspect import FloatType, IntType

from interlock.events.dialects import DIALECTS
from interlock.fsm.errors import InterlockError
from interlock.serving import settings
from interlock.serving.cli.sources import DEFAULT_TIMEOUT, fail
from interlock.serving.settings import Settings, read_settings

if TYPE_CHECKING:
    from interlock.serving.engines.upstream.translator import Upstream

CommandFunction: TypeAlias = Callable[..., None]
Decorator: TypeAlias = Callable[[CommandFunction], CommandFunction]

FILE: Final = click.Path(path_type=Path)

UPSTREAM: Final = ("upstream", "upstream_api", "upstream_key", "upstream_timeout", "upstream_retries", "config")
"""The fields of `Settings` that describe the servers behind a gateway."""


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


class SettingOption(click.Option):
    """The option of a field of `Settings`. Its value stays a text, which `read_settings` converts as it does those of a file."""

    def __init__(self, names: Sequence[str]) -> None:
        """Create the option of the field that is named."""
        (name,) = names
        each, default, self.choices = settings.options()[name], settings.DEFAULTS[name], settings.choices(name)
        super().__init__(
            [settings.flag(name), name],
            is_flag=not (each.metavar or self.choices),
            default=default
            if each.repeats or not isinstance(default, tuple)
            else ",".join(map(str, cast("tuple[object, ...]", default))),
            multiple=each.repeats,
            metavar=each.metavar or (f"[{'|'.join(self.choices)}]" if self.choices else None),
            help=each.help,
        )
        self.type = self.type if self.is_flag else click.STRING  # click would take the type of the default

    def get_help_extra(self, ctx: click.Context) -> click.types.OptionHelpExtra:
        """Return what the help has in brackets: the default, and the limits of a number."""
        extra = super().get_help_extra(ctx)
        kind = settings.kind_of(str(self.name))
        if isinstance(kind, (IntType, FloatType)) and kind.ge is not None:
            extra["range"] = f"x>={kind.ge:g}" if kind.le is None else f"{kind.ge:g}<=x<={kind.le:g}"
        return extra

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the choices that begin like this, or let the shell complete the name of a file."""
        del ctx
        if self.metavar == "FILE":
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(choice) for choice in self.choices if choice.startswith(incomplete)]


def options_of(*names: str) -> Decorator:
    """Return a decorator that adds the options of these fields of `Settings`, by default of all; `settings_of` reads them."""
    known = [name for name, each in settings.options().items() if each.has_flag]
    return _all(*(click.option(name, cls=SettingOption) for name in names or known))


def settings_of() -> Settings:
    """Return the settings that the running command has options for, or end it with a message that names what is wrong."""
    context = click.get_current_context()
    names = [str(each.name) for each in context.command.params if isinstance(each, SettingOption)]
    given = {name: context.params[name] for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    with option_errors():
        return read_settings(given, names=names)


def gateway_upstreams(settings: Settings) -> list[Upstream]:
    """Return the servers behind a gateway, if there are any."""
    if settings.upstream is None and not settings.upstreams:
        return []
    from interlock.serving.engines.upstream.gateway_config import upstreams_of

    with option_errors():
        return upstreams_of(settings)


def required_upstreams(settings: Settings) -> list[Upstream]:
    """Return the servers behind a gateway, or end the command with a message if there are none."""
    upstreams = gateway_upstreams(settings)
    if not upstreams:
        fail("name a server: --upstream URL, or --config FILE")
    return upstreams


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
def option_errors() -> Generator[None]:
    """End the command with a message if a setting or another input is invalid."""
    try:
        yield
    except (OSError, ValueError, InterlockError) as error:
        fail(str(error))
