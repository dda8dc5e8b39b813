"""All events of a stream, with the positions where they are legal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import ClassVar, Final, Literal

from msgspec import UNSET, Struct

from interlock.events.items import Agent, Item, OutputItem, ShellOutput
from interlock.events.parts import AnyAnnotation, Logprob, Maybe, Nullable, OutputPart, SummaryText, kinds_of
from interlock.events.response_object import Response


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
    """A stream event; `before` and `after` are the positions around it."""

    before: ClassVar[Place] = Place.ITEM
    after: ClassVar[Place] = Place.ITEM

    sequence_number: int = 0

    @property
    def type(self) -> str:
        """The event's wire name."""
        return wire_name(self.__class__)

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

    before = Place.OUTSIDE


class Queued(ResponseEvent, tag="response.queued"):
    """The response waits in a queue."""


class InProgress(ResponseEvent, tag="response.in_progress"):
    """The response is being generated."""


class Completed(ResponseEvent, tag="response.completed"):
    """The response completed."""

    after = Place.AFTER


class Incomplete(ResponseEvent, tag="response.incomplete"):
    """The response ended before the model finished."""

    after = Place.AFTER


class Failed(ResponseEvent, tag="response.failed"):
    """The response failed."""

    after = Place.AFTER


class ErrorEvent(StreamEvent, tag="error"):
    """An error that has an event of its own, and is not in the `error` of a response."""

    message: str
    code: Nullable[str] = None
    param: Nullable[str] = None


class Keepalive(StreamEvent, tag="keepalive"):
    """Nothing happened for a while. It may come anywhere before the terminal event."""


# The events that begin and end every item.


class ItemAdded(ItemBracket, tag="response.output_item.added"):
    """An item began."""

    before = Place.OUTSIDE


class ItemDone(ItemBracket, tag="response.output_item.done"):
    """An item ended."""

    after = Place.AFTER


# Parts and their texts.


class PartAdded(PartEvent, tag="response.content_part.added"):
    """A content part began."""

    after = Place.PART

    part: OutputPart


class PartDone(PartEvent, tag="response.content_part.done"):
    """A content part ended."""

    before = Place.PART_DONE

    part: OutputPart


class TextDelta(PartEvent, tag="response.output_text.delta"):
    """More of the output text."""

    before = after = Place.PART

    delta: str
    logprobs: list[Logprob] = []
    obfuscation: Maybe[str] = UNSET


class TextDone(PartEvent, tag="response.output_text.done"):
    """The complete output text of a part."""

    before, after = Place.PART, Place.PART_DONE

    text: str
    logprobs: list[Logprob] = []


class RefusalDelta(PartEvent, tag="response.refusal.delta"):
    """More of a refusal."""

    before = after = Place.PART

    delta: str
    obfuscation: Maybe[str] = UNSET


class RefusalDone(PartEvent, tag="response.refusal.done"):
    """The complete refusal."""

    before, after = Place.PART, Place.PART_DONE

    refusal: str


class AnnotationAdded(PartEvent, tag="response.output_text.annotation.added"):
    """An annotation of the output text."""

    before = after = Place.PART

    annotation_index: int
    annotation: AnyAnnotation


class ReasoningDelta(PartEvent, tag="response.reasoning_text.delta"):
    """More of the reasoning text."""

    before = after = Place.PART

    delta: str
    obfuscation: Maybe[str] = UNSET


class ReasoningDone(PartEvent, tag="response.reasoning_text.done"):
    """The complete reasoning text of a part."""

    before, after = Place.PART, Place.PART_DONE

    text: str


class SummaryPartAdded(SummaryEvent, tag="response.reasoning_summary_part.added"):
    """A part of a reasoning summary began."""

    after = Place.PART

    part: SummaryText


class SummaryPartDone(SummaryEvent, tag="response.reasoning_summary_part.done"):
    """A part of a reasoning summary ended."""

    before = Place.PART_DONE

    part: SummaryText
    status: Maybe[Literal["incomplete"]] = UNSET


class SummaryDelta(SummaryEvent, tag="response.reasoning_summary_text.delta"):
    """More of a reasoning summary."""

    before = after = Place.PART

    delta: str
    obfuscation: Maybe[str] = UNSET


class SummaryDone(SummaryEvent, tag="response.reasoning_summary_text.done"):
    """The complete text of a part of a summary."""

    before, after = Place.PART, Place.PART_DONE

    text: str


# Texts in a field of their item.


class ArgumentsDelta(ItemEvent, tag="response.function_call_arguments.delta"):
    """More of a function call's arguments."""

    delta: str
    obfuscation: Maybe[str] = UNSET


class ArgumentsDone(ItemEvent, tag="response.function_call_arguments.done"):
    """The complete arguments of a function call. openai 2.25 requires `name`; later releases do not have it."""

    arguments: str
    name: Maybe[str] = UNSET


class CustomInputDelta(ItemEvent, tag="response.custom_tool_call_input.delta"):
    """More of a custom tool call's input."""

    delta: str
    obfuscation: Maybe[str] = UNSET


class CustomInputDone(ItemEvent, tag="response.custom_tool_call_input.done"):
    """The complete input of a custom tool call."""

    input: str


class McpArgumentsDelta(ItemEvent, tag="response.mcp_call_arguments.delta"):
    """More of an MCP call's arguments."""

    delta: str
    obfuscation: Maybe[str] = UNSET


class McpArgumentsDone(ItemEvent, tag="response.mcp_call_arguments.done"):
    """The complete arguments of an MCP call."""

    arguments: str


class CodeDelta(ItemEvent, tag="response.code_interpreter_call_code.delta"):
    """More of the code."""

    delta: str
    obfuscation: Maybe[str] = UNSET


class CodeDone(ItemEvent, tag="response.code_interpreter_call_code.done"):
    """The complete code."""

    code: str


# The progress of an item.


def _progress_event(name: str) -> type[ItemEvent]:
    class ProgressEvent(ItemEvent, tag=f"response.{name}"):
        """An item made progress."""

    ProgressEvent.__name__ = ProgressEvent.__qualname__ = re.sub(r"(?:^|[._])(.)", lambda match: match[1].upper(), name)
    return ProgressEvent


PROGRESS: Final[Mapping[str, type[ItemEvent]]] = MappingProxyType(
    {
        name: _progress_event(name)
        for kind in kinds_of(Item)
        for name in (f"{kind.__struct_config__.tag}.{step}" for step in kind.progress)
    }
)
"""The events that the kinds of items declare as their `progress`, such as `mcp_call.completed`."""


class PartialImage(ItemEvent, tag="response.image_generation_call.partial_image"):
    """A partial image."""

    partial_image_b64: str
    partial_image_index: int
    background: Maybe[str] = UNSET
    output_format: Maybe[str] = UNSET
    quality: Maybe[str] = UNSET
    size: Maybe[str] = UNSET


# The diff of a patch. The API sends these two events; no release of the `openai` package types them.


class PatchDelta(ItemEvent, tag="response.apply_patch_call_operation_diff.delta"):
    """More of a patch's diff."""

    delta: str
    obfuscation: Maybe[str] = UNSET


class PatchDone(ItemEvent, tag="response.apply_patch_call_operation_diff.done"):
    """The complete diff."""

    diff: str


# The commands of a shell call, and their outputs.


class CommandAdded(CommandEvent, tag="response.shell_call_command.added"):
    """A shell command began."""

    after = Place.PART

    command: str


class CommandDelta(CommandEvent, tag="response.shell_call_command.delta"):
    """More of a shell command."""

    before = after = Place.PART

    delta: str
    obfuscation: Maybe[str] = UNSET


class CommandDone(CommandEvent, tag="response.shell_call_command.done"):
    """The complete shell command."""

    before = Place.PART

    command: str


class ShellDelta(Struct, kw_only=True):
    """More output of a shell command."""

    stdout: Maybe[str] = UNSET
    stderr: Maybe[str] = UNSET


class OutputDelta(CommandOutputEvent, tag="response.shell_call_output_content.delta"):
    """More output of a shell command."""

    delta: ShellDelta
    obfuscation: Maybe[str] = UNSET


class OutputDone(CommandOutputEvent, tag="response.shell_call_output_content.done"):
    """The complete output of a shell command."""

    output: list[ShellOutput]


# Events without an item. `interlock check` and `interlock.events.conversion` accept them; no lifecycle emits them.


class AudioDelta(StreamEvent, tag="response.audio.delta"):
    """More audio."""

    delta: str
    obfuscation: Maybe[str] = UNSET


class AudioDone(StreamEvent, tag="response.audio.done"):
    """The audio is complete."""


class TranscriptDelta(StreamEvent, tag="response.audio.transcript.delta"):
    """More of the audio's transcript."""

    delta: str
    obfuscation: Maybe[str] = UNSET


class TranscriptDone(StreamEvent, tag="response.audio.transcript.done"):
    """The transcript is complete."""


def wire_name(kind: type[Struct]) -> str:
    """Return the value of `type` on the wire."""
    return str(kind.__struct_config__.tag)


def own_fields(event: type[StreamEvent]) -> tuple[str, ...]:
    """Return the fields of an event that its base class does not have, such as `delta`."""
    base: type[StreamEvent] = event.__bases__[0]
    return tuple(name for name in event.__struct_fields__ if name not in base.__struct_fields__)


EVENTS: Final[Mapping[str, type[StreamEvent]]] = MappingProxyType({wire_name(event): event for event in kinds_of(StreamEvent)})
"""All events of a stream, by wire name."""
TERMINAL: Final = frozenset({wire_name(Completed), wire_name(Incomplete), wire_name(Failed)})
"""The wire names of the events that end a stream."""
