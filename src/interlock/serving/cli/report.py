"""The findings of `interlock check` as text for a person, as JSON for a program, or as annotations of a CI job."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, TypeAlias

import attrs
import msgspec
import typer
from attrs import frozen

from interlock.events.json import dumps
from interlock.fsm.acceptor import HABITS, RULES, Finding, Reported, Verdict

Word: TypeAlias = Literal["legal", "illegal", "unreadable"]
"""The verdict on a source, in a word."""

_COMMANDS: Final = {"error": "error", "deviation": "warning", "not_judged": "notice"}
_COLOURS: Final = {"legal": typer.colors.GREEN, "illegal": typer.colors.RED, "unreadable": typer.colors.YELLOW}


@frozen
class Checked:
    """A source that was judged.

    Args:
        source: What it is called.
        verdict: The verdict; None if there was nothing to judge.
        reported: The findings to show, in the order of the verdict.
        error: Why there was nothing to judge.
        strict: Whether a deviation counts as an error.
    """

    source: str
    verdict: Verdict | None
    reported: Sequence[Reported] = ()
    error: str = ""
    strict: bool = False

    @property
    def word(self) -> Word:
        """The verdict in a word."""
        if self.verdict is None:
            return "unreadable"
        bad = ("error", "deviation") if self.strict else ("error",)
        return "illegal" if self.count(*bad) else "legal"

    def count(self, *severities: str) -> int:
        """Return how many different findings have one of some severities."""
        return sum(each.finding.severity in severities for each in self.reported)


def as_json(results: Iterable[Checked]) -> bytes:
    """Return all sources with their findings as one JSON object; `docs/check.schema.json` is its schema."""
    sources = [_object(checked) for checked in results]
    words = [source["verdict"] for source in sources]
    worst = next((word for word in ("illegal", "unreadable") if word in words), "legal")
    return msgspec.json.format(dumps({"version": 1, "verdict": worst, "sources": sources}), indent=2)


def _object(checked: Checked) -> dict[str, object]:
    fields: dict[str, object] = {"source": checked.source, "verdict": checked.word}
    if checked.verdict is None:
        return {**fields, "error": checked.error}
    return {
        **fields,
        "responses": checked.verdict.responses,
        "events": checked.verdict.events,
        "items": checked.verdict.items,
        "status": checked.verdict.status,
        "counts": {severity: checked.count(severity) for severity in _COMMANDS},
        "findings": [{**attrs.asdict(reported.finding), "times": reported.times} for reported in checked.reported],
    }


def as_annotations(checked: Checked) -> Iterator[str]:
    """Yield the findings as the commands by which a job of GitHub Actions annotates files."""
    file = f"file={_escaped(checked.source, ':,')}"
    if checked.verdict is None:
        yield f"::error {file}::{_escaped(checked.error)}"
    for reported in checked.reported:
        finding = reported.finding
        place = f"{file},line={finding.line or 1},title={_escaped(finding.rule, ':,')}"
        yield f"::{_COMMANDS[finding.severity]} {place}::{_escaped(_sentence(reported))}"


def _escaped(text: str, more: str = "") -> str:
    return "".join(f"%{ord(letter):02X}" if letter in f"%\r\n{more}" else letter for letter in text)


def as_text(checked: Checked, width: int) -> Iterator[str]:
    """Yield the findings as lines for a person: errors first, wrong order before wrong content.

    Args:
        checked: A source that was judged.
        width: The greatest length of a line.
    """
    yield f"{typer.style(checked.word, fg=_COLOURS[checked.word], bold=True)}: {_about(checked)}"
    for heading, chosen in _groups(checked.reported):
        if chosen:
            yield ""
            yield typer.style(heading, bold=True)
            for reported in chosen:
                yield from _entry(reported, width)


def _about(checked: Checked) -> str:
    verdict = checked.verdict
    if verdict is None:
        return f"{checked.source}: {checked.error}"
    counts = [counted(number, noun) for noun in ("error", "deviation") if (number := checked.count(noun))]
    if number := checked.count("not_judged"):
        counts.append(f"{number} not judged")
    several = f"{verdict.responses} responses, " if verdict.responses > 1 else ""
    size = f"{several}{counted(verdict.events, 'event')}, {counted(len(verdict.items), 'item')}, {verdict.status or 'not ended'}"
    findings = f"{', '.join(counts)} in " if counts else ""
    return f"{checked.source}: {findings}{size}"


def _groups(reported: Sequence[Reported]) -> Iterator[tuple[str, list[Reported]]]:
    for sort, heading in (("order", "Errors: wrong order"), ("content", "Errors: wrong content")):
        yield heading, [each for each in reported if each.finding.severity == "error" and RULES[each.finding.rule].sort == sort]
    for severity, heading in (
        ("deviation", "Deviations: unusual, and every client tried copes (--strict counts them)"),
        ("not_judged", "Not judged: unknown to Interlock"),
    ):
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
"""The margin in which the rule stands."""


def _sentence(reported: Reported) -> str:
    finding = reported.finding
    event = f"{_short(finding.came)}: " if finding.came else ""
    habit = f" [{finding.habit}]" if finding.habit else ""
    times = f", {reported.times} times" if reported.times > 1 else ""
    return f"{event}{finding.message}{habit}{times}"


def _place(finding: Finding) -> str:
    event = f"event {finding.event}" if finding.came else "at the end"
    line = f"line {finding.line}, " if finding.line else ""
    item = f", {finding.kind or 'item'} {finding.item}" if finding.item else ""
    state = f" ({finding.state})" if finding.state else ""
    return f"{line}{event}{item}{state}"


def _short(name: str) -> str:
    """Leave out the prefix that all wire names have."""
    return name.removeprefix("response.")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 event`, `2 events`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def explained(name: str, width: int) -> Iterator[str] | None:
    """Return the lines that explain a rule (`R10`) or a deviation (`late-done`); None if there is none of that name."""
    rule = RULES.get(name.upper())
    if rule is None:
        habit = HABITS.get(name.lower())
        return None if habit is None else iter(_habit_lines(habit.name, width))
    return _rule_lines(rule.number, width)


def _rule_lines(number: str, width: int) -> Iterator[str]:
    rule = RULES[number]
    yield typer.style(f"{rule.number} {rule.name}", bold=True)
    yield from textwrap.wrap(rule.says.replace("`", ""), width)
    yield ""
    why = rule.breaks or "One stream alone cannot show this: the tests of the parsers compare two."
    yield from textwrap.wrap(why.replace("`", ""), width, initial_indent="An error because: " if rule.breaks else "")
    names = [habit.name for habit in HABITS.values() if habit.rule == number]
    if names:
        yield ""
        yield "Departures from it that are not errors:"
        for name in names:
            yield from _habit_lines(name, width)


def _habit_lines(name: str, width: int) -> Iterator[str]:
    habit = HABITS[name]
    sort = "not judged" if habit.severity == "not_judged" else "a deviation"
    text = f"{habit.name} ({habit.rule}, {sort}): {habit.what}. Seen: {habit.seen}. Not an error, because {habit.why}."
    yield from textwrap.wrap(text.replace("`", ""), width, initial_indent="  ", subsequent_indent="    ")
