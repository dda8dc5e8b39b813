"""Every kind of item, with what belongs to a kind and no other field says: how its ids begin and what may be known late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias, Union, cast, get_args, get_type_hints

from msgspec import UNSET, Struct, ValidationError, convert, field, inspect, structs

from interlock.events.parts import (
    ComputerScreenshot,
    Content,
    ContentPart,
    Json,
    Maybe,
    Nullable,
    Number,
    Outbound,
    OutputText,
    ReasoningText,
    Refusal,
    SummaryText,
    kinds_of,
)
from interlock.events.tools import AnyTool, ContainerReference, Effort, JsonSchemaFormat, LocalEnvironment, TextFormat

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
CALL_ID: Final[Mapping[str, str]] = MappingProxyType({"call_id": "call"})

Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]


class Agent(Struct, kw_only=True):
    """The agent that an item or an event is of, in the beta of several agents."""

    agent_name: str


class Item(Struct, tag_field="type", kw_only=True, gc=False):
    """An item of a response or of a request's input.

    `prefix` is what the ids of its kind begin with, `made` the fields whose id is made where none is known, with its prefix,
    `late` the fields that may be known only when the item is closed, and `opaque` the one of them that nobody can read and that
    counts as content all the same.
    """

    prefix: ClassVar[str] = ""
    made: ClassVar[Mapping[str, str]] = NOTHING
    late: ClassVar[tuple[str, ...]] = ()
    opaque: ClassVar[str] = ""

    id: Outbound[str] = UNSET
    agent: Nullable[Agent] = UNSET


# What the model writes.


class Reasoning(Item, tag="reasoning", kw_only=True):
    """What the model thought, in clear, as a summary or encrypted."""

    prefix = "rs"
    late = ("encrypted_content",)
    opaque = "encrypted_content"

    encrypted_content: Nullable[str] = UNSET
    status: Maybe[Status] = UNSET
    summary: Outbound[list[SummaryText]] = []
    content: Maybe[list[ReasoningText]] = UNSET


class Message(Item, tag="message", kw_only=True):
    """The assistant's message in a response."""

    prefix = "msg"

    role: Literal["assistant"] = "assistant"
    phase: Nullable[Literal["commentary", "final_answer"]] = UNSET
    status: Outbound[Status] = UNSET
    content: list[OutputText | Refusal] = []


class InputMessage(Item, tag="message", kw_only=True):
    """A message of anybody's in a request."""

    prefix = "msg"

    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    phase: Nullable[Literal["commentary", "final_answer"]] = UNSET
    status: Maybe[str] = UNSET


class Compaction(Item, tag="compaction", kw_only=True):
    """What stands for a conversation that was compacted."""

    prefix = "cmp"

    encrypted_content: str
    created_by: Nullable[str] = UNSET


# Who called, of a call that a program made.


class Caller(Struct, tag_field="type", kw_only=True):
    """Who made a call."""


class DirectCaller(Caller, tag="direct", kw_only=True):
    """The model."""


class ProgramCaller(Caller, tag="program", kw_only=True):
    """A program that the model wrote."""

    caller_id: str


AnyCaller: TypeAlias = DirectCaller | ProgramCaller


class ClientCall(Item, kw_only=True):
    """A call of a tool that is the client's."""

    prefix = "fc"
    made = CALL_ID

    status: Outbound[Status] = UNSET
    call_id: str
    name: str
    namespace: Maybe[str] = UNSET
    caller: Nullable[AnyCaller] = UNSET
    is_async: Maybe[bool] = field(default=UNSET, name="async")
    created_by: Nullable[str] = UNSET


class FunctionCall(ClientCall, tag="function_call", kw_only=True):
    """A call of a function."""

    arguments: str


class CustomToolCall(ClientCall, tag="custom_tool_call", kw_only=True):
    """A call of a tool that takes text. The `openai` package types no status of it in a stream; the API sends it."""

    prefix = "ctc"

    status: Maybe[Status] = UNSET
    input: str


class FunctionCallOutput(Item, tag="function_call_output", kw_only=True):
    """What a function returned."""

    prefix = "fco"

    status: Outbound[Status] = UNSET
    call_id: Nullable[str] = UNSET
    output: Content
    name: Nullable[str] = UNSET
    namespace: Nullable[str] = UNSET
    caller: Nullable[AnyCaller] = UNSET
    created_by: Nullable[str] = UNSET


class CustomToolCallOutput(Item, tag="custom_tool_call_output", kw_only=True):
    """What a custom tool returned."""

    prefix = "ctco"

    status: Outbound[Status] = UNSET
    call_id: str
    output: Content
    caller: Nullable[AnyCaller] = UNSET
    created_by: Nullable[str] = UNSET


# Tools of MCP servers.


class McpError(Struct, tag_field="type", kw_only=True):
    """What went wrong with a call of an MCP server's tool."""


class McpProtocolError(McpError, tag="mcp_protocol_error", kw_only=True):
    """The server answered with an error."""

    code: int
    message: str


class McpToolExecutionError(McpError, tag="mcp_tool_execution_error", kw_only=True):
    """The tool failed."""

    content: Json


class McpHttpError(McpError, tag="http_error", kw_only=True):
    """The server was not reached."""

    code: int
    message: str


class McpCall(Item, tag="mcp_call", kw_only=True):
    """A call of an MCP server's tool. Its error is a text in older releases."""

    prefix = "mcp"

    status: Outbound[Literal["in_progress", "completed", "incomplete", "calling", "failed"]] = UNSET
    server_label: str
    name: str
    arguments: str
    approval_request_id: Nullable[str] = UNSET
    output: Nullable[str] = UNSET
    error: Nullable[McpProtocolError | McpToolExecutionError | McpHttpError | str] = UNSET


class McpTool(Struct, kw_only=True):
    """A tool of an MCP server."""

    name: str
    description: Nullable[str] = UNSET
    input_schema: Json
    annotations: Nullable[Json] = UNSET


class McpListTools(Item, tag="mcp_list_tools", kw_only=True):
    """The tools of an MCP server."""

    prefix = "mcpl"

    server_label: str
    tools: list[McpTool] = []
    error: Nullable[str] = UNSET


class McpApprovalRequest(Item, tag="mcp_approval_request", kw_only=True):
    """The question whether a tool may be called."""

    prefix = "mcpr"

    server_label: str
    name: str
    arguments: str


class McpApprovalResponse(Item, tag="mcp_approval_response", kw_only=True):
    """The answer to the question whether a tool may be called."""

    prefix = "mcpra"

    approval_request_id: str
    approve: bool
    reason: Nullable[str] = UNSET


# The code interpreter.


class CodeOutput(Struct, tag_field="type", kw_only=True):
    """An output of a run of code."""


class Logs(CodeOutput, tag="logs", kw_only=True):
    """What the code printed."""

    logs: str


class OutputImage(CodeOutput, tag="image", kw_only=True):
    """An image that it made."""

    url: str


class CodeInterpreterCall(Item, tag="code_interpreter_call", kw_only=True):
    """A run of Python."""

    prefix = "ci"
    made = MappingProxyType({"container_id": "cntr"})

    status: Outbound[Literal["in_progress", "completed", "incomplete", "interpreting", "failed"]] = UNSET
    container_id: str
    code: str | None = ""
    outputs: Nullable[list[Logs | OutputImage]] = None


# Searches.


class Source(Struct, tag_field="type", kw_only=True):
    """What a search of the web read."""


class UrlSource(Source, tag="url", kw_only=True):
    """A page of the web."""

    url: str


class ApiSource(Source, tag="api", kw_only=True):
    """A service such as that of the weather, which the API sends and no release of the `openai` package types."""

    name: str


class WebAction(Struct, tag_field="type", kw_only=True):
    """A step of a search of the web."""


class Search(WebAction, tag="search", kw_only=True):
    """A search."""

    query: Maybe[str] = UNSET
    queries: Maybe[list[str]] = UNSET
    sources: Maybe[list[UrlSource | ApiSource]] = UNSET


class OpenPage(WebAction, tag="open_page", kw_only=True):
    """A page that is read."""

    url: Nullable[str] = UNSET


class FindInPage(WebAction, tag="find_in_page", kw_only=True):
    """A pattern that is looked for in a page."""

    url: str
    pattern: str


class WebSearchCall(Item, tag="web_search_call", kw_only=True):
    """A search of the web, which the API opens without an action. openai 2.25 does not know the status `incomplete`."""

    prefix = "ws"
    late = ("action",)

    status: Outbound[Literal["in_progress", "searching", "completed", "failed", "incomplete"]] = UNSET
    action: Outbound[Search | OpenPage | FindInPage] = UNSET


class FileSearchResult(Struct, kw_only=True):
    """A passage that a search of files returned."""

    attributes: Nullable[dict[str, str | Number | bool]] = UNSET
    file_id: Maybe[str] = UNSET
    filename: Maybe[str] = UNSET
    score: Maybe[Number] = UNSET
    text: Maybe[str] = UNSET


class FileSearchCall(Item, tag="file_search_call", kw_only=True):
    """A search of files."""

    prefix = "fs"

    status: Outbound[Literal["in_progress", "searching", "completed", "incomplete", "failed"]] = UNSET
    queries: list[str]
    results: Nullable[list[FileSearchResult]] = None


class ToolSearchCall(Item, tag="tool_search_call", kw_only=True):
    """A search for tools. One that the server runs has no `call_id`."""

    prefix = "tsc"
    made = CALL_ID
    late = ("arguments",)

    status: Outbound[Status] = UNSET
    call_id: Nullable[str] = None
    execution: Outbound[Literal["server", "client"]] = UNSET
    arguments: Json = {}
    created_by: Nullable[str] = UNSET


class ToolSearchOutput(Item, tag="tool_search_output", kw_only=True):
    """The tools that a search found."""

    prefix = "tso"

    status: Outbound[Status] = UNSET
    call_id: Nullable[str] = UNSET
    execution: Outbound[Literal["server", "client"]] = UNSET
    tools: list[AnyTool]
    created_by: Nullable[str] = UNSET


class AdditionalTools(Item, tag="additional_tools", kw_only=True):
    """Tools that are there from this item on."""

    prefix = "at"

    role: Literal["unknown", "user", "assistant", "system", "critic", "discriminator", "developer", "tool"]
    tools: list[AnyTool]


# Images.


class ModerationDetails(Struct, kw_only=True):
    """Why an image was refused."""

    categories: list[str]
    moderation_stage: Literal["input", "output", "unknown"]


class ImageError(Struct, kw_only=True):
    """Why there is no image. `type` is any text."""

    type: str
    code: Nullable[str] = UNSET
    message: str
    param: Nullable[str] = UNSET
    moderation_details: Nullable[ModerationDetails] = UNSET


class SvgUsage(Struct, kw_only=True):
    """The tokens of a model that drew."""

    model: str
    input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    total_tokens: int


class ImageGenerationCall(Item, tag="image_generation_call", kw_only=True):
    """An image that is made, which the API opens without a result."""

    prefix = "ig"

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


# Patches.


class Operation(Struct, tag_field="type", kw_only=True):
    """What a patch does to a file."""

    path: str


class CreateFile(Operation, tag="create_file", kw_only=True):
    """A file that is created."""

    diff: str = ""


class UpdateFile(Operation, tag="update_file", kw_only=True):
    """A file that is changed."""

    diff: str = ""


class DeleteFile(Operation, tag="delete_file", kw_only=True):
    """A file that is deleted. The API has no `diff` here; a model may write one all the same, and its text is shown (rule R9)."""

    diff: Maybe[str] = UNSET


class ApplyPatchCall(Item, tag="apply_patch_call", kw_only=True):
    """A patch that the client applies."""

    prefix = "apc"
    made = CALL_ID

    status: Outbound[Literal["in_progress", "completed"]] = UNSET
    call_id: str
    operation: CreateFile | UpdateFile | DeleteFile
    caller: Nullable[AnyCaller] = UNSET
    created_by: Nullable[str] = UNSET


class ApplyPatchCallOutput(Item, tag="apply_patch_call_output", kw_only=True):
    """Whether a patch was applied."""

    prefix = "apco"

    status: Outbound[Literal["completed", "failed"]] = UNSET
    call_id: str
    output: Nullable[str] = UNSET
    caller: Nullable[AnyCaller] = UNSET
    created_by: Nullable[str] = UNSET


# Shells.


class ShellAction(Struct, kw_only=True):
    """The commands of a shell."""

    commands: list[str] = []
    max_output_length: Nullable[int] = None
    timeout_ms: Nullable[int] = None


class ShellCall(Item, tag="shell_call", kw_only=True):
    """Commands that a shell runs."""

    prefix = "sh"
    made = CALL_ID

    status: Outbound[Status] = UNSET
    call_id: str
    action: ShellAction = field(default_factory=ShellAction)
    environment: Nullable[LocalEnvironment | ContainerReference] = UNSET
    caller: Nullable[AnyCaller] = UNSET
    created_by: Nullable[str] = UNSET


class Outcome(Struct, tag_field="type", kw_only=True):
    """How a command ended."""


class Exit(Outcome, tag="exit", kw_only=True):
    """By itself."""

    exit_code: int


class Timeout(Outcome, tag="timeout", kw_only=True):
    """It took too long."""


class ShellOutput(Struct, kw_only=True):
    """The output of a command."""

    stdout: str
    stderr: str
    outcome: Exit | Timeout
    created_by: Nullable[str] = UNSET


class ShellCallOutput(Item, tag="shell_call_output", kw_only=True):
    """The outputs of the commands of a shell."""

    prefix = "sho"

    status: Outbound[Status] = UNSET
    call_id: str
    max_output_length: Nullable[int] = None
    output: list[ShellOutput] = []
    caller: Nullable[AnyCaller] = UNSET
    created_by: Nullable[str] = UNSET


class LocalShellAction(Struct, tag_field="type", tag="exec", kw_only=True):
    """A command of the client's shell."""

    command: list[str] = []
    env: dict[str, str] = {}
    timeout_ms: Nullable[int] = UNSET
    user: Nullable[str] = UNSET
    working_directory: Nullable[str] = UNSET


class LocalShellCall(Item, tag="local_shell_call", kw_only=True):
    """A command that the client's shell runs."""

    prefix = "lsh"
    made = CALL_ID
    late = ("action",)

    status: Outbound[Status] = UNSET
    call_id: str
    action: LocalShellAction = field(default_factory=LocalShellAction)


class LocalShellCallOutput(Item, tag="local_shell_call_output", kw_only=True):
    """What a command of the client's shell printed. No release of the `openai` package types `call_id`; clients send it."""

    prefix = "lsho"

    status: Nullable[Status] = UNSET
    call_id: Maybe[str] = UNSET
    output: str


# The use of a computer.


class SafetyCheck(Struct, kw_only=True):
    """What a user has to agree to."""

    id: str
    code: Nullable[str] = UNSET
    message: Nullable[str] = UNSET


class Action(Struct, tag_field="type", kw_only=True):
    """What the model does with a computer."""


class Point(Struct, kw_only=True):
    """A place on the screen."""

    x: int
    y: int


class PointAction(Action, kw_only=True):
    """An action at a place on the screen."""

    x: int
    y: int
    keys: Nullable[list[str]] = UNSET


class Click(PointAction, tag="click", kw_only=True):
    """A click."""

    button: Literal["left", "right", "wheel", "back", "forward"]


class DoubleClick(PointAction, tag="double_click", kw_only=True):
    """Two clicks."""


class Drag(Action, tag="drag", kw_only=True):
    """A way with the button down."""

    path: list[Point]
    keys: Nullable[list[str]] = UNSET


class Keypress(Action, tag="keypress", kw_only=True):
    """Keys, pressed together."""

    keys: list[str]


class Move(PointAction, tag="move", kw_only=True):
    """A move of the pointer."""


class Screenshot(Action, tag="screenshot", kw_only=True):
    """A look at the screen."""


class Scroll(PointAction, tag="scroll", kw_only=True):
    """A turn of the wheel."""

    scroll_x: int
    scroll_y: int


class TypeText(Action, tag="type", kw_only=True):
    """Text that is typed."""

    text: str


class Wait(Action, tag="wait", kw_only=True):
    """A pause."""


AnyAction: TypeAlias = Click | DoubleClick | Drag | Keypress | Move | Screenshot | Scroll | TypeText | Wait


class ComputerCall(Item, tag="computer_call", kw_only=True):
    """Actions at a computer."""

    prefix = "cu"
    made = CALL_ID
    late = ("action", "actions", "pending_safety_checks")

    status: Outbound[Status] = UNSET
    call_id: str
    action: Maybe[AnyAction] = UNSET
    actions: Maybe[list[AnyAction]] = UNSET
    pending_safety_checks: list[SafetyCheck] = []


class ComputerCallOutput(Item, tag="computer_call_output", kw_only=True):
    """The screen after actions at a computer."""

    prefix = "cuo"

    status: Outbound[Literal["completed", "incomplete", "failed", "in_progress"]] = UNSET
    call_id: str
    output: ComputerScreenshot
    acknowledged_safety_checks: Nullable[list[SafetyCheck]] = UNSET
    created_by: Nullable[str] = UNSET


# Programs that call tools.


class Program(Item, tag="program", kw_only=True):
    """A program of the model's that calls tools."""

    prefix = "prog"
    made = CALL_ID
    late = ("code",)

    call_id: str
    code: str = ""
    fingerprint: str


class ProgramOutput(Item, tag="program_output", kw_only=True):
    """What a program returned."""

    prefix = "progo"

    status: Outbound[Literal["completed", "incomplete"]] = UNSET
    call_id: str
    result: str


# The beta of several agents.

AgentAction: TypeAlias = Literal["spawn_agent", "interrupt_agent", "list_agents", "send_message", "followup_task", "wait_agent"]


class AgentMessage(Item, tag="agent_message", kw_only=True):
    """What one agent says to another."""

    prefix = "amsg"

    author: str
    recipient: str
    content: list[ContentPart]


class MultiAgentCall(Item, tag="multi_agent_call", kw_only=True):
    """What an agent does with others."""

    prefix = "mac"

    made = CALL_ID

    call_id: str
    action: AgentAction
    arguments: str


class MultiAgentCallOutput(Item, tag="multi_agent_call_output", kw_only=True):
    """What came of a call of other agents."""

    prefix = "maco"

    call_id: str
    action: AgentAction
    output: list[OutputText]


# What only a request has.


class CompactionTrigger(Item, tag="compaction_trigger", kw_only=True):
    """The conversation is to be compacted here."""


class ItemReference(Struct, tag_field="type", tag="item_reference", kw_only=True):
    """An item that the server has, by its id."""

    id: str
    agent: Nullable[Agent] = UNSET


class NewReasoning(Struct, kw_only=True):
    """How much the model thinks from here on."""

    effort: Nullable[Effort] = UNSET


class NewText(Struct, kw_only=True):
    """The form of the answer from here on."""

    format: TextFormat | JsonSchemaFormat


class ConfigurationUpdate(Item, tag="configuration_update", kw_only=True):
    """Settings that change in the midst of a conversation."""

    reasoning: Maybe[NewReasoning] = UNSET
    text: Maybe[NewText] = UNSET


if TYPE_CHECKING:
    OutputItem: TypeAlias = Item
    """An item of a response; a request may send back any but a `Message`."""
    InputItem: TypeAlias = Item | ItemReference
    """An item of a request's input."""
else:
    _OF_REQUESTS = (InputMessage, CompactionTrigger, ConfigurationUpdate)
    OutputItem = Union[tuple(kind for kind in kinds_of(Item) if kind not in _OF_REQUESTS)]  # noqa: UP007 - as many as there are
    InputItem = Union[(InputMessage, *(kind for kind in kinds_of(Item) if kind is not Message), ItemReference)]

ITEMS: Final[Mapping[str, type[Item]]] = MappingProxyType(
    {str(kind.__struct_config__.tag): kind for kind in cast("tuple[type[Item], ...]", get_args(OutputItem))}
)
"""Every kind of item of a response, by its type."""

ItemKind: TypeAlias = str
"""The type of an item, by the API's name: a key of `ITEMS`."""

_WRITTEN: Final[Mapping[str, Mapping[str, object]]] = MappingProxyType(
    {
        "reasoning": {"summary": [], "content": []},
        "message": {"content": []},
        "function_call": {"arguments": ""},
        "custom_tool_call": {"input": ""},
        "mcp_call": {"arguments": ""},
        "code_interpreter_call": {"code": ""},
        "shell_call_output": {"output": []},
        "compaction": {"encrypted_content": ""},
    }
)
"""The fields that are written while an item is open, as they are when it begins."""
_OPENS_WITH: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"web_search_call": ("action",), "tool_search_call": ("execution",), "tool_search_output": ("execution", "call_id")}
)
"""What an item of ours begins with, beside the required fields."""


@cache
def _required(kind: type[Item]) -> tuple[str, ...]:
    """Return the fields that an item of a kind cannot begin without."""
    tag = str(kind.__struct_config__.tag)
    required = [field.encode_name for field in structs.fields(kind) if field.required]
    known = {*kind.made, *_WRITTEN.get(tag, {})}
    return tuple(name for name in (*_OPENS_WITH.get(tag, ()), *required) if name not in known)


def opened(kind: ItemKind, fields: Mapping[str, object]) -> Item:
    """Return an item as it begins, but for its ids.

    Args:
        kind: Its type.
        fields: What is known of it, by the API's names. Fields that its kind does not have are left out.

    Raises:
        ValueError: There is no such kind, or a field is missing or of a wrong type.
    """
    if kind not in ITEMS:
        raise ValueError(f"there is no item of kind {kind!r}")
    item = ITEMS[kind]
    missing = [name for name in _required(item) if name not in fields]
    if missing:
        raise ValueError(f"a {kind} cannot open without {', '.join(missing)}")
    made = {name: "" for name in item.made if fields.get(name) is None and (name not in fields or _is_required(item, name))}
    try:
        return convert({**fields, **made, **_WRITTEN.get(kind, {}), "type": kind}, item)
    except ValidationError as error:
        raise ValueError(f"a {kind} cannot open so: {error}") from None


def example(kind: ItemKind) -> dict[str, object]:
    """Return what an item of a kind may open with: the fields that it cannot begin without, each text the name of its field."""
    item = ITEMS[kind]
    types = {field.encode_name: field.type for field in cast("inspect.StructType", inspect.type_info(item)).fields}
    return {name: _example(name, types[name]) for name in _required(item)}


def _example(name: str, type_: inspect.Type) -> object:  # noqa: PLR0911 - one case for each sort of type
    match type_:
        case inspect.Metadata(inner):
            return _example(name, inner)
        case inspect.UnionType(arms):
            return _example(name, next(arm for arm in arms if not isinstance(arm, inspect.NoneType)))
        case inspect.LiteralType(values):
            return values[0]
        case inspect.ListType():
            return []
        case inspect.StructType():
            tag = {type_.tag_field: type_.tag} if type_.tag_field else {}
            return tag | {field.encode_name: _example(field.encode_name, field.type) for field in type_.fields if field.required}
        case inspect.StrType():
            return name
        case inspect.BoolType():
            return True
        case inspect.IntType() | inspect.FloatType():
            return 1
        case _:
            return {}


def _is_required(kind: type[Item], name: str) -> bool:
    return any(field.required and field.encode_name == name for field in structs.fields(kind))


@cache
def literals_of(kind: type[Struct], name: str) -> tuple[str, ...]:
    """Return the texts that a field can have; none if the type has no such field."""
    hints = get_type_hints(kind)
    return tuple(_literals(hints[name])) if name in hints else ()


@cache
def statuses_of(kind: type[Item]) -> tuple[str, ...]:
    """Return the values that the status of an item can have; none for a kind without the field."""
    return literals_of(kind, "status")


def _literals(annotation: object) -> Iterator[str]:
    """Yield the texts of the literals in a type."""
    for inner in get_args(annotation):
        if isinstance(inner, str):
            yield inner
        else:
            yield from _literals(inner)


def result_fields(kind: ItemKind, output: str) -> dict[str, object]:
    """Return the fields in which an item of a kind carries the plain text of its tool's result.

    Args:
        kind: The kind of the call.
        output: What the tool returned, as text.

    Returns:
        The fields for `Succeed`; empty for a kind whose item shows nothing of it (a web search: its results go to the
        model, its sources into `action`).
    """
    match kind:
        case "mcp_call":
            return {"output": output}
        case "code_interpreter_call":
            return {"outputs": [{"type": "logs", "logs": output}]}
        case "image_generation_call":
            return {"result": output}
        case _:
            return {}


NOT_RUN: Final = "The call was not executed."
"""The error of a hosted call whose tool never started."""

NOT_UNDERSTOOD: Final = "The call was not executed: its arguments make no sense."
"""The error of one that was rejected."""


def failure_fields(kind: ItemKind, message: str) -> dict[str, object]:
    """Return where an item of a kind carries what went wrong with its tool; empty for a kind that has no such field."""
    match kind:
        case "mcp_call":
            content = [{"type": "text", "text": message}]
            return {"error": {"type": "mcp_tool_execution_error", "content": content}}
        case "mcp_list_tools":
            return {"error": message}
        case "code_interpreter_call":
            return {"outputs": [{"type": "logs", "logs": message}]}
        case _:
            return {}
