"""The command `interlock check`: what is wrong with streams, for a person, a program or a CI job.

It knows options and exit statuses. Finding what is wrong is the task of `interlock.fsm.acceptor`, writing it that of `report`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import typer

from interlock.events.dialects import DialectName
from interlock.events.json import clean
from interlock.serving.cli.sources import (
    UNUSABLE,
    URL_SECONDS,
    ApiKey,
    BodyFile,
    Headers,
    SourceError,
    Timeout,
    UrlRequest,
    expanded,
    is_url,
    opened,
    title_of,
)

if TYPE_CHECKING:
    from interlock.fsm.acceptor import Judge
    from interlock.serving.cli.report import Checked

Format: TypeAlias = Literal["text", "json", "github"]
"""The forms in which findings are written."""

ILLEGAL: Final = 1
"""The exit status when a stream has an error."""
NARROW: Final = 80
"""The length of a line where there is no terminal."""
WIDE: Final = 110
"""The greatest length of a line."""


def check(  # noqa: PLR0913 - a command has an argument for each of its options
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE...", help="Files, folders, - for standard input, or URLs.", show_default=False),
    ] = None,
    *,
    body: BodyFile = None,
    header: Headers = None,
    api_key: ApiKey = None,
    timeout: Timeout = URL_SECONDS,
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

    The exit status is 0 if no stream has an error, 1 if one has, 2 if one cannot be read.
    """
    from interlock.fsm.acceptor import Judge
    from interlock.serving.cli.report import Checked

    width = min(shutil.get_terminal_size((NARROW, 0)).columns, WIDE) if sys.stdout.isatty() else NARROW
    if explain is not None:
        _explain(explain, width)
        return
    names = list(expanded(sources or []))
    if not names:
        raise typer.BadParameter("there is no stream to judge", param_hint="SOURCE")
    if body is not None and (files := [name for name in names if not is_url(name)]):
        raise typer.BadParameter(f"a request is posted to a URL, and {files[0]} is not one", param_hint="--body")
    ignored = _ignored(ignore or [])
    request = UrlRequest.from_options(body, header or [], api_key, timeout)

    def judge(name: str) -> Checked:
        judge = Judge(dialect=dialect, permissive=permissive, first=first)
        error = _read(judge, name, request)
        verdict = judge.end()
        if error or not verdict.readable:
            return Checked(title_of(name), None, error=error or "no server-sent events")
        reported = [each for each in verdict.reported if ignored.isdisjoint((each.finding.rule, each.finding.habit))]
        return Checked(title_of(name), verdict, reported, strict=strict)

    words = {checked.word for checked in _written(names, judge, "json" if json else form, width)}
    raise typer.Exit(ILLEGAL if "illegal" in words else UNUSABLE if "unreadable" in words else 0)


def _written(names: Sequence[str], judge: Callable[[str], Checked], form: Format, width: int) -> Iterator[Checked]:
    """Judge every source, write the findings as soon as they are known, and yield the result."""
    from interlock.serving.cli.report import as_annotations, as_json, as_text, counted

    results: list[Checked] = []
    for name in names:
        result = judge(name)
        results.append(result)
        match form:
            case "github":
                _echo(as_annotations(result))
            case "text" if result.verdict is None:
                typer.echo(f"interlock: {result.source}: {result.error}", err=True)
            case "text":
                apart = len(results) > 1 and (result.reported or results[-2].reported)
                _echo(["", *as_text(result, width)] if apart else as_text(result, width))
            case _:
                pass
        yield result
    if form == "json":
        typer.echo(as_json(results))
    elif form == "text" and len(results) > 1:
        words = [result.word for result in results]
        counts = ", ".join(f"{words.count(word)} {word}" for word in ("legal", "illegal", "unreadable") if word in words)
        typer.echo(f"\n{counted(len(results), 'stream')}: {counts}")


def _echo(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(clean(line))


def _read(judge: Judge, name: str, request: UrlRequest) -> str:
    """Feed a source to a judge; return why it cannot be read, or an empty text."""
    try:
        with opened(name, request) as source:
            if source.content_type is not None:
                judge.content_type(source.content_type)
            for chunk in source.chunks:
                judge.feed(chunk)
    except SourceError as error:
        return str(error).removeprefix(f"{name}: ")
    return ""


def _ignored(options: Sequence[str]) -> frozenset[str]:
    from interlock.fsm.acceptor import HABITS, RULES

    names = [name.strip() for each in options for name in each.split(",")]
    for name in names:
        if name.upper() not in RULES and name.lower() not in HABITS:
            raise typer.BadParameter(f"there is no rule and no deviation {name!r}", param_hint="--ignore")
    return frozenset(name.upper() if name.upper() in RULES else name.lower() for name in names)


def _explain(name: str, width: int) -> None:
    from interlock.serving.cli.report import explained

    lines = explained(name, width)
    if lines is None:
        raise typer.BadParameter(f"there is no rule and no deviation {name!r}", param_hint="--explain")
    _echo(lines)
