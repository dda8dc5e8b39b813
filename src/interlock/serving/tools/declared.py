"""The MCP servers that a request declares: where they are, which of their tools may be called, and which need approval."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from attrs import field, frozen

from interlock.serving.requests.api_errors import ToolError
from interlock.serving.requests.json_values import elements, is_array, is_object, members
from interlock.serving.tools.address import AddressPolicy, Endpoint

if TYPE_CHECKING:  # the import takes 23 MB and half a second, for responses that call a server only
    from mcp_types import Tool

__all__ = ["DeclaredServer", "ListedTool", "declared_servers"]

FRAMING: Final = frozenset({"connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade"})
"""The headers of HTTP's framing, which a request may not set."""

TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header (RFC 9110, section 5.6.2)."""
VALUE: Final = re.compile(r"(?:[!-~](?:[ \t!-~]*[!-~])?)?")
"""The value of a header, without the characters that only some servers accept (RFC 9110, section 5.5)."""


@frozen
class ListedTool:
    """A tool in the fields of an `mcp_list_tools` item."""

    fields: Mapping[str, object]

    @classmethod
    def of(cls, tool: Tool) -> ListedTool:
        """Convert a tool of a server's list."""
        hints = tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations is not None else None
        return cls({"name": tool.name, "description": tool.description, "input_schema": tool.input_schema, "annotations": hints})

    @property
    def name(self) -> str:
        return str(self.fields.get("name"))

    @property
    def read_only(self) -> bool:
        """Whether the server declares that the tool changes nothing."""
        return members(self.fields.get("annotations")).get("readOnlyHint") is True


@frozen
class DeclaredServer:
    """An MCP server of a request."""

    label: str
    tool: Mapping[str, object] = field(repr=False)  # it may hold secrets

    def endpoint(self, policy: AddressPolicy) -> Endpoint:
        """Return the destination of a session, or raise `ToolError` for a URL or header that is not usable."""
        url = self.tool.get("server_url")
        if not isinstance(url, str):
            raise ToolError("The tool has no 'server_url', and this server knows no connectors.")
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ToolError("The 'server_url' is not the URL of a web server.")
        return Endpoint(url, tuple(self._headers()), policy)

    def _headers(self) -> Iterable[tuple[str, str]]:
        for name, value in members(self.tool.get("headers")).items():
            if name.lower() in FRAMING or not isinstance(value, str):
                raise ToolError(f"The header '{name}' cannot be set.")
            yield _sendable(name, value)
        authorization = self.tool.get("authorization")
        if isinstance(authorization, str):
            yield _sendable("Authorization", f"Bearer {authorization}")

    def allowed(self, tools: Iterable[ListedTool]) -> Iterable[ListedTool]:
        rule = self.tool.get("allowed_tools")
        return tools if rule is None else filter(_matcher(rule), tools)

    def needs_approval(self, tool: ListedTool) -> bool:
        """Return whether calls of a tool need approval, as they do by default."""
        rule = self.tool.get("require_approval")
        if not is_object(rule):
            return rule != "never"
        if "always" in rule and _matcher(rule["always"])(tool):
            return True
        if "never" in rule and _matcher(rule["never"])(tool):
            return False
        return "never" in rule or "always" not in rule


def _sendable(name: str, value: str) -> tuple[str, str]:
    """Return a header that can be sent; the HTTP client would repeat another one in an error, which is logged."""
    if TOKEN.fullmatch(name) is None or VALUE.fullmatch(value) is None:
        raise ToolError("The headers for the server cannot be sent.")
    return name, value


def _matcher(rule: object) -> Callable[[ListedTool], bool]:
    """Return the predicate for a rule: a list of names, or an object with `tool_names` and `read_only`."""
    conditions: Mapping[str, object] = {"tool_names": rule} if is_array(rule) else members(rule)
    read_only, tool_names = conditions.get("read_only"), conditions.get("tool_names")
    names = None if tool_names is None else {name for name in elements(tool_names) if isinstance(name, str)}
    return lambda tool: (names is None or tool.name in names) and (read_only is None or read_only == tool.read_only)


def declared_servers(tools: Iterable[Mapping[str, object]]) -> dict[str, DeclaredServer]:
    """Return the MCP servers among a request's tools by label; the first of those with the same label counts."""
    servers: dict[str, DeclaredServer] = {}
    for tool in tools:
        if tool.get("type") == "mcp":
            label = str(tool.get("server_label"))
            servers.setdefault(label, DeclaredServer(label, tool))
    return servers
