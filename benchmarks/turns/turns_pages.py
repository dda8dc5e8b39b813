"""Writes docs/evidence/conformance.md and its list of turns from the results that `vllm_turns.py` keeps in `vllm_turns.jsonl`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final, TypeAlias

from attrs import field, frozen
from faults import (
    BREAKING,
    FAULTS,
    OPENAI_RAISES,
    RAISES,
    UNENDED_STREAM,
    WRONG_LAST_EVENT,
    Counts,
    Place,
    count_faults,
    fault_of,
)

from interlock.dialects import ApiName
from interlock.judges import DIALECT_RULES, RULES

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "evidence" / "conformance.md"
TURNS_PAGE: Final = ROOT / "docs" / "evidence" / "conformance" / "turns.md"
RESULTS: Final = Path(__file__).with_name("vllm_turns.jsonl")
"""A line about the run, then one for each turn, side and API."""
FIX_RESULTS: Final = Path(__file__).with_name("vllm_fixes.jsonl")
"""A line about the fixes, then one for each build and turn."""
SAMPLES: Final = (
    "empty reasoning",
    "a function call",
    "cut in arguments",
    "no channel",
    "a search whose arguments are no JSON",
    "python that says nothing",
    "cut in an answer",
    "python",
    "a search",
    "reasoning and a function call (parsers)",
    "an engine that gives up: its grammar allows one call (parsers)",
    "log probabilities (parsers)",
    "cut in arguments (hermes)",
    "reasoning, text and two calls (deepseek_v32)",
    "reasoning, text and two calls (deepseek_v3)",
    "text after a call (deepseek_v3)",
    "text after a call (mistral)",
    "no tools (mistral)",
)
"""The turns whose streams of vLLM are in the corpus: one for each fault that was found."""
CORPUS: Final = "tests/corpus/vllm"
REPOSITORY: Final = "https://github.com/vllm-project/vllm"
UNSTEADY: Final = ("`deepseek_v32`", "`deepseek_v3`")
"""The groups in which the load of the machine decides which turns have an error."""
OTHER_APIS: Final[Sequence[ApiName]] = ("messages", "chat")

INTRODUCTION: Final = """\
# Conformance: vLLM's streams and Interlock's

{turns} scripted turns, played on {build},
once through vLLM's own routes and once through Interlock's [plugin](../guides/vllm.md). In both, vLLM is the engine, and a
tiny model writes the tokens of [tests/real_vllm/turns.py](../../tests/real_vllm/turns.py). `benchmarks/turns/vllm_turns.py` plays
them again, keeps the results in `vllm_turns.jsonl` beside it, and writes this page.

vLLM's counts differ from run to run: its parsers read all tokens of a step of the engine at once, and how many these are depends
on the load. In three earlier runs, 69, 70 and 74 turns had no error. During the run of this page, the machine did other work.
Interlock's counts are the same in each.

{ordinary} of the turns are *ordinary*: a working model writes such output, and writes it to its end. The others are truncated,
malformed or blank, quote a marker, have text after a call, or call what nobody declared; how often real models write such output
was not measured.

The families share one tiny Qwen3 with Qwen's template, so only the text that a script writes is in the format of the family, and
the prompt never begins a thought. [servers.py](../../tests/real_vllm/servers.py) has the parsers of each. The script of
`deepseek_v32` therefore writes the `<think>` with which that model's own template would end the prompt.

{recorded}

## Responses

The column of vLLM {release} is {next_build}: its Python code, on the compiled parts of {before}.
It has the same lines, moved by a few, except for that of the last event: it sends `response.incomplete`.{next_recorded}
"""

KEY: Final = """\
### Key

| word | meaning |
|---|---|
| turn | One request, with the output that a script makes the model write. It is played twice: streamed and not. |
| finding | What [`interlock check`](../guides/check.md) finds in the stream: an error or a deviation. |
| error, deviation | [check.md](../guides/check.md#errors-and-deviations) defines both. Most of vLLM's deviations are about \
fields ([R14](rules.md#r14)), such as a null that the API omits. |
| R19 | Our own rule, which no contract has: a request has one answer, streamed or not. It counts a turn once, if the response \
that is not streamed is another one than the stream's; fields that one of the two leaves out and spaces in the JSON of arguments \
do not count. A stream alone cannot show it: `interlock check --whole` compares the two. |
| without an error | Of a *stream*: `interlock check` finds none. Of a *turn*: neither that nor R19. |
| other content | The content of the stream, which is its text, its reasoning, and its calls with their arguments, differs from \
what the model wrote. Of malformed output, Interlock's authors decided what it wrote, by the rules of \
[recovery.md](conformance/recovery.md). Such a stream can be free of errors, because the checker does not know what the model \
wrote. |
"""

BY_FAULT: Final = """\
### By fault

The errors are symptoms: one fault can break several rules, in each turn that meets it. A turn with two faults counts in both
rows; those that met it in {after} are in parentheses. *Breaks* says what a client meets, the worst first: the stream has no end;
the stream helper of the `openai` package ({openai}, Python) raises at an event; the content in a place is another one than the
model wrote; of the rest, *nothing tried* breaks.

Of the {ordinary} ordinary turns, {unended} has no end, {raising} raise, and {wrong} more have a wrong last event; all are of
gpt-oss with hosted tools. The other {harmless} with an error in their stream break nothing that was tried. Of those whose
stream has no error, {other} have [other content](#key).

`benchmarks/turns/faults.py` assigns each error to a fault. Line numbers are those of vLLM's tag v{release}. The issues and pull
requests, read in November 2026, describe the fault or a part of it, or fix it; none was found for the other faults.

*Stream* is what vLLM sent. Where R19 is broken, *not streamed* is its answer to the same request without streaming.
`interlock view FILE` shows a stream, and this finds its errors, also that of R19:

```sh
interlock check {corpus}/{r19}.sse --whole {corpus}/{r19}.json
```

This plays a turn on both servers, and shows the events and the findings of each. It takes minutes, most of them to start the
servers; `make env-vllm` installs vLLM {release}:

```sh
.venv-vllm/bin/python benchmarks/turns/vllm_turns.py --turn "python that says nothing"
```

One fault needs no turn, and is not counted: with any model, vLLM {release} answers this request with two events, and closes the
connection. Not streamed, it answers with the status 400.

```sh
curl -N http://127.0.0.1:8000/v1/responses -H 'Content-Type: application/json' \\
  -d '{{"model": "MODEL", "input": "Hi", "stream": true, "logit_bias": {{"99999999": 1}}}}'
```
"""

UNENDED: Final = """\
### Streams without an end

vLLM raised an exception in these turns, and closed the connection. `middlewares.ExceptionLog` of
[tests/real_vllm](../../tests/real_vllm/middlewares.py) wrote it to the log, with the innermost line of vLLM. {after} stopped in
the same turns, and in one more, which the load decides: [with fixes](#what-each-fix-gives), it stopped in rows of both releases.

| turn | exception | line |
|---|---|---|"""

GROUPS: Final = """\
### By group

The turns of *harmony* are in the format of gpt-oss: well-formed, truncated, malformed, and with hosted tools. In *text with
markers*, calls and reasoning are text between markers. Each other group has the format of one [family](../library/families.md) of
models.
"""

NO_MARKER: Final = """\
No count has the deviation [`no-done-marker`](rules.md#r3), because every service tested has it: {theirs} of vLLM's streams end
without `data: [DONE]`, and {ours} of Interlock's.
"""

FIXES: Final = """\
### What each fix gives

Each row fixes one fault more, in a running vLLM: [fixes.py](../../tests/real_vllm/fixes.py) wraps a few of its functions for each
fix, and names their lines. `benchmarks/turns/vllm_turns.py fixes` plays the turns in every row on the same server, in a run of
its own. A cell counts the turns without an error, of {steady}, and in parentheses of the {ordinary} ordinary ones. *Streams*
leaves out R19, and *turns* includes it. [Which for whom](../library/engine.md#which-for-whom) compares fixes and engine.

For streams, the last event (in 0.32) and the fields of a call give most. White space matters most to R19: vLLM strips the text
before a call if the answer is not streamed, but a stream sends its beginning before it knows of the call. So the fix strips
every text, also where there is no call, and cannot be merged as it is. The opposite, no stripping where the answer is not
streamed, was not tried. The fix of the code interpreter's call has a price: vLLM's prompts for gpt-oss refuse the call
with 400 if a client sends it back.

**None of the six helps a stream that stops, or at which `openai` raises.** Pull requests about these are {requests};
{unreported} have none.

Four turns, *cut in arguments* of `qwen3_coder`, `glm45`, `glm47` and `minimax_m2`, have a second difference behind that of white
space: not streamed, the arguments of the cut call are `{{}}`. The two DeepSeek groups are left out: in every row anew, the load
decides whether `<think>` is in their reasoning. 0.33.0 has the fix of the last event already: what differs in its row is the load
too.

{recorded}
"""

TURNS: Final = """\
# Conformance, turn by turn

The turns of [the summary](../conformance.md), with the errors and deviations of each stream by rule; its
[key](../conformance.md#key) has the words. The first finding is an error, if there is one. *Other content*: the content
of the stream differs from what the model wrote.

An *ordinary* turn is one that a working model writes, to its end.

Some streams are in [tests/corpus/vllm](../../../tests/corpus/vllm) as vLLM sent them, and linked below; with them is the answer
to the same request without streaming, where it is another one. `interlock check A.sse` finds the errors, with `--whole A.json`
also that of R19, and `interlock view A.sse` shows the stream. `benchmarks/turns/vllm_turns.py` plays the turns again, writes this
page, and leaves all streams and answers of both servers in `benchmarks/out/streams`.

## Responses
"""

OTHERS: Final = """\
## Messages and Chat Completions

The {turns} turns through `POST /v1/messages` and `POST /v1/chat/completions` of vLLM {before}.
vLLM refuses requests with hosted tools there, and Interlock runs them.
"""

OTHER_RULES: Final = """\
### Turns that break a rule

[dialects.md](../guides/dialects.md) has the rules. M13 and C9 count turns whose answer differs when it is not streamed.
"""


@frozen
class Played:
    """The result of a turn.

    Args:
        group: The group of the turn.
        ordinary: Whether a working model writes such output, and writes it to its end.
        errors: How many errors each rule has.
        deviations: How many deviations each rule has, the missing end marker not counted.
        marked: Whether the end marker came.
        ended: Whether a terminal event came.
        other_content: How the stream differs from what the model wrote; empty if it does not.
        refused: Whether the request was refused.
        first: The first error, or without one the first deviation, as a sentence; empty without findings.
        failed: Whether the stream ended with an error.
        symptoms: The symptoms of faults, each with its number; only of Responses.
        raised: The exception with which the server ended the stream, and its message; empty without one.
        at: The line of vLLM that raised it, or called what raised it: `vllm/envs.py:12`.
    """

    group: str
    ordinary: bool = False
    errors: Mapping[str, int] = field(factory=dict[str, int])
    deviations: Mapping[str, int] = field(factory=dict[str, int])
    marked: bool = False
    ended: bool = False
    other_content: str = ""
    refused: bool = False
    first: str = ""
    failed: bool = False
    symptoms: Sequence[tuple[str, int]] = ()
    raised: str = ""
    at: str = ""

    @property
    def causes(self) -> Iterator[tuple[str, int]]:
        """The symptoms; that of an unended stream has the exception that ended it, and that of R19 the other content."""
        for symptom, times in self.symptoms:
            unended = re.search(UNENDED_STREAM, symptom)
            more = self.raised if unended else self.other_content if symptom.startswith("R19") else ""
            yield f"{symptom}; {more}" if more else symptom, times

    @property
    def raises(self) -> bool:
        """Whether the `openai` package raises at an event."""
        return any(symptom.startswith(RAISES) for symptom, _ in self.symptoms)

    @property
    def findings(self) -> Counter[str]:
        """How many findings each rule has."""
        return Counter(self.errors) + Counter(self.deviations)


Sides: TypeAlias = Mapping[str, Mapping[ApiName, Mapping[str, Played]]]
"""The results of all sides, by side, API and turn."""


@frozen
class Run:
    """What the servers were that played the turns.

    Args:
        build: vLLM's version, and what it ran on.
        openai: The version of the `openai` package that read the streams.
        lines: The lines of vLLM's source that make the faults, by their place.
        next_build: The version of vLLM that played the turns of the side `next`, and what it ran on.
        recorded: The day and the commit of the run, as a sentence.
        next_recorded: The same of the run of the side `next`.
    """

    build: str
    openai: str
    lines: Mapping[str, int]
    next_build: str = ""
    recorded: str = ""
    next_recorded: str = ""


@frozen
class FixResults:
    """The results of a run with fixes.

    Args:
        fixes: What each fix does, in the order in which they apply.
        rules: For each build of vLLM and each turn, the rules that it breaks without a fix, with the first, with two, and so on.
        recorded: The day and the commit of the run, as a sentence.
    """

    fixes: Sequence[str]
    rules: Mapping[str, Mapping[str, Sequence[str]]]
    recorded: str = ""

    def sound(self, build: str, number: int, names: Sequence[str], ignored: AbstractSet[str] = frozenset()) -> int:
        """Return how many of some turns break no rule but ignored ones, with as many of the first fixes as the number says."""
        return sum(not {*self.rules[build][name][number].split()} - ignored for name in names)


def file_name(turn: str, ending: str = "sse") -> str:
    """Return the name of the file with the stream of a turn, or with another ending, `json`, of the one with its whole answer."""
    return f"{'-'.join(re.findall('[a-z0-9_]+', turn.lower()))}.{ending}"


def sample_files(name: str, turn: Played) -> Sequence[str]:
    """Return the names of the files of a turn in the corpus: its stream, and its whole answer if that is another one."""
    return [file_name(name), *([file_name(name, "json")] if "R19" in turn.errors else [])]


def read_results(text: str) -> tuple[Run, dict[str, dict[ApiName, dict[str, Played]]]]:
    """Read the results of a run."""
    run, *rows = map(json.loads, text.splitlines())
    sides: dict[str, dict[ApiName, dict[str, Played]]] = {}
    for row in rows:
        side, api, turn = (row.pop(name) for name in ("side", "api", "turn"))
        sides.setdefault(side, {}).setdefault(api, {})[turn] = Played(**row)
    return Run(**run), sides


def read_fixes() -> FixResults:
    """Read the results of a run with fixes."""
    head, *rows = map(json.loads, FIX_RESULTS.read_text(encoding="utf-8").splitlines())
    rules: dict[str, dict[str, Sequence[str]]] = {}
    for row in rows:
        rules.setdefault(row["build"], {})[row["turn"]] = row["rules"]
    return FixResults(head["fixes"], rules, head["recorded"])


def page(run: Run, sides: Sides, results: FixResults) -> Iterator[str]:
    """Yield the lines of docs/evidence/conformance.md."""
    vllm, interlock = sides["vllm"]["responses"], sides["interlock"]["responses"]
    ordinary = [name for name, turn in vllm.items() if turn.ordinary]
    before, release = _release(run.build), _release(run.next_build)
    yield INTRODUCTION.format(
        turns=len(vllm),
        ordinary=len(ordinary),
        build=run.build,
        recorded=run.recorded,
        next_recorded="" if run.recorded.startswith(run.next_recorded.rstrip(".")) else f" {run.next_recorded}",
        next_build=run.next_build,
        before=before,
        release=release,
    )
    yield f"| | vLLM {before} | vLLM {release} | Interlock in {before} |"
    yield "|---|---:|---:|---:|"
    yield from _table(*(_summary(turns, ordinary) for turns in (vllm, sides["next"]["responses"], interlock)))
    yield ""
    yield "A few of vLLM's faults make most of its errors: [what each fix gives](#what-each-fix-gives)."
    yield ""
    yield KEY
    yield "### By rule"
    yield ""
    yield f"| rule | vLLM {before}: errors | deviations | Interlock's findings |"
    yield "|---|---:|---:|---:|"
    rules = {rule for turn in (*vllm.values(), *interlock.values()) for rule in turn.findings}
    for rule in sorted(rules, key=_number):
        errors = sum(turn.errors.get(rule, 0) for turn in vllm.values())
        deviations = sum(turn.deviations.get(rule, 0) for turn in vllm.values())
        findings = sum(turn.findings[rule] for turn in interlock.values())
        yield f"| [{rule}](rules.md#{rule.lower()}) {RULES[rule].name} | {errors:,} | {deviations:,} | {findings:,} |"
    yield ""
    theirs, ours = (sum(turn.ended and not turn.marked for turn in side.values()) for side in (vllm, interlock))
    yield NO_MARKER.format(theirs=theirs, ours=ours or "none")
    yield from _faults(run, vllm, sides["next"]["responses"])
    yield from _fixes(results, vllm)
    yield GROUPS
    yield f"| group | turns | vLLM {before}: without an error | errors | deviations | Interlock's findings |"
    yield "|---|---:|---:|---:|---:|---:|"
    for group in dict.fromkeys(turn.group for turn in vllm.values()):
        turns = {name: turn for name, turn in vllm.items() if turn.group == group}
        sound = sum(not turn.errors for turn in turns.values())
        errors = sum(sum(turn.errors.values()) for turn in turns.values())
        deviations = sum(sum(turn.deviations.values()) for turn in turns.values())
        findings = sum(interlock[name].findings.total() for name in turns)
        yield f"| {group} | {len(turns)} | {sound} | {errors:,} | {deviations:,} | {findings:,} |"
    yield ""
    yield from _others(sides, before)
    yield ""
    yield "[All turns](conformance/turns.md), one by one."


def _faults(run: Run, vllm: Mapping[str, Played], following: Mapping[str, Played]) -> Iterator[str]:
    """Yield the lines on vLLM's faults and on streams without an end; `following` has the turns of the next release."""
    release = _release(run.build)
    r19 = file_name("reasoning and a function call (parsers)").removesuffix(".sse")
    after = _release(run.next_build)
    ordinary = [turn for turn in vllm.values() if turn.ordinary]
    read = [turn for turn in ordinary if turn.ended and not turn.raises]
    faulty = [turn for turn in read if turn.errors.keys() - {"R19"} and not turn.other_content]
    wrong = sum(any(fault_of(symptom).harm == WRONG_LAST_EVENT for symptom, _ in turn.causes) for turn in faulty)
    yield BY_FAULT.format(
        openai=run.openai,
        release=release,
        after=after,
        corpus=CORPUS,
        r19=r19,
        ordinary=len(ordinary),
        raising=sum(turn.raises for turn in ordinary),
        unended=sum(not turn.ended for turn in ordinary),
        wrong=wrong,
        harmless=len(faulty) - wrong,
        other=sum(bool(turn.other_content) for turn in read),
    )
    yield f"| fault | breaks | errors in {release} | turns ({after}) | vLLM's source, reports and stream |"
    yield "|---|---|---|---:|---|"
    now, later = (count_faults(turn.causes for turn in side.values()) for side in (vllm, following))
    for fault in {**now, **later}:
        counts = now.get(fault, Counts())
        errors = ", ".join(
            f"[{rule}](rules.md#{rule.lower()}): {counts.errors[rule]}" for rule in sorted(counts.errors, key=_number)
        )
        harm = f"{fault.harm} in {counts.raises}" if fault.harm == OPENAI_RAISES else fault.harm
        turns = f"{counts.turns} ({later.get(fault, Counts()).turns})"
        links = [
            *(_source(place, release, run.lines[str(place)]) for place in fault.places),
            *map(_report, fault.reports),
            *([_links(fault.turn, vllm[fault.turn], "../..", "stream")] if fault.turn else []),
        ]
        yield f"| {fault.says} | {harm} | {errors} | {turns} | {', '.join(links)} |"
    yield ""
    yield UNENDED.format(after=after)
    only_later = [(after, f"{name}, in {after}", turn) for name, turn in following.items() if vllm[name].ended]
    for tag, name, turn in (*((release, name, turn) for name, turn in vllm.items()), *only_later):
        if not turn.ended:
            path, _, line = turn.at.rpartition(":")
            yield f"| {name} | {f'`{turn.raised}`' if turn.raised else 'none'} | {_link(path, tag, line) if path else ''} |"
    yield ""


def _fixes(results: FixResults, vllm: Mapping[str, Played]) -> Iterator[str]:
    """Yield the lines on what each fix gives, in streams and turns without an error."""
    steady = [name for name, turn in vllm.items() if turn.group not in UNSTEADY]
    ordinary = [name for name in steady if vllm[name].ordinary]
    breaking = [fault for fault in FAULTS if fault.harm in BREAKING and fault.turn]
    requests = dict.fromkeys(report for fault in breaking for report in fault.reports if report.startswith("pull/"))
    yield FIXES.format(
        steady=len(steady),
        ordinary=len(ordinary),
        requests=", ".join(map(_report, requests)),
        unreported=" and ".join(f"*{fault.turn}*" for fault in breaking if not fault.reports),
        recorded=results.recorded,
    )
    heads = [f"{_release(build)}: {kind}" for kind in ("streams", "turns, with R19") for build in results.rules]
    yield f"| fixed | {' | '.join(heads)} |"
    yield f"|---|{'---:|' * len(heads)}"
    for number, says in enumerate(("nothing", *results.fixes)):
        cells = [
            "{} ({})".format(*(results.sound(build, number, names, ignored) for names in (steady, ordinary)))
            for ignored in ({"R19"}, set[str]())
            for build in results.rules
        ]
        yield f"| {says} | {' | '.join(cells)} |"
    yield ""


def _summary(turns: Mapping[str, Played], ordinary: Sequence[str]) -> Mapping[str, int]:
    """Return the counts of a side, each with its label."""
    every = [*turns.values()]
    other_whole = sum(turn.errors.get("R19", 0) for turn in every)
    kind = f"ordinary turns, of {len(ordinary)}"
    return {
        "turns without an error": sum(not turn.errors for turn in every),
        "of these, turns whose content differs from what the model wrote": sum(
            bool(turn.other_content) and not turn.errors for turn in every
        ),
        f"{kind}, without an error": sum(not turns[name].errors for name in ordinary),
        f"{kind}, whose stream has no error": sum(not turns[name].errors.keys() - {"R19"} for name in ordinary),
        f"{kind}, that stop or make the `openai` package raise": sum(
            not turns[name].ended or turns[name].raises for name in ordinary
        ),
        "streams without an error": sum(not turn.errors.keys() - {"R19"} for turn in every),
        "turns without a finding": sum(not turn.findings for turn in every),
        "turns whose stream has no terminal event": sum(not turn.ended for turn in every),
        "turns whose events make the `openai` package raise": sum(turn.raises for turn in every),
        "errors of the contract or a client": sum(sum(turn.errors.values()) for turn in every) - other_whole,
        "turns whose answer without streaming is another one (R19)": other_whole,
        "errors with R19, as the tables by rule, fault and group count them": sum(sum(turn.errors.values()) for turn in every),
        "deviations": sum(sum(turn.deviations.values()) for turn in every),
    }


def _table(*columns: Mapping[str, int]) -> Iterator[str]:
    for label in columns[0]:
        yield f"| {label} | {' | '.join(f'{column[label]:,}' for column in columns)} |"


def _links(name: str, turn: Played, root: str, says: str) -> str:
    """Return links to the files of a sample."""
    links = zip((says, "not streamed"), sample_files(name, turn), strict=False)
    return ", ".join(f"[{label}]({root}/{CORPUS}/{file})" for label, file in links)


def _report(report: str) -> str:
    return f"[#{report.partition('/')[2]}]({REPOSITORY}/{report})"


def _source(place: Place, release: str, line: int) -> str:
    return _link(place.path, release, str(line))


def _release(build: str) -> str:
    return build.split()[1].partition("+")[0]


def _link(path: str, release: str, line: str) -> str:
    return f"[{path.rpartition('/')[2]}:{line}]({REPOSITORY}/blob/v{release}/{path}#L{line})"


def _others(sides: Sides, before: str) -> Iterator[str]:
    """Yield the lines on the other APIs."""
    columns = [sides[side][api] for api in OTHER_APIS for side in ("vllm", "interlock")]
    yield OTHERS.format(turns=len(columns[0]), before=before)
    yield "| turns | vLLM's Messages | Interlock's | vLLM's Chat Completions | Interlock's |"
    yield "|---|---:|---:|---:|---:|"
    for label, count in (
        ("refused", lambda turns: sum(turn.refused for turn in turns.values())),
        ("without an error", lambda turns: sum(not turn.errors and not turn.refused for turn in turns.values())),
        ("without an end", lambda turns: sum(not turn.ended and not turn.refused for turn in turns.values())),
        (
            "whose content differs from what the model wrote",
            lambda turns: sum(bool(turn.other_content) for turn in turns.values()),
        ),
    ):
        yield f"| {label} | {' | '.join(str(count(turns)) for turns in columns)} |"
    yield ""
    yield OTHER_RULES
    yield "| rule | vLLM | Interlock |"
    yield "|---|---:|---:|"
    for api in OTHER_APIS:
        broken = {
            side: Counter(rule for turn in sides[side][api].values() for rule in turn.errors) for side in ("vllm", "interlock")
        }
        for rule in sorted({*broken["vllm"], *broken["interlock"]}, key=_number):
            yield f"| {rule} {DIALECT_RULES[rule].name} | {broken['vllm'][rule]} | {broken['interlock'][rule]} |"


def turns_page(sides: Sides) -> Iterator[str]:
    """Yield the lines of docs/evidence/conformance/turns.md."""
    yield TURNS
    yield "| turn | ordinary | vLLM's errors | vLLM's deviations | vLLM's first finding | Interlock's findings |"
    yield "|---|---|---|---|---|---|"
    for name, turn in sides["vllm"]["responses"].items():
        others = _listed(sides["interlock"]["responses"][name].findings)
        link = _links(name, turn, "../../..", "the stream") if name in SAMPLES else ""
        raised = f"vLLM raised `{turn.raised}`" if turn.raised else ""
        first = _cell(turn.first, raised, f"Other content: {turn.other_content}" if turn.other_content else "", link)
        kind = "yes" if turn.ordinary else "no"
        yield f"| {name} | {kind} | {_described(turn)} | {_listed(turn.deviations)} | {first} | {others} |"
    yield ""
    yield "## Messages and Chat Completions"
    yield ""
    yield "| turn | vLLM's Messages | Interlock's | vLLM's Chat Completions | Interlock's |"
    yield "|---|---|---|---|---|"
    for name in sides["vllm"]["messages"]:
        cells = [_described(sides[side][api][name]) for api in OTHER_APIS for side in ("vllm", "interlock")]
        yield f"| {name} | {' | '.join(cells)} |"


def _cell(*sentences: str) -> str:
    return ". ".join(filter(None, sentences)).replace("|", "\\|") or "none"


def _described(turn: Played) -> str:
    if turn.refused:
        return "refused"
    notes = [*([] if turn.ended else ["no terminal event"]), *(["other content"] if turn.other_content else [])]
    return ", ".join([*([_listed(turn.errors)] if turn.errors or not notes else []), *notes])


def _number(rule: str) -> int:
    return int(rule[1:])


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{rule}: {counts[rule]}" for rule in sorted(counts, key=_number)) or "none"


def main() -> None:
    """Write both pages."""
    run, sides = read_results(RESULTS.read_text(encoding="utf-8"))
    TURNS_PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join(page(run, sides, read_fixes())) + "\n", encoding="utf-8")
    TURNS_PAGE.write_text("\n".join(turns_page(sides)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
