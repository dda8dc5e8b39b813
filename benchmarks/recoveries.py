"""How many malformed turns of models Interlock's and vLLM's parsers read; writes docs/library/families.md.

    PYTHONPATH=tests/support python benchmarks/recoveries.py

The turns are those of `families.written_calls`, given token by token and three tokens at a time. What is written between
`<!-- measured: recoveries -->` and `<!-- end -->` is replaced.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from families.written_calls import WRITTEN, Written
from recovery.notation import items, run
from speed import their_parsers
from speed.outputs import Stream
from vllm.reasoning import _REASONING_PARSERS_TO_REGISTER
from vllm.tool_parsers import _TOOL_PARSERS_TO_REGISTER

from interlock.parsers import Chunk, Tagged, parser_for

PAGE: Final = Path(__file__).parents[1] / "docs" / "library" / "families.md"
SECTION: Final = re.compile(r"(<!-- measured: recoveries -->\n).*?(<!-- end -->)", re.DOTALL)
TOKENS: Final = (1, 3)

Read = Callable[[Written, Sequence[str]], tuple[str, list[tuple[str, str]]]]
"""Reads a turn, delta by delta: all text, and the name and arguments of each call."""


def interlock(written: Written, pieces: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """Read a turn with a parser of ours."""
    parser = parser_for(Tagged(written.tool_parser, written.reasoning_parser, written.starts), written.body)
    read = items(run(parser, [Chunk(text=piece) for piece in pieces]))
    calls = [(str(item.fields["name"]), item.text) for item in read if item.kind == "function_call" and item.ending]
    return "".join(item.text for item in read if item.kind != "function_call"), calls


def vllm(written: Written, pieces: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """Read a turn with a parser of vLLM's."""
    tools = [
        {"type": "function", "function": {"name": tool["name"], "parameters": tool["parameters"]}}
        for tool in written.body["tools"]
    ]
    return their_parsers.read_calls(Stream(written.tool_parser, written.reasoning_parser, ""), pieces, tools)


def reads(read: Read, written: Written) -> bool:
    """Return whether the calls and the text of a turn are read, and no markup as text."""
    pieces = their_parsers.pieces_of(written.text)
    expected, _ = interlock(written, pieces)
    for tokens in TOKENS:
        joined = ["".join(pieces[at : at + tokens]) for at in range(0, len(pieces), tokens)]
        try:
            text, calls = read(written, joined)
            found = [(name, json.loads(arguments)) for name, arguments in calls]
        except Exception:  # noqa: BLE001 - whatever it is, a server would fail with it
            return False
        if found != [*written.calls] or "".join(text.split()) != "".join(expected.split()):
            return False
    return True


def rows() -> Iterator[str]:
    """Yield a row for each family that vLLM has too, and the sums."""
    turns, ours, theirs = Counter[str](), Counter[str](), Counter[str]()
    for written in WRITTEN:
        name, reasoning = written.tool_parser, written.reasoning_parser
        if name in _TOOL_PARSERS_TO_REGISTER and reasoning in {None, *_REASONING_PARSERS_TO_REGISTER} and not written.request:
            turns[name] += 1
            ours[name] += reads(interlock, written)
            theirs[name] += reads(vllm, written)
    yield "| `--tool-call-parser` | turns | Interlock | vLLM |"
    yield "|---|---:|---:|---:|"
    for name in turns:
        yield f"| `{name}` | {turns[name]} | {ours[name]} | {theirs[name]} |"
    yield f"| all | {turns.total()} | {ours.total()} | {theirs.total()} |"


def main() -> None:
    """Measure, and write the section."""
    lines = [f"Measured on vLLM {version('vllm')} by `benchmarks/recoveries.py`.", "", *rows()]
    text = "\n".join(lines)
    PAGE.write_text(SECTION.sub(lambda found: f"{found[1]}{text}\n{found[2]}", PAGE.read_text("utf-8")), "utf-8")
    print(text)


if __name__ == "__main__":
    main()
