"""A long run of the properties over random texts.

Each group of families with the same style gets as many sequences. Each is parsed at once and in chunks, one in sixteen letter by
letter; the stream of one in eight is checked, too. A text that violates a property is shrunk by dropping chunks and printed; the
exit status is then 1.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Final

from campaigns import any_seed, fault, log, options, shrink
from families.properties import GROUPS, holds_of, vocabulary

from interlock.fsm.deltas import FinishReason
from interlock.parsers.families import SYNTAXES
from interlock.parsers.families.reference_encoders import WrittenItem, encode

_TURN = [
    WrittenItem("message", "w100x"),
    WrittenItem("call", '{"s":"w101x","n":5,"o":{"a":[]}}', "f"),
    WrittenItem("call", '{"w102x":"\\n\\"w103x\\""}', "g"),
    WrittenItem("call", "{}", "w104x"),
]
_NAMES = ["f", "g", "functions.f:0", "strange", '"f"', '{"name": "f"', '{"name": "g", "arguments": ', '", "arguments": {']
_JSON = ["{", "}", "[", "]", '"', ":", ",", '\\"', "\\", '"s"', '{"s": "', '{"arguments": {}, ', '"name": "f"}', "5", '{"o": {}}']
LONGEST: Final = (1, 6, *[60] * 14)
"""The maximum chunk size, drawn at random: letter by letter costs ten times as much as in a few chunks."""
_BLANKS = [" ", "\n", "\n\n", "  "]
_KEYS = ["s", "n", "o", '"s"', '"n" string="false"', ">", "<", "```", "`", "é", "漢", "😀", "</", "<|", "[", "]"]

_M = "]<]minimax[>["
_LITERALS = [
    *"()=:,[]{}'\"\\",
    *("'''", "r'", "s=", "o={'a': ", "n=-1", "- .5e1", "0x", "True", "None", '<|"|>', "<escape>", "s:", "o:{a:["),
    *("\\n", "\\'", "\\u00e9", "\\ud83d", "\\ude00", "\\x4", "\\12", "\\N{DASH}"),
    *(f"{_M}<{tag}>" for tag in ("s", "/s", "o", "/o", "a", "/a", "item", "/item")),
    *(_M, f"{_M}<"),
]


def random_text(rng: Random, name: str) -> list[str]:
    """Return markers, parts of markers, names, JSON, white space and words, in any order, perhaps after a valid beginning."""
    markers = vocabulary(name)
    chunks: list[str] = []
    if rng.random() < 0.5:
        turn = encode(rng.choices(_TURN, k=rng.randint(1, 3)), name, rng.choice(["qwen3", None]))
        chunks.append(turn[: rng.randint(0, len(turn))])
    is_literal = SYNTAXES[name].style == "literal"
    for number in range(rng.randint(1, 18)):
        kinds = {"marker": 12, "part": 1, "name": 3, "json": 3, "blank": 3, "key": 2, "word": 4, "literal": 16 * is_literal}
        match rng.choices([*kinds], [*kinds.values()])[0]:
            case "marker":
                chunks.append(rng.choice(markers))
            case "part":
                marker = rng.choice(markers)
                chunks.append(marker[: rng.randint(1, len(marker))])
            case "name":
                chunks.append(rng.choice(_NAMES))
            case "json":
                chunks.append(rng.choice(_JSON))
            case "literal":
                chunks.append(rng.choice(_LITERALS))
            case "blank":
                chunks.append(rng.choice(_BLANKS))
            case "key":
                chunks.append(rng.choice(_KEYS))
            case _:
                chunks.append(f"w{number}x")
    return chunks


def broken(chunks: Sequence[str], *, name: str, sizes: Sequence[int], reason: FinishReason, streamed: bool) -> str:
    """Return which property a text breaks, empty if none."""
    text = "".join(chunks)
    try:
        holds_of(name, text, sizes, reason, streamed=streamed)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the campaign looks for
        return fault(error)
    return ""


def main(sequences: int, seed: int) -> int:
    """Run the campaign, and return the exit status."""
    rng, started = Random(seed), time.monotonic()  # noqa: S311 - repeatable, not secret
    for number in range(1, sequences + 1):
        for names in GROUPS.values():
            name = rng.choice(names)
            chunks = random_text(rng, name)
            reason: FinishReason = rng.choice(["stop", "length"])
            longest = rng.choice(LONGEST)
            sizes = [rng.randint(1, longest) for _ in range(3)]
            breaks = partial(broken, name=name, sizes=sizes, reason=reason, streamed=number % 8 == 0)
            if breaks(chunks):
                least = shrink(chunks, lambda parts, breaks=breaks: not breaks(parts))
                log(f"seed {seed}, sequence {number}, {name}: {least}, {reason}, in chunks of {sizes}\n{breaks(least)}")
                return 1
        if number % 10_000 == 0 or number == sequences:
            seconds = time.monotonic() - started
            log(f"{number} texts for each of {', '.join(GROUPS)}, seed {seed}, {seconds:.0f} s: no violation")
    return 0


if __name__ == "__main__":
    sys.exit(main(**options(__doc__, sequences=1_000_000, seed=any_seed())))
