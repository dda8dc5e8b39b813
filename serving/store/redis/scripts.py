"""The scripts that run inside Redis. Each is one commit, and fires the edges of tables that it is given as data."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

from interlock.fsm.processes.conversation import CONVERSATION
from interlock.fsm.processes.stored import STORED
from interlock.fsm.table import Table

__all__ = ["SCRIPTS", "VERSION"]

T = TypeVar("T")
E = TypeVar("E")

VERSION: Final = 1
"""The version of the layout that the scripts know."""

HERE: Final = Path(__file__).parent
NAMES: Final = ("write", "known", "get", "read", "find", "converse", "lost", "sweep", "census")
_CONVERSING: Final = frozenset({"write", "converse"})


def _lua(name: str, table: Table[T, E]) -> str:
    """Return a table as Lua: for each state and trigger, the state that follows and the effects."""

    def state(of: str) -> str:
        rows = table.states[of].rows.items()
        return ", ".join(f"{trigger} = {{'{dest.name}', {{{_listed(effects)}}}}}" for trigger, (dest, effects) in rows)

    return f"local {name} = {{{', '.join(f'{of} = {{{state(of)}}}' for of in table.states)}}}\n"


def _listed(names: Iterable[object]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _script(name: str) -> str:
    edges, parts = [_lua("EDGES", STORED)], ["common", name]
    if name in _CONVERSING:
        edges, parts = [*edges, _lua("TALKS", CONVERSATION)], ["common", "conversing", name]
    return "".join(edges) + "".join((HERE / f"{part}.lua").read_text(encoding="utf-8") for part in parts)


SCRIPTS: Final = {name: _script(name) for name in NAMES}
"""The text of each script."""
