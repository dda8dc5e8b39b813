"""Renders conversations as gpt-oss prompts for the engines without a model, and counts the tokens.

A part without text counts as its type; an item of a hosted tool counts as its JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from openai_harmony import (  # pyright: ignore[reportMissingTypeStubs] - its types are inline, without a py.typed
    Conversation,
    Message,
    ReasoningEffort,
    Role,
    SystemContent,
)

from interlock.events.items import ITEMS, ClientCall
from interlock.events.json import dumps
from interlock.serving.engines.engine import Turn
from interlock.serving.engines.harmony_tokens import encode_framing, encode_text, encoding
from interlock.serving.requests.api_errors import PromptError
from interlock.serving.requests.context_window import is_summary
from interlock.serving.requests.input_items import JsonItem, text_of
from interlock.serving.requests.runtime import Yielder
from interlock.serving.requests.tool_offer import HOSTED_CALLS

CONTEXT: Final = 131_072

CHARACTERS: Final = 2_000_000
"""The character limit of a prompt. `CONTEXT` alone allows far more, because one token may be a hundred spaces."""

TOO_LONG: Final = "Your input exceeds the context window of this model. Please adjust your input and try again."

EFFORTS: Final[Mapping[str | None, ReasoningEffort]] = {
    **dict.fromkeys(("none", "minimal", "low"), ReasoningEffort.LOW),
    **dict.fromkeys(("high", "xhigh", "max"), ReasoningEffort.HIGH),
}

NAMED_CALLS: Final = frozenset(kind for kind, item in ITEMS.items() if issubclass(item, ClientCall))
CLIENT_OUTPUTS: Final = frozenset(ITEMS[kind].answer for kind in NAMED_CALLS)
"""The outputs of `NAMED_CALLS`, the calls of the tools that a client names."""


async def count_prompt(turn: Turn) -> int:
    """Return the number of tokens in the prompt of a turn; raise `PromptError` if it exceeds the context window."""
    count, characters, yielder = 0, 0, Yielder()
    for text, is_framing in prompt(turn):
        characters += len(text)
        if characters > CHARACTERS:
            raise PromptError(TOO_LONG)
        if is_framing:
            count += len(encode_framing(text))
            await yielder.checkpoint()
            continue
        async for tokens in encode_text(text, yielder):
            count += len(tokens)
            if count > CONTEXT:
                raise PromptError(TOO_LONG)
    return count


def prompt(turn: Turn) -> Iterator[tuple[str, bool]]:
    """Yield the gpt-oss prompt of a turn, with tools as JSON, as pairs of text and whether that text is framing."""
    yield _system(turn.request.reasoning_effort), True
    texts = [*_developer_texts(turn)]
    if texts:
        yield from _message("developer", "# Instructions\n\n", *texts)
    names = tool_names(turn.items)
    for item in turn.items:
        yield from _item(item, names)
    yield "<|start|>assistant", True


@cache
def _system(effort: str | None) -> str:
    content = SystemContent.new().with_reasoning_effort(EFFORTS.get(effort, ReasoningEffort.MEDIUM))
    message = Message.from_role_and_content(Role.SYSTEM, content)
    return encoding().decode(encoding().render_conversation(Conversation.from_messages([message])))


def _developer_texts(turn: Turn) -> Iterator[str]:
    if turn.request.instructions:
        yield turn.request.instructions
    if turn.request.tools:
        yield "\n\n# Tools\n\n"
        yield from (f"{dumps(tool).decode()}\n" for tool in turn.request.tools)
    if turn.request.text_format.get("type") != "text":
        yield f"\n\n# Response Formats\n\n{dumps(turn.request.text_format).decode()}"


def _message(header: str, *texts: str, end: str = "<|end|>") -> Iterator[tuple[str, bool]]:
    yield f"<|start|>{header}<|message|>", True
    yield from ((text, False) for text in texts)
    yield end, True


def _item(item: JsonItem, names: Mapping[object, str]) -> Iterator[tuple[str, bool]]:
    """Yield an item as a harmony message; a tool's name is not framing, because a client may put control tokens into it."""
    match item.get("type"):
        case "message":
            role = str(item.get("role"))
            yield from _message("assistant<|channel|>final" if role == "assistant" else role, text_of(item.get("content")))
        case "reasoning":
            yield from _message("assistant<|channel|>analysis", text_of(item.get("content")) or text_of(item.get("summary")))
        case kind if kind in NAMED_CALLS:
            recipient = f"to=functions.{item.get('name')}"
            yield from _message("assistant<|channel|>commentary", recipient, call_text(item), end="<|call|>")
        case _ if is_client_output(item):
            yield from _message("tool<|channel|>commentary", f"from=functions.{tool_name(item, names)}", output_text(item))
        case _:
            yield from _message("assistant<|channel|>commentary", dumps(dict(item)).decode())


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
