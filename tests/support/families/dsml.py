"""Shapes of DeepSeek's markup as its models write it, each with the calls that are meant.

Every shape is a way to open and close a section, with the invokes in it and the text around them. benchmarks/dsml.py reads all of
them with vLLM's own parsers, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from attrs import frozen

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
        """Return whether this is what the turn means: the calls, no markup in the text and, with `words`, all words in it."""
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
