"""A notation for harmony with written control tokens, and for the items that a parser reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import openai_harmony
from attrs import field, frozen

from interlock.fsm.deltas import Close, Delta, EndTurn, FinishReason, Open, Reject, Text, Usage
from interlock.parsers import Chunk, HarmonyParser, Parser, Routing


@cache
def encoding() -> openai_harmony.HarmonyEncoding:
    return openai_harmony.load_harmony_encoding("HarmonyGptOss")


def tokens(written: str) -> list[int]:
    """Encode harmony with its control tokens written out."""
    return encoding().encode(written, allowed_special="all")


def words(text: str) -> list[int]:
    """Encode text in which nothing is a control token."""
    return encoding().encode(text, disallowed_special=())


@frozen
class Item:
    """An item as the reader of a stream sees it.

    `ending` is how the parser ended it: `Close`, `Reject`, or nothing if the end of the turn did.
    """

    kind: str
    text: str = ""
    fields: Mapping[str, object] = field(factory=dict)
    ending: str = "Close"
    tokens: Sequence[str] = ()


def answer(text: str, ending: str = "Close") -> Item:
    return Item("message", text, {"phase": "final_answer"}, ending)


def preamble(text: str, ending: str = "Close") -> Item:
    return Item("message", text, {"phase": "commentary"}, ending)


def reasoning(text: str, ending: str = "Close") -> Item:
    return Item("reasoning", text, {}, ending)


def call(name: str, text: str, ending: str = "Close") -> Item:
    return Item("function_call", text, {"name": name}, ending)


def mcp(server: str, name: str, text: str, ending: str = "Close") -> Item:
    return Item("mcp_call", text, {"name": name, "server_label": server}, ending)


def python(text: str, ending: str = "Close") -> Item:
    return Item("code_interpreter_call", text, {}, ending)


def search(action: Mapping[str, object], ending: str = "Close") -> Item:
    return Item("web_search_call", "", {"action": action}, ending)


def items(deltas: Iterable[Delta]) -> list[Item]:
    """Join the deltas of one turn; assert that they are well-bracketed and that nothing follows the end."""
    seen: list[Item] = []
    opened: Open | None = None
    texts: list[str] = []
    scored: list[str] = []
    ended = False
    for delta in deltas:
        assert not ended
        match delta:
            case str():
                assert opened is not None
                assert delta
                texts.append(delta)
            case Open():
                assert opened is None
                opened, texts, scored = delta, [], []
            case Text(text, logprobs):
                assert opened is not None
                texts.append(text)
                scored += [str(entry["token"]) for entry in logprobs]
            case Close() | Reject():
                assert opened is not None
                seen.append(_item(opened, texts, type(delta).__name__, scored))
                opened = None
            case EndTurn():
                ended = True
            case _:
                raise AssertionError(delta)
    assert ended
    return seen if opened is None else [*seen, _item(opened, texts, "", scored)]


def _item(opened: Open, texts: Sequence[str], ending: str, scored: Sequence[str]) -> Item:
    return Item(opened.kind, "".join(texts), dict(opened.fields), ending, tokens=[*scored] if scored else ())


def run(parser: Parser, chunks: Iterable[Chunk], reason: FinishReason = "stop") -> list[Delta]:
    """Feed chunks and end the turn."""
    deltas = [delta for chunk in chunks for delta in parser.feed(chunk)]
    return [*deltas, *parser.end(reason, Usage())]


def parse(ids: Sequence[int], *, routing: Routing | None = None, reason: FinishReason = "stop", size: int = 1000) -> list[Delta]:
    """Parse one turn of harmony in chunks of a size."""
    chunks = [Chunk(ids[start : start + size]) for start in range(0, len(ids), size)]
    return run(HarmonyParser(routing or Routing()), chunks, reason)


def seen(deltas: Sequence[Delta]) -> list[Item]:
    """Return the items without those that the driver drops: messages and reasoning of white space (rule R18)."""
    return [item for item in items(deltas) if item.text.strip() or item.kind not in {"message", "reasoning"}]
