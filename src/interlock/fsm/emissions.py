"""The emissions of the lifecycles: functions that return one event each, and update the item or the response if necessary.

Only these functions make events, and only firing an edge calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from io import BytesIO
from typing import Any, Final, TypeAlias, cast

from msgspec.structs import replace

from interlock.events import items, stream
from interlock.events.parts import AnyAnnotation, OutputPart, OutputRefusal, OutputText, Part, ReasoningText, SummaryText
from interlock.fsm.lifecycle import AnyItem, Emission, ItemState, OpenPart, ResponseState, emission
from interlock.fsm.table import DeclarationError

ItemEmission: TypeAlias = Emission[AnyItem]

_OwnTextDelta: TypeAlias = (
    stream.ArgumentsDelta | stream.CustomInputDelta | stream.McpArgumentsDelta | stream.CodeDelta | stream.PatchDelta
)
_FieldDone: TypeAlias = stream.CustomInputDone | stream.McpArgumentsDone | stream.CodeDone
_PartDelta: TypeAlias = stream.RefusalDelta | stream.ReasoningDelta | stream.SummaryDelta
_PartTextDone: TypeAlias = stream.RefusalDone | stream.ReasoningDone | stream.SummaryDone


@cache  # a lifecycle that emits an event in several places has one emission of it
def progress(name: str) -> ItemEmission:
    """Return the emission of an event about the progress of an item, such as `mcp_call.completed`."""
    if name not in stream.PROGRESS:
        raise DeclarationError(f"`ProgressName` in events/items.py has no 'response.{name}'")
    event = stream.PROGRESS[name]
    return Emission(lambda item: event(item.id, item.output_index), event)


def _delta(event: type[_OwnTextDelta]) -> ItemEmission:
    """Return the emission of a delta for an item without parts."""
    return Emission(lambda item: event(item.id, item.output_index, item.send()), event)


def _field_done(event: type[_FieldDone]) -> ItemEmission:
    """Return the emission of an event with a complete text, which is also in the field of the item with the same name."""
    fields = stream.own_fields(event)
    if len(fields) != 1:
        raise DeclarationError(f"`_field_done` is for events with one field; write an `@emission` for {event.__name__}")
    (field,) = fields

    def make(item: AnyItem) -> stream.StreamEvent:
        text = item.end_text()
        item.update(**{field: text})
        return event(item.id, item.output_index, text)

    return Emission(make, event)


def _part_added(part: Callable[[str], OutputPart]) -> ItemEmission:
    """Return the emission of the event that begins a content part; `part` makes a part with a text."""
    event = stream.PartAdded
    return Emission(lambda item: event(item.id, item.output_index, item.open_part(item.body.content), part("")), event)


def _part_delta(event: type[_PartDelta]) -> ItemEmission:
    """Return the emission of a delta for a part."""
    return Emission(lambda item: event(item.id, item.output_index, item.part.index, item.send()), event)


def _part_text_done(event: type[_PartTextDone], part: Callable[[str], Part]) -> ItemEmission:
    """Return the emission of an event with the complete text of a part; `part` makes a part with a text."""

    def make(item: AnyItem) -> stream.StreamEvent:
        text = item.end_text()
        item.update_part(complete=part(text))
        return event(item.id, item.output_index, item.part.index, text)

    return Emission(make, event)


# The response.


@emission
def created(response: ResponseState) -> stream.Created:
    return stream.Created(response.snapshot(response.state.name))


@emission
def queued(response: ResponseState) -> stream.Queued:
    return stream.Queued(response.snapshot("queued"))


@emission
def in_progress(response: ResponseState) -> stream.InProgress:
    return stream.InProgress(response.snapshot("in_progress"))


@emission
def keepalive(_response: ResponseState) -> stream.Keepalive:
    return stream.Keepalive()


@emission
def completed(response: ResponseState) -> stream.Completed:
    return stream.Completed(response.end(completed_at=response.clock()))


@emission
def incomplete(response: ResponseState) -> stream.Incomplete:
    return stream.Incomplete(response.end())


@emission
def failed(response: ResponseState) -> stream.Failed:
    return stream.Failed(response.end())


# The first and the last event of every item.


@emission
def added(item: AnyItem) -> stream.ItemAdded:
    return stream.ItemAdded(item.output_index, item.show())


@emission
def done(item: AnyItem) -> stream.ItemDone:
    if item.args:
        item.update(**item.args)
    if item.final_fields is not None:
        item.show()  # so that `final_fields` reads the item with the status of its end
        item.update(**item.final_fields(item.shown_as_json()))
    return stream.ItemDone(item.output_index, item.show())


@emission
def done_as_shown(item: AnyItem) -> stream.ItemDone:
    """Make the last event of an item of another release, whose body is JSON."""
    return stream.ItemDone(item.output_index, item.body)


# The parts of a message: text and refusals.


text_part_added: Final = _part_added(lambda text: OutputText(text=text))
refusal_part_added: Final = _part_added(lambda text: OutputRefusal(refusal=text))
refusal_delta: Final = _part_delta(stream.RefusalDelta)
refusal_done: Final = _part_text_done(stream.RefusalDone, lambda text: OutputRefusal(refusal=text))


@emission
def text_delta(message: ItemState[items.Message]) -> stream.TextDelta:
    logprobs = message.send_logprobs() if message.unsent_logprobs else []
    return stream.TextDelta(message.id, message.output_index, message.part.index, message.send(), logprobs)


@emission
def annotation_added(message: ItemState[items.Message]) -> stream.AnnotationAdded:
    annotation = cast("AnyAnnotation", message.args)
    index = len(message.part.annotations)
    message.update_part(annotations=(*message.part.annotations, annotation))
    return stream.AnnotationAdded(message.id, message.output_index, message.part.index, index, annotation)


@emission
def text_done(message: ItemState[items.Message]) -> stream.TextDone:
    text, logprobs = message.end_text(), message.part.logprobs
    message.update_part(complete=OutputText(text=text, annotations=[*message.part.annotations], logprobs=logprobs))
    return stream.TextDone(message.id, message.output_index, message.part.index, text, logprobs)


# Reasoning: its text and its summary.


reasoning_part_added: Final = _part_added(lambda text: ReasoningText(text=text))
reasoning_delta: Final = _part_delta(stream.ReasoningDelta)
reasoning_done: Final = _part_text_done(stream.ReasoningDone, lambda text: ReasoningText(text=text))
summary_delta: Final = _part_delta(stream.SummaryDelta)
summary_done: Final = _part_text_done(stream.SummaryDone, lambda text: SummaryText(text=text))


@emission
def part_done(item: AnyItem) -> stream.PartDone:
    part: Any = item.part.complete
    item.body = replace(item.body, content=[*item.body.content, part])
    return stream.PartDone(item.id, item.output_index, item.part.index, part)


@emission
def summary_part_added(reasoning: ItemState[items.Reasoning]) -> stream.SummaryPartAdded:
    index = reasoning.open_part(reasoning.body.summary or ())
    return stream.SummaryPartAdded(reasoning.id, reasoning.output_index, index, SummaryText(text=""))


@emission
def summary_part_done(reasoning: ItemState[items.Reasoning]) -> stream.SummaryPartDone:
    part: Any = reasoning.part.complete
    reasoning.update(summary=[*(reasoning.body.summary or ()), part])
    return stream.SummaryPartDone(reasoning.id, reasoning.output_index, reasoning.part.index, part)


# Texts of items without parts.


arguments_delta: Final = _delta(stream.ArgumentsDelta)
input_delta: Final = _delta(stream.CustomInputDelta)
input_done: Final = _field_done(stream.CustomInputDone)
mcp_arguments_delta: Final = _delta(stream.McpArgumentsDelta)
mcp_arguments_done: Final = _field_done(stream.McpArgumentsDone)
code_delta: Final = _delta(stream.CodeDelta)
code_done: Final = _field_done(stream.CodeDone)
patch_delta: Final = _delta(stream.PatchDelta)


@emission
def arguments_done(call: ItemState[items.FunctionCall]) -> stream.ArgumentsDone:
    arguments = call.end_text()
    call.body = replace(call.body, arguments=arguments)
    return stream.ArgumentsDone(call.id, call.output_index, arguments, call.body.name)


@emission
def patch_done(call: ItemState[items.ApplyPatchCall]) -> stream.PatchDone:
    diff, operation = call.end_text(), call.body.operation
    call.update(operation=replace(operation, diff=diff))
    return stream.PatchDone(call.id, call.output_index, diff)


# The commands of a shell call and their output, and the partial images of an image generation call.


@emission
def command_added(call: ItemState[items.ShellCall]) -> stream.CommandAdded:
    return stream.CommandAdded(call.output_index, call.open_part(call.body.action.commands), "")


@emission
def command_delta(call: ItemState[items.ShellCall]) -> stream.CommandDelta:
    return stream.CommandDelta(call.output_index, call.part.index, call.send())


@emission
def command_done(call: ItemState[items.ShellCall]) -> stream.CommandDone:
    command, action = call.end_text(), call.body.action
    call.update(action=replace(action, commands=[*action.commands, command]))
    return stream.CommandDone(call.output_index, call.part.index, command)


@emission
def output_delta(output: ItemState[items.ShellCallOutput]) -> stream.OutputDelta:
    delta = {name: str(output.args.get(name, "")) for name in ("stdout", "stderr")}
    for printed, text in zip(_printed(output), delta.values(), strict=True):
        printed.write(text.encode(errors="surrogatepass"))
    return stream.OutputDelta(output.id, output.output_index, output.part.index, stream.ShellDelta(**delta))


@emission
def output_done(output: ItemState[items.ShellCallOutput]) -> stream.OutputDone:
    return _end_output(output, output.args.get("outcome", _EXITED))


@emission
def output_cut(output: ItemState[items.ShellCallOutput]) -> stream.OutputDone:
    return _end_output(output, _TIMED_OUT)


@emission
def partial_image(call: ItemState[items.ImageGenerationCall]) -> stream.PartialImage:
    call.part = OpenPart(call.part.index + 1)
    image = stream.PartialImage(call.id, call.output_index, "", call.part.index)
    return replace(image, **{name: value for name, value in call.args.items() if name in image.__struct_fields__})


_EXITED: Final = {"type": "exit", "exit_code": 0}
_TIMED_OUT: Final = {"type": "timeout"}


def _printed(output: ItemState[items.ShellCallOutput]) -> tuple[BytesIO, ...]:
    """Return what the current command has printed; the command may be a new one."""
    if not output.part.printed:
        output.part = OpenPart(len(output.body.output), printed=(BytesIO(), BytesIO()))
    return output.part.printed


def _end_output(output: ItemState[items.ShellCallOutput], outcome: object) -> stream.OutputDone:
    """Record the outcome of a command, which may have printed nothing."""
    stdout, stderr = (text.getvalue().decode(errors="surrogatepass") for text in _printed(output))
    part = cast("items.ShellOutput", {"stdout": stdout, "stderr": stderr, "outcome": outcome})
    output.update(output=[*output.body.output, part])
    output.update_part(printed=())
    return stream.OutputDone(output.id, output.output_index, output.part.index, [part])
