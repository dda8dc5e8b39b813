"""The emissions of the items' lifecycles: functions that return one event each, and update the item if necessary.

Only these functions make events of items, and only firing an edge calls them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

from msgspec.structs import replace

from interlock.events import stream
from interlock.events.items import (
    ApplyPatchCall,
    CodeInterpreterCall,
    CustomToolCall,
    FunctionCall,
    ImageGenerationCall,
    McpCall,
    Message,
    Reasoning,
    ShellCall,
    ShellCallOutput,
    ShellOutput,
)
from interlock.events.parts import AnyAnnotation, OutputPart, OutputText, ReasoningText, Refusal, SummaryText
from interlock.events.stream import (
    AnnotationAdded,
    ArgumentsDelta,
    ArgumentsDone,
    CodeDelta,
    CodeDone,
    CommandAdded,
    CommandDelta,
    CommandDone,
    CustomInputDelta,
    CustomInputDone,
    ItemAdded,
    ItemDone,
    ItemEvent,
    McpArgumentsDelta,
    McpArgumentsDone,
    OutputDelta,
    OutputDone,
    PartAdded,
    PartDone,
    PartialImage,
    PatchDelta,
    PatchDone,
    ReasoningDelta,
    ReasoningDone,
    RefusalDelta,
    RefusalDone,
    ShellDelta,
    SummaryDelta,
    SummaryDone,
    SummaryPartAdded,
    SummaryPartDone,
    TextDelta,
    TextDone,
)
from interlock.fsm.item_subject import ItemState
from interlock.fsm.lifecycle import Emission, emission

ItemEmission: TypeAlias = Emission[ItemState[Any]]

# The first and the last event of every item.


@emission
def added(item: ItemState[Any]) -> ItemAdded:
    return ItemAdded(item.output_index, item.show())


@emission
def done(item: ItemState[Any]) -> ItemDone:
    if item.args:
        item.update(**item.args)
    if item.late is not None:
        item.show()
        item.update(**item.late(item.shown_as_json()))
    return ItemDone(item.output_index, item.show())


# The text of a message.


@emission
def text_part_added(message: ItemState[Message]) -> PartAdded:
    return _open_content(message, OutputText(text=""))


@emission
def text_delta(message: ItemState[Message]) -> TextDelta:
    logprobs = message.send_logprobs() if message.unsent_logprobs else []
    return TextDelta(message.id, message.output_index, message.part_index, message.send(), logprobs)


@emission
def annotation_added(message: ItemState[Message]) -> AnnotationAdded:
    annotation = cast("AnyAnnotation", message.args)
    message.annotations = (*message.annotations, annotation)
    index = len(message.annotations) - 1
    return AnnotationAdded(message.id, message.output_index, message.part_index, index, annotation)


@emission
def text_done(message: ItemState[Message]) -> TextDone:
    text, logprobs = message.end_text(), message.logprobs
    message.part = OutputText(text=text, annotations=[*message.annotations], logprobs=logprobs)
    return TextDone(message.id, message.output_index, message.part_index, text, logprobs)


# A refusal.


@emission
def refusal_part_added(message: ItemState[Message]) -> PartAdded:
    return _open_content(message, Refusal(refusal=""))


@emission
def refusal_delta(message: ItemState[Message]) -> RefusalDelta:
    return RefusalDelta(message.id, message.output_index, message.part_index, message.send())


@emission
def refusal_done(message: ItemState[Message]) -> RefusalDone:
    text = message.end_text()
    message.part = Refusal(refusal=text)
    return RefusalDone(message.id, message.output_index, message.part_index, text)


# Reasoning: its text and its summary.


@emission
def reasoning_part_added(reasoning: ItemState[Reasoning]) -> PartAdded:
    return _open_content(reasoning, ReasoningText(text=""))


@emission
def reasoning_delta(reasoning: ItemState[Reasoning]) -> ReasoningDelta:
    return ReasoningDelta(reasoning.id, reasoning.output_index, reasoning.part_index, reasoning.send())


@emission
def reasoning_done(reasoning: ItemState[Reasoning]) -> ReasoningDone:
    text = reasoning.end_text()
    reasoning.part = ReasoningText(text=text)
    return ReasoningDone(reasoning.id, reasoning.output_index, reasoning.part_index, text)


@emission
def part_done(item: ItemState[Any]) -> PartDone:
    part: Any = item.part
    item.body = replace(item.body, content=[*item.body.content, part])
    return PartDone(item.id, item.output_index, item.part_index, part)


@emission
def summary_part_added(reasoning: ItemState[Reasoning]) -> SummaryPartAdded:
    index = reasoning.open_part(reasoning.body.summary or ())
    return SummaryPartAdded(reasoning.id, reasoning.output_index, index, SummaryText(text=""))


@emission
def summary_delta(reasoning: ItemState[Reasoning]) -> SummaryDelta:
    return SummaryDelta(reasoning.id, reasoning.output_index, reasoning.part_index, reasoning.send())


@emission
def summary_done(reasoning: ItemState[Reasoning]) -> SummaryDone:
    text = reasoning.end_text()
    reasoning.part = SummaryText(text=text)
    return SummaryDone(reasoning.id, reasoning.output_index, reasoning.part_index, text)


@emission
def summary_part_done(reasoning: ItemState[Reasoning]) -> SummaryPartDone:
    part: Any = reasoning.part
    reasoning.update(summary=[*(reasoning.body.summary or ()), part])
    return SummaryPartDone(reasoning.id, reasoning.output_index, reasoning.part_index, part)


# Texts of items without parts.


@emission
def arguments_delta(call: ItemState[FunctionCall]) -> ArgumentsDelta:
    return ArgumentsDelta(call.id, call.output_index, call.send())


@emission
def arguments_done(call: ItemState[FunctionCall]) -> ArgumentsDone:
    arguments = call.end_text()
    call.body = replace(call.body, arguments=arguments)
    return ArgumentsDone(call.id, call.output_index, arguments, call.body.name)


@emission
def input_delta(call: ItemState[CustomToolCall]) -> CustomInputDelta:
    return CustomInputDelta(call.id, call.output_index, call.send())


@emission
def input_done(call: ItemState[CustomToolCall]) -> CustomInputDone:
    text = call.end_text()
    call.update(input=text)
    return CustomInputDone(call.id, call.output_index, text)


@emission
def mcp_arguments_delta(call: ItemState[McpCall]) -> McpArgumentsDelta:
    return McpArgumentsDelta(call.id, call.output_index, call.send())


@emission
def mcp_arguments_done(call: ItemState[McpCall]) -> McpArgumentsDone:
    arguments = call.end_text()
    call.body = replace(call.body, arguments=arguments)
    return McpArgumentsDone(call.id, call.output_index, arguments)


@emission
def code_delta(call: ItemState[CodeInterpreterCall]) -> CodeDelta:
    return CodeDelta(call.id, call.output_index, call.send())


@emission
def code_done(call: ItemState[CodeInterpreterCall]) -> CodeDone:
    code = call.end_text()
    call.update(code=code)
    return CodeDone(call.id, call.output_index, code)


@emission
def patch_delta(call: ItemState[ApplyPatchCall]) -> PatchDelta:
    return PatchDelta(call.id, call.output_index, call.send())


@emission
def patch_done(call: ItemState[ApplyPatchCall]) -> PatchDone:
    diff, operation = call.end_text(), call.body.operation
    call.update(operation=replace(operation, diff=diff))
    return PatchDone(call.id, call.output_index, diff)


# The commands of a shell call and their output, and the partial images of an image generation call.


@emission
def command_added(call: ItemState[ShellCall]) -> CommandAdded:
    return CommandAdded(call.output_index, call.open_part(call.body.action.commands), "")


@emission
def command_delta(call: ItemState[ShellCall]) -> CommandDelta:
    return CommandDelta(call.output_index, call.part_index, call.send())


@emission
def command_done(call: ItemState[ShellCall]) -> CommandDone:
    command, action = call.end_text(), call.body.action
    call.update(action=replace(action, commands=[*action.commands, command]))
    return CommandDone(call.output_index, call.part_index, command)


@emission
def output_delta(output: ItemState[ShellCallOutput]) -> OutputDelta:
    delta = {name: str(output.args.get(name, "")) for name in ("stdout", "stderr")}
    printed = output.printed or _begin_output(output)
    output.printed = {name: f"{printed[name]}{text}" for name, text in delta.items()}
    return OutputDelta(output.id, output.output_index, output.part_index, ShellDelta(**delta))


@emission
def output_done(output: ItemState[ShellCallOutput]) -> OutputDone:
    return _end_output(output, output.args.get("outcome", _EXITED))


@emission
def output_cut(output: ItemState[ShellCallOutput]) -> OutputDone:
    return _end_output(output, _TIMED_OUT)


@emission
def partial_image(call: ItemState[ImageGenerationCall]) -> PartialImage:
    event = PartialImage(call.id, call.output_index, partial_image_index=call.progressed, **cast("Any", call.args))
    call.progressed += 1
    return event


# The progress of hosted calls, of lists of MCP tools, and of compactions.


def progress(event: type[ItemEvent]) -> ItemEmission:
    """Return the emission of an event whose only fields are the item's id and index."""
    return Emission(lambda call: event(call.id, call.output_index), event)


mcp_in_progress: Final = progress(stream.McpInProgress)
mcp_completed: Final = progress(stream.McpCompleted)
mcp_failed: Final = progress(stream.McpFailed)
list_in_progress: Final = progress(stream.ListInProgress)
list_completed: Final = progress(stream.ListCompleted)
list_failed: Final = progress(stream.ListFailed)
code_in_progress: Final = progress(stream.CodeInProgress)
code_interpreting: Final = progress(stream.CodeInterpreting)
code_completed: Final = progress(stream.CodeCompleted)
web_in_progress: Final = progress(stream.WebInProgress)
web_searching: Final = progress(stream.WebSearching)
web_completed: Final = progress(stream.WebCompleted)
file_in_progress: Final = progress(stream.FileInProgress)
file_searching: Final = progress(stream.FileSearching)
file_completed: Final = progress(stream.FileCompleted)
image_in_progress: Final = progress(stream.ImageInProgress)
image_generating: Final = progress(stream.ImageGenerating)
image_completed: Final = progress(stream.ImageCompleted)
compacting: Final = progress(stream.Compacting)


_EXITED: Final = {"type": "exit", "exit_code": 0}
_TIMED_OUT: Final = {"type": "timeout"}


def _open_content(item: ItemState[Any], part: OutputPart) -> PartAdded:
    return PartAdded(item.id, item.output_index, item.open_part(item.body.content), part)


def _begin_output(output: ItemState[ShellCallOutput]) -> Mapping[str, str]:
    output.open_part(output.body.output)
    return {"stdout": "", "stderr": ""}


def _end_output(output: ItemState[ShellCallOutput], outcome: object) -> OutputDone:
    """Record the outcome of a command, which may have printed nothing."""
    part = cast("ShellOutput", {**(output.printed or _begin_output(output)), "outcome": outcome})
    output.update(output=[*output.body.output, part])
    output.printed = None
    return OutputDone(output.id, output.output_index, output.part_index, [part])
