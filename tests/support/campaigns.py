"""The command lines of the campaigns: `python -m fuzzing.campaign --help` in the folder tests/support, for one."""

import random
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import Any


def options(about: str | None, **defaults: float) -> dict[str, Any]:
    """Return the options of the command line; each has the name, and the type, of its default."""
    parser = ArgumentParser(description=about, formatter_class=RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, metavar="N", help="default: %(default)s")
    return vars(parser.parse_args())


def any_seed() -> int:
    """Return a seed that no run had before."""
    return random.randrange(2**30)  # noqa: S311 - not secret
