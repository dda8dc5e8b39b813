"""Exports that are imported when they are first used, so that importing a package imports nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from importlib import import_module


def exporter(package: str, names: Collection[str], homes: Sequence[str]) -> Callable[[str], object]:
    """Create the `__getattr__` of a package (PEP 562).

    Args:
        package: Its name.
        names: What it exports.
        homes: The modules that define it, one of them for each name.
    """

    def find(name: str) -> object:
        """Import an exported name.

        Raises:
            AttributeError: The name is not exported.
        """
        if name in names:
            for home in map(import_module, homes):
                if hasattr(home, name):
                    return getattr(home, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
