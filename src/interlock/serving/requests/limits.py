"""The fields that the server reads in items, parts, tools and JSON schemas, their limits, and the errors for other values.

Other fields pass unchecked, because clients can be newer than the server. A null field counts as absent. A host engine,
such as vLLM, validates some items and tools itself. Errors have OpenAI's messages and codes, and the path of the value, such as
`input[1].call_id`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import GenericAlias, NoneType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, Union, cast, get_args

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert, defstruct, field, structs

from interlock.events import items, parts, tools
from interlock.events.json import is_array, is_object
from interlock.events.parts import ContentPart, Json, Number
from interlock.events.request import Identifier
from interlock.events.response_object import Conversation
from interlock.events.shapes import WORDS, Arm, Hint, Mismatch, Path, arms_of, mismatches, param_of
from interlock.serving.requests.api_errors import ApiError, invalid, missing

if TYPE_CHECKING:  # only vLLM needs it at run time
    import pydantic


FieldLimits: TypeAlias = Mapping[str, Hint]
"""The limit of each field, or a type that replaces its type in `interlock.events`."""

MAX_INPUT_ITEMS: Final = 5_000
"""The most items in one input, more than any context window holds."""
MAX_TOOLS: Final = 1_024
"""The most tools in one request, including tools in namespaces; OpenAI's API accepts 128 in one array."""

ENGINE_PARAMETERS: Final = ("cache_salt", "chat_template_kwargs", "priority", "vllm_xargs")
"""The parameters outside of every API that vLLM reads."""

FREE: Final = Meta()
"""No limit."""
TEXT: Final = Meta(max_length=10_485_760)
"""The limit of OpenAI's API and the Open Responses specification on the characters of a text."""
LINK: Final = Meta(max_length=20_971_520)
"""The limit of the Open Responses specification on the characters of a URL, which may contain an image."""
FILE: Final = Meta(max_length=33_554_432)
"""The limit of the Open Responses specification on the characters of a file's data."""
SOME: Final = Meta(min_length=1)
ID: Final = Meta(max_length=4_096)
"""The limit on ids and short texts, such as a status. Values that the API does not have are accepted."""
CALLED: Final = Meta(max_length=4_096, pattern=r"^(?![\s\S]*<\|)")
"""The name in a call. A model may have invented it; `<|` begins a control token, which no prompt can quote."""
SOME_CALLED: Final = Meta(min_length=1, max_length=4_096, pattern=CALLED.pattern)
NAME: Final = Meta(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9_-]+\Z")
"""The name of a custom tool or a schema."""
FUNCTION: Final = Meta(min_length=1, max_length=128, pattern=NAME.pattern)
"""The name of a function; agents with MCP servers have long ones."""
SWITCHES: Final[FieldLimits] = {"async": FREE, "defer_loading": FREE}
"""How a tool is used."""
PARTS: Final = list[ContentPart] | None
SOME_TEXT: TypeAlias = Annotated[str, SOME]


class Names(Struct, kw_only=True):
    """The fields that identify a tool, or the choice of one."""

    name: Identifier | None = None
    namespace: Identifier | None = None
    server_label: Identifier | None = None


class Named(Names, kw_only=True):
    """A tool of any type, or the choice of one."""

    type: Identifier | None = None
    tools: list[Named] | None = None


class Allowed(Names, kw_only=True):
    """A tool in the list of `allowed_tools`."""

    type: Annotated[str, SOME]


class HostItem(Struct, kw_only=True):
    """An item or tool that a host engine validates. Only names are checked here, for control tokens."""

    name: str | None = None
    namespace: str | None = None


class HostTool(HostItem, kw_only=True):
    """A function that a host engine validates, with what only Interlock reads: the host ignores these fields."""

    is_async: bool | None = field(default=None, name="async")
    defer_loading: bool | None = None


class HostReasoning(Struct, kw_only=True):
    """A reasoning item that a host engine validates. Only the encrypted content is checked here."""

    encrypted_content: str | None = None


READ: Final[Mapping[type[Struct], FieldLimits]] = {
    parts.InputText: {"text": TEXT},
    parts.PlainText: {"text": TEXT},
    parts.SummaryText: {"text": TEXT},
    parts.ReasoningText: {"text": TEXT},
    parts.OutputText: {"text": TEXT, "annotations": FREE, "logprobs": FREE},
    parts.OutputRefusal: {"refusal": TEXT},
    parts.InputImage: {"image_url": LINK, "file_id": ID, "detail": FREE},
    parts.ComputerScreenshot: {"image_url": LINK, "file_id": ID, "detail": FREE},
    parts.InputFile: {"file_id": ID, "file_data": FILE, "file_url": LINK, "filename": TEXT},
    parts.InputAudio: {"input_audio": FREE},
    parts.Audio: {"data": FILE, "format": ID},
    parts.InputVideo: {"video_url": LINK},
    parts.EncryptedContent: {"encrypted_content": TEXT},
    items.InputMessage: {"role": FREE, "content": TEXT, "phase": ID},
    items.Reasoning: {"summary": PARTS, "content": PARTS, "encrypted_content": TEXT},
    items.FunctionCall: {"call_id": SOME, "name": SOME_CALLED, "arguments": TEXT, "namespace": CALLED, "async": FREE},
    items.FunctionCallOutput: {"call_id": SOME, "output": TEXT, "name": CALLED, "namespace": CALLED},
    items.CustomToolCall: {"call_id": SOME, "name": SOME_CALLED, "input": TEXT, "namespace": CALLED, "async": FREE},
    items.CustomToolCallOutput: {"call_id": SOME, "output": TEXT},
    items.ItemReference: {"id": SOME},
    items.McpApprovalRequest: {"server_label": SOME_CALLED, "name": SOME_CALLED, "arguments": TEXT},
    items.McpApprovalResponse: {"approval_request_id": SOME, "approve": FREE},
    items.Compaction: {"encrypted_content": TEXT},
    tools.FunctionTool: {"name": FUNCTION, "parameters": FREE, "description": TEXT, "strict": FREE, **SWITCHES},
    tools.CustomTool: {"name": NAME, "description": TEXT, "format": FREE, **SWITCHES},
    tools.Namespace: {"name": SOME, "description": TEXT, "tools": list[dict[str, Json]] | None},  # `create` validates each tool
    tools.McpServer: {
        "server_label": SOME,
        "server_url": TEXT,
        "authorization": TEXT,
        "headers": FREE,
        "require_approval": TEXT,
        "defer_loading": FREE,
    },
    tools.FileSearchTool: {"vector_store_ids": Annotated[list[str], Meta(max_length=1_000)]},
    tools.CodeInterpreterTool: {"container": TEXT},
    tools.FunctionChoice: {"name": SOME},
    tools.CustomChoice: {"name": SOME},
    tools.McpChoice: {"server_label": SOME, "name": TEXT},
    tools.AllowedTools: {"mode": FREE, "tools": Annotated[list[Allowed], Meta(max_length=MAX_TOOLS)]},
    tools.JsonSchemaFormat: {"name": NAME, "schema": FREE, "description": TEXT, "strict": FREE},
    Conversation: {"id": SOME},
    HostItem: {"name": CALLED, "namespace": CALLED},
    HostTool: {"name": CALLED, "namespace": CALLED, **SWITCHES},
    HostReasoning: {"encrypted_content": TEXT},
}
"""The fields that the server reads in each type. An item without an entry has `OPAQUE_FIELDS`."""

OPAQUE_FIELDS: Final[FieldLimits] = {
    "id": ID,
    "status": ID,
    "call_id": ID,
    "name": CALLED,
    "server_label": CALLED,
    "tools": list[Named],
    "action": ID,
    "outputs": list[dict[str, Json]],
}
"""The fields that the server reads, if present, in items without an entry in `READ`, such as calls of hosted tools."""


def _read(type_: Hint, limit: Meta = FREE) -> Hint:
    """Return a type that validates only what the server reads: texts and arrays with limits, and the read fields of objects."""
    return Union[tuple(_read_arm(arm, limit) for arm in arms_of(type_))]  # noqa: UP007 - of any number of types


def _read_arm(arm: Arm, limit: Meta) -> Hint:
    metas = (arm.metas or (FREE,)) if limit is FREE else (limit,)
    if arm.kind is list:
        return Annotated[(GenericAlias(list, _read(arm.args[0])), *metas)]
    if arm.kind is Literal:
        return Literal[arm.args] if limit is FREE else Annotated[str, limit]
    if arm.kind is str:
        return Annotated[(str, *metas)]
    if arm.kind in READ:
        return shape_of(arm.kind)
    return dict[str, Any] if arm.kind is dict or (issubclass(arm.kind, Struct) and not issubclass(arm.kind, Names)) else arm.kind


@cache
def shape_of(kind: type[Struct]) -> type[Struct]:
    """Return a type with only the fields that the server reads, which validates the objects of a type."""
    opaque = kind not in READ
    read = OPAQUE_FIELDS if opaque else {"id": ID, "status": ID, **READ[kind]}
    fields: list[tuple[str, Hint] | tuple[str, Hint, None]] = []
    for member in structs.fields(kind):
        if member.encode_name in read:
            limit = read[member.encode_name]
            hint = _read(member.type, limit) if isinstance(limit, Meta) else _read(limit)
            required = (member.required or not isinstance(limit, Meta)) and NoneType not in get_args(hint) and not opaque
            fields.append((member.encode_name, hint) if required else (member.encode_name, hint | None, None))
    config = kind.__struct_config__
    return defstruct(kind.__name__, fields, tag_field=config.tag_field, tag=config.tag, kw_only=True)


def _map_types(union: object, is_included: Callable[[type[Struct]], bool] = READ.__contains__) -> dict[str, type[Struct]]:
    kinds = cast("tuple[type[Struct], ...]", get_args(union))
    return {str(kind.__struct_config__.tag): kind for kind in kinds if is_included(kind)}


Kinds: TypeAlias = Mapping[str, type[Struct]]
"""The type of an object, by the object's `type`; `shape_of` returns the one that validates it."""

ITEMS: Final[Kinds] = _map_types(items.InputItem, lambda _kind: True)
TOOL_KINDS: Final[Kinds] = _map_types(tools.AnyTool)
"""The tools that are validated; other tools pass unchecked."""
CHOICES: Final[Kinds] = _map_types(tools.AnyChoice)
"""The objects that `tool_choice` may be; any other is validated as `Named`."""

HOST_ITEMS: Final[Kinds] = {
    **ITEMS,
    **dict.fromkeys(("message", "function_call", "function_call_output"), HostItem),
    "reasoning": HostReasoning,
}
"""`ITEMS` for a host engine, which validates messages, reasoning and function calls itself."""
HOST_TOOLS: Final[Kinds] = {**TOOL_KINDS, **dict.fromkeys(("function", "file_search", "code_interpreter"), HostTool)}
"""`TOOL_KINDS` for a host engine, which validates these tools itself."""

CONVERSATION: Final = _read(str | Conversation | None, SOME)

SchemaType: TypeAlias = Literal["null", "boolean", "object", "array", "number", "integer", "string"]
OptionalText: TypeAlias = str | UnsetType
OptionalCount: TypeAlias = Annotated[int, Meta(ge=0)] | UnsetType
OptionalNumber: TypeAlias = Number | UnsetType
OptionalBound: TypeAlias = Number | bool | UnsetType
OptionalSchema: TypeAlias = "JsonSchema | bool | UnsetType"
OptionalSchemas: TypeAlias = "dict[str, JsonSchema | bool] | UnsetType"
OptionalSchemaList: TypeAlias = "list[JsonSchema | bool] | UnsetType"


class JsonSchema(Struct, kw_only=True, rename="camel"):
    """The keywords of a JSON schema, in any draft from 4 to 2020-12; other keywords are unchecked.

    References are not followed and patterns are not compiled, so validation takes time proportional to the size of the schema.
    """

    dialect: OptionalText = field(default=UNSET, name="$schema")
    id: OptionalText = field(default=UNSET, name="$id")
    ref: OptionalText = field(default=UNSET, name="$ref")
    defs: OptionalSchemas = field(default=UNSET, name="$defs")
    definitions: OptionalSchemas = UNSET
    title: OptionalText = UNSET
    description: OptionalText = UNSET
    type: SchemaType | list[SchemaType] | UnsetType = UNSET
    enum: list[Json] | UnsetType = UNSET
    pattern: OptionalText = UNSET
    format: OptionalText = UNSET
    min_length: OptionalCount = UNSET
    max_length: OptionalCount = UNSET
    minimum: OptionalNumber = UNSET
    maximum: OptionalNumber = UNSET
    exclusive_minimum: OptionalBound = UNSET
    exclusive_maximum: OptionalBound = UNSET
    multiple_of: Annotated[int, Meta(gt=0)] | Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    items: JsonSchema | bool | list[JsonSchema | bool] | UnsetType = UNSET
    prefix_items: OptionalSchemaList = UNSET
    additional_items: OptionalSchema = UNSET
    contains: OptionalSchema = UNSET
    min_items: OptionalCount = UNSET
    max_items: OptionalCount = UNSET
    min_contains: OptionalCount = UNSET
    max_contains: OptionalCount = UNSET
    unique_items: bool | UnsetType = UNSET
    properties: OptionalSchemas = UNSET
    pattern_properties: OptionalSchemas = UNSET
    additional_properties: OptionalSchema = UNSET
    property_names: OptionalSchema = UNSET
    required: list[str] | UnsetType = UNSET
    min_properties: OptionalCount = UNSET
    max_properties: OptionalCount = UNSET
    dependent_required: dict[str, list[str]] | UnsetType = UNSET
    dependent_schemas: OptionalSchemas = UNSET
    all_of: OptionalSchemaList = UNSET
    any_of: OptionalSchemaList = UNSET
    one_of: OptionalSchemaList = UNSET
    negated: OptionalSchema = field(default=UNSET, name="not")
    condition: OptionalSchema = field(default=UNSET, name="if")
    then: OptionalSchema = UNSET
    otherwise: OptionalSchema = field(default=UNSET, name="else")


QUOTED: Final = 200
"""The most characters of a client's value that an error repeats."""

DECIMALS: Final = frozenset({"temperature", "top_p", "frequency_penalty", "presence_penalty"})
"""The parameters that are decimals in error messages, even if the value is an integer."""


def require(value: object, type_: Hint, *path: str | int) -> Any:  # noqa: ANN401 - a value of the type
    """Convert the JSON value at `path` in the body to a type; raise a 400 that names the first mismatch."""
    try:
        return convert(value, type_)
    except ValidationError:
        raise _refusal(_first_mismatch(value, type_), path) from None


def require_object(body: object) -> None:
    """Refuse a body that is not an object."""
    if not is_object(body):
        raise invalid(None, "The body must be a JSON object.", "invalid_json")


def _first_mismatch(value: object, type_: Hint) -> Mismatch:
    return next(mismatch for mismatch in mismatches(value, type_, direction="request") if mismatch.kind != "unknown")


def require_json_schema(param: str, schema: object) -> None:
    """Refuse a value that is not a JSON schema."""
    try:
        convert(schema, JsonSchema | bool)
    except ValidationError:
        mismatch = _first_mismatch(schema, JsonSchema | bool)
        error = f"{param_of(('$', *mismatch.path))} must be {mismatch.expected}"
        raise invalid(param, f"Invalid schema for '{param}': {error[:QUOTED]}.", "invalid_json_schema") from None


def require_list(value: object, most: int, *path: str | int) -> Sequence[object]:
    """Return the value at `path` in the body if it is an array of at most `most` elements; refuse others."""
    if not is_array(value):
        raise wrong_type(param_of(path), "an array", value)
    if len(value) > most:
        raise too_long(param_of(path), most, len(value))
    return value


def _refusal(mismatch: Mismatch, path: Path) -> ApiError:
    param = param_of((*path, *mismatch.path))
    if mismatch.kind == "missing" or (mismatch.path[-1:] == ("type",) and mismatch.value in (None, "")):
        return missing(param)
    if mismatch.limit is not None:
        name, limit = mismatch.limit
        return _beyond(param, name, limit, mismatch.value)
    if isinstance(mismatch.value, str) and mismatch.choices:
        return unsupported_value(param, mismatch.value, mismatch.choices)
    return wrong_type(param, "a string" if mismatch.expected.startswith(("one of", "'")) else mismatch.expected, mismatch.value)


def refusal(error: pydantic.ValidationError) -> ApiError:
    """Convert a pydantic error of a host engine to an `ApiError`."""
    first = error.errors()[0]
    param, kind = param_of(first["loc"]), first["type"]
    if kind == "missing":
        return missing(param)
    if kind in PYDANTIC:
        return wrong_type(param, PYDANTIC[kind], first["input"])
    return invalid(param or None, f"Invalid '{param}': {first['msg']}.")


PYDANTIC: Final[Mapping[str, str]] = {
    "string_type": "a string",
    **dict.fromkeys(("bool_type", "bool_parsing"), "a boolean"),
    **dict.fromkeys(("int_type", "int_parsing"), "an integer"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "list_type": "an array",
    **dict.fromkeys(("dict_type", "model_type"), "an object"),
}
"""The expected JSON type, by the type of pydantic's error."""


def unsupported_value(param: str, value: str, choices: Iterable[str]) -> ApiError:
    """Return the error for a string that is not among the choices."""
    *others, last = (f"'{choice}'" for choice in choices)
    supported = f"{', '.join(others)}, and {last}" if others else last
    return invalid(param, f"Invalid value: '{value[:QUOTED]}'. Supported values are: {supported}.")


def not_run(param: str, kind: str, tool: str) -> ApiError:
    """Return the error for a hosted tool that no server runs: the model would never see it."""
    option = f"--{tool.replace('_', '-')}"
    message = f"This server does not run '{kind[:100]}'. Start it with {option} or --tool-server, or omit the tool."
    return invalid(param, message, "unsupported_value")


def _beyond(param: str, name: str, limit: float | str, value: object) -> ApiError:
    """Return the error for a value beyond a limit; `name` is msgspec's name of the limit, such as `max_length`."""
    if isinstance(value, float) and not math.isfinite(value):
        return wrong_type(param, "a number", value)
    if isinstance(value, int | float):
        return _out_of_bounds(param, name, limit, value)
    if is_array(value) and name == "min_length":
        message = f"empty array. Expected an array with minimum length {limit}, but got an empty array instead."
        return invalid(param, f"Invalid '{param}': {message}", "empty_array")
    if is_array(value):
        return too_long(param, limit, len(value))
    if is_object(value):
        message = f"too many properties. Expected an object with at most {limit} properties, but got {len(value)}."
        return invalid(param, f"Invalid '{param}': {message}", "object_above_max_properties")
    return _wrong_text(param, name, limit, len(str(value)))


def _out_of_bounds(param: str, name: str, limit: object, value: float) -> ApiError:
    kind = "decimal" if param in DECIMALS else "integer"
    which, sign, code = ("below minimum", ">=", "below_min") if name == "ge" else ("above maximum", "<=", "above_max")
    message = f"Invalid '{param}': {kind} {which} value. Expected a value {sign} {limit}, but got {_quote(value)} instead."
    return invalid(param, message, f"{kind}_{code}_value")


def _quote(value: float) -> str:
    text = str(value) if abs(value) < 10**QUOTED else f"{value:.3e}" if isinstance(value, float) else "a longer number"
    return text[:QUOTED]


def _wrong_text(param: str, name: str, limit: object, length: int) -> ApiError:
    match name:
        case "min_length":
            message = f"empty string. Expected a string with minimum length {limit}, but got an empty string"
            code = "empty_string"
        case "max_length":
            message = f"string too long. Expected a string with maximum length {limit}, but got a string with length {length}"
            code = "string_above_max_length"
        case _:
            pattern = str(limit).replace(r"\Z", "$")
            message = f"string does not match pattern. Expected a string that matches the pattern '{pattern}'."
            return invalid(param, f"Invalid '{param}': {message}")
    return invalid(param, f"Invalid '{param}': {message} instead.", code)


def too_long(param: str, most: object, length: int) -> ApiError:
    """Return the error for an array with more than `most` elements."""
    message = (
        f"Invalid '{param}': array too long. Expected an array with maximum length {most}, "
        f"but got an array with length {length} instead."
    )
    return invalid(param, message, "array_above_max_length")


def wrong_type(param: str, expected: str, value: object) -> ApiError:
    """Return the error for a value of the wrong JSON type; `expected` has an article, and an empty `param` is the body."""
    message = f"Invalid type for '{param}': expected {expected}, but got {_kind_of(value)} instead."
    return invalid(param or None, message, "invalid_type")


KINDS: Final[Mapping[type, str]] = {**WORDS, float: "a decimal", list: "an array"}


def _kind_of(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "a number that is not finite"
    return KINDS.get(type(value), "an object")
