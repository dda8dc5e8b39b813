"""Small random changes of a stream, which may or may not break a rule. They know JSON and no rules."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias, cast

from interlock.testing.streams import Body, Chance, renumber

_Path: TypeAlias = tuple[str | int, ...]

_VALUES: Final = tuple(
    cast(
        "list[object]",
        json.loads(
            """[null, 0, 1, -1, 0.5, true, "", " ", "x", [], {}, [{}], [null], "msg_1", "call_1", "resp_2",
            "completed", "failed", "in_progress", "incomplete", "output_text", "refusal"]"""
        ),
    )
)
_LOOKED_INTO: Final = frozenset({"id", "object", "status", "output", "usage", "error", "incomplete_details", "tools"})
"""The fields of a response that the judges read; mutations leave the other ones, which echo the request, unchanged."""


def mutated(chance: Chance, events: Sequence[Body]) -> tuple[str, list[Body]]:
    """Return the name of a mutation, and a copy of the stream with it."""
    name = chance.choice(tuple(_MUTATIONS))
    return name, _MUTATIONS[name](chance, list(events))


def _place(chance: Chance, events: Sequence[Body]) -> int:
    return chance.randint(0, len(events) - 1)


def _dropped(chance: Chance, events: list[Body]) -> list[Body]:
    del events[_place(chance, events)]
    return renumber(events)


def _doubled(chance: Chance, events: list[Body]) -> list[Body]:
    place = _place(chance, events)
    return renumber([*events[: place + 1], *events[place:]])


def _moved(chance: Chance, events: list[Body]) -> list[Body]:
    body = events.pop(_place(chance, events))
    events.insert(chance.randint(0, len(events)), body)
    return renumber(events)


def _swapped(chance: Chance, events: list[Body]) -> list[Body]:
    place = _place(chance, events)
    return renumber([*events[:place], *events[place : place + 2][::-1], *events[place + 2 :]])


def _cut(chance: Chance, events: list[Body]) -> list[Body]:
    return events[: _place(chance, events)]


def _renamed(chance: Chance, events: list[Body]) -> list[Body]:
    place = _place(chance, events)
    events[place] = {**events[place], "type": events[_place(chance, events)].get("type")}
    return events


def _edited(chance: Chance, events: list[Body]) -> list[Body]:
    holder, last = _inside(chance, events)
    holder[last] = copy.deepcopy(chance.choice(_VALUES))
    return events


def _deleted(chance: Chance, events: list[Body]) -> list[Body]:
    holder, last = _inside(chance, events)
    del holder[last]
    return events


def _added(chance: Chance, events: list[Body]) -> list[Body]:
    holder, _ = _inside(chance, events)
    holder[chance.choice(("sequence_number", "output_index", "logprobs", "status", "x"))] = chance.choice(_VALUES)
    return events


def _inside(chance: Chance, events: list[Body]) -> tuple[Body, str]:
    """Choose a field anywhere in an event, which becomes a copy; a list's entries count as fields of objects alone."""
    place = _place(chance, events)
    events[place] = copy.deepcopy(events[place])
    *way, last = chance.choice([path for path in _paths(events[place]) if isinstance(path[-1], str)])
    holder: object = events[place]
    for step in way:
        holder = cast("dict[str | int, object]", holder)[step]
    return cast("Body", holder), cast("str", last)


def _paths(value: object, at: _Path = ()) -> Iterator[_Path]:
    """Yield the way to every value inside of one."""
    entries: Sequence[tuple[str | int, object]]
    if isinstance(value, dict):
        entries = list(cast("Body", value).items())
    elif isinstance(value, list):
        entries = list(enumerate(cast("list[object]", value)))
    else:
        return
    for step, inner in entries:
        if at != ("response",) or step in _LOOKED_INTO:
            yield (*at, step)
            yield from _paths(inner, (*at, step))


_MUTATIONS: Final[dict[str, Callable[[Chance, list[Body]], list[Body]]]] = {
    "drop": _dropped,
    "double": _doubled,
    "move": _moved,
    "swap": _swapped,
    "cut": _cut,
    "rename": _renamed,
    "edit": _edited,
    "delete a field": _deleted,
    "add a field": _added,
}
