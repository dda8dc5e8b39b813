"""The pictures of the machines as data for the viewer: the coordinates of the pictures in docs/, with a name for every part.

`generate.py` writes them to `page/machines.json` of the viewer, because laying them out takes longer than a reader should wait.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from math import ceil

from interlock.diagram import Graph
from interlock.diagram.layout import MARGIN, TOP, TRIGGER_SIZE, Box, Layout, PlacedLabel, PlacedLine, PlacedState, lay_out
from interlock.diagram.svg import ending, round_off


def written(graphs: Iterable[Graph]) -> str:
    """Return the pictures of graphs as the text of `machines.json`: one JSON object, a line for each picture."""
    lines = (f"{json.dumps(graph.name)}: {json.dumps(picture(graph), separators=(',', ':'))}" for graph in graphs)
    return "{\n" + ",\n".join(lines) + "\n}\n"


def picture(graph: Graph) -> Mapping[str, object]:
    """Return the picture of a graph.

    It has the size in pixels, the `states` and the `frames` of the regions with their boxes, the `lines` in groups that merge,
    and the `edges`. An edge has the states that it leaves and enters, its triggers with their events, its full path, and its
    label.
    """
    layout = lay_out(graph)
    right, bottom = layout.corner
    up = TOP - MARGIN  # the page writes the title itself
    return {
        "name": graph.name,
        "width": ceil(right + MARGIN),
        "height": ceil(bottom + MARGIN - up),
        "up": up,
        "states": [_state(graph, state) for state in layout.states],
        "frames": [{"name": name, "box": _box(box)} for name, box in layout.frames.items()],
        "lines": [[*map(_line, lines)] for lines in layout.merged],
        "edges": list(_edges(graph, layout)),
    }


def _state(graph: Graph, state: PlacedState) -> Mapping[str, object]:
    leaving = {
        trigger
        for edge in graph.edges
        if any(source == state.node.name for source, _ in graph.ends(edge))
        for one in edge.labels
        for trigger in one.triggers
    }
    final = state.node.role.value in {"final", "dropped"}
    return {
        "name": state.node.name,
        "look": ending(graph, state) if final else state.node.role.value,
        # A hosted call: its tool can be started, or runs.
        "tool": "running" if "succeed" in leaving else "waiting" if "run" in leaving else "",
        "box": _box(state.box),
    }


def _box(box: Box) -> list[float]:
    return [_short(value) for value in (box.x, box.y, box.width, box.height)]


def _line(line: PlacedLine) -> Mapping[str, object]:
    return {"path": round_off(line.points), "style": line.style.value, "arrow": line.arrow, "rail": line.main}


def _edges(graph: Graph, layout: Layout) -> Iterator[Mapping[str, object]]:
    labels = {label.edge: label for label in layout.labels}
    for edge, points in layout.routes.items():
        yield {
            "source": edge.source,
            "dest": edge.dest,
            "ends": graph.ends(edge),
            "style": edge.style.value,
            "triggers": [{"name": name, "events": label.events} for label in edge.labels for name in label.triggers],
            "path": round_off(points),
            "text": list(_text(labels[edge])),
        }


def _text(label: PlacedLabel) -> Iterator[tuple[float, float, str, str, str]]:
    """Yield the lines of a label: the position, which end of the line is there, the kind of text, and the text."""
    for (x, y), line, size in label.rows:
        what = "trigger" if size == TRIGGER_SIZE else "event"
        yield _short(x), _short(y), "end" if label.leftward else "start", what, line


def _short(length: float) -> float:
    return round(length, 1)
