"""All kinds of items, with their id prefixes and the fields that may be unknown until an item closes."""

# pyright: reportIncompatibleVariableOverride=false
# The `type` of a class is one of the strings that it is in its base class; nobody sets it.

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias, Union, get_args

from attrs import frozen
from msgspec import UNSET, Struct, ValidationError, convert, field, structs, to_builtins

from interlock.events.json import as_text, dumps, elements, is_object, members
from interlock.events.parts import (
    ComputerScreenshot,
    Content,
    ContentPart,
    Json,
    Maybe,
    Nullable,
    Number,
    Outbound,
    OutputRefusal,
    OutputText,
    ReasoningText,
    SummaryText,
    kinds_of,
)
from interlock.events.shapes import Arm, Hint, arms_of
from interlock.events.tools import AnyTool, ContainerReference, Effort, JsonSchemaFormat, LocalEnvironment, TextFormat

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
CALL_ID: Final[Mapping[str, str]] = MappingProxyType({"call_id": "call"})

Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]


ProgressName: TypeAlias = Literal[
    "response.compaction.compacting",
    "response.mcp_call.in_progress",
    "response.mcp_call.completed",
    "response.mcp_call.failed",
    "response.mcp_list_tools.in_progress",
    "response.mcp_list_tools.completed",
    "response.mcp_list_tools.failed",
    "response.code_interpreter_call.in_progress",
    "response.code_interpreter_call.interpreting",
    "response.code_interpreter_call.completed",
    "response.web_search_call.in_progress",
    "response.web_search_call.searching",
    "response.web_search_call.completed",
    "response.file_search_call.in_progress",
    "response.file_search_call.searching",
    "response.file_search_call.completed",
    "response.image_generation_call.in_progress",
    "response.image_generation_call.generating",
    "response.image_generation_call.completed",
]
"""The events about an item's progress, which have no fields but its id and its index."""


class Agent(Struct, kw_only=True):
    """The agent of an item or event, in the multi-agent beta."""

    agent_name: str


class Item(Struct, tag_field="type", kw_only=True, gc=False):
    """An item of a response or of a request's input.

    The class variables of a kind are its facts:

    - `type`: the name of the kind.
    - `prefix`: the prefix of the item's id.
    - `events`: `own` for a kind with a lifecycle of its own; `bracket` for a call that the model writes without further events
      between `added` and `done`; `none` for an item that is added and done at once.
    - `generated_ids`: the prefixes of other fields with generated ids, by field.
    - `required_at_open`: the fields that an item must open with, besides the required ones.
    - `empty_at_open`: the initial values of the fields that are written while the item is open.
    - `text_path`: the path to the field with the text that the model writes, for a kind without parts.
    - `known_at_done`: the fields that may be unknown until the item closes.
    - `tool_result`: the fields of the tool's result, for a kind that the server completes; None for any other kind.
    - `plain_result`: the field that holds a result in plain text, for a kind that can hold one. A kind with another result, or
      with an error, overrides `result_fields`, `failure_fields` and `result_text`, which also reads `output`.
    - `no_result`: the fields of a result that is missing, for a kind that must have one.
    - `encrypted_field`: the field with encrypted content, with which an item without text is not dropped.
    - `stops_anywhere`: whether the item is complete wherever its turn stops; a call is not.
    - `answer`: the kind of item with which the client answers, for a kind that needs an answer.
    - `as_function_call`: for a kind that a model reads as the call of a function, the function's name, or "" if the item has the
      name, and the field with the arguments. A kind whose arguments are several fields overrides `arguments_of`.
    - `as_function_output`: for a kind that a model reads as the output of a call, the field with the output.
    """

    type: ClassVar[str]
    prefix: ClassVar[str] = ""
    events: ClassVar[Literal["own", "bracket", "none"]] = "own"
    generated_ids: ClassVar[Mapping[str, str]] = NOTHING
    required_at_open: ClassVar[tuple[str, ...]] = ()
    empty_at_open: ClassVar[Mapping[str, object]] = NOTHING
    text_path: ClassVar[tuple[str, ...]] = ()
    known_at_done: ClassVar[tuple[str, ...]] = ()
    tool_result: ClassVar[tuple[str, ...] | None] = None
    plain_result: ClassVar[str] = ""
    no_result: ClassVar[Mapping[str, object]] = NOTHING
    encrypted_field: ClassVar[str] = ""
    stops_anywhere: ClassVar[bool] = False
    answer: ClassVar[str] = ""
    as_function_call: ClassVar[tuple[str, str] | None] = None
    as_function_output: ClassVar[str] = ""

    id: Outbound[str] = UNSET
    agent: Nullable[Agent] = UNSET

    @classmethod
    def result_fields(cls, text: str) -> dict[str, object]:
        """Return the fields that hold a result in plain text; none for a kind that cannot hold one."""
        return {cls.plain_result: text} if cls.plain_result else {}

    @staticmethod
    def failure_fields(_message: str) -> dict[str, object]:
        """Return the fields that tell why the tool failed; none for a kind that cannot hold an error."""
        return {}

    @classmethod
    def result_text(cls, item: Mapping[str, object]) -> str | None:
        """Return the result or error of a hosted call in plain text; None if the item does not have it.

        A server stores one that the item does not show as `output`.
        """
        result = item.get("output", item.get(cls.plain_result))
        return None if result is None else as_text(result)

    @classmethod
    def arguments_of(cls, item: Mapping[str, object]) -> object:
        """Return the arguments of `as_function_call`: an object, or the text that the model wrote."""
        name = "" if cls.as_function_call is None else cls.as_function_call[1]
        value = item.get(name)
        if is_object(value):
            return {name: each for name, each in value.items() if each is not None}
        return value if name == "arguments" or value is None else {name: value}

    @classmethod
    def output_of(cls, item: Mapping[str, object]) -> object:
        """Return the output of `as_function_output`: a text or content parts."""
        return item.get(cls.as_function_output)


# What the model writes.


class Reasoning(Item, tag="reasoning", kw_only=True):
    """The model's reasoning, as text, as a summary or encrypted."""

    type: ClassVar[Literal["reasoning"]]
    prefix = "rs"
    empty_at_open = MappingProxyType({"summary": [], "content": []})
    known_at_done = ("encrypted_content",)
    encrypted_field = "encrypted_content"
    stops_anywhere = True

    encrypted_content: Nullable[str] = UNSET
    status: Maybe[Status] = UNSET
    summary: Outbound[list[SummaryText]] = []
    content: Maybe[list[ReasoningText]] = UNSET


class Message(Item, tag="message", kw_only=True):
    """The assistant's message in a response."""

    type: ClassVar[Literal["message"]]
    prefix = "msg"
    empty_at_open = MappingProxyType({"content": []})
    stops_anywhere = True

    role: Literal["assistant"] = "assistant"
    phase: Nullable[Literal["commentary", "final_answer"]] = UNSET
    status: Outbound[Status] = UNSET
    content: list[OutputText | OutputRefusal] = []


class InputMessage(Item, tag="message", kw_only=True):
    """A message of any role in a request."""

    type: ClassVar[Literal["message"]]
    prefix = "msg"

    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    phase: Nullable[Literal["commentary", "final_answer"]] = UNSET
    status: Maybe[str] = UNSET


class Compaction(Item, tag="compaction", kw_only=True):
    """A compacted conversation."""

    type: ClassVar[Literal["compaction"]]
    prefix = "cmp"
    empty_at_open = MappingProxyType({"encrypted_content": ""})
    tool_result = ("encrypted_content",)

    encrypted_content: str
    created_by: Nullable[str] = UNSET


# The caller of a tool.


class DirectCaller(Struct, tag="direct", kw_only=True):
    """The model called the tool."""


class ProgramCaller(Struct, tag="program", kw_only=True):
    """A program that the model wrote called the tool."""

    caller_id: str


AnyCaller: TypeAlias = DirectCaller | ProgramCaller


class ClientCall(Item, kw_only=True):
    """A call of a client's tool."""

    prefix = "fc"
    generated_ids = CALL_ID

    status: Outbound[Status] = UNSET
    call_id: str
    name: str
    namespace: Maybe[str] = UNSET
    caller: Nullable[AnyCaller] = UNSET
    is_async: Maybe[bool] = field(default=UNSET, name="async")
    created_by: Nullable[str] = UNSET


class FunctionCall(ClientCall, tag="function_call", kw_only=True):
    """A function call."""

    type: ClassVar[Literal["function_call"]]
    empty_at_open = MappingProxyType({"arguments": ""})
    text_path = ("arguments",)
    answer = "function_call_output"
    as_function_call = ("", "arguments")

    arguments: str


class CustomToolCall(ClientCall, tag="custom_tool_call", kw_only=True):
    """A call of a tool that takes text. The API sends its status in a stream; the `openai` package does not type it."""

    type: ClassVar[Literal["custom_tool_call"]]
    prefix = "ctc"
    empty_at_open = MappingProxyType({"input": ""})
    text_path = ("input",)
    answer = "custom_tool_call_output"
    as_function_call = ("", "input")

    status: Maybe[Status] = UNSET
    input: str


class FunctionCallOutput(Item, tag="function_call_output", kw_only=True):
    """The output of a function."""

    type: ClassVar[Literal["function_call_output"]]
    prefix = "fco"
    events = "none"
    as_function_output = "output"

    status: Outbound[Status] = UNSET
    call_id: Nullable[str] = UNSET
    output: Content
    name: Nullable[str] = UNSET
    namespace: Nullable[str] = UNSET
    caller: Nullable[AnyCaller] = UNSET
    created_by: Nullable[str] = UNSET


class CustomToolCallOutput(Item, tag="custom_tool_call_output", kw_only=True):
    """The output of a custom tool."""

    type: ClassVar[Literal["custom_tool_call_output"]]
    prefix = "ctco"
    events = "none"
    as_function_output = "output"

    status: Outbound[Status] = UNSET
    call_id: str
    output: Content
    caller: Nullable[AnyCaller] = UNSET
    created_by: Nullable[str] = UNSET


# Tools of MCP servers.


class McpProtocolError(Struct, tag="mcp_protocol_error", kw_only=True):
    """The MCP server returned an error."""

    code: int
    message: str


class McpToolExecutionError(Struct, tag="mcp_tool_execution_error", kw_only=True):
    """The tool failed."""

    content: Json


class McpHttpError(Struct, tag="http_error", kw_only=True):
    """The HTTP request to the MCP server failed."""

    code: int
    message: str


class McpItem(Item, kw_only=True):
    """An item about the tools of MCP servers."""


class McpCall(McpItem, tag="mcp_call", kw_only=True):
    """A call of an MCP server's tool. Older releases of the `openai` package type its error as a string."""

    type: ClassVar[Literal["mcp_call"]]
    prefix = "mcp"
    empty_at_open = MappingProxyType({"arguments": ""})
    text_path = ("arguments",)
    tool_result = ("output",)
    plain_result = "output"
    no_result = MappingProxyType({"output": ""})
    as_function_call = ("", "arguments")

    status: Maybe[Literal["in_progress", "completed", "incomplete", "calling", "failed"]] = UNSET
    server_label: str
    name: str
    arguments: str
    approval_request_id: Nullable[str] = UNSET
    output: Nullable[str] = UNSET
    error: Nullable[McpProtocolError | McpToolExecutionError | McpHttpError | str] = UNSET

    @staticmethod
    def failure_fields(message: str) -> dict[str, object]:
        """Return an execution error."""
        return {"error": {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": message}]}}

    @classmethod
    def result_text(cls, item: Mapping[str, object]) -> str:
        """Return the output, or what the error says."""
        error = item.get("error")
        result = item.get("output") if error is None else error
        said = [members(part).get("text") for part in elements(members(error).get("content"))] or [members(error).get("message")]
        text = "\n".join(part for part in said if isinstance(part, str))
        return text or (result if isinstance(result, str) else "" if result is None else dumps(result).decode())


class McpTool(Struct, kw_only=True):
    """A tool of an MCP server."""

    name: str
    description: Nullable[str] = UNSET
    input_schema: Json
    annotations: Nullable[Json] = UNSET


class McpListTools(McpItem, tag="mcp_list_tools", kw_only=True):
    """The tools of an MCP server."""

    type: ClassVar[Literal["mcp_list_tools"]]
    prefix = "mcpl"
    tool_result = ("tools",)

    server_label: str
    tools: list[McpTool] = []
    error: Nullable[str] = UNSET

    @staticmethod
    def failure_fields(message: str) -> dict[str, object]:
        """Return the error."""
        return {"error": message}


class McpApprovalRequest(McpItem, tag="mcp_approval_request", kw_only=True):
    """A request to approve a tool call."""

    type: ClassVar[Literal["mcp_approval_request"]]
    prefix = "mcpr"
    events = "none"
    answer = "mcp_approval_response"
    as_function_call = ("", "arguments")

    server_label: str
    name: str
    arguments: str


class McpApprovalResponse(McpItem, tag="mcp_approval_response", kw_only=True):
    """The approval or rejection of a tool call."""

    type: ClassVar[Literal["mcp_approval_response"]]
    prefix = "mcpra"
    events = "none"

    approval_request_id: str
    approve: bool
    reason: Nullable[str] = UNSET


# The code interpreter.


class Logs(Struct, tag="logs", kw_only=True):
    """Text that the code printed."""

    logs: str


class OutputImage(Struct, tag="image", kw_only=True):
    """An image that the code created."""

    url: str


class CodeInterpreterCall(Item, tag="code_interpreter_call", kw_only=True):
    """A call of the Python interpreter."""

    type: ClassVar[Literal["code_interpreter_call"]]
    prefix = "ci"
    generated_ids = MappingProxyType({"container_id": "cntr"})
    empty_at_open = MappingProxyType({"code": ""})
    text_path = ("code",)
    tool_result = ("outputs",)
    as_function_call = ("python", "code")

    status: Outbound[Literal["in_progress", "completed", "incomplete", "interpreting", "failed"]] = UNSET
    container_id: str
    code: str | None = ""
    outputs: Nullable[list[Logs | OutputImage]] = None

    @classmethod
    def result_fields(cls, text: str) -> dict[str, object]:
        """Return the text as logs."""
        return {"outputs": [{"type": "logs", "logs": text}]}

    @staticmethod
    def failure_fields(message: str) -> dict[str, object]:
        """Return the error as logs, as Python prints it."""
        return {"outputs": [{"type": "logs", "logs": message}]}

    @classmethod
    def result_text(cls, item: Mapping[str, object]) -> str | None:
        """Return the output for the model, or the logs."""
        if item.get("outputs") is None or "output" in item:
            return None if item.get("output") is None else as_text(item["output"])
        return "\n".join(str(members(output).get("logs", "")) for output in elements(item["outputs"]))


# Searches.

SearchStatus: TypeAlias = Literal["in_progress", "searching", "completed", "failed", "incomplete"]


class UrlSource(Struct, tag="url", kw_only=True):
    """A web page."""

    url: str


class ApiSource(Struct, tag="api", kw_only=True):
    """A service such as a weather API. The API sends it; no release of the `openai` package types it."""

    name: str


class Search(Struct, tag="search", kw_only=True):
    """A search query."""

    query: Maybe[str] = UNSET
    queries: Maybe[list[str]] = UNSET
    sources: Maybe[list[UrlSource | ApiSource]] = UNSET


class OpenPage(Struct, tag="open_page", kw_only=True):
    """Opens a page."""

    url: Nullable[str] = UNSET


class FindInPage(Struct, tag="find_in_page", kw_only=True):
    """Searches a page for a pattern."""

    url: str
    pattern: str


class WebSearchCall(Item, tag="web_search_call", kw_only=True):
    """A web search. openai 2.25 has no status `incomplete`.

    Other services may open it without an action. Here it opens with one, which may change until it closes.
    """

    type: ClassVar[Literal["web_search_call"]]
    prefix = "ws"
    required_at_open = ("action",)
    known_at_done = ("action",)
    tool_result = ("action",)
    as_function_call = ("web_search", "action")

    status: Outbound[SearchStatus] = UNSET
    action: Outbound[Search | OpenPage | FindInPage] = UNSET

    @classmethod
    def arguments_of(cls, item: Mapping[str, object]) -> object:
        """Return only the query of a search, as the model wrote it, and any other action as it is."""
        action = members(item.get("action"))
        is_search = action.get("type") == "search" and "query" in action
        return {"query": action["query"]} if is_search else super().arguments_of(item)


class FileSearchResult(Struct, kw_only=True):
    """A passage found by a file search."""

    attributes: Nullable[dict[str, str | Number | bool]] = UNSET
    file_id: Maybe[str] = UNSET
    filename: Maybe[str] = UNSET
    score: Maybe[Number] = UNSET
    text: Maybe[str] = UNSET


class FileSearchCall(Item, tag="file_search_call", kw_only=True):
    """A file search."""

    type: ClassVar[Literal["file_search_call"]]
    prefix = "fs"
    tool_result = ("queries", "results")
    as_function_call = ("file_search", "queries")

    status: Outbound[SearchStatus] = UNSET
    queries: list[str]
    results: Nullable[list[FileSearchResult]] = None

    @classmethod
    def result_text(cls, item: Mapping[str, object]) -> str | None:
        """Return the output for the model, or the passages as JSON."""
        if item.get("output") is not None:
            return as_text(item["output"])
        return dumps(item["results"]).decode() if item.get("results") else None


class ToolSearchCall(Item, tag="tool_search_call", kw_only=True):
    """A search for tools. A search that the server runs has no `call_id`."""

    type: ClassVar[Literal["tool_search_call"]]
    prefix = "tsc"
    events = "bracket"
    answer = "tool_search_output"
    as_function_call = ("tool_search", "arguments")
    required_at_open = ("execution",)
    generated_ids = CALL_ID
    known_at_done = ("arguments",)

    status: Outbound[Status] = UNSET
    call_id: Nullable[str] = None
    execution: Outbound[Literal["server", "client"]] = UNSET
    arguments: Json = {}
    created_by: Nullable[str] = UNSET


class ToolSearchOutput(Item, tag="tool_search_output", kw_only=True):
    """The tools that a search found."""

    type: ClassVar[Literal["tool_search_output"]]
    prefix = "tso"
    events = "none"
    as_function_output = "tools"
    required_at_open = ("execution", "call_id")

    status: Outbound[Status] = UNSET
    call_id: Nullable[str] = UNSET
    execution: Outbound[Literal["server", "client"]] = UNSET
    tools: list[AnyTool]
    created_by: Nullable[str] = UNSET

    @classmethod
    def output_of(cls, item: Mapping[str, object]) -> str:
        """Return the tools as JSON."""
        return dumps(item.get("tools")).decode()


class AdditionalTools(Item, tag="additional_tools", kw_only=True):
    """Tools that are available from this item on."""

    type: ClassVar[Literal["additional_tools"]]
    prefix = "at"
    events = "none"

    role: Literal["unknown", "user", "assistant", "system", "critic", "discriminator", "developer", "tool"]
    tools: list[AnyTool]


# Images.


class ModerationDetails(Struct, kw_only=True):
    """Why moderation blocked an image."""

    categories: list[str]
    moderation_stage: Literal["input", "output", "unknown"]


class ImageError(Struct, kw_only=True):
    """Why an image generation failed. `type` is any string."""

    type: str
    code: Nullable[str] = UNSET
    message: str
    param: Nullable[str] = UNSET
    moderation_details: Nullable[ModerationDetails] = UNSET


class SvgUsage(Struct, kw_only=True):
    """The token usage of the model that drew an SVG."""

    model: str
    input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    total_tokens: int


class ImageGenerationCall(Item, tag="image_generation_call", kw_only=True):
    """An image generation; the API opens it without a result."""

    type: ClassVar[Literal["image_generation_call"]]
    prefix = "ig"
    tool_result = ("action", "background", "output_format", "quality", "result", "revised_prompt", "size", "svg_usage")
    plain_result = "result"

    status: Outbound[Literal["in_progress", "completed", "generating", "failed"]] = UNSET
    action: Nullable[Literal["generate", "edit", "auto"]] = UNSET
    background: Nullable[Literal["transparent", "opaque", "auto"]] = UNSET
    output_format: Nullable[Literal["png", "webp", "jpeg", "gif", "svg"]] = UNSET
    quality: Nullable[Literal["low", "medium", "high", "xhigh", "max", "auto"]] = UNSET
    result: Outbound[str] = None
    revised_prompt: Nullable[str] = UNSET
    size: Nullable[str] = UNSET
    error: Nullable[ImageError] = UNSET
    svg_usage: Nullable[SvgUsage] = UNSET

    @classmethod
    def result_text(cls, item: Mapping[str, object]) -> None:
        """Return None: the result is an image."""
        del item


# Patches.


class Operation(Struct, tag_field="type", kw_only=True):
    """A file operation of a patch."""

    path: str


class CreateFile(Operation, tag="create_file", kw_only=True):
    """Creates a file."""

    diff: str = ""


class UpdateFile(Operation, tag="update_file", kw_only=True):
    """Changes a file."""

    diff: str = ""


class DeleteFile(Operation, tag="delete_file", kw_only=True):
    """Deletes a file. The API has no `diff` here; Interlock sends one if the model writes it."""

    diff: Maybe[str] = UNSET


class ApplyPatchCall(Item, tag="apply_patch_call", kw_only=True):
    """A patch for the client to apply."""

    type: ClassVar[Literal["apply_patch_call"]]
    prefix = "apc"
    answer = "apply_patch_call_output"
    as_function_call = ("apply_patch", "operation")
    text_path = ("operation", "diff")
    generated_ids = CALL_ID

    status: Outbound[Literal["in_progress", "completed"]] = UNSET
    call_id: str
    operation: CreateFile | UpdateFile | DeleteFile
    caller: Nullable[AnyCaller] = UNSET
    created_by: Nullable[str] = UNSET


class ApplyPatchCallOutput(Item, tag="apply_patch_call_output", kw_only=True):
    """The result of a patch."""

    type: ClassVar[Literal["apply_patch_call_output"]]
    prefix = "apco"
    events = "none"
    as_function_output = "output"

    status: Outbound[Literal["completed", "failed"]] = UNSET
    call_id: str
    output: Nullable[str] = UNSET
    caller: Nullable[AnyCaller] = UNSET
    created_by: Nullable[str] = UNSET

    @classmethod
    def output_of(cls, item: Mapping[str, object]) -> object:
        """Return the output, or the status of a patch without one."""
        return item.get("output") or item.get("status")


# Shells.


class ShellAction(Struct, kw_only=True):
    """The commands of a shell call."""

    commands: list[str] = []
    max_output_length: Nullable[int] = None
    timeout_ms: Nullable[int] = None


class ShellCall(Item, tag="shell_call", kw_only=True):
    """Commands for a shell."""

    type: ClassVar[Literal["shell_call"]]
    prefix = "sh"
    answer = "shell_call_output"
    as_function_call = ("shell", "action")
    generated_ids = CALL_ID

    status: Outbound[Status] = UNSET
    call_id: str
    action: ShellAction = field(default_factory=ShellAction)
    environment: Nullable[LocalEnvironment | ContainerReference] = UNSET
    caller: Nullable[AnyCaller] = UNSET
    created_by: Nullable[str] = UNSET


class Exit(Struct, tag="exit", kw_only=True):
    """The command exited."""

    exit_code: int


class Timeout(Struct, tag="timeout", kw_only=True):
    """The command timed out."""


class ShellOutput(Struct, kw_only=True):
    """The output of a command."""

    stdout: str
    stderr: str
    outcome: Exit | Timeout
    created_by: Nullable[str] = UNSET


class ShellCallOutput(Item, tag="shell_call_output", kw_only=True):
    """The outputs of a shell call's commands."""

    type: ClassVar[Literal["shell_call_output"]]
    prefix = "sho"
    as_function_output = "output"
    empty_at_open = MappingProxyType({"output": []})
    tool_result = ()

    status: Outbound[Status] = UNSET
    call_id: str
    max_output_length: Nullable[int] = None
    output: list[ShellOutput] = []
    caller: Nullable[AnyCaller] = UNSET
    created_by: Nullable[str] = UNSET

    @classmethod
    def output_of(cls, item: Mapping[str, object]) -> str:
        """Return the outputs as JSON."""
        return dumps(item.get("output")).decode()


class LocalShellAction(Struct, tag_field="type", tag="exec", kw_only=True):
    """A command of the client's shell."""

    command: list[str] = []
    env: dict[str, str] = {}
    timeout_ms: Nullable[int] = UNSET
    user: Nullable[str] = UNSET
    working_directory: Nullable[str] = UNSET


class LocalShellCall(Item, tag="local_shell_call", kw_only=True):
    """A command for the client's shell."""

    type: ClassVar[Literal["local_shell_call"]]
    prefix = "lsh"
    events = "bracket"
    answer = "local_shell_call_output"
    as_function_call = ("local_shell", "action")
    generated_ids = CALL_ID
    known_at_done = ("action",)

    status: Outbound[Status] = UNSET
    call_id: str
    action: LocalShellAction = field(default_factory=LocalShellAction)

    @classmethod
    def arguments_of(cls, item: Mapping[str, object]) -> dict[str, object]:
        """Return the action without its type, of which there is one."""
        action = members(item.get("action"))
        return {name: value for name, value in action.items() if value is not None and name != "type"}


class LocalShellCallOutput(Item, tag="local_shell_call_output", kw_only=True):
    """The output of a command of the client's shell. Clients send `call_id`; no release of the `openai` package types it."""

    type: ClassVar[Literal["local_shell_call_output"]]
    prefix = "lsho"
    events = "none"
    as_function_output = "output"

    status: Nullable[Status] = UNSET
    call_id: Maybe[str] = UNSET
    output: str


# Computer use.


class SafetyCheck(Struct, kw_only=True):
    """A safety check that the user must acknowledge."""

    id: str
    code: Nullable[str] = UNSET
    message: Nullable[str] = UNSET


class Point(Struct, kw_only=True):
    """A point on the screen."""

    x: int
    y: int


class PointAction(Struct, kw_only=True):
    """An action at a point on the screen."""

    x: int
    y: int
    keys: Nullable[list[str]] = UNSET


class Click(PointAction, tag="click", kw_only=True):
    """A click."""

    button: Literal["left", "right", "wheel", "back", "forward"]


class DoubleClick(PointAction, tag="double_click", kw_only=True):
    """A double click."""


class Drag(Struct, tag="drag", kw_only=True):
    """A drag along a path."""

    path: list[Point]
    keys: Nullable[list[str]] = UNSET


class Keypress(Struct, tag="keypress", kw_only=True):
    """A key press, possibly of several keys."""

    keys: list[str]


class Move(PointAction, tag="move", kw_only=True):
    """A pointer movement."""


class Screenshot(Struct, tag="screenshot", kw_only=True):
    """A screenshot."""


class Scroll(PointAction, tag="scroll", kw_only=True):
    """A scroll."""

    scroll_x: int
    scroll_y: int


class TypeText(Struct, tag="type", kw_only=True):
    """Typed text."""

    text: str


class Wait(Struct, tag="wait", kw_only=True):
    """A pause."""


AnyAction: TypeAlias = Click | DoubleClick | Drag | Keypress | Move | Screenshot | Scroll | TypeText | Wait


class ComputerCall(Item, tag="computer_call", kw_only=True):
    """Actions on a computer."""

    type: ClassVar[Literal["computer_call"]]
    prefix = "cu"
    events = "bracket"
    answer = "computer_call_output"
    as_function_call = ("computer", "action")
    generated_ids = CALL_ID
    known_at_done = ("action", "actions", "pending_safety_checks")

    status: Outbound[Status] = UNSET
    call_id: str
    action: Maybe[AnyAction] = UNSET
    actions: Maybe[list[AnyAction]] = UNSET
    pending_safety_checks: list[SafetyCheck] = []


class ComputerCallOutput(Item, tag="computer_call_output", kw_only=True):
    """A screenshot after the actions."""

    type: ClassVar[Literal["computer_call_output"]]
    prefix = "cuo"
    events = "none"
    as_function_output = "output"

    status: Outbound[Literal["completed", "incomplete", "failed", "in_progress"]] = UNSET
    call_id: str
    output: ComputerScreenshot
    acknowledged_safety_checks: Nullable[list[SafetyCheck]] = UNSET
    created_by: Nullable[str] = UNSET

    @classmethod
    def output_of(cls, item: Mapping[str, object]) -> object:
        """Return the screenshot as an image, or its type if it has no URL."""
        url = members(item.get("output")).get("image_url")
        return [{"type": "input_image", "image_url": url}] if url else "[computer_screenshot]"


# Programs that call tools.


class Program(Item, tag="program", kw_only=True):
    """A program of the model that calls tools."""

    type: ClassVar[Literal["program"]]
    prefix = "prog"
    events = "bracket"
    as_function_call = ("program", "code")
    generated_ids = CALL_ID
    known_at_done = ("code",)

    call_id: str
    code: str = ""
    fingerprint: str


class ProgramOutput(Item, tag="program_output", kw_only=True):
    """The output of a program."""

    type: ClassVar[Literal["program_output"]]
    prefix = "progo"
    events = "none"
    as_function_output = "result"

    status: Outbound[Literal["completed", "incomplete"]] = UNSET
    call_id: str
    result: str


# The multi-agent beta.

AgentAction: TypeAlias = Literal["spawn_agent", "interrupt_agent", "list_agents", "send_message", "followup_task", "wait_agent"]


class AgentMessage(Item, tag="agent_message", kw_only=True):
    """A message between agents."""

    type: ClassVar[Literal["agent_message"]]
    prefix = "amsg"
    events = "none"

    author: str
    recipient: str
    content: list[ContentPart]


class MultiAgentCall(Item, tag="multi_agent_call", kw_only=True):
    """A call that manages other agents."""

    type: ClassVar[Literal["multi_agent_call"]]
    prefix = "mac"
    events = "none"
    generated_ids = CALL_ID
    as_function_call = ("", "arguments")

    call_id: str
    action: AgentAction
    arguments: str


class MultiAgentCallOutput(Item, tag="multi_agent_call_output", kw_only=True):
    """The output of a call that manages other agents."""

    type: ClassVar[Literal["multi_agent_call_output"]]
    prefix = "maco"
    events = "none"
    as_function_output = "output"

    call_id: str
    action: AgentAction
    output: list[OutputText]


# Items of requests only.


class CompactionTrigger(Item, tag="compaction_trigger", kw_only=True):
    """A request to compact the conversation at this item."""

    type: ClassVar[Literal["compaction_trigger"]]


class ItemReference(Struct, tag_field="type", tag="item_reference", kw_only=True):
    """A reference to a stored item."""

    id: str
    agent: Nullable[Agent] = UNSET


class NewReasoning(Struct, kw_only=True):
    """The reasoning effort from here on."""

    effort: Nullable[Effort] = UNSET


class NewText(Struct, kw_only=True):
    """The text format from here on."""

    format: TextFormat | JsonSchemaFormat


class ConfigurationUpdate(Item, tag="configuration_update", kw_only=True):
    """New settings in the middle of a conversation."""

    type: ClassVar[Literal["configuration_update"]]

    reasoning: Maybe[NewReasoning] = UNSET
    text: Maybe[NewText] = UNSET


# fmt: off
OutputItem: TypeAlias = (
    Reasoning | Message | Compaction | FunctionCall | CustomToolCall | FunctionCallOutput | CustomToolCallOutput | McpCall
    | McpListTools | McpApprovalRequest | McpApprovalResponse | CodeInterpreterCall | WebSearchCall | FileSearchCall
    | ToolSearchCall | ToolSearchOutput | AdditionalTools | ImageGenerationCall | ApplyPatchCall | ApplyPatchCallOutput
    | ShellCall | ShellCallOutput | LocalShellCall | LocalShellCallOutput | ComputerCall | ComputerCallOutput | Program
    | ProgramOutput | AgentMessage | MultiAgentCall | MultiAgentCallOutput
)
# fmt: on
"""An item of a response, as a union that type checkers narrow by `type`."""

if TYPE_CHECKING:
    InputItem: TypeAlias = Item | ItemReference
    """An item of a request's input."""
else:
    InputItem = Union[(InputMessage, *(kind for kind in kinds_of(Item) if kind is not Message), ItemReference)]

_OUTPUT_ITEMS: Final[tuple[type[Item], ...]] = get_args(OutputItem)
ITEMS: Final[Mapping[str, type[Item]]] = MappingProxyType({str(kind.__struct_config__.tag): kind for kind in _OUTPUT_ITEMS})
"""The classes of a response's items, by type."""
for _kind in kinds_of(Item):
    _kind.type = str(_kind.__struct_config__.tag)

ItemKind: TypeAlias = str
"""The `type` of an item: a key of `ITEMS`."""

FieldRole: TypeAlias = Literal["known_at_done", "tool_result"]
"""The class variables of an item that list the fields which a delta may bring after it has opened."""


@frozen
class TextEvents:
    """The two events of a text, `response.SUBJECT.delta` and `response.SUBJECT.done`."""

    kind: str
    """The kind of the item."""
    field: str
    """The field with the whole text: in the `done` event, and in its part or else in the item."""
    index: str = ""
    """The field with the number of the text in its item; empty for the only text of an item."""
    part: str = ""
    """The type of the part that holds the text; empty for a text that is not in a part."""

    @property
    def parts(self) -> str:
        """The field of the item with the parts."""
        return self.index.removesuffix("_index")


TEXTS: Final[Mapping[str, TextEvents]] = MappingProxyType(
    {
        "output_text": TextEvents("message", "text", "content_index", "output_text"),
        "refusal": TextEvents("message", "refusal", "content_index", "refusal"),
        "reasoning_summary_text": TextEvents("reasoning", "text", "summary_index", "summary_text"),
        "reasoning_text": TextEvents("reasoning", "text", "content_index", "reasoning_text"),
        "shell_call_command": TextEvents("shell_call", "command", "command_index"),
        **{
            "_".join((kind, *item.text_path)): TextEvents(kind, item.text_path[-1])
            for kind, item in ITEMS.items()
            if item.text_path
        },
    }
)
"""The texts that the model writes, by the subject of their events: of parts, and of items with a `text_path`."""


@cache
def _fields_of(kind: type[Item]) -> Mapping[str, structs.FieldInfo]:
    """Return the fields of a kind, by the API's name."""
    return {member.encode_name: member for member in structs.fields(kind)}


def unknown_fields(kind: type[Item], names: Iterable[str]) -> list[str]:
    """Return the names, except empty ones, that no field of a kind has, in order."""
    return sorted({*filter(None, names)} - _fields_of(kind).keys())


def misnamed_fields(kind: type[Item]) -> dict[str, list[str]]:
    """Return the fields that the class variables of a kind name, but the kind lacks, by class variable."""
    named: Mapping[str, Iterable[str]] = {
        "generated_ids": kind.generated_ids,
        "required_at_open": kind.required_at_open,
        "empty_at_open": kind.empty_at_open,
        "text_path": kind.text_path[:1],
        "known_at_done": kind.known_at_done,
        "tool_result": kind.tool_result or (),
        "plain_result": (kind.plain_result,),
        "no_result": kind.no_result,
        "encrypted_field": (kind.encrypted_field,),
        "as_function_call": (kind.as_function_call or ())[1:],
        "as_function_output": (kind.as_function_output,),
    }
    unknown = {fact: unknown_fields(kind, names) for fact, names in named.items()}
    return {fact: names for fact, names in unknown.items() if names}


@cache
def required_fields(kind: type[Item]) -> tuple[str, ...]:
    """Return the fields that an item must open with."""
    required = [name for name, member in _fields_of(kind).items() if member.required]
    return tuple(name for name in (*kind.required_at_open, *required) if name not in {*kind.generated_ids, *kind.empty_at_open})


def open_item(kind: ItemKind, fields: Mapping[str, object]) -> Item:
    """Return a new item with the known fields, by the API's names; its ids are not generated yet.

    Raises:
        ValueError: The kind or a field is unknown, or a field is missing or has a wrong type.
    """
    if kind not in ITEMS:
        raise ValueError(f"there is no item of kind {kind!r}")
    item = ITEMS[kind]
    known = _fields_of(item)
    if unknown := fields.keys() - known.keys() - {"type"}:
        names = ", ".join(sorted({*known, "type"}))
        raise ValueError(f"an item of kind {kind!r} has no field {', '.join(sorted(unknown))}; it has {names}")
    missing = [name for name in required_fields(item) if name not in fields]
    if missing:
        raise ValueError(f"an item of kind {kind!r} cannot open without {', '.join(missing)}")
    absent = {
        name: "" for name in item.generated_ids if fields.get(name) is None and (name not in fields or known[name].required)
    }
    try:
        return convert({**fields, **absent, **item.empty_at_open, "type": kind}, item)
    except ValidationError as error:
        raise ValueError(f"an item of kind {kind!r} cannot open with these fields: {error}") from None


@cache
def _kinds_with(name: str, role: FieldRole) -> tuple[type[Item], ...]:
    return tuple(kind for kind in ITEMS.values() if name in (getattr(kind, role) or ()))


def fields_of(kind: type[Item], role: FieldRole, fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields that a kind has in a role, as its types; a field of another kind is left out."""
    legal: dict[str, object] = {}
    for name, value in fields.items():
        if kind in _kinds_with(name, role):
            with suppress(ValidationError):
                legal[name] = convert(value, _fields_of(kind)[name].type)
    return legal


def check_fields(role: FieldRole, fields: Mapping[str, object]) -> None:
    """Check that some kind of item has each field in a role.

    Raises:
        ValueError: No kind has a field of this name, or none has one with this value.
    """
    for name, value in fields.items():
        kinds = _kinds_with(name, role)
        if not kinds:
            raise ValueError(f"no kind of item has a field {name!r} here")
        if not any(fields_of(kind, role, {name: value}) for kind in kinds):
            raise ValueError(f"{name!r} of {', '.join(kind.type for kind in kinds)} cannot be {value!r}")


def example(kind: ItemKind) -> dict[str, object]:
    """Return example values of the fields that an item must open with; a free-form string has the field's name as its value."""
    return examples(kind, required_fields(ITEMS[kind]))[0]


def examples(kind: ItemKind, names: Iterable[str]) -> list[dict[str, object]]:
    """Return example values of an item's fields: the simplest ones, and those with another value of one field."""
    fields = _fields_of(ITEMS[kind])
    values = {name: _examples(name, fields[name].type) for name in names}
    simplest = {name: options[0] for name, options in values.items()}
    return [simplest, *({**simplest, name: value} for name, options in values.items() for value in options[1:])]


def _examples(name: str, type_: Hint) -> list[object]:
    return [value for arm in arms_of(type_) if arm.kind is not NoneType for value in _arm_examples(name, arm)]


def _arm_examples(name: str, arm: Arm) -> Sequence[object]:
    if arm.kind is Literal:
        return sorted(arm.args)
    if arm.kind is list:
        return [[]] if len([*arms_of(arm.args[0])]) > 1 else [[], _examples(name, arm.args[0])[:1]]
    if issubclass(arm.kind, Struct):
        required = [member for member in structs.fields(arm.kind) if member.required]
        values = {member.encode_name: _examples(member.encode_name, member.type)[0] for member in required}
        return [to_builtins(convert({"type": arm.kind.__struct_config__.tag, **values}, arm.kind))]
    return [{str: name, bool: True, int: 1, float: 1}.get(arm.kind, {})]


@cache
def literals_of(kind: type[Struct], name: str) -> tuple[str, ...]:
    """Return the literals of a field's type; empty if there is no such field."""
    hints = [member.type for member in structs.fields(kind) if member.name == name]
    return tuple(choice for hint in hints for arm in arms_of(hint) if arm.kind is Literal for choice in arm.args)


def result_fields(kind: ItemKind, output: str) -> dict[str, object]:
    """Return the fields of an item that hold the plain-text result of its tool.

    Args:
        kind: The kind of the call.
        output: The text that the tool returned.

    Returns:
        The fields, for the delta `interlock.fsm.Succeed`; empty for a kind whose item cannot hold the result as plain text. The
        results of a web search go only to the model, and `action` has its sources.
    """
    return ITEMS[kind].result_fields(output)


NOT_RUN: Final = "The call was not executed."
"""The error of a hosted call whose tool never started."""

NOT_UNDERSTOOD: Final = "The call was not executed: its arguments make no sense."
"""The error of a hosted call with invalid arguments."""
