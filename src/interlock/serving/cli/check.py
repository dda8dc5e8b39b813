"""The command `interlock check`: what is wrong with streams, for a person, a program or a CI job."""

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
    display_name,
    expand_folders,
    is_recording,
    is_response,
    is_url,
    open_source,
)

if TYPE_CHECKING:
    from interlock.fsm.acceptor import Judge
    from interlock.serving.cli.report import Result

Format: TypeAlias = Literal["text", "json", "github"]

ILLEGAL: Final = 1
"""The exit status when a stream has an error."""
NARROW: Final = 80
"""The width of the text without a terminal."""
WIDE: Final = 110
"""The greatest width of the text."""


def check(  # noqa: PLR0913 - a command has an argument for each of its options
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE...", help="Files, folders, URLs, or - for standard input.", show_default=False),
    ] = None,
    *,
    body: BodyFile = None,
    header: Headers = None,
    api_key: ApiKey = None,
    timeout: Timeout = URL_SECONDS,
    dialect: Annotated[DialectName, typer.Option(help="The dialect of the stream.")] = "openai",
    permissive: Annotated[bool, typer.Option("--permissive", help="Allow the events of two open items to alternate.")] = False,
    first: Annotated[
        int, typer.Option("--from", min=0, metavar="N", help="The stream was resumed: its first event has number N.")
    ] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Count deviations as errors.")] = False,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="RULE", help="Ignore a rule (R7) or a deviation (foreign-id); can be repeated."),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="Text for a terminal, JSON, or annotations for GitHub.")] = "text",
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    explain: Annotated[
        str | None, typer.Option(metavar="RULE", help="Explain a rule (R10) or a deviation (late-done), and check nothing.")
    ] = None,
) -> None:
    """Check streams of the Responses API for errors.

    The exit status is 0 if no stream has an error, 1 if one has, 2 if one cannot be read.
    """
    from interlock.fsm.acceptor import Judge
    from interlock.serving.cli.report import Result, explanation

    width = min(shutil.get_terminal_size((NARROW, 0)).columns, WIDE) if sys.stdout.isatty() else NARROW
    if explain is not None:
        _echo(explanation(_rule_or_deviation(explain, "--explain"), width))
        return
    names = list(expand_folders(sources or []))
    if not names:
        raise typer.BadParameter("give a file, a folder, a URL, or - for standard input", param_hint="SOURCE")
    if body is not None and (files := [name for name in names if not is_url(name)]):
        raise typer.BadParameter(f"a request is posted to a URL, and {files[0]} is not one", param_hint="--body")
    ignored = {_rule_or_deviation(name.strip(), "--ignore") for option in ignore or [] for name in option.split(",")}
    request = UrlRequest.from_options(body, header or [], api_key, timeout)

    def judge(name: str) -> Result:
        judge = Judge(dialect=dialect, permissive=permissive, first=first)
        error = _read(judge, name, request)
        verdict = judge.end()
        if error or not verdict.readable:
            return Result(display_name(name), None, error=error or "neither server-sent events nor JSON lines")
        reported = [each for each in verdict.reported if ignored.isdisjoint((each.finding.rule, each.finding.habit))]
        return Result(display_name(name), verdict, reported, strict=strict)

    verdicts = {result.word for result in _reported(names, judge, "json" if json else form, width)}
    raise typer.Exit(ILLEGAL if "illegal" in verdicts else UNUSABLE if "unreadable" in verdicts else 0)


def _reported(names: Sequence[str], judge: Callable[[str], Result], form: Format, width: int) -> Iterator[Result]:
    """Judge every source, write its findings at once, and yield the result."""
    from interlock.serving.cli.report import as_annotations, as_json, as_text, counted

    results: list[Result] = []
    for name in names:
        result = judge(name)
        results.append(result)
        if form == "github":
            _echo(as_annotations(result))
        elif form == "text" and result.verdict is None:
            typer.echo(f"interlock: {result.source}: {result.error}", err=True)
        elif form == "text":
            apart = len(results) > 1 and (result.reported or results[-2].reported)
            _echo(["", *as_text(result, width)] if apart else as_text(result, width))
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
        with open_source(name, request) as source:
            if source.content_type is not None:
                judge.content_type(source.content_type)
            for place, chunk in enumerate(source.chunks):
                if place == 0 and is_recording(chunk):
                    return f"a recording is not a stream; run: interlock replay {name} | interlock check -"
                if place == 0 and is_response(chunk):
                    return 'this is a response, not a stream: add "stream": true to the request'
                judge.feed(chunk)
    except SourceError as error:
        return str(error).removeprefix(f"{name}: ")
    return ""


def _rule_or_deviation(name: str, option: str) -> str:
    """Return the rule or deviation of a name, in its own spelling.

    Raises:
        typer.BadParameter: There is none.
    """
    from interlock.fsm.acceptor import DEVIATIONS, RULES

    names = {each.lower(): each for each in (*RULES, *DEVIATIONS)}
    if name.lower() not in names:
        choices = ", ".join(names.values())
        raise typer.BadParameter(f"no rule or deviation is named {name!r}; choose one of {choices}", param_hint=option)
    return names[name.lower()]
