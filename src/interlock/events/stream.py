"""All events of a stream, with the positions where they are legal."""

# pyright: reportIncompatibleVariableOverride=false
# The `type` of a class is one of the strings that it is in its base class; nobody sets it.

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import ClassVar, Final, Literal, TypeAlias, get_args

from msgspec import UNSET, Struct, defstruct

from interlock.events.items import Agent, OutputItem, ProgressName, ShellOutput
from interlock.events.json import is_array, is_object
from interlock.events.parts import AnyAnnotation, Logprob, Maybe, Nullable, OutputPart, SummaryText, kinds_of
from interlock.events.response_object import Response
from interlock.events.shapes import Mismatch, mismatches


class Place(Enum):
    """A position between two events: outside an item, in it, in a part, in a part whose text is done, or after the item.

    For the response's own events, read "response" for "item": `created` opens it and a terminal event closes it.
    """

    OUTSIDE = "outside"
    ITEM = "item"
    PART = "part"
    PART_DONE = "part_done"
    AFTER = "after"


class StreamEvent(Struct, tag_field="type", kw_only=True, gc=False):
    """A stream event: `type` is its wire name; `before` and `after` are the positions around it."""

    type: ClassVar[str]
    before: ClassVar[Place] = Place.ITEM
    after: ClassVar[Place] = Place.ITEM

    sequence_number: int = 0

    stream_id: Maybe[str] = UNSET  # on a WebSocket, names the lane: a sequence of requests that run one after another
    agent: Nullable[Agent] = UNSET


class ResponseEvent(StreamEvent):
    """An event about the response."""

    response: Response


class ItemBracket(StreamEvent):
    """An event that begins or ends an item."""

    output_index: int
    item: OutputItem


class ItemEvent(StreamEvent):
    """An event about an item."""

    item_id: str
    output_index: int


class PartEvent(ItemEvent):
    """An event about a content part of an item."""

    content_index: int


class SummaryEvent(ItemEvent):
    """An event about a part of a reasoning summary."""

    summary_index: int


class CommandEvent(StreamEvent):
    """An event about a shell command."""

    output_index: int
    command_index: int


class CommandOutputEvent(ItemEvent):
    """An event about the output of a shell command."""

    command_index: int


# The response.


class Created(ResponseEvent, tag="response.created"):
    """The response began."""

    type: ClassVar[Literal["response.created"]]
    before = Place.OUTSIDE


class Queued(ResponseEvent, tag="response.queued"):
    """The response waits in a queue."""

    type: ClassVar[Literal["response.queued"]]


class InProgress(ResponseEvent, tag="response.in_progress"):
    """The response is being generated."""

    type: ClassVar[Literal["response.in_progress"]]


class Completed(ResponseEvent, tag="response.completed"):
    """The response completed."""

    type: ClassVar[Literal["response.completed"]]
    after = Place.AFTER


class Incomplete(ResponseEvent, tag="response.incomplete"):
    """The response ended before the model finished."""

    type: ClassVar[Literal["response.incomplete"]]
    after = Place.AFTER


class Failed(ResponseEvent, tag="response.failed"):
    """The response failed."""

    type: ClassVar[Literal["response.failed"]]
    after = Place.AFTER


class ErrorEvent(StreamEvent, tag="error"):
    """An error that has an event of its own, and is not in the `error` of a response."""

    type: ClassVar[Literal["error"]]

    message: str
    code: Nullable[str] = None
    param: Nullable[str] = None


class Keepalive(StreamEvent, tag="keepalive"):
    """Nothing happened for a while. It may come anywhere before the terminal event."""

    type: ClassVar[Literal["keepalive"]]


# The events that begin and end every item.


class ItemAdded(ItemBracket, tag="response.output_item.added"):
    """An item began."""

    type: ClassVar[Literal["response.output_item.added"]]
    before = Place.OUTSIDE


class ItemDone(ItemBracket, tag="response.output_item.done"):
    """An item ended."""

    type: ClassVar[Literal["response.output_item.done"]]
    after = Place.AFTER


# Parts and their texts.


class PartAdded(PartEvent, tag="response.content_part.added"):
    """A content part began."""

    type: ClassVar[Literal["response.content_part.added"]]
    after = Place.PART

    part: OutputPart


class PartDone(PartEvent, tag="response.content_part.done"):
    """A content part ended."""

    type: ClassVar[Literal["response.content_part.done"]]
    before = Place.PART_DONE

    part: OutputPart


class TextDelta(PartEvent, tag="response.output_text.delta"):
    """More of the output text."""

    type: ClassVar[Literal["response.output_text.delta"]]
    before = after = Place.PART

    delta: str
    logprobs: list[Logprob] = []
    obfuscation: Maybe[str] = UNSET


class TextDone(PartEvent, tag="response.output_text.done"):
    """The complete output text of a part."""

    type: ClassVar[Literal["response.output_text.done"]]
    before, after = Place.PART, Place.PART_DONE

    text: str
    logprobs: list[Logprob] = []


class RefusalDelta(PartEvent, tag="response.refusal.delta"):
    """More of a refusal."""

    type: ClassVar[Literal["response.refusal.delta"]]
    before = after = Place.PART

    delta: str
    obfuscation: Maybe[str] = UNSET


class RefusalDone(PartEvent, tag="response.refusal.done"):
    """The complete refusal."""

    type: ClassVar[Literal["response.refusal.done"]]
    before, after = Place.PART, Place.PART_DONE

    refusal: str


class AnnotationAdded(PartEvent, tag="response.output_text.annotation.added"):
    """An annotation of the output text."""

    type: ClassVar[Literal["response.output_text.annotation.added"]]
    before = after = Place.PART

    annotation_index: int
    annotation: AnyAnnotation


class ReasoningDelta(PartEvent, tag="response.reasoning_text.delta"):
    """More of the reasoning text."""

    type: ClassVar[Literal["response.reasoning_text.delta"]]
    before = after = Place.PART

    delta: str
    obfuscation: Maybe[str] = UNSET


class ReasoningDone(PartEvent, tag="response.reasoning_text.done"):
    """The complete reasoning text of a part."""

    type: ClassVar[Literal["response.reasoning_text.done"]]
    before, after = Place.PART, Place.PART_DONE

    text: str


class SummaryPartAdded(SummaryEvent, tag="response.reasoning_summary_part.added"):
    """A part of a reasoning summary began."""

    type: ClassVar[Literal["response.reasoning_summary_part.added"]]
    after = Place.PART

    part: SummaryText


class SummaryPartDone(SummaryEvent, tag="response.reasoning_summary_part.done"):
    """A part of a reasoning summary ended."""

    type: ClassVar[Literal["response.reasoning_summary_part.done"]]
    before = Place.PART_DONE

    part: SummaryText
    status: Maybe[Literal["incomplete"]] = UNSET


class SummaryDelta(SummaryEvent, tag="response.reasoning_summary_text.delta"):
    """More of a reasoning summary."""

    type: ClassVar[Literal["response.reasoning_summary_text.delta"]]
    before = after = Place.PART

    delta: str
    obfuscation: Maybe[str] = UNSET


class SummaryDone(SummaryEvent, tag="response.reasoning_summary_text.done"):
    """The complete text of a part of a summary."""

    type: ClassVar[Literal["response.reasoning_summary_text.done"]]
    before, after = Place.PART, Place.PART_DONE

    text: str


# Texts in a field of their item.


class ArgumentsDelta(ItemEvent, tag="response.function_call_arguments.delta"):
    """More of a function call's arguments."""

    type: ClassVar[Literal["response.function_call_arguments.delta"]]

    delta: str
    obfuscation: Maybe[str] = UNSET


class ArgumentsDone(ItemEvent, tag="response.function_call_arguments.done"):
    """The complete arguments of a function call. openai 2.25 requires `name`; later releases do not have it."""

    type: ClassVar[Literal["response.function_call_arguments.done"]]

    arguments: str
    name: Maybe[str] = UNSET


class CustomInputDelta(ItemEvent, tag="response.custom_tool_call_input.delta"):
    """More of a custom tool call's input."""

    type: ClassVar[Literal["response.custom_tool_call_input.delta"]]

    delta: str
    obfuscation: Maybe[str] = UNSET


class CustomInputDone(ItemEvent, tag="response.custom_tool_call_input.done"):
    """The complete input of a custom tool call."""

    type: ClassVar[Literal["response.custom_tool_call_input.done"]]

    input: str


class McpArgumentsDelta(ItemEvent, tag="response.mcp_call_arguments.delta"):
    """More of an MCP call's arguments."""

    type: ClassVar[Literal["response.mcp_call_arguments.delta"]]

    delta: str
    obfuscation: Maybe[str] = UNSET


class McpArgumentsDone(ItemEvent, tag="response.mcp_call_arguments.done"):
    """The complete arguments of an MCP call."""

    type: ClassVar[Literal["response.mcp_call_arguments.done"]]

    arguments: str


class CodeDelta(ItemEvent, tag="response.code_interpreter_call_code.delta"):
    """More of the code."""

    type: ClassVar[Literal["response.code_interpreter_call_code.delta"]]

    delta: str
    obfuscation: Maybe[str] = UNSET


class CodeDone(ItemEvent, tag="response.code_interpreter_call_code.done"):
    """The complete code."""

    type: ClassVar[Literal["response.code_interpreter_call_code.done"]]

    code: str


# The progress of an item.


class ProgressEvent(ItemEvent):
    """An item made progress."""

    type: ClassVar[ProgressName]


_PROGRESSED: Final = [defstruct(name, (), bases=(ProgressEvent,), tag=name) for name in get_args(ProgressName)]
PROGRESS: Final[Mapping[str, type[ProgressEvent]]] = MappingProxyType(
    {kind.__name__.removeprefix("response."): kind for kind in kinds_of(ProgressEvent)}
)
"""The events of `ProgressName`, by their names without `response.`, such as `mcp_call.completed`."""


class PartialImage(ItemEvent, tag="response.image_generation_call.partial_image"):
    """A partial image."""

    type: ClassVar[Literal["response.image_generation_call.partial_image"]]

    partial_image_b64: str
    partial_image_index: int
    background: Maybe[str] = UNSET
    output_format: Maybe[str] = UNSET
    quality: Maybe[str] = UNSET
    size: Maybe[str] = UNSET


# The diff of a patch. The API sends these two events; no release of the `openai` package types them.


class PatchDelta(ItemEvent, tag="response.apply_patch_call_operation_diff.delta"):
    """More of a patch's diff."""

    type: ClassVar[Literal["response.apply_patch_call_operation_diff.delta"]]

    delta: str
    obfuscation: Maybe[str] = UNSET


class PatchDone(ItemEvent, tag="response.apply_patch_call_operation_diff.done"):
    """The complete diff."""

    type: ClassVar[Literal["response.apply_patch_call_operation_diff.done"]]

    diff: str


# The commands of a shell call, and their outputs.


class CommandAdded(CommandEvent, tag="response.shell_call_command.added"):
    """A shell command began."""

    type: ClassVar[Literal["response.shell_call_command.added"]]
    after = Place.PART

    command: str


class CommandDelta(CommandEvent, tag="response.shell_call_command.delta"):
    """More of a shell command."""

    type: ClassVar[Literal["response.shell_call_command.delta"]]
    before = after = Place.PART

    delta: str
    obfuscation: Maybe[str] = UNSET


class CommandDone(CommandEvent, tag="response.shell_call_command.done"):
    """The complete shell command."""

    type: ClassVar[Literal["response.shell_call_command.done"]]
    before = Place.PART

    command: str


class ShellDelta(Struct, kw_only=True):
    """More output of a shell command."""

    stdout: Maybe[str] = UNSET
    stderr: Maybe[str] = UNSET


class OutputDelta(CommandOutputEvent, tag="response.shell_call_output_content.delta"):
    """More output of a shell command."""

    type: ClassVar[Literal["response.shell_call_output_content.delta"]]

    delta: ShellDelta
    obfuscation: Maybe[str] = UNSET


class OutputDone(CommandOutputEvent, tag="response.shell_call_output_content.done"):
    """The complete output of a shell command."""

    type: ClassVar[Literal["response.shell_call_output_content.done"]]

    output: list[ShellOutput]


# fmt: off
AnyEvent: TypeAlias = (
    Created | Queued | InProgress | Completed | Incomplete | Failed | ErrorEvent | Keepalive | ItemAdded | ItemDone
    | PartAdded | PartDone | TextDelta | TextDone | RefusalDelta | RefusalDone | AnnotationAdded | ReasoningDelta
    | ReasoningDone | SummaryPartAdded | SummaryPartDone | SummaryDelta | SummaryDone | ArgumentsDelta | ArgumentsDone
    | CustomInputDelta | CustomInputDone | McpArgumentsDelta | McpArgumentsDone | CodeDelta | CodeDone | ProgressEvent
    | PartialImage | PatchDelta | PatchDone | CommandAdded | CommandDelta | CommandDone | OutputDelta | OutputDone
)
# fmt: on
"""Any event of a stream, as a union: `if event.type == "response.output_text.delta"` tells a type checker the fields."""


def wire_name(kind: type[Struct]) -> str:
    """Return the value of `type` on the wire."""
    return str(kind.__struct_config__.tag)


def own_fields(event: type[StreamEvent]) -> tuple[str, ...]:
    """Return the fields of an event that its base class does not have, such as `delta`."""
    base: type[StreamEvent] = event.__bases__[0]
    return tuple(name for name in event.__struct_fields__ if name not in base.__struct_fields__)


EVENTS: Final[Mapping[str, type[StreamEvent]]] = MappingProxyType({wire_name(event): event for event in kinds_of(StreamEvent)})
"""All events of a stream, by wire name."""
for _name, _event in EVENTS.items():
    _event.type = _name
TERMINAL: Final = frozenset({wire_name(Completed), wire_name(Incomplete), wire_name(Failed)})
"""The wire names of the events that end a stream."""


def event_mismatches(event: type[StreamEvent], body: Mapping[str, object]) -> list[Mismatch]:
    """Return the mismatches of an event's body with its type, except those that other rules than R14 judge or that are allowed.

    R2 judges the number, and R15 the log probabilities. R13 compares the items of a response; its other lists are the request's.
    Of its objects, such as the error, only the usage is compared, without the fields of its details.
    """
    response = body.get("response")
    if is_object(response):
        nothing: list[object] = []
        body = {**body, "response": {name: nothing if is_array(value) else value for name, value in response.items()}}
    differences = mismatches(dict(body), event, direction="stream")
    return [mismatch for mismatch in differences if not _is_elsewhere(mismatch, event)]


_LATER: Final = frozenset({("web_search_call", "action"), ("image_generation_call", "result")})
"""Fields that an item may omit until it is done."""


def _is_elsewhere(mismatch: Mismatch, event: type[StreamEvent]) -> bool:
    match mismatch.path:
        case ("sequence_number",):
            return True
        case ("logprobs", *inner):
            return bool(inner) or mismatch.kind == "missing"
        case ("item", field):
            return mismatch.kind == "missing" and event is ItemAdded and (mismatch.type, field) in _LATER
        case ("response", str(field)):
            judged = {"unknown": ("sequence_number", "output_index"), "value": ("object", "status")}
            return field not in judged.get(mismatch.kind, (field,))
        case ("response", field, *inner):
            return field != "usage" or len(inner) > 1 or mismatch.kind == "unknown"
        case _:
            return False
