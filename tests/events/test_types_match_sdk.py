"""Every type of `interlock.events.types` is that of the installed `openai` package, field by field and both ways.

What differs on purpose is in `INTENDED`, with the reason; a release older than the newest may moreover know less than we do.
"""

from __future__ import annotations

import json
import types
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import get_annotations
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Required, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from msgspec.structs import fields
from openai import BaseModel
from typing_extensions import is_typeddict

from interlock import AnyEvent
from interlock.events import items, parts, request, stream, tools
from interlock.events import response_object as response
from interlock.events.dialects import from_open_responses
from interlock.events.items import (
    ITEMS,
    TEXTS,
    CompactionTrigger,
    ConfigurationUpdate,
    FunctionCall,
    InputItem,
    InputMessage,
    Item,
    Message,
    OutputItem,
)
from interlock.events.parts import OutputText, kinds_of
from interlock.events.request import CreateResponse
from interlock.events.stream import EVENTS, PROGRESS, TERMINAL, ItemAdded, Place, ProgressEvent, TextDelta, own_fields, wire_name

NEWEST = find_spec("openai.types.responses.response_steer_event") is not None
"""Whether the installed release is at least the one that the types follow."""

ANY_EVENT: Any = Union[tuple(stream.EVENTS.values())]  # noqa: UP007 - as many as there are
ROOTS: tuple[tuple[str, Any, str], ...] = (
    ("out", ANY_EVENT, "responses.response_stream_event.ResponseStreamEvent"),
    ("out", items.OutputItem, "responses.response_output_item.ResponseOutputItem"),
    ("out", response.InputTokens, "responses.input_token_count_response.InputTokenCountResponse"),
    ("out", items.InputItem, "responses.response_item.ResponseItem"),
    ("out", tools.AnyTool, "responses.tool.Tool"),
    ("in", items.InputItem, "responses.response_input_item.ResponseInputItem"),
    ("in", items.InputItem, "responses.response_input_item_param.ResponseInputItemParam"),
    ("in", tools.AnyTool, "responses.tool_param.ToolParam"),
    ("in", request.CreateResponse, "responses.response_create_params.ResponseCreateParamsNonStreaming"),
    ("in", request.CreateResponse, "responses.response_create_params.ResponseCreateParamsStreaming"),
    ("out", ANY_EVENT, "responses.responses_server_event.ResponsesServerEvent"),
    ("out", ANY_EVENT, "beta.beta_response_stream_event.BetaResponseStreamEvent"),
    ("out", ANY_EVENT, "beta.beta_responses_server_event.BetaResponsesServerEvent"),
    ("out", items.OutputItem, "beta.beta_response_output_item.BetaResponseOutputItem"),
    ("in", items.InputItem, "beta.beta_response_input_item.BetaResponseInputItem"),
    ("in", request.CreateResponse, "beta.response_create_params.ResponseCreateParamsNonStreaming"),
)
"""The sender (a server, `out`, or a client, `in`), our type, and the type of the package."""

DELTAS = (
    *("Arguments", "Code", "CustomInput", "McpArguments", "Output"),
    *("Reasoning", "Refusal", "Summary", "Text"),
)
PATCH = "response.apply_patch_call_operation_diff"
UNTYPED_PARTS = (
    "computer_screenshot",
    "encrypted_content",
    "input_audio",
    "input_video",
    "reasoning_text",
    "summary_text",
    "text",
)

INTENDED = {
    "vLLM's own route adds it to a response that has ended.": {
        *(
            f"Response.{name}: not in the SDK"
            for name in ("kv_transfer_params", "ec_transfer_params", "input_messages", "output_messages", "metrics")
        ),
    },
    "The API sends it, and no release types it.": {
        *(f"Event: the SDK has no <{name}>" for name in ("keepalive", f"{PATCH}.delta", f"{PATCH}.done")),
        *(f"{event}Delta.obfuscation: not in the SDK" for event in DELTAS),
        "Search.sources[]: the SDK has no <api>",
        "DeleteFile.diff: not in the SDK",
        *("Logprob.bytes: not in the SDK", "TopLogprob.bytes: not in the SDK"),
    },
    "The API always sends it, though the type does not promise it.": {
        "AnnotationAdded.annotation: they may not send it",
        "ImageGenerationCall.result: they may not send it",
        *("TopLogprob.logprob: they may not send it", "TopLogprob.token: they may not send it"),
    },
    "The API does not always send it, though the type promises it: older services do not know it.": {
        "InputTokensDetails.cache_write_tokens: they always send it",
    },
    "Another release types it: 2.25, or those between.": {
        "ArgumentsDone.name: not in the SDK",
        "McpCall.error: the SDK has no str",
        "Parameters.prompt_cache_retention: the SDK has no 'in-memory'",
        "Response.prompt_cache_retention: the SDK has no 'in-memory'",
    },
    "Clients send it, and no release types it.": {
        "Parameters.client_metadata: not in the SDK",
        "LocalShellCallOutput.call_id: not in the SDK",
    },
    "Open Responses has it, and no release types it.": {
        "Parameters.frequency_penalty: not in the SDK",
        "Parameters.presence_penalty: not in the SDK",
        "Response.frequency_penalty: not in the SDK",
        "Response.presence_penalty: not in the SDK",
        "Response.store: not in the SDK",
    },
    "A request may have any part where it may have parts: engines read more of them than OpenAI's.": {
        *(f"InputMessage.content[]: the SDK has no <{part}>" for part in UNTYPED_PARTS),
        *(
            f"{output}.output[]: the SDK has no <{part}>"
            for output in ("CustomToolCallOutput", "FunctionCallOutput")
            for part in (*UNTYPED_PARTS, "output_text", "refusal")
        ),
        "AgentMessage.content[]: the SDK has no <input_audio>",
        "AgentMessage.content[]: the SDK has no <input_video>",
    },
    "The list grows with every release; a name that is not known here is for another to judge.": {
        "Parameters.include[]: a closed list in the SDK",
        "McpServer.connector_id: a closed list in the SDK",
        "ResponseError.code: a closed list in the SDK",
    },
    "A server of one model need not guess which is meant, but many models are served by one server here.": {
        "Parameters.model: a client may leave it out",
    },
    "The guide knows one text alone.": {
        "ContextManagement.type: the SDK has no 'compaction'",
        "ContextManagement.type: we have no str",
    },
    "No item of the API has them, and no service was seen to send them.": {
        *(f"Event: we have no <response.audio.{name}>" for name in ("delta", "done", "transcript.delta", "transcript.done")),
    },
    "They are about a WebSocket, not part of a response's stream; `interlock.events.steering` has them.": {
        *(f"Event: we have no <response.steer.{name}>" for name in ("accepted", "pending", "failed")),
    },
    "No engine takes items for a response that runs.": {
        *(f"Event: we have no <response.inject.{name}>" for name in ("created", "failed")),
    },
    "The method puts it into a header.": {"CreateResponse.betas: not in Interlock"},
    "On a WebSocket, an error is nested.": {"ErrorEvent.error: not in Interlock", "ErrorEvent.status: not in Interlock"},
    "Any status and any detail of an input is read.": {
        "InputImage.detail: they always send it",
        "InputMessage.status: a closed list in the SDK",
    },
}
"""The differences from the newest release, by reason."""

OLDER = {
    "No event had it, or only some.": {"StreamEvent.sequence_number: they may not send it"},
    "It was optional, and is required now.": {
        "ClientCall.status: they may not send it",
        "ComputerCallOutput.status: they may not send it",
        "FunctionCallOutput.status: they may not send it",
        "Item.id: they may not send it",
    },
    "It was required, and is optional now or gone.": {
        "ArgumentsDone.name: they always send it",
        "FunctionCallOutput.call_id: it is never null",
        "FunctionCallOutput.call_id: they always send it",
        "Search.query: they always send it",
    },
    "The list was closed, and is open now.": {
        "ImageGenerationTool.size: a closed list in the SDK",
    },
    "It was never null, and may be now.": {"JsonSchemaFormat.description: it is never null"},
}
"""The differences from an older release, besides missing types."""

KNOWS_LESS = ("the SDK has no ", "not in the SDK")

UNTYPED = {"ApiSource", "Audio", "InputAudio", "InputVideo", "Keepalive", "PatchDelta", "PatchDone"}
"""The classes that no release has."""

ECHOES = {"Response.instructions"}
"""Fields that a client sends and a server only repeats."""


class Field(NamedTuple):
    """A field of a type: its types, whether it is required, whether it may be null, and which of our three kinds it is."""

    type: Any
    required: bool
    nullable: bool
    presence: str = ""


def _arms(annotation: Any) -> Iterator[Any]:
    """Yield the members of a union, without annotations."""
    origin = get_origin(annotation)
    if origin is Annotated or origin is Required:
        yield from _arms(get_args(annotation)[0])
    elif origin in {Union, types.UnionType}:
        for arm in get_args(annotation):
            yield from _arms(arm)
    else:
        yield annotation


def _presence(annotation: Any) -> str:
    """Return which of `Maybe`, `Nullable` and `Outbound` a field of a Struct is."""
    extras = [meta.extra for meta in getattr(annotation, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]
    return next((extra["presence"] for extra in extras if extra), "")


@cache
def _struct_fields(kind: type[msgspec.Struct]) -> dict[str, Field]:
    hints = get_type_hints(kind, include_extras=True)
    return {
        field.encode_name: Field(hint := hints[field.name], field.required, type(None) in _arms(hint), _presence(hint))
        for field in msgspec.structs.fields(kind)
    }


@cache
def _model_fields(kind: Any) -> dict[str, Field]:
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        return {
            name: Field(hint, get_origin(hint) is Required or kind.__total__, type(None) in _arms(hint))
            for name, hint in hints.items()
        }
    return {
        info.alias or name: Field(info.annotation, info.is_required(), type(None) in _arms(info.annotation))
        for name, info in kind.model_fields.items()
    }


def _tags(kind: Any) -> tuple[str, ...]:
    """Return the values that `type` may have in an object of the package; none if it has no such field."""
    hint = get_type_hints(kind, include_extras=True).get("type") if is_typeddict(kind) else None
    if not is_typeddict(kind) and "type" in kind.model_fields:
        hint = kind.model_fields["type"].annotation
    return tuple(str(value) for arm in _arms(hint) if get_origin(arm) is Literal for value in get_args(arm))


def _is_model(arm: Any) -> bool:
    return is_typeddict(arm) or (isinstance(arm, type) and issubclass(arm, BaseModel | msgspec.Struct))


def _plain(arms: list[Any]) -> set[str]:
    """Return the members of a union that have no fields: `str`, `list`, the values of literals, `object` for anything."""
    names: set[str] = set()
    for arm in arms:
        origin = get_origin(arm)
        if arm in {Any, object}:
            names.add("object")
        elif origin is Literal:
            names |= {"bool" if isinstance(value, bool) else repr(value) for value in get_args(arm)}
        elif origin is not None:
            names.add("dict" if origin is dict else "list")
        elif arm is float:
            names |= {"int", "float"}
        elif not _is_model(arm) and arm not in {type(None), msgspec.UnsetType}:
            names.add(arm.__name__)
    return names


def _inner(arms: list[Any], *, of_lists: bool) -> list[Any]:
    """Return the element types of the lists, or of the objects without fields, in a union."""
    holders = [arm for arm in arms if get_origin(arm) and get_origin(arm) is not Literal]
    return [arm for holder in holders if (get_origin(holder) is not dict) == of_lists for arm in _arms(get_args(holder)[-1])]


class Comparison:
    """A comparison of the types of Interlock with those of the package."""

    def __init__(self) -> None:
        self.pairs: dict[type[msgspec.Struct], dict[tuple[str, int], tuple[str, Any]]] = defaultdict(dict)
        self.struct_arms: dict[str, set[str]] = defaultdict(set)
        self.model_arms: dict[str, set[str]] = defaultdict(set)

    def pair(self, side: str, struct: Any, model: Any, where: str) -> None:
        """Record the members of two types, and compare the objects that both have.

        Args:
            side: The sender, a client (`in`) or a server (`out`).
            struct: The type of Interlock.
            model: The type of the package.
            where: The name of the field.
        """
        struct_arms, model_arms = list(_arms(struct)), list(_arms(model))
        structs: dict[str, type[msgspec.Struct]] = {}
        for arm in filter(_is_model, struct_arms):
            structs.setdefault(str(arm.__struct_config__.tag or ""), arm)
        self.struct_arms[where] |= _plain(struct_arms) | {f"<{tag}>" for tag in structs}
        self.model_arms[where] |= _plain(model_arms)
        for arm in filter(_is_model, model_arms):
            tags = _tags(arm) if "" not in structs else ("",)
            self.model_arms[where] |= {f"<{tag}>" for tag in tags}
            for tag in structs.keys() & set(tags):
                self.visit(side, structs[tag], arm)
        for of_lists in (True, False):
            left, right = _inner(struct_arms, of_lists=of_lists), _inner(model_arms, of_lists=of_lists)
            if left and right:
                self.pair(side, Union[tuple(left)], Union[tuple(right)], f"{where}[]")  # noqa: UP007

    def visit(self, side: str, struct: type[msgspec.Struct], model: Any) -> None:
        """Compare the types of the fields that two objects share."""
        if (side, id(model)) in self.pairs[struct]:
            return
        self.pairs[struct][side, id(model)] = (side, model)
        struct_fields = _struct_fields(struct)
        for name, field in _model_fields(model).items():
            if name in struct_fields:
                where = _where(struct, name)
                self.pair("in" if where in ECHOES else side, struct_fields[name].type, field.type, where)

    def differences(self) -> Iterator[str]:
        """Yield the differences: the names of fields, their types, and whether they are required."""
        for where in self.struct_arms.keys() & self.model_arms.keys():
            yield from _judge_values(where, self.struct_arms[where], self.model_arms[where])
        for struct, pairs in self.pairs.items():
            struct_fields = _struct_fields(struct)
            sides: dict[str, list[dict[str, Field]]] = {"in": [], "out": []}
            for side, model in pairs.values():
                sides[side].append(_model_fields(model))
            names = {name for group in sides.values() for fields in group for name in fields}
            names -= {"type"} if struct.__struct_config__.tag else set()
            yield from (f"{struct.__name__}.{name}: not in Interlock" for name in names - struct_fields.keys())
            yield from (f"{_where(struct, name)}: not in the SDK" for name in struct_fields.keys() - names)
            for name in struct_fields.keys() & names:
                clients, servers = ([fields.get(name) for fields in sides[side]] for side in ("in", "out"))
                yield from (f"{_where(struct, name)}: {text}" for text in _judge_field(struct_fields[name], clients, servers))


def _where(kind: type[msgspec.Struct], name: str) -> str:
    """Return a field's name with that of the type which declares it."""
    attribute = next(field.name for field in msgspec.structs.fields(kind) if field.encode_name == name)
    declaring = next(base for base in kind.__mro__ if attribute in get_annotations(base))
    return f"{declaring.__name__}.{name}"


def _judge_values(where: str, struct: set[str], model: set[str]) -> Iterator[str]:
    if "object" in struct | model:
        return
    for names in (struct, model):
        if "str" in names:
            names -= {name for name in names if name.startswith("'")}
    if "str" in struct and "str" not in model and any(name.startswith("'") for name in model):
        yield f"{where}: a closed list in the SDK"
        return
    yield from (f"{where}: we have no {name}" for name in model - struct)
    yield from (f"{where}: the SDK has no {name}" for name in struct - model)


def _judge_field(struct: Field, of_clients: list[Field | None], of_servers: list[Field | None]) -> Iterator[str]:
    """Yield how a field of Interlock is stricter or looser than that of the SDK.

    Ours has three ways to be left out; one with a default may be left out by a client alone.
    """
    optional = struct.presence in {"optional", "nullable"} or not (struct.presence or struct.required or not struct.nullable)
    sent = [field for field in of_servers if field]
    if sent and optional and all(field and field.required for field in of_servers):
        yield "they always send it"
    if sent and not optional and not any(field.required for field in sent):
        yield "they may not send it"
    if struct.required and not all(field and field.required for field in of_clients):
        yield "a client may leave it out"
    strict = [field for field in of_clients if field and not field.nullable]
    if struct.presence == "optional" and any(of_clients) and not strict:
        yield "it may be null"
    if struct.presence == "nullable" and len(strict) == len(of_clients) and strict:
        yield "it is never null"


def _name(struct: Any) -> str:
    """Return the name of one of our types in the module that declares it; `Event` for a union of events."""
    named = {id(value): name for module in (items, request, response, stream, tools) for name, value in vars(module).items()}
    return named.get(id(struct), "Event")


def _resolve(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(f"openai.types.{module}"), name) if find_spec_or_none(f"openai.types.{module}") else None


def find_spec_or_none(name: str) -> object:
    """Return the spec of a module; None if its package is missing too."""
    try:
        return find_spec(name)
    except ModuleNotFoundError:
        return None


@cache
def compared() -> Comparison:
    comparison = Comparison()
    for side, struct, path in ROOTS:
        model = _resolve(path)
        if model is not None:
            comparison.pair(side, struct, model, _name(struct))
    return comparison


def differences() -> set[str]:
    return set(compared().differences())


def test_every_type_matches_the_sdk_except_intended_differences():
    intended = set().union(*INTENDED.values())
    found = differences()
    if NEWEST:
        edits = {
            "declare in interlock.events, or add to INTENDED with the reason": sorted(found - intended),
            "remove from INTENDED": sorted(intended - found),
        }
        if any(edits.values()):  # in lines, because pytest would cut lists, or print every difference, intended or not
            pytest.fail("\n".join(line for edit, rows in edits.items() if rows for line in (f"{edit}:", *rows)))
    else:
        more = found - intended - set().union(*OLDER.values())
        assert {each for each in more if not each.partition(": ")[2].startswith(KNOWS_LESS)} == set()


@pytest.mark.skipif(not NEWEST, reason="an older release knows fewer types")
def test_every_type_is_compared_with_the_sdk_unless_no_release_has_it():
    comparison = compared()
    declared = {
        kind
        for module in (parts, items, tools, request, response, stream)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and not kind.__subclasses__()
    }
    names = {kind.__name__ for kind in declared - comparison.pairs.keys()}
    assert names == UNTYPED, "UNTYPED has the classes that the package lacks"


# The types decode observed events, and encode them unchanged


OBSERVED = Path(__file__).parent.parent / "corpus" / "observed"
SETTINGS = (
    *("background", "completed_at", "error", "frequency_penalty", "instructions", "max_tool_calls", "presence_penalty"),
    *("prompt_cache_key", "safety_identifier", "service_tier", "top_logprobs", "truncation", "usage", "user"),
)
DIFFERENCES = {
    # A missing field of a response has the API's default.
    *(f"response.{name}: added" for name in SETTINGS),
    # An image is null until it is done, and log probabilities are a list if they are not requested (rule R15).
    "item.result: added",
    "logprobs: added",
    # Fields of Azure and GitHub.
    "response.content_filters: lost",
    "copilot_usage: lost",
}


def bodies() -> Iterator[dict[str, object]]:
    """Yield every event that was observed."""
    for path in sorted(OBSERVED.glob("*.sse")):
        for line in path.read_text().splitlines():
            if line.startswith("data: {"):
                yield from_open_responses(json.loads(line.removeprefix("data: ")))  # which unpacks an error


def changes(before: object, after: object, where: str = "") -> Iterator[str]:
    """Yield the differences between two JSON values."""
    if isinstance(before, dict) and isinstance(after, dict):
        yield from (f"{where}{name}: lost" for name in before.keys() - after.keys())
        yield from (f"{where}{name}: added" for name in after.keys() - before.keys())
        for name in before.keys() & after.keys():
            yield from changes(before[name], after[name], f"{where}{name}.")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for one, other in zip(before, after, strict=True):
            yield from changes(one, other, where)
    elif before != after:
        yield f"{where}: {before!r} became {after!r}"


def decoded(body: dict[str, object]) -> stream.StreamEvent:
    return msgspec.convert(body, ANY_EVENT)


def test_an_observed_event_is_decoded_and_encoded_with_known_differences():
    differences = {change for body in bodies() for change in changes(body, msgspec.to_builtins(decoded(body)))}
    assert differences == DIFFERENCES


def test_the_sequence_number_of_an_event_comes_last():
    delta = TextDelta("msg_1", 0, 0, "Hi", sequence_number=4)
    assert msgspec.json.encode(delta) == (
        b'{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hi","logprobs":[],'
        b'"sequence_number":4}'
    )


def test_an_item_has_its_type_first_and_omits_unset_fields():
    call = FunctionCall(id="fc_1", status="in_progress", call_id="call_1", name="sum", arguments="")
    assert msgspec.json.encode(ItemAdded(0, call, sequence_number=2)) == (
        b'{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc_1","status":"in_progress",'
        b'"call_id":"call_1","name":"sum","arguments":""},"sequence_number":2}'
    )


def test_a_message_of_a_response_has_the_role_assistant():
    message = Message(id="msg_1", status="completed", content=[OutputText(text="Hi")])
    assert msgspec.to_builtins(message) == {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}],
    }


def test_a_client_may_send_an_item_back_with_nulls():
    item = {
        "type": "function_call",
        "id": None,
        "status": None,
        "call_id": "call_1",
        "name": "sum",
        "arguments": "",
        "namespace": None,
    }
    assert msgspec.to_builtins(msgspec.convert(item, InputItem)) == item


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "Object missing required field `model`"),
        ({"model": "m", "temperature": 3}, "Expected `int` <= 2 - at `$.temperature`"),
        ({"model": "m", "stream": 1}, "Expected `bool | null`, got `int` - at `$.stream`"),
        (
            {"model": "m", "input": [{"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": 3}]}]},
            "Expected `str | null`, got `int` - at `$.input[0].content[0].image_url`",
        ),
        ({"model": "m", "input": [{"type": "telepathy"}]}, "Invalid value 'telepathy' - at `$.input[0].type`"),
    ],
)
def test_a_mismatch_of_a_request_has_its_path(body, message):
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(body, CreateResponse)
    assert str(caught.value) == message


def test_terminal_events_are_the_three_ends_of_a_response():
    assert {"response.completed", "response.incomplete", "response.failed"} == TERMINAL
    assert {name for name, event in EVENTS.items() if event.after is Place.AFTER} == {*TERMINAL, "response.output_item.done"}


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (TextDelta, ("delta", "logprobs", "obfuscation")),
        (stream.ArgumentsDone, ("arguments", "name")),
        (stream.PROGRESS["mcp_call.completed"], ()),
    ],
)
def test_own_fields_excludes_ids_and_indices(event, fields):
    assert own_fields(event) == fields


def test_the_wire_name_of_an_event_is_its_tag():
    assert {name: wire_name(event) for name, event in EVENTS.items()} == {name: name for name in EVENTS}


# The unions of all events and items, which type checkers narrow by `type`. tests/typing has the results


def literals(event):
    (literal,) = get_args(get_type_hints(event)["type"])
    return get_args(literal)


def test_the_type_of_every_event_is_its_wire_name():
    assert {name: event.type for name, event in EVENTS.items()} == {name: name for name in EVENTS}
    assert {name: literals(event) for name, event in EVENTS.items() if not issubclass(event, ProgressEvent)} == {
        name: (name,) for name, event in EVENTS.items() if not issubclass(event, ProgressEvent)
    }
    assert literals(ProgressEvent) == tuple(event.type for event in PROGRESS.values())


def test_the_union_of_events_has_every_event():
    assert {*get_args(AnyEvent)} == {event for event in EVENTS.values() if not issubclass(event, ProgressEvent)} | {ProgressEvent}


def test_the_type_of_every_item_is_its_wire_name():
    for item in kinds_of(Item):
        assert literals(item) == (item.type,) == (item.__struct_config__.tag,)


def test_the_union_of_items_has_every_item_of_a_response():
    assert {*get_args(OutputItem)} == {*kinds_of(Item)} - {InputMessage, CompactionTrigger, ConfigurationUpdate}


# The table of texts agrees with the classes of events and items


def test_the_table_of_texts_has_every_event_with_a_text_delta():
    deltas = {name for name, event in EVENTS.items() for field in fields(event) if field.name == "delta" and field.type is str}
    assert deltas == {f"response.{subject}.delta" for subject in TEXTS}


@pytest.mark.parametrize("subject", TEXTS)
def test_a_row_of_the_table_of_texts_names_fields_of_its_events_and_item(subject):
    text = TEXTS[subject]
    done, delta, item = EVENTS[f"response.{subject}.done"], EVENTS[f"response.{subject}.delta"], ITEMS[text.kind]
    assert own_fields(done)[0] == text.field
    assert {name for name in delta.__struct_fields__ if name.endswith("_index")} - {"output_index"} == {text.index} - {""}
    if text.part:
        (of_list,) = (field.type for field in fields(item) if field.name == text.parts)
        assert text.part in {wire_name(part) for part in parts_in(of_list)}
    elif not text.index:
        assert item.text_path[-1] == text.field


def parts_in(hint):
    """Return the classes of parts in the type of a list."""
    if hasattr(hint, "__struct_config__"):
        return [hint]
    return [part for arm in getattr(hint, "__args__", ()) for part in parts_in(arm)]
