"""The scripts that run inside Redis. Each is one commit, and fires the edges of the table `stored`, which it is given as data."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from interlock.fsm.stored import STORED

__all__ = ["SCRIPTS", "VERSION"]

VERSION: Final = 1
"""The version of the layout that the scripts know."""

HERE: Final = Path(__file__).parent
NAMES: Final = ("write", "known", "get", "read", "find", "converse", "lost", "sweep", "census")
_CONVERSING: Final = frozenset({"write", "converse"})


def _edges() -> str:
    """Return the table `stored` as Lua: for each state and trigger, the state that follows and the effects."""

    def state(name: str) -> str:
        rows = STORED.states[name].rows.items()
        return ", ".join(f"{trigger} = {{'{dest.name}', {{{_listed(effects)}}}}}" for trigger, (dest, effects) in rows)

    return f"local EDGES = {{{', '.join(f'{name} = {{{state(name)}}}' for name in STORED.states)}}}\n"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _script(name: str) -> str:
    parts = ["common", *(["conversing"] if name in _CONVERSING else []), name]
    return _edges() + "".join((HERE / f"{part}.lua").read_text(encoding="utf-8") for part in parts)


SCRIPTS: Final = {name: _script(name) for name in NAMES}
"""The text of each script."""
