"""Ways to break a legal stream in one place, each with the rule that the result breaks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

from attrs import frozen

from interlock.events.items import ITEMS, ItemKind
from interlock.events.stream import TERMINAL
from interlock.fsm.lifecycles import LIFECYCLES
from interlock.testing.legality import ENDINGS, KINDS, Body, Chance, Ending, findings

T = TypeVar("T")

Apply: TypeAlias = Callable[[Chance, list[Body]], bool]
"""Changes the events of a stream in place; returns False if the change does not apply to them."""

# Items with output text, calls whose input the model writes, calls that the server runs, and the events that start the latter.
_TEXTS: Final[tuple[ItemKind, ...]] = ("message",)
_WRITTEN: Final = tuple(kind for kind, item in ITEMS.items() if len(item.text_path) == 1)
_STARTED: Final = (".searching", ".interpreting", ".generating")
_RUN: Final = tuple(
    kind
    for kind, lifecycle in LIFECYCLES.items()
    if any(effect.name.endswith(_STARTED) for edge in lifecycle.edges for effect in edge.effects)
)


@frozen
class Mutation:
    """A way to break a stream, with the item `kinds` and stream `endings` that it applies to."""

    rule: str
    what: str
    apply: Apply
    kinds: Sequence[ItemKind] = KINDS
    endings: Sequence[Ending] = ENDINGS


def renumber(events: Sequence[Body]) -> list[Body]:
    """Renumber events, so that a mutation does not break the numbering too."""
    return [{**body, "sequence_number": number} for number, body in enumerate(events)]


def _places(events: Sequence[Body], *ends: str) -> list[int]:
    """Return the places of the events whose names end with one of the suffixes."""
    return [place for place, body in enumerate(events) if body["type"].endswith(ends)]


def _change(change: Callable[[list[Body], int], None], *ends: str) -> Apply:
    """Change the events at the place of any event whose name ends with one of the suffixes."""

    def apply(chance: Chance, events: list[Body]) -> bool:
        places = _places(events, *ends)
        if places:
            change(events, chance.choice(places))
        return bool(places)

    return apply


def _drop(*ends: str) -> Apply:
    """Drop an event."""

    def drop(events: list[Body], place: int) -> None:
        events[:] = renumber([*events[:place], *events[place + 1 :]])

    return _change(drop, *ends)


def _double(*ends: str) -> Apply:
    """Send an event twice."""

    def double(events: list[Body], place: int) -> None:
        events[:] = renumber([*events[: place + 1], *events[place:]])

    return _change(double, *ends)


def _set(path: str, value: object, *ends: str) -> Apply:
    """Set the field at a dotted path in an event; the value `...` deletes it."""

    def set_field(events: list[Body], place: int) -> None:
        *parents, last = path.split(".")
        holder = events[place]
        for step in parents:
            holder = holder[step]
        if value is ...:
            del holder[last]
        else:
            holder[last] = value

    return _change(set_field, *ends)


def _shift_index(chance: Chance, events: list[Body]) -> bool:
    """Raise the index of the last item, in all its events."""
    indices = sorted({body["output_index"] for body in events if "output_index" in body})
    if not indices:
        return False
    last = indices[-1]
    for body in events:
        if body.get("output_index") == last:
            body["output_index"] = last + chance.randint(1, 3)
    return len({body.get("output_index") for body in events if body.get("output_index", -1) > last}) == 1


def _lead_with_space(_chance: Chance, events: list[Body]) -> bool:
    """Begin a message with a delta of white space, consistently in all events."""
    place = next(iter(_places(events, "output_text.delta")), None)
    if place is None:
        return False
    part_place = (events[place]["output_index"], events[place]["content_index"])
    events[place:place] = [{**events[place], "delta": " "}]
    for body in events[place:]:
        if (body.get("output_index"), body.get("content_index")) == part_place and "text" in body:
            body["text"] = f" {body['text']}"
        for part in _parts_of(body, *part_place):
            part["text"] = f" {part['text']}"
    events[:] = renumber(events)
    return True


def _parts_of(body: Body, output_index: int, content_index: int) -> Iterator[Body]:
    """Yield each copy of a content part in an event."""
    items: list[Body] = []
    if body.get("output_index") == output_index:
        if "part" in body and body.get("content_index") == content_index:
            yield body["part"]
        items.append(body.get("item", {}))
    if output := body.get("response", {}).get("output"):
        items.append(output[output_index])
    for item in items:
        if content := item.get("content"):
            yield content[content_index]


_END: Final = tuple(sorted(TERMINAL))
_NO_ITEM: Final[Body] = {}


MUTATIONS: Final = (
    Mutation("R1", "response.created is missing", _drop("response.created")),
    Mutation("R1", "response.in_progress is missing", _drop("response.in_progress")),
    Mutation("R1", "response.in_progress comes twice", _double("response.in_progress")),
    Mutation("R2", "a sequence number is missing", _set("sequence_number", ..., "")),
    Mutation("R2", "a sequence number is wrong", _set("sequence_number", 10_000, "")),
    Mutation("R3", "the terminal event is missing", _drop(*_END)),
    Mutation("R3", "the terminal event comes twice", _double(*_END)),
    Mutation("R3", "the final response is still in progress", _set("response.status", "in_progress", *_END)),
    Mutation("R4", "a failed response does not say why", _set("response.error", None, *_END), endings=("failed",)),
    Mutation("R4", "an item is left open", _drop("output_item.done"), endings=("incomplete", "failed", "cancelled")),
    Mutation("R6", "an output index is skipped", _shift_index),
    Mutation("R7", "an item is never added", _drop("output_item.added")),
    Mutation("R7", "an item is never done", _drop("output_item.done"), endings=("completed",)),
    Mutation("R7", "an event names an item that does not exist", _set("item_id", "msg_nobody", ".delta", ".searching")),
    Mutation("R8", "a part does not end", _drop("content_part.done"), kinds=("message", "reasoning")),
    Mutation("R8", "a part does not begin", _drop("content_part.added"), kinds=("message", "reasoning")),
    Mutation("R8", "a content index is skipped", _set("content_index", 7, "content_part.added"), kinds=_TEXTS),
    Mutation("R9", "a text differs from its deltas", _set("text", "something else", "output_text.done"), kinds=_TEXTS),
    Mutation("R9", "a delta is changed", _set("delta", "something else", ".delta")),
    Mutation("R10", "the input of a call does not end", _drop("arguments.done", "input.done", "code.done"), kinds=_WRITTEN),
    Mutation("R10", "a call has no in_progress event", _drop("call.in_progress"), kinds=_RUN),
    Mutation("R11", "a tool ends without starting", _drop(*_STARTED), kinds=_RUN),
    Mutation(
        "R12",
        "the response does not say why it is incomplete",
        _set("response.incomplete_details", {}, "response.incomplete"),
        endings=("incomplete",),
    ),
    Mutation("R13", "there is no usage", _set("response.usage", ..., *_END)),
    Mutation("R13", "the final response has a different output", _set("response.output", [_NO_ITEM], *_END)),
    Mutation("R14", "a field is missing", _set("output_index", ..., "output_item.added", "output_item.done", ".delta")),
    Mutation("R14", "a field has a wrong type", _set("delta", 3, ".delta")),
    Mutation("R14", "an item has a field that belongs to events", _set("item.sequence_number", 3, "output_item.added")),
    Mutation("R14", "an event has an unknown name", _set("type", "response.output_text.deltas", ".delta")),
    Mutation("R15", "there are no logprobs", _set("logprobs", ..., "output_text.delta", "output_text.done"), kinds=_TEXTS),
    Mutation("R18", "a message begins with white space", _lead_with_space, kinds=_TEXTS),
)
RULES: Final = tuple(dict.fromkeys(mutation.rule for mutation in MUTATIONS))
"""The rules that `MUTATIONS` can break."""


class _FirstChoice:
    """Chooses the first option, the lowest number and the same text."""

    def choice(self, options: Sequence[T]) -> T:
        return options[0]

    def randint(self, low: int, high: int) -> int:
        del high
        return low

    def text(self) -> str:
        return "rain"


def break_rule(events: Sequence[Body], rule: str) -> list[Body] | None:
    """Return a legal stream with a change that breaks a rule, always the same one; None if the stream has no place for one."""
    for mutation in MUTATIONS:
        changed = copy.deepcopy([*events])
        if mutation.rule != rule or not mutation.apply(_FirstChoice(), changed):
            continue
        if rule in {finding.rule for finding in findings(changed)}:
            return changed
    return None
