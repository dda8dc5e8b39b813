"""The items of a conversation: they are validated, appended, normalized for engines, and kept within the context window.

An engine reads messages, reasoning, function calls and their outputs. A call of any other tool becomes a call of the function
that represents the tool (`interlock.serving.requests.tool_offer`). A call that a server ran becomes a call and its output. Items
that a model cannot read are dropped. docs/guides/api.md has a table of the input items.

Compaction replaces items with a summary that the model writes. `truncation: auto` drops whole turns, the oldest first. A turn
begins with a user's message. Calls and their outputs stay together; instructions and the last turn are never dropped.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from hashlib import sha256
from itertools import accumulate
from typing import Annotated, Final, TypeAlias

from attrs import define, field

from interlock.embedding import random_id
from interlock.events.items import ITEMS as ITEM_TYPES
from interlock.events.items import FunctionCallOutput
from interlock.events.items import Item as ItemType
from interlock.events.json import as_text, dumps, elements, is_array, is_object, members
from interlock.fsm.table import Edge, Machine, Table
from interlock.parsers.routing import flat_name
from interlock.serving.requests.api_errors import ApiError, invalid, missing
from interlock.serving.requests.limits import (
    ENGINE_PARAMETERS,
    ITEMS,
    MAX_INPUT_ITEMS,
    TEXT,
    Kinds,
    require,
    require_list,
    shape_of,
    too_long,
    unsupported_value,
    wrong_type,
)

JsonItem: TypeAlias = Mapping[str, object]

ReasoningOpener: TypeAlias = Callable[[str, str], Awaitable[object]]
"""Opens a model's encrypted reasoning, or raises an `ApiError` if it is not this server's."""


async def open_none(_model: str, _data: str) -> object:
    """Refuse all encrypted reasoning, for a server that writes none."""
    raise invalid("input", "This server cannot read encrypted reasoning.", "invalid_encrypted_content")


MAX_ITEMS: Final = 20_000
"""The most items in a conversation, over all its requests; no context window holds as many."""

CALL_OUTPUTS: Final = frozenset(
    {"function_call_output", "custom_tool_call_output", "computer_call_output", "shell_call_output", "apply_patch_call_output"}
)
"""The types of items that must follow a call with the same `call_id`, unless they are standalone."""

INPUT_TEXT: TypeAlias = Annotated[str, TEXT]

LINKS: Final = ("call_id", "approval_request_id")
"""The fields by which items are linked, which must be strings even where an engine validates the items."""

ID_PREFIXES: Final[Mapping[str, str]] = {"message": "msg", "reasoning": "rs"}
"""The prefixes of new item ids, by the type of the item; all other types have `fc`."""


def read_input(value: object, kinds: Kinds = ITEMS) -> tuple[JsonItem, ...]:
    """Validate an `input` and return its items, each with its type; a string is a user's message, and null is empty."""
    if isinstance(value, str):
        return ({"type": "message", "role": "user", "content": require(value, INPUT_TEXT, "input")},)
    return () if value is None else read_items(value, MAX_INPUT_ITEMS, "input", kinds)


def read_items(value: object, most: int, param: str, kinds: Kinds = ITEMS) -> tuple[JsonItem, ...]:
    """Validate an array of at most `most` items and return them, each with its type."""
    return tuple(_item(item, f"{param}[{index}]", kinds) for index, item in enumerate(require_list(value, most, param)))


def _item(item: object, param: str, kinds: Kinds) -> JsonItem:
    if not is_object(item):
        raise wrong_type(param, "an object", item)
    kind = item.get("type")
    if kind is None:  # an item with a role is a message; any other item with an id is a reference
        kind = "message" if "role" in item else "item_reference" if "id" in item else None
    struct = kinds.get(require_type(kind, f"{param}.type"))
    if struct is None:
        raise unsupported_value(f"{param}.type", str(kind), kinds)
    typed = {**item, "type": kind}
    require(typed, shape_of(struct), param)
    if struct is FunctionCallOutput and item.get("call_id") is None and not is_standalone(typed):
        raise missing(f"{param}.call_id")
    for name in LINKS:
        if not isinstance(item.get(name) or "", str):
            raise wrong_type(f"{param}.{name}", "a string", item[name])
    return typed


def is_standalone(item: JsonItem) -> bool:
    """Return whether an item is the output of a function that answers no call, such as news of a task that Codex delegated."""
    return item.get("type") == FunctionCallOutput.type and item.get("call_id") is None and bool(as_text(item.get("name")))


def require_type(kind: object, param: str) -> str:
    """Return the `type` of an item or tool; raise an `ApiError` if it is missing or not a string."""
    if kind is None or kind == "":
        raise missing(param)
    if not isinstance(kind, str):
        raise wrong_type(param, "a string", kind)
    return kind


def add_ids(items: Iterable[JsonItem]) -> tuple[JsonItem, ...]:
    """Return the items, with a new id for those without one."""
    return tuple(
        item if item.get("id") else {**item, "id": random_id(ID_PREFIXES.get(str(item["type"]), "fc"))} for item in items
    )


def require_input(items: Sequence[JsonItem], *, continues: bool) -> None:
    """Refuse an empty input, unless the request continues a response or conversation."""
    if not items and not continues:
        message = "The request needs a non-empty 'input', a 'previous_response_id' or a 'conversation'."
        raise invalid("input", message, "missing_required_parameter")


def join(previous: Sequence[JsonItem], new: Sequence[JsonItem], stored: Mapping[str, JsonItem]) -> tuple[JsonItem, ...]:
    """Return a conversation with new items appended.

    A reference is replaced by its item in `stored`, or dropped if the conversation has that item.

    Raises:
        ApiError: 404 for a reference to an unknown item; 400 for too many items, an output that follows no call, or an approval
            that follows no request.
    """
    if len(previous) + len(new) > MAX_ITEMS:
        raise too_long("input", MAX_ITEMS, len(previous) + len(new))
    ids = {item["id"] for item in (*previous, *new) if "id" in item and item.get("type") != "item_reference"}
    items = [*previous]
    call_ids = {item.get("call_id") for item in previous if item.get("type") not in CALL_OUTPUTS}
    approval_ids = {item.get("id") for item in previous if item.get("type") == "mcp_approval_request"}
    for index, element in enumerate(new):
        item = _resolve_reference(element, ids, stored) if element.get("type") == "item_reference" else element
        if item is None:
            continue
        items.append(item)
        kind, call_id, approval_id = str(item.get("type")), item.get("call_id"), item.get("approval_request_id")
        if kind not in CALL_OUTPUTS:
            call_ids.add(call_id)
        elif call_id not in call_ids and not is_standalone(item):
            raise invalid("input", f"No tool call found for {kind.replace('_', ' ')} with call_id {str(call_id)[:100]}.", None)
        if kind == "mcp_approval_request":
            approval_ids.add(item.get("id"))
        elif kind == "mcp_approval_response" and approval_id not in approval_ids:
            message = f"No approval request found with id '{str(approval_id)[:100]}'."
            raise invalid(f"input[{index}].approval_request_id", message)
    return tuple(items)


def _resolve_reference(item: JsonItem, ids: AbstractSet[object], stored: Mapping[str, JsonItem]) -> JsonItem | None:
    """Return the item that a reference names, or None if the conversation has it."""
    if item["id"] in ids:
        return None
    item_id = str(item["id"])
    if item_id not in stored:
        message = f"Item with id '{item_id[:100]}' not found. Items are not persisted when `store` is set to false."
        raise ApiError(404, message, param="input")
    return stored[item_id]


def waits_for_client(item: JsonItem) -> bool:
    """Return whether an item of a response needs an answer of the client before the model can go on.

    A call of an async tool does not. The server has answered a tool search without a `call_id` itself.
    """
    return (
        bool(ITEM_TYPES[str(item["type"])].answer) and bool(item.get("call_id", item.get("id"))) and item.get("async") is not True
    )


def text_of(content: object) -> str:
    """Return a string, or the text of content parts; a part without text becomes its type in square brackets."""
    if is_array(content):
        return "\n".join(_text_of_part(members(part)) for part in content)
    return as_text(content)


def _text_of_part(part: Mapping[str, object]) -> str:
    text = part.get("text", part.get("refusal"))
    return text if isinstance(text, str) else f"[{part.get('type')}]"


class AsyncCallTrigger(StrEnum):
    """The triggers of an async call: what comes after it in the conversation."""

    ANSWER = "answer"
    """An output of the call."""
    CONTINUE = "continue"
    """An item that is neither a call nor an output, such as a message."""
    END = "end"
    """The conversation ends, and the model goes on."""


class AsyncCallEffect(StrEnum):
    """The effects of an async call."""

    KEEP = "keep"
    """The model reads the output where it is: only other calls and outputs separate it from the call."""
    WAIT = "wait"
    """The model reads next to the call that the tool still runs."""
    REPEAT = "repeat"
    """The model reads the call again before the output."""


_T, _E = AsyncCallTrigger, AsyncCallEffect

ASYNC_CALL: Final[Table[AsyncCallTrigger, AsyncCallEffect]] = Table(
    "async_call",
    initial="called",
    final={"ended"},
    regions={"settled": ["pending", "answered"]},
    edges=[
        #    in         on            goes to     effects
        Edge("called",  _T.ANSWER,    "answered", [_E.KEEP]),
        Edge("called",  _T.CONTINUE,  "pending",  [_E.WAIT]),
        Edge("called",  _T.END,       "ended",    [_E.WAIT]),

        Edge("settled", _T.ANSWER,    "answered", [_E.REPEAT]),
        Edge("settled", _T.CONTINUE,  "settled"),
        Edge("settled", _T.END,       "ended"),
    ],
)  # fmt: skip
"""A call of an async tool: what the model reads as its output, which may come many requests later, or never.

Every state before `ended` has all triggers, because a client may send any items.
"""


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

    The table `ASYNC_CALL` decides which output that is: the call's own, or `PENDING` next to the call. A
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
        elif not ITEM_TYPES.get(str(item["type"]), ItemType).as_function_output:
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
            answer = ITEM_TYPES[str(self.item["type"])].answer
            self._place.append({"type": answer, "call_id": self.item["call_id"], "output": PENDING, "status": "in_progress"})
        return effects


def _is_call(item: JsonItem) -> bool:
    return bool(ITEM_TYPES.get(str(item["type"]), ItemType).answer) and "call_id" in item


def _without(item: JsonItem, *names: str) -> dict[str, object]:
    return {name: value for name, value in item.items() if name not in names}


def _normalize(item: JsonItem, denied: AbstractSet[object], kept: AbstractSet[object] | None) -> Iterable[JsonItem]:
    """Normalize one item by the facts of its kind; a call that the client denied becomes a failed call."""
    kind = ITEM_TYPES.get(str(item["type"]), ItemType)
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


SUMMARIZE: Final = """\
The conversation so far will be replaced by a summary that you write now. Whoever continues, including you, will see only the
user's messages and your summary. Write down everything that is needed to continue:

- what the user wants, with every constraint, preference and standing instruction, whoever gave it;
- what was done and found out: decisions, facts, names, numbers, paths, code and commands that are still needed, word for word
  where the words matter, and the results of tool calls;
- what failed, and why;
- what remains to be done: open questions and the next steps.

Write the summary and nothing else. Do not answer the user now, and do not call tools."""
"""The message after a conversation, which asks the model for a summary."""

INTRODUCTION: Final = """\
[The conversation up to here was compacted. This is the assistant's own summary, which replaces everything that is no longer
shown. Continue from it.]

"""
"""The text that introduces a summary to the model."""

KEPT_ROLES: Final = frozenset({"user", "developer", "system"})
"""The roles whose messages survive a compaction."""

COMPACTIONS: Final = frozenset({"compaction", "compaction_trigger"})

SUMMARY_PARAMETERS: Final = (
    *("model", "instructions", "reasoning", "temperature", "top_p", "service_tier", "prompt_cache_key", "user"),
    *("safety_identifier", *ENGINE_PARAMETERS),
)
"""The parameters that a summary request copies from the original request: none for tools, limits or formats."""


def window(items: Sequence[JsonItem]) -> tuple[JsonItem, ...]:
    """Return the items that the model reads: the last compaction, the earlier items that it keeps, and all later items."""
    if COMPACTIONS.isdisjoint([item.get("type") for item in items]):
        return tuple(items)
    relevant = [item for item in items if not _is_empty(item)]
    last = max((index for index, item in enumerate(relevant) if item.get("type") == "compaction"), default=0)
    return (*compact(relevant[:last], relevant[last:]), *relevant[last:])


def _is_empty(item: JsonItem) -> bool:
    kind = item.get("type")
    return kind == "compaction_trigger" or (kind == "compaction" and not item.get("encrypted_content"))


def compact(before: Iterable[JsonItem], after: Iterable[JsonItem] = ()) -> list[JsonItem]:
    """Return the items that a compaction keeps: messages that the model did not write, and calls with an output `after` it."""
    answered = {item.get("call_id") for item in after if str(item.get("type")).endswith("_output")}
    return [item for item in before if item.get("role") in KEPT_ROLES or item.get("call_id", "") in answered]


def summary_request(raw: Mapping[str, object]) -> dict[str, object]:
    """Convert a request's body to the body of a summary request, whose input is only the message `SUMMARIZE`."""
    parameters = {name: raw[name] for name in SUMMARY_PARAMETERS if name in raw}
    return {**parameters, "input": SUMMARIZE, "store": False, "stream": False}


def summary_message(text: str) -> dict[str, object]:
    """Return a summary as a user's message, which every chat template allows anywhere."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": INTRODUCTION + text}]}


def is_summary(text: str) -> bool:
    """Return whether the text of a user's message comes from `summary_message`."""
    return text.startswith(INTRODUCTION)


async def truncate(items: Sequence[JsonItem], fits: Callable[[Sequence[JsonItem]], Awaitable[bool]]) -> Sequence[JsonItem]:
    """Return the instructions and as many of the last turns as fit, or all items if not even the last turn fits."""
    if await fits(items):
        return items
    tails = [_tail(items, start) for start in _turn_starts(items)]
    low, high = 0, len(tails)  # tails before `low` do not fit, and tails from `high` on do
    while low < high:
        middle = (low + high) // 2
        if await fits(tails[middle]):
            high = middle
        else:
            low = middle + 1
    return tails[low] if low < len(tails) else items


def _turn_starts(items: Sequence[JsonItem]) -> list[int]:
    """Return the indices, except 0, of user messages that do not separate a call from its output."""
    calls: dict[tuple[str, object], int] = {}
    changes = [0] * (len(items) + 1)  # at each index, the change in the number of calls without an output
    for index, item in enumerate(items):
        kind = str(item.get("type"))
        call = calls.get(_call_key(kind, item), index)
        changes[call + 1] += 1
        changes[index + 1] -= 1
        if not kind.endswith("_output"):
            calls["call_id", item.get("call_id")] = index
        if kind == "mcp_approval_request":
            calls["approval", item.get("id")] = index
    pending = [*accumulate(changes)]
    return [index for index, item in enumerate(items) if index and not pending[index] and item.get("role") == "user"]


def _call_key(kind: str, item: JsonItem) -> tuple[str, object]:
    """Return the key of the call or approval request that an item answers."""
    if kind.endswith("_output"):
        return "call_id", item.get("call_id")
    return ("approval", item.get("approval_request_id")) if kind == "mcp_approval_response" else ("nothing", None)


def _tail(items: Sequence[JsonItem], start: int) -> list[JsonItem]:
    """Return the items from `start` on, after the instructions that precede it."""
    return [*(item for item in items[:start] if item.get("role") in ("system", "developer")), *items[start:]]
