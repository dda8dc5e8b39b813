"""What the response objects of a stream say: at its opening, and at its end, where all the items are looked at once more.

It knows the rules R3, R4, R12 and R13 of a response that ends, and nothing of the order of events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import define

from interlock.events.items import literals_of
from interlock.events.response_object import IncompleteDetails
from interlock.events.stream import Completed, Created, Failed, Incomplete, InProgress, Queued, StreamEvent
from interlock.fsm.acceptor.finding import Fault
from interlock.fsm.acceptor.track import Track
from interlock.fsm.acceptor.json_digest import a_list, a_text, an_object, digests, loosened, shown

_STATUSES: Final[Mapping[type[StreamEvent], set[str]]] = {
    Created: {"queued", "in_progress"},
    Queued: {"queued"},
    InProgress: {"in_progress"},
    Completed: {"completed"},
    Incomplete: {"incomplete", "cancelled"},
    Failed: {"failed"},
}
"""The statuses of the response that each of its events can show."""
_FINAL: Final = frozenset({"completed", "incomplete", "failed"})
_BROKEN_OFF: Final = frozenset({"failed", "cancelled"})
_ENCRYPTED: Final = frozenset({"encrypted_content", "fingerprint"})
_REASONS: Final = frozenset(literals_of(IncompleteDetails, "reason"))


@define
class Seen:
    """What of a stream the end is judged by.

    Args:
        items: Its items, in the order in which they were added.
        whole: Whether the stream was seen from its beginning, so that no other item can have been there.
        error: Whether there was an `error` event.
    """

    items: Sequence[Track]
    whole: bool
    error: bool


def judge_status(event: type[StreamEvent], response: Mapping[str, object], rule: str) -> Iterator[Fault]:
    """Judge whether an event of the response agrees with its status.

    Args:
        event: Which it is.
        response: What it carries.
        rule: R1 for an event that opens the stream, R3 for one that ends it.
    """
    if a_text(response.get("status")) not in _STATUSES[event]:
        yield Fault(rule, f"the response has the status {shown(response.get('status'))}")


def judge_opening(response: Mapping[str, object]) -> Iterator[Fault]:
    """Judge a response that begins: it has no output yet."""
    if response.get("output"):
        yield Fault("R13", "the response has output before it has items")


def judge_end(response: Mapping[str, object], seen: Seen) -> Iterator[Fault]:
    """Judge the response of a terminal event.

    Args:
        response: What it carries.
        seen: What came before.
    """
    status = response.get("status")
    yield from _failure(response, status, seen)
    yield from _cut(response, status, seen)
    yield from _output(a_list(response.get("output")), status, seen)
    yield from _usage(response.get("usage"), status)


def _failure(response: Mapping[str, object], status: object, seen: Seen) -> Iterator[Fault]:
    error = an_object(response.get("error"))
    if status == "failed":
        if not (a_text(error.get("code")).strip() and a_text(error.get("message")).strip()):
            yield Fault("R4", "the response failed and does not say why: error.code and error.message")
    else:
        if response.get("error") is not None:
            yield Fault("R4", f"the response has an error and the status {shown(status)}")
        if seen.error:
            yield Fault("R4", f"there was an error event, and the response has the status {shown(status)}")
    for item in seen.items:
        if not item.ended:
            rule = "R7" if status == "completed" else "R4"
            habit = "never-done" if item.listed else ""
            yield Fault(rule, f"item {item.index} is left open", about=item.about, habit=habit)


def _cut(response: Mapping[str, object], status: object, seen: Seen) -> Iterator[Fault]:
    details = response.get("incomplete_details")
    if status == "incomplete":
        reason = a_text(an_object(details).get("reason"))
        if reason not in _REASONS and not (details is None and _left_call(a_list(response.get("output")))):
            yield Fault("R12", f"the response is incomplete without a reason: incomplete_details is {shown(details)}")
    elif details is not None:
        yield Fault("R12", f"the response has incomplete_details and the status {shown(status)}")
    for item in seen.items:
        if item.status == "incomplete":
            if item is not seen.items[-1]:
                yield Fault("R12", f"item {item.index} is incomplete, but not the last", about=item.about)
            if status == "completed":
                yield Fault("R12", f"the response is completed, but item {item.index} is incomplete", about=item.about)


def _left_call(output: Sequence[object]) -> bool:
    """Return whether the model stopped inside a call, which none of the API's reasons says."""
    last = an_object(output[-1] if output else None)
    return a_text(last.get("type")).endswith("_call") and a_text(last.get("status")) not in {"", "completed"}


def _output(output: Sequence[object], status: object, seen: Seen) -> Iterator[Fault]:
    done = [item for item in seen.items if item.ended]
    whole = seen.whole and len(done) == len(seen.items)
    places = range(len(done)) if whole else [item.index for item in done]
    if whole and len(output) != len(done):
        habit = "failed-without-output" if not output and status in _BROKEN_OFF else ""
        yield Fault("R13", f"the response has {len(output)} items, and {len(done)} were done", habit=habit)
    for item, place in zip(done, places, strict=True):
        if item.done is None or not 0 <= place < len(output):
            continue
        final_item = an_object(output[place])
        final_digests = digests(final_item)
        differing = [name for name in {**item.done, **final_digests} if item.done.get(name) != final_digests.get(name)]
        if differing:
            wrong = f"output[{place}] is not item {item.index} as it was done: {', '.join(map(repr, differing))} differ"
            yield Fault("R13", wrong, about=item.about, habit=_habit(item, final_item, differing))


def _habit(item: Track, final_item: Mapping[str, object], differing: Sequence[str]) -> str:
    """Return the habit behind an item that the response shows otherwise than `done` did; none if it is an error."""
    final_digests = loosened(final_item)
    behind = item.status not in _FINAL or a_text(final_item.get("status")) not in _FINAL
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
        yield Fault("R13", "the response has no usage", habit="" if status == "completed" else "usage")
        return
    counts = an_object(usage)
    for details, count in (("input_tokens_details", "cached_tokens"), ("output_tokens_details", "reasoning_tokens")):
        if type(an_object(counts.get(details)).get(count)) is not int:
            yield Fault("R13", f"usage has no {details}.{count}", habit="" if details in counts else "usage")
    match [counts.get(name) for name in ("input_tokens", "output_tokens", "total_tokens")]:
        case [int(one), int(other), int(total)] if one + other != total:
            yield Fault("R13", f"usage does not add up: {one} and {other} are not {total}", habit="usage")
        case _:
            pass
