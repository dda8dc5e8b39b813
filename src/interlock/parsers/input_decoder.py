"""Decodes free text that a model may write inside JSON: the input of a custom tool, the code of a Python call.

A model sees such a tool as a function of one string, so its call reads `{"input": "…"}`; some models write the bare text.
Text that begins with `{"input": "`, or `{"code": "` for a Python call, is decoded; white space may differ. Other text passes
unchanged. Invalid escapes stay as they are. Text after the closing quote stays too, unless it is only the closing brace.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias, assert_never

from attrs import define

Phase: TypeAlias = Literal["before", "inside", "after", "bare"]
"""Before the opening quote, inside the string, after the closing quote, or in bare text."""

_PLAIN = re.compile(r'[^"\\]+')
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[^u])", re.DOTALL)
_UNFINISHED = re.compile(r"\\(u[0-9a-fA-F]{0,3}|u[dD][89abAB][0-9a-fA-F]{2}(\\(u([dD]([c-fC-F][0-9a-fA-F]?)?)?)?)?)?")
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}


@define(eq=False)
class InputDecoder:
    """Decodes the text of one call as it streams; `key` names the string: `input` or `code`."""

    key: str = "input"
    _phase: Phase = "before"
    _pending: str = ""

    def feed(self, text: str) -> str:
        """Return the decoded text that is certain."""
        match self._phase:
            case "bare":
                return text
            case "after":
                self._pending += text
                return ""
            case "inside":
                return self._decode(self._pending + text)
            case "before":
                return self._begin(self._pending + text)
            case _:
                assert_never(self._phase)

    def end(self) -> str:
        """Return the pending text, unless it is only white space or the closing brace after the string."""
        pending, self._pending = self._pending, ""
        if self._phase == "after" and pending.strip() in {"", "}"}:
            return ""
        return pending

    def _begin(self, text: str) -> str:
        """Decide whether the text is JSON."""
        position = 0
        for token in ("{", f'"{self.key}"', ":", '"'):
            position = len(text) - len(text[position:].lstrip())
            if not text.startswith(token, position):
                if token.startswith(text[position:]):
                    self._pending = text
                    return ""
                self._phase, self._pending = "bare", ""
                return text
            position += len(token)
        self._phase = "inside"
        return self._decode(text[position:])

    def _decode(self, text: str) -> str:
        """Decode up to the closing quote, or up to an incomplete escape, which waits for more text."""
        decoded: list[str] = []
        position = 0
        while position < len(text):
            if (plain := _PLAIN.match(text, position)) is not None:
                decoded.append(plain.group())
                position = plain.end()
            elif text[position] == '"':
                self._phase, self._pending = "after", text[position + 1 :]
                return "".join(decoded)
            elif _UNFINISHED.fullmatch(text, position):
                break
            elif (escape := _ESCAPE.match(text, position)) is not None:
                decoded.append(_unescape(escape.group()))
                position = escape.end()
            else:
                decoded.append(text[position])
                position += 1
        self._pending = text[position:]
        return "".join(decoded)


def _unescape(escape: str) -> str:
    """Return the character of an escape; an invalid escape stays as it is."""
    if escape[1] != "u":
        return _SIMPLE.get(escape[1], escape)
    units = [int(unit, 16) for unit in escape.split("\\u")[1:]]
    return b"".join(unit.to_bytes(2, "big") for unit in units).decode("utf-16-be", "replace")
