"""How often each edge of each lifecycle fired in a set of streams, and in which of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast

from attrs import define, field

from interlock.serving.view.trace import Line

_Edge: TypeAlias = tuple[str, str, str, str]
"""Machine, source, trigger, dest."""


@define(eq=False)
class Coverage:
    """Counts the edges that fired; an edge counts when the last of its events has come, and those before it that emit nothing."""

    files: list[dict[str, object]] = field(factory=list[dict[str, object]], init=False)
    _fired: dict[int, tuple[Sequence[_Edge], bool]] = field(factory=dict[int, "tuple[Sequence[_Edge], bool]"], init=False)
    """The edges that each step fired, and whether that is certain: whether it was not one of several."""
    _counts: dict[_Edge, list[int]] = field(factory=dict[_Edge, "list[int]"], init=False)
    """How often each certainly fired, and how often it may have."""
    _found: dict[_Edge, dict[int, None]] = field(factory=dict[_Edge, "dict[int, None]"], init=False)

    def add(self, name: str, batches: Iterable[Iterable[Line]]) -> None:
        """Count the edges of a stream.

        Args:
            name: What it is called.
            batches: The lines of its trace; all traces share their steps.
        """
        steps: list[int] = []
        findings = 0
        for batch in batches:
            for line in batch:
                match line:
                    case ("e", _, _, _, _, int() as step, *_):
                        steps.append(step)
                    case ("step", int() as number, given):
                        taken = cast("Mapping[str, object]", given)
                        self._fired[number] = _edges(str(taken["machine"]), cast("Sequence[Sequence[object]]", taken["fired"]))
                    case ("fix", _, fixes):
                        some = cast("Sequence[int]", fixes)
                        for event, step in zip(some[::2], some[1::2], strict=True):
                            steps[event] = step
                    case ("f", *_):
                        findings += 1
                    case _:
                        pass
        number = len(self.files)
        self.files.append({"name": name, "events": len(steps), "findings": findings})
        for step in steps:
            edges, certain = self._fired.get(step, ((), True))
            for edge in edges:
                self._counts.setdefault(edge, [0, 0])[not certain] += 1
                self._found.setdefault(edge, {})[number] = None

    def line(self, *, linked: bool) -> Line:
        """Return the line for the page.

        Args:
            linked: Whether the page of each stream can be opened, by its number.
        """
        names = ("machine", "source", "trigger", "dest")
        edges = [
            {**dict(zip(names, edge, strict=True)), "count": count, "perhaps": perhaps, "files": [*self._found[edge]]}
            for edge, (count, perhaps) in self._counts.items()
        ]
        return "cover", {"files": self.files, "edges": edges, "linked": linked}


def _edges(machine: str, fired: Sequence[Sequence[object]]) -> tuple[Sequence[_Edge], bool]:
    edges: list[_Edge] = []
    for source, trigger, dest, whole, silent in fired:
        edges += [(machine, *way) for way in cast("Sequence[tuple[str, str, str]]", silent)]
        if whole:
            edges.append((machine, str(source), str(trigger), str(dest)))
    return list(dict.fromkeys(edges)), len(fired) == 1
