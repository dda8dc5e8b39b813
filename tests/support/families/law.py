"""A completed call is what the model wrote: every family's turns with one marker changed.

    python -m families.law TURNS [SEED] [FAMILY ...]

in the folder tests/support reads TURNS changed turns of each family (by default, of every syntax), and prints each completed
call that is none of the turn's; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Final

import orjson
from attrs import frozen
from campaigns import log
from families.properties import cut
from recovery.notation import Item, items, run

from interlock.parsers import Chunk, FamilyParser
from interlock.parsers.families import DISTINCT, SYNTAXES, ParserSettings, family
from interlock.parsers.families.framing import Trigger
from interlock.parsers.families.patterns import example
from interlock.parsers.families.reference_encoders import WrittenItem, encode

_TYPES: Final = {"s": "string", "t": "string", "n": "integer"}
_PARAMETERS: Final = {"type": "object", "properties": {key: {"type": type_} for key, type_ in _TYPES.items()}}
REQUEST: Final[Mapping[str, object]] = {
    "tools": [{"type": "function", "name": name, "parameters": _PARAMETERS} for name in ("f", "g")]
}
_OBJECT: Final = re.compile(r'(\{"[stn]":[^{}]*)\}')
"""Arguments as JSON."""
_SETTINGS: Final = ParserSettings.from_request(REQUEST)
_ENDS: Final = (Trigger.UNVALUE, Trigger.UNCALL, Trigger.UNSECTION, Trigger.UNKEY, Trigger.UNLIST, Trigger.SHUT)
_BEGINNINGS: Final = (Trigger.KEY, Trigger.INVOKE)
_CHANGES: Final = ("drop", "double", "misspell", "move", "quote", "comma")


@frozen
class Changed:
    """A turn with a marker changed, the calls that it had, and the texts that may be in values because of the change."""

    family: str
    change: str
    text: str
    calls: Sequence[tuple[str, Mapping[str, object]]]
    markers: Sequence[str]

    def wrong(self) -> list[Item]:
        """Return the completed calls that are not the next of the turn's calls."""
        reader = FamilyParser(family(self.family, "qwen3"), _SETTINGS, "between")
        read = items(run(reader, [Chunk(text=text) for text in cut(self.text, (7,))]))
        expected = [(name, self._bare(arguments)) for name, arguments in self.calls]
        wrong: list[Item] = []
        for item in read:
            arguments = _object(item)
            if arguments is None:
                continue
            call = str(item.fields["name"]), self._bare(arguments)
            found = next((at for at, other in enumerate(expected) if self._fits(call, other)), None)
            if found is None:
                wrong.append(item)
            else:
                del expected[: found + 1]
        return wrong

    def __str__(self) -> str:
        """Return what is read of the turn, for a failing test."""
        read = " and ".join(f"{item.fields['name']} {item.text}" for item in self.wrong())
        return f"{self.family}, {self.change}: {self.text!r} gives {read}, not {self.calls}"

    def _fits(self, call: tuple[str, Mapping[str, object]], other: tuple[str, Mapping[str, object]]) -> bool:
        """Return whether a call is another; an end that has moved may end a value or call early, before other text."""
        if self.change != "move":
            return call == other
        return call[0] == other[0] and all(other[1].get(key, "").startswith(value) for key, value in call[1].items())

    def _bare(self, arguments: Mapping[str, object]) -> Mapping[str, str]:
        """Return arguments as texts, without white space and the changed marker."""
        bare = {key: str(value) for key, value in arguments.items()}
        for marker in self.markers:
            bare = {key: value.replace(marker, "") for key, value in bare.items()}
        return {key: "".join(value.split()) for key, value in bare.items()}


def _object(item: Item) -> Mapping[str, object] | None:
    """Return the arguments of a completed call; None if they are not a JSON object, so that the client refuses it."""
    if item.kind != "function_call" or not item.ending:
        return None
    try:
        value = orjson.loads(item.text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def turns(name: str, count: int, seed: int) -> Iterator[Changed]:
    """Yield changed turns of a family."""
    rng = Random(f"{name} {seed}")  # noqa: S311 - repeatable, not secret
    markers = family(name).markers
    begins = {text for role in _BEGINNINGS for text in markers.get(role, ())}
    ends = sorted({example(text).strip() for role in _ENDS for text in markers.get(role, ()) if text not in begins} - {""})
    texts = [example(text).strip() for role, texts in markers.items() if role is not Trigger.BARE for text in texts]
    if family(
        name
    ).omits_ends:  # the markers of these models count even in values: see 'DeepSeek's markup' in docs/library/families.md
        texts = []
    quotable = sorted({text for text in texts if len(text) > 2})
    for _ in range(count):
        yield _turn(rng, name, ends, quotable)


def _turn(rng: Random, name: str, ends: Sequence[str], quotable: Sequence[str]) -> Changed:
    change = rng.choice(_CHANGES)
    marker = rng.choice(quotable) if quotable else ""
    calls = [(rng.choice("fg"), _arguments(rng, at)) for at in range(rng.randint(1, 3))]
    if change == "quote":
        key = rng.choice("st")
        calls[0] = (calls[0][0], {key: f"w90x {marker} w91x", "n": 5})
    written = [WrittenItem("call", orjson.dumps(arguments).decode(), function) for function, arguments in calls]
    text = encode(written, name)
    if change == "comma":
        return Changed(name, change, _OBJECT.sub(rng.choice([r"\1,}", r"\1 ,\n}"]), text), calls, ())
    places = [(at, end) for end in ends for at in _places(text, end)]
    if change == "quote" or not places:
        return Changed(name, "quote", text, calls, ())
    at, end = rng.choice(places)
    before, after = text[:at], text[at + len(end) :]
    match change:
        case "drop":
            return Changed(name, change, before + after, calls, ())
        case "double":
            return Changed(name, change, before + end + rng.choice(["", "\n"]) + end + after, calls, (end,))
        case "misspell" if end.startswith("</"):  # others are special tokens
            return Changed(name, change, before + _misspell(rng, end) + after, calls, ())
        case _:
            rest = before + after
            to = rng.choice(
                [place for place in range(len(rest)) if rest[place] == "\n" or rest[:place].endswith(tuple(ends))] or [0]
            )
            return Changed(name, "move", rest[:to] + end + rest[to:], calls, ends)


def _places(text: str, marker: str) -> Iterator[int]:
    at = text.find(marker)
    while at >= 0:
        yield at
        at = text.find(marker, at + 1)


def _arguments(rng: Random, number: int) -> dict[str, object]:
    """Return arguments with a word of their own in each text."""
    text = rng.choice(["w{0}x", "w{0}x and more", "w{0}x\nin two lines", 'w{0}x "quoted"', "  w{0}x"])
    values: dict[str, object] = {"s": text.format(number * 10), "t": f"w{number * 10 + 1}x", "n": number}
    keys = rng.sample(sorted(values), rng.randint(1, 3))
    return {key: values[key] for key in keys}


def _misspell(rng: Random, end: str) -> str:
    """Return an end marker with a letter or the bracket dropped, or a letter added, behind the first three of its name."""
    begin = max(end.rfind(sign) for sign in "/:|") + 4
    if begin >= len(end) - 1:  # the beginning of so short a name may be that of a tag in a value
        return end
    at = rng.randrange(begin, len(end) - 1)
    return rng.choice([end[:at] + end[at + 1 :], end[:at] + "x" + end[at:], f"{end[:-1]}1{end[-1]}", f"{end[:-1]}/{end[-1]}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m families.law", description=__doc__.partition("\n")[0])
    parser.add_argument("turns", type=int, help="how many changed turns to read of each family")
    parser.add_argument("seed", type=int, nargs="?", default=0, help="what the turns are drawn from")
    parser.add_argument("family", nargs="*", help="the families; by default, one for each syntax")
    options = parser.parse_args(arguments)
    found = 0
    for name in options.family or DISTINCT:
        for changed in turns(name, options.turns, options.seed):
            if wrong := changed.wrong():
                found += len(wrong)
                log(f"{changed}")
        log(f"{name}: {options.turns} turns, {SYNTAXES[name].style}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
