"""What edges emit: each emission binds one wire event to the attributes of the item that its fields show.

The lifecycles are made of these. An emission is not an event and cannot become one but by an edge that fires.
"""

from __future__ import annotations

from operator import methodcaller
from typing import Final, TypeAlias

from interlock.events import spec
from interlock.events.items import COMMAND, OUTPUT_TEXT, REASONING_TEXT, REFUSAL, SUMMARY_TEXT, PartSpec
from interlock.events.spec import EventSpec, Scope
from interlock.fsm.item import Item
from interlock.fsm.lifecycle import Emission

ItemEmission: TypeAlias = Emission[Item]


_DELTA: Final = {"delta": "delta"}
_PART: Final = {"part": "part"}


def _progress(event: EventSpec) -> ItemEmission:
    return Emission(event)


def _own_text_done(event: EventSpec, *names: str) -> ItemEmission:
    return Emission(event, {**{name: name for name in names[:-1]}, names[-1]: "text"}, Item.end_own_text)


def _part_added(event: EventSpec, part: PartSpec) -> ItemEmission:
    return Emission(event, _PART, methodcaller("open_part", part, event.scope))


def _part_text_done(event: EventSpec, part: PartSpec) -> ItemEmission:
    own = {name: "all_logprobs" if name == "logprobs" else "text" for name in event.fields}
    return Emission(event, own, methodcaller("end_text", part))


def _part_done(event: EventSpec) -> ItemEmission:
    return Emission(event, _PART, methodcaller("close_part", event.scope))


# The bracket of every item.
added: Final = Emission(spec.ADDED, record=Item.join)
done: Final = Emission(spec.DONE, record=Item.finish, accept=Item.learn)

# Parts.
text_part_added: Final = _part_added(spec.PART_ADDED, OUTPUT_TEXT)
text_delta: Final = Emission(spec.TEXT_DELTA, {"logprobs": "delta_logprobs", **_DELTA}, Item.send)
annotation_added: Final[ItemEmission] = Emission(
    spec.ANNOTATION_ADDED, {"annotation_index": "annotation_index", "annotation": "annotation"}, accept=Item.annotate
)
text_done: Final = _part_text_done(spec.TEXT_DONE, OUTPUT_TEXT)

refusal_part_added: Final = _part_added(spec.PART_ADDED, REFUSAL)
refusal_delta: Final = Emission(spec.REFUSAL_DELTA, _DELTA, Item.send)
refusal_done: Final = _part_text_done(spec.REFUSAL_DONE, REFUSAL)

reasoning_part_added: Final = _part_added(spec.PART_ADDED, REASONING_TEXT)
reasoning_delta: Final = Emission(spec.REASONING_DELTA, _DELTA, Item.send)
reasoning_done: Final = _part_text_done(spec.REASONING_DONE, REASONING_TEXT)

part_done: Final = _part_done(spec.PART_DONE)

summary_part_added: Final = _part_added(spec.SUMMARY_PART_ADDED, SUMMARY_TEXT)
summary_delta: Final = Emission(spec.SUMMARY_DELTA, _DELTA, Item.send)
summary_done: Final = _part_text_done(spec.SUMMARY_DONE, SUMMARY_TEXT)
summary_part_done: Final = _part_done(spec.SUMMARY_PART_DONE)

# Texts that are a field of their item.
arguments_delta: Final = Emission(spec.ARGUMENTS_DELTA, _DELTA, Item.send)
arguments_done: Final = _own_text_done(spec.ARGUMENTS_DONE, "name", "arguments")
input_delta: Final = Emission(spec.INPUT_DELTA, _DELTA, Item.send)
input_done: Final = _own_text_done(spec.INPUT_DONE, "input")
mcp_arguments_delta: Final = Emission(spec.MCP_ARGUMENTS_DELTA, _DELTA, Item.send)
mcp_arguments_done: Final = _own_text_done(spec.MCP_ARGUMENTS_DONE, "arguments")
code_delta: Final = Emission(spec.CODE_DELTA, _DELTA, Item.send)
code_done: Final = _own_text_done(spec.CODE_DONE, "code")

patch_delta: Final = Emission(spec.PATCH_DELTA, _DELTA, Item.send)
patch_done: Final = _own_text_done(spec.PATCH_DONE, "diff")

# The commands of a shell call, and what they print.
command_added: Final[ItemEmission] = Emission(
    spec.COMMAND_ADDED, {"command": "text"}, methodcaller("open_part", COMMAND, Scope.COMMAND)
)
command_delta: Final = Emission(spec.COMMAND_DELTA, _DELTA, Item.send)
command_done: Final[ItemEmission] = Emission(spec.COMMAND_DONE, {"command": "text"}, Item.end_command)
output_delta: Final[ItemEmission] = Emission(spec.OUTPUT_DELTA, _DELTA, accept=Item.print)
output_done: Final[ItemEmission] = Emission(spec.OUTPUT_DONE, {"output": "output_part"}, accept=Item.end_output)
output_cut: Final[ItemEmission] = Emission(spec.OUTPUT_DONE, {"output": "output_part"}, accept=Item.cut_output)

# The progress of hosted calls.
mcp_in_progress: Final = _progress(spec.MCP_IN_PROGRESS)
mcp_completed: Final = _progress(spec.MCP_COMPLETED)
mcp_failed: Final = _progress(spec.MCP_FAILED)
list_in_progress: Final = _progress(spec.LIST_IN_PROGRESS)
list_completed: Final = _progress(spec.LIST_COMPLETED)
list_failed: Final = _progress(spec.LIST_FAILED)
code_in_progress: Final = _progress(spec.CODE_IN_PROGRESS)
code_interpreting: Final = _progress(spec.CODE_INTERPRETING)
code_completed: Final = _progress(spec.CODE_COMPLETED)
web_in_progress: Final = _progress(spec.WEB_IN_PROGRESS)
web_searching: Final = _progress(spec.WEB_SEARCHING)
web_completed: Final = _progress(spec.WEB_COMPLETED)
file_in_progress: Final = _progress(spec.FILE_IN_PROGRESS)
file_searching: Final = _progress(spec.FILE_SEARCHING)
file_completed: Final = _progress(spec.FILE_COMPLETED)
image_in_progress: Final = _progress(spec.IMAGE_IN_PROGRESS)
image_generating: Final = _progress(spec.IMAGE_GENERATING)
image_completed: Final = _progress(spec.IMAGE_COMPLETED)
compacting: Final = _progress(spec.COMPACTING)
partial_image: Final[ItemEmission] = Emission(
    spec.PARTIAL_IMAGE, {"**": "progress", "partial_image_index": "progress_index"}, accept=Item.show_progress
)
