"""Reads an envelope: a JSON object with the members `name` (or `tool_name`) and `arguments` (or `parameters`), in either order.

If the name comes before the arguments, one `id`, `type` or `tool_call_id` may precede it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from attrs import frozen

MAX_LENGTH: Final = 4096
"""The maximum number of characters that wait until the name in an envelope is complete."""

_SPACE: Final = r"\s*"


def _beginning(parts: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches these in order, or any beginning of that; it has the group `whole` if all matched."""
    pattern = "(?P<whole>)"
    for part in reversed(list(parts)):
        pattern = rf"{part}{pattern}" if part.endswith(("*", "*)")) else rf"(?:\Z|{part}{pattern})"
    return re.compile(pattern)


def _member(key: str) -> list[str]:
    """Return the patterns of a member, up to its value."""
    return [_SPACE, *f'"{key}"', _SPACE, ":", _SPACE]


def _string(pattern: str) -> list[str]:
    """Return the patterns of a string."""
    return ['"', pattern, '"']


_NAMES: Final = [[*_member(key), *_string(r"(?P<name>[\w.:/$-]*)")] for key in ("name", "tool_name")]
_FIRST: Final = [[], *([*_member(key), *_string(r'[^"\\]*'), _SPACE, ","] for key in ("id", "type", "tool_call_id"))]
_OPENINGS: Final = [_beginning([_SPACE, r"\{", *first, *name]) for first in _FIRST for name in _NAMES]
_LATE_NAMES: Final = [_beginning([_SPACE, ",", *name]) for name in _NAMES]
_ARGUMENTS: Final = [_beginning([_SPACE, r"\{", *_member(key)]) for key in ("arguments", "parameters")]
_MEMBERS: Final = [_beginning([_SPACE, ",", *_member(key)]) for key in ("arguments", "parameters")]
_JSON: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)


@frozen
class NameMatch:
    """A function name (empty while incomplete), where it ends, the arguments that were read with it, and the call id."""

    name: str = ""
    end: int = 0
    arguments: str = ""
    call_id: str = ""


def read_name(text: str) -> NameMatch | None:
    """Read an envelope up to the end of its name; None if the text is not an envelope or is too long."""
    match = _match(_OPENINGS, text, 0)
    if match is not None and match["whole"] is not None:
        return NameMatch(match["name"], match.end()) if match["name"] else None
    if len(text) > MAX_LENGTH:
        return None
    arguments = _match(_ARGUMENTS, text, 0)
    if arguments is not None and arguments["whole"] is not None:
        return _name_after_arguments(text, arguments.end())
    return NameMatch() if match is not None or arguments is not None else None


def _match(patterns: Iterable[re.Pattern[str]], text: str, start: int) -> re.Match[str] | None:
    """Return the first complete match, or else one that more text may complete."""
    partial = None
    for pattern in patterns:
        match = pattern.match(text, start)
        if match is not None and match["whole"] is not None:
            return match
        if match is not None and match.end() == len(text):
            partial = match
    return partial


def _name_after_arguments(text: str, start: int) -> NameMatch | None:
    """Read the name after the arguments, which begin at `start`."""
    end = _end_of_object(text, start)
    if end is None:
        return NameMatch() if text.startswith("{", start) or start == len(text) else None
    match = _match(_LATE_NAMES, text, end)
    if match is not None and match["whole"] is not None:
        return NameMatch(match["name"], match.end(), text[start:end]) if match["name"] else None
    return None if match is None else NameMatch()


def _end_of_object(text: str, start: int) -> int | None:
    """Return where a JSON object ends; None if it is incomplete or not an object."""
    if not text.startswith("{", start):
        return None
    depth = 0
    for token in _JSON.finditer(text, start):
        if not token.group().startswith('"'):
            depth += 1 if token.group() in "{[" else -1
        if depth == 0:
            return token.end()
    return None


def after_name(text: str) -> int | None:
    """Return where the arguments begin in the text after a name; -1 if that is undecided, None if there are none."""
    member = _match(_MEMBERS, text, 0)
    return None if member is None else -1 if member["whole"] is None else member.end()
