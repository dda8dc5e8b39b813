"""The same scripted turns against vLLM's own route and against Interlock's, on the same build; writes docs/conformance.md.

    make conformance

Each turn of tests/vllm/turns.py is streamed and requested in one piece, on a server with the plugin and on one without.
Findings of `interlock check` on the stream are counted by rule and severity; R19 is counted where the answer in one piece has
other items or another status than the stream's last event. The results stay in benchmarks/out/conformance.json.
"""

from __future__ import annotations

import json
import platform
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

import httpx
from attrs import asdict, evolve, frozen

from interlock.fsm.acceptor import RULES

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "vllm"))

from playing import TIMEOUT, body, events, stream, verdict, without_chance  # noqa: E402 - it is found by the line above
from servers import FAMILIES, Server, Setup, family  # noqa: E402 - likewise
from servers import HARMONY as HARMONY_SETUP  # noqa: E402 - likewise
from servers import PARSED as PARSED_SETUP  # noqa: E402 - likewise
from turns import HARMONY, PARSED, Turn, family_turns  # noqa: E402 - likewise

PAGE: Final = ROOT / "docs" / "conformance.md"
TURNS_PAGE: Final = ROOT / "docs" / "conformance" / "turns.md"
RESULTS: Final = ROOT / "benchmarks" / "out" / "conformance.json"
PLAN: Final[Sequence[tuple[str, Setup, Sequence[Turn]]]] = (
    ("harmony", HARMONY_SETUP, HARMONY),
    ("text with markers", PARSED_SETUP, PARSED),
    *((f"`{name}`", family(name), family_turns(name, reasoning)) for name, reasoning in FAMILIES.items()),
)
TERMINAL: Final = ("response.completed", "response.incomplete", "response.failed")

INTRODUCTION: Final = """\
# Conformance: vLLM's streams and Interlock's

{turns} scripted turns, played on {build},
once through vLLM's own `POST /v1/responses` and once through Interlock's [plugin](vllm.md). In both, vLLM is the engine, and a
tiny model writes the tokens of [tests/vllm/turns.py](../tests/vllm/turns.py). `make conformance` plays them again and writes
this page.

[`interlock check`](check.md) judges each stream. An **error** breaks the published contract or a known client. A **deviation**
breaks a rule, but every tested client accepts it, or a well-known service sends it; most of vLLM's are about fields
([R14](rules.md#r14)), such as a null that the API omits. R19 counts turns whose response differs when it is not streamed.
"""

GROUPS: Final = """\
## By group

The turns of *harmony* are in the format of gpt-oss: well-formed, truncated, malformed, and with hosted tools. In *text with
markers*, calls and reasoning are text between markers. Each other group has the format of one [family](families.md) of models.
"""


@frozen
class Played:
    """What was found of a turn.

    Args:
        group: The group of the turn.
        errors: How many errors each rule has.
        deviations: How many deviations each rule has, the missing end marker not counted.
        marked: Whether the end marker came.
        ended: Whether a terminal event came.
    """

    group: str
    errors: Mapping[str, int]
    deviations: Mapping[str, int]
    marked: bool
    ended: bool

    @property
    def findings(self) -> Counter[str]:
        """How many findings each rule has."""
        return Counter(self.errors) + Counter(self.deviations)


def play(server: Server, turn: Turn, group: str) -> Played:
    """Play one turn."""
    request = body(server.setup.model, turn)
    data = stream(server.url, request)
    judged = verdict(data)
    errors, deviations = Counter[str](), Counter[str]()
    for reported in judged.reported:
        finding = reported.finding
        if finding.deviation != "no-done-marker":
            (errors if finding.severity == "error" else deviations)[finding.rule] += reported.times
    bodies = events(data)
    ended = bool(bodies) and bodies[-1].get("type") in TERMINAL
    whole = httpx.post(f"{server.url}/v1/responses", json=request, timeout=TIMEOUT)
    if not ended or whole.status_code != httpx.codes.OK or _outcome(whole.json()) != _outcome(bodies[-1]["response"]):
        errors["R19"] += 1
    return Played(group, errors, deviations, judged.marked, ended)


def _outcome(response: Mapping[str, object]) -> object:
    return without_chance({name: response[name] for name in ("output", "status", "incomplete_details")})


def measure(*, plugin: bool) -> dict[str, Played]:
    """Play all turns with or without the plugin."""
    played: dict[str, Played] = {}
    for group, setup, turns in PLAN:
        with Server(evolve(setup, plugin=plugin)) as server:
            for turn in turns:
                result = played[turn.name] = play(server, turn, group)
                print("interlock" if plugin else "vllm", turn.name, result.errors, result.deviations, flush=True)
    return played


def page(build: str, vllm: Mapping[str, Played], interlock: Mapping[str, Played]) -> Iterator[str]:
    """Yield the lines of docs/conformance.md."""
    yield INTRODUCTION.format(turns=len(vllm), build=build)
    yield "| | vLLM | Interlock |"
    yield "|---|---:|---:|"
    for label, count in (
        ("turns without an error", lambda side: sum(not turn.errors for turn in side.values())),
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
    yield "## By rule"
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
    yield "[All turns](conformance/turns.md), one by one."


def turns_page(vllm: Mapping[str, Played], interlock: Mapping[str, Played]) -> Iterator[str]:
    """Yield the lines of docs/conformance/turns.md."""
    yield "# Conformance, turn by turn"
    yield ""
    yield "The turns of [the summary](../conformance.md), with the errors and deviations of each stream by rule."
    yield "`make conformance` writes this page."
    yield ""
    yield "| turn | vLLM's errors | vLLM's deviations | Interlock's findings |"
    yield "|---|---|---|---|"
    for name, turn in vllm.items():
        errors = _listed(turn.errors) + ("" if turn.ended else ", no terminal event")
        yield f"| {name} | {errors} | {_listed(turn.deviations)} | {_listed(interlock[name].findings)} |"


def _number(rule: str) -> int:
    return int(rule.removeprefix("R"))


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{rule}: {counts[rule]}" for rule in sorted(counts, key=_number)) or "none"


def main() -> None:
    """Measure, keep the results, and write both pages."""
    build = f"vLLM {version('vllm')} ({platform.machine()}, Python {platform.python_version()})"
    sides = {"vllm": measure(plugin=False), "interlock": measure(plugin=True)}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps({side: {name: asdict(turn) for name, turn in played.items()} for side, played in sides.items()})
    )
    TURNS_PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join(page(build, sides["vllm"], sides["interlock"])) + "\n", encoding="utf-8")
    TURNS_PAGE.write_text("\n".join(turns_page(sides["vllm"], sides["interlock"])) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
