"""Writes the results of a server as text, as JSON, as a page of HTML and as a badge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final, get_args

import attrs
import msgspec
from attrs import frozen

from interlock.events.json import dumps
from interlock.judges import ApiName
from interlock.serving.conformance.cases import Result
from interlock.serving.conformance.player import CaseResult

RESULTS: Final[Sequence[Result]] = get_args(Result)
COLOURS: Final[Mapping[Result, str]] = {"passes": "#1a7f37", "fails": "#cf222e", "not served": "#6e7781", "not seen": "#9a6700"}


@frozen
class Report:
    """The results of the cases of one API, played to one server."""

    url: str
    api: ApiName
    model: str
    date: str
    cases: Sequence[CaseResult]

    @property
    def counts(self) -> Mapping[Result, int]:
        """How many cases have each result."""
        counts = Counter(case.result for case in self.cases)
        return {result: counts[result] for result in RESULTS}

    @property
    def summary(self) -> str:
        """The counts in words."""
        return ", ".join(f"{count} {result}" for result, count in self.counts.items() if count)


def findings(case: CaseResult) -> str:
    """Return the rules that a case broke, and the names of its deviations, each with how often."""
    return ", ".join(
        f"{name} x{times}" if times > 1 else name for names in (case.errors, case.deviations) for name, times in names.items()
    )


def as_text(report: Report) -> Iterator[str]:
    """Yield a table as lines of text."""
    width = max(len(case.name) for case in report.cases)
    group = ""
    for case in report.cases:
        if case.group != group:
            group = case.group
            yield from ("", group)
        yield f"  {case.name:{width}}  {case.result:10}  {'; '.join(filter(None, (case.note, findings(case))))}".rstrip()
    yield from ("", f"{len(report.cases)} cases of {report.api}: {report.summary}")


def as_json(report: Report) -> bytes:
    """Return the report as a JSON object."""
    return msgspec.json.format(dumps({"version": 1, **attrs.asdict(report), "counts": report.counts}), indent=2)


def as_html(report: Report) -> str:
    """Return a page that needs no other file."""
    rows = "".join(
        f"<tr><td>{escape(case.group)}<td>{escape(case.name)}<td style='color:{COLOURS[case.result]}'>{case.result}"
        f"<td>{escape(case.note)}<td>{escape(findings(case))}\n"
        for case in report.cases
    )
    title = escape(f"Conformance of {report.url}, {report.api}")
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">\n'
        "<style>body{font:15px system-ui;margin:2em}table{border-collapse:collapse}"
        "td,th{border:1px solid #8884;padding:.3em .6em;text-align:left;vertical-align:top}</style>\n"
        f"<h1>{title}</h1>\n<p>Model {escape(report.model)}, {report.date}: {report.summary}.\n"
        f"<table>\n<tr><th>topic<th>case<th>result<th>note<th>findings\n{rows}</table>\n"
    )


def as_badge(report: Report) -> str:
    """Return an SVG picture with the API and how many of the cases that were served and seen pass."""
    counts = report.counts
    label, value = f"{report.api} conformance", f"{counts['passes']} of {counts['passes'] + counts['fails']}"
    left, right = (len(text) * 7 + 14 for text in (label, value))
    colour = COLOURS["fails" if counts["fails"] else "passes"]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{label}: {value}">'
        f'<rect width="{left}" height="20" fill="#555"/><rect x="{left}" width="{right}" height="20" fill="{colour}"/>'
        '<g fill="#fff" font-family="Verdana,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2}" y="14">{label}</text><text x="{left + right / 2}" y="14">{value}</text></g></svg>\n'
    )
