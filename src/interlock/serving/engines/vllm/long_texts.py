"""Encodes the long texts of a gpt-oss prompt slice by slice, because vLLM would block the event loop while it encodes them.

The time of the tokenizer grows with the square of a word's length. So vLLM renders a short mark in place of each long text, and
the tokens of the text then replace those of the mark. The other strings of tools, such as property names, get marks inside long
words, and their size is limited.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from attrs import define, field

from interlock.events.json import dumps, is_array, is_object, loads
from interlock.serving.engines.harmony_tokens import ENCODED_AT_ONCE, encode_text, encoding
from interlock.serving.requests.api_errors import invalid
from interlock.serving.requests.runtime import Yielder

PARTS: Final = ("instructions", "input", "tools")
"""The parameters of a request with texts of the prompt."""
TEXTS: Final = frozenset({*PARTS, "content", "text", "arguments", "output", "description", "name"})
"""The fields that have them."""

MARK: Final = 0xF0000
"""The first private character; marks consist of some, whose tokens are those of their bytes beside any text."""
END: Final = chr(MARK + 0xFEFE)
"""The character at both ends of a mark."""
MARKS: Final = re.compile(f"{END}..?{END}")
CUT: Final = f"{END}0{END}"
"""The mark of the empty text, which splits a long word of any characters, because the tokenizer encodes digits apart."""
LARGE: Final = 16 * ENCODED_AT_ONCE
"""The characters of a prompt above which even texts longer than `SHORT` get marks, because many together take as long."""
SHORT: Final = 32
WORD: Final = 256
"""The longest name of a call, and the longest word or white space in a string of a tool, that vLLM encodes at once."""
WORDS: Final = re.compile(rf"\S{{{WORD}}}(?=\S)|\s{{{WORD}}}(?=\s)")
TOOL_BYTES: Final = 512 * 1024
"""The most characters of tools, as JSON without their long texts; they are encoded at once, in about 100 ms."""
GAP: Final = re.compile(r"(?<=\S) (?=\S)")
"""A space between words, before which tokens never continue."""


@define(eq=False)
class LongTexts:
    """The long texts of one prompt; `most` is the number of tokens at which encoding stops, because the prompt is too long."""

    most: int
    _texts: dict[str, str] = field(factory=dict[str, str], init=False)
    """The text of each mark."""

    def hide(self, body: Mapping[str, object]) -> dict[str, object]:
        """Return the body of a request with a mark in place of each long text.

        Raises:
            ApiError: The tools are too large without their long texts.
        """
        longest = ENCODED_AT_ONCE if sum(_size(body.get(name), name) for name in PARTS) < LARGE else SHORT
        hidden = {**body, **{name: self._hide(body[name], name, longest) for name in PARTS if name in body}}
        if "tools" in body:
            if len(dumps(hidden["tools"])) > TOOL_BYTES:
                message = (
                    f"The tools are too large: their names and schemas may have {TOOL_BYTES} bytes besides long descriptions."
                )
                raise invalid("tools", message)
            hidden["tools"] = self._split(hidden["tools"])
        return hidden

    async def reveal(self, prompt: Sequence[int]) -> list[int]:
        """Return the tokens of a prompt with the texts in place of the marks; a prompt that is too long ends early."""
        texts = {_packed_mark(mark): text for mark, text in self._texts.items()}
        end, result, start, yielder = re.escape(_packed_mark(END)), list[int](), 0, Yielder()
        for mark in re.finditer(f"(?s){end}.+?{end}", _pack(prompt) if texts else ""):
            if mark[0] in texts:
                result += prompt[start : mark.start()]
                start = mark.end()
                async for tokens in encode_text(texts[mark[0]], yielder):
                    result += tokens
                    if len(result) > self.most:
                        return result
        return [*result, *prompt[start:]]

    def reveal_json(self, value: object) -> object:
        """Return a JSON value with the texts in place of the marks."""
        return loads(MARKS.sub(lambda mark: dumps(self._texts.get(mark[0], mark[0])).decode()[1:-1], dumps(value).decode()))

    def reveal_grammar(self, grammar: str) -> str:
        """Return a grammar that vLLM made of the schemas of tools, as JSON, with the texts in place of the marks."""
        return dumps(self.reveal_json(loads(grammar))).decode() if self._texts else grammar

    def _hide(self, value: object, name: str, longest: int) -> object:
        if is_array(value):
            return [self._hide(each, name, longest) for each in value]
        if is_object(value):
            return {key: self._hide(each, key, longest) for key, each in value.items()}
        if not isinstance(value, str) or name not in TEXTS or len(value) <= (WORD if name == "name" else longest):
            return value
        if name == "description":  # vLLM begins each line with `//`
            return "\n".join(self._mark(line) if len(line) > longest else line for line in value.split("\n"))
        return self._mark(value)

    def _split(self, value: object) -> object:
        """Return a value of a tool with marks inside the long words of all strings, including names of members."""
        if is_array(value):
            return [self._split(each) for each in value]
        if is_object(value):
            return {self._split_text(key): self._split(each) for key, each in value.items()}
        return self._split_text(value) if isinstance(value, str) else value

    def _split_text(self, text: str) -> str:
        result, count = WORDS.subn(rf"\g<0>{CUT}", text)
        if count:
            self._texts[CUT] = ""
        return result

    def _mark(self, text: str) -> str:
        """Return a text with a mark in place of its middle; its ends stay, because their tokens depend on what is beside them."""
        first = GAP.search(text, 0, SHORT)
        start = first.start() if first else 0
        last = [gap.start() for gap in GAP.finditer(text, max(start, len(text) - SHORT))]
        end = last[-1] if last else len(text)
        number = len(self._texts)
        mark = f"{END}{chr(MARK + (number >> 8))}{chr(MARK + (number & 0xFF))}{END}"
        self._texts[mark] = text[start:end]
        return f"{text[:start]}{mark}{text[end:]}"


def _size(value: object, name: str) -> int:
    """Return the number of characters in the texts of a value."""
    if is_array(value):
        return sum(_size(each, name) for each in value)
    if is_object(value):
        return sum(_size(each, key) for key, each in value.items())
    return len(value) if isinstance(value, str) and name in TEXTS else 0


def _packed_mark(mark: str) -> str:
    return _pack(encoding().encode(mark, disallowed_special=()))  # looking for control tokens would take 0.8 ms


def _pack(tokens: Sequence[int]) -> str:
    return "".join(map(chr, tokens))
