"""What the events of an item say, compared with what the earlier ones said (R7 to R11, R15, R18).

One function for each sort of event; it takes the item's track and the event's body, whose fields have been looked at
(`shapes`), yields what is wrong and notes what later events will be compared with. None of them knows the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from attrs import evolve

from interlock.events.parts import ReasoningText, Refusal, SummaryText
from interlock.events.stream import (
    EVENTS,
    AnnotationAdded,
    CommandEvent,
    CommandOutputEvent,
    ItemAdded,
    ItemDone,
    McpInProgress,
    PartEvent,
    Place,
    StreamEvent,
    SummaryEvent,
    own_fields,
    wire_name,
)
from interlock.fsm.acceptor.finding import Fault
from interlock.fsm.acceptor.text_digest import unsound
from interlock.fsm.acceptor.track import Part, Track, is_own_text
from interlock.fsm.acceptor.json_digest import Digest, a_list, a_text, an_object, digest, digests, inside, loosened, shown

Body: TypeAlias = Mapping[str, object]
Judge: TypeAlias = Callable[[Track, type[StreamEvent], Body], Iterator[Fault]]

_COMMANDS: Final = ("action", "commands")
_STABLE: Final = ("id", "type", "call_id", "name", "namespace", "server_label", "container_id", "role")
_RESULTS: Final = ("output", "outputs", "results", "result", "error", "tools")
_UNREAD_AT_ADDED: Final = frozenset({("tool_search_call", "call_id")})
"""What every client takes from `done` alone: the kind of the item, and the field."""
_FINAL: Final = frozenset({"completed", "incomplete", "failed"})
_SPOKEN: Final = frozenset({"message", "reasoning"})
"""The kinds of item that are not there if they say nothing."""


def judge_added(track: Track, _event: type[StreamEvent], body: Body) -> Iterator[Fault]:
    """Judge how an item begins: without text, parts or a result."""
    item = an_object(body.get("item"))
    track.stable = {name: item.get(name) for name in _STABLE}
    track.approved = item.get("approval_request_id") is not None
    if track.automaton is None or track.automaton.whole:
        return
    status = item.get("status") or "in_progress"
    if status != "in_progress":
        track.early.append(Fault("R10", f"the item began with the status {shown(status)}", habit="status-at-added"))
        track.begun_as = a_text(status)
    for path in (("content",), ("summary",), _COMMANDS if track.kind == "shell_call" else ()):
        if path and inside(item, path):
            yield Fault("R9", f"the item has {path[-1]} before they are written")
    initial_text = inside(item, track.own_text) if track.own_text else None
    if initial_text:
        track.text.add(a_text(initial_text))
        wrong = f"the item had {'.'.join(track.own_text)} before they were written"
        track.early.append(Fault("R9", wrong, habit="begins-whole"))
    for name in _RESULTS:
        if item.get(name):
            track.early.append(Fault("R11", f"the item had {name} before its tool ran", habit="result-at-added"))


def judge_done(track: Track, _event: type[StreamEvent], body: Body) -> Iterator[Fault]:
    """Judge how an item ends: the same item, with all its text, in a status that its events allow, with its result."""
    item = an_object(body.get("item"))
    track.done, track.loose = digests(item), loosened(item)
    status = item.get("status")
    track.status = status if isinstance(status, str) else None
    for name, value in track.stable.items():
        if item.get(name) != value:
            wrong = f"the item was added with {name} {shown(value)} and is done with {shown(item.get(name))}"
            yield Fault("R7", wrong, habit="unread-at-added" if (track.kind, name) in _UNREAD_AT_ADDED else "")
    yield from _begun_early(track)
    if status is not None and track.automaton and track.orderly and track.status not in _ends(track):
        ends = " or ".join(sorted(_ends(track)))
        wrong = f"the item ends with the status {shown(status)}, and its events say {ends}"
        yield Fault("R10", wrong, habit=_habit_of_status(track))
    yield from _whole(track, item)
    yield from _result(track, item)


def _begun_early(track: Track) -> Iterator[Fault]:
    """Judge what the item had when it was added: a service that sends it whole sends nothing in between."""
    for fault in track.early:
        borne = track.begun_as in {"", track.status} and (track.quiet or fault.rule == "R10")
        yield fault if borne else evolve(fault, habit="")
    track.early = []


def _ends(track: Track) -> frozenset[str]:
    """Return the statuses with which the item can end, as its kind shows them: any, if it came whole."""
    if track.automaton and track.automaton.whole:
        return frozenset(track.statuses)
    return frozenset(end if end in track.statuses else "in_progress" for end in track.node.ends)


def _habit_of_status(track: Track) -> str:
    """Return the habit behind a status in which the item cannot have ended; none if it is an error."""
    if track.status not in track.statuses:
        return ""
    if track.status not in _FINAL:
        return "status-behind"
    ended = track.automaton and track.automaton.completions and track.node.ends == frozenset({"completed"})
    return "status-of-tool" if ended else ""


def _whole(track: Track, item: Body) -> Iterator[Fault]:
    """Judge the texts of an item that is done."""
    if track.own_text:
        difference = track.text.settle(a_text(inside(item, track.own_text)))
        if difference:
            yield Fault("R9", f"the item's {'.'.join(track.own_text)} {difference}")
    for name, parts in track.parts.items():
        item_parts = [_digests(part) for part in a_list(item.get(name))]
        if parts is not None and item_parts != parts:
            alike = [loose for _, loose in item_parts] == [loose for _, loose in parts]
            wrong = f"the item's {name} are not the {len(parts)} parts that were done"
            yield Fault("R9", wrong, habit="logprobs-elsewhere" if alike else "")
    if track.kind == "shell_call" and track.known and track.orderly and track.commands != inside(item, _COMMANDS):
        yield Fault("R9", f"the item's commands are not the {len(track.commands)} that were done")
    if track.outputs and digest(track.outputs) != digest(item.get("output")):
        yield Fault("R9", "the item's output is not that of its commands")
    if track.kind in _SPOKEN and (track.kind != "reasoning" or item.get("content") or item.get("summary")):
        texts = [_text(an_object(part)) for name in track.parts for part in a_list(item.get(name))]
        if not "".join(texts).strip():
            yield Fault("R18", f"a {track.kind} without text is no item", habit="blank")
        elif track.first_delta is not None and not track.first_delta.strip():
            message = "the item's text begins with a delta of white space alone, which waits for other text"
            yield Fault("R18", message, habit="blank")
    track.parts = {}


def _result(track: Track, item: Body) -> Iterator[Fault]:
    """Judge whether a call carries what its tool gave, which its status and its events tell."""
    output, error, status = item.get("output"), item.get("error"), item.get("status")
    match track.kind:
        case "mcp_call" if status == "completed":
            if output is None or error is not None:
                yield Fault("R11", "a call that is completed has its output, and no error")
        case "mcp_call" if status == "failed":
            if error is None:
                yield Fault("R11", "a call that failed has its error")
        case "mcp_call" if output is not None:
            yield Fault("R11", "a call that did not end has an output")
        case "mcp_list_tools" if [*track.node.ends] == ["completed" if error is not None else "failed"]:
            yield Fault("R11", "the listing of tools has an error just if it failed")
        case _:
            pass


def judge_own_delta(track: Track, _event: type[StreamEvent], body: Body) -> Iterator[Fault]:
    """Judge a piece of the item's own text."""
    track.text.add(a_text(body.get("delta")))
    yield from ()


def judge_own_done(track: Track, event: type[StreamEvent], body: Body) -> Iterator[Fault]:
    """Judge the item's own text, and its name where that is given."""
    name = body.get("name", track.stable.get("name"))
    if track.added and name != track.stable.get("name"):
        yield Fault("R7", f"the item was added with name {shown(track.stable.get('name'))} and is here called {shown(name)}")
    field = own_fields(event)[0]
    wrong = track.text.settle(a_text(body.get(field)))
    if wrong:
        yield Fault("R9", f"{field} {wrong}")
    elif track.known and track.text.at_once:
        yield Fault("R9", f"{field} comes without a delta", habit="text-at-once" if track.kind == "mcp_call" else "")


def judge_in_progress_again(track: Track, _event: type[StreamEvent], _body: Body) -> Iterator[Fault]:
    """Judge how often a call is said to be in progress: once, or twice after an approval."""
    track.announced += 1
    if track.known and track.announced > 1 + track.approved:
        yield Fault("R10", "the call is said to be in progress again, and was not approved")


def judge_command(track: Track, event: type[StreamEvent], body: Body) -> Iterator[Fault]:
    """Judge what an event says of a command of a shell call: its index and its text."""
    begins = event.after is Place.PART and event.before is not Place.PART
    if begins:
        track.commands.append("")
        track.part = Part("command", len(track.commands) - 1, known=True)
        if body.get("command"):
            yield Fault("R9", "the command has text before it is written")
    part = track.part
    if part is None:
        return
    if track.known and body.get("command_index") != part.index:
        yield Fault("R8", f"command_index is {shown(body.get('command_index'))} instead of {part.index}")
    if "delta" in event.__struct_fields__:
        part.text.add(a_text(body.get("delta")))
    elif not begins:
        command = track.commands[-1] = a_text(body.get("command"))
        wrong = part.text.settle(command)
        if wrong:
            yield Fault("R9", f"command {wrong}")
        elif part.text.at_once:
            yield Fault("R9", "command comes without a delta")
        track.part = None


def judge_printed(track: Track, event: type[StreamEvent], body: Body) -> Iterator[Fault]:
    """Judge what a command of a shell printed, and what is said of it when it has ended."""
    if track.known and body.get("command_index") != track.ended_commands:
        yield Fault("R8", f"command_index is {shown(body.get('command_index'))} instead of {track.ended_commands}")
    if "delta" in event.__struct_fields__:
        for name, text in an_object(body.get("delta")).items():
            track.printed[name] = track.printed.get(name, "") + a_text(text)
        return
    outputs = [an_object(one) for one in a_list(body.get("output"))]
    for name in ("stdout", "stderr"):
        text = track.printed.get(name)
        if track.known and text and text != "".join([a_text(one.get(name)) for one in outputs]):
            yield Fault("R9", f"the {name} of the command is not what it printed")
    track.outputs += outputs
    track.printed = {}
    track.ended_commands += 1


def judge_part_added(track: Track, event: type[StreamEvent], body: Body) -> Iterator[Fault]:
    """Judge how a part begins: empty, and with the next index of its list."""
    index, part, name = _index(event, body), an_object(body.get("part")), _list(event)
    expected = track.next_index.get(name, index)
    track.next_index[name] = index + 1
    if index != expected:
        yield Fault("R8", f"{name}_index is {index} instead of {expected}")
    if _text(part) or part.get("annotations") or part.get("logprobs"):
        yield Fault("R9", "the part has text before it is written")
    track.part = Part(a_text(part.get("type")), index, known=True)


def _open_part(track: Track, event: type[StreamEvent], body: Body, type_: str) -> tuple[Part, list[Fault]]:
    """Return the part that an event is about, and what is wrong with that; if none is open, one of the event's type is made."""
    index, part = _index(event, body), track.part
    if part is None or part.type != type_:
        track.part = Part(type_, index, known=False)
        return track.part, [Fault("R9", f"the part began as {part.type} and is now {type_}")] if part else []
    wrong = Fault("R8", f"{_list(event)}_index is {index} instead of {part.index}")
    return part, [wrong] if part.index != index else []


def judge_part_delta(track: Track, event: type[StreamEvent], body: Body) -> Iterator[Fault]:
    """Judge a piece of a part's text, and its log probabilities."""
    part, faults = _open_part(track, event, body, _TYPE_OF[event])
    yield from faults
    delta = a_text(body.get("delta"))
    if track.first_delta is None and track.known:
        track.first_delta = delta
    part.text.add(delta)
    if part.logprobs is not None:
        yield from _logprobs(track, part, event, body)
        if part.logprobs is not None:  # pyright: ignore[reportUnnecessaryComparison] - it may have been given up just now
            part.logprobs.add(a_list(body.get("logprobs")))


def judge_annotation(track: Track, event: type[StreamEvent], body: Body) -> Iterator[Fault]:
    """Judge the number of an annotation."""
    part, faults = _open_part(track, event, body, _TYPE_OF[event])
    yield from faults
    if part.known:
        index, number = body.get("annotation_index"), len(part.annotations)
        if index != number:
            yield Fault("R8", f"annotation_index is {shown(index)} instead of {number}")
        part.annotations.append(digest(body.get("annotation")))


def judge_part_text_done(track: Track, event: type[StreamEvent], body: Body) -> Iterator[Fault]:
    """Judge the whole text of a part."""
    part, faults = _open_part(track, event, body, _TYPE_OF[event])
    yield from faults
    field = own_fields(event)[0]
    text = a_text(body.get(field))
    wrong = part.text.settle(text)
    if wrong:
        yield Fault("R9", f"{field} {wrong}")
    elif part.known and part.text.at_once:
        yield Fault("R9", f"{field} comes without a delta")
    yield from _logprobs(track, part, event, body)
    if part.logprobs is not None:
        if not part.logprobs.are(a_list(body.get("logprobs"))):
            yield Fault("R15", "the logprobs are not those of the deltas")
        elif not part.logprobs.rebuild(text):
            yield Fault("R15", "the tokens of the logprobs do not make up the text", habit="tokens-differ")


def _logprobs(track: Track, part: Part, event: type[StreamEvent], body: Body) -> list[Fault]:
    """Judge whether an event has log probabilities; without them, those of its part cannot be judged.

    A service that leaves them out, or sends null, leaves them out of every event of that name for which nobody asked.
    """
    if part.logprobs is None or not unsound(body.get("logprobs")):
        if body.get("logprobs") == []:
            track.lists_logprobs.add(wire_name(event))
        return []
    part.logprobs = None
    if "logprobs" in body and body["logprobs"] is None:
        return []  # the null has been found
    wrong = "logprobs are missing, or not the log probabilities of tokens"
    habit = "" if "logprobs" in body or wire_name(event) in track.lists_logprobs else "no-logprobs"
    return [Fault("R15", wrong, habit=habit)]


def judge_part_done(track: Track, event: type[StreamEvent], body: Body) -> Iterator[Fault]:
    """Judge a part that is done: the text and the annotations that came."""
    whole_part = an_object(body.get("part"))
    part, faults = _open_part(track, event, body, a_text(whole_part.get("type")))
    yield from faults
    track.part = None
    wrong = part.text.settle(_text(whole_part))
    if wrong:
        yield Fault("R9", f"the part's text {wrong}")
    if part.known and [digest(one) for one in a_list(whole_part.get("annotations"))] != part.annotations:
        yield Fault("R9", f"the part's annotations are not the {len(part.annotations)} that were added")
    logprobs = whole_part.get("logprobs")
    if part.logprobs is not None and logprobs and (unsound(logprobs) or not part.logprobs.are(a_list(logprobs))):
        yield Fault("R15", "the part's logprobs are not those of the deltas")
    done = track.parts.get(_list(event))
    if done is not None:
        done.append(_digests(whole_part))


def _digests(part: object) -> tuple[Digest, Digest]:
    """Return the digest of a part, and that of the part without what no client reads twice."""
    return digest(part), digest({name: one.hex() for name, one in loosened(an_object(part)).items()})


def _list(event: type[StreamEvent]) -> str:
    """Return the list whose part an event is about."""
    return "summary" if issubclass(event, SummaryEvent) else "content"


def _index(event: type[StreamEvent], body: Body) -> int:
    index = body.get(f"{_list(event)}_index")
    return index if isinstance(index, int) else -1


def _text(part: Body) -> str:
    return a_text(part.get("refusal")) or a_text(part.get("text"))


def _part_type(event: str) -> str:
    """Return the type of the part whose text an event is about, which the event's name ends with."""
    about = event.rpartition(".")[0]
    tags = (wire_name(part) for part in (SummaryText, ReasoningText, Refusal))
    return next((tag for tag in tags if about.endswith(tag)), "output_text")


_TYPE_OF: Final[Mapping[type[StreamEvent], str]] = {
    event: _part_type(name) for name, event in EVENTS.items() if issubclass(event, PartEvent | SummaryEvent)
}


def _judge_of(event: type[StreamEvent]) -> Judge | None:
    """Choose the function for an event by what it is about and what it carries."""
    if issubclass(event, PartEvent | SummaryEvent):
        return _judge_of_part(event)
    if is_own_text(event):
        return judge_own_delta if "delta" in event.__struct_fields__ else judge_own_done
    return next((judge for base, judge in _JUDGES.items() if issubclass(event, base)), None)


def _judge_of_part(event: type[StreamEvent]) -> Judge:
    if "part" in event.__struct_fields__:
        return judge_part_added if event.after is Place.PART else judge_part_done
    if event is AnnotationAdded:
        return judge_annotation
    return judge_part_delta if "delta" in event.__struct_fields__ else judge_part_text_done


_JUDGES: Final[Mapping[type[StreamEvent], Judge]] = {
    ItemAdded: judge_added,
    ItemDone: judge_done,
    McpInProgress: judge_in_progress_again,
    CommandEvent: judge_command,
    CommandOutputEvent: judge_printed,
}
JUDGES: Final = {event: judge for event in EVENTS.values() if (judge := _judge_of(event)) is not None}
"""The function that judges each event that says something beside that it happened."""
