"""Encodes text and framing as tokens of gpt-oss, and returns the messages and log probabilities of tokens.

The tokenizer's time grows with the square of a word's length, so text is encoded in slices, which split only very long words.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from interlock.events.items import ITEMS
from interlock.events.json import as_text, clean, members, parse
from interlock.fsm.deltas import ScoredToken, TokenLogprob
from interlock.parsers.harmony import vocabulary
from interlock.parsers.hosted_tools import HOSTED_CALLS
from interlock.parsers.routing import flat_name
from interlock.serving.engines.prompt import SERVER_CALLS
from interlock.serving.requests.input_items import JsonItem, text_of
from interlock.serving.requests.runtime import Yielder

if TYPE_CHECKING:  # models of other formats need no `openai_harmony`
    from openai_harmony import HarmonyEncoding  # pyright: ignore[reportMissingTypeStubs] - its types are inline, without a py.typed

ENCODED_AT_ONCE: Final = 1_024
"""The most characters that are encoded at once; the slowest slices take three milliseconds."""
SLICES: Final = re.compile(rf".{{1,{ENCODED_AT_ONCE}}}(?=(?<=\S)\ \S)|.{{1,{ENCODED_AT_ONCE}}}", re.DOTALL)
"""Matches the next slice of a text; it ends before a space between words if possible, where tokens never continue."""

NO_TOOL: Final = frozenset({None, "", "assistant", "user", "all"})


def encoding() -> HarmonyEncoding:
    """Return the encoding of gpt-oss, which the parser shares; the first call takes 0.2 seconds and 50 MB."""
    return vocabulary().encoding


async def encode_text(text: str, yielder: Yielder) -> AsyncGenerator[list[int], None]:
    """Yield the tokens of a text, slice by slice; control tokens in it are text, and lone surrogates become U+FFFD."""
    for piece in SLICES.finditer(text):
        yield encoding().encode(clean(piece[0]), disallowed_special=())
        await yielder.checkpoint()


@lru_cache(maxsize=256)
def encode_framing(text: str) -> tuple[int, ...]:
    """Return the tokens of framing, such as `<|start|>assistant`, including control tokens."""
    return tuple(encoding().encode(text, allowed_special="all"))


async def encode_turn(thinks: str | None, says: str | None, calls: Sequence[tuple[str, str]]) -> list[int]:
    """Return the tokens of a turn with reasoning, a message, and calls, each of which has a name and its arguments.

    The name of a hosted tool or of a server's tool is a recipient. The prompt already ends with the first `<|start|>assistant`.
    """
    channel = "commentary" if calls else "final"
    headers = [("analysis", thinks), (channel, says)]
    messages = [(header, False, text) for header, text in headers if text is not None]
    for name, arguments in calls:
        is_bare = name == "python" or "." in name
        text = as_text(members(parse(arguments)).get("code", arguments)) if name == "python" else arguments
        messages.append((f"commentary to={name if is_bare else f'functions.{name}'}", name != "python", text))
    tokens: list[int] = []
    yielder = Yielder()
    for index, (header, is_json, text) in enumerate(messages):
        end = "<|end|>" if index < len(messages) - 1 else "<|call|>" if calls else "<|return|>"
        tokens += encode_framing("<|start|>assistant<|channel|>" if index else "<|channel|>")
        tokens += [token async for piece in encode_text(header, yielder) for token in piece]
        tokens += encode_framing(" <|constrain|>json<|message|>" if is_json else "<|message|>")
        tokens += [token async for piece in encode_text(text, yielder) for token in piece]
        tokens += encode_framing(end)
    return tokens


def write_required_call(choice: object) -> Sequence[int]:
    """Return the tokens that begin a function call if `tool_choice` requires one, or else none."""
    if choice == "required":
        return encode_framing("<|channel|>commentary to=functions.")
    name = str(members(choice).get("name", "")).replace("<|", "<")
    return encode_framing(f"<|channel|>commentary to=functions.{name} <|constrain|>json") if name else ()


def turn_messages(tokens: Sequence[int]) -> Sequence[Any]:
    """Return the messages in a turn's tokens; a malformed turn is one message with all of its text."""
    harmony = import_module("openai_harmony")
    try:
        messages: Sequence[Any] = encoding().parse_messages_from_completion_tokens(tokens, harmony.Role.ASSISTANT)
    except harmony.HarmonyError:
        text = encoding().decode([token for token in tokens if not encoding().is_special_token(token)], errors="replace")
        messages = [harmony.Message.from_role_and_content(harmony.Role.ASSISTANT, text).with_channel("final")]
    return messages


def tool_messages(tokens: Sequence[int], items: Sequence[JsonItem]) -> Sequence[object]:
    """Return a message with the output of each tool that a turn called, given the turn's tokens and items.

    Each message has the name and channel of its call, or the usual ones if tokens and items have different numbers of calls.
    Return none if a call is of the client's async tools: the whole conversation has to be rendered.
    """
    if any(ITEMS[str(item["type"])].as_function_output for item in items):
        return ()
    harmony = import_module("openai_harmony")
    calls = [item for item in items if item.get("type") in SERVER_CALLS]
    call_messages = [message for message in turn_messages(tokens) if message.recipient not in NO_TOOL]
    addresses = [(message.recipient.partition("<|constrain|>")[0].rstrip(), message.channel) for message in call_messages]
    if len(addresses) != len(calls):
        addresses = [_usual_address(call) for call in calls]
    return [
        harmony.Message.from_author_and_content(harmony.Author.new(harmony.Role.TOOL, name), text_of(call.get("output")))
        .with_channel(channel or "commentary")
        .with_recipient("assistant")
        for call, (name, channel) in zip(calls, addresses, strict=True)
    ]


async def encode_replies(messages: Iterable[Any]) -> list[int]:
    """Return the tokens of messages from `tool_messages`, and of the beginning of the answer to them."""
    tokens: list[int] = []
    yielder = Yielder()
    for message in messages:
        name = message.author.name.replace("<|", "<")  # a model wrote it
        tokens += encode_framing(f"<|start|>{name} to={message.recipient}<|channel|>{message.channel}<|message|>")
        async for encoded in encode_text(message.content[0].text, yielder):
            tokens += encoded
        tokens += encode_framing("<|end|>")
    return [*tokens, *encode_framing("<|start|>assistant")]


def _usual_address(call: JsonItem) -> tuple[str, str]:
    hosted = HOSTED_CALLS.get(call["type"])
    if hosted is not None and hosted.recipient:
        return hosted.recipient, "analysis"
    name = flat_name(call.get("server_label"), call.get("name")) if hosted is None else hosted.name
    return f"functions.{name}", "commentary"


def token_entries(tokens: Sequence[int], ranked: Sequence[Mapping[int, Any]]) -> list[TokenLogprob]:
    """Return the log probabilities of tokens in the API's format.

    `ranked` has a mapping for each token, from the likeliest token ids to objects with a `logprob`.
    """
    entries: list[TokenLogprob] = []
    for token, likely in zip(tokens, ranked, strict=False):
        top = [token_entry(other, rank.logprob) for other, rank in likely.items()]
        entries.append({**token_entry(token, likely[token].logprob), "top_logprobs": top})
    return entries


def token_entry(token: int, logprob: float) -> ScoredToken:
    """Return the log probability of one token in the API's format, without alternatives."""
    raw = encoding().decode([token], errors="surrogateescape").encode("utf-8", "surrogateescape")  # perhaps a part of a character
    return {"token": raw.decode("utf-8", "replace"), "bytes": [*raw], "logprob": logprob}
