"""Encodes the long texts of a gpt-oss prompt slice by slice, because vLLM would block the event loop while it encodes them.

The time of the tokenizer grows with the square of a word's length. So vLLM renders a short mark in place of each long text, and
the tokens of the text then replace those of the mark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from attrs import define, field

from interlock.events.json import dumps, is_array, is_object, loads
from interlock.serving.engines.harmony_tokens import SLICE, encode_text, encoding
from interlock.serving.requests.runtime import Yielder

PARTS: Final = ("instructions", "input", "tools")
"""The parameters of a request with texts of the prompt."""
TEXTS: Final = frozenset({*PARTS, "content", "text", "arguments", "output", "description"})
"""The fields that have them."""

MARK: Final = 0xF0000
"""The first private character; marks consist of some, whose tokens are those of their bytes whatever is beside them."""
END: Final = chr(MARK + 0xFEFE)
"""The character at both ends of a mark."""
MARKS: Final = re.compile(f"{END}..{END}")
LARGE: Final = 16 * SLICE
"""The characters of a prompt above which even texts longer than `SHORT` get marks, because many together take as long."""
SHORT: Final = 32
GAP: Final = re.compile(r"(?<=\S) (?=\S)")
"""A space between words, before which tokens never continue."""


@define(eq=False)
class LongTexts:
    """The long texts of one prompt; `most` is the number of tokens at which encoding stops, because the prompt is too long."""

    most: int
    _texts: dict[str, str] = field(factory=dict[str, str], init=False)
    """The text of each mark."""
    _tokens: dict[str, str] = field(factory=dict[str, str], init=False)
    """By the tokens of each mark, those of its text; a token is the character with its number."""
    _count: int = field(default=0, init=False)

    async def hide(self, body: Mapping[str, object]) -> dict[str, object]:
        """Return the body of a request with a mark in place of each long text."""
        size = sum(_size(body.get(name), name) for name in PARTS)
        longest, yielder = SLICE if size < LARGE else SHORT, Yielder()
        hidden = {**body, **{name: self._hide(body[name], name, longest) for name in PARTS if name in body}}
        for mark, text in self._texts.items():
            tokens: list[int] = []
            async for encoded in encode_text(text, yielder):
                tokens += encoded
                self._count += len(encoded)
                if self._count > self.most:
                    break
            self._tokens[_packed(encoding().encode(mark))] = _packed(tokens)
        return hidden

    def reveal(self, prompt: Sequence[int]) -> list[int]:
        """Return the tokens of a prompt with the texts in place of the marks."""
        if not self._tokens:
            return [*prompt]
        end = re.escape(_packed(encoding().encode(END)))
        packed = re.sub(f"(?s){end}.+?{end}", lambda mark: self._tokens.get(mark[0], mark[0]), _packed(prompt))
        return [*map(ord, packed)]

    def reveal_json(self, value: object) -> object:
        """Return a JSON value with the texts in place of the marks."""
        return loads(MARKS.sub(lambda mark: dumps(self._texts.get(mark[0], mark[0])).decode()[1:-1], dumps(value).decode()))

    def _hide(self, value: object, name: str, longest: int) -> object:
        if is_array(value):
            return [self._hide(each, name, longest) for each in value]
        if is_object(value):
            return {key: self._hide(each, key, longest) for key, each in value.items()}
        if not isinstance(value, str) or name not in TEXTS or len(value) <= longest:
            return value
        if name == "description":  # vLLM begins each line with `//`
            return "\n".join(self._mark(line) if len(line) > SLICE else line for line in value.split("\n"))
        return self._mark(value)

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


def _packed(tokens: Sequence[int]) -> str:
    return "".join(map(chr, tokens))
