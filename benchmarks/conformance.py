"""The same scripted turns against vLLM's own route and against Interlock's, on the same build; writes docs/conformance.md.

    make conformance

Each turn of tests/vllm/turns.py is streamed and asked for in one piece, on a server with the plugin and on one without. What
`interlock check` finds in the stream is counted by rule and severity. A whole answer with other items, texts or another status
than the stream's last event counts as an error of R19.
"""

from __future__ import annotations

import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final, Literal

import httpx
from attrs import evolve, frozen

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "vllm"))

from playing import TIMEOUT, body, events, stream, verdict, without_chance  # noqa: E402 - it is found by the line above
from servers import FAMILIES, Server, Setup, family  # noqa: E402 - likewise
from servers import HARMONY as HARMONY_SETUP  # noqa: E402 - likewise
from servers import PARSED as PARSED_SETUP  # noqa: E402 - likewise
from turns import HARMONY, PARSED, Turn, family_turns  # noqa: E402 - likewise

PAGE: Final = ROOT / "docs" / "conformance.md"
PLAN: Final[Sequence[tuple[Setup, Sequence[Turn]]]] = (
    (HARMONY_SETUP, HARMONY),
    (PARSED_SETUP, PARSED),
    *((family(name), family_turns(name, reasoning)) for name, reasoning in FAMILIES.items()),
)
TERMINAL: Final = ("response.completed", "response.incomplete", "response.failed")

INTRODUCTION: Final = """\
# The same turns, side by side

{turns} scripted turns, played on {build},
once through its own `POST /v1/responses` and once through Interlock's. `make conformance` plays them
again and writes this page. The turns are in [tests/vllm/turns.py](../tests/vllm/turns.py); the models are tiny and their
tokens scripted, the engine is the real one.

The tables count the findings of `interlock check` in each stream, by [rule](rules.md). An *error* breaks the published
contract or a client. A *deviation* is unusual, but every client that was tried copes with it; most of them are nulls where the
schema has none (R14), such as the `logprobs` of a part. An error of R19 is a whole answer that differs from the stream's last
event in its items, its status or the reason of its end.
"""


@frozen
class Played:
    """The findings in a turn.

    Args:
        errors: How many errors there are of each rule.
        deviations: How many deviations; the missing end marker is not counted.
        marked: Whether the end marker came.
        ended: Whether a terminal event came.
    """

    errors: Counter[str]
    deviations: Counter[str]
    marked: bool
    ended: bool

    @property
    def rules(self) -> Counter[str]:
        """How many findings there are of each rule."""
        return self.errors + self.deviations


def play(server: Server, turn: Turn) -> Played:
    """Play one turn."""
    request = body(server.setup.model, turn)
    data = stream(server.url, request)
    judged = verdict(data)
    errors: Counter[str] = Counter()
    deviations: Counter[str] = Counter()
    for reported in judged.reported:
        if reported.finding.habit != "no-done-marker":
            counts = errors if reported.finding.severity == "error" else deviations
            counts[reported.finding.rule] += reported.times
    bodies = events(data)
    ended = bool(bodies) and bodies[-1].get("type") in TERMINAL
    whole = httpx.post(f"{server.url}/v1/responses", json=request, timeout=TIMEOUT)
    if not ended or whole.status_code != httpx.codes.OK or _said(whole.json()) != _said(bodies[-1]["response"]):
        errors["R19"] += 1
    return Played(errors, deviations, judged.marked, ended)


def _said(response: Mapping[str, object]) -> object:
    return without_chance({name: response[name] for name in ("output", "status", "incomplete_details")})


def measure(*, plugin: bool) -> dict[str, Played]:
    """Play all turns with or without the plugin."""
    played: dict[str, Played] = {}
    for setup, turns in PLAN:
        with Server(evolve(setup, plugin=plugin)) as server:
            for turn in turns:
                played[turn.name] = play(server, turn)
                print("interlock" if plugin else "vllm", turn.name, dict(played[turn.name].rules), flush=True)
    return played


def page(vllm: Mapping[str, Played], interlock: Mapping[str, Played]) -> Iterator[str]:
    """Write the page, line by line."""
    build = f"vLLM {version('vllm')} ({platform.machine()}, Python {platform.python_version()})"
    yield INTRODUCTION.format(turns=len(vllm), build=build)
    yield "| | vLLM | Interlock |"
    yield "|---|---|---|"
    yield _row("turns without an error", vllm, interlock, lambda played: not played.errors)
    yield _row("turns without a finding", vllm, interlock, lambda played: not played.rules)
    yield _row("turns whose stream has no terminal event", vllm, interlock, lambda played: not played.ended)
    yield _row("streams without the end marker `[DONE]` (not counted below)", vllm, interlock, lambda played: not played.marked)
    errors, deviations = ([_total(side, severity) for side in (vllm, interlock)] for severity in ("errors", "deviations"))
    for name, sides in (("errors", errors), ("deviations", deviations)):
        yield f"| {name} | {' | '.join(str(counts.total()) for counts in sides)} |"
    yield ""
    yield "| rule | errors, vLLM | deviations, vLLM | errors, Interlock | deviations, Interlock |"
    yield "|---|---|---|---|---|"
    for rule in sorted({rule for counts in (*errors, *deviations) for rule in counts}, key=_number):
        yield f"| {rule} | {errors[0][rule]} | {deviations[0][rule]} | {errors[1][rule]} | {deviations[1][rule]} |"
    yield ""
    yield "| turn | vLLM | Interlock |"
    yield "|---|---|---|"
    for name, played in vllm.items():
        yield f"| {name} | {_cell(played)} | {_cell(interlock[name])} |"


def _row(label: str, vllm: Mapping[str, Played], interlock: Mapping[str, Played], test: Callable[[Played], bool]) -> str:
    counts = (sum(test(played) for played in side.values()) for side in (vllm, interlock))
    return f"| {label} | {' | '.join(map(str, counts))} |"


def _total(side: Mapping[str, Played], severity: Literal["errors", "deviations"]) -> Counter[str]:
    """Return how many findings of a severity there are of each rule, over all turns."""
    return sum((played.errors if severity == "errors" else played.deviations for played in side.values()), Counter())


def _number(rule: str) -> int:
    return int(rule.removeprefix("R"))


def _cell(played: Played) -> str:
    found = ", ".join(f"{rule}: {count}" for rule, count in sorted(played.rules.items(), key=lambda rule: _number(rule[0])))
    return (found or "none") + ("" if played.ended else ", no end")


if __name__ == "__main__":
    theirs, ours = measure(plugin=False), measure(plugin=True)
    PAGE.write_text("\n".join(page(theirs, ours)) + "\n", encoding="utf-8")
