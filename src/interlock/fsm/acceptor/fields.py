"""What the judge makes of an event whose fields are not as its type says (rule R14).

Which fields there are is said by the types (`interlock.events.shapes` reads them); here is whose business a fault is, and which
are borne by every client. It knows nothing of order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast, get_args

from attrs import frozen

from interlock.events.items import ITEMS
from interlock.events.parts import ContentPart, OutputPart, SummaryText
from interlock.events.shapes import Fault, faults, name_of, param_of
from interlock.events.stream import ItemAdded, StreamEvent
from interlock.fsm.acceptor.json_digest import a_text, an_object, called, shown

_OF_AN_EVENT: Final = frozenset({"sequence_number", "output_index"})
_OF_ANOTHER_LEVEL: Final = _OF_AN_EVENT | {
    *("item_id", "content_index", "summary_index", "delta", "logprobs", "response", "item", "part"),
}
"""Fields that an object cannot have as a vendor's own: they say where an event stands, or hold what it carries."""
_LATER: Final = frozenset({("web_search_call", "action"), ("image_generation_call", "result")})
"""Fields that an item need not have before it is done."""
_NEWER: Final = frozenset(
    {
        *(("Response", name) for name in ("parallel_tool_calls", "tool_choice", "tools")),
        *(("Usage", name) for name in ("input_tokens_details", "output_tokens_details")),
    }
)
"""Fields that older services do not send, and that every client was seen to do without."""
_PARTS: Final = frozenset(map(name_of, (*get_args(OutputPart), SummaryText)))
_KNOWN: Final = frozenset({*ITEMS, *map(name_of, get_args(ContentPart))})
"""The types that the API has somewhere, so that they are an error elsewhere."""
_FREE: Final = frozenset({"attributes", "env"})
"""The objects whose names anybody chooses."""
_NOUNS: Final = {"content": "part", "summary": "part"}


@frozen
class Wrong:
    """What is wrong with the fields of an event.

    Args:
        message: What is wrong.
        stray: Whether the rest of the event can be judged all the same.
        habit: The habit of real services that it is; empty for an error.
    """

    message: str
    stray: bool
    habit: str


def in_event(event: type[StreamEvent], body: Mapping[str, object]) -> list[Wrong]:
    """Return what is wrong with the fields of an event, and of the item, part or response in it.

    Args:
        event: Which event it is.
        body: Its body.
    """
    whole = {**body, "response": _without_lists(body["response"])} if "response" in body else dict(body)
    return [_wrong(fault) for fault in faults(whole, event, direction="stream") if not _is_anothers(fault, event)]


def _without_lists(response: object) -> object:
    """Return a response with empty lists: its items are compared with those that were done, and its tools are the request's."""
    if type(response) is not dict:
        return response
    nothing: list[object] = []
    return {name: nothing if type(value) is list else value for name, value in an_object(cast("object", response)).items()}


def is_unknown_part(body: Mapping[str, object]) -> bool:
    """Return whether an event carries a part of a type that nobody knows."""
    kind = a_text(an_object(body.get("part")).get("type"))
    return bool(kind) and kind not in _PARTS


def _is_anothers(fault: Fault, event: type[StreamEvent]) -> bool:
    """Return whether a fault is none, or the business of another rule: numbers of R2, log probabilities of R15, the end of R13.

    What a response echoes of its request is not looked into.
    """
    match fault.path:
        case ("sequence_number",):
            return True
        case ("logprobs", *inner):
            return bool(inner) or fault.kind == "missing"
        case ("item", field):
            return fault.kind == "missing" and event is ItemAdded and (fault.type, field) in _LATER
        case ("response", str(field)):
            elsewhere = {"unknown": field not in _OF_AN_EVENT, "value": field not in {"object", "status"}}
            return elsewhere.get(fault.kind, False)
        case ("response", field, *inner):
            return field != "usage" or len(inner) > 1 or fault.kind == "unknown"
        case _:
            return False


def _wrong(fault: Fault) -> Wrong:
    last = max(at for at, step in enumerate(fault.path) if isinstance(step, str))
    above = [step for step in fault.path[:last] if isinstance(step, str)]
    field, value = param_of(fault.path[last:]), fault.value
    name = fault.type if fault.type.islower() or not above else above[-1]
    habit = _habit(fault, field)
    field = shown(field) if above and above[-1] in _FREE else field
    if field == "type" and fault.kind != "unknown":
        message = f"there is no {_NOUNS.get(above[-1], above[-1].removesuffix('s'))} of type {shown(value)}"
    elif fault.kind == "unknown":
        message = f"{name} has no field {shown(field)}"
    elif fault.kind == "missing":
        message = f"{name}: {field} is missing"
    elif fault.kind == "value":
        message = f"{name}: {field} is {shown(value)}, and not {fault.expected}"
    else:
        message = f"{name}: {field} is {called(value)}"
    return Wrong(message, bool(habit) or fault.kind in {"unknown", "tag"}, habit)


def _habit(fault: Fault, field: str) -> str:
    """Return the habit of real services that a fault is; none if it is an error."""
    match fault.kind:
        case "unknown" if field not in _OF_ANOTHER_LEVEL:
            return "vendor-field"
        case "null":
            return "null"
        case "type" if fault.path == ("logprobs",) and fault.value is None:
            return "null"
        case "tag" if fault.value not in _KNOWN:
            return "unknown-item"
        case "missing" if (fault.type, field) in _NEWER:
            return "field-of-newer"
        case _:
            return ""
