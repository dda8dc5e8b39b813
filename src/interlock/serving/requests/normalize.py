"""Reduces a conversation to the items that every engine can render: messages, reasoning, function calls and outputs.

A call of any other tool becomes a call of the function that represents the tool (`interlock.serving.requests.tool_offer`). A call
that a server ran becomes a call and its output. Items that a model cannot read are dropped. docs/guides/api.md has a table
of the input items.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256
from typing import Final

from attrs import define, field

from interlock.events.items import ITEMS
from interlock.events.items import Item as ItemType
from interlock.events.json import dumps, elements, is_array, members
from interlock.fsm.table import Machine
from interlock.parsers.routing import flat_name
from interlock.serving.requests.async_call_table import ASYNC_CALL, AsyncCallEffect, AsyncCallTrigger
from interlock.serving.requests.input_items import JsonItem, is_standalone, text_of

UNKNOWN_OUTPUT: Final = "[The output is not in the conversation.]"
"""What the model reads if a client sends a call of the code interpreter back without its `outputs`."""
PENDING: Final = "[The tool still runs. Its result follows later, after this call is shown again. Go on without it.]"
"""What the model reads as the output of a call of an async tool that the client has not answered."""
DENIED: Final = "The user did not approve this call. It was not made."


def normalize(
    items: Iterable[JsonItem], *, images: bool = True, files: bool = False, encrypted: bool = False
) -> tuple[JsonItem, ...]:
    """Return a conversation as messages, reasoning, function calls and their outputs.

    Args:
        items: Items of known types, each with its type; references are resolved and encrypted content is unsealed.
        images: Whether a tool's output keeps its images; if not, `[input_image]` replaces each.
        files: Whether it keeps its files, and all else that is not text.
        encrypted: Whether reasoning keeps the content that only its service can read.
    """
    conversation = [*items]
    denied = {item.get("approval_request_id") for item in conversation if item.get("approve") is False}
    kept = None if files else frozenset({"input_image"} if images else ())
    return tuple(
        each
        for item in conversation
        for each in (_encrypted(item) if encrypted and item.get("encrypted_content") else _normalize(item, denied, kept))
    )


def answer_async_calls(items: Sequence[JsonItem]) -> Sequence[JsonItem]:
    """Return a conversation in which every call of an async tool is followed by an output, as engines and templates require.

    The table in `async_call_table` decides which output that is: the call's own, or `PENDING` next to the call. A
    late output stays at its place, where the call precedes it again, with another id.
    """
    if not any(item.get("async") is True and _is_call(item) for item in items):
        return items
    calls: dict[object, _AsyncCall] = {}
    recent: list[_AsyncCall] = []
    result: list[list[JsonItem]] = []
    for index, item in enumerate(items):
        place: list[JsonItem] = [item]
        call_id = item.get("call_id")
        if _is_call(item):
            if item.get("async") is True:
                place = [_without(item, "async")]
                if call_id in calls:  # a client sends the call again
                    calls[call_id].fire(AsyncCallTrigger.END)
                calls[call_id] = _AsyncCall(place[0], place)
                recent.append(calls[call_id])
        elif not ITEMS.get(str(item["type"]), ItemType).as_function_output:
            for call in recent:
                call.fire(AsyncCallTrigger.CONTINUE)
            recent.clear()  # another such item changes nothing for them
        elif call_id in calls and AsyncCallEffect.REPEAT in calls[call_id].fire(AsyncCallTrigger.ANSWER):
            late_id = {"call_id": short_id(f"{call_id} {index}")}
            place = [{**_without(calls[call_id].item, "id"), **late_id}, {**item, **late_id}]
        result.append(place)
    for call in calls.values():
        call.fire(AsyncCallTrigger.END)
    return [item for place in result for item in place]


@define
class _AsyncCall:
    """A call of an async tool, and the items that the model reads at its place."""

    item: JsonItem
    _place: list[JsonItem]
    _machine: Machine[AsyncCallTrigger, AsyncCallEffect] = field(factory=lambda: Machine.at_start(ASYNC_CALL), init=False)

    def fire(self, trigger: AsyncCallTrigger) -> Sequence[AsyncCallEffect]:
        """Fire a trigger, and put `PENDING` next to the call if nothing else will stand there."""
        effects = self._machine.fire(trigger)
        if AsyncCallEffect.WAIT in effects:
            answer = ITEMS[str(self.item["type"])].answer
            self._place.append({"type": answer, "call_id": self.item["call_id"], "output": PENDING, "status": "in_progress"})
        return effects


def _is_call(item: JsonItem) -> bool:
    return bool(ITEMS.get(str(item["type"]), ItemType).answer) and "call_id" in item


def _without(item: JsonItem, *names: str) -> dict[str, object]:
    return {name: value for name, value in item.items() if name not in names}


def _normalize(item: JsonItem, denied: AbstractSet[object], kept: AbstractSet[object] | None) -> Iterable[JsonItem]:
    """Normalize one item by the facts of its kind; a call that the client denied becomes a failed call."""
    kind = ITEMS.get(str(item["type"]), ItemType)
    if is_standalone(item):
        return _standalone_output(item, kept)
    if kind.as_function_output:
        return _output(item, kind.output_of(item), kept)
    if kind.as_function_call is None:
        normalizer = NORMALIZERS.get(str(item["type"]))
        return () if normalizer is None else normalizer(item)
    call = _call(item, kind.as_function_call[0] or _name(item), kind.arguments_of(item))
    if "call_id" in kind.generated_ids:
        return [call] if call["call_id"] or not kind.as_function_call[0] else ()  # without an id, the server ran it
    result = DENIED if item.get("id") in denied else kind.result_text(item)
    if result is None and not kind.text_path:
        return ()
    call_id = short_id(str(item.get("id")))
    return {**call, "call_id": call_id}, _call_output(call_id, UNKNOWN_OUTPUT if result is None else result)


def _message(item: JsonItem) -> Iterable[JsonItem]:
    """Yield a message. The parts of an assistant's message become one text, unless its only part is an `output_text`."""
    parts = [members(part) for part in elements(item.get("content"))]
    if (
        item.get("role") != "assistant"
        or not is_array(item.get("content"))
        or [part.get("type") for part in parts] == ["output_text"]
    ):
        yield item
    elif parts:
        text = "".join(str(part.get("text", part.get("refusal", ""))) for part in parts)
        yield {"type": "message", "role": "assistant", "content": text}


def _reasoning(item: JsonItem) -> Iterable[JsonItem]:
    """Yield reasoning with its text, or its summary if it has no text; yield nothing if it has neither."""
    text = text_of(item.get("content")) or text_of(item.get("summary"))
    if text:
        yield {"type": "reasoning", **_identity(item), "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def _encrypted(item: JsonItem) -> Iterable[JsonItem]:
    """Yield reasoning with the content that only its service can read, and perhaps no text."""
    if item["type"] == "reasoning":
        empty: JsonItem = {"type": "reasoning", "summary": [], "content": []}
        text = next(iter(_reasoning(item)), empty)
        yield {**text, "encrypted_content": item["encrypted_content"]}


def _agent_message(item: JsonItem) -> Iterable[JsonItem]:
    text = f"[{item.get('author')} to {item.get('recipient')}]\n{text_of(item.get('content'))}"
    yield {"type": "message", "role": "user", "content": text}


def _output(item: JsonItem, output: object, kept: AbstractSet[object] | None) -> Iterable[JsonItem]:
    """Yield the output of a call; its parts become one text, unless one has a type that is `kept` (None: any type)."""
    call_id = item.get("call_id", item.get("id"))  # a local shell's output may have the id of its call as its own
    if call_id is not None:
        shown = _call_output(call_id, _shown_output(output, kept))
        yield {**shown, **(_identity(item) if item["type"] == shown["type"] else {})}


def _standalone_output(item: JsonItem, kept: AbstractSet[object] | None) -> Iterable[JsonItem]:
    """Yield an output that answers no call as a user's message, because models read the output of a tool after its call alone."""
    title, output = f"[Output of {_name(item)}]", _shown_output(item.get("output"), kept)
    header = {"type": "input_text", "text": title}
    content = [header, *elements(output)] if is_array(output) else f"{title}\n{text_of(output)}"
    yield {"type": "message", "role": "user", "content": content}


def _shown_output(output: object, kept: AbstractSet[object] | None) -> object:
    is_kept = kept is None or any(members(part).get("type") in kept for part in elements(output))
    return output if is_kept or not is_array(output) else text_of(output)


def short_id(other_id: str) -> str:
    """Return a call id of nine letters and digits for another id: the only form that all services and chat templates accept."""
    return b32encode(sha256(other_id.encode(errors="replace")).digest())[:9].decode()


def _call(item: JsonItem, name: str, arguments: object) -> dict[str, object]:
    name = name.replace("<|", "<")  # a model may have written a control token, which a prompt cannot quote
    text = arguments if isinstance(arguments, str) else dumps(arguments or {}).decode()
    call = {"type": "function_call", "call_id": item.get("call_id"), "name": name, "arguments": text or "{}"}
    return {**call, **(_identity(item) if item["type"] == call["type"] else {})}


def _call_output(call_id: object, output: object) -> dict[str, object]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _name(item: JsonItem) -> str:
    name = item.get("name", item.get("action"))  # the action of a multi-agent call is its name
    return flat_name(item.get("namespace") or item.get("server_label"), name)


def _identity(item: JsonItem) -> dict[str, object]:
    return {name: item[name] for name in ("id", "status") if item.get(name) is not None}


NORMALIZERS: Final[Mapping[str, Callable[[JsonItem], Iterable[JsonItem]]]] = {
    "message": _message,
    "reasoning": _reasoning,
    "agent_message": _agent_message,
}
"""The normalizers of the items that are neither calls nor outputs, and that a model can read."""
