"""The same scripted turns against vLLM's own routes and Interlock's, on one build; writes docs/evidence/conformance.md.

    .venv-vllm/bin/python benchmarks/turns/vllm_turns.py harmony hermes

Each turn of tests/real_vllm/turns.py is streamed and requested in one piece, through each API, on a server with the plugin and on
one without. Findings of `interlock check` on a stream are counted by rule and severity. R19, M13 or C9 is counted if the answer
in one piece is another one. The results stay in benchmarks/out/conformance.json, and the streams in benchmarks/out/streams; its
arguments name the groups to play again, once all have been played, and `pages` plays none. The streams of vLLM that `SAMPLES`
names go to the corpus.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx
from attrs import asdict, evolve, frozen

from interlock.dialects import ApiName
from interlock.events.rulebook import Finding
from interlock.judges import DIALECT_RULES, RULES
from interlock.testing.conformance.player import CaseEnd, Player

ROOT: Final = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "real_vllm")]

import apis  # noqa: E402 - it is found by the line above
from faults import count_faults  # noqa: E402 - likewise
from playing import TIMEOUT, events, without_chance  # noqa: E402 - likewise
from servers import ALL_APIS, FAMILIES, Server, Setup, family  # noqa: E402 - likewise
from servers import HARMONY as HARMONY_SETUP  # noqa: E402 - likewise
from servers import PARSED as PARSED_SETUP  # noqa: E402 - likewise
from turns import HARMONY, PARSED, Turn, family_turns  # noqa: E402 - likewise

PAGE: Final = ROOT / "docs" / "evidence" / "conformance.md"
TURNS_PAGE: Final = ROOT / "docs" / "evidence" / "conformance" / "turns.md"
RESULTS: Final = ROOT / "benchmarks" / "out" / "conformance.json"
STREAMS: Final = ROOT / "benchmarks" / "out" / "streams"
"""The streams of the last run, by side and API."""
CORPUS: Final = ROOT / "tests" / "corpus" / "vllm"
SAMPLES: Final = (
    "empty reasoning",
    "a function call",
    "cut in arguments",
    "no channel",
    "python",
    "a search",
    "reasoning and a function call (parsers)",
    "an engine that gives up: its grammar allows one call (parsers)",
    "log probabilities (parsers)",
    "text after a call (mistral)",
)
"""The turns whose streams of vLLM are in the corpus: one for each kind of finding."""
HARMONY_FLAGS: Final = ("--enable-auto-tool-choice", "--tool-call-parser", "openai")
"""The flags without which vLLM's other APIs have no calls of gpt-oss."""
PLAN: Final[Sequence[tuple[str, Setup, Sequence[Turn]]]] = (
    ("harmony", evolve(HARMONY_SETUP, flags=HARMONY_FLAGS), HARMONY),
    ("text with markers", PARSED_SETUP, PARSED),
    *((f"`{name}`", family(name), family_turns(name, reasoning)) for name, reasoning in FAMILIES.items()),
)
ORDINARY: Final = frozenset(turn.name for _, _, turns in PLAN for turn in turns if turn.is_ordinary)
TERMINAL: Final = ("response.completed", "response.incomplete", "response.failed")
WHOLE: Final[Mapping[ApiName, str]] = {"responses": "R19", "messages": "M13", "chat": "C9"}
"""The rule for the answer in one piece."""
OUTCOME: Final = ("output", "status", "incomplete_details")
OTHER_APIS: Final[Sequence[ApiName]] = ("messages", "chat")
AT_ONCE: Final = 4
"""How many turns a server plays at once."""

INTRODUCTION: Final = """\
# Conformance: vLLM's streams and Interlock's

{turns} scripted turns, played on {build},
once through vLLM's own routes and once through Interlock's [plugin](../guides/vllm.md). In both, vLLM is the engine, and a
tiny model writes the tokens of [tests/real_vllm/turns.py](../../tests/real_vllm/turns.py). `benchmarks/turns/vllm_turns.py` plays
them again and writes this page. vLLM groups tokens by the speed of its engine, so some of its counts differ by one or two from
run to run.

{ordinary} of the turns are *ordinary*: a working model writes such output, and writes it to its end. The others are truncated,
malformed or blank, quote a marker, have text after a call, or call what nobody declared; how often real models write such output
was not measured.

## Responses

[`interlock check`](../guides/check.md) judges each stream. An **error** breaks the published contract or a known client. A
**deviation** breaks a rule, but every tested client accepts it, or a well-known service sends it; most of vLLM's are about fields
([R14](rules.md#r14)), such as a null that the API omits. R19 counts turns whose response differs when it is not streamed, in more
than fields that one of the two leaves out or the spaces in the JSON of arguments; the other rules are about the stream.

A stream **says something else** than the model wrote if its text, its reasoning, or its calls with their arguments are not those
of the turn. Of malformed output, Interlock's authors decided what the model wrote, by the rules of
[recovery.md](conformance/recovery.md).
"""

BY_FAULT: Final = """\
### By fault

The errors are symptoms: one fault can break several rules, in each turn that meets it. A turn with two faults counts in both
rows. *Raises* counts the turns in which the stream helper of the `openai` package ({openai}, Python) raises because of the fault.
[clients.md](conformance/clients.md) names no client that breaks on one of these, because it is about other faults.
`benchmarks/turns/faults.py` counts them in the recorded streams.
"""

GROUPS: Final = """\
### By group

The turns of *harmony* are in the format of gpt-oss: well-formed, truncated, malformed, and with hosted tools. In *text with
markers*, calls and reasoning are text between markers. Each other group has the format of one [family](../library/families.md) of
models.
"""

TURNS: Final = """\
# Conformance, turn by turn

The turns of [the summary](../conformance.md), with the errors and deviations of each stream by rule. The first finding is an
error, if there is one. "function_call has no field 'output_index'" means that vLLM sends a field that the API's type does
not have. *Other content*: the stream says something else than the model wrote.

An *ordinary* turn is one that a working model writes, to its end.

Ten streams, one for each kind of finding, are in [tests/corpus/vllm](../../../tests/corpus/vllm) as vLLM sent them, and linked
below: `interlock check` judges such a file, and `interlock view` shows it. `benchmarks/turns/vllm_turns.py` plays the turns
again, writes this page, and leaves every stream of both servers in `benchmarks/out/streams`. R19 compares a stream with the
answer in one piece, so `interlock check` cannot find it in a file.

## Responses
"""

OTHERS: Final = """\
## Messages and Chat Completions

The {turns} turns through `POST /v1/messages` and `POST /v1/chat/completions`.
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
        errors: How many errors each rule has.
        deviations: How many deviations each rule has, the missing end marker not counted.
        marked: Whether the end marker came.
        ended: Whether a terminal event came.
        other_content: How the stream differs from what the model wrote; empty if it does not.
        refused: Whether the request was refused.
        first: The first error, or without one the first deviation, as a sentence; empty without findings.
        failed: Whether the stream ended with an error.
    """

    group: str
    errors: Mapping[str, int]
    deviations: Mapping[str, int]
    marked: bool
    ended: bool
    other_content: str = ""
    refused: bool = False
    first: str = ""
    failed: bool = False

    @property
    def findings(self) -> Counter[str]:
        """How many findings each rule has."""
        return Counter(self.errors) + Counter(self.deviations)


def file_name(turn: str) -> str:
    """Return the name of the file with the stream of a turn."""
    return f"{'-'.join(re.findall('[a-z0-9_]+', turn.lower()))}.sse"


def play(server: Server, turn: Turn, group: str, api: ApiName = "responses", folder: Path | None = None) -> Played:
    """Play one turn through an API, and write its stream to a folder."""
    request, path = apis.request(api, server.setup.model, turn), apis.PATHS[api]
    try:
        reply, judged = Player(server.url, api, server.setup.model, {}, TIMEOUT).ask(request)
    except CaseEnd:
        return Played(group, {}, {}, marked=False, ended=False, refused=True)
    if folder is not None:
        (folder / file_name(turn.name)).write_bytes(reply.data)
    answer = httpx.post(f"{server.url}{path}", json=request, timeout=TIMEOUT)
    errors, deviations = Counter[str](), Counter[str]()
    sentences: list[str] = []
    for finding, times in judged.findings.items():
        if finding.deviation != "no-done-marker":
            (errors if finding.severity == "error" else deviations)[finding.rule] += times
            sentences.append(sentence(finding))
    bodies, output, reason = events(reply.data), reply.output, reply.reason
    ended = bool(bodies) and bodies[-1].get("type") in TERMINAL if api == "responses" else bool(reason)
    if api != "responses":
        difference = "" if apis.is_same(api, (output, reason), answer.json()) else "the whole answer is another one"
    elif not ended:
        difference = "the stream has no response to compare with the whole answer"
    elif answer.status_code != httpx.codes.OK:
        difference = f"the whole answer is an error, {answer.status_code}"
    else:
        difference = next(_differences(*(_outcome(each) for each in (bodies[-1]["response"], answer.json()))), "")
    if difference:
        sentences.insert(errors.total(), f"{WHOLE[api]}: {difference}")
        errors[WHOLE[api]] += 1
    other_content = apis.difference(output, turn.output)
    failed = reason in ("error", "failed")
    first = next(iter(sentences), "")
    return Played(group, errors, deviations, judged.has_done_marker, ended, other_content, first=first, failed=failed)


def sentence(finding: Finding) -> str:
    """Return a finding with its rule and the event in which it was found."""
    event = finding.received.removeprefix("response.")
    return f"{finding.rule}: {f'`{event}`: ' if event else ''}{finding.message}"


def _outcome(response: Mapping[str, Any]) -> Mapping[str, object]:
    return without_chance({name: response[name] for name in OUTCOME})


def _differences(streamed: object, whole: object, place: str = "") -> Iterator[str]:
    """Yield where two responses have another outcome; null agrees with all, and arguments are compared as JSON."""
    match streamed, whole:
        case (None, _) | (_, None):
            return
        case dict(), dict():
            for name in {**streamed, **whole}:
                yield from _differences(streamed.get(name), whole.get(name), f"{place}.{name}".lstrip("."))
        case list(), list() if len(streamed) == len(whole):
            for number, both in enumerate(zip(streamed, whole, strict=True)):
                yield from _differences(*both, f"{place}[{number}]")
        case str(), str() if place.endswith("arguments") and _json(streamed) == _json(whole):
            return
        case _:
            if streamed != whole:
                yield f"`{place}` is {_shown(streamed)}, but {_shown(whole)} in the whole answer"


def _shown(value: object) -> str:
    """Return a value as code; of a list of objects, only their types."""
    if isinstance(value, list):
        value = [each.get("type") if isinstance(each, dict) else each for each in value]
    return apis.shown(value)


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def measure(setup: Setup, turns: Sequence[Turn], group: str) -> Iterator[tuple[str, ApiName, str, Played]]:
    """Play turns on a server without the plugin and on one with it; yield the side, the API and the name with each result."""
    servers = {
        "vllm": Server(evolve(setup, plugin=False)),
        "interlock": Server(evolve(setup, environment={**setup.environment, **ALL_APIS})),
    }
    with ExitStack() as stack, ThreadPoolExecutor(AT_ONCE) as pool:
        for server in servers.values():
            stack.push(server.begin())
        for side, server in servers.items():
            server.__enter__()
            for api in apis.PATHS:
                folder = STREAMS / side / api
                folder.mkdir(parents=True, exist_ok=True)
                results = pool.map(partial(play, server, group=group, api=api, folder=folder), turns)
                yield from ((side, api, turn.name, result) for turn, result in zip(turns, results, strict=True))


Sides: TypeAlias = Mapping[str, Mapping[ApiName, Mapping[str, Played]]]
"""The results of both sides, by side, API and turn."""


def page(build: str, sides: Sides) -> Iterator[str]:
    """Yield the lines of docs/evidence/conformance.md."""
    vllm, interlock = sides["vllm"]["responses"], sides["interlock"]["responses"]
    ordinary = ORDINARY & vllm.keys()
    yield INTRODUCTION.format(turns=len(vllm), ordinary=len(ordinary), build=build)
    yield "| | vLLM | Interlock |"
    yield "|---|---:|---:|"
    for label, count in (
        ("turns without an error", lambda side: sum(not turn.errors for turn in side.values())),
        (
            "of these, turns whose stream says something else than the model wrote",
            lambda side: sum(bool(turn.other_content) and not turn.errors for turn in side.values()),
        ),
        (
            f"ordinary turns, of {len(ordinary)}, without an error",
            lambda side: sum(not side[name].errors for name in ordinary),
        ),
        ("streams without an error", lambda side: sum(not turn.errors.keys() - {"R19"} for turn in side.values())),
        ("turns without a finding", lambda side: sum(not turn.findings for turn in side.values())),
        ("turns whose stream has no terminal event", lambda side: sum(not turn.ended for turn in side.values())),
        ("errors", lambda side: sum(sum(turn.errors.values()) for turn in side.values())),
        ("deviations", lambda side: sum(sum(turn.deviations.values()) for turn in side.values())),
        (
            "streams without `[DONE]` at the end (not counted above)",
            lambda side: sum(not turn.marked for turn in side.values()),
        ),
    ):
        yield f"| {label} | {count(vllm)} | {count(interlock)} |"
    yield ""
    yield "### By rule"
    yield ""
    yield "| rule | vLLM's errors | vLLM's deviations | Interlock's findings |"
    yield "|---|---:|---:|---:|"
    rules = {rule for turn in (*vllm.values(), *interlock.values()) for rule in turn.findings}
    for rule in sorted(rules, key=_number):
        errors = sum(turn.errors.get(rule, 0) for turn in vllm.values())
        deviations = sum(turn.deviations.get(rule, 0) for turn in vllm.values())
        findings = sum(turn.findings[rule] for turn in interlock.values())
        yield f"| [{rule}](rules.md#{rule.lower()}) {RULES[rule].name} | {errors} | {deviations} | {findings} |"
    yield ""
    yield BY_FAULT.format(openai=version("openai"))
    yield "| fault | rules | turns | errors | raises |"
    yield "|---|---|---:|---:|---:|"
    folder = STREAMS / "vllm" / "responses"
    streams = (((folder / file_name(name)).read_bytes(), _whole(turn)) for name, turn in vllm.items())
    for fault, counts in count_faults(streams).items():
        links = ", ".join(f"[{rule}](rules.md#{rule.lower()})" for rule in sorted(counts.errors, key=_number))
        yield f"| {fault.says} | {links} | {counts.turns} | {counts.errors.total()} | {counts.raises} |"
    yield ""
    yield GROUPS
    yield "| group | turns | vLLM: without an error | errors | deviations | Interlock's findings |"
    yield "|---|---:|---:|---:|---:|---:|"
    for group in dict.fromkeys(turn.group for turn in vllm.values()):
        turns = {name: turn for name, turn in vllm.items() if turn.group == group}
        sound = sum(not turn.errors for turn in turns.values())
        errors = sum(sum(turn.errors.values()) for turn in turns.values())
        deviations = sum(sum(turn.deviations.values()) for turn in turns.values())
        findings = sum(interlock[name].findings.total() for name in turns)
        yield f"| {group} | {len(turns)} | {sound} | {errors} | {deviations} | {findings} |"
    yield ""
    yield from _others(sides)
    yield ""
    yield "[All turns](conformance/turns.md), one by one."


def _whole(turn: Played) -> str:
    """Return the sentence of R19 about a turn; empty if its whole answer agrees with its stream."""
    if "R19" not in turn.errors:
        return ""
    if turn.first.startswith("R19: "):
        return turn.first
    return "R19: another outcome" if turn.ended else "R19: no outcome"


def _others(sides: Sides) -> Iterator[str]:
    """Yield the lines on the other APIs."""
    columns = [sides[side][api] for api in OTHER_APIS for side in ("vllm", "interlock")]
    yield OTHERS.format(turns=len(columns[0]))
    yield "| turns | vLLM's Messages | Interlock's | vLLM's Chat Completions | Interlock's |"
    yield "|---|---:|---:|---:|---:|"
    for label, count in (
        ("refused", lambda turns: sum(turn.refused for turn in turns.values())),
        ("without an error", lambda turns: sum(not turn.errors and not turn.refused for turn in turns.values())),
        ("without an end", lambda turns: sum(not turn.ended and not turn.refused for turn in turns.values())),
        ("whose stream says something else", lambda turns: sum(bool(turn.other_content) for turn in turns.values())),
    ):
        yield f"| {label} | {' | '.join(str(count(turns)) for turns in columns)} |"
    yield ""
    yield OTHER_RULES
    yield "| rule | vLLM | Interlock |"
    yield "|---|---:|---:|"
    for api in OTHER_APIS:
        broken = {side: Counter(rule for turn in sides[side][api].values() for rule in turn.errors) for side in sides}
        for rule in sorted({*broken["vllm"], *broken["interlock"]}, key=_number):
            name = DIALECT_RULES[rule].name if rule in DIALECT_RULES else "one truth"
            yield f"| {rule} {name} | {broken['vllm'][rule]} | {broken['interlock'][rule]} |"


def turns_page(sides: Sides) -> Iterator[str]:
    """Yield the lines of docs/evidence/conformance/turns.md."""
    yield TURNS
    yield "| turn | ordinary | vLLM's errors | vLLM's deviations | vLLM's first finding | Interlock's findings |"
    yield "|---|---|---|---|---|---|"
    for name, turn in sides["vllm"]["responses"].items():
        others = _listed(sides["interlock"]["responses"][name].findings)
        link = f"[the stream](../../../tests/corpus/vllm/{file_name(name)})" if name in SAMPLES else ""
        first = _cell(turn.first, f"Other content: {turn.other_content}" if turn.other_content else "", link)
        kind = "yes" if name in ORDINARY else "no"
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
    """Measure the groups that the command line names, or all; keep the results, and write both pages."""
    build = f"vLLM {version('vllm')} ({platform.machine()}, Python {platform.python_version()})"
    groups = sys.argv[1:] or [group.strip("`") for group, _, _ in PLAN]
    kept: dict[str, dict[ApiName, dict[str, Any]]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not kept and len(groups) < len(PLAN):
        sys.exit(f"the pages show all groups, and {RESULTS} has none: play all first, without arguments")
    RESULTS.parent.mkdir(exist_ok=True)
    for group, setup, turns in PLAN:
        if group.strip("`") in groups:
            for side, api, name, played in measure(setup, turns, group):
                kept.setdefault(side, {}).setdefault(api, {})[name] = asdict(played)
                print(side, api, name, played, flush=True)
            RESULTS.write_text(json.dumps(kept))
    names = [turn.name for _, _, turns in PLAN for turn in turns]
    sides = {
        side: {api: {name: Played(**turns[name]) for name in names if name in turns} for api, turns in results.items()}
        for side, results in kept.items()
    }
    for name in SAMPLES:
        shutil.copy(STREAMS / "vllm" / "responses" / file_name(name), CORPUS)
    TURNS_PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join(page(build, sides)) + "\n", encoding="utf-8")
    TURNS_PAGE.write_text("\n".join(turns_page(sides)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
