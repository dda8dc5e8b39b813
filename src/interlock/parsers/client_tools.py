"""Tools that the client runs, with their own kinds of items: shells, patches and tool search.

A model sees each tool as a function, and `read_call` turns the arguments of a call into deltas. The calls of a kind without a
reader of its own have the arguments as fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeGuard

import orjson
from attrs import frozen

from interlock.events.items import ITEMS, ItemKind, examples, open_item, required_fields, unknown_fields
from interlock.events.json import is_array, is_object, members
from interlock.fsm.deltas import Close, Delta, EndPart, Open
from interlock.fsm.lifecycle import Fields
from interlock.fsm.table import DeclarationError


def read_call(kind: ItemKind, arguments: str, fields: Fields) -> list[Delta] | None:
    """Return the deltas of a complete call; None if its arguments are not a JSON object, or do not fit the item's fields."""
    try:
        value: object = orjson.loads(arguments)
        if not is_object(value):
            return None
        return _READERS[kind](value, fields) if kind in _READERS else _as_fields(kind, value, fields, arguments)
    except ValueError:
        return None


def _as_fields(kind: ItemKind, values: Fields, fields: Fields, arguments: str) -> list[Delta] | None:
    fields = {**values, **fields}
    open_item(kind, fields)  # only checks the types
    if _drop_nulls(values).keys() - members(ITEMS[kind].arguments_of(values)).keys():
        return None  # the other fields, such as the result and the status, are not the model's to write
    return [Open(kind, fields, arguments), Close()]


def _local_shell(arguments: Fields, fields: Fields) -> list[Delta] | None:
    if not _are_texts(arguments.get("command")):
        return None
    action: Fields = {"type": "exec", "env": {}, **_drop_nulls(arguments)}
    open_item("local_shell_call", {"action": action})  # only checks the types: the item opens without its action
    return [Open("local_shell_call", fields), Close({"action": action})]


def _shell(arguments: Fields, fields: Fields) -> list[Delta] | None:
    commands = arguments.get("commands")
    if not _are_texts(commands):
        return None
    limits = {name: arguments.get(name) for name in ("max_output_length", "timeout_ms")}
    start = Open("shell_call", {**fields, "action": {"commands": [], **limits}})
    deltas = [delta for command in commands for delta in (command, EndPart())]
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


def _drop_nulls(arguments: Fields) -> Fields:
    return {name: value for name, value in arguments.items() if value is not None}


def _are_texts(value: object) -> TypeGuard[Sequence[str]]:
    return is_array(value) and all(isinstance(each, str) for each in value)


_READERS: Final[Mapping[str, Callable[[Fields, Fields], list[Delta] | None]]] = {
    "local_shell_call": _local_shell,
    "shell_call": _shell,
    "apply_patch_call": _apply_patch,
    "tool_search_call": _tool_search,
}


def check_arguments(kind: ItemKind, parameters: Mapping[str, object]) -> None:
    """Check that an item without a reader has the arguments of a function as fields, and that a model reads them all back.

    Raises:
        DeclarationError: The item lacks a field for an argument, opens with an empty one or only with further ones, or its
            `arguments_of` does not return an argument.
    """
    if kind in _READERS:
        return
    item, arguments = ITEMS[kind], {*members(parameters.get("properties"))}
    if unknown := unknown_fields(item, arguments):
        raise DeclarationError(f"{kind!r} has no fields for arguments, and no reader in `_READERS`: {', '.join(unknown)}")
    if missing := {*required_fields(item)} - arguments:
        raise DeclarationError(f"{kind!r} cannot open without fields that are no arguments: {', '.join(sorted(missing))}")
    if emptied := arguments & item.empty_at_open.keys():
        raise DeclarationError(
            f"{kind!r} opens with empty fields for arguments, and has no reader in `_READERS`: {', '.join(sorted(emptied))}"
        )
    if lost := arguments - members(item.arguments_of(examples(kind, arguments)[0])).keys():
        raise DeclarationError(f"`arguments_of` of {kind!r} does not return arguments: {', '.join(sorted(lost))}")


@frozen
class ClientTool:
    """A client tool as the model sees it: a function whose calls become items of `kind`.

    Raises:
        DeclarationError: The kind has no `as_function_call`; or it has no reader, and an argument would not reach a model again.
    """

    kind: ItemKind
    description: str
    parameters: Mapping[str, object]

    def __attrs_post_init__(self) -> None:
        """Check that a model reads a call back as one of the same function, with its arguments."""
        check_arguments(self.kind, self.parameters)
        if not self.name:
            raise DeclarationError(f"`as_function_call` of {self.kind!r} does not name the function")

    @property
    def name(self) -> str:
        """The name of the function, which is also the type of the tool."""
        name, _ = ITEMS[self.kind].as_function_call or ("", "")
        return name


def _object(required: tuple[str, ...], **properties: Mapping[str, object]) -> Mapping[str, object]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_COUNT: Final = {"type": "integer"}

_TOOLS: Final = (
    ClientTool(
        "local_shell_call",
        "Runs a command on the user's machine and returns its output.",
        _object(
            ("command",),
            command={**_TEXTS, "description": "The program and its arguments."},
            working_directory=_TEXT,
            timeout_ms=_COUNT,
            env={"type": "object", "additionalProperties": _TEXT},
        ),
    ),
    ClientTool(
        "shell_call",
        "Runs shell commands, which may run at the same time, and returns their output.",
        _object(("commands",), commands=_TEXTS, timeout_ms=_COUNT, max_output_length=_COUNT),
    ),
    ClientTool(
        "apply_patch_call",
        "Creates, updates or deletes a file. The diff is in the V4A format: lines that begin with `+` are added, "
        "those with `-` removed, those with a space kept; `@@` begins a section.",
        _object(
            ("type", "path"),
            type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            path=_TEXT,
            diff=_TEXT,
        ),
    ),
    ClientTool(
        "tool_search_call",
        "Searches for further tools, which can be called once they were found.",
        _object(("query",), query=_TEXT),
    ),
)
CLIENT_TOOLS: Final[Mapping[str, ClientTool]] = MappingProxyType({tool.name: tool for tool in _TOOLS})
"""The tools by type, which is also the function's name."""
