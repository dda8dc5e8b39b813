"""Convert events and responses to the models of the installed `openai` package.

Some releases declare other types than the API sends. The conversion follows the types of the installed package, not its version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, cast, get_args

from attrs import frozen

from interlock.events.dialects import from_open_responses
from interlock.events.json import is_array, is_object, members

try:
    from openai import BaseModel
    from openai.types.responses import Response, ResponseStreamEvent
    from openai.types.responses.response_function_web_search import ResponseFunctionWebSearch
    from openai.types.responses.response_output_item import McpCall
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("interlock.events.conversion needs the OpenAI SDK: pip install openai", name=error.name) from error


class UnknownEventError(ValueError):
    """The installed `openai` package has no event of that name."""


def _literal(model: type[BaseModel]) -> str:
    """Return the only value of a model's field `type`."""
    (name,) = get_args(model.model_fields["type"].annotation)
    return str(name)


_UNION: Final = cast("tuple[type[BaseModel], ...]", get_args(get_args(ResponseStreamEvent)[0]))
EVENT_MODELS: Final[Mapping[str, type[BaseModel]]] = {_literal(model): model for model in _UNION}
"""The installed package's event models, by event name."""


@frozen
class Release:
    """Types that differ between releases of the `openai` package.

    Args:
        mcp_error_is_text: Whether the `error` of an `mcp_call` is a string; the API sends an object.
        web_search_can_be_incomplete: Whether a web search can have the status `incomplete`; if not, it becomes `failed`.
    """

    mcp_error_is_text: bool
    web_search_can_be_incomplete: bool

    @classmethod
    def installed(cls) -> Release:
        """Inspect the types of the installed package."""
        return cls(
            mcp_error_is_text=str in get_args(McpCall.model_fields["error"].annotation),
            web_search_can_be_incomplete="incomplete" in get_args(ResponseFunctionWebSearch.model_fields["status"].annotation),
        )

    def adapt(self, body: Mapping[str, object]) -> dict[str, object]:
        """Return a copy of an event or a response, with values that the types of this release accept."""
        new = dict(body)
        if body.get("type") == "response.function_call_arguments.done":
            new.setdefault("name", "")
        if is_object(item := body.get("item")):
            new["item"] = self._item(item)
        if is_object(response := body.get("response")):
            new["response"] = self.adapt(response)
        if is_array(output := body.get("output")) and body.get("object") == "response":
            new["output"] = [self._item(members(entry)) for entry in output]
        if is_object(usage := body.get("usage")):
            new["usage"] = _usage(usage)
        return new

    def _item(self, item: Mapping[str, object]) -> Mapping[str, object]:
        match item.get("type"):
            case "mcp_call" if self.mcp_error_is_text and is_object(error := item.get("error")):
                return {**item, "error": _describe(error)}
            case "web_search_call" if item.get("status") == "incomplete" and not self.web_search_can_be_incomplete:
                return {**item, "status": "failed"}
            case _:
                return item


def _describe(error: Mapping[str, object]) -> str:
    """Return the error of an MCP call as a string: its message, the texts of its content, or its JSON."""
    if isinstance(message := error.get("message"), str):
        return message
    if is_array(content := error.get("content")):
        return "\n".join(str(entry["text"]) for entry in map(members, content) if "text" in entry)
    return json.dumps(error, ensure_ascii=False)


def _usage(usage: Mapping[str, object]) -> dict[str, object]:
    """Add `cache_write_tokens`, which newer releases require, unless it is there."""
    details = usage.get("input_tokens_details")
    if not is_object(details):
        return dict(usage)
    return {**usage, "input_tokens_details": {"cache_write_tokens": 0, **details}}


INSTALLED: Final = Release.installed()
"""The installed release."""


def to_openai(body: Mapping[str, object]) -> ResponseStreamEvent:
    """Return an event, in either dialect, as the installed package's validated model.

    Raises:
        UnknownEventError: The package has no event of that name.
        pydantic.ValidationError: The event does not validate (strict mode).
    """
    body = from_open_responses(body)
    model = EVENT_MODELS.get(str(body.get("type")))
    if model is None:
        raise UnknownEventError(f"the installed openai package has no event {body.get('type')!r}")
    return cast("ResponseStreamEvent", model.model_validate(INSTALLED.adapt(body), strict=True))


def response_to_openai(body: Mapping[str, object]) -> Response:
    """Return a response as the installed package's validated model.

    Raises:
        pydantic.ValidationError: The response does not validate (strict mode).
    """
    return Response.model_validate(INSTALLED.adapt(body), strict=True)
