"""The tools that a client runs and that have items of their own: a shell, patches, a search of tools.

A model is shown each as a function; this table says which, so that what offers the tools and what reads the calls agree. How
a call's arguments become its item is in `interlock.parsers.client_calls`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attrs import frozen

from interlock.events.items import ItemKind

__all__ = ["CLIENT_TOOLS", "ClientTool"]


@frozen
class ClientTool:
    """A tool as a function.

    Args:
        kind: The kind of item that a call of it is.
        description: For the model.
        parameters: A JSON schema of its arguments.
    """

    kind: ItemKind
    description: str
    parameters: Mapping[str, object]


def _object(required: tuple[str, ...], **properties: Mapping[str, object]) -> Mapping[str, object]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_COUNT: Final = {"type": "integer"}

CLIENT_TOOLS: Final[Mapping[str, ClientTool]] = MappingProxyType(
    {
        "local_shell": ClientTool(
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
        "shell": ClientTool(
            "shell_call",
            "Runs shell commands, which may run at the same time, and returns their output.",
            _object(("commands",), commands=_TEXTS, timeout_ms=_COUNT, max_output_length=_COUNT),
        ),
        "apply_patch": ClientTool(
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
        "tool_search": ClientTool(
            "tool_search_call",
            "Searches for further tools, which can be called once they were found.",
            _object(("query",), query=_TEXT),
        ),
    }
)
"""The tools by their types, which are also the names of their functions."""
