"""The embedded engine: a deterministic stand-in for a model, which runs anywhere, for writing and testing clients.

It answers each turn with a step of a script, made from the words of the request. Of the tools it calls those that the message
names, or else one whose name shares words with it. So tests can predict the calls. Arguments and structured output are example
values for their JSON schemas.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence, Sized
from importlib import import_module
from math import inf
from typing import Final, Literal, TypeAlias

from attrs import Factory, define, field, frozen
from attrs.validators import ge

from interlock.events.json import elements, is_array, is_object, members
from interlock.parsers import Format, Tagged
from interlock.parsers.hosted_tools import HOSTED_CALLS, HostedCall
from interlock.serving.engines.engine import Engine, EngineOutput, Turn
from interlock.serving.engines.prompt import (
    SERVER_CALLS,
    TOO_LONG,
    estimate_prompt,
    is_client_output,
    is_from_user,
    output_text,
)
from interlock.serving.engines.script import Call, ScriptStep, play, write_step
from interlock.serving.requests.api_errors import PromptError
from interlock.serving.requests.input_items import JsonItem, text_of
from interlock.serving.settings import ModelFacts

MODEL: Final = "interlock-embedded"

CONTEXT: Final = 131_072
"""The context window in tokens."""

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

HOSTED: Final[Mapping[str, HostedCall]] = {kind: call for call in HOSTED_CALLS.values() for kind in call.types}
"""The calls of hosted tools, by the types of the tools in requests."""


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
        count = estimate_prompt(turn)
        if count > CONTEXT:
            raise PromptError(TOO_LONG)
        return count

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        prompt = await self.count(turn)
        outputs = await write_step(script_step(turn), self.format, prompt, turn.budget)
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
    names = {item["call_id"]: item["name"] for item in reversed(turn.items) if "name" in item and "call_id" in item}
    items = [
        item for item in _since_user(turn) if is_client_output(item) or (item.get("type") in SERVER_CALLS and output_text(item))
    ]
    return [(_tool_name(item, names), output_text(item)) for item in items[-MOST_OUTPUTS:]]


def _tool_name(item: JsonItem, names: Mapping[object, object]) -> str:
    """Return the name of the tool that an item belongs to; `names` has those of calls by id."""
    hosted = HOSTED_CALLS.get(item.get("type"))
    if hosted is not None:
        return _hosted_name(hosted).partition(".")[0]
    return str(item.get("name") or names.get(item.get("call_id"), "unknown"))


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
    chosen = [tool for tool in tools if tool.kind in HOSTED and _fits(tool, text)]
    chosen += _find_named([tool for tool in tools if tool.kind not in HOSTED], text)
    if is_forced and not chosen:
        chosen = tools[:1]
    return chosen if turn.request.parallel_tool_calls else chosen[:1]


def _is_forced(turn: Turn) -> bool:
    """Return whether the request requires a call."""
    choice = turn.request.tool_choice
    rules = members(choice)
    return choice == "required" or rules.get("mode") == "required" or rules.get("type") in ("function", "custom", *HOSTED)


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
        elif kind in HOSTED:
            yield CallableTool(kind, kind, _hosted_name(HOSTED[kind]), HOSTED[kind].function)


def _hosted_name(call: HostedCall) -> str:
    return call.recipient or call.name


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
        case kind if kind in HOSTED:
            query = QUERY.search(text)
            arguments = arguments_for(tool.declaration, query[1].strip() if query else words or text)
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


# Example values for JSON schemas.

SchemaObject: TypeAlias = Mapping[str, object]

MOST_WORK: Final = 50_000
"""The most work for one schema, and again for its validation, in keywords and alternatives."""
VALUE_COST: Final = 50
"""The work for a value, besides that for its keywords."""
DEEPEST: Final = 40
"""The deepest level of a value; references and alternatives count as levels."""
SHALLOW: Final = 4
"""The deepest level whose optional values are written."""
LONGEST: Final = 2_000
"""The largest `minLength` of a string."""

FORMATS: Final[Mapping[object, str]] = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "hostname": "host.example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000001",
}

IMPLIED_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("properties", "required", "additionalProperties"), "object"),
    **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems"), "array"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
}
"""The type of a schema without `type`, by its first keyword; else it is a string."""

REFUSED: Final = frozenset({"pattern", "patternProperties", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef"})
"""Keywords whose validation runs the client's regular expressions, or takes time without a bound."""


def example(schema: SchemaObject, text: str | None = None, *, strict: bool = True) -> object:
    """Return a value for a schema, with `text` in free strings; the work for one schema is bounded.

    If `strict`, the value is validated, so it fits or is refused. Otherwise it is a guess, in which the schema's restrictions
    count only as far as they name a simple value.

    Raises:
        PromptError: The schema has no value that this function finds, or is too large.
    """
    value = _Example(schema, text or "text").write(schema)
    if strict and (keyword := _broken_keyword(schema, value)) is not None:
        raise _unfillable(f"`{keyword}`")
    return value


def arguments_for(function: Mapping[str, object], text: str | None = None) -> Mapping[str, object]:
    """Return the arguments for a call of a declared function, with `text` in free strings.

    Raises:
        PromptError: As for `example`.
    """
    arguments = example({"type": "object", **members(function.get("parameters"))}, text, strict=function.get("strict") is True)
    if not is_object(arguments):
        raise _unfillable("a `type` that is not `object`")
    return arguments


def _unfillable(problem: str) -> PromptError:
    return PromptError(f"The embedded engine cannot fill a JSON schema with {problem}.")


@define
class _Example:
    """Writes the example of one schema; `root` resolves its references."""

    root: SchemaObject
    text: str
    work: int = field(default=0, init=False)

    def write(self, schema: object, depth: int = 0) -> object:
        alternatives = elements(members(schema).get("anyOf", members(schema).get("oneOf")))
        self.work += VALUE_COST + len(members(schema)) + len(alternatives)
        if self.work > MOST_WORK:
            raise _unfillable("so many values")
        if depth > DEEPEST:
            raise _unfillable("so many levels")
        if schema is not True and not is_object(schema):
            raise _unfillable("a subschema that is neither an object nor `true`")
        schema = members(schema)
        if "const" in schema or "enum" in schema:
            return next((value for value in elements(schema.get("enum")) if value is not None), schema.get("const"))
        for keyword in ("$ref", "allOf", "anyOf", "oneOf"):
            if keyword in schema:
                rest = {name: value for name, value in schema.items() if name != keyword}
                return self.write({**rest, **self.branch(keyword, schema[keyword], depth)}, depth + 1)
        return self.write_type(_type_of(schema), schema, depth)

    def write_type(self, kind: str, schema: SchemaObject, depth: int) -> object:
        match kind:
            case "object":
                return self.write_object(schema, depth)
            case "array":
                return self.write_array(schema, depth)
            case "string":
                return self.write_string(schema)
            case "integer" | "number":
                return _number(schema, is_integer=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
            case _:
                raise _unfillable("an unknown `type`")

    def branch(self, keyword: str, value: object, depth: int) -> SchemaObject:
        """Return what a keyword adds to its schema: the target of a reference, all schemas of a list, or one of them.

        The one is the first, but any rather than null, and at deep levels rather than a reference.
        """
        if keyword == "$ref":
            target: object = self.root
            for step in str(value).split("/")[1:]:
                target = members(target).get(step.replace("~1", "/").replace("~0", "~"))
            if not str(value).startswith("#") or not is_object(target):
                raise _unfillable("a `$ref` that leads nowhere")
            return target
        schemas = [each for each in elements(value) if is_object(each)]
        if not schemas:
            raise _unfillable(f"an `{keyword}` that lists no object")
        if keyword == "allOf":
            return {name: value for schema in schemas for name, value in schema.items()}
        return min(schemas, key=lambda schema: (depth > SHALLOW and "$ref" in schema, schema.get("type") == "null"))

    def write_object(self, schema: SchemaObject, depth: int) -> dict[str, object]:
        properties = members(schema.get("properties"))
        names = elements(schema.get("required")) or (list(properties) if depth <= SHALLOW else [])
        additional = schema.get("additionalProperties", True)
        return {name: self.write(properties.get(name, additional), depth + 1) for name in map(str, names)}

    def write_array(self, schema: SchemaObject, depth: int) -> list[object]:
        first, rest = elements(schema.get("prefixItems")), schema.get("items", True)
        usual = len(first) or int(is_object(rest) and depth <= SHALLOW)
        count = int(min(max(_limit(schema, "minItems", 0), usual), _limit(schema, "maxItems", MOST_WORK)))
        return [self.write(first[index] if index < len(first) else rest, depth + 1) for index in range(count)]

    def write_string(self, schema: SchemaObject) -> str:
        least, default = _limit(schema, "minLength", 0), schema.get("default")
        if least > LONGEST:
            raise _unfillable("this `minLength`")
        text = FORMATS.get(str(schema.get("format"))) or (default if isinstance(default, str) else self.text)
        return text.ljust(int(least), ".")[: int(_limit(schema, "maxLength", MOST_WORK))]


def _type_of(schema: SchemaObject) -> str:
    kind = schema.get("type")
    if kind is None:
        return next((IMPLIED_TYPES[keyword] for keyword in schema if keyword in IMPLIED_TYPES), "string")
    return next((each for each in map(str, elements(kind) if is_array(kind) else [kind]) if each != "null"), "null")


def _number(schema: SchemaObject, *, is_integer: bool) -> float:
    least, most = _limit(schema, "minimum", -inf), _limit(schema, "maximum", inf)
    above, below = _limit(schema, "exclusiveMinimum", -inf), _limit(schema, "exclusiveMaximum", inf)
    start, end = max(least, above), min(most, below)
    step = _limit(schema, "multipleOf", 0) or 1.0
    first, last = -(-start // step) * step, end // step * step
    for value in (_limit(schema, "default", 1.0), 1.0, 0.0, first, first + step, last, last - step, (start + end) / 2):
        fits = least <= value <= most and above < value < below
        if fits and (value.is_integer() or not is_integer) and ("multipleOf" not in schema or (value / step).is_integer()):
            return int(value) if value.is_integer() else value
    raise _unfillable("these limits of a number")


def _limit(schema: SchemaObject, keyword: str, default: float) -> float:
    """Return the number that a keyword has, or the default if it has none that a double can hold exactly."""
    value = schema.get(keyword)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 2**53 else default


def _broken_keyword(schema: SchemaObject, value: object) -> str | None:
    """Return the first keyword of a schema that a value does not meet, or None."""
    validators = import_module("jsonschema.validators")  # which has no types, and which most requests do not need
    registry = import_module("referencing").Registry()  # without entries, it fetches no reference
    work = 0

    def bound(check: Callable[..., Iterator[object]]) -> Callable[..., Iterator[object]]:
        def checked(validator: object, expected: object, instance: object, part: SchemaObject) -> Iterator[object]:
            nonlocal work
            work += 1 + (len(expected) if isinstance(expected, Sized) else 0)
            if work > MOST_WORK:
                raise _unfillable("so many values")
            if refused := REFUSED & part.keys():
                raise _unfillable(f"`{min(refused)}`")
            return check(validator, expected, instance, part)

        return checked

    checks = {keyword: bound(check) for keyword, check in validators.Draft202012Validator.VALIDATORS.items()}
    validator = validators.extend(validators.Draft202012Validator, checks)(schema, registry=registry)
    try:
        error = next(validator.iter_errors(value), None)
    except PromptError:
        raise
    except Exception:  # noqa: BLE001 - whatever an invalid schema raises there
        raise _unfillable("invalid keywords") from None
    return None if error is None else str(error.validator or "false")
