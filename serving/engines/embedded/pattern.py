"""Strings that match a regular expression, for the expressions that JSON schemas usually have.

It understands literals, classes, escapes of classes, groups, alternatives, repetitions and anchors. It does not understand
assertions that look around, back-references and flags: such an expression is `Unreadable`. What it makes is a proposal: an
anchor in an odd place, say, is passed over, so whoever needs certainty matches the result.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from functools import cached_property
from typing import Final, TypeAlias

from attrs import define, field, frozen

__all__ = ["Pattern", "Unreadable"]

PRINTABLE: Final = string.ascii_lowercase + string.ascii_uppercase + string.digits + "-_. " + string.punctuation + "\té世"
"""The characters that are tried for a class, the plainest first."""

FOREVER: Final = 1_000_000
LONGEST: Final = 64
"""Repetitions that are made at most, and that an expression may ask for at least."""


class Unreadable(ValueError):  # noqa: N818 - it says what the expression is
    """The expression is wrong, or has something in it that this module does not understand."""


@frozen
class Character:
    """One character out of a few."""

    choices: str


@frozen
class Series:
    """One thing after the other."""

    nodes: tuple[Node, ...]


@frozen
class Choice:
    """One thing or another."""

    nodes: tuple[Node, ...]


@frozen
class Repetition:
    """A thing several times."""

    node: Node
    least: int
    most: int


Node: TypeAlias = Character | Series | Choice | Repetition


@frozen(slots=False)
class Pattern:
    """A regular expression that was understood.

    Args:
        source: The expression, in the syntax that Python and ECMA have in common.

    Raises:
        Unreadable: By every method; the expression is wrong, or beyond this module.
    """

    source: str

    def example(self, at_least: int = 0, nth: int = 0) -> str:
        """Give a string that should match.

        Args:
            at_least: Characters that it should have.
            nth: Which one of the strings that come to mind, from 0.
        """
        made = ""
        for more in range(min(at_least, LONGEST) + 1):
            made = _write(self._tree, more, nth)
            if len(made) >= at_least:
                break
        return made

    @property
    def is_cheap(self) -> bool:
        """Whether matching takes little time on any text: no repetition contains another one."""
        return not _nests(self._tree, inside=False)

    @cached_property
    def _tree(self) -> Node:
        try:
            re.compile(self.source)
        except (re.error, RecursionError, OverflowError) as error:
            raise Unreadable(self.source) from error
        return _Reader(self.source).read()


def _write(node: Node, more: int, nth: int) -> str:
    match node:
        case Character(choices):
            return choices[nth % len(choices)]
        case Series(nodes):
            return "".join(_write(inner, more, nth) for inner in nodes)
        case Choice(nodes):
            return _write(nodes[nth % len(nodes)], more, nth)
        case Repetition(inner, least, most):
            return _write(inner, more, nth) * min(least + more, most)


def _nests(node: Node, *, inside: bool) -> bool:
    match node:
        case Character():
            return False
        case Series(nodes) | Choice(nodes):
            return any(_nests(inner, inside=inside) for inner in nodes)
        case Repetition(inner, _, most):
            return (inside and most > 1) or _nests(inner, inside=inside or most > 1)


@define
class _Reader:
    """A recursive descent over the expression; it has been compiled before, so that its syntax is right."""

    source: str
    at: int = field(default=0, init=False)

    def read(self) -> Node:
        node = self.choice()
        if self.at < len(self.source):
            raise Unreadable(self.source)
        return node

    def choice(self) -> Node:
        nodes = [self.sequence()]
        while self.take("|"):
            nodes.append(self.sequence())
        return nodes[0] if len(nodes) == 1 else Choice(tuple(nodes))

    def sequence(self) -> Node:
        nodes: list[Node] = []
        while self.at < len(self.source) and self.source[self.at] not in "|)":
            nodes.append(self.repeated(self.atom()))
        return Series(tuple(nodes))

    def atom(self) -> Node:
        char = self.next()
        read = ATOMS.get(char)
        return read(self) if read else Character(char)

    def group(self) -> Node:
        named = re.compile(r"\?(?::|P?<[A-Za-z_]\w*>)").match(self.source, self.at)
        if named:
            self.at = named.end()
        elif self.source[self.at] == "?":
            raise Unreadable(self.source)
        node = self.choice()
        self.take(")")
        return node

    def set(self) -> Node:
        start = self.at - 1
        self.take("^")
        self.take("]")
        while (char := self.next()) != "]":
            if char == "\\":
                self.next()
        return self.one_of(self.source[start : self.at])

    def escape(self) -> Node:
        char = self.next()
        if char in "bBAZz":
            return Series(())
        if char.isdigit():
            raise Unreadable(self.source)
        if char in "xu":
            self.at += {"x": 2, "u": 4}[char]
            return Character(chr(int(self.source[self.at - {"x": 2, "u": 4}[char] : self.at], 16)))
        return self.one_of(f"\\{char}")

    def anything(self) -> Node:
        return Character(PRINTABLE)

    def nothing(self) -> Node:
        return Series(())

    def repeated(self, node: Node) -> Node:
        counted = re.compile(r"\*|\+|\?|\{(\d*)(,?)(\d*)\}").match(self.source, self.at)
        if not counted or counted[0] == "{}":
            return node
        self.at = counted.end()
        _ = self.take("?") or self.take("+")
        least, comma, most = counted[1], counted[2], counted[3]
        low, high = {"*": (0, FOREVER), "+": (1, FOREVER), "?": (0, 1)}.get(
            counted[0], (int(least or 0), int(most or FOREVER) if comma else int(least or 0))
        )
        if low > LONGEST:
            raise Unreadable(self.source)
        return self.repeated(Repetition(node, low, high))

    def one_of(self, characters: str) -> Node:
        matches = re.compile(characters).fullmatch
        choices = "".join(char for char in PRINTABLE if matches(char))
        if not choices:
            raise Unreadable(self.source)
        return Character(choices)

    def take(self, char: str) -> bool:
        taken = self.source.startswith(char, self.at)
        self.at += taken
        return taken

    def next(self) -> str:
        self.at += 1
        return self.source[self.at - 1]


ATOMS: Final[dict[str, Callable[[_Reader], Node]]] = {
    "(": _Reader.group,
    "[": _Reader.set,
    "\\": _Reader.escape,
    ".": _Reader.anything,
    "^": _Reader.nothing,
    "$": _Reader.nothing,
}
