"""The command `interlock check`: what is wrong with a stream, for a terminal or for a program.

It knows options, terminals and exit statuses. The verdict is `interlock.fsm.acceptor.judging`'s.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import attrs
import orjson
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from interlock.events.dialects import DialectName
from interlock.fsm.acceptor import Finding
from interlock.fsm.acceptor.judging import Judge, Reported, Verdict
from interlock.serving.cli.sources import SourceError, opened

ILLEGAL: Final = 1
"""The exit status when a stream breaks a rule."""
UNREADABLE: Final = 2
"""The exit status when there is nothing to judge, as for a wrong option."""

SourceName = Annotated[str, typer.Argument(metavar="FILE|-|URL", help="A file, - for standard input, or a URL.")]
BodyFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The request to post to the URL; without it, the URL is got.")
]


def check(
    source: SourceName,
    *,
    body: BodyFile = None,
    header: Annotated[list[str] | None, typer.Option(metavar="NAME:VALUE", help="A header of the request.")] = None,
    api_key: Annotated[str | None, typer.Option(help="The server's key.")] = None,
    dialect: Annotated[DialectName, typer.Option(help="In which dialect the stream claims to be.")] = "openai",
    permissive: Annotated[bool, typer.Option("--permissive", help="Let items be written at the same time.")] = False,
    first: Annotated[
        int, typer.Option("--from", min=0, metavar="N", help="The stream was resumed: its first event has this number.")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="Write the verdict as JSON.")] = False,
) -> None:
    """Judge a stream of events: the status is 0 if it is legal, 1 if not, 2 if there is nothing to judge."""
    judging = Judge(dialect=dialect, permissive=permissive, first=first)
    try:
        with opened(source, body=body, headers=_headers(header or [], api_key)) as stream:
            if stream.content_type is not None:
                judging.content_type(stream.content_type)
            for piece in stream.pieces:
                judging.feed(piece)
    except SourceError as error:
        typer.echo(f"interlock: {error}", err=True)
        raise typer.Exit(UNREADABLE) from error
    verdict = judging.end()
    if json:
        typer.echo(_json(source, verdict))
    elif verdict.readable:
        _print(verdict)
    else:
        typer.echo(f"interlock: {_called(source)}: no server-sent events", err=True)
    raise typer.Exit(_status(verdict))


def _headers(given: list[str], api_key: str | None) -> dict[str, str]:
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    for header in given:
        name, colon, value = header.partition(":")
        if not colon:
            raise typer.BadParameter(f"{header!r} has no colon", param_hint="--header")
        headers[name.strip()] = value.strip()
    return headers


def _status(verdict: Verdict) -> int:
    if not verdict.readable:
        return UNREADABLE
    return 0 if verdict.legal else ILLEGAL


def _called(source: str) -> str:
    return "standard input" if source == "-" else source


def _json(source: str, verdict: Verdict) -> str:
    words = {0: "legal", ILLEGAL: "illegal", UNREADABLE: "unreadable"}
    said = {
        "source": _called(source),
        "verdict": words[_status(verdict)],
        "events": verdict.events,
        "items": verdict.items,
        "status": verdict.status,
        "rules": verdict.rules,
        "findings": [{**attrs.asdict(one.finding), "times": one.times} for one in verdict.reported],
    }
    return orjson.dumps(said, option=orjson.OPT_INDENT_2).decode()


def _print(verdict: Verdict) -> None:
    # A pipe has no width of its own: there a line is as long as it has to be.
    console = Console(width=None if sys.stdout.isatty() else 10_000, highlight=False)
    about = f"{_count(verdict.events, 'event')}, {_count(len(verdict.items), 'item')}, {verdict.status or 'not ended'}"
    if verdict.legal:
        console.print(f"[bold green]legal[/]: {escape(about)}")
        return
    console.print(_table(verdict))
    total = sum(verdict.rules.values())
    rules = ", ".join(f"{rule} ({times})" if times > 1 else rule for rule, times in verdict.rules.items())
    console.print(f"\n[bold red]illegal[/]: {_count(total, 'finding')} in {escape(about)}: {rules}")


def _table(verdict: Verdict) -> Table:
    table = Table("event", "rule", "item", "state", "came", "finding", box=None, pad_edge=False, header_style="bold")
    for reported in verdict.reported:
        found = reported.finding
        at = str(found.event) if found.came else "end"
        cells = [Text(cell, overflow="fold") for cell in (found.item or "", found.state, _short(found.came))]
        table.add_row(at, Text(found.rule, style="red"), *cells, _finding(found, reported))
    return table


def _finding(found: Finding, reported: Reported) -> Text:
    text = Text(found.message, overflow="fold")
    if found.legal:
        text.append(f"; legal: {', '.join(map(_short, found.legal))}", style="green")
    if reported.times > 1:
        text.append(f" ({reported.times} times)", style="dim")
    return text


def _short(name: str) -> str:
    """Leave out of a wire name what all have."""
    return name.removeprefix("response.")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
