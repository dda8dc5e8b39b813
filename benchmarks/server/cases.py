"""What is measured: what a model writes, how many do at once, and where the part begins whose cost is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from typing import Final

import playing  # of tests/real_vllm, which PYTHONPATH has to name
import servers
from attrs import evolve, frozen
from speed.outputs import ANALYSIS, ANSWER, NEXT, PROSE

from server.load import MARK

__all__ = ["CASES", "OTHERS", "WRITER", "Case"]

CODE: Final = "    if point.is_locked:\n        route.points.append(point)  # it lies right\n"


def _paced(setup: servers.Setup, streams: int) -> servers.Setup:
    flags = (*setup.flags, "--max-num-seqs", str(streams))
    return evolve(setup, tools=False, flags=flags, processor="server.pacing:PacedTokens")


CODER: Final = _paced(servers.family("qwen3_coder"), 256)
HARMONY: Final = _paced(servers.HARMONY, 64)

WRITE: Final = {
    "type": "function",
    "name": "write_file",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}},
}
CALL: Final = (
    "<think>\nI write it.\n</think>\n\n<tool_call>\n<function=write_file>\n<parameter=path>\nroute.py\n</parameter>\n"
    "<parameter=content>\nfrom points import route\n"
)
CALLED: Final = "\n</parameter>\n</function>\n</tool_call><|im_end|>"


@frozen
class Case:
    """One of them.

    Args:
        name: What it is called.
        server: On which server it runs.
        before: What the model writes first.
        text: What it then writes, as often as it takes.
        after: What it writes last.
        streams: How many do so at once, each with the tokens of `text` whose cost is shown.
        leap: What comes at once after `before`, as if it had been written.
        leaps: How many times.
        then: What comes with it.
        tools: What the request declares.
        interval: Tokens of an output of the engine.
        yielder: Milliseconds of its steps for each stream, and ten more; enough for the dearest route. None for steps as fast as
            they come.
        pause: Seconds of the step after the leap, in which the dearest route reads it.
        repeats: How often each route is measured.
    """

    name: str
    server: servers.Setup
    before: str
    text: str
    after: str
    streams: Mapping[int, int]
    leap: str = ""
    leaps: int = 0
    then: str = ""
    tools: Sequence[Mapping[str, object]] = ()
    interval: int = 1
    yielder: float | None = 0.2
    pause: float = 0
    repeats: int = 3

    def body(self, streams: int) -> dict[str, object]:
        """Return the request that has the model write so.

        Args:
            streams: How many are sent at once; they begin together.
        """
        tokens = partial(playing.tokens, self.server.model)
        before, mark = tokens(self.before), self.then + MARK.decode()
        script: dict[str, object] = {
            "round_0": [*before, *islice(cycle(tokens(self.text)), self.streams[streams]), *tokens(self.after)],
            "round_token": -1,
            "interval": self.interval,
            "together": streams,
            "pace": 0 if self.yielder is None else (10 + self.yielder * streams) / 1000,
            "leap_after": len(before),
            "pause": self.pause,
            "leap_tokens": tokens(self.leap),
            "leap_text": self.leap,
            "leap_times": self.leaps,
            "mark_tokens": tokens(mark),
            "mark_text": mark,
        }
        asked = {"model": "tiny", "input": "Hi.", "stream": True, "store": False, "temperature": 0}
        return {**asked, "tools": [*self.tools], "vllm_xargs": script}


def _writing(name: str, length: int, streams: Mapping[int, int]) -> Case:
    """Return an agent that is writing a file of which some characters have come."""
    return Case(name, CODER, CALL, CODE, CALLED, streams, CODE, length // len(CODE), tools=[WRITE], yielder=6, pause=3)


def _text(name: str, streams: Mapping[int, int], interval: int = 1) -> Case:
    return Case(name, CODER, "<think>\n\n</think>\n\nIt is so. ", PROSE, "<|im_end|>", streams, interval=interval)


CASES: Final = (
    _text("text", {1: 200, 8: 200, 64: 100, 256: 50}),
    _text("outputs of 10 tokens", {64: 100}, interval=10),
    _writing("a file, in the middle of its 20,000 characters", 10_000, {4: 80}),
    Case("text of gpt-oss", HARMONY, f"{ANSWER}It is so.", PROSE, "<|return|>", {8: 100, 64: 40}),
    Case(
        "text of gpt-oss, after 20,000 reasoning tokens",
        HARMONY,
        f"{ANALYSIS}It is so.",
        PROSE,
        "<|return|>",
        {8: 120},
        leap=PROSE,
        leaps=20_000 // len(playing.tokens("gpt_oss", PROSE)),
        then=NEXT + ANSWER,
        yielder=0.8,
        pause=6,
    ),
)

OTHERS: Final = evolve(_text("others", {8: 600}), yielder=None)
"""The streams that wait."""

WRITER: Final = evolve(_writing("a file of 20,000 characters", 19_000, {1: 240}), yielder=None, repeats=5)
"""For whom they wait; the engine does not, or what one stream takes of each step would fit into its pace, and show nowhere."""
