"""What the tokens of gpt-oss are besides text: the messages of a turn, those of the tools that it called, and log probabilities.

It knows `openai_harmony` and the items of calls, and no engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final, cast

from interlock.parsers.harmony_vocabulary import Entry, vocabulary
from interlock.parsers.routing import SEPARATOR
from interlock.serving.requests.json_values import text_of

__all__ = ["token_entries", "tool_messages", "turn_messages"]

CALLS: Final = frozenset({"code_interpreter_call", "web_search_call", "mcp_call"})
"""The calls that a server runs."""

NOBODY: Final = frozenset({None, "", "assistant", "user", "all"})
"""The recipients of messages that call nothing."""


def turn_messages(tokens: Sequence[int]) -> Sequence[Any]:
    """Return the messages of a turn; one with all of its text where it is malformed.

    Args:
        tokens: What the model wrote.
    """
    harmony, encoding = import_module("openai_harmony"), cast("Any", vocabulary().encoding)
    try:
        messages: Sequence[Any] = encoding.parse_messages_from_completion_tokens(tokens, harmony.Role.ASSISTANT)
    except harmony.HarmonyError:
        text = encoding.decode([token for token in tokens if not encoding.is_special_token(token)], errors="replace")
        messages = [harmony.Message.from_role_and_content(harmony.Role.ASSISTANT, text).with_channel("final")]
    return messages


def tool_messages(tokens: Sequence[int], items: Sequence[Mapping[str, object]]) -> Sequence[object]:
    """Return the messages of the tools that a turn called.

    A tool answers under the name and in the channel by which the model called it; where its calls cannot be told apart, by the
    name that its kind has.

    Args:
        tokens: What the model wrote in the turn.
        items: What became of that; calls that a server ran have what their tools said as `output`.
    """
    calls = [item for item in items if item.get("type") in CALLS]
    written = [message for message in turn_messages(tokens) if message.recipient not in NOBODY]
    called = [(message.recipient.partition("<|constrain|>")[0].rstrip(), message.channel) for message in written]
    names = called if len(called) == len(calls) else map(_usual, calls)
    harmony = import_module("openai_harmony")
    return [
        harmony.Message.from_author_and_content(harmony.Author.new(harmony.Role.TOOL, name), text_of(item.get("output")))
        .with_channel(channel or "commentary")
        .with_recipient("assistant")
        for item, (name, channel) in zip(calls, names, strict=True)
    ]


def _usual(item: Mapping[str, object]) -> tuple[str, str]:
    """Return the name and the channel by which gpt-oss calls the tool of an item."""
    names = {"code_interpreter_call": "python", "web_search_call": "browser.search"}
    function = f"functions.{item.get('server_label')}{SEPARATOR}{item.get('name')}"
    return (names[str(item["type"])], "analysis") if item["type"] in names else (function, "commentary")


def token_entries(tokens: Sequence[int], ranked: Sequence[Mapping[int, Any]], count: int) -> list[Entry]:
    """Return log probabilities in the API's shape, with the bytes of each token even where it divides a character.

    Args:
        tokens: What the model wrote.
        ranked: For each of them the likeliest tokens, each with an object that has its `logprob`.
        count: How many alternatives each token has.
    """
    entries: list[Entry] = []
    for token, likely in zip(tokens, ranked, strict=False):
        top = [_entry(other, found.logprob) for other, found in [*likely.items()][:count]]
        entries.append({**_entry(token, likely[token].logprob), "top_logprobs": top})
    return entries


def _entry(token: int, logprob: float) -> dict[str, object]:
    raw = vocabulary().encoding.decode([token], errors="surrogateescape").encode("utf-8", "surrogateescape")
    return {"token": raw.decode("utf-8", "replace"), "bytes": [*raw], "logprob": max(logprob, -9999.0)}
