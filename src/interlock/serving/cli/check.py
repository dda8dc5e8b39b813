"""The command `interlock check`: reports the errors of streams to a person, a program or a CI job."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, Unpack

import click
import msgspec
from attrs import field, frozen

from interlock.dialects import APIS, ApiName
from interlock.events.dialects import DIALECTS, Dialect, DialectName
from interlock.events.json import clean, dumps, is_object, parse
from interlock.events.shapes import counted
from interlock.serving.cli.options import (
    FILE,
    UNUSABLE,
    SourceError,
    UrlOptions,
    UrlRequest,
    dialect_option,
    display_name,
    examples,
    expand_folders,
    is_url,
    open_source,
    recording_in,
    url_options,
)

if TYPE_CHECKING:
    from interlock.judges import AnyJudge, Deviation, Finding, Severity, Verdict

ReportFormat: TypeAlias = Literal["text", "json", "github"]
Word: TypeAlias = Literal["legal", "illegal", "unreadable"]

PIPE_WIDTH: Final = 80
MAX_WIDTH: Final = 110

_COMMANDS: Final[Mapping[Severity, str]] = {"error": "error", "deviation": "warning", "not_judged": "notice"}
_STATUSES: Final[Mapping[Word, int]] = {"illegal": 1, "unreadable": UNUSABLE, "legal": 0}
"""The exit statuses, the worst first."""
_COLOURS: Final = {"legal": "green", "illegal": "red", "unreadable": "yellow"}
_FINDING: Final = (
    *("rule", "severity", "event", "sequence_number", "item", "kind", "state", "received", "expected", "message", "deviation"),
    "line",
)
"""The fields of a finding in JSON."""
_MARGIN: Final = " " * 7
_MAX_NAME: Final = 80
"""The most characters of the name of an event that are shown."""


@frozen
class CheckedSource:
    """The verdict on one source with its findings, except the ignored ones; or why it cannot be read, in `error`.

    With `strict`, any finding makes a stream illegal.
    """

    source: str
    verdict: Verdict | None
    findings: Mapping[Finding, int] = field(factory=dict["Finding", int])
    error: str = ""
    strict: bool = False

    @property
    def word(self) -> Word:
        """The verdict in one word."""
        if self.verdict is None:
            return "unreadable"
        return "illegal" if self.count("error") or (self.strict and self.findings) else "legal"

    def count(self, severity: Severity) -> int:
        """Return how many findings have a severity, repeated ones included, as the viewer counts them."""
        return sum(times for finding, times in self.findings.items() if finding.severity == severity)


@click.command(
    epilog=examples(
        "interlock check stream.sse streams/",
        "interlock check http://127.0.0.1:8000/v1/responses --body request.json",
        "curl -sN ... | interlock check - --json",
        "interlock check --explain R10",
    )
)
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@url_options
@click.option(
    "--api",
    type=click.Choice(APIS),
    help="The API of the stream. Default: the one that its first event shows.",
)
@dialect_option("The dialect of a stream of the Responses API.")
@click.option("--permissive", is_flag=True, help="Allow the events of two open items to alternate.")
@click.option(
    "--from",
    "first",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="The stream was resumed: its first event has number N.",
)
@click.option(
    "--whole",
    type=FILE,
    metavar="FILE",
    help="Compare the last response with the answer in this JSON file, which the same request got without streaming (R19).",
)
@click.option("--strict", is_flag=True, help="Also fail on deviations and on what is not judged.")
@click.option("--ignore", multiple=True, metavar="RULE", help="Ignore a rule (R7) or a deviation (foreign-id); can be repeated.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    help="Text for a terminal, JSON, or annotations for GitHub.",
)
@click.option("--json", is_flag=True, help="The same as --format json.")
@click.option("--explain", metavar="RULE", help="Explain a rule (R10) or a deviation (late-done), and check nothing.")
def check(  # noqa: PLR0913 - a command has an argument for each of its options
    sources: tuple[str, ...],
    *,
    api: ApiName | None,
    dialect: DialectName,
    permissive: bool,
    first: int,
    whole: Path | None,
    strict: bool,
    ignore: tuple[str, ...],
    form: ReportFormat,
    json: bool,
    explain: str | None,
    **url: Unpack[UrlOptions],
) -> None:
    """Check streams of Responses, Messages and Chat for errors.

    SOURCE is a file, a folder, a URL, or - for standard input. A file may be compressed with gzip, and may be a recording, whose
    stream is judged.
    The exit status is 0 if no stream has an error, 1 if one has, 2 if one cannot be read.
    """
    from interlock.judges import AnyJudge

    width = min(shutil.get_terminal_size((PIPE_WIDTH, 0)).columns, MAX_WIDTH) if sys.stdout.isatty() else PIPE_WIDTH
    if explain is not None:
        _echo(explanation(_rule_or_deviation(explain, "--explain"), width))
        return
    names = list(expand_folders(sources))
    if not names:
        raise click.BadParameter("give a file, a folder, a URL, or - for standard input", param_hint="SOURCE")
    if url["body"] is not None and (files := [name for name in names if not is_url(name)]):
        raise click.BadParameter(f"a request is posted to a URL, and {files[0]} is not one", param_hint="--body")
    ignored = {_rule_or_deviation(name.strip(), "--ignore") for option in ignore for name in option.split(",")}
    request = UrlRequest.from_options(url)
    answer = None if whole is None else _read_whole(whole, names)

    def judge(name: str) -> CheckedSource:
        judge = AnyJudge(api=api, dialect=dialect, permissive=permissive, first=first, whole=answer)
        error = _read(judge, name, request, DIALECTS[dialect])
        verdict = judge.end()
        if not verdict.has_done_marker:
            error = error or judge.unreadable
        if answer is not None and judge.api != "responses":
            error = error or "--whole compares only streams of the Responses API"
        if error:
            return CheckedSource(display_name(name), None, error=error)
        findings = {
            finding: times for finding, times in verdict.findings.items() if ignored.isdisjoint((finding.rule, finding.deviation))
        }
        return CheckedSource(display_name(name), verdict, findings, strict=strict)

    sys.exit(_STATUSES[_worst(_report(names, judge, "json" if json else form, width))])


def _report(
    names: Sequence[str], judge: Callable[[str], CheckedSource], form: ReportFormat, width: int
) -> Sequence[CheckedSource]:
    """Judge the sources and write their findings, each when it is judged, or as JSON at the end; return the results."""
    results: list[CheckedSource] = []
    for name in names:
        result = judge(name)
        results.append(result)
        if form == "github":
            _echo(as_annotations(result))
        elif form == "text" and result.verdict is None:
            click.echo(f"interlock: {result.source}: {result.error}", err=True)
        elif form == "text":
            separate = len(results) > 1 and (result.findings or results[-2].findings)
            _echo(["", *as_text(result, width)] if separate else as_text(result, width))
    if form == "json":
        click.echo(as_json(results))
    elif form == "text" and len(results) > 1:
        _echo(["", *_totals(results)])
    return results


def _totals(results: Sequence[CheckedSource]) -> Iterator[str]:
    """Yield the sums of several streams: a line for each rule that has findings, and one for all streams."""
    rules = _by_rule(results)
    for rule, counts in rules.items():
        several = ", ".join(_counts(counts))
        yield f"  {rule.ljust(len(_MARGIN) - 3)} {several} in {counts['streams']} of {counted(len(results), 'stream')}"
    if rules:
        yield ""
    words = Counter(result.word for result in results)
    verdicts = ", ".join(f"{words[word]} {word}" for word in ("legal", "illegal", "unreadable") if words[word])
    yield f"{counted(len(results), 'stream')}: {verdicts}"


def _by_rule(results: Sequence[CheckedSource]) -> Mapping[str, Mapping[str, int]]:
    """Return how many findings of each severity each rule has, and in how many of the streams it has any."""
    from interlock.judges import DIALECT_RULES, RULES

    sums: dict[str, Counter[str]] = {}
    for result in results:
        for finding, times in result.findings.items():
            sums.setdefault(finding.rule, Counter())[finding.severity] += times
        for rule in {finding.rule for finding in result.findings}:
            sums[rule]["streams"] += 1
    return {rule: sums[rule] for rule in (*RULES, *DIALECT_RULES) if rule in sums}


def _counts(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield the number of errors, of deviations, and of what is not judged, if there are any."""
    yield from (counted(counts[noun], noun) for noun in ("error", "deviation") if counts.get(noun))
    if counts.get("not_judged"):
        yield f"{counts['not_judged']} not judged"


def _worst(results: Sequence[CheckedSource]) -> Word:
    return min((result.word for result in results), key=[*_STATUSES].index)


def _echo(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(clean(line))


def _read(judge: AnyJudge, name: str, request: UrlRequest, dialect: Dialect) -> str:
    """Feed a source, or the stream of a recording, to a judge; return why it cannot be read, or an empty text."""
    from interlock.judges.dialects import why_no_stream
    from interlock.serving.engines.recordings import RecordingError, replay_frames

    is_empty = True
    try:
        with open_source(name, request) as source:
            if source.content_type is not None:
                judge.content_type(source.content_type)
            judge.request(source.body)
            for place, chunk in enumerate(source.chunks):
                is_empty = is_empty and not chunk
                if place == 0 and (recording := recording_in(chunk, source)) is not None:
                    for frame in replay_frames(recording, dialect):
                        judge.feed(frame)
                    break
                if place == 0 and (reason := why_no_stream(chunk)):
                    return reason
                judge.feed(chunk)
    except SourceError as error:
        return str(error).removeprefix(f"{name}: ")
    except RecordingError as error:
        return f"line {error.line}: {error.message}"
    return "it is empty" if is_empty else ""


def _read_whole(file: Path, names: Sequence[str]) -> Mapping[str, object]:
    if len(names) > 1:
        raise click.BadParameter(f"it is compared with one stream, not {len(names)}", param_hint="--whole")
    try:
        answer = parse(file.read_bytes())
    except OSError as error:
        raise click.BadParameter(f"{file}: {error.strerror}", param_hint="--whole") from error
    if not is_object(answer):
        raise click.BadParameter(f"{file} is not a JSON object", param_hint="--whole")
    return answer


def _rule_or_deviation(name: str, option: str) -> str:
    from interlock.judges import DEVIATIONS, DIALECT_RULES, RULES

    names = {each.lower(): each for each in (*RULES, *DIALECT_RULES, *DEVIATIONS)}
    if name.lower() not in names:
        choices = ", ".join(names.values())
        raise click.BadParameter(f"no rule or deviation is named {name!r}; choose one of {choices}", param_hint=option)
    return names[name.lower()]


def as_json(results: Sequence[CheckedSource]) -> bytes:
    """Return the results as one JSON object; its schema is `docs/guides/check.schema.json`."""
    rules = {rule: {**dict.fromkeys(_COMMANDS, 0), **counts} for rule, counts in _by_rule(results).items()}
    words = Counter(result.word for result in results)
    report = {
        "version": 1,
        "verdict": _worst(results),
        "streams": {word: words[word] for word in _STATUSES},
        "rules": rules,
        "sources": [_object(result) for result in results],
    }
    return msgspec.json.format(dumps(report), indent=2)


def _object(result: CheckedSource) -> dict[str, object]:
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
        "findings": [
            {**{name: getattr(finding, name) for name in _FINDING}, "times": times} for finding, times in result.findings.items()
        ],
    }


def as_annotations(result: CheckedSource) -> Iterator[str]:
    """Yield the findings as workflow commands of GitHub Actions, which annotate the files."""
    file = f"file={_escape(result.source, ':,')}"
    if result.verdict is None:
        yield f"::error {file}::{_escape(result.error)}"
    for finding, times in result.findings.items():
        place = f"{file},line={finding.line or 1},title={_escape(finding.rule, ':,')}"
        yield f"::{_COMMANDS[finding.severity]} {place}::{_escape(_sentence(finding, times))}"


def _escape(text: str, specials: str = "") -> str:
    return "".join(f"%{ord(letter):02X}" if letter in f"%\r\n{specials}" else letter for letter in text)


def as_text(result: CheckedSource, width: int) -> Iterator[str]:
    """Yield the verdict and the findings as lines of text: errors first, wrong order before wrong content."""
    yield f"{click.style(result.word, fg=_COLOURS[result.word], bold=True)}: {_summary(result)}"
    for heading, group in _groups(result.findings):
        if group:
            yield ""
            yield click.style(heading, bold=True)
            for finding in group:
                yield from _entry(finding, result.findings[finding], width)


def _summary(result: CheckedSource) -> str:
    verdict = result.verdict
    if verdict is None:
        return f"{result.source}: {result.error}"
    counts = [*_counts({severity: result.count(severity) for severity in _COMMANDS})]
    several = f"{verdict.responses} responses, " if verdict.responses > 1 else ""
    size = f"{several}{counted(verdict.events, 'event')}, {counted(len(verdict.items), 'item')}, {verdict.status or 'not ended'}"
    findings = f"{', '.join(counts)} in " if counts else ""
    return f"{result.source}: {findings}{size}"


def _groups(findings: Iterable[Finding]) -> Iterator[tuple[str, list[Finding]]]:
    from interlock.judges import DIALECT_RULES, RULES

    rules = {**RULES, **DIALECT_RULES}
    for category, heading in (("order", "Errors: wrong order"), ("content", "Errors: wrong content")):
        yield heading, [each for each in findings if each.severity == "error" and rules[each.rule].category == category]
    deviations = "Deviations: well known (--strict: errors)"
    for severity, heading in (("deviation", deviations), ("not_judged", "Not judged: unknown to Interlock (--strict: errors)")):
        yield heading, [each for each in findings if each.severity == severity]


def _entry(finding: Finding, times: int, width: int) -> Iterator[str]:
    colour = "red" if finding.severity == "error" else "yellow"
    space = width - len(_MARGIN)
    first, *rest = textwrap.wrap(_sentence(finding, times), space, break_long_words=False) or [""]
    rest += textwrap.wrap(_place(finding), space)
    if finding.expected:
        rest += textwrap.wrap(f"expected: {', '.join(map(_short, finding.expected))}", space, break_long_words=False)
    yield f"  {click.style(finding.rule.ljust(len(_MARGIN) - 3), fg=colour)} {first}"
    yield from (f"{_MARGIN}{line}" for line in rest)


def _sentence(finding: Finding, times: int) -> str:
    event = f"{_short(finding.received)}: " if finding.received else ""
    deviation = f" [{finding.deviation}]" if finding.deviation else ""
    repeated = f", {times} times" if times > 1 else ""
    return f"{event}{finding.message}{deviation}{repeated}"


def _place(finding: Finding) -> str:
    event = f"event {finding.event}" if finding.received else "at the end"
    line = f"line {finding.line}, " if finding.line else ""
    item = f", {finding.kind or 'item'} {finding.item}" if finding.item else ""
    state = f" ({finding.state})" if finding.state else ""
    return f"{line}{event}{item}{state}"


def _short(name: str) -> str:
    name = name.removeprefix("response.")
    return name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…"


def explanation(name: str, width: int) -> Iterator[str]:
    """Yield the lines that explain a rule (`R10`) or a deviation (`late-done`)."""
    from interlock.judges import DEVIATIONS, DIALECT_RULES, RULES

    if name in DEVIATIONS:
        yield from _deviation_lines(DEVIATIONS[name], width)
        return
    rule = RULES[name] if name in RULES else DIALECT_RULES[name]
    yield click.style(f"{rule.number} {rule.name}", bold=True)
    yield from textwrap.wrap(rule.says.replace("`", ""), width)
    yield ""
    why = f"If broken: {rule.breaks}" if rule.breaks else "One stream alone cannot show this."
    yield from textwrap.wrap(why.replace("`", ""), width)
    deviations = [each for each in DEVIATIONS.values() if each.rule == name]
    if deviations:
        yield ""
        yield "Exceptions that are not errors:"
        for deviation in deviations:
            yield from _deviation_lines(deviation, width)


def _deviation_lines(deviation: Deviation, width: int) -> Iterator[str]:
    severity = "not judged" if deviation.severity == "not_judged" else "a deviation"
    senders = "" if deviation.senders == "—" else f" Seen: {deviation.senders}."
    text = f"{deviation.name} ({deviation.rule}, {severity}): {deviation.what}.{senders} Not an error, because {deviation.why}."
    yield from textwrap.wrap(text.replace("`", ""), width, initial_indent="  ", subsequent_indent="    ")
