"""The fields that serving reads of items, parts, tools and JSON schemas, and their limits.

Clients are ahead of servers: a field that is not named here stays as it is, whatever its value. A null field counts as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct, field, structs

from interlock.events import items, parts, tools
from interlock.events.parts import ContentPart, Json, Number
from interlock.events.response_object import Conversation, Identifier

__all__ = [
    "CHOICES",
    "CONVERSATION",
    "HOSTED_ITEMS",
    "HOSTED_TOOLS",
    "ITEMS",
    "MAX_INPUT_ITEMS",
    "MAX_TOOLS",
    "SCHEMA_FORMAT",
    "SOME_TEXT",
    "TEXT",
    "TOOLS",
    "JsonSchema",
    "Named",
    "Shapes",
]

Fields: TypeAlias = Mapping[str, Any]
"""The limit of each field that is read, or a type that replaces the vocabulary's."""

MAX_INPUT_ITEMS: Final = 5_000
"""Items of one input: more than any context window holds."""
MAX_TOOLS: Final = 1_024
"""Tools of one request, including those in namespaces; OpenAI's API takes 128 in one array."""

ANY: Final = Meta()
TEXT: Final = Meta(max_length=10_485_760)
"""Characters of a text, as OpenAI's API and the Open Responses specification limit them."""
LINK: Final = Meta(max_length=20_971_520)
"""Characters of a URL, which may hold an image, as the Open Responses specification limits them."""
FILE: Final = Meta(max_length=33_554_432)
"""Characters of a file's data, likewise."""
SOME: Final = Meta(min_length=1)
ID: Final = Meta(max_length=4_096)
"""Characters of an id or another short text; values that the API does not have today are fine."""
CALLED: Final = Meta(max_length=4_096, pattern=r"^(?![\s\S]*<\|)")
"""A name in a call, which a model may have invented; no prompt can quote a control token, which begins with `<|`."""
SOME_CALLED: Final = Meta(min_length=1, max_length=4_096, pattern=CALLED.pattern)
NAME: Final = Meta(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9_-]+\Z")
"""The name of a function, a custom tool or a schema."""
PARTS: Final = list[ContentPart] | None
SOME_TEXT: Final = Annotated[str, SOME]


class Names(Struct, kw_only=True):
    """The fields by which a tool, or a choice of one, is identified."""

    name: Identifier | None = None
    namespace: Identifier | None = None
    server_label: Identifier | None = None


class Named(Names, kw_only=True):
    """A tool of any type, or a choice of one."""

    type: Identifier | None = None
    tools: list[Named] | None = None


class Allowed(Names, kw_only=True):
    """A tool that may be called."""

    type: Annotated[str, SOME]


class HostItem(Struct, kw_only=True):
    """An object that a host engine validates, except for names that it cannot render."""

    name: Annotated[str, CALLED] | None = None
    namespace: Annotated[str, CALLED] | None = None


class HostReasoning(Struct, kw_only=True):
    """Reasoning that a host engine validates, except for encrypted content."""

    encrypted_content: Annotated[str, TEXT] | None = None


READ: Final[Mapping[type[Struct], Fields]] = {
    parts.InputText: {"text": TEXT},
    parts.PlainText: {"text": TEXT},
    parts.SummaryText: {"text": TEXT},
    parts.ReasoningText: {"text": TEXT},
    parts.OutputText: {"text": TEXT, "annotations": ANY, "logprobs": ANY},
    parts.Refusal: {"refusal": TEXT},
    parts.InputImage: {"image_url": LINK, "file_id": ID, "detail": ANY},
    parts.ComputerScreenshot: {"image_url": LINK, "file_id": ID, "detail": ANY},
    parts.InputFile: {"file_id": ID, "file_data": FILE, "file_url": LINK, "filename": TEXT},
    parts.InputAudio: {"input_audio": ANY},
    parts.Audio: {"data": FILE, "format": ID},
    parts.InputVideo: {"video_url": LINK},
    parts.EncryptedContent: {"encrypted_content": TEXT},
    items.InputMessage: {"role": ANY, "content": TEXT, "phase": ID},
    items.Reasoning: {"summary": PARTS, "content": PARTS, "encrypted_content": TEXT},
    items.FunctionCall: {"call_id": SOME, "name": SOME_CALLED, "arguments": TEXT, "namespace": CALLED},
    items.FunctionCallOutput: {"call_id": SOME_TEXT, "output": TEXT},
    items.CustomToolCall: {"call_id": SOME, "name": SOME_CALLED, "input": TEXT, "namespace": CALLED},
    items.CustomToolCallOutput: {"call_id": SOME, "output": TEXT},
    items.ItemReference: {"id": SOME},
    items.McpApprovalRequest: {"server_label": SOME_CALLED, "name": SOME_CALLED, "arguments": TEXT},
    items.McpApprovalResponse: {"approval_request_id": SOME, "approve": ANY},
    items.Compaction: {"encrypted_content": TEXT},
    tools.FunctionTool: {"name": NAME, "parameters": ANY, "description": TEXT, "strict": ANY},
    tools.CustomTool: {"name": NAME, "description": TEXT, "format": ANY},
    tools.Namespace: {"name": SOME, "description": TEXT, "tools": list[dict[str, Json]] | None},  # each is validated by itself
    tools.McpServer: {"server_label": SOME, "server_url": TEXT, "authorization": TEXT, "headers": ANY, "require_approval": TEXT},
    tools.FileSearchTool: {"vector_store_ids": Annotated[list[str], Meta(max_length=1_000)]},
    tools.CodeInterpreterTool: {"container": TEXT},
    tools.FunctionChoice: {"name": SOME},
    tools.CustomChoice: {"name": SOME},
    tools.McpChoice: {"server_label": SOME, "name": TEXT},
    tools.AllowedTools: {"mode": ANY, "tools": Annotated[list[Allowed], Meta(max_length=MAX_TOOLS)]},
    tools.JsonSchemaFormat: {"name": NAME, "schema": ANY, "description": TEXT, "strict": ANY},
    Conversation: {"id": SOME},
}
"""The fields that are read of each type; types without an entry stay as they are."""

OPAQUE_FIELDS: Final[Fields] = {
    "id": ID,
    "status": ID,
    "call_id": ID,
    "name": CALLED,
    "server_label": CALLED,
    "tools": list[Named],
    "action": ID,
    "outputs": list[dict[str, Json]],
}
"""The fields that are read, if present, of items from hosted tools and later releases, which otherwise stay as they are."""


def _read(type_: Any, limit: Meta = ANY) -> Any:  # noqa: ANN401 - a type
    """Return the part of a type that is read: texts and arrays with a limit, and objects with their fields that are read."""
    origin = get_origin(type_)
    if origin is Annotated:
        inner, *metas = get_args(type_)
        return _read(inner, limit) if limit is not ANY else Annotated[(_read(inner), *metas)]
    if origin in {Union, UnionType}:
        return Union[tuple(_read(arm, limit) for arm in get_args(type_) if arm is not UnsetType)]  # noqa: UP007 - of many
    if origin is list:
        return Annotated[GenericAlias(list, _read(get_args(type_)[0])), limit]
    if type_ is str or (origin is Literal and limit is not ANY):
        return Annotated[str, limit]
    if origin is not dict and not _is_struct(type_):
        return type_
    return _object(type_) if type_ in READ else type_ if issubclass(type_, Names) else dict[str, Any]


def _is_struct(type_: object) -> bool:
    return isinstance(type_, type) and issubclass(type_, Struct)


@cache
def _object(kind: type[Struct]) -> type[Struct]:
    """Return a type with only the fields that are read."""
    opaque = kind not in READ
    read = OPAQUE_FIELDS if opaque else {"id": ID, "status": ID, **READ[kind]}
    hints = get_type_hints(kind, include_extras=True)
    fields: list[tuple[str, Any] | tuple[str, Any, None]] = []
    for member in structs.fields(kind):
        if member.encode_name in read:
            limit = read[member.encode_name]
            hint = _read(hints[member.name], limit) if isinstance(limit, Meta) else _read(limit)
            required = (member.required or not isinstance(limit, Meta)) and NoneType not in get_args(hint) and not opaque
            fields.append((member.name, hint) if required else (member.name, hint | None, None))
    config = kind.__struct_config__
    return defstruct(kind.__name__, fields, tag_field=config.tag_field, tag=config.tag, kw_only=True)


def _by_type(union: object, is_included: Callable[[type[Struct]], bool] = READ.__contains__) -> dict[str, type[Struct]]:
    kinds = cast("tuple[type[Struct], ...]", get_args(union))
    return {str(kind.__struct_config__.tag): _object(kind) for kind in kinds if is_included(kind)}


Shapes: TypeAlias = Mapping[str, type[Struct]]
"""The type to validate an object with, by the object's `type`."""

ITEMS: Final[Shapes] = _by_type(items.InputItem, lambda _kind: True)
TOOLS: Final[Shapes] = _by_type(tools.AnyTool)
"""Tools that are read; others stay as they are."""
CHOICES: Final[Shapes] = _by_type(tools.AnyChoice)
"""Values of `tool_choice` that are read; others are a `Named`."""

HOSTED_ITEMS: Final[Shapes] = {
    **ITEMS,
    **dict.fromkeys(("message", "function_call", "function_call_output"), HostItem),
    "reasoning": HostReasoning,
}
"""Items, where a host engine validates messages, reasoning and functions."""
HOSTED_TOOLS: Final[Shapes] = {**TOOLS, **dict.fromkeys(("function", "file_search", "code_interpreter"), HostItem)}
"""Tools, likewise."""

CONVERSATION: Final = _read(str | Conversation | None, SOME)
SCHEMA_FORMAT: Final = _object(tools.JsonSchemaFormat)

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

    References are not followed and patterns are not compiled, so that validation takes time in proportion to the schema.
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
