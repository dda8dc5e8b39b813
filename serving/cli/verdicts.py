"""How a verdict on a stream is printed: as a table for a terminal, or as JSON for a program.

It knows columns and colours, and nothing of where the stream came from.
"""

from __future__ import annotations

import sys

import attrs
import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from interlock.fsm.acceptor import Finding
from interlock.fsm.acceptor.judging import Reported, Verdict


def as_json(source: str, verdict: Verdict) -> str:
    """Return a verdict as JSON.

    Args:
        source: What the stream is called.
        verdict: The verdict.
    """
    word = ("legal" if verdict.legal else "illegal") if verdict.readable else "unreadable"
    said = {
        "source": source,
        "verdict": word,
        "events": verdict.events,
        "items": verdict.items,
        "status": verdict.status,
        "rules": verdict.rules,
        "findings": [{**attrs.asdict(one.finding), "times": one.times} for one in verdict.reported],
    }
    return orjson.dumps(said, option=orjson.OPT_INDENT_2).decode()


def print_verdict(verdict: Verdict) -> None:
    """Print a verdict to standard output, in colour on a terminal.

    Args:
        verdict: The verdict.
    """
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
