"""A long run of the properties over random turns.

Of ten turns one is well-formed, and is compared with what `openai_harmony` reads; the others are random or mutated. A turn
that breaks a property is shrunk by dropping tokens and printed; the exit status is then 1.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from campaigns import any_seed, options
from recovery.cases import CASES
from recovery.notation import words
from recovery.properties import (
    CONTROLS,
    WELL_FORMED_HEADERS,
    conversation_ids,
    is_read_as_openai_harmony_reads_it,
    is_the_same_in_every_partition,
    keeps_all_text,
    makes_a_legal_stream,
)

from interlock.fsm.deltas import FinishReason

_CONTROLS = list(CONTROLS.values())
_ODD = [-1, 2**40, 300_000, 201_088, 200_013, 199_998, 127, 128]
_HEADERS = [
    "assistant",
    "final",
    "analysis",
    "commentary",
    " to=functions.f",
    " to=python",
    " to=patch",
    "to=browser.search",
    "user",
]
_WORDS = [
    *_HEADERS,
    " json",
    "json",
    " code",
    "to",
    "=",
    "{}",
    '{"query":"a"}',
    '{"input":"',
    "Hello",
    " world",
    "\n",
    " ",
    "é😀",
    "漢字",
]


def random_turn(rng: Random) -> list[int]:
    """Give control tokens, words of headers and contents, parts of characters and any ids at all, in any order."""
    ids: list[int] = []
    for _ in range(rng.randint(0, 16)):
        match rng.choices(["control", "word", "odd", "any"], [9, 8, 1, 2])[0]:
            case "control":
                ids.append(rng.choice(_CONTROLS))
            case "word":
                ids += words(rng.choice(_WORDS))
            case "odd":
                ids.append(rng.choice(_ODD))
            case _:
                ids.append(rng.randrange(199_998))
    return ids


def mutated_turn(rng: Random) -> list[int]:
    """Give two recovery cases, one after the other, with a few tokens dropped, doubled, moved or replaced."""
    ids = [*rng.choice(CASES).ids, *rng.choice(CASES).ids]
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(ids) + 1)
        match rng.choice(["drop", "double", "move", "replace"]):
            case "drop":
                del ids[at : at + 1]
            case "double":
                ids[at:at] = ids[at : at + 1]
            case "move":
                ids.insert(rng.randrange(len(ids) + 1), ids.pop(at - 1) if ids else 0)
            case _:
                ids[at : at + 1] = [rng.choice([rng.choice(_CONTROLS), rng.choice(_ODD), rng.randrange(199_998)])]
    return ids


def random_character(rng: Random) -> str:
    """Give a character of ASCII, of the rest of the first plane, or beyond."""
    return chr(rng.choice([rng.randrange(32, 127), rng.randrange(0xD800), 0x1F600]))


def well_formed_turn(rng: Random) -> list[int]:
    """Give a turn of a few messages, each with any text at all."""
    ends = ["<|end|>", "<|call|>", "<|return|>"]
    texts = ["".join(random_character(rng) for _ in range(rng.randint(0, 20))) for _ in range(rng.randint(1, 4))]
    return conversation_ids([(rng.choice(WELL_FORMED_HEADERS), text, rng.choice(ends)) for text in texts])


def holds(ids: Sequence[int], *, sizes: Sequence[int], reason: FinishReason, as_openai_harmony: bool) -> bool:
    """Say whether all properties hold of a turn."""
    try:
        if as_openai_harmony:
            is_read_as_openai_harmony_reads_it(ids)
        keeps_all_text(ids, reason)
        is_the_same_in_every_partition(ids, sizes, reason)
        makes_a_legal_stream(ids, reason)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the campaign looks for
        say(f"{type(error).__name__}: {error}"[:500])
        return False
    return True


def shrink(ids: list[int], survives: Callable[[list[int]], bool]) -> list[int]:
    """Drop tokens as long as the turn still breaks a property."""
    for at in reversed(range(len(ids))):
        shorter = ids[:at] + ids[at + 1 :]
        if not survives(shorter):
            ids = shorter
    return ids


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(sequences: int, seed: int) -> int:
    """Run the campaign; gives the exit status."""
    rng, started = Random(seed), time.monotonic()  # noqa: S311 - repeatable, not secret
    for number in range(1, sequences + 1):
        well_formed = number % 10 == 0
        ids = well_formed_turn(rng) if well_formed else rng.choice([random_turn, mutated_turn])(rng)
        reason: FinishReason = rng.choice(["stop", "length"])
        sizes = [rng.randint(1, 5) for _ in range(3)]
        survives = partial(holds, sizes=sizes, reason=reason, as_openai_harmony=well_formed)
        if not survives(ids):
            least = ids if well_formed else shrink(ids, survives)
            say(f"sequence {number}: {least}, {reason}, in chunks of {sizes}")
            return 1
        if number % 50_000 == 0 or number == sequences:
            say(f"{number} sequences, seed {seed}, {time.monotonic() - started:.0f} s: no property broken")
    return 0


if __name__ == "__main__":
    sys.exit(main(**options(__doc__, sequences=1_000_000, seed=any_seed())))
