"""Reads conversations for the engines without a model, and estimates their tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from interlock.events.items import ITEMS, ClientCall
from interlock.events.json import as_text, dumps
from interlock.serving.engines.engine import Turn
from interlock.serving.engines.token_estimate import BYTES_PER_TOKEN, estimate, media_tokens
from interlock.serving.requests.api_errors import PromptError
from interlock.serving.requests.input_items import JsonItem, is_summary, text_of
from interlock.serving.requests.tool_offer import HOSTED_CALLS

CONTEXT: Final = 131_072
"""The context window of the embedded engine, in tokens."""

TOO_LONG: Final = "Your input exceeds the context window of this model. Please adjust your input and try again."

NAMED_CALLS: Final = frozenset(kind for kind, item in ITEMS.items() if issubclass(item, ClientCall))
CLIENT_OUTPUTS: Final = frozenset(ITEMS[kind].answer for kind in NAMED_CALLS)
"""The outputs of `NAMED_CALLS`, the calls of the tools that a client names."""
SERVER_CALLS: Final = frozenset(kind for kind, item in ITEMS.items() if item.tool_result is not None and item.as_function_call)
"""The calls that a server runs; their items contain the tool's output."""


def count_prompt(turn: Turn) -> int:
    """Estimate the number of tokens in the prompt of a turn; raise `PromptError` if it exceeds `CONTEXT`."""
    request = turn.request
    texts = [request.instructions or "", *(_text(item) for item in turn.items)]
    count = sum(map(len, texts)) // BYTES_PER_TOKEN + len(turn.items) + estimate([request.tools, request.text_format])
    count += media_tokens(turn.items)
    if count > CONTEXT:
        raise PromptError(TOO_LONG)
    return count


def _text(item: JsonItem) -> str:
    """Return what a model reads of an item; a part without text counts as its type."""
    match item.get("type"):
        case "message" | "reasoning":
            return text_of(item.get("content")) or text_of(item.get("summary"))
        case kind if kind in NAMED_CALLS:
            return f"{item.get('name')} {call_text(item)}"
        case _ if is_client_output(item):
            return output_text(item)
        case "image_generation_call":
            return as_text(item.get("revised_prompt"))
        case _:
            return dumps(dict(item)).decode()


def call_text(item: JsonItem) -> str:
    """Return the arguments of a call, or the input of a custom tool."""
    return text_of(item.get("arguments", item.get("input")))


def is_client_output(item: JsonItem) -> bool:
    """Return whether an item is the output of a call that the client ran."""
    return item.get("type") in CLIENT_OUTPUTS


def is_from_user(item: JsonItem) -> bool:
    """Return whether an item is a message of the user, and not a summary of the conversation."""
    return item.get("type") == "message" and item.get("role") == "user" and not is_summary(text_of(item.get("content")))


def tool_names(items: Sequence[JsonItem]) -> dict[object, str]:
    """Return the names of the tools called in a conversation, by call id."""
    return {item["call_id"]: str(item["name"]) for item in reversed(items) if "name" in item and "call_id" in item}


def tool_name(item: JsonItem, names: Mapping[object, str]) -> str:
    """Return the name of the tool that an item belongs to; `names` are from `tool_names`."""
    hosted = HOSTED_CALLS.get(item.get("type"))
    if hosted is not None:
        return hosted.recipient.partition(".")[0]
    return str(item.get("name") or names.get(item.get("call_id"), "unknown"))


def output_text(item: JsonItem) -> str:
    """Return the output of a server's or client's tool; empty if there is none."""
    if item.get("type") in CLIENT_OUTPUTS:
        return text_of(item.get("output"))
    return ITEMS[str(item["type"])].result_text(item) or ""
