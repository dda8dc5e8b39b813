"""The common parts of campaigns: command lines, as of `python -m fuzzing.campaign --help` in tests/support, and shrinking."""

import random
import sys
import traceback
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

LONGEST: Final = 1500
"""The longest description of a fault."""


def options(about: str | None, **defaults: float) -> dict[str, Any]:
    """Return the options of the command line; each has the name, and the type, of its default."""
    parser = ArgumentParser(description=about, formatter_class=RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, metavar="N", help="default: %(default)s")
    return vars(parser.parse_args())


def any_seed() -> int:
    """Return a seed that no run had before."""
    return random.randrange(2**30)  # noqa: S311 - not secret


def log(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def fault(error: Exception) -> str:
    """Describe an error by the function and the line that raised it: of a broken property, its name and assertion."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{place.name}: {place.line}: {error!r}"[:LONGEST]


def shrink(parts: list[T], survives: Callable[[list[T]], bool]) -> list[T]:
    """Drop parts while the rest still violates a property."""
    for at in reversed(range(len(parts))):
        shorter = parts[:at] + parts[at + 1 :]
        if not survives(shorter):
            parts = shorter
    return parts
