"""Checks the response objects that open and end a stream (rules R1, R3, R4, R12 and R13 of docs/rules.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from interlock.events.items import literals_of
from interlock.events.response_object import IncompleteDetails
from interlock.events.stream import Completed, Created, Failed, Incomplete, InProgress, Queued, StreamEvent
from interlock.fsm.acceptor.digests import as_list, as_object, as_text, digests, loose_digests, quoted
from interlock.fsm.acceptor.rulebook import Fault
from interlock.fsm.acceptor.stream_items import FINAL, TrackedItem

_STATUSES: Final[Mapping[type[StreamEvent], set[str]]] = {
    Created: {"queued", "in_progress"},
    Queued: {"queued"},
    InProgress: {"in_progress"},
    Completed: {"completed"},
    Incomplete: {"incomplete", "cancelled"},
    Failed: {"failed"},
}
"""The statuses that a response may have in each of its events."""
_ABORTED: Final = frozenset({"failed", "cancelled"})
_ENCRYPTED: Final = frozenset({"encrypted_content", "fingerprint"})
_REASONS: Final = frozenset(literals_of(IncompleteDetails, "reason"))


def judge_opening(event: type[StreamEvent], response: Mapping[str, object]) -> Iterator[Fault]:
    """Check the response of an event that opens the stream."""
    yield from _status(event, response, "R1")
    if response.get("output"):
        yield Fault("R13", "the response has output before the first item")


def judge_end(
    event: type[StreamEvent], response: Mapping[str, object], items: Sequence[TrackedItem], *, from_start: bool, has_error: bool
) -> Iterator[Fault]:
    """Check the response of a terminal event.

    Args:
        event: The terminal event.
        response: Its response.
        items: The items of the stream, in the order in which they were added.
        from_start: Whether the stream has its first event, so that `items` is complete.
        has_error: Whether the stream has an `error` event.
    """
    status = response.get("status")
    yield from _status(event, response, "R3")
    yield from _failure(response, status, items, has_error=has_error)
    yield from _truncation(response, status, items)
    yield from _output(as_list(response.get("output")), status, items, from_start=from_start)
    yield from _usage(response.get("usage"), status)


def _status(event: type[StreamEvent], response: Mapping[str, object], rule: str) -> Iterator[Fault]:
    if as_text(response.get("status")) not in _STATUSES[event]:
        yield Fault(rule, f"the response has the status {quoted(response.get('status'))}")


def _failure(response: Mapping[str, object], status: object, items: Sequence[TrackedItem], *, has_error: bool) -> Iterator[Fault]:
    error = as_object(response.get("error"))
    if status == "failed":
        if not (as_text(error.get("code")).strip() and as_text(error.get("message")).strip()):
            yield Fault("R4", "the failed response lacks error.code or error.message")
    else:
        if response.get("error") is not None:
            yield Fault("R4", f"the response has an error and the status {quoted(status)}")
        if has_error:
            yield Fault("R4", f"there was an error event, but the response has the status {quoted(status)}")
    for item in items:
        if not item.ended:
            rule = "R7" if status == "completed" else "R4"
            deviation = "never-done" if item.is_complete_tool_list else ""
            yield Fault(rule, f"item {item.index} is left open", item=item.ref, deviation=deviation)


def _truncation(response: Mapping[str, object], status: object, items: Sequence[TrackedItem]) -> Iterator[Fault]:
    details = response.get("incomplete_details")
    if status == "incomplete":
        reason = as_text(as_object(details).get("reason"))
        if reason not in _REASONS and not (details is None and _ends_in_call(as_list(response.get("output")))):
            yield Fault("R12", f"the response is incomplete without a reason: incomplete_details is {quoted(details)}")
    elif details is not None:
        yield Fault("R12", f"the response has incomplete_details and the status {quoted(status)}")
    for item in items:
        if item.status == "incomplete":
            if item is not items[-1]:
                yield Fault("R12", f"item {item.index} is incomplete, but not the last", item=item.ref)
            if status == "completed":
                yield Fault("R12", f"the response is completed, but item {item.index} is incomplete", item=item.ref)


def _ends_in_call(output: Sequence[object]) -> bool:
    """Return whether the output ends with an unfinished call, for which the API has no reason."""
    last = as_object(output[-1] if output else None)
    return as_text(last.get("type")).endswith("_call") and as_text(last.get("status")) not in {"", "completed"}


def _output(output: Sequence[object], status: object, items: Sequence[TrackedItem], *, from_start: bool) -> Iterator[Fault]:
    done = [item for item in items if item.ended]
    whole = from_start and len(done) == len(items)
    places = range(len(done)) if whole else [item.index for item in done]
    if whole and len(output) != len(done):
        deviation = "failed-without-output" if not output and status in _ABORTED else ""
        yield Fault("R13", f"the response has {len(output)} items, but {len(done)} were done", deviation=deviation)
    for item, place in zip(done, places, strict=True):
        if item.done is None or not 0 <= place < len(output):
            continue
        final_item = as_object(output[place])
        final_digests = digests(final_item)
        differing = [name for name in {**item.done, **final_digests} if item.done.get(name) != final_digests.get(name)]
        if differing:
            message = f"output[{place}] differs from the done event of item {item.index}: {', '.join(map(repr, differing))}"
            yield Fault("R13", message, item=item.ref, deviation=_deviation(item, final_item, differing))


def _deviation(item: TrackedItem, final_item: Mapping[str, object], differing: Sequence[str]) -> str:
    """Return the deviation of an item that differs between the response and `done`; empty for an error."""
    final_digests = loose_digests(final_item)
    behind = item.status not in FINAL or as_text(final_item.get("status")) not in FINAL
    serious = {name for name in {**item.loose, **final_digests} if item.loose.get(name) != final_digests.get(name)}
    serious -= {"status"} if behind else set()
    serious -= _ENCRYPTED
    if serious:
        return ""
    if not _ENCRYPTED.isdisjoint(differing):
        return "encrypted-content"
    nulls = {name for name in differing if item.loose.get(name) == final_digests.get(name) and name not in final_digests}
    return "null-or-absent" if nulls == {*differing} else "other-in-final"


def _usage(usage: object, status: object) -> Iterator[Fault]:
    if usage is None:
        yield Fault("R13", "the response has no usage", deviation="" if status == "completed" else "usage")
        return
    counts = as_object(usage)
    for details, count in (("input_tokens_details", "cached_tokens"), ("output_tokens_details", "reasoning_tokens")):
        if type(as_object(counts.get(details)).get(count)) is not int:
            yield Fault("R13", f"usage has no {details}.{count}", deviation="" if details in counts else "usage")
    match [counts.get(name) for name in ("input_tokens", "output_tokens", "total_tokens")]:
        case [int(one), int(other), int(total)] if one + other != total:
            yield Fault("R13", f"usage does not add up: {one} and {other} are not {total}", deviation="usage")
        case _:
            pass
