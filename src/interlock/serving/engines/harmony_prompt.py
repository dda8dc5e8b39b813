"""Renders the prompts of gpt-oss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import orjson
from openai_harmony import (  # pyright: ignore[reportMissingTypeStubs] - its types are inline, without a py.typed
    Conversation,
    DeveloperContent,
    Message,
    ReasoningEffort,
    Role,
    SystemContent,
    ToolDescription,
    ToolNamespaceConfig,
)

from interlock.events.items import ITEMS
from interlock.events.json import dumps, members
from interlock.serving.engines.harmony_tokens import encode_framing, encode_text, encoding
from interlock.serving.requests.create import ResponseRequest
from interlock.serving.requests.input_items import JsonItem, normalize, text_of
from interlock.serving.requests.runtime import Yielder

Segment = tuple[str, bool]
"""A text, and whether it is framing."""

ANSWER: Final = "<|start|>assistant"
EFFORTS: Final[Mapping[str | None, ReasoningEffort]] = {
    **dict.fromkeys(("none", "minimal", "low"), ReasoningEffort.LOW),
    **dict.fromkeys(("high", "xhigh", "max"), ReasoningEffort.HIGH),
}
BUILT_IN: Final = frozenset({"python"})
"""The tools whose calls have no prefix `functions.`."""


async def harmony_prompt(
    request: ResponseRequest, items: Iterable[JsonItem], tools: Sequence[Mapping[str, object]], hosted: Mapping[str, str]
) -> list[int]:
    """Return the prompt of a turn of gpt-oss, as its own template renders it, except that no text becomes a control token.

    `tools` are functions, and `hosted` has the model's built-in tools and their descriptions. Reasoning before the last final
    answer is left out, as in the model's training.
    """
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    system, described = _preamble(request.reasoning_effort, date, frozenset(hosted.items()), dumps(tools))
    texts = [f"# Instructions\n\n{request.instructions}"] if request.instructions else []
    texts += [described] if described else []
    texts += [_formats(request.text_format)] if request.text_format.get("type") == "json_schema" else []
    segments = [(system, True), *(_message("developer", "\n\n".join(texts)) if texts else ()), *_items(items), (ANSWER, True)]
    tokens, yielder = list[int](), Yielder()
    for text, is_framing in segments:
        if is_framing:
            tokens += encode_framing(text)
        else:
            tokens += [token async for piece in encode_text(text, yielder) for token in piece]
    return tokens


@lru_cache(maxsize=64)
def _preamble(effort: str | None, date: str, hosted: frozenset[tuple[str, str]], tools: bytes) -> tuple[str, str]:
    """Return the system message, and the description of the functions, which is empty if there are none."""
    system = SystemContent.new().with_conversation_start_date(date)
    system = system.with_reasoning_effort(EFFORTS.get(effort, ReasoningEffort.MEDIUM))
    descriptions = dict(hosted)
    if description := descriptions.get("code_interpreter"):
        system = system.with_tools(ToolNamespaceConfig(name="python", description=description, tools=[]))
    elif "code_interpreter" in descriptions:
        system = system.with_python_tool()
    if "web_search" in descriptions:
        system = system.with_browser_tool()
    messages = [Message.from_role_and_content(Role.SYSTEM, system)]
    functions = [_description(tool) for tool in map(members, orjson.loads(tools))]
    if functions:
        messages.append(Message.from_role_and_content(Role.DEVELOPER, DeveloperContent.new().with_function_tools(functions)))
    text = encoding().decode(encoding().render_conversation(Conversation.from_messages(messages)))
    end = text.index("<|end|>") + len("<|end|>")
    return text[:end], text[end:].removeprefix("<|start|>developer<|message|>").removesuffix("<|end|>")


def _description(tool: Mapping[str, object]) -> ToolDescription:
    parameters: Any = dict(members(tool.get("parameters"))) or None
    return ToolDescription(name=str(tool["name"]), description=str(tool.get("description") or ""), parameters=parameters)


def _formats(text_format: Mapping[str, object]) -> str:
    name, description = text_format.get("name") or "schema", text_format.get("description")
    comment = f"// {description}\n" if description else ""
    return f"# Response Formats\n\n## {name}\n\n{comment}{dumps(text_format.get('schema')).decode()}"


def _message(header: str, text: str, end: str = "<|end|>") -> Iterator[Segment]:
    yield f"<|start|>{header}<|message|>", True
    yield text, False
    yield end, True


def _items(items: Iterable[JsonItem]) -> Iterator[Segment]:
    """Yield the segments of a conversation's messages."""
    conversation = normalize(items, images=False)
    names = {item["call_id"]: _recipient(item) for item in conversation if ITEMS[str(item["type"])].as_function_call}
    finals = [index for index, item in enumerate(conversation) if item.get("role") == "assistant" and not _is_preamble(item)]
    for index, item in enumerate(conversation):
        text = text_of(item.get("content"))
        match str(item["type"]):
            case "reasoning":
                if not finals or index > finals[-1]:
                    yield from _message("assistant<|channel|>analysis", text)
            case kind if ITEMS[kind].as_function_call:
                recipient, is_built_in = _recipient(item), item["name"] in BUILT_IN
                header = f"assistant to={recipient}<|channel|>{'analysis code' if is_built_in else 'commentary json'}"
                yield from _message(header, str(item["arguments"]), "<|call|>")
            case kind if ITEMS[kind].as_function_output:
                author = names.get(item.get("call_id"), "functions.unknown")
                channel = "analysis" if author in BUILT_IN else "commentary"
                yield from _message(f"{author} to=assistant<|channel|>{channel}", text_of(item.get("output")))
            case _ if item.get("role") == "assistant":
                yield from _message(f"assistant<|channel|>{'commentary' if _is_preamble(item) else 'final'}", text)
            case _ if item.get("role") in ("system", "developer"):
                yield from _message("developer", f"# Instructions\n\n{text}")
            case _:
                yield from _message("user", text)


def _recipient(call: JsonItem) -> str:
    name = str(call["name"])
    return name if name in BUILT_IN else f"functions.{name}"


def _is_preamble(message: JsonItem) -> bool:
    return message.get("phase") == "commentary"
