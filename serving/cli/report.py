"""What `interlock check` found, written for a person, for a program, or as annotations of a CI job.

It knows widths, colours and formats. What was found is `interlock.fsm.acceptor`'s.
"""

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
"""What is said of a source."""

_COMMANDS: Final = {"error": "error", "deviation": "warning", "not_judged": "notice"}
_COLOURS: Final = {"legal": typer.colors.GREEN, "illegal": typer.colors.RED, "unreadable": typer.colors.YELLOW}


@frozen
class Checked:
    """One source, and what came of it.

    Args:
        source: What it is called.
        verdict: What was found; None if there was nothing to judge.
        reported: What is shown of it, in the order of the verdict.
        wrong: Why there was nothing to judge.
        strict: Whether a deviation is counted as an error.
    """

    source: str
    verdict: Verdict | None
    reported: Sequence[Reported] = ()
    wrong: str = ""
    strict: bool = False

    @property
    def word(self) -> Word:
        """What is said of it."""
        if self.verdict is None:
            return "unreadable"
        bad = ("error", "deviation") if self.strict else ("error",)
        return "illegal" if self.count(*bad) else "legal"

    def count(self, *severities: str) -> int:
        """Return how many different findings it has of some severities."""
        return sum(one.finding.severity in severities for one in self.reported)


def as_json(checked: Iterable[Checked]) -> bytes:
    """Return what was found as one JSON object; `docs/check.schema.json` is its schema.

    Args:
        checked: The sources, in order.
    """
    sources = [_object(one) for one in checked]
    words = [source["verdict"] for source in sources]
    worst = next((word for word in ("illegal", "unreadable") if word in words), "legal")
    return msgspec.json.format(dumps({"version": 1, "verdict": worst, "sources": sources}), indent=2)


def _object(one: Checked) -> dict[str, object]:
    said: dict[str, object] = {"source": one.source, "verdict": one.word}
    if one.verdict is None:
        return {**said, "error": one.wrong}
    counts = {severity: one.count(severity) for severity in _COMMANDS}
    return {
        **said,
        "responses": one.verdict.responses,
        "events": one.verdict.events,
        "items": one.verdict.items,
        "status": one.verdict.status,
        "counts": counts,
        "findings": [{**attrs.asdict(found.finding), "times": found.times} for found in one.reported],
    }


def as_annotations(one: Checked) -> Iterator[str]:
    """Yield what was found as the commands by which a job of GitHub Actions annotates files.

    Args:
        one: A source.
    """
    if one.verdict is None:
        yield f"::error file={_escaped(one.source, ':,')}::{_escaped(one.wrong)}"
    for reported in one.reported:
        found = reported.finding
        at = f"file={_escaped(one.source, ':,')},line={found.line or 1},title={_escaped(_title(found), ':,')}"
        yield f"::{_COMMANDS[found.severity]} {at}::{_escaped(_sentence(reported))}"


def _escaped(text: str, more: str = "") -> str:
    return "".join(f"%{ord(one):02X}" if one in f"%\r\n{more}" else one for one in text)


def as_text(one: Checked, width: int) -> Iterator[str]:
    """Yield what was found as lines for a person: errors first, what is out of order before what is wrongly said.

    Args:
        one: A source.
        width: How long a line may be.
    """
    yield f"{typer.style(one.word, fg=_COLOURS[one.word], bold=True)}: {_about(one)}"
    for heading, chosen in _groups(one.reported):
        if chosen:
            yield ""
            yield typer.style(heading, bold=True)
            for reported in chosen:
                yield from _entry(reported, width)


def _about(one: Checked) -> str:
    verdict = one.verdict
    if verdict is None:
        return f"{one.source}: {one.wrong}"
    counts = [(one.count("error"), "error"), (one.count("deviation"), "deviation"), (one.count("not_judged"), "not judged")]
    found = ", ".join(f"{number} {what}" if what == "not judged" else counted(number, what) for number, what in counts if number)
    several = f"{verdict.responses} responses, " if verdict.responses > 1 else ""
    size = f"{several}{counted(verdict.events, 'event')}, {counted(len(verdict.items), 'item')}, {verdict.status or 'not ended'}"
    return f"{one.source}: {f'{found} in ' if found else ''}{size}"


def _groups(reported: Sequence[Reported]) -> Iterator[tuple[str, list[Reported]]]:
    for sort, heading in (("order", "Errors: what is out of order"), ("content", "Errors: what is wrongly said")):
        yield heading, [one for one in reported if one.finding.severity == "error" and RULES[one.finding.rule].sort == sort]
    for severity, heading in (
        ("deviation", "Deviations: unusual, and every client tried copes (--strict counts them)"),
        ("not_judged", "Not judged: nobody here knows what this is"),
    ):
        yield heading, [one for one in reported if one.finding.severity == severity]


def _entry(reported: Reported, width: int) -> Iterator[str]:
    found = reported.finding
    colour = typer.colors.RED if found.severity == "error" else typer.colors.YELLOW
    first, *rest = textwrap.wrap(_sentence(reported), width - len(_TITLED), break_long_words=False) or [""]
    yield f"  {typer.style(_title(found).ljust(len(_TITLED) - 3), fg=colour)} {first}"
    yield from (f"{_TITLED}{line}" for line in (*rest, *textwrap.wrap(_place(found), width - len(_TITLED))))
    if found.expected:
        expected = f"expected: {', '.join(map(_short, found.expected))}"
        yield from (f"{_TITLED}{line}" for line in textwrap.wrap(expected, width - len(_TITLED), break_long_words=False))


_TITLED: Final = " " * 7
"""The margin in which the rule stands."""


def _title(found: Finding) -> str:
    return found.rule


def _sentence(reported: Reported) -> str:
    found = reported.finding
    came = f"{_short(found.came)}: " if found.came else ""
    habit = f" [{found.habit}]" if found.habit else ""
    times = f", {reported.times} times" if reported.times > 1 else ""
    return f"{came}{found.message}{habit}{times}"


def _place(found: Finding) -> str:
    at = f"event {found.event}" if found.came else "at the end"
    line = f"line {found.line}, " if found.line else ""
    item = f", {found.kind or 'item'} {found.item}" if found.item else ""
    state = f" ({found.state})" if found.state else ""
    return f"{line}{at}{item}{state}"


def _short(name: str) -> str:
    """Leave out of a wire name what all have."""
    return name.removeprefix("response.")


def counted(number: int, what: str) -> str:
    """Return a number with its noun: `1 event`, `2 events`.

    Args:
        number: How many.
        what: The noun, in the singular.
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def explained(name: str, width: int) -> Iterator[str] | None:
    """Return the lines that explain a rule or a habit; None if there is none of that name.

    Args:
        name: `R10`, or what a finding says in brackets: `late-done`.
        width: How long a line may be.
    """
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
    why = rule.breaks or "This cannot be seen in one stream: the tests of the parsers compare two."
    yield from textwrap.wrap(why.replace("`", ""), width, initial_indent="An error because: " if rule.breaks else "")
    names = [habit.name for habit in HABITS.values() if habit.rule == number]
    if names:
        yield ""
        yield "What departs from it and is no error:"
        for name in names:
            yield from _habit_lines(name, width)


def _habit_lines(name: str, width: int) -> Iterator[str]:
    habit = HABITS[name]
    sort = "not judged" if habit.severity == "not_judged" else "a deviation"
    text = f"{habit.name} ({habit.rule}, {sort}): {habit.what}. Seen: {habit.seen}. No error, because {habit.why}."
    yield from textwrap.wrap(text.replace("`", ""), width, initial_indent="  ", subsequent_indent="    ")
