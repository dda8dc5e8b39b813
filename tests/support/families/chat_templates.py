"""Random turns of every family, as the chat templates of its models write them, come back: they are read as they mean.

    python -m families.chat_templates TURNS [SEED] [FAMILY ...]

in the folder tests/support reads TURNS turns of each family (by default, of all), and prints each turn whose calls, message or
reasoning differ; the exit status is then 1.

A template is a program of its model's author. The rules here say how each writes names, keys and values; `reference_encoders`
has the markers around them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from random import Random
from typing import Final

import orjson
from attrs import field, frozen
from campaigns import log
from families.properties import cut
from recovery.notation import Item, items, run

from interlock.events.json import is_array, is_object
from interlock.parsers import Chunk, FamilyParser
from interlock.parsers.families import DEFAULT_REASONING, SYNTAXES, ParserSettings, family
from interlock.parsers.families.reference_encoders import TEMPLATES, WrittenItem, encode

_json = partial(json.dumps, ensure_ascii=False)


def _raw_or_json(value: object) -> str:
    """Write a string as it is, and any other value as JSON."""
    return value if isinstance(value, str) else _json(value)


def _raw_or_compact(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _raw_or_jinja(value: object) -> str:
    """Write containers as JSON, and other values as Jinja prints them: `None`, `True`."""
    return _json(value) if is_object(value) or is_array(value) else str(value)


def _sectioned(value: object) -> str:
    """Write a string with markup as a section of XML that quotes it."""
    return f"<![CDATA[{value}]]>" if isinstance(value, str) and set(value) & set("<&") else _raw_or_json(value)


def _single_quoted(value: object) -> str:
    """Write a string between single quotes as it is, an object as JSON, and other values as Python does."""
    return f"'{value}'" if isinstance(value, str) else _json(value) if is_object(value) else repr(value)


def _in_gemma(value: object, quote: str) -> str:
    if is_object(value):
        return f"{{{','.join(f'{key}:{_in_gemma(value[key], quote)}' for key in sorted(value, key=str.lower))}}}"
    if is_array(value):
        return f"[{','.join(_in_gemma(each, quote) for each in value)}]"
    return f"{quote}{value}{quote}" if isinstance(value, str) else f"{value}".lower() if isinstance(value, bool) else f"{value}"


_MARK: Final = "]<]minimax[>["


def _in_elements(value: object) -> str:
    if is_object(value):
        return "".join(f"{_MARK}<{key}>{_in_elements(each)}{_MARK}</{key}>" for key, each in value.items())
    if is_array(value):
        return "".join(f"{_MARK}<item>{_in_elements(each)}{_MARK}</item>" for each in value)
    return _raw_or_json(value)


@frozen
class Rules:
    """How the templates of a family write calls.

    Args:
        values: The ways to write a value.
        pair: The format of an argument; None for that of `reference_encoders`.
        key: Writes a key.
        unwritable: The letters in strings that the template writes so that nobody could read them.
        key_signs: The letters that keys may have besides those of names.
        nested_key_signs: The same for the keys of inner objects.
        is_untyped: Whether strings have no quotes, so that one in an object without a schema must not look like JSON.
    """

    values: Sequence[Callable[[object], str]] = (_raw_or_json, _raw_or_compact)
    pair: str | None = None
    key: Callable[[str], str] = str
    unwritable: str = ""
    key_signs: str = ""
    nested_key_signs: str = " .:<>\"'é漢"
    is_untyped: bool = False


_JSON: Final = Rules((_json, json.dumps, lambda value: orjson.dumps(value).decode()), key_signs=" .:<>'é漢")
_QWEN: Final = Rules((_raw_or_jinja, _raw_or_json), key_signs=".:é漢")
_TAGS: Final = Rules(key_signs=" .:<'é漢")
_ATTRIBUTES: Final = Rules(key_signs=" .:'é漢")
_PYTHON: Final = Rules((repr,))

RULES: Final[Mapping[str, Rules]] = {
    **dict.fromkeys(("qwen3_coder", "qwen3_xml", "step3p5", "step5"), _QWEN),
    "mimo": _QWEN,
    "seed_oss": Rules((str,), pair="<parameter=%(key)s>%(value)s</parameter>\n", key_signs=".:é漢"),
    "step3": _ATTRIBUTES,
    "kimi_k3": Rules(key=partial(escape, quote=True), key_signs=" .:&<>\"'é漢"),
    **dict.fromkeys(("glm45", "glm47", "ling3", "poolside_v1", "spark25", "hy_v3", "hy_v4", "k2_horizon"), _TAGS),
    "minicpm5": Rules((_sectioned,), key_signs=".:é漢"),
    **dict.fromkeys(("minimax_m2", "dots", "deepseek_v32", "deepseek_v4", "deepseek_v41", "gigachat35"), _ATTRIBUTES),
    **dict.fromkeys(("pythonic", "llama4_pythonic"), _PYTHON),
    "olmo3": Rules((repr, _json), key_signs=""),
    "lfm2": Rules((_single_quoted,), unwritable="'\\\n"),
    "gemma4": Rules((partial(_in_gemma, quote='<|"|>'),), key_signs=".é漢", nested_key_signs=" .é漢"),
    "functiongemma": Rules((partial(_in_gemma, quote="<escape>"),), key_signs=".é漢", nested_key_signs=" .é漢"),
    "minimax_m3": Rules((_in_elements,), key_signs=".:é漢", nested_key_signs=".:é漢", is_untyped=True),
}
"""The rules of families with keys or literals; in all others, templates write the arguments as JSON."""

_NAME_SIGNS: Final = "abcxyzABC0189_-"
_WORDS: Final = (
    "Rome",
    "let x = 1;",
    "<b>",
    "{",
    "}",
    '"quoted"',
    "it's",
    "5",
    "true",
    "nothing",
    "é漢😀",
    "\\n",
    "C:\\new",
    "&amp;",
    "[1]",
    ",",
    "$a",
    "%s",
)


@frozen
class Turn:
    """A turn as a template writes it, the request that it answers, and the reasoning, message and calls that it means."""

    family: str
    text: str
    tools: Sequence[Mapping[str, object]]
    reasoning: str
    message: str
    calls: Sequence[tuple[str, Mapping[str, object]]] = field(factory=list)

    @property
    def means(self) -> tuple[str, str, list[object]]:
        """The reasoning, message and calls."""
        return self.reasoning, self.message, [*self.calls]

    def __str__(self) -> str:
        """Return what is read of the turn, for a failing test."""
        return f"{self.text!r}, with {self.tools}, is read as {self.read()}, not as {self.means}"

    def read(self, sizes: Sequence[int] = (7, 1, 30)) -> tuple[str, str, list[object]]:
        """Return the reasoning, message and calls that are read from the turn in chunks of these sizes."""
        settings = ParserSettings.from_request({"tools": self.tools})
        reads_as = family(self.family, DEFAULT_REASONING[self.family])
        starts = "between" if reads_as.reasoning is None else "thinking"
        read = items(run(FamilyParser(reads_as, settings, starts), [Chunk(text=text) for text in cut(self.text, sizes)]))
        calls = [(item.fields["name"], _arguments(item)) for item in read if item.kind == "function_call"]
        return _texts(read, "reasoning"), _texts(read, "message"), calls


def _texts(read: Sequence[Item], kind: str) -> str:
    return "".join(item.text for item in read if item.kind == kind).strip()


def _arguments(item: Item) -> object:
    """Return the arguments of a completed call; the text of others, and of those that are no JSON."""
    try:
        return json.loads(item.text) if item.ending else item.text
    except json.JSONDecodeError:
        return item.text


def turns(name: str, count: int, seed: int) -> Iterator[Turn]:
    """Yield turns of a family."""
    rng = Random(f"{name} {seed}")  # noqa: S311 - repeatable, not secret
    rules = RULES.get(name, _JSON)
    if rules is _JSON and SYNTAXES[name].style in {"keys", "literal"}:
        raise LookupError(f"{name!r} needs rules in RULES of chat_templates.py: see 'Add a family' in docs/library/families.md")
    for _ in range(count):
        yield _turn(rng, name, rules)


def _turn(rng: Random, name: str, rules: Rules) -> Turn:
    calls, tools = [], []
    for number in range(rng.randint(1, 3)):
        function = _name(rng, _NAME_SIGNS) + str(number)
        parameters = {_key(rng, rules.key_signs, at): _value(rng, rules, 0) for at in range(rng.randint(0, 4))}
        tools.append(
            {
                "type": "function",
                "name": function,
                "parameters": {"type": "object", "properties": {key: schema for key, (schema, _) in parameters.items()}},
            }
        )
        calls.append((function, {key: value for key, (_, value) in parameters.items()}))
    reasoning = rng.choice(["", "So.", "Hm.\n\nWell, 5 < 6."]) if DEFAULT_REASONING[name] else ""
    message = rng.choice(["", "Let me look.", "One\n\n- two"])
    head = encode([WrittenItem("reasoning", reasoning), WrittenItem("message", message)], name, DEFAULT_REASONING[name])
    return Turn(name, f"{head}{_write(rng, name, rules, calls)}", tools, reasoning, message, calls)


def _write(rng: Random, name: str, rules: Rules, calls: Sequence[tuple[str, Mapping[str, object]]]) -> str:
    """Write calls as a template does."""
    template, value = TEMPLATES[name], rng.choice(rules.values)
    pair = rules.pair or template.pair
    written: list[str] = []
    for index, (function, arguments) in enumerate(calls):
        text = value(arguments)
        if pair is not None:
            text = template.glue.join(
                pair
                % {
                    "key": rules.key(key),
                    "value": value(each),
                    "string": f"{isinstance(each, str)}".lower(),
                    "type": _type_of(each),
                }
                for key, each in arguments.items()
            )
        written.append(template.call % {"name": function, "arguments": text, "index": index})
    return f"{template.section[0]}{template.between.join(written)}{template.section[1]}"


def _type_of(value: object) -> str:
    names = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _name(rng: Random, signs: str) -> str:
    """Return a name as OpenAI's API allows it."""
    return rng.choice(["f", "get_weather", "web-search", "2nd"]) if rng.random() < 0.6 else "".join(rng.choices(signs, k=6))


def _key(rng: Random, signs: str, number: int) -> str:
    """Return a key that begins and ends like a name, perhaps with other signs inside."""
    middle = rng.choice(signs) if signs and rng.random() < 0.3 else ""
    return f"{rng.choice(['s', 'user-id', 'max_n', 'Key'])}{middle}k{number}"


def _value(rng: Random, rules: Rules, depth: int) -> tuple[Mapping[str, object], object]:
    """Return a schema, perhaps nullable, and a value that fits it."""
    schema, value = rng.choice(_KINDS[: None if depth < 2 else 4])(rng, rules, depth)
    if rng.random() < 0.3:
        value = None if rng.random() < 0.5 else value
        if rng.random() < 0.5:
            return {**schema, "type": [schema["type"], "null"]}, value
        return {"anyOf": [schema, {"type": "null"}]}, value
    return schema, value


def _string(rng: Random, rules: Rules, depth: int) -> tuple[Mapping[str, object], object]:  # noqa: ARG001 - as the others
    glue = rng.choice([" ", "\n", ", ", "\t", ""])
    text = glue.join(rng.choices(_WORDS, k=rng.randint(0, 5))) if rng.random() < 0.9 else f"  {rng.choice(_WORDS)}"
    text = "".join(letter for letter in text if letter not in rules.unwritable)
    return {"type": "string"}, f"x{text}" if rules.is_untyped and text.strip() else text


def _integer(rng: Random, rules: Rules, depth: int) -> tuple[Mapping[str, object], object]:  # noqa: ARG001
    return {"type": "integer"}, rng.choice([0, 7, -3, 10**12])


def _number(rng: Random, rules: Rules, depth: int) -> tuple[Mapping[str, object], object]:  # noqa: ARG001
    return {"type": "number"}, rng.choice([0.5, -2, 1e-7, 140.0, 1e22])


def _boolean(rng: Random, rules: Rules, depth: int) -> tuple[Mapping[str, object], object]:  # noqa: ARG001
    return {"type": "boolean"}, rng.choice([True, False])


def _list(rng: Random, rules: Rules, depth: int) -> tuple[Mapping[str, object], object]:
    schema, _ = _KINDS[rng.randrange(4)](rng, rules, depth)
    kind = next(each for each in _KINDS if each(rng, rules, 2)[0] == schema)
    return {"type": "array", "items": schema}, [kind(rng, rules, 2)[1] for _ in range(rng.randint(rules.is_untyped, 3))]


def _object(rng: Random, rules: Rules, depth: int) -> tuple[Mapping[str, object], object]:
    members = {
        _key(rng, rules.nested_key_signs, at): _value(rng, rules, depth + 1) for at in range(rng.randint(rules.is_untyped, 3))
    }
    properties = {"properties": {key: schema for key, (schema, _) in members.items()}} if rng.random() < 0.7 else {}
    return {"type": "object", **properties}, {key: value for key, (_, value) in members.items()}


_KINDS: Final = (_string, _integer, _number, _boolean, _list, _object)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m families.chat_templates", description=__doc__.partition("\n")[0])
    parser.add_argument("turns", type=int, help="how many turns to read of each family")
    parser.add_argument("seed", type=int, nargs="?", default=0, help="what the turns are drawn from")
    parser.add_argument("family", nargs="*", help="the families; by default, all")
    options = parser.parse_args(arguments)
    failed = 0
    for name in options.family or SYNTAXES:
        lost = [turn for turn in turns(name, options.turns, options.seed) if turn.read() != turn.means]
        failed += len(lost)
        for turn in lost[:3]:
            log(f"{turn}")
        log(f"{name}: {options.turns - len(lost)} of {options.turns} turns come back")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
