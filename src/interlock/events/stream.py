"""Every event of a stream, and where in a bracket it may stand. Which follow one another is said by the lifecycles."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import ClassVar, Final, Literal, TypeAlias, get_args

from msgspec import UNSET, Struct

from interlock.events.items import Agent, FunctionCallOutput, InputItem, InputMessage, OutputItem, ShellOutput
from interlock.events.parts import AnyAnnotation, Logprob, Maybe, Nullable, OutputPart, SummaryText, kinds_of
from interlock.events.response_object import CreateResponse, RequestError, Response


class Place(Enum):
    """Where a stream stands between two events: outside of an item, in it, in a part, or in a part whose text is done.

    For the response's own events the bracket is the response: `created` opens it and a terminal event closes it.
    """

    OUTSIDE = "outside"
    ITEM = "item"
    PART = "part"
    PART_DONE = "part_done"
    AFTER = "after"


class StreamEvent(Struct, tag_field="type", kw_only=True, gc=False):
    """An event; `before` and `after` are where the stream stands then."""

    before: ClassVar[Place] = Place.ITEM
    after: ClassVar[Place] = Place.ITEM

    sequence_number: int = 0

    @property
    def type(self) -> str:
        """Its wire name."""
        return wire_name(self.__class__)

    stream_id: Maybe[str] = UNSET  # of the lane, on a WebSocket
    agent: Nullable[Agent] = UNSET


class ResponseEvent(StreamEvent):
    """An event of the response."""

    response: Response


class ItemBracket(StreamEvent):
    """An event that begins or ends an item."""

    output_index: int
    item: OutputItem


class ItemEvent(StreamEvent):
    """An event of an item."""

    item_id: str
    output_index: int


class PartEvent(ItemEvent):
    """An event of a part of an item's content."""

    content_index: int


class SummaryEvent(ItemEvent):
    """An event of a part of a reasoning's summary."""

    summary_index: int


class CommandEvent(StreamEvent):
    """An event of a command of a shell."""

    output_index: int
    command_index: int


class CommandOutputEvent(ItemEvent):
    """An event of the output of a command."""

    command_index: int


# The response.


class Created(ResponseEvent, tag="response.created"):
    """A response begins."""

    before = Place.OUTSIDE


class Queued(ResponseEvent, tag="response.queued"):
    """It waits for its turn in the background."""


class InProgress(ResponseEvent, tag="response.in_progress"):
    """It runs."""


class Completed(ResponseEvent, tag="response.completed"):
    """It ended."""

    after = Place.AFTER


class Incomplete(ResponseEvent, tag="response.incomplete"):
    """It ended before the model did."""

    after = Place.AFTER


class Failed(ResponseEvent, tag="response.failed"):
    """It ended with an error."""

    after = Place.AFTER


class ErrorEvent(StreamEvent, tag="error"):
    """Something went wrong."""

    message: str
    code: Nullable[str] = None
    param: Nullable[str] = None


# The bracket of every item.


class ItemAdded(ItemBracket, tag="response.output_item.added"):
    """An item begins."""

    before = Place.OUTSIDE


class ItemDone(ItemBracket, tag="response.output_item.done"):
    """It ends."""

    after = Place.AFTER


# Parts and their texts.


class PartAdded(PartEvent, tag="response.content_part.added"):
    """A part begins."""

    after = Place.PART

    part: OutputPart


class PartDone(PartEvent, tag="response.content_part.done"):
    """It ends."""

    before = Place.PART_DONE

    part: OutputPart


class TextDelta(PartEvent, tag="response.output_text.delta"):
    """More of an answer's text."""

    before = after = Place.PART

    delta: str
    logprobs: list[Logprob] = []
    obfuscation: Maybe[str] = UNSET


class TextDone(PartEvent, tag="response.output_text.done"):
    """The whole of it."""

    before, after = Place.PART, Place.PART_DONE

    text: str
    logprobs: list[Logprob] = []


class RefusalDelta(PartEvent, tag="response.refusal.delta"):
    """More of a refusal."""

    before = after = Place.PART

    delta: str
    obfuscation: Maybe[str] = UNSET


class RefusalDone(PartEvent, tag="response.refusal.done"):
    """The whole of it."""

    before, after = Place.PART, Place.PART_DONE

    refusal: str


class AnnotationAdded(PartEvent, tag="response.output_text.annotation.added"):
    """A text refers to something."""

    before = after = Place.PART

    annotation_index: int
    annotation: AnyAnnotation


class ReasoningDelta(PartEvent, tag="response.reasoning_text.delta"):
    """More of what the model thinks."""

    before = after = Place.PART

    delta: str
    obfuscation: Maybe[str] = UNSET


class ReasoningDone(PartEvent, tag="response.reasoning_text.done"):
    """The whole of it."""

    before, after = Place.PART, Place.PART_DONE

    text: str


class SummaryPartAdded(SummaryEvent, tag="response.reasoning_summary_part.added"):
    """A part of a summary begins."""

    after = Place.PART

    part: SummaryText


class SummaryPartDone(SummaryEvent, tag="response.reasoning_summary_part.done"):
    """It ends."""

    before = Place.PART_DONE

    part: SummaryText
    status: Maybe[Literal["incomplete"]] = UNSET


class SummaryDelta(SummaryEvent, tag="response.reasoning_summary_text.delta"):
    """More of a summary."""

    before = after = Place.PART

    delta: str
    obfuscation: Maybe[str] = UNSET


class SummaryDone(SummaryEvent, tag="response.reasoning_summary_text.done"):
    """The whole of it."""

    before, after = Place.PART, Place.PART_DONE

    text: str


# Texts that are a field of their item.


class ArgumentsDelta(ItemEvent, tag="response.function_call_arguments.delta"):
    """More of a function's arguments."""

    delta: str
    obfuscation: Maybe[str] = UNSET


class ArgumentsDone(ItemEvent, tag="response.function_call_arguments.done"):
    """All of them. openai 2.25 requires `name`, and later ones do not know it."""

    arguments: str
    name: Maybe[str] = UNSET


class CustomInputDelta(ItemEvent, tag="response.custom_tool_call_input.delta"):
    """More of a custom tool's input."""

    delta: str
    obfuscation: Maybe[str] = UNSET


class CustomInputDone(ItemEvent, tag="response.custom_tool_call_input.done"):
    """The whole of it."""

    input: str


class McpArgumentsDelta(ItemEvent, tag="response.mcp_call_arguments.delta"):
    """More of an MCP call's arguments."""

    delta: str
    obfuscation: Maybe[str] = UNSET


class McpArgumentsDone(ItemEvent, tag="response.mcp_call_arguments.done"):
    """All of them."""

    arguments: str


class CodeDelta(ItemEvent, tag="response.code_interpreter_call_code.delta"):
    """More of the code."""

    delta: str
    obfuscation: Maybe[str] = UNSET


class CodeDone(ItemEvent, tag="response.code_interpreter_call_code.done"):
    """The whole of it."""

    code: str


# The progress of hosted calls.


class McpInProgress(ItemEvent, tag="response.mcp_call.in_progress"):
    """An MCP server's tool is called."""


class McpCompleted(ItemEvent, tag="response.mcp_call.completed"):
    """It returned."""


class McpFailed(ItemEvent, tag="response.mcp_call.failed"):
    """It failed."""


class ListInProgress(ItemEvent, tag="response.mcp_list_tools.in_progress"):
    """An MCP server is asked for its tools."""


class ListCompleted(ItemEvent, tag="response.mcp_list_tools.completed"):
    """It answered."""


class ListFailed(ItemEvent, tag="response.mcp_list_tools.failed"):
    """It did not."""


class CodeInProgress(ItemEvent, tag="response.code_interpreter_call.in_progress"):
    """Code is being written."""


class CodeInterpreting(ItemEvent, tag="response.code_interpreter_call.interpreting"):
    """It runs."""


class CodeCompleted(ItemEvent, tag="response.code_interpreter_call.completed"):
    """It ran."""


class WebInProgress(ItemEvent, tag="response.web_search_call.in_progress"):
    """A search of the web begins."""


class WebSearching(ItemEvent, tag="response.web_search_call.searching"):
    """It runs."""


class WebCompleted(ItemEvent, tag="response.web_search_call.completed"):
    """It ended."""


class FileInProgress(ItemEvent, tag="response.file_search_call.in_progress"):
    """A search of files begins."""


class FileSearching(ItemEvent, tag="response.file_search_call.searching"):
    """It runs."""


class FileCompleted(ItemEvent, tag="response.file_search_call.completed"):
    """It ended."""


class ImageInProgress(ItemEvent, tag="response.image_generation_call.in_progress"):
    """An image begins."""


class ImageGenerating(ItemEvent, tag="response.image_generation_call.generating"):
    """It is being made."""


class ImageCompleted(ItemEvent, tag="response.image_generation_call.completed"):
    """It is there."""


class PartialImage(ItemEvent, tag="response.image_generation_call.partial_image"):
    """An image as far as it is made."""

    partial_image_b64: str
    partial_image_index: int
    background: Maybe[str] = UNSET
    output_format: Maybe[str] = UNSET
    quality: Maybe[str] = UNSET
    size: Maybe[str] = UNSET


class Compacting(ItemEvent, tag="response.compaction.compacting"):
    """The conversation is being compacted."""


# A patch, whose diff is a text of its item. No release of the `openai` package types these two events; the API sends them.


class PatchDelta(ItemEvent, tag="response.apply_patch_call_operation_diff.delta"):
    """More of a patch."""

    delta: str
    obfuscation: Maybe[str] = UNSET


class PatchDone(ItemEvent, tag="response.apply_patch_call_operation_diff.done"):
    """The whole of it."""

    diff: str


# The commands of a shell call are parts of it, and so are the outputs of its commands.


class CommandAdded(CommandEvent, tag="response.shell_call_command.added"):
    """A command begins."""

    after = Place.PART

    command: str


class CommandDelta(CommandEvent, tag="response.shell_call_command.delta"):
    """More of it."""

    before = after = Place.PART

    delta: str
    obfuscation: Maybe[str] = UNSET


class CommandDone(CommandEvent, tag="response.shell_call_command.done"):
    """The whole of it."""

    before = Place.PART

    command: str


class ShellDelta(Struct, kw_only=True):
    """More of what a command printed."""

    stdout: Maybe[str] = UNSET
    stderr: Maybe[str] = UNSET


class OutputDelta(CommandOutputEvent, tag="response.shell_call_output_content.delta"):
    """More of the output of a command."""

    delta: ShellDelta
    obfuscation: Maybe[str] = UNSET


class OutputDone(CommandOutputEvent, tag="response.shell_call_output_content.done"):
    """The whole of it."""

    output: list[ShellOutput]


# Events of no item: read by the checker and the conversions, never emitted.


class AudioDelta(StreamEvent, tag="response.audio.delta"):
    """More of a sound."""

    delta: str
    obfuscation: Maybe[str] = UNSET


class AudioDone(StreamEvent, tag="response.audio.done"):
    """The end of it."""


class TranscriptDelta(StreamEvent, tag="response.audio.transcript.delta"):
    """More of its transcript."""

    delta: str
    obfuscation: Maybe[str] = UNSET


class TranscriptDone(StreamEvent, tag="response.audio.transcript.done"):
    """The end of it."""


# What a WebSocket says beside events.


class NestedError(StreamEvent, tag="error"):
    """An error on a WebSocket. Open Responses nests that of a stream likewise, and OpenAI does so now and then."""

    error: RequestError
    status: Maybe[int] = UNSET


class Steer(Struct, kw_only=True):
    """Input that a client queued for a response that runs."""

    id: Maybe[str] = UNSET
    previous_response_id: str
    input: Maybe[str | list[InputMessage | FunctionCallOutput]] = UNSET


class RequiredInput(Struct, tag_field="type", kw_only=True):
    """An item that the client has to send before what it queued is read."""


class RequiredFunctionOutput(RequiredInput, tag="function_call_output", kw_only=True):
    """What a function returned."""

    call_id: str
    name: str


class RequiredCustomOutput(RequiredInput, tag="custom_tool_call_output", kw_only=True):
    """What a custom tool returned."""

    call_id: str


class RequiredComputerOutput(RequiredInput, tag="computer_call_output", kw_only=True):
    """The screen of a computer."""

    call_id: str


class RequiredShellOutput(RequiredInput, tag="shell_call_output", kw_only=True):
    """What a shell printed."""

    call_id: str


class RequiredPatchOutput(RequiredInput, tag="apply_patch_call_output", kw_only=True):
    """Whether a patch was applied."""

    call_id: str


class RequiredTools(RequiredInput, tag="tool_search_output", kw_only=True):
    """Tools that were searched."""

    call_id: str
    execution: Literal["client"] = "client"


class RequiredApproval(RequiredInput, tag="mcp_approval_response", kw_only=True):
    """Whether a tool may be called."""

    approval_request_id: str


AnyRequiredInput: TypeAlias = (
    RequiredFunctionOutput
    | RequiredCustomOutput
    | RequiredComputerOutput
    | RequiredShellOutput
    | RequiredPatchOutput
    | RequiredTools
    | RequiredApproval
)


class SteerError(Struct, kw_only=True):
    """Why input was not queued, or not read."""

    type: Literal["invalid_request_error"] = "invalid_request_error"
    code: str
    message: str


class SteerAccepted(StreamEvent, tag="response.steer.accepted"):
    """The input is queued."""

    steer: Steer


class SteerPending(StreamEvent, tag="response.steer.pending"):
    """It waits for other input."""

    steer: Steer
    reason: str
    required_input: list[AnyRequiredInput]


class SteerFailed(StreamEvent, tag="response.steer.failed"):
    """It is not read."""

    steer: Steer
    error: SteerError


class InjectError(Struct, kw_only=True):
    """Why items were not added to a response that runs."""

    code: Literal["response_already_completed", "response_not_found"]
    message: str


class InjectCreated(StreamEvent, tag="response.inject.created"):
    """Items were added to a response that runs; a beta."""

    response_id: str


class InjectFailed(StreamEvent, tag="response.inject.failed"):
    """They were not."""

    response_id: str
    input: list[InputItem]
    error: InjectError


class ResponseCreate(CreateResponse, tag_field="type", tag="response.create", kw_only=True, frozen=True):
    """A client asks for a response."""

    generate: bool | None = None
    stream_id: str | None = None


class ResponseCancel(Struct, tag_field="type", tag="response.cancel", kw_only=True):
    """A client cancels what a lane generates. No release of the `openai` package types it."""

    stream_id: str | None = None


class ResponseSteer(Struct, tag_field="type", tag="response.steer", kw_only=True):
    """A client adds to the input of a response that runs."""

    previous_response_id: str
    input: str | list[InputMessage | FunctionCallOutput]


class ResponseInject(Struct, tag_field="type", tag="response.inject", kw_only=True):
    """A client adds items to a response that runs; a beta."""

    response_id: str
    input: list[InputItem]


ClientMessage: TypeAlias = ResponseCreate | ResponseCancel | ResponseSteer | ResponseInject
"""What a client says on a WebSocket."""
SocketEvent: TypeAlias = NestedError | SteerAccepted | SteerPending | SteerFailed | InjectCreated | InjectFailed
"""What a server says on a WebSocket beside the events of a stream."""


def wire_name(kind: type[Struct]) -> str:
    """Return what `type` is on the wire."""
    return str(kind.__struct_config__.tag)


def own_fields(event: type[StreamEvent]) -> tuple[str, ...]:
    """Return the fields that an event has beside those that say what it is about."""
    about: type[StreamEvent] = event.__bases__[0]
    return tuple(name for name in event.__struct_fields__ if name not in about.__struct_fields__)


EVENTS: Final[Mapping[str, type[StreamEvent]]] = MappingProxyType(
    {wire_name(event): event for event in kinds_of(StreamEvent) if event not in get_args(SocketEvent)}
)
"""Every event by its wire name."""
TERMINAL: Final = frozenset({wire_name(Completed), wire_name(Incomplete), wire_name(Failed)})
"""The events of which exactly one ends a stream (rule R3)."""
