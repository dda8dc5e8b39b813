"""Converts the text of a parameter to JSON, by the type in its schema or markup; text that does not fit becomes a string."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from json.encoder import encode_basestring
from math import isfinite
from typing import Final, TypeAlias

import orjson
from attrs import field, frozen

from interlock.events.json import as_text, clean, elements, members
from interlock.parsers.client_tools import CLIENT_TOOLS
from interlock.parsers.hosted_tools import HOSTED_CALLS
from interlock.parsers.routing import Route

Types: TypeAlias = frozenset[str]
"""The names of the JSON types that a value may have."""

STRING: Final[Types] = frozenset({"string"})
"""The type of a string; also that of an untyped value, unless the family is lenient."""

ANY: Final[Types] = frozenset({"any"})
"""The type of a value that is any JSON."""

ESCAPED: Final = r'"\\\x00-\x1f\ud800-\udfff'
"""The characters that are escaped in a JSON string, for a character class of a regular expression."""

_TYPE_NAMES: Final[Mapping[type, str]] = {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_OTHER_NAMES: Final = {
    "bool": "boolean",
    "dict": "object",
    "float": "number",
    "int": "integer",
    "list": "array",
    "none": "null",
    "str": "string",
    "tuple": "array",
}
"""The names of types that schemas of Python functions have, in lower case."""

_DEEPEST: Final = 16
"""The maximum depth to which references and alternatives are followed."""


def escape_json(text: str) -> str:
    """Escape a text for the inside of a JSON string; surrogates become U+FFFD."""
    return encode_basestring(clean(text))[1:-1]


def quote_json(text: str) -> str:
    """Return a text as a JSON string."""
    return encode_basestring(clean(text))


@frozen(slots=False)  # slots and `cached_property` need a `__getattr__`, which slows every lookup
class Schema:
    """The schema of a value, empty if unknown; `root` is the document that contains it."""

    schema: Mapping[str, object] = field(factory=dict[str, object])
    root: Mapping[str, object] = field(factory=dict[str, object])

    @cached_property
    def types(self) -> Types:
        """The types that the value may have; empty if they are not declared."""
        return _types(self.schema, self.root, 0)

    def member(self, key: str) -> Schema:
        """Return the schema of a member of an object."""
        return self._members.get(key, _UNKNOWN)

    def declares(self, key: str) -> bool:
        """Return whether an object may have this member: it is declared, or no member is."""
        return not self._members or key in self._members

    @cached_property
    def _members(self) -> Mapping[str, Schema]:
        return {key: Schema(members(each), self.root) for key, each in _properties(self.schema, self.root, 0).items()}

    @cached_property
    def item(self) -> Schema:
        """The schema of the items of an array."""
        if not self.schema:
            return self
        resolved = _resolve(self.schema, self.root)
        parts = [part for word in ("anyOf", "oneOf", "allOf") for part in elements(resolved.get(word))]
        schemas = [resolved, *(_resolve(members(part), self.root) for part in parts)]
        items = next((each["items"] for each in schemas if "items" in each), None)
        return Schema(members(items), self.root)


_UNKNOWN: Final = Schema()


@frozen
class Schemas:
    """The schema of each tool's arguments, by the tool's namespace or server, and its name."""

    parameters: Mapping[tuple[str, str], Schema] = field(factory=dict[tuple[str, str], Schema])

    @classmethod
    def from_request(cls, body: Mapping[str, object]) -> Schemas:
        """Read the `tools` of a request body, and the lists of MCP tools in its `input`; invalid tools are ignored."""
        tools = elements(body.get("tools"))
        found = [*_find_hosted(tools), *_find_parameters(tools, "")]  # of two with the same name, the function counts
        declared = cls({tool: Schema(parameters, parameters) for tool, parameters in found})
        return declared.with_lists(map(members, elements(body.get("input"))))

    def with_lists(self, items: Iterable[Mapping[str, object]]) -> Schemas:
        """Return these schemas and those in the `mcp_list_tools` items of a conversation."""
        lists = [item for item in items if item.get("type") == "mcp_list_tools"]
        listed = {
            (as_text(item.get("server_label")), as_text(tool.get("name"))): members(tool.get("input_schema"))
            for item in lists
            for tool in map(members, elements(item.get("tools")))
        }
        return Schemas({**self.parameters, **{tool: Schema(each, each) for tool, each in listed.items()}}) if listed else self

    def of(self, route: Route) -> Schema:
        """Return the schema of the arguments of a call."""
        fields = route.fields
        space = as_text(fields.get("namespace")) or as_text(fields.get("server_label"))
        return self.parameters.get((space, as_text(fields.get("name"))), _UNKNOWN)


def _find_hosted(tools: Sequence[object]) -> Iterator[tuple[tuple[str, str], Mapping[str, object]]]:
    for call in HOSTED_CALLS.values():
        if any(map(call.is_declared, map(members, tools))):
            yield ("", call.name), members(call.function.get("parameters"))


def _find_parameters(tools: Sequence[object], space: str) -> Iterator[tuple[tuple[str, str], Mapping[str, object]]]:
    for tool in map(members, tools):
        if tool.get("type") == "namespace":
            yield from _find_parameters(elements(tool.get("tools")), as_text(tool.get("name")))
            continue
        function = tool if "name" in tool else members(tool.get("function"))
        name, parameters = as_text(function.get("name")), members(function.get("parameters"))
        kind = as_text(tool.get("type"))
        if kind in CLIENT_TOOLS:
            name, parameters = kind, members(tool.get("parameters")) or CLIENT_TOOLS[kind].parameters
        if name:
            yield (space, name), parameters


def _properties(schema: Mapping[str, object], root: Mapping[str, object], depth: int) -> Mapping[str, object]:
    """Return the properties of an object, including the properties of its subschemas."""
    schema = _resolve(schema, root)
    properties: dict[str, object] = {}
    if depth < _DEEPEST:
        for word in ("allOf", "anyOf", "oneOf"):
            for part in elements(schema.get(word)):
                properties |= _properties(members(part), root, depth + 1)
    return {**properties, **members(schema.get("properties"))}


def _types(schema: object, root: Mapping[str, object], depth: int) -> Types:
    """Return the types that a schema allows; empty if undeclared."""
    resolved = _resolve(members(schema), root)
    type_ = resolved.get("type")
    names = [type_] if isinstance(type_, str) else [str(each) for each in elements(type_)]
    types = {_OTHER_NAMES.get(name.lower(), name.lower()) for name in names}
    if not types:
        values = [*elements(resolved.get("enum")), *([resolved["const"]] if "const" in resolved else [])]
        types = {_type_of(value) for value in values}
    if depth < _DEEPEST:
        for word in ("anyOf", "oneOf", "allOf"):
            for part in elements(resolved.get(word)):
                types |= _types(part, root, depth + 1)
    return frozenset(types | ({"null"} if resolved.get("nullable") is True else set()))


def _type_of(value: object) -> str:
    return "null" if value is None else _TYPE_NAMES.get(type(value), "string")


def _resolve(schema: Mapping[str, object], root: Mapping[str, object]) -> Mapping[str, object]:
    """Follow a `$ref` into the same document; a broken one adds nothing, a circular one gives an empty schema."""
    for _ in range(_DEEPEST):
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        target: object = root
        for step in reference.removeprefix("#").strip("/").split("/"):
            target = members(target).get(step.replace("~1", "/").replace("~0", "~"))
        beside = {word: value for word, value in schema.items() if word != "$ref"}
        schema = {**members(target), **beside}
    return {}


def convert(text: str, types: Types) -> str:
    """Return a text as JSON of the first type that it fits, in the order of `_CONVERSIONS`.

    A text that fits none is any other JSON, unless it may be a string, or else a string.
    """
    bare = text.strip()
    for name, conversion in _CONVERSIONS.items():
        if name in types:
            json_text = conversion(bare)
            if json_text is not None:
                return json_text
    other = None if "string" in types else _json(bare, object)
    return quote_json(text) if other is None else other


def truncate(text: str, types: Types) -> str:
    """Return the beginning of a text as the beginning of JSON: of a string if it can be nothing else, of a word, or unchanged."""
    bare = text.strip()
    if types and types <= STRING | {"null"} and not any(word.startswith(bare.lower()) for word in ("null", "none")):
        return quote_json(text)[:-1]
    return next((json_text[: len(bare)] for word, json_text in PYTHON_WORDS.items() if word.startswith(bare)), bare)


def _null(text: str) -> str | None:
    return "null" if text.lower() in {"null", "none"} else None


def _integer(text: str) -> str | None:
    match = re.fullmatch(r"([+-]?[0-9]{1,4000})(?:\.0*)?", text)
    return match and f"{int(match[1])}"


def _number(text: str) -> str | None:
    """Return a number as the model wrote it if that is JSON, or else as JSON writes it."""
    if text not in {"true", "false"} and _json(text, (int, float)):
        return text
    if not re.fullmatch(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?", text):
        return None
    value = float(text)
    return orjson.dumps(value).decode() if isfinite(value) else None


def _boolean(text: str) -> str | None:
    return {"true": "true", "1": "true", "false": "false", "0": "false"}.get(text.lower())


def _json(text: str, kinds: type | tuple[type, ...]) -> str | None:
    """Return the text if it is JSON of these kinds."""
    try:
        value: object = orjson.loads(text)
    except ValueError:
        return None
    return text if isinstance(value, kinds) else None


def _json_or_python(text: str, kinds: type | tuple[type, ...], nodes: type[ast.expr] | tuple[type[ast.expr], ...]) -> str | None:
    """Return the text if it is JSON of these kinds, or the JSON of a Python literal of these nodes, as templates write it."""
    json_text = _json(text, kinds)
    if json_text is not None or text[:1] not in _OPENING or len(text) > _LONGEST_LITERAL:
        return json_text
    try:
        literal = ast.parse(_ESCAPE.sub(_keep_unknown, text), mode="eval").body
        return _literal(literal) if isinstance(literal, nodes) else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


_OPENING: Final = frozenset("[{(")
_LONGEST_LITERAL: Final = 1 << 16
"""The maximum length of a Python literal, because reading one costs much more than reading JSON."""
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
PYTHON_ESCAPES: Final = frozenset("\n\r\\'\"abfnrtv01234567xuUN")
"""The characters after the backslash that begin a Python escape."""


def _keep_unknown(escape: re.Match[str]) -> str:
    """Double the backslash of an escape that Python does not have, and would warn about."""
    return escape[0] if escape[1] in PYTHON_ESCAPES else f"\\{escape[0]}"


PYTHON_WORDS: Final = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}


def _literal(node: ast.expr) -> str:
    """Return a Python literal as JSON, member by member, so that none is lost.

    Raises:
        ValueError: It is no literal, or JSON has no such value.
    """
    match node:
        case ast.Dict(keys, values):
            pairs = zip(keys, values, strict=True)
            text = f"{{{','.join(f'{_key(key)}:{_literal(value)}' for key, value in pairs)}}}"
        case ast.List(items) | ast.Tuple(items):
            text = f"[{','.join(map(_literal, items))}]"
        case ast.Name(name) if name in PYTHON_WORDS:
            text = PYTHON_WORDS[name]
        case ast.Constant(bool() | None as value):
            text = PYTHON_WORDS[str(value)]
        case ast.Constant(str(value)):
            text = quote_json(value)
        case ast.Constant(int() | float() as number):
            text = _finite(number)
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as number)):
            text = _finite(-number)
        case _:
            raise ValueError(node)
    return text


def _any(text: str) -> str | None:
    """Return the text if it is JSON, or the JSON of a word, dictionary or list of Python, as templates write them."""
    return PYTHON_WORDS.get(text) or _json_or_python(text, object, (ast.Dict, ast.List, ast.Tuple))


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return quote_json(node.value)
    raise ValueError(node)


def _finite(number: float) -> str:
    if not isfinite(number):
        raise ValueError(number)
    return str(number) if isinstance(number, int) else orjson.dumps(number).decode()


_CONVERSIONS: Final[Mapping[str, Callable[[str], str | None]]] = {
    "null": _null,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "object": partial(_json_or_python, kinds=dict, nodes=ast.Dict),
    "array": partial(_json_or_python, kinds=list, nodes=(ast.List, ast.Tuple)),
    "any": _any,
}
"""The conversions by type, in the order in which `convert` tries them."""
