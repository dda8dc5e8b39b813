"""Events and responses as the typed models of the installed `openai` package, and what its types do not know.

It looks at the installed types, never at version numbers: where a release types a field otherwise than the wire has it,
the field is adapted to the type that is there. It knows nothing of order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast, get_args

from attrs import frozen
from openai import BaseModel
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_function_web_search import ResponseFunctionWebSearch
from openai.types.responses.response_output_item import McpCall

from interlock.events.dialects import from_open_responses


class UnknownEventError(ValueError):
    """The installed `openai` package has no event of that name."""


def _literal(model: type[BaseModel]) -> str:
    """Return the one value that the field `type` of a model can take."""
    (name,) = get_args(model.model_fields["type"].annotation)
    return str(name)


_UNION: Final = cast("tuple[type[BaseModel], ...]", get_args(get_args(ResponseStreamEvent)[0]))
EVENT_MODELS: Final[Mapping[str, type[BaseModel]]] = {_literal(model): model for model in _UNION}
"""The installed package's model of every streaming event, by the event's name."""


@frozen
class Release:
    """What releases of the `openai` package type differently.

    Args:
        mcp_error_is_text: Whether the `error` of an `mcp_call` is a text; on the wire it is an object.
        web_search_knows_incomplete: Whether `incomplete` is a status of a web search; if not, `failed` comes nearest.
    """

    mcp_error_is_text: bool
    web_search_knows_incomplete: bool

    @classmethod
    def installed(cls) -> Release:
        """Look at the types of the installed package."""
        return cls(
            mcp_error_is_text=str in get_args(McpCall.model_fields["error"].annotation),
            web_search_knows_incomplete="incomplete" in get_args(ResponseFunctionWebSearch.model_fields["status"].annotation),
        )

    def adapted(self, body: Mapping[str, object]) -> dict[str, object]:
        """Return an event, or a response, as this release types it.

        Args:
            body: The event or response; it is not changed.
        """
        new = dict(body)
        if body.get("type") == "response.function_call_arguments.done":
            new.setdefault("name", "")
        if isinstance(item := body.get("item"), Mapping):
            new["item"] = self._item(cast("Mapping[str, object]", item))
        if isinstance(response := body.get("response"), Mapping):
            new["response"] = self.adapted(cast("Mapping[str, object]", response))
        if isinstance(output := body.get("output"), Sequence) and body.get("object") == "response":
            new["output"] = [self._item(entry) for entry in cast("Sequence[Mapping[str, object]]", output)]
        if isinstance(usage := body.get("usage"), Mapping):
            new["usage"] = _usage(cast("Mapping[str, object]", usage))
        return new

    def _item(self, item: Mapping[str, object]) -> Mapping[str, object]:
        """Return an item as this release types it."""
        match item.get("type"):
            case "mcp_call" if self.mcp_error_is_text and isinstance(item.get("error"), Mapping):
                return {**item, "error": _as_text(cast("Mapping[str, object]", item["error"]))}
            case "web_search_call" if item.get("status") == "incomplete" and not self.web_search_knows_incomplete:
                return {**item, "status": "failed"}
            case _:
                return item


def _as_text(error: Mapping[str, object]) -> str:
    """Return the error of an MCP call as one text: its message, the texts of its content, or the whole of it as JSON."""
    if isinstance(message := error.get("message"), str):
        return message
    if isinstance(content := error.get("content"), list):
        return "\n".join(str(entry["text"]) for entry in cast("list[Mapping[str, object]]", content) if "text" in entry)
    return json.dumps(error, ensure_ascii=False)


def _usage(usage: Mapping[str, object]) -> dict[str, object]:
    """Supply the count of tokens written to a cache, which newer releases require and older ones do not know."""
    details = usage.get("input_tokens_details")
    if not isinstance(details, Mapping):
        return dict(usage)
    return {**usage, "input_tokens_details": {"cache_write_tokens": 0, **cast("Mapping[str, object]", details)}}


INSTALLED: Final = Release.installed()
"""The package that is installed."""


def to_openai(body: Mapping[str, object]) -> ResponseStreamEvent:
    """Return an event as the installed package's validated model.

    Args:
        body: The event, in either dialect.

    Raises:
        UnknownEventError: If the package has no event of that name.
        pydantic.ValidationError: If the event is not what its model wants; values are not converted to make them fit.
    """
    body = from_open_responses(body)
    model = EVENT_MODELS.get(str(body.get("type")))
    if model is None:
        raise UnknownEventError(f"the installed openai package has no event {body.get('type')!r}")
    return cast("ResponseStreamEvent", model.model_validate(INSTALLED.adapted(body), strict=True))


def response_to_openai(body: Mapping[str, object]) -> Response:
    """Return a response as the installed package's validated model.

    Args:
        body: The response object.

    Raises:
        pydantic.ValidationError: If it is not what the model wants.
    """
    return Response.model_validate(INSTALLED.adapted(body), strict=True)


IN_OTHER_RELEASES: Final = frozenset(
    {
        ("response.function_call_arguments.done", "name"),  # required by 2.25, unknown to 3.51
        ("input_tokens_details", "cache_write_tokens"),  # required by 3.51, unknown to 2.25
        ("custom_tool_call", "status"),  # sent by the API, typed by no release
        ("logprobs", "bytes"),  # likewise, in the events about text
        ("top_logprobs", "bytes"),
        # Required of a response by the Open Responses specification.
        ("response", "background"),
        ("response", "completed_at"),
        ("response", "frequency_penalty"),
        ("response", "max_tool_calls"),
        ("response", "metadata"),
        ("response", "presence_penalty"),
        ("response", "store"),
        # Of newer releases.
        ("mcp_list_tools", "error"),
        ("image_generation_call", "error"),
        ("response.image_generation_call.partial_image", "background"),
        ("response.image_generation_call.partial_image", "output_format"),
        ("response.image_generation_call.partial_image", "quality"),
        ("response.image_generation_call.partial_image", "size"),
        ("response.reasoning_summary_part.done", "status"),
    }
)
"""Fields that belong where they are though the installed package may not type them, each with the `type` of the object
that has it, or the field that holds the object."""


def stray_fields(body: Mapping[str, object]) -> list[str]:
    """Find the fields of an event that its model does not know, at any depth (rule R14).

    Args:
        body: The event.

    Returns:
        The way to each, as in `item.content[0].text`.

    Raises:
        UnknownEventError: If the package has no event of that name.
        pydantic.ValidationError: If the event is not what its model wants.
    """
    return list(_strays(to_openai(body), "", ""))


def _strays(value: object, way: str, held_by: str) -> Iterator[str]:
    """Walk a validated value, and give the ways to the extra fields of its models."""
    if isinstance(value, BaseModel):
        kind = str(getattr(value, "type", held_by))
        for name in value.model_extra or {}:
            if (kind, name) not in IN_OTHER_RELEASES:
                yield f"{way}{name}"
        for name in type(value).model_fields:
            yield from _strays(getattr(value, name), f"{way}{name}.", name)
    elif isinstance(value, list):
        for place, entry in enumerate(cast("list[object]", value)):
            yield from _strays(entry, f"{way.removesuffix('.')}[{place}].", held_by)
