"""The tools of a request, and which of them the model may or must call, each with its shape.

Tools of a type that nobody knows are carried as they came.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, Tag

from interlock.serving.requests.shapes import LongText, Name, Named, Object, Shape, Some, TextOrObject, Texts, by_type, text_or

__all__ = ["CALLED", "MOST_TOOLS", "ToolChoice", "Tools"]

MOST_TOOLS: Final = 1_024
"""Tools of one request, those of namespaces among them; OpenAI's API takes 128 in one array."""


class Function(Shape):
    """A function of the client's."""

    name: Name
    parameters: Object | None = None
    description: LongText | None = None
    strict: bool | None = None


class Custom(Shape):
    """A tool of the client's that takes text."""

    name: Name
    description: LongText | None = None
    format: Object | None = None


class McpServer(Shape):
    """A server whose tools this server calls."""

    server_label: Some
    server_url: LongText | None = None
    headers: Object | None = None
    authorization: LongText | None = None
    require_approval: TextOrObject | None = None


class FileSearch(Shape):
    """A search in files."""

    vector_store_ids: Texts


class CodeInterpreter(Shape):
    """An interpreter of Python."""

    container: TextOrObject | None = None


class OtherTool(Shape):
    """A tool of a type that has no shape here."""


CALLED: Final[Mapping[str, str]] = MappingProxyType({"function": "<function>", "custom": "<custom>"})
"""The types of tools that the model calls by name and the client runs, with their tags."""

CalledTool: TypeAlias = Annotated[
    Annotated[Function, Tag("<function>")] | Annotated[Custom, Tag("<custom>")] | Annotated[OtherTool, Tag("<other>")],
    by_type(CALLED, otherwise="<other>"),
]


class Namespace(Shape):
    """Tools under one name."""

    name: Some
    description: LongText | None = None
    tools: Annotated[list[CalledTool], Field(fail_fast=True)] | None = None


TOOLS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **CALLED,
        "namespace": "<namespace>",
        "mcp": "<mcp>",
        "file_search": "<file_search>",
        "code_interpreter": "<code_interpreter>",
    }
)
"""The tag of each type of tool that has a shape."""

Tool: TypeAlias = Annotated[
    Annotated[Function, Tag("<function>")]
    | Annotated[Custom, Tag("<custom>")]
    | Annotated[Namespace, Tag("<namespace>")]
    | Annotated[McpServer, Tag("<mcp>")]
    | Annotated[FileSearch, Tag("<file_search>")]
    | Annotated[CodeInterpreter, Tag("<code_interpreter>")]
    | Annotated[OtherTool, Tag("<other>")],
    by_type(TOOLS, otherwise="<other>"),
]
Tools: TypeAlias = Annotated[list[Tool], Field(fail_fast=True)]


class Chosen(Shape):
    """The tool of the client's that must be called."""

    name: Some


class ChosenServer(Shape):
    """The MCP server of which a tool must be called."""

    server_label: Some
    name: LongText | None = None


class Allowed(Named):
    """A tool that may be called."""

    type: Some


class AllowedTools(Shape):
    """The tools that may or must be called."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[Allowed], Field(fail_fast=True, max_length=MOST_TOOLS)]


CHOICES: Final[Mapping[str, str]] = MappingProxyType(
    {"function": "<chosen>", "custom": "<chosen>", "mcp": "<server>", "allowed_tools": "<allowed_tools>"}
)
"""The tag of each type of choice that has a shape."""

Choice: TypeAlias = Annotated[
    Annotated[Chosen, Tag("<chosen>")]
    | Annotated[ChosenServer, Tag("<server>")]
    | Annotated[AllowedTools, Tag("<allowed_tools>")]
    | Annotated[Named, Tag("<other>")],
    by_type(CHOICES, otherwise="<other>"),
]
ToolChoice: TypeAlias = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("<text>")] | Annotated[Choice, Tag("<object>")], text_or("<object>")
]
"""What `tool_choice` may be."""
