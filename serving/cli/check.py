"""The command `interlock check`: what is wrong with a stream, for a terminal or for a program.

It knows options, terminals and exit statuses. The verdict is `interlock.fsm.acceptor.judging`'s.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from interlock.events.dialects import DialectName
from interlock.serving.cli.inputs import UNUSABLE, fail

if TYPE_CHECKING:
    from interlock.fsm.acceptor.judging import Verdict

ILLEGAL: Final = 1
"""The exit status when a stream breaks a rule."""

SourceName = Annotated[str, typer.Argument(metavar="FILE|-|URL", help="A file, - for standard input, or a URL.")]
BodyFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="POST the request in this JSON file to the URL; without it, GET the URL."),
]


def check(
    source: SourceName,
    *,
    body: BodyFile = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME:VALUE", help="A header of the request; may be given again.")
    ] = None,
    api_key: Annotated[str | None, typer.Option(metavar="KEY", help="The key to send to the server.")] = None,
    dialect: Annotated[DialectName, typer.Option(help="The dialect of the stream.")] = "openai",
    permissive: Annotated[bool, typer.Option("--permissive", help="Allow items that are written at the same time.")] = False,
    first: Annotated[
        int, typer.Option("--from", min=0, metavar="N", help="The stream was resumed: its first event has this number.")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="Write the verdict as JSON.")] = False,
) -> None:
    """Check that a stream of events obeys the rules.

    The exit status is 0 if it is legal, 1 if it breaks a rule, 2 if there is nothing to judge.
    """
    from interlock.fsm.acceptor.judging import Judge
    from interlock.serving.cli.sources import SourceError, opened
    from interlock.serving.cli.verdicts import as_json, print_verdict

    judging = Judge(dialect=dialect, permissive=permissive, first=first)
    called = "standard input" if source == "-" else source
    try:
        with opened(source, body=body, headers=_headers(header or [], api_key)) as stream:
            if stream.content_type is not None:
                judging.content_type(stream.content_type)
            for piece in stream.pieces:
                judging.feed(piece)
    except SourceError as error:
        fail(f"{error}")
    verdict = judging.end()
    if json:
        typer.echo(as_json(called, verdict))
    elif verdict.readable:
        print_verdict(verdict)
    else:
        fail(f"{called}: no server-sent events")
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
        return UNUSABLE
    return 0 if verdict.legal else ILLEGAL
