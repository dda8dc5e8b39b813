"""The order of an item's events, as regular expressions over their names (rules R8 and R10 of docs/evidence/rules.md).

Compilation maps each name to a letter, so an item's events form a word.
"""

from __future__ import annotations

import re
from typing import Final

from interlock.events.stream import EVENTS
from interlock.verify.oracle import orders

NAME: Final = r"[a-z_.]+"
"""Matches the name of an event in an expression."""
_NAMES: Final = [name for name in EVENTS if name.count(".") > 1]
LETTERS: Final = {name: chr(0xE000 + number) for number, name in enumerate(_NAMES)}
"""The letter of each event of an item, from Unicode's private use area."""
_SHORT: Final = {name.removeprefix("response.").removeprefix("output_item."): letter for name, letter in LETTERS.items()}
_NAME_OF: Final = {letter: name for name, letter in _SHORT.items()}


def spell(word: str) -> str:
    """Return the event names of a word."""
    return " · ".join(_NAME_OF[letter] for letter in word)


def _letter(name: str) -> str:
    if name not in _SHORT:
        raise ValueError(f"a row of ORDERS names 'response.{name}', which is not an event")
    return _SHORT[name]


def _of_tool(order: str) -> list[str]:
    """Return the names of the events that a tool causes, and `done`; none for an order without a tool."""
    return re.findall(NAME, order.partition(">")[2])


def _expression(text: str) -> re.Pattern[str]:
    """Compile an expression over event names."""
    return re.compile(re.sub(r"[\s>]+", "", re.sub(NAME, lambda name: _letter(name[0]), text)))


PARTS: Final = _expression(orders.PARTS)
"""A sequence of complete parts (R8)."""
IN_PARTS: Final = str.maketrans(dict.fromkeys(set(LETTERS.values()) - {_SHORT[name] for name in re.findall(NAME, orders.PARTS)}))
"""A table for `str.translate` that removes all letters except part events."""

ORDERS: Final = {kind: {status: _expression(text) for status, text in row.items()} for kind, row in orders.ORDERS.items()}
"""The order of events by kind of item and final status, which is None for an item without one."""

RUNNING: Final = {
    kind: tuple(_letter(name) for name in dict.fromkeys((names[0], names[-1])))
    for kind, row in orders.ORDERS.items()
    if (names := _of_tool(row.get("completed", row.get(None, "")))[:-1])
}
"""The event that starts the tool of a hosted call, and the event that completes it if there is one, by kind (R11)."""

TOOL_EVENTS: Final = {
    kind: {_letter(name) for order in orders.ORDERS[kind].values() for name in _of_tool(order)} for kind in RUNNING
} | {kind: {_letter(name) for name in f"{names} done".split()} for kind, names in orders.MORE_EVENTS.items()}
"""The events that an item's tool causes, and `done`, by kind; only these may come after a later item begins."""
