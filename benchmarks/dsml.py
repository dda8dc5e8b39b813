"""DeepSeek's markup as its models write it, read by Interlock and by vLLM's parsers; writes docs/library/families.md.

    PYTHONPATH=tests/support python benchmarks/dsml.py

The shapes are those of tests/support/families/derived.py, each given token by token. What is written between
`<!-- measured: dsml -->` and `<!-- end -->` is replaced.
"""

from __future__ import annotations

import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from families.derived import Shape, shapes
from recovery.notation import items, run
from speed import their_parsers
from speed.outputs import Stream

from interlock.parsers import Chunk, FamilyParser
from interlock.parsers.families import DEFAULT_REASONING, ParserSettings, family

PAGE: Final = Path(__file__).parents[1] / "docs" / "library" / "families.md"
SECTION: Final = re.compile(r"(<!-- measured: dsml -->\n).*?(<!-- end -->)", re.DOTALL)
NAMES: Final = ("deepseek_v32", "deepseek_v4", "deepseek_v41")
PROPERTIES: Final = {"s": {"type": "string"}, "n": {"type": "integer"}}
TOOLS: Final = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
    for name, properties in (("f", PROPERTIES), ("g", {}))
]

Read = Callable[[str, Sequence[str]], tuple[str, list[tuple[str, str]]]]
"""Reads a turn, delta by delta: all text, and the name and arguments of each call."""


def interlock(name: str, pieces: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """Read a turn with a parser of ours."""
    parser = FamilyParser(family(name, DEFAULT_REASONING[name]), ParserSettings.from_request({"tools": TOOLS}), "between")
    read = items(run(parser, [Chunk(text=piece) for piece in pieces]))
    calls = [(str(item.fields["name"]), item.text) for item in read if item.kind == "function_call" and item.ending]
    return " ".join(item.text for item in read if item.kind != "function_call"), calls


def vllm(name: str, pieces: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """Read a turn with a parser of vLLM's."""
    before = ["Hm.", "</think>"] if DEFAULT_REASONING[name] and not pieces[0].startswith("<think>") else []
    text, calls = their_parsers.read_calls(Stream(name, DEFAULT_REASONING[name], ""), [*before, *pieces], TOOLS)
    return text, [(called, _compact(arguments)) for called, arguments in calls]


def _compact(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), separators=(",", ":"))
    except ValueError:
        return arguments


def is_read(read: Read, name: str, shape: Shape, *, words: bool) -> bool:
    """Return whether a shape is read correctly; without `words`, even if words are lost."""
    try:
        text, calls = read(name, their_parsers.pieces_of(shape.text))
    except Exception:  # noqa: BLE001 - whatever it is, a server would fail with it
        return False
    return shape.fits(calls, text, words=words)


def table() -> Iterator[str]:
    """Yield how many shapes each side reads correctly: of each part, and of all."""
    every = list(shapes())
    sides = [(f"Interlock, `{name}`", interlock, name) for name in NAMES] + [(f"vLLM, `{name}`", vllm, name) for name in NAMES]
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(sides) + 1))
    for shape in every:
        strict, loose = (
            [1, *(int(is_read(read, name, shape, words=words)) for _, read, name in sides)] for words in (True, False)
        )
        stray = "stray end" in shape.parts
        keys = ["only a stray end"] if stray else [f"{part}: {value}" for part, value in shape.parts.items()]
        for key, results in [("all", strict), ("all, even if words are lost", loose), *((key, strict) for key in keys)]:
            counts[key] = [one + other for one, other in zip(counts[key], results, strict=True)]
    yield f"| | shapes | {' | '.join(title for title, _, _ in sides)} |"
    yield f"|---|{'---:|' * (len(sides) + 1)}"
    for key, numbers in sorted(counts.items(), key=lambda each: (not each[0].startswith("all"), each[0])):
        yield f"| {key} | {' | '.join(f'{number:,}' for number in numbers)} |"


def main() -> None:
    """Read all shapes, and write the section."""
    logging.disable(logging.ERROR)
    text = "\n".join([f"Measured on vLLM {version('vllm')} by `benchmarks/dsml.py`.", "", *table()])
    PAGE.write_text(SECTION.sub(lambda match: f"{match[1]}{text}\n{match[2]}", PAGE.read_text("utf-8")), "utf-8")
    print(text)


if __name__ == "__main__":
    main()
