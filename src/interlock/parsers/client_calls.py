"""Calls of the tools that a client runs: from the arguments of a function to the items of `interlock.parsers.client_tools`.

It knows those functions and the shapes of their items. Arguments that are not as the function wants them are no such item; they
are a call of a function of that name, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, cast

import orjson

from interlock.events.items import ItemKind
from interlock.fsm.deltas import Close, Delta, EndPart, Open

__all__ = ["read_call"]

Fields: TypeAlias = Mapping[str, object]


def read_call(kind: ItemKind, arguments: str, fields: Fields) -> list[Delta] | None:
    """Return the deltas of a whole call; never raises.

    Args:
        kind: Of `interlock.parsers.client_tools`.
        arguments: What the model wrote: a JSON object, if it did as it was told.
        fields: What else is known of the item: its `call_id`.

    Returns:
        None if the arguments are not as the function wants them.
    """
    try:
        value: object = orjson.loads(arguments)
    except ValueError:
        return None
    return _READERS[kind](cast("Fields", value), fields) if isinstance(value, dict) else None


def _local_shell(arguments: Fields, fields: Fields) -> list[Delta] | None:
    if not _are_texts(arguments.get("command")):
        return None
    return [Open("local_shell_call", fields), Close({"action": {"type": "exec", "env": {}, **_without_nulls(arguments)}})]


def _shell(arguments: Fields, fields: Fields) -> list[Delta] | None:
    commands = arguments.get("commands")
    if not _are_texts(commands):
        return None
    limits = {name: arguments.get(name) for name in ("max_output_length", "timeout_ms")}
    start = Open("shell_call", {**fields, "action": {"commands": [], **limits}})
    deltas = [delta for command in cast("Sequence[str]", commands) for delta in (command, EndPart())]
    return [start, *deltas, Close()]


def _apply_patch(arguments: Fields, fields: Fields) -> list[Delta] | None:
    kind, path, diff = arguments.get("type"), arguments.get("path"), arguments.get("diff", "")
    if kind not in ("create_file", "update_file", "delete_file") or not isinstance(path, str) or not isinstance(diff, str):
        return None
    streams = kind != "delete_file"
    operation = {"type": kind, "path": path, **({"diff": ""} if streams else {})}
    return [Open("apply_patch_call", {**fields, "operation": operation}), *([diff] if streams and diff else []), Close()]


def _tool_search(arguments: Fields, fields: Fields) -> list[Delta]:
    return [Open("tool_search_call", {**fields, "execution": "client"}), Close({"arguments": arguments})]


def _without_nulls(arguments: Fields) -> Fields:
    """Return the arguments that were given; null stands for one that was not."""
    return {name: value for name, value in arguments.items() if value is not None}


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in cast("list[object]", value))


_READERS: Final[Mapping[str, Callable[[Fields, Fields], list[Delta] | None]]] = {
    "local_shell_call": _local_shell,
    "shell_call": _shell,
    "apply_patch_call": _apply_patch,
    "tool_search_call": _tool_search,
}
