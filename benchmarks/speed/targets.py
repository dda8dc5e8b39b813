"""The targets, as ratios of one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from attrs import frozen

Rows = Sequence[Mapping[str, Any]]


@frozen
class Target:
    """A target.

    Args:
        name: What it is about.
        bound: The figure to reach.
        reached: Returns what a run reached, None if it did not measure that.
        at_least: Whether more is better.
        unit: Behind the figures.
    """

    name: str
    bound: float
    reached: Callable[[Rows], float | None]
    at_least: bool = True
    unit: str = " times"


def _ratio(name: str, group: str, row: str, rows: Rows) -> float | None:
    found = _find(group, row, rows)
    return found and found[name] and found[name]["median"]


def _find(group: str, name: str, rows: Rows) -> Mapping[str, Any] | None:
    return next((row for row in rows if (row["group"], row["name"]) == (group, name)), None)


def _cost(group: str, name: str, contender: str, rows: Rows) -> float | None:
    found = _find(group, name, rows)
    return found and found["figures"][contender]["median"] if found and contender in found["figures"] else None


def _growth(rows: Rows) -> float | None:
    short, long = (_cost("growth", f"output of {length:,} tokens", "interlock", rows) for length in (1_000, 100_000))
    return long / short if short and long else None


def _above_floor(group: str, name: str, rows: Rows) -> float | None:
    """Divide the cost of our route above the floor by that of vLLM's."""
    ours, theirs, floor = (_cost(group, name, contender, rows) for contender in ("interlock", "vllm", "floor"))
    return (ours - floor) / (theirs - floor) if ours and theirs and floor else None


def _share(name: str, rows: Rows) -> float | None:
    """Divide the cost of the whole process on our route by that on vLLM's."""
    faster = _ratio("faster", "server", name, rows)
    return faster and 1 / faster


def _unread(rows: Rows) -> float | None:
    """Return the KiB that a client costs that does not read, in the process and in the system."""
    return next(
        (sum(figure["median"] for figure in row["figures"].values()) for row in rows if row["group"] == "alone: unread"), None
    )


def _dearest_piece(rows: Rows) -> float | None:
    return max((row["figures"]["interlock"]["median"] for row in rows if row["group"] == "families"), default=None)


GATEWAY: Final = "50 streams of 40 text deltas a second, responses upstream"


TARGETS: Final = (
    *(
        Target(
            f"{name} after {length:,} characters of arguments, against vLLM", bound, partial(_ratio, "faster", "families", row)
        )
        for name in ("qwen3_coder", "glm45")
        for length, bound in ((0, 3), (5_000, 100), (20_000, 1_000))
        for row in (f"{name}, after {length:,} characters",)
    ),
    Target("a piece of arguments in any family", 1.5, _dearest_piece, at_least=False, unit=" µs"),
    Target("text deltas, against vLLM", 16, partial(_ratio, "faster", "deltas", "text")),
    *(
        Target(f"harmony after {length:,} reasoning tokens, against vLLM", bound, partial(_ratio, "faster", "harmony", name))
        for length, bound in ((0, 15), (20_000, 60), (60_000, 150))
        for name in (f"after {length:,} reasoning tokens",)
    ),
    Target("text deltas, against the floor", 5, partial(_ratio, "above_floor", "deltas", "text"), at_least=False),
    *(
        Target(
            f"text deltas in {name}, against Responses",
            1.2,
            partial(_ratio, "above_responses", "dialects", name),
            at_least=False,
        )
        for name in ("Messages", "Chat Completions")
    ),
    *(
        Target(f"{name}, against vLLM", bound, partial(_ratio, "faster", group, name))
        for group, name, bound in (
            ("parse_delta", "reasoning, content, one call", 5),
            ("items", "open, one delta, close", 5),
            ("first event", "first token to its first event", 4.5),
            ("open streams", "10,000 open streams", 10),
        )
    ),
    Target("a token of 100,000, against one of 1,000", 1.1, _growth, at_least=False),
    *(
        Target(
            f"memory beyond the text, after {length} tokens",
            5,
            partial(_cost, "memory", f"after {length} tokens", "interlock"),
            at_least=False,
            unit=" KiB",
        )
        for length in ("100", "1,000", "10,000")
    ),
    *(
        Target(f"server, {name}: ours above the floor, of vLLM's", 0.25, partial(_above_floor, "server", name), at_least=False)
        for name in ("text, 64 streams", "text, 256 streams")
    ),
    *(
        Target(f"server, {name}: the whole process, of vLLM's", bound, partial(_share, name), at_least=False)
        for name, bound in (
            ("text, 64 streams", 0.75),
            ("text, 256 streams", 0.75),
            ("text of gpt-oss, after 20,000 reasoning tokens, 8 streams", 0.5),
            ("a file, in the middle of its 20,000 characters, 4 streams", 0.1),
        )
    ),
    Target(
        "server, while a file is written: what others wait above the floor (p99), of vLLM's",
        0.02,
        partial(_above_floor, "delays", "p99 of the gap between two tokens"),
        at_least=False,
    ),
    Target(
        "standalone server: memory at its start",
        120,
        partial(_cost, "alone: memory", "1 stream of 100 tokens a second", "start"),
        at_least=False,
        unit=" MB",
    ),
    *(
        Target(
            f"gateway, 50 streams of text: CPU beside {name}", bound, partial(_ratio, ratio, "gateway", GATEWAY), at_least=False
        )
        for name, ratio, bound in (("a raw forwarder", "above_floor", 2.5), ("agentic-api", "above_peer", 1.8))
    ),
    *(
        Target(
            f"gateway, 500 streams of {kind}, {api} upstream: its first event",
            50,
            partial(_cost, "gateway: first event", f"500 streams of 20 {kind} deltas a second, {api} upstream", "interlock"),
            at_least=False,
            unit=" ms",
        )
        for api in ("responses", "chat")
        for kind in ("text", "calls")
    ),
    Target(
        "gateway: memory at its start",
        45,
        partial(_cost, "gateway: memory", f"{GATEWAY}, start", "interlock"),
        at_least=False,
        unit=" MB",
    ),
    Target("standalone server: held for a client that does not read", 1024, _unread, at_least=False, unit=" KiB"),
)
