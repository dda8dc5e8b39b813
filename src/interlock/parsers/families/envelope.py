"""The envelope: the JSON object in which a family of that style names a function and gives its arguments.

It knows an object with the members `name` and `arguments`, in this order or the other, and reads it as far as the name is
whole. The arguments are called `parameters` by some models.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from attrs import frozen

__all__ = ["LONGEST", "Named", "after_name", "read_name"]

LONGEST: Final = 4096
"""How much of an envelope is held, in characters, until its name is known."""

_SPACE: Final = r"\s*"


def _beginning(atoms: Iterable[str]) -> re.Pattern[str]:
    """Return what matches the atoms, one after another, and any text that ends before they do; the group `whole` tells."""
    pattern = "(?P<whole>)"
    for atom in reversed(list(atoms)):
        pattern = rf"{atom}{pattern}" if atom.endswith(("*", "*)")) else rf"(?:\Z|{atom}{pattern})"
    return re.compile(pattern)


def _member(key: str) -> list[str]:
    """Return the atoms of a member's key, up to its value."""
    return [_SPACE, *f'"{key}"', _SPACE, ":", _SPACE]


_NAME: Final = [*_member("name"), '"', r"(?P<name>[\w.:/$-]*)", '"']
_OPENING: Final = _beginning([_SPACE, r"\{", *_NAME])
_LATE: Final = _beginning([_SPACE, ",", *_NAME])
_ARGUMENTS: Final = [_beginning([_SPACE, r"\{", *_member(key)]) for key in ("arguments", "parameters")]
_MEMBERS: Final = [_beginning([_SPACE, ",", *_member(key)]) for key in ("arguments", "parameters")]
_JSON: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)


@frozen
class Named:
    """A name that was read.

    Args:
        name: The function's; empty as long as it is not whole.
        end: Where the text goes on.
        arguments: What came before the name, if the arguments did.
        call_id: The id that was written with it.
    """

    name: str = ""
    end: int = 0
    arguments: str = ""
    call_id: str = ""


def read_name(text: str) -> Named | None:
    """Read an envelope as far as its name is whole.

    Args:
        text: What came since the marker of the call.

    Returns:
        None if this is no envelope, or too long for one.
    """
    opening = _OPENING.match(text)
    if opening is not None and opening["whole"] is not None:
        return Named(opening["name"], opening.end()) if opening["name"] else None
    if len(text) > LONGEST:
        return None
    if opening is not None and opening.end() == len(text):
        return Named()
    for pattern in _ARGUMENTS:
        arguments = pattern.match(text)
        if arguments is not None and arguments["whole"] is not None:
            return _late(text, arguments.end())
        if arguments is not None and arguments.end() == len(text):
            return Named()
    return None


def _late(text: str, start: int) -> Named | None:
    """Read the name after the arguments, which begin at a place."""
    end = _end_of_object(text, start)
    if end is None:
        return Named() if text.startswith("{", start) or start == len(text) else None
    late = _LATE.match(text, end)
    if late is not None and late["whole"] is not None:
        return Named(late["name"], late.end(), text[start:end]) if late["name"] else None
    return Named() if late is not None and late.end() == len(text) else None


def _end_of_object(text: str, start: int) -> int | None:
    """Return where a JSON object ends; None if it is no object or does not end."""
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
    """Return where the arguments begin, in what follows a name.

    Args:
        text: What came since the name.

    Returns:
        -1 if more text is needed to know it, None if something else follows.
    """
    for pattern in _MEMBERS:
        member = pattern.match(text)
        if member is not None and member["whole"] is not None:
            return member.end()
        if member is not None and member.end() == len(text):
            return -1
    return None
