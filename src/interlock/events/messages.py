"""The events and objects of Anthropic's Messages API, as a server writes them.

Source: the API's documentation and the types of the `anthropic` package, 2.14. docs/guides/dialects.md has the
rules of a stream, M1 to M14.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType, field

from interlock.events.parts import Json

StopReason: TypeAlias = Literal["end_turn", "max_tokens", "tool_use", "refusal", "stop_sequence"]
"""Why a message ended, of the reasons that this server knows."""


class OutputDetails(Struct, kw_only=True):
    """Which of the output tokens are reasoning."""

    thinking_tokens: int = 0


class ServerToolUsage(Struct, kw_only=True):
    """How often the server has searched the web, and fetched pages without a search."""

    web_search_requests: int = 0
    web_fetch_requests: int = 0


class MessagesUsage(Struct, kw_only=True):
    """The tokens of a message; `input_tokens` excludes cached tokens."""

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0
    output_tokens_details: OutputDetails = field(default_factory=OutputDetails)
    cache_creation: None = None
    server_tool_use: ServerToolUsage | None = None
    service_tier: None = None
    inference_geo: None = None


class ModelCaller(Struct, tag_field="type", tag="direct", kw_only=True):
    """What made a call: the model itself, and not code that it wrote."""


# Blocks. A block begins with its fields empty; a result is whole from its start.


class TextBlock(Struct, tag_field="type", tag="text", kw_only=True):
    """Text for the user."""

    text: str = ""


class ThinkingBlock(Struct, tag_field="type", tag="thinking", kw_only=True):
    """The model's reasoning; the signature holds it for the next request."""

    thinking: str = ""
    signature: str = ""


class ToolUseBlock(Struct, tag_field="type", tag="tool_use", kw_only=True):
    """A call of a client's tool."""

    id: str
    name: str
    input: Json = field(default_factory=dict[str, Json])
    caller: ModelCaller = field(default_factory=ModelCaller)


class ServerToolUseBlock(Struct, tag_field="type", tag="server_tool_use", kw_only=True):
    """A call of a tool that the server runs."""

    id: str
    name: Literal["web_search", "code_execution"]
    input: Json = field(default_factory=dict[str, Json])
    caller: ModelCaller = field(default_factory=ModelCaller)


class McpToolUseBlock(Struct, tag_field="type", tag="mcp_tool_use", kw_only=True):
    """A call of a tool of an MCP server."""

    id: str
    name: str
    server_name: str
    input: Json = field(default_factory=dict[str, Json])


class WebSearchResult(Struct, tag_field="type", tag="web_search_result", kw_only=True):
    """A page that a search found."""

    url: str
    title: str
    encrypted_content: str = ""
    page_age: str | None = None


class WebSearchError(Struct, tag_field="type", tag="web_search_tool_result_error", kw_only=True):
    """Why a search failed."""

    error_code: Literal["unavailable"] = "unavailable"


class WebSearchBlock(Struct, tag_field="type", tag="web_search_tool_result", kw_only=True):
    """The result of a search."""

    tool_use_id: str
    content: list[WebSearchResult] | WebSearchError
    caller: ModelCaller = field(default_factory=ModelCaller)


class CodeResult(Struct, tag_field="type", tag="code_execution_result", kw_only=True):
    """What code printed."""

    stdout: str
    stderr: str
    return_code: int
    content: list[Json] = []


class CodeBlock(Struct, tag_field="type", tag="code_execution_tool_result", kw_only=True):
    """The result of code."""

    tool_use_id: str
    content: CodeResult


class McpResultBlock(Struct, tag_field="type", tag="mcp_tool_result", kw_only=True):
    """The result of a call of an MCP server's tool."""

    tool_use_id: str
    is_error: bool
    content: list[TextBlock]


Block: TypeAlias = (
    TextBlock | ThinkingBlock | ToolUseBlock | ServerToolUseBlock | McpToolUseBlock | WebSearchBlock | CodeBlock | McpResultBlock
)


class MessageObject(Struct, tag_field="type", tag="message", kw_only=True):
    """A message: without content at the start of a stream, whole without streaming."""

    id: str
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[Block] = []
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    stop_details: None = None
    container: None = None
    usage: MessagesUsage = field(default_factory=MessagesUsage)


# Events.


class MessagesEvent(Struct, tag_field="type", kw_only=True):
    """An event of a stream."""


class MessageStart(MessagesEvent, tag="message_start"):
    """The message begins."""

    message: MessageObject


class BlockStart(MessagesEvent, tag="content_block_start"):
    """A block begins."""

    index: int
    content_block: Block


class TextBlockDelta(Struct, tag_field="type", tag="text_delta"):
    """More text."""

    text: str


class ThinkingBlockDelta(Struct, tag_field="type", tag="thinking_delta"):
    """More reasoning."""

    thinking: str


class SignatureBlockDelta(Struct, tag_field="type", tag="signature_delta"):
    """The signature of a thinking block."""

    signature: str


class InputBlockDelta(Struct, tag_field="type", tag="input_json_delta"):
    """More of the JSON of a call's input."""

    partial_json: str


class BlockDelta(MessagesEvent, tag="content_block_delta"):
    """More of the open block."""

    index: int
    delta: TextBlockDelta | ThinkingBlockDelta | SignatureBlockDelta | InputBlockDelta


class BlockStop(MessagesEvent, tag="content_block_stop"):
    """The open block ends."""

    index: int


class StopDelta(Struct):
    """Why the message ended."""

    stop_reason: StopReason
    stop_sequence: str | None = None
    stop_details: None = None
    container: None = None


class MessageDelta(MessagesEvent, tag="message_delta"):
    """The end of the message, with its usage."""

    delta: StopDelta
    usage: MessagesUsage


class MessageStop(MessagesEvent, tag="message_stop"):
    """Nothing follows."""


class Ping(MessagesEvent, tag="ping"):
    """Nothing happened for a while."""


class MessagesError(Struct, kw_only=True):
    """An error, by its class and a sentence."""

    type: str
    message: str
    details: dict[str, str] | UnsetType = UNSET


class ErrorMessage(MessagesEvent, tag="error"):
    """The request failed: the body of an answer, or the last event of a stream."""

    error: MessagesError
    request_id: str | None = None


ERROR_TYPES: Final[dict[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""The class of an error by its HTTP status; any other below 500 is invalid, and any other above is the server's."""
