"""An independent validator of full streams, written from the rules of docs/evidence/rules.md alone.

It does not import the lifecycles, the driver, the other judges or the SDK. It states the rules as regular expressions over the
names of an item's events and as equations between values, so that it does not repeat an error of the lifecycles. The types of
fields (R14) are those of the events, which a test compares with the SDK's. It checks all rules that one stream can break,
except framing (R5), because it reads event bodies instead of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from attrs import define, frozen

from interlock.events.items import ITEMS
from interlock.events.json import elements, members
from interlock.events.rulebook import Finding
from interlock.events.shapes import Mismatch, param_of
from interlock.events.stream import EVENTS, event_mismatches

# The order of the events of each kind of item, and where their contents are, by hand.

_TEXT: Final = "content_part.added (output_text.delta | output_text.annotation.added)* output_text.done content_part.done"
_REFUSAL: Final = "content_part.added refusal.delta* refusal.done content_part.done"
_REASONED: Final = "content_part.added reasoning_text.delta* reasoning_text.done content_part.done"
_SUMMARIZED: Final = (
    "reasoning_summary_part.added reasoning_summary_text.delta* reasoning_summary_text.done reasoning_summary_part.done"
)
_COMMAND: Final = "shell_call_command.added shell_call_command.delta* shell_call_command.done"
_ANY_PARTS: Final = f"({_TEXT} | {_REFUSAL} | {_REASONED} | {_SUMMARIZED} | {_COMMAND})*"
"""A sequence of complete parts (R8)."""

WHOLE: Final = frozenset(
    {
        *("apply_patch_call_output", "local_shell_call_output", "computer_call_output", "tool_search_output"),
        *("program_output", "function_call_output", "custom_tool_call_output", "mcp_approval_response", "additional_tools"),
        *("agent_message", "multi_agent_call", "multi_agent_call_output"),
    }
)
"""The kinds of items that may be added with a result and any status; they have no events between `added` and `done`."""

TEXT_FIELDS: Final = {
    "function_call": "arguments",
    "mcp_call": "arguments",
    "custom_tool_call": "input",
    "code_interpreter_call": "code",
    "apply_patch_call": "diff",
}
"""The field that holds the text, by kind of item whose text has no parts (R9)."""
SERVER_MADE: Final = frozenset({"mcp_list_tools", "shell_call_output", "compaction"})
"""The kinds that only the server makes; the model writes none of their content."""

_CODE: Final = "added code_interpreter_call.in_progress code_interpreter_call_code.delta* code_interpreter_call_code.done"
_MCP: Final = "added mcp_call.in_progress (mcp_call_arguments.delta | mcp_call.in_progress)* > mcp_call_arguments.done"
"""An approved call may be in progress twice; `r10_lifecycle` counts these events."""
_ARGUMENTS: Final = "added function_call_arguments.delta* function_call_arguments.done done"
_INPUT: Final = "added custom_tool_call_input.delta* custom_tool_call_input.done done"
_LIST: Final = "added mcp_list_tools.in_progress"
_IMAGE: Final = "added image_generation_call.in_progress"
_IMAGES: Final = "image_generation_call.generating image_generation_call.partial_image*"
_MESSAGE: Final = f"added ({_TEXT} | {_REFUSAL})* done"
_REASONING: Final = f"added ({_REASONED} | {_SUMMARIZED})* done"


def _searches(call: str) -> dict[str | None, str]:
    """Return the orders of events of a hosted search, by final status."""
    return {
        "completed": f"added {call}.in_progress > {call}.searching {call}.completed done",
        "failed": f"added {call}.in_progress ({call}.searching)? done",
        "incomplete": f"added {call}.in_progress done",
    }


_PATCH: Final = (
    "added (apply_patch_call_operation_diff.delta apply_patch_call_operation_diff.delta* apply_patch_call_operation_diff.done"
    " | apply_patch_call_operation_diff.done)? done"
)
_SHELL: Final = f"added ({_COMMAND})* done"
_PRINTED: Final = "added (shell_call_output_content.delta* shell_call_output_content.done)* done"
_NO_EVENTS: Final = "added done"
_ENDS: Final = ("completed", "incomplete")
_ORDERS: Final[dict[str, dict[str | None, str]]] = {
    "reasoning": {"completed": _REASONING, "incomplete": _REASONING, None: _REASONING},
    "message": {"completed": _MESSAGE, "incomplete": _MESSAGE},
    "function_call": {"completed": _ARGUMENTS, "incomplete": _ARGUMENTS},
    "custom_tool_call": {"completed": _INPUT, "incomplete": _INPUT, None: _INPUT},
    "mcp_call": {
        "completed": f"{_MCP} mcp_call.completed done",
        "failed": f"{_MCP} mcp_call.failed done",
        "incomplete": f"{_MCP} done",
        None: f"{_MCP} (mcp_call.completed | mcp_call.failed)? done",
    },
    "mcp_list_tools": {None: f"{_LIST} (mcp_list_tools.completed | mcp_list_tools.failed) done"},
    "mcp_approval_request": {None: "added done"},
    "code_interpreter_call": {
        "completed": f"{_CODE} > code_interpreter_call.interpreting code_interpreter_call.completed done",
        "failed": f"{_CODE} (code_interpreter_call.interpreting)? done",
        "incomplete": f"{_CODE} done",
    },
    "web_search_call": _searches("web_search_call"),
    "file_search_call": _searches("file_search_call"),
    "image_generation_call": {
        "completed": f"{_IMAGE} > {_IMAGES} image_generation_call.completed done",
        "failed": f"{_IMAGE} ({_IMAGES})? done",
    },
    "apply_patch_call": {"completed": _PATCH, "in_progress": _PATCH},
    "shell_call": dict.fromkeys(_ENDS, _SHELL),
    "shell_call_output": dict.fromkeys(_ENDS, _PRINTED),
    "local_shell_call": dict.fromkeys(_ENDS, _NO_EVENTS),
    "computer_call": dict.fromkeys(_ENDS, _NO_EVENTS),
    "tool_search_call": dict.fromkeys(_ENDS, _NO_EVENTS),
    "program": {None: _NO_EVENTS},
    "compaction": {None: "added > compaction.compacting? done"},
    **{kind: dict.fromkeys((None, "in_progress", "completed", "incomplete", "failed"), _NO_EVENTS) for kind in sorted(WHOLE)},
}
"""The order of events by kind of item and final status, which is None for an item without one.

An expression has event names without the leading `response.`; `added` and `done` stand for `response.output_item.added` and
`.done`. `>` precedes the events that the tool of a hosted call causes: the first starts the tool, and the last before `done`
completes it.
"""

_MORE_EVENTS: Final = {
    "mcp_list_tools": "mcp_list_tools.completed mcp_list_tools.failed",
    "shell_call_output": "shell_call_output_content.delta shell_call_output_content.done",
}
"""The events that a tool causes which does not start with an event, by kind of item."""

# The orders as regular expressions: each name becomes a letter, so an item's events form a word.

_NAME: Final = r"[a-z_.]+"
"""Matches the name of an event in an expression."""
_NAMES: Final = [name for name in EVENTS if name.count(".") > 1]
LETTERS: Final = {name: chr(0xE000 + number) for number, name in enumerate(_NAMES)}
"""The letter of each event of an item, from Unicode's private use area."""
_SHORT: Final = {name.removeprefix("response.").removeprefix("output_item."): letter for name, letter in LETTERS.items()}
_NAME_OF: Final = {letter: name for name, letter in _SHORT.items()}


def spell(word: str) -> str:
    """Return the event names of a word."""
    return " · ".join(_NAME_OF[letter] for letter in word)


def _letter(name: str) -> str:
    if name not in _SHORT:
        raise ValueError(f"a row of _ORDERS names 'response.{name}', which is not an event")
    return _SHORT[name]


def _of_tool(order: str) -> list[str]:
    """Return the names of the events that a tool causes, and `done`; none for an order without a tool."""
    return re.findall(_NAME, order.partition(">")[2])


def _expression(text: str) -> re.Pattern[str]:
    """Compile an expression over event names."""
    return re.compile(re.sub(r"[\s>]+", "", re.sub(_NAME, lambda name: _letter(name[0]), text)))


PARTS: Final = _expression(_ANY_PARTS)
"""A sequence of complete parts (R8)."""
IN_PARTS: Final = str.maketrans(dict.fromkeys(set(LETTERS.values()) - {_SHORT[name] for name in re.findall(_NAME, _ANY_PARTS)}))
"""A table for `str.translate` that removes all letters except part events."""

ORDERS: Final = {kind: {status: _expression(text) for status, text in row.items()} for kind, row in _ORDERS.items()}
"""The order of events by kind of item and final status, which is None for an item without one."""

RUNNING: Final = {
    kind: tuple(_letter(name) for name in dict.fromkeys((names[0], names[-1])))
    for kind, row in _ORDERS.items()
    if (names := _of_tool(row.get("completed", row.get(None, "")))[:-1])
}
"""The event that starts the tool of a hosted call, and the event that completes it if there is one, by kind (R11)."""

TOOL_EVENTS: Final = {
    kind: {_letter(name) for order in _ORDERS[kind].values() for name in _of_tool(order)} for kind in RUNNING
} | {kind: {_letter(name) for name in f"{names} done".split()} for kind, names in _MORE_EVENTS.items()}
"""The events that an item's tool causes, and `done`, by kind; only these may come after a later item begins."""


# A stream in OpenAI's dialect, split into its items.

JsonObject: TypeAlias = Mapping[str, Any]
"""A JSON object. Its values are `Any`: a type checker does not find a rule that reads a type which R14 does not check."""

ADDED = LETTERS["response.output_item.added"]
DONE = LETTERS["response.output_item.done"]
TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})


@define
class ItemView:
    """The events of one output index."""

    index: int
    kind: str
    added: JsonObject
    """The item in the first `response.output_item.added`."""
    done: JsonObject | None
    """The item in the last `response.output_item.done`."""
    events: list[tuple[int, JsonObject]]
    """The events, each with its position in the stream."""
    word: str
    """The letters of the events."""
    unread_added: Collection[str] = ()
    """The fields of `added` that R14 refuses, and that no other rule reads."""
    unread: Collection[str] = ()
    """The fields of `done` that R14 refuses, and that no other rule reads."""

    def lacks(self, field: str) -> bool:
        """Return whether R14 refuses a field of `added` or `done`."""
        return field in self.unread_added or field in self.unread

    @property
    def texts(self) -> list[str]:
        """The deltas that are text."""
        return [body["delta"] for _, body in self.events if isinstance(body.get("delta"), str)]

    def about(self, subject: str) -> list[tuple[int, JsonObject]]:
        """Return the events `response.SUBJECT.*`, each with its position in the stream."""
        return [(place, body) for place, body in self.events if body["type"].startswith(f"response.{subject}.")]

    @property
    def at(self) -> int:
        """The position of its first event."""
        return self.events[0][0]

    @property
    def end(self) -> int:
        """The position of its last event."""
        return self.events[-1][0]


@frozen
class Stream:
    """A full stream."""

    events: Sequence[JsonObject]
    names: Sequence[str]
    """The types of the events; empty for a body without a type."""
    items: Sequence[ItemView]
    """The items, in the order in which they were added."""
    orphans: Sequence[tuple[int, JsonObject]]
    """The events that precede the `added` of their item, each with its position."""

    @classmethod
    def of(cls, events: Sequence[JsonObject], unread: Mapping[int, Collection[str]] = MappingProxyType({})) -> Stream:
        """Split a stream into its items; an event without an integer `output_index` belongs to none.

        `unread` has the fields to leave out of the item in an event, by the position of the event.
        """
        events = [_without(body, unread.get(place, ())) for place, body in enumerate(events)]
        names = [name if isinstance(name := body.get("type"), str) else "" for body in events]
        items: dict[int, ItemView] = {}
        orphans: list[tuple[int, JsonObject]] = []
        for place, (name, body) in enumerate(zip(names, events, strict=True)):
            letter, index = LETTERS.get(name), body.get("output_index")
            if letter is None or not isinstance(index, int):
                continue
            item = items.get(index)
            if item is None and letter != ADDED:
                orphans.append((place, body))
                continue
            if item is None:
                about = members(body.get("item"))
                item = items[index] = ItemView(index, str(about.get("type")), about, None, [], "", unread.get(place, ()))
            item.events.append((place, body))
            item.word += letter
            if letter == DONE:
                item.done, item.unread = members(body.get("item")), unread.get(place, ())
        return cls(events, names, list(items.values()), orphans)


def _without(body: JsonObject, fields: Collection[str]) -> JsonObject:
    """Return an event without some fields of its item."""
    return {**body, "item": _rest(body["item"], fields)} if fields else body


def _rest(item: object, fields: Collection[str]) -> JsonObject:
    return {name: value for name, value in members(item).items() if name not in fields}


# The rules. Those in `ANY_SHAPE` accept any JSON; those in `SOUND_SHAPE` rely on the fields and types that R14 checks. It checks
# none deep inside a response (see `event_mismatches`), so they test these types themselves.

OracleRule: TypeAlias = Callable[[Stream], Iterator[Finding]]

_STABLE: Final = ("id", "type", "call_id", "name", "namespace", "server_label", "container_id", "role")
_RUNS_AGAIN: Final = LETTERS["response.mcp_call.in_progress"]
_REASONS: Final = ("max_output_tokens", "max_messages", "content_filter", "steered")
_OPENING: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
_STATUSES: Final = {
    "response.created": {"queued", "in_progress"},
    "response.queued": {"queued"},
    "response.in_progress": {"in_progress"},
    "response.completed": {"completed"},
    "response.incomplete": {"incomplete", "cancelled"},
    "response.failed": {"failed"},
}
_KEEPALIVE: Final = "keepalive"
_BEGINS: Final = frozenset({"response.content_part.added", "response.reasoning_summary_part.added"})
_ANNOTATION: Final = "response.output_text.annotation.added"


def r1_opening(stream: Stream) -> Iterator[Finding]:
    """R1: created and in_progress come first, once each; queued may come between them."""
    opening = [name for name in stream.names if name in _OPENING]
    expected = ["response.created", "response.in_progress"]
    if "response.queued" in opening:
        expected.insert(1, "response.queued")
    first = [name for name in stream.names if name != _KEEPALIVE][: len(expected)]
    if first != expected:
        yield Finding("R1", f"the stream opens with {first}", event=0)
    elif opening != expected:
        yield Finding("R1", "an opening event comes again", event=len(stream.events))


def r2_numbering(stream: Stream) -> Iterator[Finding]:
    """R2: sequence_number counts the events from 0."""
    for place, body in enumerate(stream.events):
        number = body.get("sequence_number")
        if type(number) is not int or number != place:
            yield Finding("R2", f"sequence_number is {number!r} instead of {place}", event=place)


def r3_ending(stream: Stream) -> Iterator[Finding]:
    """R3: the only terminal event comes last."""
    ends = [place for place, name in enumerate(stream.names) if name in TERMINAL]
    if not ends:
        yield Finding("R3", "there is no terminal event", event=len(stream.events))
    elif ends != [len(stream.events) - 1]:
        yield Finding("R3", "something follows a terminal event", event=ends[0] + 1)


def r3_status(stream: Stream) -> Iterator[Finding]:
    """R1, R3: the name of the event agrees with the status of the response."""
    for place, name in enumerate(stream.names):
        if name in _STATUSES and (status := stream.events[place]["response"].get("status")) not in _STATUSES[name]:
            yield Finding("R1" if name in _OPENING else "R3", f"the response of {name} has the status {status}", event=place)


def r4_failure(stream: Stream) -> Iterator[Finding]:
    """R4: only a failed response has an error; an incomplete or failed one has no open item; no item follows an error event."""
    response, last = _final(stream), len(stream.events) - 1
    if response is None:
        return
    failed, error = response.get("status") == "failed", response.get("error")
    if failed and not (error and _is_nonblank(error.get("code")) and _is_nonblank(error.get("message"))):
        yield Finding("R4", "the failed response lacks error.code or error.message", event=last)
    if not failed and error is not None:
        yield Finding("R4", f"a response with an error has the status {response.get('status')}", event=last)
    if "error" in stream.names:
        place = stream.names.index("error")
        if not failed:
            yield Finding("R4", f"there is an error event, but the response ends {response.get('status')}", event=place)
        if any(item.at > place for item in stream.items):
            yield Finding("R4", "an item begins after an error event", event=place)
    if response.get("status") != "completed":
        for item in stream.items:
            if item.done is None:
                yield Finding("R4", f"item {item.index} is left open", event=last)


def r4a_silence(stream: Stream) -> Iterator[Finding]:
    """R4a: keepalive comes after created; R3 checks that it comes before the terminal event."""
    if stream.names and stream.names[0] == _KEEPALIVE:
        yield Finding("R4a", "keepalive comes before the response is created", event=0)


def r6_index(stream: Stream) -> Iterator[Finding]:
    """R6: output_index is dense from 0, in the order of the added events."""
    for position, item in enumerate(stream.items):
        if item.index != position:
            yield Finding("R6", f"output_index is {item.index} instead of {position}", event=item.at)


def r7_bracket(stream: Stream) -> Iterator[Finding]:
    """R7: an item has one added and one done event, with its other events between them."""
    for place, body in stream.orphans:
        yield Finding("R7", f"{body['type']} comes before its item is added", event=place)
    for item in stream.items:
        if item.word.count(ADDED) != 1:
            yield Finding("R7", f"item {item.index} is added {item.word.count(ADDED)} times", event=item.end)
        if item.word.count(DONE) != 1:
            yield Finding("R7", f"item {item.index} is done {item.word.count(DONE)} times", event=len(stream.events))
        elif item.word[-1] != DONE:
            yield Finding("R7", f"{spell(item.word[-1])} comes after item {item.index} was done", event=item.end)


def r7_identity(stream: Stream) -> Iterator[Finding]:
    """R7: an item's ids, type, names and role do not change, nor does the id of the response."""
    for item in stream.items:
        for place, body in item.events:
            about = body.get("item")
            if about is None:
                same = body.get("item_id", item.added["id"]) == item.added["id"]
                named = "name" in item.unread_added or body.get("name", item.added.get("name")) == item.added.get("name")
                if not same or not named:
                    yield Finding("R7", f"{body['type']} has another id or name than item {item.index}", event=place)
            elif any(about.get(field) != item.added.get(field) for field in _STABLE if not item.lacks(field)):
                yield Finding("R7", f"item {item.index} has another id, type, name or role than in its added event", event=place)
    responses = [(place, body["response"]["id"]) for place, body in enumerate(stream.events) if "response" in body]
    for place, response_id in responses:
        if response_id != responses[0][1]:
            yield Finding("R7", "the id of the response has changed", event=place)


def r7_ids(stream: Stream) -> Iterator[Finding]:
    """R7: ids are unique and have the prefix of their kind."""
    ids: set[str] = set()
    for item in stream.items:
        for name, prefix in (("id", f"{ITEMS[item.kind].prefix}_"), ("call_id", "call_")):
            identity = item.added.get(name)
            if identity is None:
                continue
            if not identity.startswith(prefix):
                yield Finding("R7", f"the {name} {identity!r} of the {item.kind} does not begin with {prefix}", event=item.at)
            shared = name == "call_id" and item.kind.endswith("_output")  # an output has the id of its call
            if identity in ids and not shared:
                yield Finding("R7", f"the {name} {identity!r} is used twice", event=item.at)
            ids.add(identity)


def r8_parts(stream: Stream) -> Iterator[Finding]:
    """R8: parts are complete and do not overlap."""
    for item in stream.items:
        in_parts = item.word.translate(IN_PARTS)
        if item.done is not None and not PARTS.fullmatch(in_parts):
            yield Finding("R8", f"the parts of item {item.index} have the events {spell(in_parts)}", event=item.at)


def _of_item(item: JsonObject, field: str) -> object:
    """Return the text of an item. A diff is in the `operation`, which has none if it deletes a file."""
    return members(item.get("operation")).get("diff", "") if field == "diff" else item.get(field)


@frozen
class _PartEvents:
    """The events of one part, each with its position in the stream."""

    events: list[tuple[int, JsonObject]]

    @property
    def added(self) -> JsonObject:
        return self.events[0][1]

    @property
    def text_done(self) -> JsonObject:
        """The event with its full text."""
        return self.events[-2][1]

    @property
    def done(self) -> JsonObject:
        return self.events[-1][1]

    @property
    def deltas(self) -> list[JsonObject]:
        return [body for _, body in self.events if "delta" in body]

    @property
    def annotations(self) -> list[JsonObject]:
        return [body for _, body in self.events if body["type"] == _ANNOTATION]

    @property
    def end(self) -> int:
        return self.events[-1][0]


def _parts(item: ItemView) -> list[_PartEvents]:
    """Split an item into its parts; empty if they are out of order."""
    if not PARTS.fullmatch(item.word.translate(IN_PARTS)):
        return []
    parts: list[_PartEvents] = []
    for place, body in item.events:
        if body["type"] in _BEGINS:
            parts.append(_PartEvents([]))
        if "content_index" in body or "summary_index" in body:
            parts[-1].events.append((place, body))
    return parts


def _text_of(part: JsonObject) -> str:
    """Return the text of a part or of its `<type>.done` event."""
    text: str = part["refusal"] if "refusal" in part else part["text"]
    return text


def r8_indices(stream: Stream) -> Iterator[Finding]:
    """R8: content_index and summary_index count from 0 in an item, annotation_index in a part."""
    for item in stream.items:
        counts = {"content_index": 0, "summary_index": 0}
        for part in _parts(item):
            name = "content_index" if "content_index" in part.added else "summary_index"
            for place, body in part.events:
                if body.get(name) != counts[name]:
                    yield Finding("R8", f"{name} is {body.get(name)} instead of {counts[name]}", event=place)
            counts[name] += 1
            numbers = [body["annotation_index"] for body in part.annotations]
            if numbers != list(range(len(numbers))):
                yield Finding("R8", f"the annotations of a part are numbered {numbers}", event=part.end)


def r9_text(stream: Stream) -> Iterator[Finding]:
    """R9: the deltas, the done event, the part and the item have the same text."""
    for item in stream.items:
        if field := TEXT_FIELDS.get(item.kind):
            yield from _whole_text(item, field)
        parts = _parts(item)
        for part in parts:
            yield from _part_text(part)
        for name, event in () if item.kind in WHOLE else (("content", "content_part"), ("summary", "reasoning_summary_part")):
            done = [part.done["part"] for part in parts if part.done["type"] == f"response.{event}.done"]
            if item.added.get(name):
                yield Finding("R9", f"item {item.index} has {name} before its first part", event=item.at)
            if item.done is not None and name not in item.unread and (item.done.get(name) or []) != done:
                yield Finding("R9", f"the {name} of item {item.index} is not the parts that were done", event=item.end)
        yield from _commands(item)
        yield from _print(item)


def _commands(item: ItemView) -> Iterator[Finding]:
    """R8, R9: compare the commands of a shell call with their deltas."""
    if item.kind != "shell_call":
        return
    if members(item.added.get("action")).get("commands"):
        yield Finding("R9", f"item {item.index} has commands before its first part", event=item.at)
    commands: list[str] = []
    for place, body in item.about("shell_call_command"):
        match body["type"].rpartition(".")[2]:
            case "added":
                commands.append(body["command"])
                if body["command"]:
                    yield Finding("R9", "a command is added with text", event=place)
            case "delta" if commands:
                commands[-1] += body["delta"]
            case "done" if commands and body["command"] != commands[-1]:
                yield Finding("R9", "a command differs from its deltas", event=place)
            case _:
                pass
        if body["command_index"] != len(commands) - 1:
            yield Finding("R8", f"command_index is {body['command_index']} instead of {len(commands) - 1}", event=place)
    done = None if "action" in item.unread else item.done
    if done is not None and elements(members(done.get("action")).get("commands")) != commands:
        yield Finding("R9", f"the commands of item {item.index} are not the commands that were done", event=item.end)


def _print(item: ItemView) -> Iterator[Finding]:
    """R8, R9: compare the outputs of a shell call with the deltas of those outputs."""
    if item.kind != "shell_call_output":
        return
    whole: list[object] = []
    printed, count = {"stdout": "", "stderr": ""}, 0
    for place, body in item.about("shell_call_output_content"):
        if body["command_index"] != count:
            yield Finding("R8", f"command_index is {body['command_index']} instead of {count}", event=place)
        if "delta" in body:
            printed = {name: text + str(body["delta"].get(name, "")) for name, text in printed.items()}
            continue
        for name, text in printed.items():
            if text and text != "".join([str(members(one).get(name, "")) for one in body["output"]]):
                yield Finding("R9", f"the {name} of a command is not what it printed", event=place)
        whole += body["output"]
        printed, count = {"stdout": "", "stderr": ""}, count + 1
    if count and item.done is not None and "output" not in item.unread and item.done.get("output") != whole:
        yield Finding("R9", f"the output of item {item.index} is not that of its commands", event=item.end)


def _whole_text(item: ItemView, field: str) -> Iterator[Finding]:
    """Compare the deltas of an item without parts with its text."""
    text = "".join(item.texts)
    if _of_item(item.added, field):
        yield Finding("R9", f"item {item.index} has {field} before its deltas", event=item.at)
    for place, body in item.events:
        if field in body and body[field] != text:
            yield Finding("R9", f"{body['type']} differs from the deltas", event=place)
    readable = ("operation" if field == "diff" else field) not in item.unread
    if item.done is not None and readable and _of_item(item.done, field) != text:
        yield Finding("R9", f"the {field} of item {item.index} differs from the deltas", event=item.end)


def _part_text(part: _PartEvents) -> Iterator[Finding]:
    """Compare the deltas of a part with its text."""
    text = "".join([body["delta"] for body in part.deltas])
    first, done = part.added["part"], part.done["part"]
    if first["type"] != done["type"] or first["type"] != _part_type(part.text_done["type"]):
        yield Finding("R9", f"a part begins as {first['type']} and ends as {done['type']}", event=part.end)
        return
    if _text_of(first) or first.get("annotations") or first.get("logprobs"):
        yield Finding("R9", "a part is not empty when it is added", event=part.events[0][0])
    if _text_of(part.text_done) != text:
        yield Finding("R9", f"{part.text_done['type']} differs from the deltas", event=part.end - 1)
    if _text_of(done) != text:
        yield Finding("R9", "the part differs from the deltas", event=part.end)
    if done.get("annotations", []) != [body["annotation"] for body in part.annotations]:
        yield Finding("R9", "the part does not have the annotations that were added", event=part.end)


def _part_type(event: str) -> str:
    """Return the part type for the name of a `<type>.done` event."""
    return event.split(".")[1].replace("reasoning_summary_text", "summary_text")


def r10_lifecycle(stream: Stream) -> Iterator[Finding]:
    """R10: the events of an item have the order of its kind and its final status."""
    for item in stream.items:
        if item.added.get("status", "in_progress") != "in_progress" and item.kind not in WHOLE:
            yield Finding("R10", f"item {item.index} begins with the status {item.added['status']}", event=item.at)
        if item.done is None:
            continue
        status = item.done.get("status")
        orders = [order for end, order in ORDERS[item.kind].items() if end == status or "status" in item.unread]
        if not orders:
            yield Finding("R10", f"{item.kind} cannot end with the status {status}", event=item.end)
        elif not any(order.fullmatch(item.word) for order in orders):
            yield Finding(
                "R10", f"{item.kind} with the status {status} cannot have the events {spell(item.word)}", event=item.end
            )
        if item.word.count(_RUNS_AGAIN) > (2 if item.added.get("approval_request_id") else 1):
            yield Finding("R10", f"item {item.index} is in progress again", event=item.end)


def r10_one_at_a_time(stream: Stream) -> Iterator[Finding]:
    """R10: when an item begins, earlier items are done or wait for their tools."""
    for item, later in zip(stream.items, stream.items[1:], strict=False):
        of_tool = TOOL_EVENTS.get(item.kind, "")
        for (place, body), letter in zip(item.events, item.word, strict=True):
            if place > later.at and letter not in of_tool:
                yield Finding("R10", f"{body['type']} of item {item.index} comes after item {later.index} began", event=place)


def r11_truth(stream: Stream) -> Iterator[Finding]:
    """R11: a tool runs before it completes; a call is added without its result, and done with it."""
    for item in stream.items:
        if item.kind in RUNNING:
            running, *completions = RUNNING[item.kind]
            if any(letter in item.word and running not in item.word.split(letter)[0] for letter in completions):
                yield Finding("R11", f"item {item.index} completes without {spell(running)}", event=item.end)
        readable = {"output", "error"}.isdisjoint(item.unread)
        if item.done is not None and readable and not _has_its_result(item.done, item.word):
            yield Finding("R11", f"the result of item {item.index} does not fit its status or its events", event=item.end)
        results = ("output", "outputs", "results", "result", "error", "tools")
        if item.kind not in WHOLE and any(item.added.get(field) for field in results):
            yield Finding("R11", f"item {item.index} has a result before it ran", event=item.at)


def _has_its_result(item: JsonObject, word: str) -> bool:
    """Return whether a finished item has the result or the error that its status, if it has one, and its events imply."""
    kind, error = item["type"], item.get("error")
    if f"response.{kind}.failed" not in LETTERS or "error" not in ITEMS[kind].__struct_fields__:
        return True
    ends = [status for status in ("completed", "failed") if LETTERS[f"response.{kind}.{status}"] in word]
    status = item.get("status", next(iter(ends), None))
    if status == "failed":
        return error is not None
    has_output = status == "completed" and "output" in ITEMS[kind].__struct_fields__
    return error is None and (item.get("output") is not None) == has_output


def r12_cut(stream: Stream) -> Iterator[Finding]:
    """R12: only the last item may be incomplete; an incomplete response has a reason or ends in an unfinished call."""
    response, last = _final(stream), len(stream.events) - 1
    if response is None:
        return
    details = response.get("incomplete_details")
    if response.get("status") == "incomplete":
        last_item = stream.items[-1].done if details is None and stream.items else None
        ends_in_call = last_item is not None and (
            last_item["type"] == "program"  # which has no status
            or (last_item["type"].endswith("_call") and last_item.get("status") not in (None, "completed"))
            or "status" in stream.items[-1].unread
        )
        if not ends_in_call and members(details).get("reason") not in _REASONS:
            yield Finding("R12", "the incomplete response lacks its reason", event=last)
    elif details is not None:
        yield Finding("R12", f"a response with incomplete_details has the status {response.get('status')}", event=last)
    for item in stream.items:
        if item.done is not None and item.done.get("status") == "incomplete":
            if item.index != len(stream.items) - 1:
                yield Finding("R12", f"item {item.index} is incomplete, but not the last", event=item.end)
            if response.get("status") == "completed":
                yield Finding("R12", f"the response is completed, but item {item.index} is incomplete", event=last)


def r13_final(stream: Stream) -> Iterator[Finding]:
    """R13: the final response has usage and the items of the done events; the opening ones have no output."""
    response, last = _final(stream), len(stream.events) - 1
    if response is None:
        return
    done = [item for item in stream.items if item.done is not None]
    output = [_rest(one, item.unread) for one, item in zip(response["output"], done, strict=False)]
    if len(response["output"]) != len(done) or output != [item.done for item in done]:
        yield Finding("R13", "the output of the final response is not the items that were done", event=last)
    usage = response.get("usage", ...)
    if usage is ...:
        yield Finding("R13", "there is no usage", event=last)
    elif usage is None:  # nobody counted the tokens
        pass
    elif type(usage["input_tokens_details"].get("cached_tokens")) is not int or (
        type(usage["output_tokens_details"].get("reasoning_tokens")) is not int
    ):
        yield Finding("R13", "usage lacks its details", event=last)
    elif usage["total_tokens"] != usage["input_tokens"] + usage["output_tokens"]:
        yield Finding("R13", "usage does not add up", event=last)
    for place, name in enumerate(stream.names):
        if name in _OPENING and stream.events[place]["response"]["output"]:
            yield Finding("R13", "the response has output before the first item", event=place)


def r14_fields(
    events: Sequence[JsonObject], valid: int = 0
) -> tuple[list[Finding], list[Finding], Mapping[int, Collection[str]]]:
    """R14: compare all events but the first `valid` ones with their types.

    Returns:
        The findings without which the rules in `SOUND_SHAPE` can read the stream; unknown fields, which they ignore, and
        other findings in a field of an item; and these fields, by the position of the event.
    """
    malformed: list[Finding] = []
    ignored: list[Finding] = []
    unread: dict[int, set[str]] = {}
    for place, body in enumerate(events[valid:], valid):
        name = body.get("type")
        event = EVENTS.get(name) if isinstance(name, str) else None
        if event is None:
            malformed.append(Finding("R14", f"unknown event {name!r}", event=place))
            continue
        for mismatch in event_mismatches(event, body):
            match mismatch.kind, mismatch.path:
                case ("unknown", (_,) | (_, _)):
                    findings = ignored
                case (_, ("item", str(field), *_)) if field not in {"id", "type"}:
                    findings = ignored
                    unread.setdefault(place, set()).add(field)
                case _:
                    findings = malformed
            findings.append(Finding("R14", _wrong(mismatch), event=place))
    return malformed, ignored, unread


def _wrong(mismatch: Mismatch) -> str:
    field = param_of(mismatch.path)
    match mismatch.kind:
        case "unknown":
            return f"unknown field {field}"
        case "missing":
            return f"{field} is missing"
        case _:
            return f"{field} cannot be {mismatch.value!r:.80}"


def r15_logprobs(stream: Stream) -> Iterator[Finding]:
    """R15: output text has logprobs in every delta and done event; they agree, and their tokens, if any, make up the text."""
    for item in stream.items:
        for place, body in item.events:
            if body["type"] in {"response.output_text.delta", "response.output_text.done"}:
                logprobs = body.get("logprobs")
                if logprobs is None or not all(_is_logprob(entry) for entry in logprobs):
                    yield Finding("R15", f"{body['type']} has no valid logprobs", event=place)
                    return
        for part in _parts(item):
            if part.text_done["type"] == "response.output_text.done":
                yield from _part_logprobs(part)


def _is_logprob(entry: object) -> bool:
    fields = members(entry)
    return (
        isinstance(fields.get("token"), str)
        and type(fields.get("logprob")) in {int, float}
        and all(isinstance(fields.get(name), list | None) for name in ("bytes", "top_logprobs"))
        and all(type(byte) is int and byte in range(256) for byte in elements(fields.get("bytes")))
        and all(map(_is_logprob, elements(fields.get("top_logprobs"))))
    )


def _tokens(entries: Iterable[object]) -> list[tuple[object, object]]:
    """Return the token and value of each log probability; they must agree in all events of a part."""
    return [(fields.get("token"), fields.get("logprob")) for fields in map(members, entries)]


def _part_logprobs(part: _PartEvents) -> Iterator[Finding]:
    """Compare the log probabilities of a part's deltas with its text, its `<type>.done` event and the part itself."""
    entries = [entry for body in part.deltas for entry in body["logprobs"]]
    of_part = part.done["part"].get("logprobs")
    wholes = (part.text_done["logprobs"], entries if of_part is None else of_part)
    if any(_tokens(whole) != _tokens(entries) for whole in wholes):
        yield Finding("R15", "the logprobs of a part are not those of its deltas", event=part.end)
    if entries and not _rebuilds(entries, _text_of(part.text_done)):
        yield Finding("R15", "the tokens of the logprobs do not make up the text", event=part.end)


def _rebuilds(entries: list[JsonObject], text: str) -> bool:
    """Return whether tokens make up a text; a token that ends inside a character needs its `bytes`."""
    if "".join([entry["token"] for entry in entries]) == text:
        return True
    data = b"".join([bytes(entry.get("bytes") or ()) or entry["token"].encode() for entry in entries])
    return data.decode(errors="replace") == text


def r18_empties(stream: Stream) -> Iterator[Finding]:
    """R18: no message or reasoning item has blank text or a blank first delta; reasoning may have no parts."""
    for item in stream.items:
        if item.kind not in {"message", "reasoning"} or item.done is None or {"content", "summary"}.intersection(item.unread):
            continue
        first = next(iter(item.texts), "")
        parts = [*elements(item.done.get("content")), *elements(item.done.get("summary"))]
        if item.kind == "reasoning" and not parts:
            continue  # its content is encrypted or omitted
        if not "".join([_text_of(members(part)) for part in parts]).strip():
            yield Finding("R18", f"item {item.index} is a {item.kind} without text", event=item.at)
        elif not first.strip():
            yield Finding("R18", f"item {item.index} begins with white space alone", event=item.at)


def _final(stream: Stream) -> JsonObject | None:
    """Return the response of the terminal event; None if the stream does not end with one."""
    if not stream.names or stream.names[-1] not in TERMINAL:
        return None
    response: JsonObject = stream.events[-1]["response"]
    return response


def _is_nonblank(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


ANY_SHAPE: Final[tuple[OracleRule, ...]] = (r1_opening, r2_numbering, r3_ending, r4a_silence)
SOUND_SHAPE: Final[tuple[OracleRule, ...]] = (
    r3_status,
    r4_failure,
    r6_index,
    r7_bracket,
    r7_identity,
    r7_ids,
    r8_parts,
    r8_indices,
    r9_text,
    r10_lifecycle,
    r10_one_at_a_time,
    r11_truth,
    r12_cut,
    r13_final,
    r15_logprobs,
    r18_empties,
)


def check(events: Sequence[JsonObject], *, valid: int = 0) -> list[Finding]:
    """Validate the bodies of all events of one response, in OpenAI's dialect.

    If R14 finds a field that is missing or has a wrong type, only the rules in `ANY_SHAPE` are checked, because the others rely
    on what R14 checks; but a field of an item, other than its id and type, is only left out. The first `valid` events are known
    to have valid fields.
    """
    malformed, ignored, unread = r14_fields(events, valid)
    stream = Stream.of(events, unread)
    rules = ANY_SHAPE if malformed else (*ANY_SHAPE, *SOUND_SHAPE)
    return [*malformed, *(finding for rule in rules for finding in rule(stream)), *ignored]
