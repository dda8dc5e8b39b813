"""What the embedded model reads: a conversation's items as text, and as the tokens of a harmony prompt.

It knows the shapes of items and parts. What it cannot show as text (images, files, items of unknown types) is named in
square brackets, so that it counts for something.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from openai_harmony import (  # pyright: ignore[reportMissingTypeStubs] - its types are inline, without a py.typed
    Author,
    Conversation,
    DeveloperContent,
    HarmonyEncoding,
    HarmonyEncodingName,
    Message,
    ReasoningEffort,
    Role,
    SystemContent,
    TextContent,
    load_harmony_encoding,
)

from interlock.serving.engines.engine import Turn
from interlock.serving.requests.conversation import Item
from interlock.serving.requests.values import elements, is_array, members

__all__ = ["encoding", "is_answered", "is_from_user", "output_text", "prompt_tokens", "text_of", "tool_name"]

EFFORTS: Final[Mapping[str | None, ReasoningEffort]] = {
    "none": ReasoningEffort.LOW,
    "minimal": ReasoningEffort.LOW,
    "low": ReasoningEffort.LOW,
    "high": ReasoningEffort.HIGH,
    "xhigh": ReasoningEffort.HIGH,
    "max": ReasoningEffort.HIGH,
}


HOSTED_NAMES: Final[Mapping[str, str]] = {"code_interpreter_call": "python", "web_search_call": "browser"}
"""What the model calls the tools whose calls have no name."""


@cache
def encoding() -> HarmonyEncoding:
    """Give the vocabulary of gpt-oss; the first call takes a fifth of a second."""
    return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)


def prompt_tokens(turn: Turn) -> list[int]:
    """Render a turn's prompt as a model of the gpt-oss family would get it.

    The tools stand in it as JSON, not in the TypeScript of harmony, so that no schema can be one that cannot be rendered.
    """
    system = SystemContent.new().with_reasoning_effort(EFFORTS.get(turn.request.reasoning_effort, ReasoningEffort.MEDIUM))
    told = "\n\n".join(_told(turn))
    opening = [Message.from_role_and_content(Role.SYSTEM, system)]
    if told:
        developer = DeveloperContent.new().with_instructions(told)
        opening.append(Message.from_role_and_content(Role.DEVELOPER, developer))
    messages = [message for item in turn.items for message in _messages(item, turn.items)]
    return encoding().render_conversation_for_completion(Conversation.from_messages([*opening, *messages]), Role.ASSISTANT)


def _told(turn: Turn) -> Iterator[str]:
    """What stands before the conversation: instructions, tools, the form of the answer."""
    if turn.request.instructions:
        yield _legible(turn.request.instructions)
    if turn.request.tools:
        yield "# Tools\n\n" + "\n".join(json.dumps(tool) for tool in turn.request.tools)
    if turn.request.text_format.get("type") != "text":
        yield "# Response Formats\n\n" + json.dumps(turn.request.text_format)


def _messages(item: Item, items: Sequence[Item]) -> Iterator[Message]:
    """An item as harmony's messages; references to what nobody has are none."""
    match item.get("type"):
        case "message":
            role = Role(str(item.get("role")))
            message = Message.from_role_and_content(role, text_of(item.get("content")))
            yield message.with_channel("final") if role is Role.ASSISTANT else message
        case "reasoning":
            thought = text_of(item.get("content")) or text_of(item.get("summary"))
            yield Message.from_role_and_content(Role.ASSISTANT, thought).with_channel("analysis")
        case "function_call" | "custom_tool_call":
            given = text_of(item.get("arguments", item.get("input")))
            call = Message.from_role_and_content(Role.ASSISTANT, given).with_channel("commentary")
            yield call.with_recipient(f"functions.{item.get('name')}").with_content_type("json")
        case "item_reference":
            return
        case _ if is_answered(item):
            author = Author.new(Role.TOOL, f"functions.{tool_name(item, items)}")
            result = Message.from_author_and_content(author, TextContent(text=output_text(item)))
            yield result.with_recipient("assistant").with_channel("commentary")
        case _:
            yield Message.from_role_and_content(Role.ASSISTANT, json.dumps(dict(item), default=str)).with_channel("commentary")


def is_answered(item: Item) -> bool:
    """Tell whether an item is what a tool of the client answered."""
    return item.get("type") in ("function_call_output", "custom_tool_call_output")


def is_from_user(item: Item) -> bool:
    """Tell whether an item is what the user said."""
    return item.get("type") == "message" and item.get("role") == "user"


def tool_name(answered: Item, items: Sequence[Item]) -> str:
    """Give the name of the tool that an output, or a call that the server ran, is of."""
    if answered.get("type") in HOSTED_NAMES:
        return HOSTED_NAMES[str(answered["type"])]
    calls = [item for item in items if item.get("call_id") == answered.get("call_id") and "name" in item]
    return str(answered.get("name") or next(iter(calls), {"name": "unknown"})["name"])


def output_text(item: Item) -> str:
    """Give what a tool answered, whoever ran it; nothing for a call that carries no answer."""
    if item.get("type") == "code_interpreter_call" and "output" not in item:
        return "\n".join(str(members(output).get("logs", "")) for output in elements(item.get("outputs")))
    return text_of(item.get("output"))


def text_of(content: object) -> str:
    """Give the text of a string or of parts; other parts are named in square brackets."""
    if is_array(content):
        return "\n".join(_text_of_part(members(part)) for part in elements(content))
    return _legible(content) if isinstance(content, str) else ""


def _text_of_part(part: Mapping[str, object]) -> str:
    said = part.get("text", part.get("refusal"))
    return _legible(said) if isinstance(said, str) else f"[{part.get('type')}]"


def _legible(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
