"""Whether an event, and the item, part or response in it, has the fields that its type has (rule R14).

The fields come from the specifications of events, items and parts; what is here is the type of each field by its name,
and which fields a specification knows nothing of because no item is opened with them. It knows nothing of order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from attrs import frozen

from interlock.events.olditems import ITEMS, OUTPUT_TEXT, REASONING_TEXT, REFUSAL, SUMMARY_TEXT, ItemSpec, PartSpec
from interlock.events.spec import ADDED, EVENTS, EventSpec, Scope
from interlock.fsm.acceptor.values import a_list, a_text, an_object

Types: TypeAlias = frozenset[type]

_TEXT: Final[Types] = frozenset({str})
_WHOLE: Final[Types] = frozenset({int})
_LIST: Final[Types] = frozenset({list})
_OBJECT: Final[Types] = frozenset({dict})
_NULL: Final[Types] = frozenset({type(None)})
_NUMBER: Final[Types] = frozenset({int, float})

_TYPE_OF: Final[Mapping[str, Types]] = {
    **dict.fromkeys(("output_index", "content_index", "summary_index", "annotation_index", "command_index"), _WHOLE),
    **dict.fromkeys(("sequence_number", "partial_image_index"), _WHOLE),
    **dict.fromkeys(("annotations", "logprobs", "content", "summary", "tools", "queries", "sources"), _LIST),
    **dict.fromkeys(("pending_safety_checks", "acknowledged_safety_checks", "actions"), _LIST),
    **dict.fromkeys(("outputs", "results"), _LIST | _NULL),
    **dict.fromkeys(("response", "item", "part", "annotation", "action", "operation"), _OBJECT),
    **dict.fromkeys(("caller", "environment", "svg_usage"), _OBJECT | _NULL),
    **dict.fromkeys(("approve", "async"), frozenset({bool})),
    "max_output_length": _WHOLE | _NULL,
    **dict.fromkeys(("param", "phase", "encrypted_content", "output", "result"), _TEXT | _NULL),
    **dict.fromkeys(("approval_request_id", "revised_prompt", "created_by"), _TEXT | _NULL),
    "error": _OBJECT | _NULL,
}
"""The types of fields that are no plain text, by the field's name."""

_OWN_TYPE: Final[Mapping[tuple[str, str], Types]] = {
    ("error", "code"): _TEXT | _NULL,
    ("code_interpreter_call", "code"): _TEXT | _NULL,
    ("mcp_list_tools", "error"): _TEXT | _NULL,
    ("image_generation_call", "action"): _TEXT,
    ("open_page", "url"): _TEXT | _NULL,
    ("response.shell_call_output_content.delta", "delta"): _OBJECT,
    ("response.shell_call_output_content.done", "output"): _LIST,
    ("shell_call_output", "output"): _LIST,
    ("computer_call_output", "output"): _OBJECT,
    ("function_call_output", "output"): _TEXT | _LIST,
    ("custom_tool_call_output", "output"): _TEXT | _LIST,
    ("local_shell_call_output", "output"): _TEXT,
    ("program_output", "result"): _TEXT,
    ("compaction", "encrypted_content"): _TEXT,
    ("tool_search_call", "arguments"): _OBJECT,
    ("tool_search_call", "call_id"): _TEXT | _NULL,
    ("tool_search_output", "call_id"): _TEXT | _NULL,
    ("mcp_approval_response", "approval_request_id"): _TEXT,
}
"""The same where a field of one name has two types, by the type of the object and the field's name."""

_EXTRA: Final[Mapping[str, tuple[str, ...]]] = {
    "reasoning": ("encrypted_content",),
    "message": ("phase",),
    "function_call": ("namespace", "caller", "async"),
    "custom_tool_call": ("namespace", "caller", "async"),
    "function_call_output": ("caller", "created_by", "name", "namespace"),
    "custom_tool_call_output": ("caller", "created_by"),
    "apply_patch_call": ("caller", "created_by"),
    "apply_patch_call_output": ("caller", "created_by", "output"),
    "shell_call": ("caller", "created_by", "environment"),
    "shell_call_output": ("caller", "created_by"),
    "computer_call": ("action", "actions"),
    "computer_call_output": ("acknowledged_safety_checks", "created_by"),
    "tool_search_call": ("created_by",),
    "tool_search_output": ("created_by",),
    "compaction": ("created_by",),
    "mcp_approval_response": ("reason",),
    "mcp_call": ("output", "error", "approval_request_id"),
    "mcp_list_tools": ("error",),
    "image_generation_call": (
        *("action", "background", "error", "output_format", "quality", "revised_prompt", "size", "svg_usage"),
    ),
}
"""The fields of an item that come later or not at all."""

_NOT_REQUIRED: Final[Mapping[str, frozenset[str]]] = {
    "reasoning": frozenset({"status", "content"}),
    "custom_tool_call": frozenset({"status"}),
    "tool_search_call": frozenset({"call_id"}),
    "tool_search_output": frozenset({"call_id"}),
    "function_call_output": frozenset({"call_id"}),
    "local_shell_call_output": frozenset({"status"}),
    "shell_call_output": frozenset({"max_output_length"}),
    "code_interpreter_call": frozenset({"outputs"}),
    "file_search_call": frozenset({"results"}),
    # Required by openai 2.25 and unknown to 3.51.
    "response.function_call_arguments.done": frozenset({"name"}),
}
"""Fields that a specification has and a stream may leave out. `logprobs` are the business of rule R15."""


@frozen
class Wrong:
    """What is wrong with the shape of an event.

    Args:
        message: What is wrong.
        stray: Whether the rest of the event can be judged all the same.
        habit: The habit of real services that it is; empty for an error.
    """

    message: str
    stray: bool = False
    habit: str = ""


@frozen
class Shape:
    """The fields of one type of object.

    Args:
        name: The type.
        types: The types that each field may have.
        required: The fields that must be there.
    """

    name: str
    types: Mapping[str, Types]
    required: frozenset[str]

    def wrongs(self, value: Mapping[str, object], excused: frozenset[str] = frozenset()) -> Iterator[Wrong]:
        """Yield the fields that are missing, of a wrong type or not the type's at all.

        Args:
            value: The object.
            excused: Fields that may be missing all the same.
        """
        for field, inner in value.items():
            types = self.types.get(field)
            if types is None:
                habit = "" if field in _OF_ANOTHER_LEVEL else "vendor-field"
                yield Wrong(f"{self.name} has no field {field!r}", stray=True, habit=habit)
            elif inner is None and type(None) not in types and field not in self.required:
                yield Wrong(f"{self.name}: {field} is null", stray=True, habit="null")
            elif type(inner) not in types:
                yield Wrong(f"{self.name}: {field} is {_called(inner)}")
        for field in sorted(self.required - value.keys() - excused):
            yield self._missing(field)

    def _missing(self, field: str) -> Wrong:
        young = (self.name, field) in _YOUNG
        return Wrong(f"{self.name}: {field} is missing", stray=young, habit="field-of-newer" if young else "")


def _shape(name: str, fields: Iterable[str], optional: Iterable[str]) -> Shape:
    kept = tuple(fields)
    types = {field: _OWN_TYPE.get((name, field), _TYPE_OF.get(field, _TEXT)) for field in kept}
    return Shape(name, types, frozenset(kept) - frozenset(optional))


def _of_event(spec: EventSpec) -> Shape:
    loose = ("obfuscation",) if "delta" in spec.fields else ()
    optional = {"sequence_number", "logprobs", *loose, *spec.optional, *_NOT_REQUIRED.get(spec.name, ())}
    return _shape(spec.name, ("type", "sequence_number", *spec.scope.value, *spec.fields, *loose), optional)


def _of_item(spec: ItemSpec) -> Shape:
    extra = _EXTRA.get(spec.kind, ())
    own = ("status",) if spec.statuses else ()
    texts = (name for name in (spec.text, *spec.lists) if name and "." not in name)
    known = ("id", "type", *own, *texts, *spec.opens_with, *spec.constant, *spec.made)
    return _shape(spec.kind, (*known, *extra), {*extra, *_NOT_REQUIRED.get(spec.kind, ())})


def _of_part(spec: PartSpec) -> Shape:
    return _shape(spec.type, ("type", spec.text, *spec.lists), ("logprobs",))


_EVENT_SHAPES: Final = {name: _of_event(spec) for name, spec in EVENTS.items()}
_ITEM_SHAPES: Final = {str(kind): _of_item(spec) for kind, spec in ITEMS.items()}
_PART_SHAPES: Final = {spec.type: _of_part(spec) for spec in (OUTPUT_TEXT, REFUSAL, REASONING_TEXT, SUMMARY_TEXT)}
_ACTION_SHAPES: Final = {
    "search": _shape("search", ("type", "query", "queries", "sources"), ("queries", "sources")),
    "open_page": _shape("open_page", ("type", "url"), ()),
    "find_in_page": _shape("find_in_page", ("type", "url", "pattern"), ()),
}

_RESPONSE_TYPES: Final[Mapping[str, Types]] = {
    **dict.fromkeys(("id", "object", "model", "status"), _TEXT),
    "created_at": _NUMBER,
    "output": _LIST,
    "tools": _LIST,
    "parallel_tool_calls": frozenset({bool}),
    "tool_choice": _TEXT | _OBJECT,
    **dict.fromkeys(("error", "incomplete_details", "usage", "metadata"), _OBJECT | _NULL),
    "instructions": _TEXT | _LIST | _NULL,
    **dict.fromkeys(("temperature", "top_p"), _NUMBER | _NULL),
}
"""The fields of a response that a stream is judged by; what else it echoes of the request is not looked at."""
_RESPONSE_OPTIONAL: Final = frozenset(
    {"error", "incomplete_details", "usage", "metadata", "instructions", "temperature", "top_p"}
)
_RESPONSE_STATUSES: Final = frozenset({"completed", "incomplete", "failed", "in_progress", "queued", "cancelled"})
_USAGE_TYPES: Final[Mapping[str, Types]] = {
    **dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), _WHOLE),
    **dict.fromkeys(("input_tokens_details", "output_tokens_details"), _OBJECT),
}
_HOLDERS: Final = frozenset({"item", "response", "part", "annotation"})
"""The fields of an event whose objects are looked into."""
_NOTHING: Final[frozenset[str]] = frozenset()
_OF_AN_EVENT: Final = ("sequence_number", "output_index")
_OF_ANOTHER_LEVEL: Final = frozenset(
    {*_OF_AN_EVENT, "item_id", "content_index", "summary_index", "delta", "logprobs", "response", "item", "part"}
)
"""Fields that an object cannot have as a vendor's own: they say where an event stands, or hold what it carries."""
_YOUNG: Final = frozenset(
    {
        ("web_search_call", "action"),
        *(("response", name) for name in ("created_at", "model", "parallel_tool_calls", "tool_choice", "tools")),
        *(("usage", name) for name in ("input_tokens_details", "output_tokens_details")),
    }
)
"""Fields that older services do not send, or that only echo the request; the type of the object, and the field."""
_LATER: Final[Mapping[str, frozenset[str]]] = {
    "web_search_call": frozenset({"action"}),
    "image_generation_call": frozenset({"result"}),
}
"""Fields that an item need not have before it is done."""


def in_event(spec: EventSpec, body: Mapping[str, object]) -> list[Wrong]:
    """Return what is malformed in an event.

    Args:
        spec: Which event it is.
        body: Its body.

    Returns:
        One sentence for each fault; empty if there is none.
    """
    wrongs = list(_EVENT_SHAPES[spec.name].wrongs(body))
    if not all(isinstance(body.get(name), Mapping) for name in _HOLDERS & {*spec.scope.value, *spec.fields}):
        return wrongs
    if spec.scope is Scope.BRACKET:
        wrongs += _in_item(an_object(body.get("item")), begins=spec is ADDED)
    elif spec.scope is Scope.RESPONSE:
        wrongs += _in_response(an_object(body.get("response")))
    elif "part" in spec.fields:
        wrongs += _in_typed(an_object(body.get("part")), _PART_SHAPES, "part")
    elif "annotation" in spec.fields and not isinstance(an_object(body.get("annotation")).get("type"), str):
        wrongs.append(Wrong("an annotation has no type"))
    return wrongs


def is_unknown_part(body: Mapping[str, object]) -> bool:
    """Return whether an event carries a part of a type that nobody knows."""
    kind = a_text(an_object(body.get("part")).get("type"))
    return bool(kind) and kind not in _PART_SHAPES


def _in_typed(
    value: Mapping[str, object], shapes: Mapping[str, Shape], what: str, excused: frozenset[str] = _NOTHING
) -> Iterator[Wrong]:
    shape = shapes.get(str(value.get("type")))
    if shape is not None:
        yield from shape.wrongs(value, excused)
    elif a_text(value.get("type")):
        yield Wrong(f"there is no {what} of type {value.get('type')!r}", stray=True, habit="unknown-item")
    else:
        yield Wrong(f"there is no {what} of type {value.get('type')!r}")


def _in_item(item: Mapping[str, object], *, begins: bool) -> Iterator[Wrong]:
    excused = _LATER.get(a_text(item.get("type")), _NOTHING) if begins else _NOTHING
    yield from _in_typed(item, _ITEM_SHAPES, "item", excused)
    for part in (*a_list(item.get("content")), *a_list(item.get("summary"))):
        yield from _in_typed(an_object(part), _PART_SHAPES, "part")
    if item.get("type") == "web_search_call" and item.get("action") is not None:
        yield from _in_typed(an_object(item.get("action")), _ACTION_SHAPES, "action")
    if item.get("type") == "message" and item.get("role") != "assistant":
        yield Wrong(f"a message of a response is the assistant's, not of role {item.get('role')!r}")


def _in_response(response: Mapping[str, object]) -> Iterator[Wrong]:
    yield from _looked_at("response", response, _RESPONSE_TYPES, _RESPONSE_OPTIONAL)
    if response.get("object") != "response":
        yield Wrong(f"response: object is {response.get('object')!r}, not 'response'")
    if a_text(response.get("status")) not in _RESPONSE_STATUSES:
        yield Wrong(f"response: there is no status {response.get('status')!r}")
    yield from (Wrong(f"response has no field {field!r}", stray=True) for field in _OF_AN_EVENT if field in response)
    if isinstance(response.get("usage"), dict):
        yield from _looked_at("usage", an_object(response["usage"]), _USAGE_TYPES, frozenset())


def _looked_at(name: str, value: Mapping[str, object], types: Mapping[str, Types], optional: frozenset[str]) -> Iterator[Wrong]:
    """Yield what is wrong with the fields that are known; others are passed over."""
    yield from Shape(name, types, frozenset(types) - optional).wrongs({f: v for f, v in value.items() if f in types})


def _called(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "an object"
