"""Where the page shows an event: its lane, its name there, and what it says of its lane."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final

from attrs import frozen

from interlock.dialects import ApiName
from interlock.events.items import ITEMS
from interlock.events.json import as_text, elements, members
from interlock.events.stream import ItemAdded, wire_name
from interlock.judges import DIALECT_JUDGES, JudgedMessage
from interlock.judges.chat import ChatJudge
from interlock.judges.digests import quote
from interlock.judges.judging import DONE

_SEARCHES: Final = frozenset(kind for kind, item in ITEMS.items() if {"action", "queries"} & {*item.__struct_fields__})
"""The kinds whose items may say only at their end what they look for or do."""


@frozen
class Place:
    """The place of an event.

    Args:
        name: Its name.
        lane: Its lane; None for that of the response, the message or the completion.
        about: The kind, the name, the id and the index of the lane, if the event says anything of it.
        begins: Whether nothing later can say more of the lane.
    """

    name: str
    lane: Hashable = None
    about: Mapping[str, object] | None = None
    begins: bool = True


def place_of(api: ApiName | None, judged: JudgedMessage) -> Place:
    """Return the place of an event."""
    body = judged.body
    if judged.message.data == DONE:
        return Place(DONE)
    if body is None:
        return Place(judged.message.event)
    match api:
        case "messages":
            return _message_place(body)
        case "chat":
            return _chunk_place(body)
        case "responses" | None:
            return _item_place(judged, body)
        case _:  # an API whose page shows one lane
            return Place(DIALECT_JUDGES[api].name_event(body))


def _about(kind: str, name: object, id_: object, index: object = None) -> Mapping[str, object]:
    return {
        "kind": kind,
        "name": as_text(name) or None,
        "id": as_text(id_) or None,
        "index": index if isinstance(index, int) else None,
    }


def _item_place(judged: JudgedMessage, body: Mapping[str, object]) -> Place:
    type_ = body.get("type", judged.message.event)
    name = type_ if isinstance(type_, str) else quote(type_)
    transition = judged.transition
    index = transition.index if transition else body.get("output_index")
    if type(index) is not int:
        return Place(name)
    item = members(body.get("item"))
    kind = as_text(item.get("type")) or (transition.automaton.name if transition and transition.automaton else "")
    called = as_text(item.get("name")) or as_text(item.get("server_label")) or _searched(item)
    about = _about(kind, called, as_text(item.get("id")) or body.get("item_id"), body.get("output_index"))
    return Place(name, index, about, begins=type_ == wire_name(ItemAdded) and bool(called or kind not in _SEARCHES))


def _searched(item: Mapping[str, object]) -> str:
    """Return what a search looks for: a query, a pattern in a page, or a page."""
    action, queries = members(item.get("action")), elements(item.get("queries"))
    return next((text for text in map(as_text, (*map(action.get, ("query", "pattern", "url")), *queries)) if text), "")


def _message_place(body: Mapping[str, object]) -> Place:
    name, index = as_text(body.get("type")), body.get("index")
    lane = index if name.startswith("content_block_") and type(index) is int else None
    if name == "content_block_start":
        block = members(body.get("content_block"))
        id_ = as_text(block.get("id")) or block.get("tool_use_id")
        return Place(name, lane, _about(as_text(block.get("type")), block.get("name"), id_, lane))
    if name == "message_start":
        message = members(body.get("message"))
        return Place(name, lane, _about("message", message.get("model"), message.get("id")))
    return Place(name, lane)


def _chunk_place(body: Mapping[str, object]) -> Place:
    choice = members(next(iter(elements(body.get("choices"))), None))
    index = choice.get("index")
    at = index if isinstance(index, int) else 0
    match ChatJudge.name_event(body):
        case "delta.role":
            return Place("delta.role", None, _about("completion", body.get("model"), body.get("id")))
        case "start call" | "delta.tool_calls" as name:
            call = members(elements(members(choice.get("delta")).get("tool_calls"))[0])
            about = _about("tool_call", members(call.get("function")).get("name"), call.get("id"))
            return Place("delta.tool_calls", (at, "call", quote(call.get("index"))), about if name == "start call" else None)
        case "delta.content" | "delta.refusal" | "delta.reasoning" as name:
            kind = name.removeprefix("delta.")
            return Place(name, (at, kind), _about(kind, None if at == 0 else f"choice {at}", None))
        case name:
            return Place(name or as_text(body.get("object")) or "chunk")
