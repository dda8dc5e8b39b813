"""Figures of the source that no linter bounds: circles of imports, the places that name a kind, shared errors, casts."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grimp

from interlock.events.items import ITEMS

SOURCE: Final = Path(__file__).parents[2] / "src" / "interlock"

BOUNDS: Final = {
    "circles of imports": 0,
    "files that read a raw body": 2,
    "files that name a kind": 8,
    "errors raised again and again": 0,  # each time, an error keeps the frames that it passed, with their bodies
    "casts": 37,
    "Any": 65,
}
"""The maximum of each. A change may lower them; one that must raise them explains why in its commit message."""


def circles() -> Iterator[tuple[str, ...]]:
    """Yield the sets of modules that import each other, in functions too; imports for type checkers alone do not count."""
    graph = grimp.build_graph("interlock", exclude_type_checking_imports=True)
    modules = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    reached = {module: _reached(module, modules) for module in modules}
    circle = {module: frozenset(other for other in reached[module] if module in reached[other]) for module in modules}
    yield from sorted({tuple(sorted(members)) for members in circle.values() if members})


def _reached(start: str, modules: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [*modules[start]]
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += modules[module]
    return reached


def figures() -> dict[str, list[str]]:
    """Return the count for each bound."""
    found: dict[str, list[str]] = {name: [] for name in BOUNDS}
    found["circles of imports"] = [" - ".join(circle) for circle in circles()]
    places: dict[str, list[str]] = {kind: [] for kind in ITEMS if kind.endswith("_call")}  # others are also words of the API
    for path in sorted(SOURCE.rglob("*.py")):
        file = str(path.relative_to(SOURCE))
        nodes = [*ast.walk(ast.parse(path.read_text()))]
        names = Counter(node.id for node in nodes if isinstance(node, ast.Name))
        found["casts"] += [file] * sum(isinstance(node, ast.Call) and ast.unparse(node.func) == "cast" for node in nodes)
        found["Any"] += [file] * names["Any"]
        raised = [node.exc for node in nodes if isinstance(node, ast.Raise)]
        found["errors raised again and again"] += [
            f"{file}: {name.id}" for name in raised if isinstance(name, ast.Name) and name.id.isupper()
        ]
        if any(isinstance(node, ast.Attribute) and node.attr == "raw" for node in nodes):
            found["files that read a raw body"].append(file)
        texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        for kind in places.keys() & texts:
            places[kind].append(file)
    most = max(places, key=lambda kind: len(places[kind]))
    found["files that name a kind"] = places[most]
    return found


def test_the_source_has_at_most_as_many_casts_and_circles_of_imports_as_bounds_allow():
    found = figures()
    assert {name: Counter(found[name]) for name, most in BOUNDS.items() if len(found[name]) > most} == {}
