"""Tools that a server can run, with their own kinds of items: the code interpreter and web search.

A model sees each tool as a function, unless the server's format has a place for the tool itself, as that of gpt-oss has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from attrs import frozen

from interlock.events.items import ITEMS, NOTHING, ItemKind
from interlock.events.json import members
from interlock.fsm.table import DeclarationError
from interlock.parsers.client_tools import check_arguments

if TYPE_CHECKING:
    from interlock.parsers.routing import Payload

HostedTool: TypeAlias = Literal["code_interpreter", "web_search", "container"]
"""A tool that requests declare and an MCP server of the operator runs."""

HOSTED_TOOLS: Final[tuple[HostedTool, ...]] = get_args(HostedTool)

CONTAINER: Final[HostedTool] = "container"
"""The namespace of gpt-oss's container tools, whose calls are MCP items."""

SEARCHES: Final = ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11")


def _function(name: str, argument: str, description: str) -> dict[str, object]:
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "name": name, "description": description, "parameters": parameters}


@frozen
class HostedCall:
    """The calls of a hosted tool, which become items of `kind`.

    Raises:
        DeclarationError: The item has a text (`text_path`), and the payload is not `input` or the text not the function's only
            argument; or it has none, and the payload is neither `fields` nor `browser`. Or a model could not read the arguments
            of the function back, or its result.
    """

    kind: ItemKind
    tool: HostedTool
    types: tuple[str, ...]  # its types in requests
    label: str  # the label of the MCP servers that it replaces, if the operator configured it, as in vLLM
    function: Mapping[str, object]  # the function with which models call it
    payload: Payload  # the form of the arguments
    mcp_tools: Mapping[object, str]
    """The names of the MCP server's tools, by the type of the call's action if it has one; the first is the default."""
    recipient: str = ""  # the recipient instead of the function for gpt-oss, if it was trained with the tool
    renamed: Mapping[str, str] = NOTHING  # the names of arguments that models use, but not the prompt, with the right ones
    include: str = ""  # the value of the parameter `include` that adds the result to the item; if empty, the item always has it
    cites: bool = False  # whether its results are pages that the model cites

    def __attrs_post_init__(self) -> None:
        """Check that the item has all arguments, and that a model reads it as a call of the function with them."""
        kind, parameters = self.kind, members(self.function.get("parameters"))
        text, read_as = ITEMS[kind].text_path, ITEMS[kind].as_function_call
        if text and (self.payload, *members(parameters.get("properties"))) != ("input", text[-1]):
            raise DeclarationError(f"{kind!r} has a text: its payload is 'input', and the only argument {text[-1]!r}")
        if not text and self.payload not in {"fields", "browser"}:
            raise DeclarationError(f"{kind!r} has no text (`text_path`) for the payload {self.payload!r}")
        if read_as is None or read_as[0] != self.name:
            raise DeclarationError(f"`as_function_call` of {kind!r} does not name the function {self.name!r}")
        if text and read_as[1] != text[0]:
            raise DeclarationError(f"`as_function_call` of {kind!r} does not name the field of its text, {text[0]!r}")
        for method in (ITEMS[kind].result_fields, ITEMS[kind].failure_fields):
            result = method("seen")
            if result and ITEMS[kind].result_text(result) != "seen":
                raise DeclarationError(f"`result_text` of {kind!r} does not return the text of `{method.__name__}`")
        if ITEMS[kind].result_text({**ITEMS[kind].result_fields("shown"), "output": "stored"}) != "stored":
            raise DeclarationError(f"`result_text` of {kind!r} does not return the `output` that a server stores")
        if self.payload == "fields":
            check_arguments(kind, parameters)

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(self.function["name"])

    def is_declared(self, tool: Mapping[str, object]) -> bool:
        """Return whether a tool of a request is this one, by its type or by the label of the MCP server that it replaces."""
        kind = tool.get("type")
        return kind in self.types or (kind == "mcp" and tool.get("server_label") == self.label)

    def mcp_tool(self, fields: Mapping[str, object]) -> str:
        """Return the name of the MCP server's tool for a call with these fields."""
        return self.mcp_tools.get(members(fields.get("action")).get("type"), next(iter(self.mcp_tools.values())))


HOSTED_CALLS: Final[Mapping[object, HostedCall]] = {
    call.kind: call
    for call in (
        HostedCall(
            "code_interpreter_call",
            tool="code_interpreter",
            types=("code_interpreter",),
            label="code_interpreter",
            function=_function("python", "code", "Runs Python code and returns what it prints."),
            payload="input",
            mcp_tools={None: "python"},
            recipient="python",
            include="code_interpreter_call.outputs",
        ),
        HostedCall(
            "web_search_call",
            tool="web_search",
            types=SEARCHES,
            label="web_search_preview",
            function=_function("web_search", "query", "Searches the web and returns the pages that were found."),
            payload="browser",
            mcp_tools={"search": "search", "open_page": "open", "find_in_page": "find"},
            recipient="browser.search",
            renamed={"url": "id"},
            include="web_search_call.action.sources",
            cites=True,
        ),
    )
}
"""The calls of hosted tools, by the kinds of their items."""

BUILT_IN: Final = frozenset({CONTAINER, *(call.tool for call in HOSTED_CALLS.values() if call.recipient)})
"""The tools that gpt-oss was trained with; it calls the others as functions."""

LABELS: Final[Mapping[object, HostedTool]] = {**{call.label: call.tool for call in HOSTED_CALLS.values()}, CONTAINER: CONTAINER}
"""The hosted tools that replace MCP servers with these labels, if the operator configured them, as in vLLM."""
