"""The questions of an operator, answered from the rows of the last runs: for each, a picture and a sentence with its figures.

A question whose rows were not measured has no answer, and what stood in the page before is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from speed.chart import bars, lines
from speed.report import short

__all__ = ["QUESTIONS", "Answer"]

Rows = Sequence[Mapping[str, Any]]

CONTENDERS: Final = "interlock", "plugin", "vllm", "floor"
USUAL: Final = 30
"""The tokens of a stream in a second, somewhat faster than people read."""

STEEP: Final = 10
"""The least growth of the cost of a parser in the picture."""
SHOWN: Final = 6
"""The maximum number of parsers in the picture."""


@frozen
class Answer:
    """The answer to a question.

    Args:
        picture: As SVG.
        shows: What it shows, in words.
        sentence: The figures that count.
    """

    picture: str
    shows: str
    sentence: str


def _of(rows: Rows, group: str) -> Rows:
    return [row for row in rows if row["group"] == group]


def _median(row: Mapping[str, Any], name: str) -> float:
    return float(row["figures"][name]["median"])


def _series(rows: Rows, names: Sequence[str]) -> dict[str, dict[int, float]]:
    """Return the medians of each contender, by the place of a row on its axis."""
    return {
        name: {int(row["at"]): _median(row, name) for row in rows if name in row["figures"]}
        for name in names
        if any(name in row["figures"] for row in rows)
    }


def _times(dividend: float, divisor: float) -> str:
    return f"{short(dividend / divisor)} times"


def _served(rows: Rows, pattern: str) -> Rows:
    """Return the rows of vLLM's server whose names match a pattern."""
    return [row for row in _of(rows, "server") if re.fullmatch(pattern, row["name"])]


def _whole(rows: Rows, pattern: str) -> str:
    """Return a sentence about the cost of a token in the whole process of vLLM's server in a case, if it was measured."""
    return "".join(
        f" In the server, a token of {row['name']}, costs the whole process {short(_median(row, 'interlock'))} µs, and "
        f"{short(_median(row, 'vllm'))} µs with vLLM's route."
        for row in _served(rows, pattern)
    )


def _in_vllm(rows: Rows) -> Answer | None:
    """Answer how many streams the API process of a vLLM server carries."""
    measured = sorted(_served(rows, r"text, \d+ streams?"), key=lambda row: row["at"])
    if not measured:
        return None
    last = measured[-1]
    ours, theirs, floor = (_median(last, name) for name in ("interlock", "vllm", "floor"))
    picture = lines("CPU time of vLLM's API process, µs for each token", "streams", _series(measured, CONTENDERS), wide=True)
    sentence = (
        f"With {last['at']} streams of text, a token costs the process {short(ours)} µs with Interlock, {short(theirs)} µs with "
        f"vLLM's route, and {short(floor)} µs with a route that sends a constant frame. One core would carry "
        f"{_streams(ours)} streams of {USUAL} tokens a second, and {_streams(theirs)} with vLLM's route."
    )
    return Answer(picture, "Microseconds for each token of text, by the number of streams, for each route", sentence)


def _streams(cost: float) -> str:
    """Return how many streams a core would carry, if a token costs so many microseconds."""
    return f"{1e6 / cost / USUAL:,.0f}"


def _alone(rows: Rows) -> Answer | None:
    """Answer how many streams the standalone server carries."""
    measured = _of(rows, "alone")
    if not measured:
        return None
    paces = "; ".join(f"{row['name']}: {1e6 / _median(row, 'interlock'):,.0f}" for row in measured)
    picture = lines(
        "CPU time of the standalone server, µs for each token", "streams", _series(measured, ("interlock", "floor")), wide=True
    )
    ours, floor = (_median(measured[-1], name) for name in ("interlock", "floor"))
    sentence = (
        f"Tokens that the server sends in one second of CPU time, including the beginning and the end of each stream: {paces}. "
        f"One core would carry {_streams(ours)} streams of {USUAL} tokens a second. Of the {short(ours)} µs per token with "
        f"{measured[-1]['at']:,} streams, {short(floor)} are the floor: the event loop's timer, the HTTP server and the write to "
        "the socket."
    )
    return Answer(picture, "Microseconds for each token, by the number of streams, beside the least that a server does", sentence)


def _first_event(rows: Rows) -> Answer | None:
    """Answer how long it takes until the first event."""
    measured = _of(rows, "alone: first event")
    if not measured:
        return None
    series = _series(measured, ("p50", "p99"))
    named = {"middle (p50)": series["p50"], "1 of 100 waits longer (p99)": series["p99"]}
    picture = lines(
        "From the request to its first event, ms, in the standalone server", "streams that are open", named, wide=True
    )
    told = "; ".join(
        f"{short(_median(row, 'p50'))} ms with {row['at']:,} (p99 {short(_median(row, 'p99'))} ms)" for row in measured
    )
    sentence = f"Time from a request over a new connection to its first event, by the number of other open streams: {told}."
    core = _of(rows, "first event")
    if core and core[0]["faster"]:
        sentence += (
            " From a model's first token to its event, the parser and the driver take "
            f"{short(_median(core[0], 'interlock'))} µs; vLLM's code takes "
            f"{short(core[0]['faster']['median'])} times as long."
        )
    return Answer(picture, "Milliseconds from a request to its first event, by the number of other streams", sentence)


def _memory(rows: Rows) -> Answer | None:
    """Answer how much memory a stream holds."""
    core, alone, unread = _of(rows, "memory"), _of(rows, "alone: memory"), _of(rows, "alone: unread")
    if not core or not alone:
        return None
    shown = {
        f"its events, {row['name']}": {name: _median(row, name) for name in CONTENDERS if name in row["figures"]} for row in core
    }
    crowd, first = alone[-1], alone[0]
    each = _median(crowd, "each") * 1000 / 1024
    shown[f"with its connection and its task, of {crowd['at']:,}"] = {"interlock": each}
    for row in unread:
        shown["whose client does not read: the process"] = {"interlock": _median(row, "process")}
        shown["whose client does not read: the system"] = {"interlock": _median(row, "system")}
    start, during, after = _median(first, "start"), _median(crowd, "during"), _median(crowd, "after")
    sentence = (
        f"The process of the server has {short(start)} MB at its start, {short(during)} MB with {crowd['at']:,} open "
        f"streams, and {short(after)} MB two seconds after they have ended, because Python keeps freed memory for reuse."
    )
    return Answer(
        bars("What a stream holds, KiB", shown), "Kibibytes that a stream holds, in the core and in the server", sentence
    )


def _file(rows: Rows) -> Answer | None:
    """Answer how much a stream that writes a long file delays the others."""
    measured = [row for row in _of(rows, "families") if " after " in row["name"] and "vllm" in row["figures"]]
    if not measured:
        return None
    ours: dict[int, float] = {}
    theirs: dict[str, dict[int, float]] = {}
    for row in measured:
        family, _, after = row["name"].partition(", after ")
        place = int(after.split()[0].replace(",", ""))
        theirs.setdefault(f"vLLM, {family}", {})[place] = _median(row, "vllm")
        ours[place] = max(ours.get(place, 0.0), _median(row, "interlock"))
    last = max(ours)
    steep = {name: line for name, line in theirs.items() if line[last] > STEEP * line[min(line)]}
    steepest = dict(sorted(steep.items(), key=lambda item: -item[1][last])[:SHOWN])
    title = "µs for each piece of four letters of a call's arguments"
    picture = lines(title, "letters before it", {"Interlock, slowest family": ours, **steepest})
    dearest = max(line[last] for line in theirs.values())
    sentence = (
        f"After {last:,} letters of arguments, four more letters cost at most {short(ours[last])} µs with Interlock's parsers, "
        f"including the events, and up to {short(dearest / 1000)} ms with vLLM's parsers. Meanwhile all other streams wait."
    )
    waits = {row["name"].split()[0]: row for row in _of(rows, "delays")}
    if waits.keys() >= {"p50", "p99"}:
        told = [
            f"{short(_median(waits['p99'], name))} ms {words} (p50 {short(_median(waits['p50'], name))} ms)"
            for name, words in (("interlock", "with Interlock"), ("vllm", "with vLLM's route"), ("floor", "on the floor"))
        ]
        late = f"one in 100 tokens of the other streams comes more than this long after the previous one: {', '.join(told)}"
        sentence += f" While one stream writes such a file, {late}."
    sentence += _whole(rows, "a file, .*")
    return Answer(
        picture, "Microseconds for each piece of a call's arguments, by their length, for vLLM's slowest parsers", sentence
    )


def _reasoning(rows: Rows) -> Answer | None:
    """Answer how much long reasoning costs."""
    measured = _of(rows, "harmony")
    if not measured:
        return None
    picture = lines("µs for each token of harmony", "reasoning tokens before it", _series(measured, CONTENDERS))
    first, last = measured[0], measured[-1]
    begins, ends = (short(_median(row, "interlock")) for row in (first, last))
    sentence = f"With Interlock, a token costs {begins} µs at the beginning and {ends} µs after {last['at']:,} tokens"
    if "vllm" in last["figures"]:
        sentence += (
            f". With vLLM's code, its cost grows from {short(_median(first, 'vllm'))} to {short(_median(last, 'vllm'))} µs, "
            f"{short(last['faster']['median'])} times as much as with Interlock"
        )
    sentence += f".{_whole(rows, 'text of gpt-oss, after .*')}"
    return Answer(picture, "Microseconds for each token of harmony, by the number of reasoning tokens before it", sentence)


def _events(rows: Rows) -> Answer | None:
    """Answer how much each kind of event costs."""
    groups = "deltas", "harmony", "parse_delta", "items"
    shown = [row for group in groups for row in _of(rows, group) if row["at"] in {None, 0, 10}]
    if {row["group"] for row in shown} < {"deltas", "items"}:
        return None
    labels = [f"{row['group']}: {row['name']}".removeprefix("items: ") for row in shown]
    medians = {
        label: {name: _median(row, name) for name in CONTENDERS if name in row["figures"]}
        for label, row in zip(labels, shown, strict=True)
    }
    text = next(row for row in shown if row["group"] == "deltas")
    sentence = f"A text delta costs {short(_median(text, 'interlock'))} µs; the floor is {short(_median(text, 'floor'))} µs."
    return Answer(
        bars("µs for each delta, token or item", medians), "Microseconds for each delta, token or item, by contender", sentence
    )


def _dialects(rows: Rows) -> Answer | None:
    """Answer how much a text delta costs in Messages and Chat Completions."""
    measured = _of(rows, "dialects")
    if not measured:
        return None
    medians = {"Responses": {"interlock": _median(measured[0], "responses"), "floor": _median(measured[0], "floor")}}
    medians |= {row["name"]: {name: _median(row, name) for name in ("interlock", "floor")} for row in measured}
    told = [f"{short(row['above_responses']['median'])} times as much in {row['name']}" for row in measured]
    sentence = f"In one run, a text delta costs {' and '.join(told)} as in the Responses API."
    return Answer(bars("µs for each delta of text", medians), "Microseconds for each delta of text, by API", sentence)


def _gateway(rows: Rows) -> Answer | None:
    """Answer what a gateway costs."""
    measured = _of(rows, "gateway")
    if not measured:
        return None
    costs: dict[str, dict[int, float]] = {}
    for row in measured:
        kind, api = re.findall(r"(text|calls) deltas a second, (\w+) upstream", row["name"])[0]
        if api == "responses":
            for name, side in (("interlock", "Interlock"), ("floor", "forwarder")):
                costs.setdefault(f"{side}, {kind}", {})[row["at"]] = _median(row, name)
    picture = lines("CPU time of a gateway, µs for each delta of a Responses service", "streams", costs, wide=True)
    ratios = sorted(row["above_floor"]["median"] for row in measured)
    waits = {row["name"]: row for row in _of(rows, "gateway: first event")}
    told = "; ".join(
        f"{', '.join(_waits_of(waits, kind, api) for kind in ('text', 'calls'))} from {service}"
        for api, service in (("chat", "Chat Completions"), ("responses", "a Responses service"))
    )
    sentence = (
        f"A delta costs {short(ratios[0])} to {short(ratios[-1])} times as much as with a forwarder that reads none of the "
        f"bytes. Time from a request to its first event, beside 500 streams of 20 deltas a second: {told}."
    )
    shows = "Microseconds for each delta of a Responses service, by the number of streams, beside a forwarder"
    return Answer(picture, shows, sentence)


def _waits_of(waits: Mapping[str, Mapping[str, Any]], kind: str, api: str) -> str:
    row = waits[f"500 streams of 20 {kind} deltas a second, {api} upstream"]
    return f"{short(_median(row, 'interlock'))} ms with deltas of {kind} (forwarder {short(_median(row, 'floor'))} ms)"


QUESTIONS: Final[Mapping[str, Callable[[Rows], Answer | None]]] = {
    "vllm": _in_vllm,
    "alone": _alone,
    "first": _first_event,
    "memory": _memory,
    "file": _file,
    "reasoning": _reasoning,
    "events": _events,
    "dialects": _dialects,
    "gateway": _gateway,
}
"""The questions, by the names of their pictures."""
