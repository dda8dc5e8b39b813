"""Cases that are derived: those that every family has, from its row of the catalog and its template; and DeepSeek's markup.

So a new family needs other cases only for its peculiarities. Every shape of DeepSeek's markup, as its models write it, is a way
to open and close a section, with the invokes in it, the text around them and the calls that are meant; benchmarks/dsml.py reads
all of them with vLLM's own parsers, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from attrs import frozen
from families.properties import GROUPS
from recovery.notation import Item, answer, call, reasoning

from interlock.fsm.deltas import FinishReason
from interlock.parsers.families import SYNTAXES
from interlock.parsers.families.family import Family
from interlock.parsers.families.framing import Trigger
from interlock.parsers.families.patterns import example, wild
from interlock.parsers.families.reference_encoders import TEMPLATES, WrittenItem, encode

_ARGUMENTS: Final = '{"s":"a"}'
_CALL: Final = ("function_call", _ARGUMENTS, "f")


@frozen
class Derived:
    """A turn of a model, from inside its reasoning on, and the kind, text and name of its items."""

    name: str
    family: str
    text: str
    items: Sequence[tuple[str, str, str | None]]
    reason: FinishReason = "stop"

    @property
    def whole_items(self) -> list[Item]:
        """The items, in a family that writes no call ids."""
        made = {"reasoning": reasoning, "message": answer}
        return [call(f"{name}", text) if kind == "function_call" else made[kind](text) for kind, text, name in self.items]

    def __str__(self) -> str:
        return f"{self.family}: {self.name}"


def _reasoning(text: str) -> tuple[str, str, None]:
    return "reasoning", text, None


def _answer(text: str) -> tuple[str, str, None]:
    return "message", text, None


def cases() -> Iterator[Derived]:
    """Yield the cases of one family for each syntax."""
    for names in GROUPS.values():
        for name in names:
            yield from cases_of(name)


def cases_of(name: str) -> Iterator[Derived]:
    """Yield the cases of a family."""
    if name not in TEMPLATES:
        raise LookupError(
            f"{name!r} needs a template in TEMPLATES of reference_encoders.py: see 'Add a family' in docs/library/families.md"
        )
    yield from _whole(name)
    yield from _spelled(name)
    yield from _marked(name)
    yield from _announced(name) if announces(name) else _bare(name)
    if any(TEMPLATES[name].section):
        yield from _sectioned(name)


def _encoded(name: str, *called: str) -> str:
    return encode([WrittenItem("call", _ARGUMENTS, function) for function in called], name)


def _whole(name: str) -> Iterator[Derived]:
    """Complete calls at any place, and the text around them."""
    one = _encoded(name, "f")
    yield Derived("one call", name, f"</think>{one}", [_CALL])
    yield Derived("blank text around a call", name, f"</think>\n\n{one}\n", [_CALL])
    yield Derived("text before a call", name, f"</think>So.{one}", [_answer("So."), _CALL])
    yield Derived("text after a call", name, f"</think>{one}Then.", [_CALL, _answer("Then.")])
    yield Derived("text between calls", name, f"</think>{one}Two.{one}", [_CALL, _answer("Two."), _CALL])
    yield Derived(
        "reasoning after a call", name, f"</think>{one}<think>So.</think>It is.", [_CALL, _reasoning("So."), _answer("It is.")]
    )
    yield Derived("consecutive calls", name, f"</think>{_encoded(name, 'f', 'f')}", [_CALL, _CALL])
    yield Derived(
        "no arguments", name, f"</think>{encode([WrittenItem('call', '{}', 'g')], name)}", [("function_call", "{}", "g")]
    )


def _spelled(name: str) -> Iterator[Derived]:
    """A call with arguments and one without, with each spelling of a marker in place of the one that the template writes."""
    for function, arguments in (("f", _ARGUMENTS), ("g", "{}")):
        one = encode([WrittenItem("call", arguments, function)], name)
        for role in (Trigger.SECTION, Trigger.CALL, Trigger.INVOKE, Trigger.UNCALL):
            spellings = SYNTAXES[name].markers.get(role, ())
            for usual in sorted((marker for marker in spellings if marker in one), key=len)[-1:]:
                for spelling in (marker for marker in spellings if marker != usual):
                    text = f"</think>{one.replace(usual, example(spelling))}"
                    yield Derived(f"{spelling!r} around {arguments}", name, text, [("function_call", arguments, function)])


def _announced(name: str) -> Iterator[Derived]:
    """Calls in a family that announces them: in reasoning too, and to tools that are not declared."""
    one, strange = _encoded(name, "f"), ("function_call", _ARGUMENTS, "strange")
    yield Derived("reasoning that a call ends", name, f"Hm.{one}", [_reasoning("Hm."), _CALL])
    yield Derived("a call at the beginning of reasoning", name, one, [_CALL])
    yield Derived("a tool that is not declared", name, f"</think>{_encoded(name, 'strange')}", [strange])


def _bare(name: str) -> Iterator[Derived]:
    """Calls in a family that announces none: only in messages, and only to declared tools."""
    one, strange = _encoded(name, "f"), _encoded(name, "strange")
    yield Derived("a call in reasoning", name, f"Hm.{one}", [_reasoning(f"Hm.{one}")])
    yield Derived("a tool that is not declared", name, f"</think>{strange}", [_answer(strange)])


def announces(name: str) -> bool:
    """Return whether the calls of a family begin with a marker of their own, not just with their JSON."""
    markers = SYNTAXES[name].markers
    begins = [text for role in (Trigger.SECTION, Trigger.CALL) for text in markers.get(role, ())]
    encoded = _encoded(name, "f")
    return encoded.startswith(tuple(begins)) or any(each.match(encoded) for each in wild(begins).values())


def special_tokens(read_as: Family) -> list[str]:
    """Return the markers of a family that may begin with a token of its models."""
    marks = [text for texts in read_as.markers.values() for text in texts]
    return [*dict.fromkeys(text for text in marks if text[0] in "<[]" or not text[0].isascii())]


def _marked(name: str) -> Iterator[Derived]:
    """Markers that begin no call, and calls that lack their end marker."""
    one, markers = _encoded(name, "f"), SYNTAXES[name].markers
    quoted = _encoded(name, "f").partition("f")[0].strip()
    yield Derived("a quoted marker", name, f"</think>Write `{quoted}` and go on.", [_answer(f"Write `{quoted}` and go on.")])
    yield Derived(
        "a quoted marker in reasoning", name, f"Write `{quoted}` and go on.</think>", [_reasoning(f"Write `{quoted}` and go on.")]
    )
    yield Derived("a truncated marker", name, f"</think>So. {quoted[:-1]}", [_answer(f"So. {quoted[:-1]}")], "length")
    for end in markers.get(Trigger.UNCALL, ()):
        if end in one:
            unended = one.partition(end)[0]
            yield Derived(f"a call without {end!r} before the next", name, f"</think>{unended}{one}", [_CALL, _CALL])


def _sectioned(name: str) -> Iterator[Derived]:
    """Calls in a section, and sections that are not whole."""
    begin, end = TEMPLATES[name].section
    blank = end[: len(end) - len(end.lstrip())]
    inner = _encoded(name, "f").removeprefix(begin).removesuffix(end)
    yield Derived("a section that is not ended", name, f"</think>{begin}{inner}", [_CALL])
    if announces(name):
        text = f"</think>{begin}{inner}{begin}{inner}{end}"
        yield Derived("a section that is not ended before the next", name, text, [_CALL, _CALL])
    if Trigger.UNLIST in SYNTAXES[name].markers:
        return  # text between the calls of a list is inside of JSON
    comma = TEMPLATES[name].between if SYNTAXES[name].style == "literal" else ""
    between = f"</think>{begin}{inner}Two.{comma}{inner}{end}"
    yield Derived("text between the calls of a section", name, between, [_CALL, _answer("Two."), _CALL])
    after = f"</think>{begin}{inner}So.{end}Then."
    yield Derived("text before the end of a section", name, after, [_CALL, _answer(f"So.{blank}"), _answer("Then.")])
    for uncall in SYNTAXES[name].markers.get(Trigger.UNCALL, ()):
        if uncall in inner:
            yield Derived(
                f"a section that ends before {uncall!r}",
                name,
                f"</think>{begin}{inner.partition(uncall)[0]}{end}Then.",
                [_CALL, _answer("Then.")],
            )


_MARK: Final = "｜DSML｜"
_ROME: Final = ("f", '{"s":"Rome"}')
_SEVEN: Final = ("f", '{"n":7}')
_NOTHING: Final = ("g", "{}")


@frozen
class Shape:
    """A turn of a model, from a message on, by its parts, and the calls that it means."""

    parts: Mapping[str, str]
    text: str
    calls: Sequence[tuple[str, str]]

    def fits(self, calls: Sequence[tuple[str, str]], text: str, *, words: bool = True) -> bool:
        """Return whether the turn was read correctly: the calls, no markup in the text and, with `words`, all words in it."""
        has_words = sorted(_WORD.findall(text)) == sorted(_WORD.findall(self.text))
        return [*calls] == [*self.calls] and "DSML" not in text and (has_words or not words)


_OPENINGS: Final = {
    "tool_calls": "<DSMLtool_calls>\n",
    "function_calls": "<DSMLfunction_calls>\n",
    "calls": "<DSMLcalls>\n",
    "no section": "",
    "a typo": "<DSMLtoolcals>\n",
    "a space": "<DSML tool_calls >\n",
    "a line break": "<DSMLtool_calls\n>\n\n",
    "a section twice": "<DSMLtool_calls>\n<DSMLtool_calls>\n",
}
_CLOSINGS: Final = {
    "ended": "</DSMLtool_calls>",
    "not ended": "",
    "ended by another name": "</DSMLfunction_calls>",
    "ended by a typo": "</DSMLtool_call>",
    "ended twice": "</DSMLtool_calls>\n</DSMLtool_calls>",
}
_BEGIN: Final = '<DSMLinvoke name="f">\n'
_CITY: Final = '<DSMLparameter name="s" string="true">Rome</DSMLparameter>\n'
_NUMBER: Final = '<DSMLparameter name="n" string="false">7</DSMLparameter>\n'
_END: Final = "</DSMLinvoke>\n"
_G: Final = '<DSMLinvoke name="g">\n</DSMLinvoke>\n'
_INVOKES: Final = {
    "whole": (f"{_BEGIN}{_CITY}{_END}", [_ROME]),
    "compact": (f"{_BEGIN}{_CITY}{_END}".replace("\n", ""), [_ROME]),
    "no type": (f'{_BEGIN}<DSMLparameter name="n">7</DSMLparameter>\n{_END}', [_SEVEN]),
    "single quotes and spaces": (f"{_BEGIN}{_CITY}{_END}".replace(' name="', "  name = '").replace('">', "' >"), [_ROME]),
    "not ended": (f"{_BEGIN}{_CITY}", [_ROME]),
    "a value that is not ended": (f"{_BEGIN}{_CITY}{_END}".replace("</DSMLparameter>\n", ""), [_ROME]),
    "ends with a typo": (f"{_BEGIN}{_CITY}{_END}".replace("eter>", ">").replace("</DSMLinvoke", "</DSMLinvok"), [_ROME]),
    "no parameters": (_G, [_NOTHING]),
    "closed in itself": ('<DSMLinvoke name="g"/>\n', [_NOTHING]),
    "two": (f"{_BEGIN}{_CITY}{_END}{_BEGIN}{_NUMBER}{_END}", [_ROME, _SEVEN]),
    "two, one not ended": (f"{_BEGIN}{_CITY}{_BEGIN}{_NUMBER}{_END}", [_ROME, _SEVEN]),
    "text between": (f"{_G}w2x\n{_BEGIN}{_CITY}{_END}", [_NOTHING, _ROME]),
}
_AROUND: Final = {"nothing": ("", ""), "text": ("w0x\n\n", "\nw3x")}
_MARKS: Final = {"usual": _MARK, "spaced": f"{_MARK} ", "plain bars": "|DSML|"}
_THOUGHT: Final = {"message": "", "reasoning": "<think>w9x "}
_WORD: Final = re.compile(r"w\d+x")


def shapes() -> Iterator[Shape]:
    """Yield all shapes; those of other marks, those in reasoning, and stray ends are combined with only some of the others."""
    for opening, invoke, closing, around in product(_OPENINGS, _INVOKES, _CLOSINGS, _AROUND):
        yield _shape("usual", opening, invoke, closing, around)
    for mark, opening, invoke, around in product(list(_MARKS)[1:], _OPENINGS, _INVOKES, _AROUND):
        yield _shape(mark, opening, invoke, "ended", around)
    for opening, invoke in product(_OPENINGS, _INVOKES):
        yield _shape("usual", opening, invoke, "ended", "text", "reasoning")
    for end in (*_CLOSINGS.values(), _END, "</DSMLparameter>", f"{_END}</DSMLtool_calls>"):
        if end:
            yield Shape({"stray end": end}, f"w0x{end} w3x".replace("DSML", _MARK), [])


def _shape(mark: str, opening: str, invoke: str, closing: str, around: str, place: str = "message") -> Shape:
    text, calls = _INVOKES[invoke]
    before, after = _AROUND[around]
    written = f"{_THOUGHT[place]}{before}{_OPENINGS[opening]}{text}{_CLOSINGS[closing]}{after}"
    parts = {"mark": mark, "section": opening, "calls": invoke, "end": closing, "around": around, "in": place}
    return Shape(parts, written.replace("DSML", _MARKS[mark]), calls)
