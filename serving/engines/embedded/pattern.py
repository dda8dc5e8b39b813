"""Strings for a regular expression, for the expressions that JSON schemas and tools usually have.

Expressions are parsed by Python's own parser and never matched, because to match one of a stranger's may take a power of the
length of the text. What asserts, refers back or wants too much is `Unreadable`.
"""

from __future__ import annotations

import re
import string
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, cast

from attrs import define, field

__all__ = ["Unreadable", "example"]

PRINTABLE: Final = string.ascii_lowercase + string.ascii_uppercase + string.digits + "-_. " + string.punctuation + "\té世"
"""The characters that are tried for a class, the plainest first."""

LONGEST_SOURCE: Final = 500
LONGEST: Final = 200
"""Characters of an expression, and of an example."""

STEPS: Final = 2_000
"""Nodes of an expression that are written before it counts as endless."""

CATEGORIES: Final[Mapping[str, Callable[[str], bool]]] = {
    "CATEGORY_DIGIT": str.isdigit,
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_WORD": lambda char: char.isalnum() or char == "_",
}


class Unreadable(ValueError):  # noqa: N818 - it says what the expression is
    """The expression is wrong, or has something in it that this module does not understand."""


def example(source: str, at_least: int = 0) -> str:
    """Return a string that should match an expression.

    Args:
        source: The expression, in Python's syntax.
        at_least: Characters that it should have, if the expression allows for so many.

    Raises:
        Unreadable: None was found.
    """
    tree = _parsed(source)
    made = ""
    for more in (0, 1, at_least):
        made = "".join(_Writer(more).write(tree))
        if len(made) >= at_least:
            break
    return made


def _parsed(source: str) -> Any:  # noqa: ANN401 - the parser has no types
    if len(source) > LONGEST_SOURCE:
        raise Unreadable("it is too long")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of a stranger's style is nobody's business here
            # `re` has no public way to a parsed expression; Hypothesis goes the same way.
            return import_module("re._parser").parse(source)
    except (re.error, ValueError, RecursionError, OverflowError, ImportError, AttributeError) as error:
        raise Unreadable(str(error)) from None


@define
class _Writer:
    """Writes one example.

    Args:
        more: Repetitions beyond the fewest, where an expression leaves the choice.
    """

    more: int
    length: int = field(default=0, init=False)
    steps: int = field(default=0, init=False)

    def write(self, tree: Any) -> Iterator[str]:  # noqa: ANN401 - likewise
        for operation, argument in tree:
            self.steps += 1
            if self.steps > STEPS:
                raise Unreadable("it repeats too much")
            yield from self.node(str(operation), argument)

    def node(self, operation: str, argument: Any) -> Iterator[str]:  # noqa: ANN401 - likewise
        match operation:
            case "LITERAL":
                yield self.character(chr(argument))
            case "NOT_LITERAL" | "ANY":
                yield self.character("b" if argument == ord("a") else "a")
            case "IN":
                yield self.character(_member(argument))
            case "BRANCH":
                yield from self.write(argument[1][0])
            case "SUBPATTERN":
                yield from self.write(argument[-1])
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, inner = argument
                for _ in range(min(least + self.more, int(most))):
                    yield from self.write(inner)
            case "AT":
                return
            case _:
                raise Unreadable(f"{operation.lower()} is not understood")

    def character(self, char: str) -> str:
        self.length += 1
        if self.length > LONGEST:
            raise Unreadable("it wants too many characters")
        return char


def _member(members: Sequence[tuple[object, Any]]) -> str:
    """Return the plainest character of a class."""
    negated = str(members[0][0]) == "NEGATE"
    rest = members[1:] if negated else members
    for char in PRINTABLE:
        if any(_holds(str(kind), what, char) for kind, what in rest) is not negated:
            return char
    if not negated and str(rest[0][0]) in ("LITERAL", "RANGE"):
        first = rest[0][1]
        return chr(first if isinstance(first, int) else cast("tuple[int, int]", first)[0])
    raise Unreadable("no plain character fits")


def _holds(kind: str, what: Any, char: str) -> bool:  # noqa: ANN401 - likewise
    match kind:
        case "LITERAL":
            return bool(ord(char) == what)
        case "RANGE":
            least, most = cast("tuple[int, int]", what)
            return least <= ord(char) <= most
        case _:
            name = str(what)
            negated = "_NOT_" in name
            return CATEGORIES[name.replace("_NOT_", "_")](char) is not negated
