"""A long run of the properties over random texts: `python -m families.campaign SEQUENCES [SEED]` in the folder tests/.

SEQUENCES texts are made for each group of families that share a style. Each is read at once and in pieces, one in sixteen letter
by letter; the stream of one in eight is judged, too. A text that breaks a property is shrunk by dropping pieces and
printed; the exit status is then 1.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final

from families.properties import GROUPS, holds_of, vocabulary

from interlock.fsm.deltas import FinishReason
from interlock.parsers.families.reference_encoders import WrittenItem, encode

_SAID = [
    WrittenItem("message", "w100x"),
    WrittenItem("call", '{"s":"w101x","n":5,"o":{"a":[]}}', "f"),
    WrittenItem("call", '{"w102x":"\\n\\"w103x\\""}', "g"),
    WrittenItem("call", "{}", "w104x"),
]
_NAMES = ["f", "g", "functions.f:0", "strange", '"f"', '{"name": "f"', '{"name": "g", "arguments": ', '", "arguments": {']
_JSON = ["{", "}", "[", "]", '"', ":", ",", '\\"', "\\", '"s"', '{"s": "', '{"arguments": {}, ', '"name": "f"}', "5", '{"o": {}}']
LONGEST: Final = (1, 6, *[60] * 14)
"""Of the pieces in which a text is read: letter by letter costs ten times as much as in a few pieces."""
_BLANKS = [" ", "\n", "\n\n", "  "]
_KEYS = ["s", "n", "o", '"s"', '"n" string="false"', ">", "<", "```", "`", "é", "漢", "😀", "</", "<|", "[", "]"]


def random_text(rng: Random, name: str) -> list[str]:
    """Give markers and parts of markers, names, JSON, white space and words, in any order, perhaps after a good beginning."""
    markers = vocabulary(name)
    pieces: list[str] = []
    if rng.random() < 0.5:
        turn = encode(rng.choices(_SAID, k=rng.randint(1, 3)), name, rng.choice(["qwen3", None]))
        pieces.append(turn[: rng.randint(0, len(turn))])
    for number in range(rng.randint(1, 18)):
        match rng.choices(["marker", "part", "name", "json", "blank", "key", "word"], [12, 1, 3, 3, 3, 2, 4])[0]:
            case "marker":
                pieces.append(rng.choice(markers))
            case "part":
                marker = rng.choice(markers)
                pieces.append(marker[: rng.randint(1, len(marker))])
            case "name":
                pieces.append(rng.choice(_NAMES))
            case "json":
                pieces.append(rng.choice(_JSON))
            case "blank":
                pieces.append(rng.choice(_BLANKS))
            case "key":
                pieces.append(rng.choice(_KEYS))
            case _:
                pieces.append(f"w{number}x")
    return pieces


def holds(pieces: Sequence[str], *, name: str, sizes: Sequence[int], reason: FinishReason, streamed: bool) -> bool:
    """Say whether all properties hold of a text."""
    text = "".join(pieces)
    try:
        holds_of(name, text, sizes, reason, streamed=streamed)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the campaign looks for
        say(f"{type(error).__name__}: {error}"[:1500])
        return False
    return True


def shrink(pieces: list[str], survives: Callable[[list[str]], bool]) -> list[str]:
    """Drop pieces as long as the text still breaks a property."""
    for at in reversed(range(len(pieces))):
        shorter = pieces[:at] + pieces[at + 1 :]
        if not survives(shorter):
            pieces = shorter
    return pieces


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(sequences: int, seed: int) -> int:
    """Run the campaign; gives the exit status."""
    rng, started = Random(seed), time.monotonic()  # noqa: S311 - repeatable, not secret
    for number in range(1, sequences + 1):
        for names in GROUPS.values():
            name = rng.choice(names)
            pieces = random_text(rng, name)
            reason: FinishReason = rng.choice(["stop", "length"])
            longest = rng.choice(LONGEST)
            sizes = [rng.randint(1, longest) for _ in range(3)]
            survives = partial(holds, name=name, sizes=sizes, reason=reason, streamed=number % 8 == 0)
            if not survives(pieces):
                say(f"sequence {number}, {name}: {shrink(pieces, survives)}, {reason}, in pieces of {sizes}")
                return 1
        if number % 10_000 == 0 or number == sequences:
            took = time.monotonic() - started
            say(f"{number} texts for each of {', '.join(GROUPS)}, seed {seed}, {took:.0f} s: no property broken")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
