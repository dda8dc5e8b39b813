"""The vocabulary: one specification for every streaming event that the Responses API has, as data.

It knows names, fields and where in an item's bracket an event may stand. It does not know which events follow one
another (the lifecycles in `interlock.fsm.lifecycles` say that), nor how an event is written (`interlock.events.sse`).

Source: the union `ResponseStreamEvent` of the `openai` package, from 2.25 to the newest; a test walks it, so that a
release cannot add an event unnoticed.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from attrs import frozen

from interlock.events.stream import Place as Place  # noqa: PLC0414


class Scope(Enum):
    """What an event is about; the value is the fields that address it, which every event of that scope carries."""

    STREAM = ()
    RESPONSE = ("response",)
    BRACKET = ("output_index", "item")
    ITEM = ("item_id", "output_index")
    PART = ("item_id", "output_index", "content_index")
    SUMMARY = ("item_id", "output_index", "summary_index")
    COMMAND = ("output_index", "command_index")
    COMMAND_OUTPUT = ("item_id", "output_index", "command_index")

    __hash__ = object.__hash__  # a member is itself alone; what Enum has is written in Python, and each event would pay for it


@frozen
class EventSpec:
    """One wire event.

    Args:
        name: The wire name, which is the value of `type` and of the SSE field `event`.
        scope: What it is about, and so which fields address it.
        fields: Its own fields, beside `type`, `sequence_number` and those of its scope.
        optional: Those of `fields` that may be missing.
        before: Where the stream stands before it.
        after: Where the stream stands after it.
    """

    name: str
    scope: Scope
    fields: tuple[str, ...] = ()
    optional: frozenset[str] = frozenset()
    before: Place = Place.ITEM
    after: Place = Place.ITEM


EVENTS: Final[dict[str, EventSpec]] = {}
"""Every event of the API by its wire name."""


def _event(
    name: str,
    scope: Scope,
    fields: tuple[str, ...] = (),
    optional: frozenset[str] = frozenset(),
    *,
    before: Place = Place.ITEM,
    after: Place = Place.ITEM,
) -> EventSpec:
    spec = EVENTS[name] = EventSpec(name, scope, fields, optional, before, after)
    return spec


def _response(name: str, before: Place, after: Place) -> EventSpec:
    return _event(name, Scope.RESPONSE, before=before, after=after)


def _progress(*names: str) -> tuple[EventSpec, ...]:
    return tuple(_event(name, Scope.ITEM) for name in names)


def _text(name: str, value: str) -> tuple[EventSpec, EventSpec]:
    """Return the delta and the done event of a text that is a field of the item itself."""
    return (
        _event(f"{name}.delta", Scope.ITEM, ("delta",)),
        _event(f"{name}.done", Scope.ITEM, (value,)),
    )


def _part_text(name: str, scope: Scope, value: str, extra: tuple[str, ...] = ()) -> tuple[EventSpec, EventSpec]:
    """Return the delta and the done event of a text that is a part of the item."""
    return (
        _event(f"{name}.delta", scope, ("delta", *extra), before=Place.PART, after=Place.PART),
        _event(f"{name}.done", scope, (value, *extra), before=Place.PART, after=Place.PART_DONE),
    )


def _parts(name: str, scope: Scope) -> tuple[EventSpec, EventSpec]:
    return (
        _event(f"{name}.added", scope, ("part",), before=Place.ITEM, after=Place.PART),
        _event(
            f"{name}.done",
            scope,
            ("part", "status") if scope is Scope.SUMMARY else ("part",),
            frozenset({"status"}) if scope is Scope.SUMMARY else frozenset(),
            before=Place.PART_DONE,
            after=Place.ITEM,
        ),
    )


# The response.
CREATED: Final = _response("response.created", Place.OUTSIDE, Place.ITEM)
QUEUED: Final = _response("response.queued", Place.ITEM, Place.ITEM)
IN_PROGRESS: Final = _response("response.in_progress", Place.ITEM, Place.ITEM)
COMPLETED: Final = _response("response.completed", Place.ITEM, Place.AFTER)
INCOMPLETE: Final = _response("response.incomplete", Place.ITEM, Place.AFTER)
FAILED: Final = _response("response.failed", Place.ITEM, Place.AFTER)
ERROR: Final = _event("error", Scope.STREAM, ("code", "message", "param"), frozenset({"code", "param"}))

# The bracket of every item.
ADDED: Final = _event("response.output_item.added", Scope.BRACKET, before=Place.OUTSIDE, after=Place.ITEM)
DONE: Final = _event("response.output_item.done", Scope.BRACKET, before=Place.ITEM, after=Place.AFTER)

# Parts and their texts.
PART_ADDED, PART_DONE = _parts("response.content_part", Scope.PART)
TEXT_DELTA, TEXT_DONE = _part_text("response.output_text", Scope.PART, "text", ("logprobs",))
REFUSAL_DELTA, REFUSAL_DONE = _part_text("response.refusal", Scope.PART, "refusal")
ANNOTATION_ADDED: Final = _event(
    "response.output_text.annotation.added",
    Scope.PART,
    ("annotation_index", "annotation"),
    before=Place.PART,
    after=Place.PART,
)
REASONING_DELTA, REASONING_DONE = _part_text("response.reasoning_text", Scope.PART, "text")
SUMMARY_PART_ADDED, SUMMARY_PART_DONE = _parts("response.reasoning_summary_part", Scope.SUMMARY)
SUMMARY_DELTA, SUMMARY_DONE = _part_text("response.reasoning_summary_text", Scope.SUMMARY, "text")

# Texts that are a field of their item. `name` in the arguments' end is required by openai 2.25 and unknown to 3.51.
ARGUMENTS_DELTA: Final = _event("response.function_call_arguments.delta", Scope.ITEM, ("delta",))
ARGUMENTS_DONE: Final = _event("response.function_call_arguments.done", Scope.ITEM, ("name", "arguments"))
INPUT_DELTA, INPUT_DONE = _text("response.custom_tool_call_input", "input")
MCP_ARGUMENTS_DELTA, MCP_ARGUMENTS_DONE = _text("response.mcp_call_arguments", "arguments")
CODE_DELTA, CODE_DONE = _text("response.code_interpreter_call_code", "code")

# The progress of hosted calls.
MCP_IN_PROGRESS, MCP_COMPLETED, MCP_FAILED = _progress(
    "response.mcp_call.in_progress", "response.mcp_call.completed", "response.mcp_call.failed"
)
LIST_IN_PROGRESS, LIST_COMPLETED, LIST_FAILED = _progress(
    "response.mcp_list_tools.in_progress", "response.mcp_list_tools.completed", "response.mcp_list_tools.failed"
)
CODE_IN_PROGRESS, CODE_INTERPRETING, CODE_COMPLETED = _progress(
    "response.code_interpreter_call.in_progress",
    "response.code_interpreter_call.interpreting",
    "response.code_interpreter_call.completed",
)
WEB_IN_PROGRESS, WEB_SEARCHING, WEB_COMPLETED = _progress(
    "response.web_search_call.in_progress", "response.web_search_call.searching", "response.web_search_call.completed"
)
FILE_IN_PROGRESS, FILE_SEARCHING, FILE_COMPLETED = _progress(
    "response.file_search_call.in_progress",
    "response.file_search_call.searching",
    "response.file_search_call.completed",
)
IMAGE_IN_PROGRESS, IMAGE_GENERATING, IMAGE_COMPLETED = _progress(
    "response.image_generation_call.in_progress",
    "response.image_generation_call.generating",
    "response.image_generation_call.completed",
)
PARTIAL_IMAGE: Final = _event(
    "response.image_generation_call.partial_image",
    Scope.ITEM,
    ("partial_image_b64", "partial_image_index", "background", "output_format", "quality", "size"),
    frozenset({"background", "output_format", "quality", "size"}),
)

# A patch, whose diff is a text of its item. No release of the `openai` package types these two events; the API sends them.
PATCH_DELTA, PATCH_DONE = _text("response.apply_patch_call_operation_diff", "diff")

# The commands of a shell call are parts of it, and so are the outputs of its commands.
COMMAND_ADDED: Final = _event("response.shell_call_command.added", Scope.COMMAND, ("command",), after=Place.PART)
COMMAND_DELTA: Final = _event("response.shell_call_command.delta", Scope.COMMAND, ("delta",), before=Place.PART, after=Place.PART)
COMMAND_DONE: Final = _event("response.shell_call_command.done", Scope.COMMAND, ("command",), before=Place.PART)
OUTPUT_DELTA: Final = _event("response.shell_call_output_content.delta", Scope.COMMAND_OUTPUT, ("delta",))
OUTPUT_DONE: Final = _event("response.shell_call_output_content.done", Scope.COMMAND_OUTPUT, ("output",))

(COMPACTING,) = _progress("response.compaction.compacting")

# Events of no item: read by the checker and the conversions, never emitted.
for _name, _scope, _fields, _optional in (
    ("response.audio.delta", Scope.STREAM, ("delta",), ()),
    ("response.audio.done", Scope.STREAM, (), ()),
    ("response.audio.transcript.delta", Scope.STREAM, ("delta",), ()),
    ("response.audio.transcript.done", Scope.STREAM, (), ()),
):
    _event(_name, _scope, _fields, frozenset(_optional))

TERMINAL: Final = frozenset({COMPLETED.name, INCOMPLETE.name, FAILED.name})
"""The events of which exactly one ends a stream (rule R3)."""
