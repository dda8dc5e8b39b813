"""Compares the contents of events with their types, and with earlier events.

`check_fields` finds the deviations among the mismatches of an event and its type. `judge_opening` and `judge_end` check the
response in the events that open and end a stream. `JUDGES` has a function for each event of an item that has content to compare.
The function yields the findings of an event whose fields are valid, and updates the item's state.

The rules are R1, R3, R4, R7 to R15 and R18 of docs/evidence/rules.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, get_args

from attrs import evolve

from interlock.events import stream
from interlock.events.items import ITEMS, TEXTS, literals_of
from interlock.events.json import as_text, elements, members
from interlock.events.parts import ContentPart, OutputPart, SummaryText
from interlock.events.response_object import IncompleteDetails
from interlock.events.rulebook import DEVIATIONS, Finding
from interlock.events.shapes import Mismatch, Path, counted, name_of, param_of
from interlock.events.stream import EVENTS, Place, StreamEvent, event_mismatches, own_fields, wire_name
from interlock.judges.digests import (
    Digest,
    TextDigest,
    are_malformed,
    digest,
    digests,
    json_type,
    loose_digests,
    quote,
    value_at,
)
from interlock.judges.stream_items import FINAL, ItemEnding, ItemOpening, TrackedItem, TrackedPart, is_own_text

Body: TypeAlias = Mapping[str, object]
ContentJudge: TypeAlias = Callable[[TrackedItem, type[StreamEvent], Body], Iterator[Finding]]

# The fields of events (R14).

_FIELDS_OF_OTHER_LEVELS: Final = frozenset(
    {
        *("sequence_number", "output_index", "item_id", "content_index", "summary_index", "delta"),
        *("logprobs", "response", "item", "part"),
    }
)
"""Fields of events and of what they contain; on any other object they are errors, not vendor fields."""
_NEWER_FIELDS: Final = frozenset(
    {
        *(("Response", name) for name in ("parallel_tool_calls", "tool_choice", "tools")),
        *(("ResponseUsage", name) for name in ("input_tokens_details", "output_tokens_details")),
    }
)
"""Fields that older services omit and no client requires."""
_PART_TYPES: Final = frozenset(map(name_of, (*get_args(OutputPart), SummaryText)))
_KNOWN_TYPES: Final = frozenset({*ITEMS, *map(name_of, get_args(ContentPart))})
"""The types of items and parts in the API; in the wrong place they are errors, not unknown items."""
_FREE_FORM_OBJECTS: Final = frozenset({"attributes", "env"})
"""The objects with arbitrary field names."""
_NOUNS: Final = {"content": "part", "summary": "part"}


def check_fields(event: type[StreamEvent], body: Mapping[str, object]) -> tuple[list[Finding], Sequence[Path]]:
    """Return the findings in the fields of an event, and the paths of the fields that the other rules cannot read."""
    differences = event_mismatches(event, body)
    findings = [*map(_finding, differences)]
    unreadable = [
        mismatch.path
        for finding, mismatch in zip(findings, differences, strict=True)
        if not finding.deviation and mismatch.kind not in {"unknown", "tag"}
    ]
    return findings, unreadable


def is_unknown_part(body: Mapping[str, object]) -> bool:
    """Return whether an event has a part of an unknown type."""
    kind = as_text(members(body.get("part")).get("type"))
    return bool(kind) and kind not in _PART_TYPES


def _finding(mismatch: Mismatch) -> Finding:
    last = max(at for at, step in enumerate(mismatch.path) if isinstance(step, str))
    above = [step for step in mismatch.path[:last] if isinstance(step, str)]
    field, value = param_of(mismatch.path[last:]), mismatch.value
    name = mismatch.type if mismatch.type.islower() or not above else above[-1]
    deviation = _deviation(mismatch, field)
    field = quote(field) if above and above[-1] in _FREE_FORM_OBJECTS else field
    if field == "type" and mismatch.kind != "unknown":
        message = f"the API has no {_NOUNS.get(above[-1], above[-1].removesuffix('s'))} of type {quote(value)}"
    elif mismatch.kind == "unknown" and field in _FIELDS_OF_OTHER_LEVELS:
        message = f"{name} has {quote(field)}, which is a field of {'events' if above else 'other events'}"
    elif mismatch.kind == "unknown":
        message = f"{name} has the unknown field {quote(field)}"
    elif mismatch.kind == "missing":
        message = f"{name}: {field} is missing"
    elif mismatch.kind == "value":
        message = f"{name}: {field} is {quote(value)} instead of {mismatch.expected}"
    else:
        message = f"{name}: {field} is {json_type(value)}"
    return Finding("R14", message, deviation)


def _deviation(mismatch: Mismatch, field: str) -> str:
    """Return the deviation of a mismatch; empty for an error."""
    match mismatch.kind:
        case "unknown" if field not in _FIELDS_OF_OTHER_LEVELS:
            return "vendor-field"
        case "null":
            return "null"
        case "type" if mismatch.path == ("logprobs",) and mismatch.value is None:
            return "null"
        case "tag" if mismatch.value not in _KNOWN_TYPES:
            return "unknown-item"
        case "missing" if (mismatch.type, field) in _NEWER_FIELDS:
            return "field-of-newer"
        case _:
            return ""


# The events of items.

_COMMANDS: Final = ("action", "commands")
_COMMAND: Final = "command"
"""The type of the `TrackedPart` that stands for a shell command."""
_STABLE_FIELDS: Final = ("id", "type", "call_id", "name", "namespace", "server_label", "container_id", "role")
_RESULT_FIELDS: Final = ("output", "outputs", "results", "result", "error", "tools")
_TEXT_KINDS: Final = frozenset(text.kind for text in TEXTS.values() if text.part)
"""The kinds of items that must not be blank; reasoning may have no parts."""
_STATUSES: Final[Mapping[type[StreamEvent], set[str]]] = {
    stream.Created: {"queued", "in_progress"},
    stream.Queued: {"queued"},
    stream.InProgress: {"in_progress"},
    stream.Completed: {"completed"},
    stream.Incomplete: {"incomplete", "cancelled"},
    stream.Failed: {"failed"},
}
"""The statuses that a response may have in each of its events."""
_ABORTED: Final = frozenset({"failed", "cancelled"})
_ENCRYPTED: Final = frozenset({"encrypted_content", "fingerprint"})
_REASONS: Final = frozenset(literals_of(IncompleteDetails, "reason"))


def judge_added(state: TrackedItem, _event: type[StreamEvent], body: Body) -> Iterator[Finding]:
    """Check that an item begins in progress, without text, parts or a result."""
    item = members(body.get("item"))
    opening = state.opening = ItemOpening({name: item.get(name) for name in _STABLE_FIELDS if name not in state.unreadable})
    opening.repeats += item.get("approval_request_id") is not None
    if state.automaton is None or state.automaton.whole:
        return
    status = item.get("status") or "in_progress"
    if status != "in_progress":
        opening.findings.append(Finding("R10", f"the item began with the status {quote(status)}", "status-at-added"))
        opening.status = as_text(status)
    for path in (("content",), ("summary",), _COMMANDS if state.kind == "shell_call" else ()):
        if path and (parts := value_at(item, path)):
            deviation = "part-at-added" if all(map(_is_empty_part, elements(parts))) else ""
            yield Finding("R9", f"the item has {path[-1]} before its first part", deviation)
    initial_text = value_at(item, state.own_text) if state.own_text else None
    if initial_text:
        state.text.add(as_text(initial_text))
        message = f"the item had {'.'.join(state.own_text)} before its first delta"
        opening.findings.append(Finding("R9", message, "begins-whole"))
    for name in _RESULT_FIELDS:
        if item.get(name):
            opening.findings.append(Finding("R11", f"the item had {name} before its tool ran", "result-at-added"))


def judge_done(state: TrackedItem, _event: type[StreamEvent], body: Body) -> Iterator[Finding]:
    """Check that a finished item has the ids, text, status and result that its events imply."""
    item = members(body.get("item"))
    opening, status = state.opening or ItemOpening(), item.get("status")
    state.ending = ItemEnding(status if isinstance(status, str) else None, digests(item), loose_digests(item))
    for name, value in opening.stable.items():
        if name not in state.unreadable and item.get(name) != value:
            message = f"the item was added with {name} {quote(value)} and is done with {quote(item.get(name))}"
            yield Finding("R7", message, _if_covered("unread-at-added", f"{state.kind}.{name}"))
    yield from _check_early_content(state, opening)
    if status is not None and state.automaton and state.in_order and state.status not in _possible_statuses(state):
        ends = " or ".join(sorted(_possible_statuses(state)))
        message = f"the item ends with the status {quote(status)}, but its events say {ends}"
        yield Finding("R10", message, _status_deviation(state))
    yield from _check_texts(state, item)
    yield from _check_result(state, item)


def _if_covered(deviation: str, subject: str) -> str:
    """Return the name of a deviation if it covers a subject; otherwise an empty string, for an error."""
    return deviation if DEVIATIONS[deviation].covers(subject) else ""


def _check_early_content(state: TrackedItem, opening: ItemOpening) -> Iterator[Finding]:
    """Yield the findings of `added`, which waited for `done`.

    They are deviations if the item began in progress or with its final status and, except for R10, only `done` events followed.
    """
    for finding in opening.findings:
        harmless = opening.status in {"", state.status} and (state.only_done_events or finding.rule == "R10")
        yield finding if harmless else evolve(finding, deviation="")
    opening.findings = []


def _possible_statuses(state: TrackedItem) -> frozenset[str]:
    if state.automaton and state.automaton.whole:
        return frozenset(state.statuses)
    return frozenset(end if end in state.statuses else "in_progress" for end in state.node.ends)


def _status_deviation(state: TrackedItem) -> str:
    """Return the deviation of a status that the item's events do not allow; empty for an error."""
    if state.status not in state.statuses:
        return ""
    if state.status not in FINAL:
        return "status-behind"
    ended = state.automaton and state.automaton.completions and state.node.ends == frozenset({"completed"})
    return "status-of-tool" if ended else ""


def _check_texts(state: TrackedItem, item: Body) -> Iterator[Finding]:
    """Compare the texts and parts of a finished item with its events, and check that it is not blank."""
    if state.own_text and state.own_text[0] not in state.unreadable:
        difference = state.text.compare(as_text(value_at(item, state.own_text)))
        if difference:
            yield Finding("R9", f"the item's {'.'.join(state.own_text)} {difference}")
    for name, parts in state.parts.done.items():
        item_parts = [_part_digests(part) for part in elements(item.get(name))]
        if parts is not None and name not in state.unreadable and item_parts != parts:
            alike = [loose for _, loose in item_parts] == [loose for _, loose in parts]
            message = f"the item's {name} differs from the {counted(len(parts), 'part')} done"
            yield Finding("R9", message, "logprobs-elsewhere" if alike else "")
    has_all_commands = state.kind == "shell_call" and state.from_start and state.in_order and "action" not in state.unreadable
    if has_all_commands and state.shell.commands != value_at(item, _COMMANDS):
        yield Finding("R9", f"the item's commands differ from the {len(state.shell.commands)} done")
    if state.shell.outputs and "output" not in state.unreadable and digest(state.shell.outputs) != digest(item.get("output")):
        yield Finding("R9", "the item's output is not that of its commands")
    may_be_blank = state.kind in _TEXT_KINDS and state.unreadable.isdisjoint(state.parts.done)
    if may_be_blank and (state.kind != "reasoning" or item.get("content") or item.get("summary")):
        texts = [_text_of(members(part)) for name in state.parts.done for part in elements(item.get(name))]
        if not "".join(texts).strip():
            yield Finding("R18", f"a {state.kind} has no text", "blank")
        elif state.parts.first_delta is not None and not state.parts.first_delta.strip():
            message = "the item's text begins with a delta of only white space"
            yield Finding("R18", message, "blank")
    state.parts.done = {}


def _check_result(state: TrackedItem, item: Body) -> Iterator[Finding]:
    """Check that a call has the output or the error that its status implies."""
    if not state.unreadable.isdisjoint({"output", "error"}):
        return
    output, error = item.get("output"), item.get("error")
    ends = _possible_statuses(state) if state.status is None else {state.status}
    match state.kind:
        case "mcp_call" if ends == {"completed"}:
            if output is None or error is not None:
                yield Finding("R11", "a completed call needs an output and no error")
        case "mcp_call" if ends == {"failed"}:
            if error is None:
                yield Finding("R11", "a failed call needs an error")
        case "mcp_call" if (output, error) != (None, None) and ends.isdisjoint({"completed", "failed"}):
            yield Finding("R11", "a call that neither completed nor failed has an output or an error")
        case "mcp_list_tools" if [*state.node.ends] == ["completed" if error is not None else "failed"]:
            yield Finding("R11", "the list of tools has an error although it completed, or none although it failed")
        case _:
            pass


def judge_own_delta(state: TrackedItem, _event: type[StreamEvent], body: Body) -> Iterator[Finding]:
    """Store a delta of the item's text."""
    state.text.add(as_text(body.get("delta")))
    yield from ()


def judge_own_done(state: TrackedItem, event: type[StreamEvent], body: Body) -> Iterator[Finding]:
    """Compare the item's full text, and its name, with earlier events."""
    stable = (state.opening or ItemOpening()).stable
    name = stable.get("name")
    if "name" in stable and body.get("name", name) != name:
        yield Finding("R7", f"the item was added with name {quote(name)} and now has the name {quote(body['name'])}")
    field = own_fields(event)[0]
    yield from _compare_text(field, as_text(body.get(field)), state.text, _if_covered("text-at-once", state.kind))


def _compare_text(name: str, whole: str, text: TextDigest, at_once: str = "") -> Iterator[Finding]:
    """Compare a full text with its deltas; `at_once` is the deviation of a text without deltas."""
    difference = text.compare(whole)
    if difference:
        yield Finding("R9", f"{name} {difference}")
    elif text.at_once:
        yield Finding("R9", f"{name} comes without a delta", at_once)


def judge_in_progress_again(state: TrackedItem, _event: type[StreamEvent], _body: Body) -> Iterator[Finding]:
    """Check that a call is in progress once, or twice with an approval."""
    if state.opening is None:
        return
    state.opening.repeats -= 1
    if state.from_start and state.opening.repeats < 0:
        yield Finding("R10", "comes again; only an approved call may repeat it, once")


def judge_command(state: TrackedItem, event: type[StreamEvent], body: Body) -> Iterator[Finding]:
    """Check the index and the text of a shell call's command."""
    begins = event.after is Place.PART and event.before is not Place.PART
    if begins:
        state.parts.open = TrackedPart(_COMMAND, len(state.shell.commands), from_start=True)
        if body.get("command"):
            yield Finding("R9", "the command is added with text")
    part = state.parts.open
    if part is None or part.type != _COMMAND:
        return
    if state.from_start and body.get("command_index") != part.index:
        yield Finding("R8", f"command_index is {quote(body.get('command_index'))} instead of {part.index}")
    if "delta" in event.__struct_fields__:
        part.text.add(as_text(body.get("delta")))
    elif not begins:
        state.shell.commands.append(as_text(body.get("command")))
        yield from _compare_text("command", state.shell.commands[-1], part.text)
        state.parts.open = None


def judge_printed(state: TrackedItem, event: type[StreamEvent], body: Body) -> Iterator[Finding]:
    """Compare the output of a shell command with its deltas."""
    if state.from_start and body.get("command_index") != state.shell.ended_count:
        yield Finding("R8", f"command_index is {quote(body.get('command_index'))} instead of {state.shell.ended_count}")
    if "delta" in event.__struct_fields__:
        for name, text in members(body.get("delta")).items():
            if text:
                state.shell.printed.setdefault(name, TextDigest()).add(as_text(text))
        return
    outputs = [members(one) for one in elements(body.get("output"))]
    for name in ("stdout", "stderr"):
        text = state.shell.printed.get(name)
        if state.from_start and text is not None and text.compare("".join([as_text(one.get(name)) for one in outputs])):
            yield Finding("R9", f"the {name} of the command is not what it printed")
    state.shell.outputs += outputs
    state.shell.printed = {}
    state.shell.ended_count += 1


def judge_part_added(state: TrackedItem, event: type[StreamEvent], body: Body) -> Iterator[Finding]:
    """Check that a part begins empty and with the next index of its list."""
    index, part, name = _part_index(event, body), members(body.get("part")), _list_name(event)
    expected = state.parts.next_index.get(name, index)
    state.parts.next_index[name] = index + 1
    if index != expected:
        yield Finding("R8", f"{name}_index is {index} instead of {expected}")
    if not _is_empty_part(part):
        yield Finding("R9", "the part is not empty when it is added")
    state.parts.open = TrackedPart(as_text(part.get("type")), index, from_start=True)


def _open_part(state: TrackedItem, event: type[StreamEvent], body: Body, type_: str) -> tuple[TrackedPart, list[Finding]]:
    """Return the open part, and the findings in the event's index and type; open a part if none of that type is open."""
    index, part = _part_index(event, body), state.parts.open
    if part is None or part.type != type_:
        state.parts.open = TrackedPart(type_, index, from_start=False)
        return state.parts.open, [Finding("R9", f"the part began as {part.type} and is now {type_}")] if part else []
    message = Finding("R8", f"{_list_name(event)}_index is {index} instead of {part.index}")
    return part, [message] if part.index != index else []


def judge_part_delta(state: TrackedItem, event: type[StreamEvent], body: Body) -> Iterator[Finding]:
    """Store a delta of a part's text and check its log probabilities."""
    part, findings = _open_part(state, event, body, _TYPE_OF[event])
    yield from findings
    delta = as_text(body.get("delta"))
    if state.parts.first_delta is None and state.from_start:
        state.parts.first_delta = delta
    part.text.add(delta)
    if part.logprobs is not None:
        yield from _check_logprobs(state, part, event, body)
        if part.logprobs is not None:  # pyright: ignore[reportUnnecessaryComparison] - `_check_logprobs` may have set it to None
            part.logprobs.add(elements(body.get("logprobs")))


def judge_annotation(state: TrackedItem, event: type[StreamEvent], body: Body) -> Iterator[Finding]:
    """Check the index of an annotation."""
    part, findings = _open_part(state, event, body, _TYPE_OF[event])
    yield from findings
    if part.from_start:
        index, number = body.get("annotation_index"), len(part.annotations)
        if index != number:
            yield Finding("R8", f"annotation_index is {quote(index)} instead of {number}")
        part.annotations.append(digest(body.get("annotation")))


def judge_part_text_done(state: TrackedItem, event: type[StreamEvent], body: Body) -> Iterator[Finding]:
    """Compare the full text of a part with its deltas."""
    part, findings = _open_part(state, event, body, _TYPE_OF[event])
    yield from findings
    field = own_fields(event)[0]
    text = as_text(body.get(field))
    yield from _compare_text(field, text, part.text)
    yield from _check_logprobs(state, part, event, body)
    if part.logprobs is not None:
        if not part.logprobs.equal(elements(body.get("logprobs"))):
            yield Finding("R15", "the logprobs are not those of the deltas")
        elif not part.logprobs.rebuild(text):
            yield Finding("R15", "the tokens of the logprobs do not make up the text", "tokens-differ")


def _check_logprobs(state: TrackedItem, part: TrackedPart, event: type[StreamEvent], body: Body) -> list[Finding]:
    """Check the log probabilities of an event; malformed ones end the comparison for its part.

    Omitting them is an error if an earlier event of the same name had an empty list, otherwise a deviation.
    """
    if part.logprobs is None or not are_malformed(body.get("logprobs")):
        if body.get("logprobs") == []:
            state.lists_logprobs.add(wire_name(event))
        return []
    part.logprobs = None
    if "logprobs" in body and body["logprobs"] is None:
        return []  # `check_fields` reports the null
    message = "logprobs are missing, or not the log probabilities of tokens"
    deviation = "" if "logprobs" in body or wire_name(event) in state.lists_logprobs else "no-logprobs"
    return [Finding("R15", message, deviation)]


def judge_part_done(state: TrackedItem, event: type[StreamEvent], body: Body) -> Iterator[Finding]:
    """Compare a finished part with its text and annotation events."""
    whole_part = members(body.get("part"))
    part, findings = _open_part(state, event, body, as_text(whole_part.get("type")))
    yield from findings
    state.parts.open = None
    message = part.text.compare(_text_of(whole_part))
    if message:
        yield Finding("R9", f"the part's text {message}")
    if part.from_start and [digest(one) for one in elements(whole_part.get("annotations"))] != part.annotations:
        yield Finding("R9", f"the part's annotations differ from the {len(part.annotations)} added")
    logprobs = whole_part.get("logprobs")
    if part.logprobs is not None and logprobs and (are_malformed(logprobs) or not part.logprobs.equal(elements(logprobs))):
        yield Finding("R15", "the part's logprobs are not those of the deltas")
    done = state.parts.done.get(_list_name(event))
    if done is not None:
        done.append(_part_digests(whole_part))


def _part_digests(part: object) -> tuple[Digest, Digest]:
    """Return two digests of a part: of all of it, and without nulls, `logprobs` and `encrypted_content`."""
    return digest(part), digest({name: one.hex() for name, one in loose_digests(members(part)).items()})


def _list_name(event: type[StreamEvent]) -> str:
    """Return the name of the list of parts that an event is about."""
    return "summary" if issubclass(event, stream.SummaryEvent) else "content"


def _part_index(event: type[StreamEvent], body: Body) -> int:
    index = body.get(f"{_list_name(event)}_index")
    return index if isinstance(index, int) else -1


def _is_empty_part(part: object) -> bool:
    fields = members(part)
    return bool(fields) and not (_text_of(fields) or fields.get("annotations") or fields.get("logprobs"))


def _text_of(part: Body) -> str:
    return as_text(part.get("refusal")) or as_text(part.get("text"))


_TYPE_OF: Final[Mapping[type[StreamEvent], str]] = {
    event: TEXTS[subject].part
    for name, event in EVENTS.items()
    if (subject := name.removeprefix("response.").partition(".")[0]) in TEXTS
}
"""The type of the part that holds the text of an event."""


def _find_judge(event: type[StreamEvent]) -> ContentJudge | None:
    """Choose the function for an event by its base class and its fields."""
    if issubclass(event, stream.PartEvent | stream.SummaryEvent):
        return _find_part_judge(event)
    if is_own_text(event):
        return judge_own_delta if "delta" in event.__struct_fields__ else judge_own_done
    return next((judge for base, judge in _JUDGES.items() if issubclass(event, base)), None)


def _find_part_judge(event: type[StreamEvent]) -> ContentJudge:
    if "part" in event.__struct_fields__:
        return judge_part_added if event.after is Place.PART else judge_part_done
    if event is stream.AnnotationAdded:
        return judge_annotation
    return judge_part_delta if "delta" in event.__struct_fields__ else judge_part_text_done


_JUDGES: Final[Mapping[type[StreamEvent], ContentJudge]] = {
    stream.ItemAdded: judge_added,
    stream.ItemDone: judge_done,
    stream.PROGRESS["mcp_call.in_progress"]: judge_in_progress_again,
    stream.CommandEvent: judge_command,
    stream.CommandOutputEvent: judge_printed,
}
JUDGES: Final = {event: judge for event in EVENTS.values() if (judge := _find_judge(event)) is not None}
"""The function for each event with content."""


# The response.


def judge_opening(event: type[StreamEvent], response: Body) -> Iterator[Finding]:
    """Check the response of an event that opens the stream."""
    yield from _check_status(event, response, "R1")
    if response.get("output"):
        yield Finding("R13", "the response has output before the first item")


def judge_end(
    event: type[StreamEvent], response: Body, items: Sequence[TrackedItem], *, from_start: bool, has_error: bool
) -> Iterator[Finding]:
    """Check the response of a terminal event, and whether it has the items, in the order of their `added` events.

    `from_start` is whether the stream has its first event, so that `items` is complete.
    """
    status = response.get("status")
    yield from _check_status(event, response, "R3")
    yield from _check_failure(response, status, items, has_error=has_error)
    yield from _check_truncation(response, status, items)
    yield from _check_output(elements(response.get("output")), status, items, from_start=from_start)
    yield from _check_usage(response, status)


def _check_status(event: type[StreamEvent], response: Body, rule: str) -> Iterator[Finding]:
    if as_text(response.get("status")) not in _STATUSES[event]:
        yield Finding(rule, f"the response has the status {quote(response.get('status'))}")


def _check_failure(response: Body, status: object, items: Sequence[TrackedItem], *, has_error: bool) -> Iterator[Finding]:
    error = members(response.get("error"))
    if status == "failed":
        if not (as_text(error.get("code")).strip() and as_text(error.get("message")).strip()):
            yield Finding("R4", "the failed response lacks error.code or error.message")
    else:
        if response.get("error") is not None:
            yield Finding("R4", f"the response has an error and the status {quote(status)}")
        if has_error:
            yield Finding("R4", f"there was an error event, but the response has the status {quote(status)}")
    for item in items:
        if not item.ended:
            rule = "R7" if status == "completed" else "R4"
            deviation = "never-done" if item.is_complete_tool_list else ""
            yield item.locate(Finding(rule, f"item {item.index} is left open", deviation))


def _check_truncation(response: Body, status: object, items: Sequence[TrackedItem]) -> Iterator[Finding]:
    details = response.get("incomplete_details")
    if status == "incomplete":
        reason = as_text(members(details).get("reason"))
        may_end_in_call = _ends_in_call(elements(response.get("output"))) or (items and "status" in items[-1].unreadable)
        if reason not in _REASONS and not (details is None and may_end_in_call):
            yield Finding("R12", f"the response is incomplete without a reason: incomplete_details is {quote(details)}")
    elif details is not None:
        yield Finding("R12", f"the response has incomplete_details and the status {quote(status)}")
    for item in items:
        if item.status == "incomplete":
            if item is not items[-1]:
                yield item.locate(Finding("R12", f"item {item.index} is incomplete, but not the last"))
            if status == "completed":
                yield item.locate(Finding("R12", f"the response is completed, but item {item.index} is incomplete"))


def _ends_in_call(output: Sequence[object]) -> bool:
    """Return whether the output ends with an unfinished call, for which the API has no reason."""
    last = members(output[-1] if output else None)
    kind, status = as_text(last.get("type")), as_text(last.get("status"))
    return kind == "program" or (kind.endswith("_call") and status not in {"", "completed"})  # a program has no status


def _check_output(
    output: Sequence[object], status: object, items: Sequence[TrackedItem], *, from_start: bool
) -> Iterator[Finding]:
    done = [item for item in items if item.ended]
    whole = from_start and len(done) == len(items)
    places = range(len(done)) if whole else [item.index for item in done]
    if whole and len(output) != len(done):
        deviation = "" if output else "failed-without-output" if status in _ABORTED else "without-output"
        yield Finding("R13", f"the response has {counted(len(output), 'item')} where the stream has {len(done)}", deviation)
    for item, place in zip(done, places, strict=True):
        ending = item.ending
        if ending is None or ending.digests is None or not 0 <= place < len(output):
            continue
        final_item = {name: value for name, value in members(output[place]).items() if name not in item.unreadable}
        final_digests = digests(final_item)
        differing = [name for name in {**ending.digests, **final_digests} if ending.digests.get(name) != final_digests.get(name)]
        if differing:
            message = f"output[{place}] differs from the done event of item {item.index}: {', '.join(map(repr, differing))}"
            yield item.locate(Finding("R13", message, _output_deviation(ending, final_item, differing)))


def _output_deviation(ending: ItemEnding, final_item: Body, differing: Sequence[str]) -> str:
    """Return the deviation of an item that differs between the response and `done`; empty for an error."""
    final_digests = loose_digests(final_item)
    behind = ending.status not in FINAL or as_text(final_item.get("status")) not in FINAL
    serious = {name for name in {**ending.loose, **final_digests} if ending.loose.get(name) != final_digests.get(name)}
    serious -= {"status"} if behind else set()
    serious -= _ENCRYPTED
    if serious:
        return ""
    if not _ENCRYPTED.isdisjoint(differing):
        return "encrypted-content"
    nulls = {name for name in differing if ending.loose.get(name) == final_digests.get(name) and name not in final_digests}
    return "null-or-absent" if nulls == {*differing} else "other-in-final"


def _check_usage(response: Body, status: object) -> Iterator[Finding]:
    if "usage" not in response:
        yield Finding("R13", "the response has no usage", "" if status == "completed" else "usage")
        return
    if response["usage"] is None:  # the token counts are unknown
        return
    counts = members(response["usage"])
    for details, count in (("input_tokens_details", "cached_tokens"), ("output_tokens_details", "reasoning_tokens")):
        if type(members(counts.get(details)).get(count)) is not int:
            yield Finding("R13", f"usage has no {details}.{count}", "" if details in counts else "usage")
    match [counts.get(name) for name in ("input_tokens", "output_tokens", "total_tokens")]:
        case [int(one), int(other), int(total)] if one + other != total:
            yield Finding("R13", f"usage does not add up: {one} and {other} are not {total}", "usage")
        case _:
            pass
