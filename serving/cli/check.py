"""The command `interlock check`: what is wrong with streams, for a person, a program or a CI job.

It knows options and exit statuses. What is wrong is for `interlock.fsm.acceptor` to find and for `report` to write.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import typer

from interlock.events.dialects import DialectName
from interlock.events.json import clean
from interlock.serving.cli.expanding import expanded, is_url
from interlock.serving.cli.inputs import PATIENCE, UNUSABLE

if TYPE_CHECKING:
    from interlock.fsm.acceptor import Judge
    from interlock.serving.cli.report import Checked

Format: TypeAlias = Literal["text", "json", "github"]
"""The forms in which findings are written."""

ILLEGAL: Final = 1
"""The exit status when a stream has an error."""
NARROW: Final = 80
"""How long a line is where there is no terminal."""
WIDE: Final = 110
"""How long it is at most."""

Sources = Annotated[
    list[str] | None,
    typer.Argument(metavar="SOURCE...", help="Files, folders, - for standard input, or URLs.", show_default=False),
]
BodyFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="POST the request in this file to the URL; without it, GET the URL.")
]

Timeout = Annotated[
    float, typer.Option(min=0.1, metavar="SECONDS", help="The longest time to read a URL, from the connection to the end.")
]


def check(  # noqa: PLR0913 - a command has an argument for each of its options
    sources: Sources = None,
    *,
    body: BodyFile = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME:VALUE", help="A header of the request; may be given again.")
    ] = None,
    api_key: Annotated[str | None, typer.Option(metavar="KEY", help="The key to send to the server.")] = None,
    timeout: Timeout = PATIENCE,
    dialect: Annotated[DialectName, typer.Option(help="The dialect of the stream.")] = "openai",
    permissive: Annotated[bool, typer.Option("--permissive", help="Allow items that are written at the same time.")] = False,
    first: Annotated[
        int, typer.Option("--from", min=0, metavar="N", help="The stream was resumed: its first event has this number.")
    ] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Count deviations as errors.")] = False,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="RULE", help="Ignore a rule (R7) or a deviation (foreign-id).")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="The form of the output.")] = "text",
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    explain: Annotated[str | None, typer.Option(metavar="RULE", help="Explain a rule (R10) or a deviation (late-done).")] = None,
) -> None:
    """Check that streams of events obey the rules.

    The exit status is 0 if none has an error, 1 if one has, 2 if there is nothing to judge.
    """
    from interlock.fsm.acceptor import Judge
    from interlock.serving.cli.report import Checked

    width = min(shutil.get_terminal_size((NARROW, 0)).columns, WIDE) if sys.stdout.isatty() else NARROW
    if explain is not None:
        _explain(explain, width)
        return
    given = list(expanded(sources or []))
    _refuse_wrong_options(given, body)
    ignored = _ignored(ignore or [])
    headers = request_headers(header or [], api_key)

    def judged(source: str) -> Checked:
        judging = Judge(dialect=dialect, permissive=permissive, first=first)
        wrong = _read(judging, source, body if is_url(source) else None, headers, timeout)
        verdict = judging.end()
        if wrong or not verdict.readable:
            return Checked(_called(source), None, wrong=wrong or "no server-sent events")
        reported = [one for one in verdict.reported if ignored.isdisjoint((one.finding.rule, one.finding.habit))]
        return Checked(_called(source), verdict, reported, strict=strict)

    checked = list(_written(given, judged, "json" if json else form, width))
    words = {one.word for one in checked}
    raise typer.Exit(ILLEGAL if "illegal" in words else UNUSABLE if "unreadable" in words else 0)


def _written(given: Sequence[str], judged: Callable[[str], Checked], form: Format, width: int) -> Iterator[Checked]:
    """Judge every source, write what was found as soon as it is known, and yield it."""
    from interlock.serving.cli.report import as_annotations, as_json, as_text, counted

    checked: list[Checked] = []
    for source in given:
        one = judged(source)
        checked.append(one)
        match form:
            case "github":
                _echo(as_annotations(one))
            case "text" if one.verdict is None:
                typer.echo(f"interlock: {one.source}: {one.wrong}", err=True)
            case "text":
                apart = len(checked) > 1 and (one.reported or checked[-2].reported)
                _echo(["", *as_text(one, width)] if apart else as_text(one, width))
            case _:
                pass
        yield one
    if form == "json":
        typer.echo(as_json(checked))
    elif form == "text" and len(checked) > 1:
        words = [one.word for one in checked]
        said = ", ".join(f"{words.count(word)} {word}" for word in ("legal", "illegal", "unreadable") if word in words)
        typer.echo(f"\n{counted(len(checked), 'stream')}: {said}")


def _echo(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(clean(line))


def _read(judging: Judge, source: str, body: Path | None, headers: dict[str, str], timeout: float) -> str:
    """Let a judge read a source; return why it cannot be read, or an empty text."""
    from interlock.serving.cli.sources import SourceError, opened

    try:
        with opened(source, body=body, headers=headers, timeout=timeout) as stream:
            if stream.content_type is not None:
                judging.content_type(stream.content_type)
            for piece in stream.pieces:
                judging.feed(piece)
    except SourceError as error:
        return str(error).removeprefix(f"{source}: ")
    return ""


def _refuse_wrong_options(given: Collection[str], body: Path | None) -> None:
    """Refuse what cannot be meant.

    Raises:
        typer.BadParameter: There is no source, or a request for a source that is no URL.
    """
    if not given:
        raise typer.BadParameter("there is no stream to judge", param_hint="SOURCE")
    plain = [source for source in given if not is_url(source)]
    if body is not None and plain:
        raise typer.BadParameter(f"a request is posted to a URL, and {plain[0]} is none", param_hint="--body")


def _ignored(given: Sequence[str]) -> frozenset[str]:
    from interlock.fsm.acceptor import HABITS, RULES

    names = [name.strip() for each in given for name in each.split(",")]
    for name in names:
        if name.upper() not in RULES and name.lower() not in HABITS:
            raise typer.BadParameter(f"there is no rule and no deviation {name!r}", param_hint="--ignore")
    return frozenset(name.upper() if name.upper() in RULES else name.lower() for name in names)


def request_headers(given: list[str], api_key: str | None) -> dict[str, str]:
    """Return the headers of a request.

    Args:
        given: As they were given, each `NAME:VALUE`.
        api_key: The key of the server, if it has one.

    Raises:
        typer.BadParameter: A header has no colon.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    for header in given:
        name, colon, value = header.partition(":")
        if not colon:
            raise typer.BadParameter(f"{header!r} has no colon", param_hint="--header")
        headers[name.strip()] = value.strip()
    return headers


def _called(source: str) -> str:
    return "standard input" if source == "-" else source


def _explain(name: str, width: int) -> None:
    from interlock.serving.cli.report import explained

    lines = explained(name, width)
    if lines is None:
        raise typer.BadParameter(f"there is no rule and no deviation {name!r}", param_hint="--explain")
    _echo(lines)
