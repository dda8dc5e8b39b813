"""What is measured: what a model writes, how many do at once, and where the part begins whose cost is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import cycle, islice
from typing import Final

import playing  # of tests/vllm, which PYTHONPATH has to name
import servers
from attrs import evolve, frozen
from speed.outputs import ANALYSIS, ANSWER, NEXT, PROSE

from server.load import MARK

__all__ = ["CASES", "FILE", "OTHERS", "WRITER", "Case"]

TEXT: Final = "".join(islice(cycle(PROSE), 20_000))
CODE: Final = "    if point.is_locked:\n        route.points.append(point)  # it lies right\n"
FILE: Final = "".join(islice(cycle(CODE), 20_000))

CODER: Final = evolve(servers.family("qwen3_coder"), flags=(*servers.family("qwen3_coder").flags, "--max-num-seqs", "256"))
HARMONY: Final = evolve(servers.HARMONY, tools=False, flags=("--max-num-seqs", "64"))

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
        after: What it writes last.
        streams: How many do so at once, each with the tokens of `text` that it writes in between.
        text: What these are of.
        leap: What comes at once after `before`; what is shown then begins behind it, else with the request.
        tools: What the request declares.
        interval: Tokens of an output of the engine.
        repeats: How often each route is measured.
    """

    name: str
    server: servers.Setup
    before: str
    after: str
    streams: Mapping[int, int]
    text: str = TEXT
    leap: str = ""
    tools: Sequence[Mapping[str, object]] = ()
    interval: int = 1
    repeats: int = 3

    def body(self, tokens: int) -> dict[str, object]:
        """Return the request that has the model write so.

        Args:
            tokens: How many are measured.
        """
        before, text, after = self._encoded
        script: dict[str, object] = {"round_0": [*before, *islice(cycle(text), tokens), *after], "round_token": -1}
        script["interval"] = self.interval
        if self.leap:
            script |= {"leap_after": len(before), "leap_tokens": self._leapt, "leap_text": self.leap + MARK.decode()}
        asked = {"model": "tiny", "input": "Hi.", "stream": True, "store": False, "temperature": 0}
        return {**asked, "tools": [*self.tools], "vllm_xargs": script}

    @cached_property
    def _encoded(self) -> Sequence[Sequence[int]]:
        return [playing.tokens(self.server.model, text) for text in (self.before, self.text, self.after)]

    @cached_property
    def _leapt(self) -> Sequence[int]:
        return playing.tokens(self.server.model, self.leap + MARK.decode())


def _writing(name: str, length: int, streams: Mapping[int, int]) -> Case:
    """Return an agent that is writing a file of which some characters have come."""
    return Case(name, CODER, CALL, CALLED, streams, FILE, FILE[:length], [WRITE])


_END: Final = "<|im_end|>"

CASES: Final = (
    Case("text", CODER, "<think>\n\n</think>\n\n", _END, {1: 800, 8: 400, 64: 200, 256: 120}),
    Case("text, outputs of 10 tokens", CODER, "<think>\n\n</think>\n\n", _END, {64: 200}, interval=10),
    _writing("a file, in the middle of its 20,000 characters", 10_000, {8: 100}),
    Case("text of gpt-oss", HARMONY, ANSWER, "<|return|>", {8: 200, 64: 60}),
    Case(
        "text of gpt-oss, after 20,000 reasoning tokens",
        HARMONY,
        ANALYSIS + PROSE,
        "<|return|>",
        {8: 150},
        leap="".join(islice(cycle(PROSE), 100_000)) + NEXT + ANSWER,
    ),
)

OTHERS: Final = Case("others", CODER, "<think>\n\n</think>\n\n", _END, {8: 600})
"""The streams that wait."""

WRITER: Final = _writing("a file of 20,000 characters", 19_000, {1: 150})
"""For whom they wait."""
