"""Lazy exports: a package imports its modules only when one of its names is used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from importlib import import_module


def exporter(package: str, names: Collection[str], homes: Sequence[str]) -> Callable[[str], object]:
    """Create a `__getattr__` for a package (PEP 562) that imports an exported name from the module that defines it.

    Args:
        package: The name of the package.
        names: The exported names.
        homes: The modules that define them, searched in this order.
    """

    def find(name: str) -> object:
        if name in names:
            for home in map(import_module, homes):
                if hasattr(home, name):
                    value: object = getattr(home, name)
                    setattr(sys.modules[package], name, value)  # a search costs microseconds, and names are used for each delta
                    return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
