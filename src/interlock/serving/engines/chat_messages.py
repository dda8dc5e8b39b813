"""Writes a conversation as messages of Chat Completions, for chat templates and for servers of that API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from attrs import define, field

from interlock.events.chat import split_extras
from interlock.events.items import ITEMS
from interlock.events.json import as_text, elements, is_array, is_object, members, parse
from interlock.parsers.chat_deltas import REASONING_DETAILS
from interlock.serving.requests.api_errors import ApiError, invalid
from interlock.serving.requests.input_items import JsonItem, normalize, text_of

Message: TypeAlias = dict[str, object]

MEDIA: Final[Mapping[object, str]] = {"image_url": "images", "file": "files", "input_audio": "recordings", "video_url": "videos"}
"""The names of the parts that are not text, by type."""
DETAILS: Final[Mapping[str, str]] = {"original": "high"}
"""The details of images that Chat Completions does not have, and what is closest."""
LATE_SYSTEM: Final = "<system>\n{}\n</system>"
"""A system message where the model's template allows none."""
TEXTS: Final = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal"})


def chat_messages(
    instructions: str | None,
    items: Iterable[JsonItem],
    *,
    reasoning_field: str = "reasoning",
    written_id: Callable[[str], str] = str,
    arguments: Callable[[str], object] = str,
    origin: str | None = None,
    late_system: bool = False,
) -> list[Message]:
    """Return the messages for a conversation; reasoning goes into `reasoning_field`, or is left out if the name is empty.

    `written_id` returns the id in a message for a call id, and `arguments` what the message has for the JSON of the arguments.
    `origin` is the upstream that gets back what it added to calls and reasoning; None if it gets nothing.

    Items of one assistant turn become one message. The outputs of its calls follow it, wherever they are in the conversation, and
    then their images and files as a user message. Developer messages become system messages, and adjacent system messages are
    joined, beginning with the instructions, because many chat templates accept nothing else. For the same reason, a later one
    becomes a user's message that says what it is, unless `late_system` messages are accepted.

    Raises:
        ApiError: 400 for a content part that Chat Completions cannot express.
    """
    writer = _MessageWriter(reasoning_field, written_id, arguments, origin, late_system)
    if instructions:
        writer.add_text("system", instructions)
    for item in normalize(items, files=True, encrypted=origin is not None):
        writer.add(item)
    return [message for entry in writer.entries for message in entry.messages()]


def template_messages(messages: Iterable[Message]) -> list[Message]:
    """Return messages with their `reasoning` also as `reasoning_content`: chat templates have either name."""
    return [{**message, "reasoning_content": message["reasoning"]} if "reasoning" in message else message for message in messages]


def as_object(arguments: str) -> Mapping[str, object]:
    """Return the arguments of a call as chat templates need them; a text that is no object is the member `arguments` of one."""
    value = parse(arguments)
    return value if is_object(value) else {"arguments": arguments}


def function_of(tool: Mapping[str, object]) -> dict[str, object]:
    """Return a function tool in the format of Chat Completions, which nests all fields except `type`."""
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


@define(eq=False)
class _Entry:
    """A message, with the outputs of its calls, and with the images and files in these."""

    message: Message
    outputs: list[Message] = field(factory=list[Message])
    media: list[Message] = field(factory=list[Message])

    def messages(self) -> Iterator[Message]:
        yield self.message
        yield from self.outputs
        if self.media:
            kinds = " and ".join(dict.fromkeys(MEDIA[part["type"]] for part in self.media))
            text = f"These are the {kinds} in the output of the tools."
            yield {"role": "user", "content": [{"type": "text", "text": text}, *self.media]}


@define(eq=False)
class _MessageWriter:
    """Collects messages; `_callers` has the message with the last call of each id."""

    _reasoning_field: str
    _written_id: Callable[[str], str]
    _arguments: Callable[[str], object]
    _origin: str | None
    _late_system: bool
    entries: list[_Entry] = field(factory=list[_Entry])
    _callers: dict[object, _Entry] = field(factory=dict[object, _Entry])

    def add(self, item: JsonItem) -> None:
        match str(item["type"]):
            case "reasoning":
                message = self._assistant().message
                if self._reasoning_field:
                    self._extend(message, self._reasoning_field, text_of(item.get("content")))
                if details := elements(parse(as_text(item.get("encrypted_content")))):
                    message[REASONING_DETAILS] = [*elements(message.get(REASONING_DETAILS)), *details]
            case kind if ITEMS[kind].as_function_call:
                function = {"name": item["name"], "arguments": self._arguments(str(item["arguments"]))}
                extras: Mapping[str, object] = {} if self._origin is None else split_extras(str(item["call_id"]), self._origin)[1]
                call = {"id": self._written_id(str(item["call_id"])), "type": "function", "function": function, **extras}
                self._callers[item["call_id"]] = entry = self._assistant()
                entry.message["tool_calls"] = [*elements(entry.message.get("tool_calls")), call]
            case kind if ITEMS[kind].as_function_output:
                self._add_output(item)
            case _:
                self._add_message(item)

    def add_text(self, role: str, text: str) -> None:
        """Add a message, or extend the last one if both are system messages."""
        last = self.entries[-1].message if self.entries else None
        if role == "system" and last is not None and last["role"] == "system":
            last["content"] = f"{last['content']}\n\n{text}"
        elif role == "system" and last is not None and not self._late_system:
            self._append({"role": "user", "content": LATE_SYSTEM.format(text)})
        else:
            self._append({"role": role, "content": text})

    def _add_message(self, item: JsonItem) -> None:
        content, role = item.get("content"), str(item.get("role"))
        parts = [members(part) for part in elements(content)] if is_array(content) else []
        if role == "assistant":
            self._extend(self._assistant().message, "content", text_of(content))
        elif role in ("system", "developer"):
            self.add_text("system", text_of(content))
        elif all(part.get("type") in TEXTS for part in parts):
            self.add_text(role, text_of(content))
        else:
            self._append({"role": role, "content": [_part(part) for part in parts]})

    def _add_output(self, item: JsonItem) -> None:
        """Add an output to the message with its call; one without a call is a message."""
        output = item.get("output")
        media = [_part(part) for part in map(members, elements(output)) if part.get("type") not in TEXTS]
        message: Message = {"role": "tool", "tool_call_id": self._written_id(str(item["call_id"])), "content": text_of(output)}
        entry = self._callers.get(item["call_id"])
        if entry is None:
            self._append(message).media.extend(media)
        else:
            entry.outputs.append(message)
            entry.media.extend(media)

    def _append(self, message: Message) -> _Entry:
        self.entries.append(_Entry(message))
        return self.entries[-1]

    def _assistant(self) -> _Entry:
        """Return the last message if it is the assistant's and none of its calls has an output, else a new one."""
        last = self.entries[-1] if self.entries else None
        if last is None or last.message["role"] != "assistant" or last.outputs:
            return self._append({"role": "assistant", "content": ""})
        return last

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
            raise _unsupported_part(f"A content part of the type '{kind}'")


def _with_detail(part: Mapping[str, object], url: str) -> Message:
    detail = part.get("detail")
    return {"url": url, "detail": DETAILS.get(detail, detail)} if isinstance(detail, str) else {"url": url}


def _url(part: Mapping[str, object], name: str) -> str:
    url = part.get(name)
    if not isinstance(url, str):
        raise _unsupported_part(f"An '{part.get('type')}' without a '{name}'")
    return url


def _file(part: Mapping[str, object]) -> Message:
    names: Sequence[str] = ("file_data", "file_id", "filename")
    file: Message = {name: part[name] for name in names if part.get(name) is not None}
    if "file_data" not in file and "file_id" not in file:
        raise _unsupported_part("An 'input_file' without 'file_data' or 'file_id'")
    return file


def _unsupported_part(subject: str) -> ApiError:
    return invalid("input", f"{subject} cannot be sent to this model.", "unsupported_value")
