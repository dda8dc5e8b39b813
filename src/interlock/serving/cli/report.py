"""The findings of `interlock check` as text, as JSON, or as annotations for GitHub Actions."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, TypeAlias

import attrs
import msgspec
import typer
from attrs import frozen

from interlock.events.json import dumps
from interlock.fsm.acceptor import DEVIATIONS, RULES, Finding, Reported, Verdict

Word: TypeAlias = Literal["legal", "illegal", "unreadable"]

_COMMANDS: Final = {"error": "error", "deviation": "warning", "not_judged": "notice"}
_COLOURS: Final = {"legal": typer.colors.GREEN, "illegal": typer.colors.RED, "unreadable": typer.colors.YELLOW}


@frozen
class Result:
    """The verdict on one source with the findings to report, or the error why it cannot be read."""

    source: str
    verdict: Verdict | None
    reported: Sequence[Reported] = ()
    error: str = ""
    strict: bool = False
    """Whether deviations count as errors."""

    @property
    def word(self) -> Word:
        """The verdict in one word."""
        if self.verdict is None:
            return "unreadable"
        return "illegal" if self.count("error") or (self.strict and self.count("deviation")) else "legal"

    def count(self, severity: str) -> int:
        """Return how many different findings have a severity."""
        return sum(each.finding.severity == severity for each in self.reported)


def as_json(results: Iterable[Result]) -> bytes:
    """Return the results as one JSON object; its schema is `docs/check.schema.json`."""
    sources = [_object(result) for result in results]
    words = [source["verdict"] for source in sources]
    worst = next((word for word in ("illegal", "unreadable") if word in words), "legal")
    return msgspec.json.format(dumps({"version": 1, "verdict": worst, "sources": sources}), indent=2)


def _object(result: Result) -> dict[str, object]:
    fields: dict[str, object] = {"source": result.source, "verdict": result.word}
    if result.verdict is None:
        return {**fields, "error": result.error}
    return {
        **fields,
        "responses": result.verdict.responses,
        "events": result.verdict.events,
        "items": result.verdict.items,
        "status": result.verdict.status,
        "counts": {severity: result.count(severity) for severity in _COMMANDS},
        "findings": [{**attrs.asdict(reported.finding), "times": reported.times} for reported in result.reported],
    }


def as_annotations(result: Result) -> Iterator[str]:
    """Yield the findings as workflow commands of GitHub Actions, which annotate the files."""
    file = f"file={_escaped(result.source, ':,')}"
    if result.verdict is None:
        yield f"::error {file}::{_escaped(result.error)}"
    for reported in result.reported:
        finding = reported.finding
        place = f"{file},line={finding.line or 1},title={_escaped(finding.rule, ':,')}"
        yield f"::{_COMMANDS[finding.severity]} {place}::{_escaped(_sentence(reported))}"


def _escaped(text: str, more: str = "") -> str:
    return "".join(f"%{ord(letter):02X}" if letter in f"%\r\n{more}" else letter for letter in text)


def as_text(result: Result, width: int) -> Iterator[str]:
    """Yield the findings as lines of text: errors first, wrong order before wrong content."""
    yield f"{typer.style(result.word, fg=_COLOURS[result.word], bold=True)}: {_summary(result)}"
    for heading, group in _groups(result.reported):
        if group:
            yield ""
            yield typer.style(heading, bold=True)
            for reported in group:
                yield from _entry(reported, width)


def _summary(result: Result) -> str:
    verdict = result.verdict
    if verdict is None:
        return f"{result.source}: {result.error}"
    counts = [counted(number, noun) for noun in ("error", "deviation") if (number := result.count(noun))]
    if number := result.count("not_judged"):
        counts.append(f"{number} not judged")
    several = f"{verdict.responses} responses, " if verdict.responses > 1 else ""
    size = f"{several}{counted(verdict.events, 'event')}, {counted(len(verdict.items), 'item')}, {verdict.status or 'not ended'}"
    findings = f"{', '.join(counts)} in " if counts else ""
    return f"{result.source}: {findings}{size}"


def _groups(reported: Sequence[Reported]) -> Iterator[tuple[str, list[Reported]]]:
    for sort, heading in (("order", "Errors: wrong order"), ("content", "Errors: wrong content")):
        yield heading, [each for each in reported if each.finding.severity == "error" and RULES[each.finding.rule].sort == sort]
    deviations = "Deviations: unusual, but every tested client accepts them (--strict: errors)"
    for severity, heading in (("deviation", deviations), ("not_judged", "Not judged: unknown to Interlock")):
        yield heading, [each for each in reported if each.finding.severity == severity]


def _entry(reported: Reported, width: int) -> Iterator[str]:
    finding = reported.finding
    colour = typer.colors.RED if finding.severity == "error" else typer.colors.YELLOW
    space = width - len(_MARGIN)
    first, *rest = textwrap.wrap(_sentence(reported), space, break_long_words=False) or [""]
    rest += textwrap.wrap(_place(finding), space)
    if finding.expected:
        rest += textwrap.wrap(f"expected: {', '.join(map(_short, finding.expected))}", space, break_long_words=False)
    yield f"  {typer.style(finding.rule.ljust(len(_MARGIN) - 3), fg=colour)} {first}"
    yield from (f"{_MARGIN}{line}" for line in rest)


_MARGIN: Final = " " * 7


def _sentence(reported: Reported) -> str:
    finding = reported.finding
    event = f"{_short(finding.came)}: " if finding.came else ""
    deviation = f" [{finding.habit}]" if finding.habit else ""
    times = f", {reported.times} times" if reported.times > 1 else ""
    return f"{event}{finding.message}{deviation}{times}"


def _place(finding: Finding) -> str:
    event = f"event {finding.event}" if finding.came else "at the end"
    line = f"line {finding.line}, " if finding.line else ""
    item = f", {finding.kind or 'item'} {finding.item}" if finding.item else ""
    state = f" ({finding.state})" if finding.state else ""
    return f"{line}{event}{item}{state}"


def _short(name: str) -> str:
    """Drop the prefix that all wire names share."""
    return name.removeprefix("response.")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 event`, `2 events`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def explanation(name: str, width: int) -> Iterator[str]:
    """Yield the lines that explain a rule (`R10`) or a deviation (`late-done`)."""
    if name in DEVIATIONS:
        yield from _deviation_lines(name, width)
        return
    rule = RULES[name]
    yield typer.style(f"{rule.number} {rule.name}", bold=True)
    yield from textwrap.wrap(rule.says.replace("`", ""), width)
    yield ""
    why = f"If broken: {rule.breaks}" if rule.breaks else "One stream cannot show this: the tests of the parsers compare two."
    yield from textwrap.wrap(why.replace("`", ""), width)
    deviations = [each.name for each in DEVIATIONS.values() if each.rule == name]
    if deviations:
        yield ""
        yield "Exceptions that are not errors:"
        for deviation in deviations:
            yield from _deviation_lines(deviation, width)


def _deviation_lines(name: str, width: int) -> Iterator[str]:
    deviation = DEVIATIONS[name]
    severity = "not judged" if deviation.severity == "not_judged" else "a deviation"
    seen = "" if deviation.seen == "—" else f" Seen: {deviation.seen}."
    text = f"{deviation.name} ({deviation.rule}, {severity}): {deviation.what}.{seen} Not an error, because {deviation.why}."
    yield from textwrap.wrap(text.replace("`", ""), width, initial_indent="  ", subsequent_indent="    ")
