"""The embedded engine: a deterministic stand-in model that runs anywhere, for writing and testing clients.

The model composes its messages from the words of the request, the same for the same turn. It calls the hosted tools that the
user's message asks for; of the other tools, it calls two that the message names, or else one whose name shares words with it. So
tests can predict the calls. The engine writes the messages as a real model would: in harmony, or in the format of a model
family.
"""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from codecs import getincrementaldecoder
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Final, Literal

from attrs import Factory, evolve, field, frozen
from attrs.validators import ge

from interlock.events.json import dumps, elements, members
from interlock.fsm.deltas import FinishReason
from interlock.parsers import Chunk, Format, Tagged
from interlock.parsers.families import family
from interlock.parsers.families.reference_encoders import WrittenItem, encode
from interlock.serving.engines.engine import Engine, EngineOutput, ModelFacts, Turn
from interlock.serving.engines.example_values import arguments_for, value_for
from interlock.serving.engines.harmony_tokens import SERVER_CALLS, encode_framing, encode_text, encoding, token_bytes, token_entry
from interlock.serving.engines.prompt import (
    CONTEXT,
    count_prompt,
    is_client_output,
    is_from_user,
    output_text,
    tool_name,
    tool_names,
)
from interlock.serving.requests.input_items import JsonItem, text_of
from interlock.serving.requests.runtime import Yielder

MODEL: Final = "interlock-embedded"

LARGEST: Final = 6
"""The most tokens in a chunk; as with speculative decoding, a chunk can span messages and split characters."""

ORDINARY: Final = 199_000
"""All token ids below this one are text; control tokens have higher ids."""

LIKELY: Final = 0.7
"""The lower bound of a chosen token's log probability, negated, and the step from each alternative to the next."""

READ: Final = 4_000
"""The most characters used of the user's text, a tool's description or a tool's output."""

QUOTE: Final = 300

MOST_OUTPUTS: Final = 16
"""The most tool outputs in an answer."""
MOST_SEARCHED: Final = 100_000
"""The most characters of an output that are searched for pages."""

PAGE: Final = re.compile(r"^\[(\d+)\] (.*) \(\S+\)\nL0: (.*)$", re.MULTILINE)
"""A page in a browser's output: its number, title and first line."""

SMALL_WORDS: Final = frozenset({"the", "and", "for", "what", "with", "from", "that", "this", "you", "get", "use", "please"})
SHORTEST_WORD: Final = 3

SEARCH: Final = re.compile(r"\b(?:search|look\s+up|latest|news)\b", re.IGNORECASE)
QUERY: Final = re.compile(
    r"\b(?:search(?:\s+the\s+web)?(?:\s+for)?|look\s+up|news\s+(?:about|of|on))\s+([^,.;:?!]+)", re.IGNORECASE
)
CODE: Final = re.compile(r"\b(?:calculate|compute|evaluate|python|run)\b|\d\s*(?:[-+*/%]|\*\*)\s*\(?\d", re.IGNORECASE)
ARITHMETIC: Final = re.compile(r"[\d\s().+*/%-]+")

HOSTED: Final[Mapping[str, tuple[str, re.Pattern[str]]]] = {
    "code_interpreter": ("python", CODE),
    "web_search": ("browser.search", SEARCH),
    "web_search_preview": ("browser.search", SEARCH),
}
"""The hosted tools: their recipients in harmony, and the user's words that request them."""


@frozen
class PlainMessage:
    """One message of the model, in harmony's terms; the recipient is the called tool."""

    channel: Literal["analysis", "commentary", "final"]
    text: str
    recipient: str | None = None
    is_json: bool = False


@frozen
class CallableTool:
    """A tool that the model can call: its kind, its own name, its recipient in harmony, and its declaration."""

    kind: str
    name: str
    recipient: str
    declaration: Mapping[str, object]


@frozen
class EmbeddedEngine(Engine):
    """An engine without a model, which writes harmony or the format of a `family`, `rate` tokens per second (0 for no limit)."""

    models: Sequence[str] = (MODEL,)
    rate: float = field(default=0.0, validator=ge(0))
    family: Tagged | None = field(default=None, kw_only=True)
    format: Format = field(default=Factory(lambda self: self.family or "harmony", takes_self=True), init=False)

    def __attrs_post_init__(self) -> None:
        encoding()  # loads the vocabulary before the first request needs it

    def facts(self, name: str) -> ModelFacts:
        del name
        return ModelFacts(window=CONTEXT, efforts=["none", "low", "medium", "high"], modalities=["text"])

    async def count(self, turn: Turn) -> int:
        return await count_prompt(turn)

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        prompt = await count_prompt(turn)
        messages, stop = _cut_at_stop(turn_messages(turn), turn.request.extensions.get("stop"))
        tokens = await (_harmony(messages) if self.family is None else _write_tags(messages, self.family))
        is_whole = turn.budget is None or len(tokens) <= turn.budget
        tokens = tokens[: turn.budget]
        seed = zlib.crc32(f"{turn.index} {prompt} {user_text(turn)}".encode())
        start = asyncio.get_running_loop().time()
        decode = getincrementaldecoder("utf-8")("replace").decode
        end = 0
        while end < len(tokens):
            first, end = end, min(len(tokens), end + 1 + _pick(seed, end, LARGEST))
            due = start + end / self.rate if self.rate else start
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))  # lets other tasks run, even without a delay
            reason: FinishReason | None = None if end < len(tokens) else "stop" if is_whole else "length"
            chunk = Chunk(tokens[first:end], "" if self.family is None else decode(token_bytes(tokens[first:end])))
            if turn.request.wants_logprobs:
                count = turn.request.top_logprobs
                chunk.logprobs = [_logprobs(tokens[index], index, count, seed) for index in range(first, end)]
            yield EngineOutput(chunk, reason, prompt, stop_sequence=stop if reason == "stop" else None)


async def _harmony(messages: Sequence[PlainMessage]) -> list[int]:
    """Return the tokens of messages; the prompt already ends with the first one's `<|start|>assistant`."""
    tokens: list[int] = []
    yielder = Yielder()
    for index, message in enumerate(messages):
        recipient = f" to={message.recipient}" if message.recipient else ""
        tokens += encode_framing("<|start|>assistant<|channel|>" if index else "<|channel|>")
        tokens += await _text(f"{message.channel}{recipient}", yielder)
        if message.is_json:
            tokens += encode_framing(" <|constrain|>json")
        end = "<|end|>" if index < len(messages) - 1 else "<|call|>" if message.recipient else "<|return|>"
        tokens += [*encode_framing("<|message|>"), *await _text(message.text, yielder), *encode_framing(end)]
    return tokens


async def _write_tags(messages: Sequence[PlainMessage], tagged: Tagged) -> list[int]:
    thinking = family(tagged.tool_parser, tagged.reasoning_parser).starts == "thinking"
    items = [_in_family(message) for message in messages]
    return await _text(encode(items, tagged.tool_parser or "hermes", tagged.reasoning_parser, thinking=thinking), Yielder())


def _in_family(message: PlainMessage) -> WrittenItem:
    """Convert a message to an item of a family; the free text of a call becomes one argument."""
    if message.recipient is None:
        return WrittenItem("reasoning" if message.channel == "analysis" else "message", message.text)
    name = message.recipient.removeprefix("functions.")
    key = "code" if name == "python" else "input"
    return WrittenItem("call", message.text if message.is_json else dumps({key: message.text}).decode(), name)


async def _text(text: str, yielder: Yielder) -> list[int]:
    return [token async for tokens in encode_text(text, yielder) for token in tokens]


def _pick(seed: int, index: int, count: int) -> int:
    """Return an evenly distributed number below `count`, the same for the same seed and index."""
    return zlib.crc32(index.to_bytes(8, "little"), seed) % count


def _logprobs(token: int, index: int, alternatives: int, seed: int) -> dict[str, object]:
    likely = -LIKELY * _pick(seed, index, 1_000) / 1_000
    tokens = [token, *(_pick(seed, index + place * ORDINARY, ORDINARY) for place in range(1, alternatives))][:alternatives]
    top = [token_entry(other, round(likely - LIKELY * place, 4)) for place, other in enumerate(tokens)]
    return {**token_entry(token, round(likely, 4)), "top_logprobs": top}


def turn_messages(turn: Turn) -> list[PlainMessage]:
    """Return the messages of a turn: any thoughts, then an answer or a preamble and calls.

    Raises:
        PromptError: The JSON schema of the answer or of a called function cannot be filled.
    """
    calls = turn_calls(turn)
    names = " and ".join(str(call.recipient).removeprefix("functions.") for call in calls)
    thoughts = _thoughts(turn, f"I should call {names}." if calls else "I should answer.")
    if not calls:
        return [*thoughts, PlainMessage("final", _answer(turn))]
    return [*thoughts, PlainMessage("commentary", f"I'll call {names}."), *calls]


def _cut_at_stop(messages: Sequence[PlainMessage], stop: object) -> tuple[Sequence[PlainMessage], str | None]:
    """Cut an answer at the first of the request's stop strings, and return that string."""
    *before, last = messages
    strings = [
        text for text in ([stop] if isinstance(stop, str) else elements(stop)) if isinstance(text, str) and text in last.text
    ]
    if not strings or last.recipient is not None:
        return messages, None
    first = min(strings, key=last.text.index)
    return [*before, evolve(last, text=last.text.partition(first)[0])], first


def user_text(turn: Turn) -> str:
    """Return the beginning of the user's last message, or an empty text."""
    last = next((item for item in reversed(turn.items) if is_from_user(item)), None)
    return text_of(last.get("content"))[:READ] if last else ""


def _thoughts(turn: Turn, plan: str) -> list[PlainMessage]:
    match turn.request.reasoning_effort:
        case "none":
            return []
        case "minimal":
            return [PlainMessage("analysis", plan)]
        case _:
            tools = [f"Tools on offer: {len(turn.request.tools)}."] if turn.request.tools else []
            results = [f"{name} answered, so I should use that." for name, _ in _outputs(turn)]
            return [PlainMessage("analysis", " ".join([f"The user says: {_quote(user_text(turn))}.", *tools, *results, plan]))]


def _answer(turn: Turn) -> str:
    match turn.request.text_format.get("type"):
        case "json_schema":
            schema = members(turn.request.text_format.get("schema"))
            return json.dumps(value_for(schema, _words_after_colon(user_text(turn))), ensure_ascii=False)
        case "json_object":
            return json.dumps({"answer": _prose(turn)}, ensure_ascii=False)
        case _:
            return _prose(turn)


def _prose(turn: Turn) -> str:
    results = [_cite(name, output) for name, output in _outputs(turn)]
    if results:
        return "\n".join(results)
    text = user_text(turn)
    if not text:
        return "I have read everything, but there is no message of yours that I could answer."
    return (
        f"You said: {_quote(text)}.\n\nI am the stand-in model that is built into Interlock: what I write is a real "
        "stream of harmony tokens, and what I know is your request."
    )


def _cite(name: str, output: str) -> str:
    """Return a tool's output for the answer; of a browser's pages, only the titles and the first lines, with citation marks."""
    pages = [f"{title}: {line}【{number}†L0】" for number, title, line in PAGE.findall(output[:MOST_SEARCHED])]
    return "\n".join(pages) or f"{name} says: {_shorten(output, READ)}"


def _outputs(turn: Turn) -> list[tuple[str, str]]:
    """Return the latest tool outputs after the user's last message, as pairs of tool name and output."""
    start = max((index for index, item in enumerate(turn.items) if is_from_user(item)), default=-1) + 1
    names = tool_names(turn.items)
    items = [item for item in turn.items[start:] if _has_output(item)]
    return [(tool_name(item, names), output_text(item)) for item in items[-MOST_OUTPUTS:]]


def _has_output(item: JsonItem) -> bool:
    return is_client_output(item) or (item.get("type") in SERVER_CALLS and bool(output_text(item)))


def turn_calls(turn: Turn) -> Sequence[PlainMessage]:
    """Return the calls of a turn: the hosted tools that the user requests, and the other tools that the user names.

    If the user names none of the others, one whose name shares a word with the message is called; a required call is else one of
    the first tool. The model calls tools only if the user spoke last, or if `tool_choice` requires a call and a client's tool
    answered last, before the first turn.

    Raises:
        PromptError: The parameters of a called function cannot be filled.
    """
    choice = turn.request.tool_choice
    rules = members(choice)
    is_forced = choice == "required" or rules.get("mode") == "required" or rules.get("type") in ("function", "custom", *HOSTED)
    last = _last_item(turn.items)
    if choice == "none" or not (is_from_user(last) or (is_forced and is_client_output(last) and not turn.index)):
        return ()
    text = user_text(turn)
    tools = [tool for tool in (*_tools(turn.request.tools), *_listed_tools(turn)) if _is_allowed(tool, rules)]
    chosen = [tool for tool in tools if tool.kind in HOSTED and HOSTED[tool.kind][1].search(text)]
    chosen += _find_named([tool for tool in tools if tool.kind not in HOSTED], text)
    if is_forced and not chosen:
        chosen = tools[:1]
    return [_call(tool, text) for tool in (chosen if turn.request.parallel_tool_calls else chosen[:1])]


def _last_item(items: Sequence[JsonItem]) -> JsonItem:
    for item in reversed(items):
        if item.get("role") not in ("system", "developer") and item.get("type") != "mcp_list_tools":
            return item
    return {}


def _tools(declarations: Sequence[object], prefix: str = "") -> Iterator[CallableTool]:
    for tool in map(members, declarations):
        kind, name = str(tool.get("type")), str(tool.get("name", ""))
        if kind in ("function", "custom"):
            yield CallableTool(kind, name, f"functions.{prefix}{name}", tool)
        elif kind == "namespace":
            yield from _tools(elements(tool.get("tools")), f"{name}__")
        elif kind in HOSTED:
            yield CallableTool(kind, kind, HOSTED[kind][0], tool)


def _listed_tools(turn: Turn) -> Iterator[CallableTool]:
    for item in turn.items:
        if item.get("type") == "mcp_list_tools":
            label = item.get("server_label")
            for tool in map(members, elements(item.get("tools"))):
                name = str(tool.get("name"))
                declaration = {**tool, "server_label": label, "parameters": tool.get("input_schema")}
                yield CallableTool("mcp", name, f"{label}.{name}", declaration)


def _is_allowed(tool: CallableTool, rules: Mapping[str, object]) -> bool:
    """Return whether a `tool_choice` allows a tool by its type and, if given, its name and server."""
    labels = {"type": tool.kind, "name": tool.name, "server_label": tool.declaration.get("server_label")}
    allowed = elements(rules["tools"]) if rules.get("type") == "allowed_tools" else [rules]
    return not rules or any(all(members(one).get(key, label) == label for key, label in labels.items()) for one in allowed)


def _find_named(tools: Sequence[CallableTool], text: str) -> list[CallableTool]:
    """Return the first two tools that the text names, or else the one whose name shares the most words with it, if any does."""
    places = [(place, index) for index, tool in enumerate(tools) if (place := _mention(tool.name, text)) >= 0]
    if places:
        return [tools[index] for _, index in sorted(places)[:2]]
    words = _words(text)
    best = max(tools, key=lambda tool: len(words & _words(tool.name)), default=None)
    return [best] if best is not None and words & _words(best.name) else []


def _mention(name: str, text: str) -> int:
    """Return the index of a name as a separate word in a text, or -1."""
    match = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) if name and name in text else None
    return match.start() if match else -1


def _words(text: str) -> set[str]:
    """Return the words of a text or identifier in lower case, without small words, and without an s at the end of a word."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).replace("_", " ")
    words = {word.casefold() for word in re.findall(r"\w+", spaced)}
    return {word.removesuffix("s") for word in words - SMALL_WORDS if len(word) >= SHORTEST_WORD}


def _call(tool: CallableTool, text: str) -> PlainMessage:
    """Return a call with arguments from the user's text; a custom tool's grammar is ignored."""
    words = _words_after_colon(text)
    match tool.kind:
        case "custom":
            return PlainMessage("commentary", words or text, tool.recipient)
        case "code_interpreter":
            return PlainMessage("commentary", _code(text), tool.recipient)
        case "web_search" | "web_search_preview":
            match = QUERY.search(text)
            arguments: Mapping[str, object] = {"query": match[1].strip() if match else words or text}
        case _:
            arguments = arguments_for(tool.declaration, words)
    return PlainMessage("commentary", json.dumps(arguments, ensure_ascii=False), tool.recipient, is_json=True)


def _code(text: str) -> str:
    for match in ARITHMETIC.findall(text):
        arithmetic = match.lstrip(" \n\t).+*/%-").rstrip(" \n\t(.+*/%-")
        if arithmetic.strip("0123456789. "):
            return f"print({arithmetic})"
    return f"print({_words_after_colon(text) or text!r})"


def _words_after_colon(text: str) -> str | None:
    return (text.rpartition(": ")[2].strip() or None) if ": " in text else None


def _quote(text: str) -> str:
    return f"\N{LEFT DOUBLE QUOTATION MARK}{_shorten(text, QUOTE)}\N{RIGHT DOUBLE QUOTATION MARK}"


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\N{HORIZONTAL ELLIPSIS}"
