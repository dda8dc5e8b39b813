"""The chunks and objects of OpenAI's Chat Completions API, as a server writes them.

Source: the types of the `openai` package, 3.57. docs/guides/dialects.md has the rules of a stream, C1 to C9. Reasoning is in two
fields, because clients read one or the other.
"""

from __future__ import annotations

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from msgspec import UNSET, Struct

from interlock.events.json import dumps, elements, is_object, parse
from interlock.events.parts import Json, Maybe

StopWord: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]
"""Why a choice ended."""

OLD_CALL: Final = "function_call"
"""The field of a call, and the reason of a choice that ended with it, before a message could have several."""


class ChatFunction(Struct, kw_only=True):
    """A function's name, once, and its arguments."""

    name: Maybe[str] = UNSET
    arguments: str = ""


class ChatCustom(Struct, kw_only=True):
    """The name of a tool that takes text, once, and its input."""

    name: Maybe[str] = UNSET
    input: str = ""


class ChatCall(Struct, kw_only=True):
    """A call of a function or of a tool that takes text, or more of its arguments or input.

    `id`, `type`, the name and the extras of another service come once.
    """

    index: Maybe[int] = UNSET
    id: Maybe[str] = UNSET
    type: Maybe[Literal["function", "custom"]] = UNSET
    function: Maybe[ChatFunction] = UNSET
    custom: Maybe[ChatCustom] = UNSET
    extra_content: Maybe[dict[str, Json]] = UNSET
    provider_specific_fields: Maybe[dict[str, Json]] = UNSET


class EncryptedReasoning(Struct, tag="reasoning.encrypted", tag_field="type", kw_only=True):
    """Reasoning that only the server can read, in OpenRouter's form. Clients send it back."""

    index: int
    data: str


class ChunkDelta(Struct, kw_only=True):
    """What a chunk adds to a message."""

    role: Maybe[Literal["assistant"]] = UNSET
    content: Maybe[str | None] = UNSET
    reasoning_content: Maybe[str] = UNSET
    reasoning: Maybe[str] = UNSET
    reasoning_details: Maybe[list[EncryptedReasoning]] = UNSET
    refusal: Maybe[str] = UNSET
    annotations: Maybe[list[Json]] = UNSET
    tool_calls: Maybe[list[ChatCall]] = UNSET


class ChatLogprobs(Struct, kw_only=True):
    """The log probabilities of the tokens of a text."""

    content: list[Json] | None = None
    refusal: list[Json] | None = None


class ChunkChoice(Struct, kw_only=True):
    """The only choice of a chunk."""

    index: int = 0
    delta: ChunkDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: StopWord | None = None


class PromptDetails(Struct, kw_only=True):
    """The tokens of the prompt that a cache had."""

    cached_tokens: int = 0


class CompletionDetails(Struct, kw_only=True):
    """The tokens of the output that are reasoning."""

    reasoning_tokens: int = 0


class ChatUsage(Struct, kw_only=True):
    """The tokens of a completion."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class CompletionBase(Struct, kw_only=True):
    """What every chunk and the whole object have."""

    id: str
    created: int
    model: str


class CompletionChunk(CompletionBase, kw_only=True):
    """A chunk of a stream."""

    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[ChunkChoice]
    usage: Maybe[ChatUsage | None] = UNSET


class ChatMessage(Struct, kw_only=True):
    """The assistant's whole message."""

    role: Literal["assistant"] = "assistant"
    content: str | None = None
    refusal: str | None = None
    annotations: list[Json] = []
    reasoning_content: Maybe[str] = UNSET
    reasoning: Maybe[str] = UNSET
    reasoning_details: Maybe[list[EncryptedReasoning]] = UNSET
    tool_calls: Maybe[list[ChatCall]] = UNSET


class WholeChoice(Struct, kw_only=True):
    """The only choice of a whole completion."""

    index: int = 0
    message: ChatMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: StopWord


class ChatCompletion(CompletionBase, kw_only=True):
    """A whole completion."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: list[WholeChoice]
    usage: ChatUsage | None = None


class ChatError(Struct, kw_only=True):
    """Why a completion failed."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorChunk(Struct, kw_only=True):
    """An error after the first event of a stream."""

    error: ChatError


# What a service adds to a call and wants back with it, such as the thought signature of Gemini's models. Every client of every
# API sends the id of a call back, but few send unknown fields, so the id carries these extras: after the service's own id, as
# JSON in letters, digits and `_`. Nothing is stored for that.

EXTRAS: Final = ("extra_content", "provider_specific_fields")
"""The fields of a call that go back to the service."""
SEPARATOR: Final = "-x"
"""Separates an id from its extras, which have no hyphens."""
LONGEST: Final = 65_536
"""The most characters of an id with extras. Longer extras are dropped, as is JSON of more than 16 times as many bytes."""


def extras_in(call: Mapping[str, object]) -> dict[str, object]:
    """Return the extras of a call of Chat Completions."""
    return {name: call[name] for name in EXTRAS if is_object(call.get(name)) and call[name]}


def add_extras(call_id: str, extras: Mapping[str, object], origin: str = "") -> str:
    """Return a call id with extras, by field; `origin` names the service that reads them, if it is known."""
    if not extras:
        return call_id
    packed = urlsafe_b64encode(zlib.compress(dumps([origin, extras]))).decode().rstrip("=")
    full = f"{call_id}{SEPARATOR}{packed.replace('_', '_1').replace('-', '_0')}"
    return full if len(full) <= LONGEST else call_id


def split_extras(call_id: str, origin: str | None = None) -> tuple[str, Mapping[str, object]]:
    """Return a call id, which a client may have changed, without its extras, and the extras.

    There are none in an id with those of another service than `origin`, which is None for any.
    """
    plain, separator, packed = call_id.rpartition(SEPARATOR)
    if not separator or len(call_id) > LONGEST:
        return call_id, {}
    packed = packed.replace("_0", "-").replace("_1", "_")
    try:
        text = zlib.decompressobj().decompress(urlsafe_b64decode(f"{packed}{'=' * (-len(packed) % 4)}"), 16 * LONGEST)
    except (ValueError, zlib.error):
        return call_id, {}
    source, extras = [*elements(parse(text)), None, None][:2]
    if not isinstance(source, str) or not is_object(extras):
        return call_id, {}
    return plain, extras_in(extras) if origin is None or source in ("", origin) else {}
