"""What the events of an item say, compared with what the earlier ones said (R7 to R11, R15, R18).

One function for each sort of event; it takes the item's track and the event's body, whose fields have been looked at
(`shapes`), yields what is wrong and notes what later events will be compared with. None of them knows the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from attrs import evolve

from interlock.events.olditems import REASONING_TEXT, REFUSAL, SUMMARY_TEXT, PartSpec
from interlock.events.spec import EVENTS, MCP_IN_PROGRESS, EventSpec, Place, Scope
from interlock.fsm.acceptor.finding import Fault
from interlock.fsm.acceptor.texts import unsound
from interlock.fsm.acceptor.track import Part, Track
from interlock.fsm.acceptor.values import Digest, a_list, a_text, an_object, digest, digests, inside, loosened

Body: TypeAlias = Mapping[str, object]
Judge: TypeAlias = Callable[[Track, EventSpec, Body], Iterator[Fault]]

_STABLE: Final = ("id", "type", "call_id", "name", "namespace", "server_label", "container_id", "role")
_RESULTS: Final = ("output", "outputs", "results", "result", "error", "tools")
_INDEX: Final = {Scope.PART: "content_index", Scope.SUMMARY: "summary_index"}
_LIST: Final = {Scope.PART: "content", Scope.SUMMARY: "summary"}
_UNREAD_AT_ADDED: Final = frozenset({("tool_search_call", "call_id")})
"""What every client takes from `done` alone: the kind of the item, and the field."""
_FINAL: Final = frozenset({"completed", "incomplete", "failed"})
_SPOKEN: Final = frozenset({"message", "reasoning"})
"""The kinds of item that are not there if they say nothing."""


def judge_added(track: Track, _spec: EventSpec, body: Body) -> Iterator[Fault]:
    """Judge how an item begins: without text, parts or a result."""
    item = an_object(body.get("item"))
    track.stable = {name: item.get(name) for name in _STABLE}
    track.approved = item.get("approval_request_id") is not None
    if track.spec is None or track.spec.whole:
        return
    status = item.get("status") or "in_progress"
    if status != "in_progress":
        track.early.append(Fault("R10", f"the item began with the status {status!r}", habit="status-at-added"))
        track.begun_as = a_text(status)
    for name in ("content", "summary", "action.commands"):
        if name in {"content", "summary", *track.spec.lists} and inside(item, name):
            yield Fault("R9", f"the item has {name} before they are written")
    begun = inside(item, track.spec.text) if track.spec.text else None
    if begun:
        track.text.add(a_text(begun))
        track.early.append(Fault("R9", f"the item had {track.spec.text} before they were written", habit="begins-whole"))
    for name in _RESULTS:
        if item.get(name):
            track.early.append(Fault("R11", f"the item had {name} before its tool ran", habit="result-at-added"))


def judge_done(track: Track, _spec: EventSpec, body: Body) -> Iterator[Fault]:
    """Judge how an item ends: the same item, with all its text, in a status that its events allow, with its result."""
    item = an_object(body.get("item"))
    track.done, track.loose = digests(item), loosened(item)
    status = item.get("status")
    track.status = status if isinstance(status, str) else None
    for name, value in track.stable.items():
        if item.get(name) != value:
            wrong = f"the item was added with {name} {value!r} and is done with {item.get(name)!r}"
            yield Fault("R7", wrong, habit="unread-at-added" if (track.kind, name) in _UNREAD_AT_ADDED else "")
    yield from _begun_early(track)
    if status is not None and track.automaton and track.orderly and track.status not in _ends(track):
        ends = " or ".join(sorted(_ends(track)))
        wrong = f"the item ends with the status {status!r}, and its events say {ends}"
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
    statuses = track.spec.statuses if track.spec else ()
    if track.spec and track.spec.whole:
        return frozenset(statuses)
    return frozenset(end if end in statuses else "in_progress" for end in track.node.ends)


def _habit_of_status(track: Track) -> str:
    """Return the habit behind a status in which the item cannot have ended; none if it is an error."""
    if track.spec is None or track.status not in track.spec.statuses:
        return ""
    if track.status not in _FINAL:
        return "status-behind"
    ended = track.automaton and track.automaton.completions and track.node.ends == frozenset({"completed"})
    return "status-of-tool" if ended else ""


def _whole(track: Track, item: Body) -> Iterator[Fault]:
    """Judge the texts of an item that is done."""
    if track.spec and track.spec.text:
        difference = track.text.settle(a_text(inside(item, track.spec.text)))
        if difference:
            yield Fault("R9", f"the item's {track.spec.text} {difference}")
    for name, parts in track.parts.items():
        said = [_digests(part) for part in a_list(item.get(name))]
        if parts is not None and said != parts:
            alike = [loose for _, loose in said] == [loose for _, loose in parts]
            wrong = f"the item's {name} are not the {len(parts)} parts that were done"
            yield Fault("R9", wrong, habit="logprobs-elsewhere" if alike else "")
    if track.kind == "shell_call" and track.known and track.orderly and track.commands != inside(item, "action.commands"):
        yield Fault("R9", f"the item's commands are not the {len(track.commands)} that were done")
    if track.outputs and track.outputs != item.get("output"):
        yield Fault("R9", "the item's output is not that of its commands")
    if track.kind in _SPOKEN and (track.kind != "reasoning" or item.get("content") or item.get("summary")):
        texts = [_text(an_object(part)) for name in track.parts for part in a_list(item.get(name))]
        if not "".join(texts).strip():
            yield Fault("R18", f"a {track.kind} without text is no item", habit="blank")
        elif track.first_delta is not None and not track.first_delta.strip():
            begun = "the item's text begins with a delta of white space alone, which waits for other text"
            yield Fault("R18", begun, habit="blank")
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


def judge_own_delta(track: Track, _spec: EventSpec, body: Body) -> Iterator[Fault]:
    """Judge a piece of the item's own text."""
    track.text.add(a_text(body.get("delta")))
    yield from ()


def judge_own_done(track: Track, spec: EventSpec, body: Body) -> Iterator[Fault]:
    """Judge the item's own text, and its name where that is given."""
    name = body.get("name", track.stable.get("name"))
    if track.added and name != track.stable.get("name"):
        yield Fault("R7", f"the item was added with name {track.stable.get('name')!r} and is here called {name!r}")
    field = spec.fields[-1]
    wrong = track.text.settle(a_text(body.get(field)))
    if wrong:
        yield Fault("R9", f"{field} {wrong}")
    elif track.known and track.text.at_once:
        yield Fault("R9", f"{field} comes without a delta", habit="text-at-once" if track.kind == "mcp_call" else "")


def judge_in_progress_again(track: Track, _spec: EventSpec, _body: Body) -> Iterator[Fault]:
    """Judge how often a call is said to be in progress: once, or twice after an approval."""
    track.announced += 1
    if track.known and track.announced > 1 + track.approved:
        yield Fault("R10", "the call is said to be in progress again, and was not approved")


def judge_command(track: Track, spec: EventSpec, body: Body) -> Iterator[Fault]:
    """Judge what an event says of a command of a shell call: its index and its text."""
    begins = spec.after is Place.PART and spec.before is not Place.PART
    if begins:
        track.commands.append("")
        track.part = Part("command", len(track.commands) - 1, known=True)
        if body.get("command"):
            yield Fault("R9", "the command has text before it is written")
    part = track.part
    if part is None:
        return
    if track.known and body.get("command_index") != part.index:
        yield Fault("R8", f"command_index is {body.get('command_index')} instead of {part.index}")
    if "delta" in spec.fields:
        part.text.add(a_text(body.get("delta")))
    elif not begins:
        command = track.commands[-1] = a_text(body.get("command"))
        wrong = part.text.settle(command)
        if wrong:
            yield Fault("R9", f"command {wrong}")
        elif part.text.at_once:
            yield Fault("R9", "command comes without a delta")
        track.part = None


def judge_printed(track: Track, spec: EventSpec, body: Body) -> Iterator[Fault]:
    """Judge what a command of a shell printed, and what is said of it when it has ended."""
    if track.known and body.get("command_index") != track.ended_commands:
        yield Fault("R8", f"command_index is {body.get('command_index')} instead of {track.ended_commands}")
    if "delta" in spec.fields:
        for name, text in an_object(body.get("delta")).items():
            track.printed[name] = track.printed.get(name, "") + a_text(text)
        return
    said = [an_object(one) for one in a_list(body.get("output"))]
    for name in ("stdout", "stderr"):
        text = track.printed.get(name)
        if track.known and text and text != "".join([a_text(one.get(name)) for one in said]):
            yield Fault("R9", f"the {name} of the command is not what it printed")
    track.outputs += said
    track.printed = {}
    track.ended_commands += 1


def judge_part_added(track: Track, spec: EventSpec, body: Body) -> Iterator[Fault]:
    """Judge how a part begins: empty, and with the next index of its list."""
    index, part = _index(spec, body), an_object(body.get("part"))
    expected = track.next_index.get(_LIST[spec.scope], index)
    track.next_index[_LIST[spec.scope]] = index + 1
    if index != expected:
        yield Fault("R8", f"{_INDEX[spec.scope]} is {index} instead of {expected}")
    if _text(part) or part.get("annotations") or part.get("logprobs"):
        yield Fault("R9", "the part has text before it is written")
    track.part = Part(a_text(part.get("type")), index, known=True)


def _open_part(track: Track, spec: EventSpec, body: Body, type_: str) -> tuple[Part, list[Fault]]:
    """Return the part that an event is about, and what is wrong with that; if none is open, one of the event's type is made."""
    index, part = _index(spec, body), track.part
    if part is None or part.type != type_:
        track.part = Part(type_, index, known=False)
        return track.part, [Fault("R9", f"the part began as {part.type} and is now {type_}")] if part else []
    wrong = Fault("R8", f"{_INDEX[spec.scope]} is {index} instead of {part.index}")
    return part, [wrong] if part.index != index else []


def judge_part_delta(track: Track, spec: EventSpec, body: Body) -> Iterator[Fault]:
    """Judge a piece of a part's text, and its log probabilities."""
    part, faults = _open_part(track, spec, body, _TYPE_OF[spec.name])
    yield from faults
    delta = a_text(body.get("delta"))
    if track.first_delta is None and track.known:
        track.first_delta = delta
    part.text.add(delta)
    if part.logprobs is not None:
        yield from _logprobs(track, part, spec, body)
        if part.logprobs is not None:  # pyright: ignore[reportUnnecessaryComparison] - it may have been given up just now
            part.logprobs.add(a_list(body.get("logprobs")))


def judge_annotation(track: Track, spec: EventSpec, body: Body) -> Iterator[Fault]:
    """Judge the number of an annotation."""
    part, faults = _open_part(track, spec, body, _TYPE_OF[spec.name])
    yield from faults
    if part.known:
        given, number = body.get("annotation_index"), len(part.annotations)
        if given != number:
            yield Fault("R8", f"annotation_index is {given} instead of {number}")
        part.annotations.append(digest(body.get("annotation")))


def judge_part_text_done(track: Track, spec: EventSpec, body: Body) -> Iterator[Fault]:
    """Judge the whole text of a part."""
    part, faults = _open_part(track, spec, body, _TYPE_OF[spec.name])
    yield from faults
    text = a_text(body.get(spec.fields[0]))
    wrong = part.text.settle(text)
    if wrong:
        yield Fault("R9", f"{spec.fields[0]} {wrong}")
    elif part.known and part.text.at_once:
        yield Fault("R9", f"{spec.fields[0]} comes without a delta")
    yield from _logprobs(track, part, spec, body)
    if part.logprobs is not None:
        if not part.logprobs.are(a_list(body.get("logprobs"))):
            yield Fault("R15", "the logprobs are not those of the deltas")
        elif not part.logprobs.rebuild(text):
            yield Fault("R15", "the tokens of the logprobs do not make up the text", habit="tokens-differ")


def _logprobs(track: Track, part: Part, spec: EventSpec, body: Body) -> list[Fault]:
    """Judge whether an event has log probabilities; without them, those of its part cannot be judged.

    A service that leaves them out, or sends null, leaves them out of every event of that name for which nobody asked.
    """
    if part.logprobs is None or not unsound(body.get("logprobs")):
        if body.get("logprobs") == []:
            track.lists_logprobs.add(spec.name)
        return []
    part.logprobs = None
    if "logprobs" in body and body["logprobs"] is None:
        return []  # the null has been found
    wrong = "logprobs are missing, or not the log probabilities of tokens"
    habit = "" if "logprobs" in body or spec.name in track.lists_logprobs else "no-logprobs"
    return [Fault("R15", wrong, habit=habit)]


def judge_part_done(track: Track, spec: EventSpec, body: Body) -> Iterator[Fault]:
    """Judge a part that is done: the text and the annotations that came."""
    said = an_object(body.get("part"))
    part, faults = _open_part(track, spec, body, a_text(said.get("type")))
    yield from faults
    track.part = None
    wrong = part.text.settle(_text(said))
    if wrong:
        yield Fault("R9", f"the part's text {wrong}")
    if part.known and [digest(one) for one in a_list(said.get("annotations"))] != part.annotations:
        yield Fault("R9", f"the part's annotations are not the {len(part.annotations)} that were added")
    logprobs = said.get("logprobs")
    if part.logprobs is not None and logprobs and (unsound(logprobs) or not part.logprobs.are(a_list(logprobs))):
        yield Fault("R15", "the part's logprobs are not those of the deltas")
    done = track.parts.get(_LIST[spec.scope])
    if done is not None:
        done.append(_digests(said))


def _digests(part: object) -> tuple[Digest, Digest]:
    """Return the digest of a part, and that of the part without what no client reads twice."""
    return digest(part), digest({name: one.hex() for name, one in loosened(an_object(part)).items()})


def _index(spec: EventSpec, body: Body) -> int:
    index = body.get(_INDEX[spec.scope])
    return index if isinstance(index, int) else -1


def _text(part: Body) -> str:
    return a_text(part.get(REFUSAL.text)) or a_text(part.get("text"))


def _part_type(event: str) -> str:
    """Return the type of the part whose text an event is about, which the event's name ends with."""
    parts: tuple[PartSpec, ...] = (SUMMARY_TEXT, REASONING_TEXT, REFUSAL)
    about = event.rpartition(".")[0]
    return next((part.type for part in parts if about.endswith(part.type)), "output_text")


_TYPE_OF: Final = {name: _part_type(name) for name, spec in EVENTS.items() if spec.scope in _INDEX}


_OF_A_SHELL: Final[Mapping[Scope, Judge]] = {Scope.COMMAND: judge_command, Scope.COMMAND_OUTPUT: judge_printed}


def _judge_of(spec: EventSpec) -> Judge | None:
    """Choose the function for an event by what its specification says that it carries."""
    if spec.scope in _OF_A_SHELL:
        return _OF_A_SHELL[spec.scope]
    if spec.scope is Scope.BRACKET:
        return judge_added if spec.before is Place.OUTSIDE else judge_done
    if spec.scope in _INDEX:
        return _judge_of_part(spec)
    if spec.scope is Scope.ITEM and spec.name.endswith((".delta", ".done")):
        return judge_own_delta if "delta" in spec.fields else judge_own_done
    return judge_in_progress_again if spec is MCP_IN_PROGRESS else None


def _judge_of_part(spec: EventSpec) -> Judge:
    if "part" in spec.fields:
        return judge_part_added if spec.after is Place.PART else judge_part_done
    if "annotation" in spec.fields:
        return judge_annotation
    return judge_part_delta if "delta" in spec.fields else judge_part_text_done


JUDGES: Final = {name: judge for name, spec in EVENTS.items() if (judge := _judge_of(spec)) is not None}
"""The function that judges each event that says something beside that it happened."""
