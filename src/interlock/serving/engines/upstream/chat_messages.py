"""Converts the items of a conversation to the messages of Chat Completions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from attrs import define, field

from interlock.serving.requests.api_errors import ApiError, invalid
from interlock.serving.requests.input_items import Item
from interlock.serving.requests.json_values import elements, is_array, members, text_of
from interlock.serving.requests.normalize import normalize

Message = dict[str, object]

TEXTS: Final = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal"})


def chat_messages(instructions: str | None, items: Iterable[Item], reasoning_field: str = "reasoning_content") -> list[Message]:
    """Return the messages for a conversation; reasoning goes into `reasoning_field`, or is left out if the name is empty.

    Items of one assistant turn become one message. Developer messages become system messages, and adjacent system messages are
    joined, beginning with the instructions, because many chat templates accept nothing else. Images in the output of a tool
    follow as a user message.

    Raises:
        ApiError: 400 for a content part that Chat Completions cannot express.
    """
    writer = _MessageWriter(reasoning_field)
    if instructions:
        writer.add_text("system", instructions)
    for item in normalize(items):
        writer.add(item)
    writer.flush_images()
    return writer.messages


@define(eq=False)
class _MessageWriter:
    """Collects messages; `_images` holds the images of tool outputs until the last output of a turn."""

    _reasoning_field: str
    messages: list[Message] = field(factory=list[Message])
    _images: list[Message] = field(factory=list[Message])

    def add(self, item: Item) -> None:
        """Add a normalized item."""
        if item["type"] != "function_call_output":
            self.flush_images()
        match item["type"]:
            case "reasoning":
                if self._reasoning_field:
                    self._extend(self._assistant(), self._reasoning_field, text_of(item.get("content")))
            case "function_call":
                function = {"name": item["name"], "arguments": item["arguments"]}
                call = {"id": item["call_id"], "type": "function", "function": function}
                message = self._assistant()
                message["tool_calls"] = [*elements(message.get("tool_calls")), call]
            case "function_call_output":
                self._add_output(item)
            case _:
                self._add_message(item)

    def flush_images(self) -> None:
        """Add the images of tool outputs as a user's message."""
        if self._images:
            text = {"type": "text", "text": "These are the images in the output of the tools."}
            self.messages.append({"role": "user", "content": [text, *self._images]})
            self._images = []

    def add_text(self, role: str, text: str) -> None:
        """Add a message, or extend the last one if both are system messages."""
        last = self.messages[-1] if self.messages else None
        if role == "system" and last is not None and last["role"] == "system":
            last["content"] = f"{last['content']}\n\n{text}"
        else:
            self.messages.append({"role": role, "content": text})

    def _add_message(self, item: Item) -> None:
        content, role = item.get("content"), str(item.get("role"))
        parts = [members(part) for part in elements(content)] if is_array(content) else []
        if role == "assistant":
            self._extend(self._assistant(), "content", text_of(content))
        elif role in ("system", "developer"):
            self.add_text("system", text_of(content))
        elif all(part.get("type") in TEXTS for part in parts):
            self.add_text(role, text_of(content))
        else:
            self.messages.append({"role": role, "content": [_part(part) for part in parts]})

    def _add_output(self, item: Item) -> None:
        output = item.get("output")
        parts = [members(part) for part in elements(output)]
        images = [_part(part) for part in parts if part.get("type") == "input_image"]
        self._images += images
        self.messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": text_of(output)})

    def _assistant(self) -> Message:
        """Return the last message if it is the assistant's, else a new one."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": ""})
        return self.messages[-1]

    def _extend(self, message: Message, name: str, text: str) -> None:
        before = message.get(name)
        message[name] = f"{before}\n\n{text}" if before and text else before or text


def _part(part: Mapping[str, object]) -> Message:
    """Return a content part of a user's message."""
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            return {"type": "text", "text": part.get("text")}
        case "input_image":
            return {"type": "image_url", "image_url": _with_detail(part, _url(part, "image_url"))}
        case "input_file":
            return {"type": "file", "file": _file(part)}
        case "input_audio":
            return {"type": "input_audio", "input_audio": part.get("input_audio")}
        case "audio":
            return {"type": "input_audio", "input_audio": {"data": part.get("data"), "format": part.get("format")}}
        case "input_video":
            return {"type": "video_url", "video_url": {"url": _url(part, "video_url")}}
        case kind:
            raise _unsupported(f"A content part of the type '{kind}'")


def _with_detail(part: Mapping[str, object], url: str) -> Message:
    detail = part.get("detail")
    return {"url": url, "detail": detail} if isinstance(detail, str) else {"url": url}


def _url(part: Mapping[str, object], name: str) -> str:
    url = part.get(name)
    if not isinstance(url, str):
        raise _unsupported(f"An '{part.get('type')}' without a '{name}'")
    return url


def _file(part: Mapping[str, object]) -> Message:
    names: Sequence[str] = ("file_data", "file_id", "filename")
    file: Message = {name: part[name] for name in names if part.get(name) is not None}
    if "file_data" not in file and "file_id" not in file:
        raise _unsupported("An 'input_file' without 'file_data' or 'file_id'")
    return file


def _unsupported(subject: str) -> ApiError:
    return invalid("input", f"{subject} cannot be sent to this model.", "unsupported_value")
