"""The cases: the output of a model, the number of concurrent streams, and the start of the measured part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from typing import Final

import playing  # of tests/real_vllm, which PYTHONPATH has to name
import servers
from attrs import evolve, frozen
from server.load import MARK
from speed.outputs import ANALYSIS, ANSWER, NEXT, PROSE

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
    """A case.

    Args:
        name: Its name.
        server: Its server.
        before: The first output of the model.
        text: The output after that, repeated as often as needed.
        after: The last output.
        streams: The numbers of concurrent streams, each with the number of measured tokens of `text`.
        leap: The output that arrives at once after `before`, as if it had been generated.
        leaps: The repetitions of `leap`.
        then: The output that arrives with it.
        tools: The tools of the request.
        interval: Tokens of an output of the engine.
        pace: Milliseconds of a step for each stream, plus ten: enough for the most expensive route. None for steps as fast
            as possible.
        pause: Seconds of the step after the leap, in which the most expensive route reads it.
        repeats: How often each route is measured.
        whole: Whether the answer is not streamed; then all that the server does for the request is measured.
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
    pace: float | None = 0.2
    pause: float = 0
    repeats: int = 3
    whole: bool = False

    def body(self, streams: int) -> dict[str, object]:
        """Return the request that makes the model write this output.

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
            "pace": 0 if self.pace is None else (10 + self.pace * streams) / 1000,
            "leap_after": len(before),
            "pause": self.pause,
            "leap_tokens": tokens(self.leap),
            "leap_text": self.leap,
            "leap_times": self.leaps,
            "mark_tokens": tokens(mark),
            "mark_text": mark,
        }
        request = {"model": "tiny", "input": "Hi.", "stream": not self.whole, "store": False, "temperature": 0}
        return {**request, "tools": [*self.tools], "vllm_xargs": script}


def _writing(name: str, length: int, streams: Mapping[int, int]) -> Case:
    """Return the case of an agent that writes a file, of which some characters have arrived."""
    return Case(name, CODER, CALL, CODE, CALLED, streams, CODE, length // len(CODE), tools=[WRITE], pace=6, pause=3)


def _text(name: str, streams: Mapping[int, int], interval: int = 1) -> Case:
    return Case(name, CODER, "<think>\n\n</think>\n\nIt is so. ", PROSE, "<|im_end|>", streams, interval=interval)


CASES: Final = (
    _text("text", {1: 200, 8: 200, 64: 100, 256: 50}),
    _text("outputs of 10 tokens", {64: 100}, interval=10),
    evolve(_text("an answer that is not streamed", {8: 200, 64: 100}), whole=True),
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
        pace=0.8,
        pause=6,
    ),
)

OTHERS: Final = evolve(_text("others", {8: 600}), pace=None)
"""The waiting streams."""

WRITER: Final = evolve(_writing("a file of 20,000 characters", 19_000, {1: 240}), pace=None, repeats=5)
"""The stream that they wait for. The engine has no pace here, which would hide the time of one stream in each step."""
