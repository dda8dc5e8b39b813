"""The hosted tools, which an operator can configure to run on MCP servers, and the functions that stand for them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final, Literal, TypeAlias

from attrs import evolve

from interlock.parsers.routing import Route, Routing

__all__ = [
    "CALL_SECONDS",
    "CONTAINER",
    "HOSTED_TOOLS",
    "LABELS",
    "SEARCHES",
    "HostedTool",
    "hosted_functions",
    "hosted_kinds",
    "with_hosted",
]

HostedTool: TypeAlias = Literal["code_interpreter", "web_search", "container"]
"""A tool that requests declare and an MCP server of the operator runs."""

HOSTED_TOOLS: Final[tuple[HostedTool, ...]] = ("code_interpreter", "web_search", "container")

LABELS: Final[Mapping[object, HostedTool]] = {
    "code_interpreter": "code_interpreter",
    "web_search_preview": "web_search",
    "container": "container",
}
"""The hosted tools that replace MCP servers with these labels, if the operator configured them, as in vLLM."""

CONTAINER: Final = "container"
"""The namespace of gpt-oss's container tools, whose calls are MCP items."""

CALL_SECONDS: Final = 120.0  # the default time limit of a call

SEARCHES: Final = ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11")


def _function(name: str, argument: str, description: str) -> dict[str, object]:
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "name": name, "description": description, "parameters": parameters}


PYTHON: Final = _function("python", "code", "Runs Python code and returns what it prints.")
SEARCH: Final = _function("web_search", "query", "Searches the web and returns the pages that were found.")

CODE_ROUTE: Final = Route("code_interpreter_call", payload="code")
SEARCH_ROUTE: Final = Route("web_search_call", payload="browser", function="search")
ROUTES: Final[Mapping[str, Mapping[str, Route]]] = {
    "code_interpreter": {"python": CODE_ROUTE, "code_interpreter": CODE_ROUTE},
    "web_search": {"web_search": SEARCH_ROUTE, "web_search_preview": SEARCH_ROUTE},
}
"""The functions with which models other than gpt-oss call each hosted tool."""


def hosted_functions(hosted: Iterable[str]) -> dict[str, Mapping[str, object]]:
    """Return the functions that stand for hosted tools, by the types of the tools in requests."""
    functions = {"code_interpreter": PYTHON, **dict.fromkeys(SEARCHES, SEARCH)}
    return {kind: tool for kind, tool in functions.items() if kind.startswith((*hosted,))}


def hosted_kinds(hosted: Iterable[str], tools: Iterable[Mapping[str, object]]) -> set[str]:
    """Return which of the hosted tools a request declares."""
    types = [str(tool.get("type")) for tool in tools]
    return {kind for kind in hosted if any(each.startswith(kind) for each in types)}


def with_hosted(routing: Routing, hosted: Container[str]) -> Routing:
    """Return a routing that also maps the functions for these hosted tools to calls of the tools."""
    routes = {name: route for kind, functions in ROUTES.items() if kind in hosted for name, route in functions.items()}
    return evolve(routing, declared={**routing.declared, **routes}) if routes else routing
