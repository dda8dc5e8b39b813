"""What serving relies on in items, parts and tools: which fields of the vocabulary's types it reads, and how long they may be.

A field that is not named here is carried as it came, whatever it holds, because clients are ahead of servers, and null stands for
a field that was not given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import GenericAlias, MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct, UnsetType, defstruct, structs

from interlock.events import items, parts, tools
from interlock.events.parts import ContentPart, Json
from interlock.events.response_object import Conversation, Identifier

__all__ = [
    "CHOICES",
    "CONVERSATION",
    "HOSTED_ITEMS",
    "HOSTED_TOOLS",
    "ITEMS",
    "MOST_GIVEN",
    "MOST_TOOLS",
    "SCHEMA_FORMAT",
    "SOME_TEXT",
    "TEXT",
    "TOOLS",
    "Named",
    "Shapes",
]

Fields: TypeAlias = Mapping[str, Any]
"""The fields that are read, each with its limit, or with another type than the vocabulary's."""

MOST_GIVEN: Final = 5_000
"""Items of one input: more than any context window holds."""
MOST_TOOLS: Final = 1_024
"""Tools of one request, those of namespaces among them; OpenAI's API takes 128 in one array."""

ANY: Final = Meta()
TEXT: Final = Meta(max_length=10_485_760)
"""Characters of a text, as OpenAI's API and the Open Responses specification limit them."""
LINK: Final = Meta(max_length=20_971_520)
"""Those of a URL, which may hold an image, as the Open Responses specification limits them."""
FILE: Final = Meta(max_length=33_554_432)
"""Those of a file's data, likewise."""
SOME: Final = Meta(min_length=1)
"""A text that must be there."""
ID: Final = Meta(max_length=4_096)
"""An id of somebody's, or another short text; the choices that the API has today do not bind."""
CALLED: Final = Meta(max_length=4_096, pattern=r"^(?![\s\S]*<\|)")
"""A name in a call, which a model may have made up; no prompt can quote a control token, which begins with `<|`."""
SOME_CALLED: Final = Meta(min_length=1, max_length=4_096, pattern=CALLED.pattern)
NAME: Final = Meta(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9_-]+\Z")
"""The name of a function, a custom tool or a schema."""
PARTS: Final = list[ContentPart] | None
SOME_TEXT: Final = Annotated[str, SOME]


class Names(Struct, kw_only=True):
    """What tools of any type, and choices of them, are told apart by."""

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


class Left(Struct, kw_only=True):
    """What a host judges by itself, but for names that it cannot render."""

    name: Annotated[str, CALLED] | None = None
    namespace: Annotated[str, CALLED] | None = None


class Sealed(Struct, kw_only=True):
    """Reasoning that a host judges, but for what is sealed."""

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
    tools.Namespace: {"name": SOME, "description": TEXT, "tools": list[dict[str, Json]] | None},  # each is judged by itself
    tools.McpServer: {"server_label": SOME, "server_url": TEXT, "authorization": TEXT, "headers": ANY, "require_approval": TEXT},
    tools.FileSearchTool: {"vector_store_ids": Annotated[list[str], Meta(max_length=1_000)]},
    tools.CodeInterpreterTool: {"container": TEXT},
    tools.FunctionChoice: {"name": SOME},
    tools.CustomChoice: {"name": SOME},
    tools.McpChoice: {"server_label": SOME, "name": TEXT},
    tools.AllowedTools: {"mode": ANY, "tools": Annotated[list[Allowed], Meta(max_length=MOST_TOOLS)]},
    tools.JsonSchemaFormat: {"name": NAME, "schema": ANY, "description": TEXT, "strict": ANY},
    Conversation: {"id": SOME},
}
"""The fields that are read of the objects that are."""

OF_ITEMS: Final[Fields] = {"id": ID, "status": ID}
"""The fields that are read of every item."""

OF_CARRIED: Final[Fields] = {
    "id": ID,
    "status": ID,
    "call_id": ID,
    "name": CALLED,
    "server_label": CALLED,
    "tools": list[Named],
    "action": ID,
    "outputs": list[dict[str, Json]],
}
"""Those of the items that only hosted tools and later releases make, which are carried as they came and may lack any of them."""


def _read(type_: Any, limit: Meta = ANY) -> Any:  # noqa: ANN401 - a type
    """Return a type of the vocabulary as far as it is read: texts and arrays within a limit, and the read fields of objects."""
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
    """Return the type of an object as far as it is read."""
    carried = kind not in READ
    read = OF_CARRIED if carried else {**OF_ITEMS, **READ[kind]}
    hints = get_type_hints(kind, include_extras=True)
    fields: list[tuple[str, Any] | tuple[str, Any, None]] = []
    for field in structs.fields(kind):
        if field.encode_name in read:
            limit = read[field.encode_name]
            hint = _read(hints[field.name], limit) if isinstance(limit, Meta) else _read(limit)
            needed = (field.required or not isinstance(limit, Meta)) and NoneType not in get_args(hint) and not carried
            fields.append((field.name, hint) if needed else (field.name, hint | None, None))
    config = kind.__struct_config__
    return defstruct(kind.__name__, fields, tag_field=config.tag_field, tag=config.tag, kw_only=True)


def _by_type(union: object, chosen: Callable[[type[Struct]], bool] = READ.__contains__) -> dict[str, type[Struct]]:
    kinds = cast("tuple[type[Struct], ...]", get_args(union))
    return {str(kind.__struct_config__.tag): _object(kind) for kind in kinds if chosen(kind)}


Shapes: TypeAlias = Mapping[str, type[Struct]]
"""What is read of objects, by their type."""

ITEMS: Final[Shapes] = MappingProxyType(_by_type(items.InputItem, lambda _kind: True))
TOOLS: Final[Shapes] = MappingProxyType(_by_type(tools.AnyTool))
"""What is read of tools; other tools are carried as they came."""
CHOICES: Final[Shapes] = MappingProxyType(_by_type(tools.AnyChoice))
"""What is read of choices of tools; others name a tool, if anything."""

HOSTED_ITEMS: Final[Shapes] = MappingProxyType(
    {**ITEMS, **dict.fromkeys(("message", "function_call", "function_call_output"), Left), "reasoning": Sealed}
)
"""What is read of items where a host judges messages, reasoning and functions."""
HOSTED_TOOLS: Final[Shapes] = MappingProxyType({**TOOLS, **dict.fromkeys(("function", "file_search", "code_interpreter"), Left)})
"""What is read of tools there."""

CONVERSATION: Final = _read(str | Conversation | None, SOME)
"""What is read of the conversation that a request names."""
SCHEMA_FORMAT: Final = _object(tools.JsonSchemaFormat)
"""What is read of a format that is a schema."""
