"""The embedded engine: a deterministic stand-in for a model, which runs anywhere, for writing and testing clients.

It answers each turn with a step of a script, made from the words of the request. Of the tools it calls those that the message
names, or else one whose name shares words with it. So tests can predict the calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Final, Literal

from attrs import Factory, evolve, field, frozen
from attrs.validators import ge

from interlock.events.json import elements, members
from interlock.parsers import Format, Tagged
from interlock.serving.engines.engine import Engine, EngineOutput, Turn
from interlock.serving.engines.example_values import arguments_for, example
from interlock.serving.engines.prompt import (
    CONTEXT,
    SERVER_CALLS,
    count_prompt,
    is_client_output,
    is_from_user,
    output_text,
    tool_name,
    tool_names,
)
from interlock.serving.engines.script import Call, ScriptStep
from interlock.serving.engines.scripted_engine import play, write_step
from interlock.serving.requests.input_items import JsonItem, text_of
from interlock.serving.requests.tool_offer import HOSTED_CALLS
from interlock.serving.settings import ModelFacts

MODEL: Final = "interlock-embedded"

MAX_READ: Final = 4_000
"""The most characters used of the user's text or of a tool's output."""
QUOTE: Final = 300
MOST_OUTPUTS: Final = 16
"""The most tool outputs in an answer."""

SMALL_WORDS: Final = frozenset({"the", "and", "for", "what", "with", "from", "that", "this", "you", "get", "use", "please"})
SHORTEST_WORD: Final = 3

CODE: Final = re.compile(r"\b(?:calculate|compute|evaluate|python|run)\b|\d\s*(?:[-+*/%]|\*\*)\s*\(?\d", re.IGNORECASE)
"""Matches a message that fits the code interpreter."""
QUERY: Final = re.compile(r"\bsearch(?:\s+the\s+web)?(?:\s+for)?\s+([^,.;:?!]+)", re.IGNORECASE)
ARITHMETIC: Final = re.compile(r"[\d\s().+*/%-]+")

HOSTED_NAMES: Final[Mapping[str, str]] = {kind: call.recipient for call in HOSTED_CALLS.values() for kind in call.types}
"""The names with which models call the hosted tools, by the types of the tools in requests."""


@frozen
class CallableTool:
    """A tool that the model can call: its kind, its own name, the name in calls, and its declaration."""

    kind: str
    name: str
    recipient: str
    declaration: Mapping[str, object]


@frozen
class EmbeddedEngine(Engine):
    """An engine without a model, which writes `rate` words per second (0 for no limit), perhaps in the format of a `family`."""

    models: Sequence[str] = (MODEL,)
    rate: float = field(default=0.0, validator=ge(0))
    family: Tagged | Literal["harmony"] | None = field(default=None, kw_only=True)
    format: Format = field(default=Factory(lambda self: self.family or "chat", takes_self=True), init=False)

    def facts(self, name: str) -> ModelFacts:
        del name
        return ModelFacts(window=CONTEXT, efforts=["none", "low", "medium", "high"], modalities=["text"])

    async def count(self, turn: Turn) -> int:
        return count_prompt(turn)

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        prompt = count_prompt(turn)
        step, stop = _truncate_at_stop(script_step(turn), turn.request.extensions.get("stop"))
        outputs = await write_step(step, self.format, prompt, turn.budget)
        if outputs[-1].finish_reason == "stop":
            outputs[-1] = evolve(outputs[-1], stop_sequence=stop)
        async for output in play(outputs, self.rate):
            yield output


def script_step(turn: Turn) -> ScriptStep:
    """Return what the model writes in a turn: any thoughts, then an answer, or a preamble and calls.

    A call that the request forces, or beside which the message would have to be JSON, has no preamble.

    Raises:
        PromptError: The JSON schema of the answer or of a called function cannot be filled.
    """
    tools, text = chosen_tools(turn), user_text(turn)
    names = " and ".join(tool.recipient for tool in tools)
    thoughts = _thoughts(turn, f"I should call {names}." if tools else "I should answer.")
    if not tools:
        return ScriptStep(thinks=thoughts, says=_answer(turn))
    has_preamble = not _is_forced(turn) and turn.request.text_format.get("type") == "text"
    return ScriptStep(
        thinks=thoughts, says=f"I'll call {names}." if has_preamble else None, calls=[_call(tool, text) for tool in tools]
    )


def _truncate_at_stop(step: ScriptStep, stop: object) -> tuple[ScriptStep, str | None]:
    """Truncate an answer at the first of the request's stop strings, and return that string."""
    text = step.says if isinstance(step.says, str) and not step.calls else ""
    strings = [each for each in ([stop] if isinstance(stop, str) else elements(stop)) if isinstance(each, str) and each in text]
    if not strings:
        return step, None
    first = min(strings, key=text.index)
    return ScriptStep(thinks=step.thinks, says=text.partition(first)[0]), first


def user_text(turn: Turn) -> str:
    """Return the beginning of the user's last message, or an empty text."""
    last = next((item for item in reversed(turn.items) if is_from_user(item)), None)
    return text_of(last.get("content"))[:MAX_READ] if last else ""


def _thoughts(turn: Turn, plan: str) -> str | None:
    match turn.request.reasoning_effort:
        case "none":
            return None
        case "minimal":
            return plan
        case _:
            tools = [f"Tools on offer: {len(turn.request.tools)}."] if turn.request.tools else []
            results = [f"{name} answered, so I should use that." for name, _ in _outputs(turn)]
            return " ".join([f"The user says: {_quote(user_text(turn))}.", *tools, *results, plan])


def _answer(turn: Turn) -> str:
    match turn.request.text_format.get("type"):
        case "json_schema":
            schema = members(turn.request.text_format.get("schema"))
            return json.dumps(example(schema, _words_after_colon(user_text(turn))), ensure_ascii=False)
        case "json_object":
            return json.dumps({"answer": _prose(turn)}, ensure_ascii=False)
        case _:
            return _prose(turn)


def _prose(turn: Turn) -> str:
    results = [f"{name} says: {_shorten(output, MAX_READ)}" for name, output in _outputs(turn)]
    if results:
        return "\n".join(results)
    text = user_text(turn)
    if not text:
        return "I have read everything, but there is no message of yours that I could answer."
    return f"You said: {_quote(text)}.\n\nI am Interlock's stand-in for a model."


def _outputs(turn: Turn) -> list[tuple[str, str]]:
    """Return the latest tool outputs after the user's last message, as pairs of tool name and output."""
    names = tool_names(turn.items)
    items = [
        item for item in _since_user(turn) if is_client_output(item) or (item.get("type") in SERVER_CALLS and output_text(item))
    ]
    return [(tool_name(item, names), output_text(item)) for item in items[-MOST_OUTPUTS:]]


def _since_user(turn: Turn) -> Sequence[JsonItem]:
    """Return the items after the user's last message."""
    return turn.items[max((index for index, item in enumerate(turn.items) if is_from_user(item)), default=-1) + 1 :]


def chosen_tools(turn: Turn) -> Sequence[CallableTool]:
    """Return the tools to call: the hosted ones that fit the user's message, and the others that it names.

    If it names none of the others, one whose name shares a word with the message is called; a required call is else one of the
    first tool. The model calls tools only if the user spoke last, or if `tool_choice` requires a call and a client's tool
    answered last, before the first turn; then it calls no tool that it has called since the user's message.
    """
    choice = turn.request.tool_choice
    last = _last_item(turn.items)
    is_asked, is_forced = is_from_user(last), _is_forced(turn)
    if choice == "none" or not (is_asked or (is_forced and is_client_output(last) and not turn.index)):
        return ()
    text, called = user_text(turn), {item.get("name") for item in _since_user(turn)}
    tools = [
        tool
        for tool in (*_tools(turn.request.tools), *_listed_tools(turn))
        if _is_allowed(tool, members(choice)) and (is_asked or tool.name not in called)
    ]
    chosen = [tool for tool in tools if tool.kind in HOSTED_NAMES and _fits(tool, text)]
    chosen += _find_named([tool for tool in tools if tool.kind not in HOSTED_NAMES], text)
    if is_forced and not chosen:
        chosen = tools[:1]
    return chosen if turn.request.parallel_tool_calls else chosen[:1]


def _is_forced(turn: Turn) -> bool:
    """Return whether the request requires a call."""
    choice = turn.request.tool_choice
    rules = members(choice)
    return choice == "required" or rules.get("mode") == "required" or rules.get("type") in ("function", "custom", *HOSTED_NAMES)


def _last_item(items: Sequence[JsonItem]) -> JsonItem:
    for item in reversed(items):
        if item.get("role") not in ("system", "developer") and item.get("type") != "mcp_list_tools":
            return item
    return {}


def _tools(declarations: Sequence[object], prefix: str = "") -> Iterator[CallableTool]:
    for tool in map(members, declarations):
        kind, name = str(tool.get("type")), str(tool.get("name", ""))
        if kind in ("function", "custom"):
            yield CallableTool(kind, name, f"{prefix}{name}", tool)
        elif kind == "namespace":
            yield from _tools(elements(tool.get("tools")), f"{name}__")
        elif kind in HOSTED_NAMES:
            yield CallableTool(kind, kind, HOSTED_NAMES[kind], tool)


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
    best = max(tools, key=lambda tool: len(_words(text) & _words(tool.name)), default=None)
    return [best] if best is not None and _fits(best, text) else []


def _fits(tool: CallableTool, text: str) -> bool:
    """Return whether the text shares a word with the name of a tool, or asks for code."""
    return bool(CODE.search(text) if tool.kind == "code_interpreter" else _words(text) & _words(tool.name))


def _mention(name: str, text: str) -> int:
    """Return the index of a name as a separate word in a text, or -1."""
    match = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) if name and name in text else None
    return match.start() if match else -1


def _words(text: str) -> set[str]:
    """Return the words of a text or identifier in lower case, without small words, and without an s at the end of a word."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).replace("_", " ")
    words = {word.casefold() for word in re.findall(r"\w+", spaced)}
    return {word.removesuffix("s") for word in words - SMALL_WORDS if len(word) >= SHORTEST_WORD}


def _call(tool: CallableTool, text: str) -> Call:
    """Return a call with arguments from the user's text; a custom tool's grammar is ignored."""
    words = _words_after_colon(text)
    match tool.kind:
        case "code_interpreter":
            arguments: Mapping[str, object] = {"code": _code(text)}
        case "custom":
            arguments = {"input": words or text}
        case kind if kind in HOSTED_NAMES:
            query = QUERY.search(text)
            arguments = {"query": query[1].strip() if query else words or text}
        case _:
            arguments = arguments_for(tool.declaration, words)
    return Call(tool.recipient, json.dumps(arguments, ensure_ascii=False))


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
