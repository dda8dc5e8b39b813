"""How often the streams of a set fire each edge of each lifecycle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast

from attrs import define, field

from interlock.fsm.acceptor.judging import DONE
from interlock.serving.view.event_lines import Line

_Edge: TypeAlias = tuple[str, str, str, str]
"""Machine, source, trigger, dest."""


@define(eq=False)
class Coverage:
    """Counts edges: each counts at its last event, together with the edges before it that emit nothing."""

    files: list[dict[str, object]] = field(factory=list[dict[str, object]], init=False)
    _fired: dict[int, tuple[Sequence[_Edge], bool]] = field(factory=dict[int, "tuple[Sequence[_Edge], bool]"], init=False)
    """The edges of each step, and whether they certainly fired, because they have no alternative."""
    _certain: Counter[_Edge] = field(factory=Counter[_Edge], init=False)
    _possible: Counter[_Edge] = field(factory=Counter[_Edge], init=False)
    _files: dict[_Edge, dict[int, None]] = field(factory=dict[_Edge, "dict[int, None]"], init=False)
    """The numbers of the files that fire each edge, in order."""

    def add(self, name: str, batches: Iterable[Iterable[Line]]) -> None:
        """Count the edges of a stream from the lines of its trace, which shares its steps with all others."""
        steps: list[int] = []
        events = findings = 0
        for line in (line for batch in batches for line in batch):
            match line:
                case ("e", _, _, wire_name, _, int() as step, *_):
                    steps.append(step)
                    events += wire_name != DONE
                case ("step", int() as number, about):
                    self._fired[number] = _edges(cast("Mapping[str, object]", about))
                case ("fix", _, fixes):
                    numbers = cast("Sequence[int]", fixes)
                    for event, step in zip(numbers[::2], numbers[1::2], strict=True):
                        steps[event] = step
                case ("f", *_):
                    findings += 1
                case _:
                    pass
        number = len(self.files)
        self.files.append({"name": name, "events": events, "findings": findings})
        for step in steps:
            edges, certain = self._fired.get(step, ((), True))
            (self._certain if certain else self._possible).update(edges)
            for edge in edges:
                self._files.setdefault(edge, {})[number] = None

    def line(self, *, linked: bool) -> Line:
        """Return the line for the page; `linked` if the site has a page for each stream, by its number."""
        edges: list[dict[str, object]] = []
        for edge, files in self._files.items():
            names = dict(zip(("machine", "source", "trigger", "dest"), edge, strict=True))
            edges.append({**names, "count": self._certain[edge], "perhaps": self._possible[edge], "files": [*files]})
        return "cover", {"files": self.files, "edges": edges, "linked": linked}


def _edges(step: Mapping[str, object]) -> tuple[Sequence[_Edge], bool]:
    """Return the edges of a step, and whether they have no alternative."""
    machine, fired = str(step["machine"]), cast("Sequence[Sequence[object]]", step["fired"])
    edges: list[_Edge] = []
    for source, trigger, dest, whole, silent in fired:
        edges += [(machine, *edge) for edge in cast("Sequence[tuple[str, str, str]]", silent)]
        if whole:
            edges.append((machine, str(source), str(trigger), str(dest)))
    return list(dict.fromkeys(edges)), len(fired) == 1
