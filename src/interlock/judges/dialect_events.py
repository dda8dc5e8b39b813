"""The events of Messages and Chat Completions, by the names under which the tables of the transducers emit them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from interlock.dialects import CHAT, MESSAGES
from interlock.dialects.chat import ChatEffect
from interlock.dialects.messages import MessagesEffect
from interlock.events.json import as_text, elements, members
from interlock.judges.automaton import Automaton, NamedEdge

_M, _C = MessagesEffect, ChatEffect

EMITTED: Final[Mapping[str, Sequence[str]]] = {
    _M.MESSAGE_START: ["message_start"],
    _M.TEXT_START: ["start text"],
    _M.TEXT: ["text_delta"],
    _M.THINKING_START: ["start thinking"],
    _M.THINKING: ["thinking_delta"],
    _M.SIGNATURE: ["signature_delta"],
    _M.CALL_START: ["start tool_use"],
    _M.INPUT: ["input_json_delta"],
    _M.STOP: ["content_block_stop"],
    _M.USE: ["start use", "input_json_delta", "content_block_stop"],
    _M.RESULT: ["start result", "content_block_stop"],
    _M.MESSAGE_STOP: ["message_delta", "message_stop"],
    _M.ERROR: ["error"],
    _C.ROLE: ["delta.role"],
    _C.CONTENT: ["delta.content"],
    _C.REFUSAL: ["delta.refusal"],
    _C.REASONING: ["delta.reasoning"],
    _C.CALL: ["start call"],
    _C.ARGUMENTS: ["delta.tool_calls"],
    _C.FINISH: ["finish_reason"],
}
"""The events that an effect makes, in order, without the usage, which says nothing of the state. Other effects make none, or
may make none."""

_DELTAS: Final = frozenset(
    {"text_delta", "thinking_delta", "input_json_delta", "delta.content", "delta.refusal", "delta.reasoning", "delta.tool_calls"}
)


def _automaton(name: Literal["messages", "chat"]) -> Automaton:
    """Return the automaton of a transducer. Of edges with the same ends and events it has the first, since no stream tells."""
    table = MESSAGES if name == "messages" else CHAT
    edges: dict[str, list[NamedEdge]] = {}
    for source, state in table.states.items():
        distinct: dict[tuple[str, Sequence[str]], NamedEdge] = {}
        for trigger, (dest, effects) in state.rows.items():
            events = tuple(event for effect in effects for event in EMITTED.get(effect, ()))
            distinct.setdefault((dest.name, events), NamedEdge(source, str(trigger), dest.name, events))
        edges[source] = [*distinct.values()]
    return Automaton(name, table.initial, edges, _DELTAS)


DIALECT_AUTOMATA: Final = {name: _automaton(name) for name in ("messages", "chat")}
"""The automata of the transducers, by API."""


def name_message_event(body: Mapping[str, object]) -> str:
    """Return the name of an event of Messages."""
    match as_text(body.get("type")):
        case "content_block_start":
            kind = as_text(members(body.get("content_block")).get("type"))
            if kind in ("text", "thinking", "tool_use"):
                return f"start {kind}"
            return "start use" if kind in ("server_tool_use", "mcp_tool_use") else "start result"
        case "content_block_delta":
            return as_text(members(body.get("delta")).get("type"))
        case name:
            return name


def name_chunk(body: Mapping[str, object]) -> str:
    """Return the name of a chunk of Chat Completions, by the first thing that it has; empty if it has nothing."""
    choice = members(next(iter(elements(body.get("choices"))), None))
    delta = members(choice.get("delta"))
    if "error" in body:
        return "error"
    if "role" in delta:
        return "delta.role"
    if calls := elements(delta.get("tool_calls")):
        return "start call" if "id" in members(calls[0]) else "delta.tool_calls"
    for name in ("content", "refusal", "reasoning_content", "reasoning"):
        if isinstance(delta.get(name), str):
            return "delta.reasoning" if name.startswith("reasoning") else f"delta.{name}"
    if choice.get("finish_reason") is not None:
        return "finish_reason"
    return "usage" if body.get("usage") is not None else ""
