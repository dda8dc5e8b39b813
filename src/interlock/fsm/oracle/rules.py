"""The rules of docs/rules.md, as functions that yield the violations of a stream.

The rules in `ANY_SHAPE` accept any JSON; `SOUND_SHAPE` assumes the fields and types that `field_types` checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from interlock.fsm.oracle.api_fields import ITEM_PREFIX
from interlock.fsm.oracle.grammar import IN_PARTS, LETTERS, ORDERS, PARTS, RUNNING, TOOL_EVENTS, WHOLE, spelled
from interlock.fsm.oracle.stream_view import ADDED, DONE, TERMINAL, Json, Stream, Violation, as_object
from interlock.fsm.oracle.texts import r8_indices, r9_text, r15_logprobs, r18_empties

Rule: TypeAlias = Callable[[Stream], Iterator[Violation]]

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


def r1_opening(stream: Stream) -> Iterator[Violation]:
    """R1: created and in_progress come first, once each; queued may come between them."""
    opening = [name for name in stream.names if name in _OPENING]
    expected = ["response.created", "response.in_progress"]
    if "response.queued" in opening:
        expected.insert(1, "response.queued")
    first = list(stream.names[: len(expected)])
    if first != expected:
        yield Violation("R1", 0, f"the stream opens with {first}")
    elif opening != expected:
        yield Violation("R1", len(stream.events), "an opening event comes again")


def r2_numbering(stream: Stream) -> Iterator[Violation]:
    """R2: sequence_number counts the events from 0."""
    for place, body in enumerate(stream.events):
        number = body.get("sequence_number")
        if type(number) is not int or number != place:
            yield Violation("R2", place, f"sequence_number is {number!r} instead of {place}")


def r3_ending(stream: Stream) -> Iterator[Violation]:
    """R3: the only terminal event comes last."""
    ends = [place for place, name in enumerate(stream.names) if name in TERMINAL]
    if not ends:
        yield Violation("R3", len(stream.events), "there is no terminal event")
    elif ends != [len(stream.events) - 1]:
        yield Violation("R3", ends[0] + 1, "something follows a terminal event")


def r3_status(stream: Stream) -> Iterator[Violation]:
    """R1, R3: the name of the event agrees with the status of the response."""
    for place, name in enumerate(stream.names):
        if name in _STATUSES and (status := stream.events[place]["response"].get("status")) not in _STATUSES[name]:
            yield Violation("R1" if name in _OPENING else "R3", place, f"the response of {name} has the status {status}")


def r4_failure(stream: Stream) -> Iterator[Violation]:
    """R4: only a failed response has an error; an incomplete or failed one has no open item; no item follows an error event."""
    response, last = _final(stream), len(stream.events) - 1
    if response is None:
        return
    failed, error = response.get("status") == "failed", response.get("error")
    if failed and not (error and _is_nonblank(error.get("code")) and _is_nonblank(error.get("message"))):
        yield Violation("R4", last, "the failed response lacks error.code or error.message")
    if not failed and error is not None:
        yield Violation("R4", last, f"a response with an error has the status {response.get('status')}")
    if "error" in stream.names:
        place = stream.names.index("error")
        if not failed:
            yield Violation("R4", place, f"there is an error event, but the response ends {response.get('status')}")
        if any(item.at > place for item in stream.items):
            yield Violation("R4", place, "an item begins after an error event")
    if response.get("status") != "completed":
        for item in stream.items:
            if item.done is None:
                yield Violation("R4", last, f"item {item.index} is left open")


def r6_index(stream: Stream) -> Iterator[Violation]:
    """R6: output_index is dense from 0, in the order of the added events."""
    for position, item in enumerate(stream.items):
        if item.index != position:
            yield Violation("R6", item.at, f"output_index is {item.index} instead of {position}")


def r7_bracket(stream: Stream) -> Iterator[Violation]:
    """R7: an item has one added and one done event, with its other events between them."""
    for place, body in stream.orphans:
        yield Violation("R7", place, f"{body['type']} comes before its item is added")
    for item in stream.items:
        if item.word.count(ADDED) != 1:
            yield Violation("R7", item.end, f"item {item.index} is added {item.word.count(ADDED)} times")
        if item.word.count(DONE) != 1:
            yield Violation("R7", len(stream.events), f"item {item.index} is done {item.word.count(DONE)} times")
        elif item.word[-1] != DONE:
            yield Violation("R7", item.end, f"{spelled(item.word[-1])} comes after item {item.index} was done")


def r7_identity(stream: Stream) -> Iterator[Violation]:
    """R7: an item's ids, type, names and role do not change, nor does the id of the response."""
    for item in stream.items:
        for place, body in item.events:
            about = body.get("item")
            if about is None:
                if body.get("item_id", item.added["id"]) != item.added["id"] or body.get(
                    "name", item.added.get("name")
                ) != item.added.get("name"):
                    yield Violation("R7", place, f"{body['type']} has another id or name than item {item.index}")
            elif any(about.get(field) != item.added.get(field) for field in _STABLE):
                yield Violation("R7", place, f"item {item.index} has another id, type, name or role than in its added event")
    responses = [(place, body["response"]["id"]) for place, body in enumerate(stream.events) if "response" in body]
    for place, response_id in responses:
        if response_id != responses[0][1]:
            yield Violation("R7", place, "the id of the response has changed")


def r7_ids(stream: Stream) -> Iterator[Violation]:
    """R7: ids are unique and have the prefix of their kind."""
    ids: set[str] = set()
    for item in stream.items:
        for name, prefix in (("id", ITEM_PREFIX[item.kind]), ("call_id", "call_")):
            identity = item.added.get(name)
            if identity is None:
                continue
            if not identity.startswith(prefix):
                yield Violation("R7", item.at, f"the {name} {identity!r} of the {item.kind} does not begin with {prefix}")
            shared = name == "call_id" and item.kind.endswith("_output")  # an output has the id of its call
            if identity in ids and not shared:
                yield Violation("R7", item.at, f"the {name} {identity!r} is used twice")
            ids.add(identity)


def r8_parts(stream: Stream) -> Iterator[Violation]:
    """R8: parts are complete and do not overlap."""
    for item in stream.items:
        in_parts = item.word.translate(IN_PARTS)
        if item.done is not None and not PARTS.fullmatch(in_parts):
            yield Violation("R8", item.at, f"the parts of item {item.index} have the events {spelled(in_parts)}")


def r10_lifecycle(stream: Stream) -> Iterator[Violation]:
    """R10: the events of an item have the order of its kind and its final status."""
    for item in stream.items:
        if item.added.get("status", "in_progress") != "in_progress" and item.kind not in WHOLE:
            yield Violation("R10", item.at, f"item {item.index} begins with the status {item.added['status']}")
        if item.done is None:
            continue
        status = item.done.get("status")
        order = ORDERS[item.kind].get(status) if isinstance(status, str | None) else None
        if order is None:
            yield Violation("R10", item.end, f"{item.kind} cannot end with the status {status}")
        elif not order.fullmatch(item.word):
            yield Violation("R10", item.end, f"{item.kind} with the status {status} cannot have the events {spelled(item.word)}")
        if item.word.count(_RUNS_AGAIN) > (2 if item.added.get("approval_request_id") else 1):
            yield Violation("R10", item.end, f"item {item.index} is in progress again")


def r10_one_at_a_time(stream: Stream) -> Iterator[Violation]:
    """R10: when an item begins, earlier items are done or wait for their tools."""
    for item, later in zip(stream.items, stream.items[1:], strict=False):
        of_tool = TOOL_EVENTS.get(item.kind, "")
        for (place, body), letter in zip(item.events, item.word, strict=True):
            if place > later.at and letter not in of_tool:
                yield Violation("R10", place, f"{body['type']} of item {item.index} comes after item {later.index} began")


def r11_truth(stream: Stream) -> Iterator[Violation]:
    """R11: a tool runs before it completes; a call is added without its result, and done with it."""
    for item in stream.items:
        if item.kind in RUNNING:
            running, completed = RUNNING[item.kind]
            if completed in item.word and running not in item.word.split(completed)[0]:
                yield Violation("R11", item.end, f"item {item.index} completes without {spelled(running)}")
        if item.done is not None and not _has_its_result(item.done, item.word):
            yield Violation("R11", item.end, f"the result of item {item.index} does not fit its status or its events")
        results = ("output", "outputs", "results", "result", "error", "tools")
        if item.kind not in WHOLE and any(item.added.get(field) for field in results):
            yield Violation("R11", item.at, f"item {item.index} has a result before it ran")


def _has_its_result(item: Json, word: str) -> bool:
    """Return whether a finished item has the result or the error that its status and events imply."""
    match item["type"], item.get("status"):
        case "mcp_call", "completed":
            return item.get("output") is not None and item.get("error") is None
        case "mcp_call", "failed":
            return item.get("error") is not None
        case "mcp_call", _:
            return item.get("output") is None
        case "mcp_list_tools", _:
            return (item.get("error") is not None) == (LETTERS["response.mcp_list_tools.failed"] in word)
        case _:
            return True


def r12_cut(stream: Stream) -> Iterator[Violation]:
    """R12: only the last item may be incomplete; an incomplete response has a reason or ends in an unfinished call."""
    response, last = _final(stream), len(stream.events) - 1
    if response is None:
        return
    details = response.get("incomplete_details")
    if response.get("status") == "incomplete":
        last_item = stream.items[-1].done if details is None and stream.items else None
        ends_in_call = (
            last_item is not None and last_item["type"].endswith("_call") and last_item.get("status") not in (None, "completed")
        )
        if not ends_in_call and as_object(details).get("reason") not in _REASONS:
            yield Violation("R12", last, "the incomplete response lacks its reason")
    elif details is not None:
        yield Violation("R12", last, f"a response with incomplete_details has the status {response.get('status')}")
    for item in stream.items:
        if item.done is not None and item.done.get("status") == "incomplete":
            if item.index != len(stream.items) - 1:
                yield Violation("R12", item.end, f"item {item.index} is incomplete, but not the last")
            if response.get("status") == "completed":
                yield Violation("R12", last, f"the response is completed, but item {item.index} is incomplete")


def r13_final(stream: Stream) -> Iterator[Violation]:
    """R13: the final response has usage and the items of the done events; the opening ones have no output."""
    response, last = _final(stream), len(stream.events) - 1
    if response is None:
        return
    if response["output"] != [item.done for item in stream.items if item.done is not None]:
        yield Violation("R13", last, "the output of the final response is not the items that were done")
    usage = response.get("usage")
    if usage is None:
        yield Violation("R13", last, "there is no usage")
    elif type(usage["input_tokens_details"].get("cached_tokens")) is not int or (
        type(usage["output_tokens_details"].get("reasoning_tokens")) is not int
    ):
        yield Violation("R13", last, "usage lacks its details")
    elif usage["total_tokens"] != usage["input_tokens"] + usage["output_tokens"]:
        yield Violation("R13", last, "usage does not add up")
    for place, name in enumerate(stream.names):
        if name in _OPENING and stream.events[place]["response"]["output"]:
            yield Violation("R13", place, "the response has output before the first item")


def _final(stream: Stream) -> Json | None:
    """Return the response of the terminal event; None if the stream does not end with one."""
    if not stream.names or stream.names[-1] not in TERMINAL:
        return None
    response: Json = stream.events[-1]["response"]
    return response


def _is_nonblank(value: object) -> bool:
    """Return whether a value is a string that is not blank."""
    return isinstance(value, str) and bool(value.strip())


ANY_SHAPE: Final[tuple[Rule, ...]] = (r1_opening, r2_numbering, r3_ending)
SOUND_SHAPE: Final[tuple[Rule, ...]] = (
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
