"""The body of `POST /v1/responses`, read and judged, as one frozen object that the rest of serving can rely on.

The shape of each parameter is in `interlock.serving.requests.fields`; what no single parameter can say follows here in a few
rules. This module knows nothing of the models that are served, of stored responses, or of the size of bodies: the server
judges those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar, cast

from attrs import field, frozen

from interlock.serving.requests.body import read_object
from interlock.serving.requests.checks import elements, invalid, members, missing, optional
from interlock.serving.requests.conversation import STORED_NOWHERE, Item, join, read_input
from interlock.serving.requests.fields import CALLED, FIELDS

__all__ = ["CreateResponse", "parse_request", "read_request"]

T = TypeVar("T")


@frozen
class CreateResponse:
    """A valid request for a response; what was not given has the API's default.

    Args:
        raw: The whole body, as it came; `interlock.events.resource.response_settings` echoes it.
        model: The name of the model that is asked for.
        input: The request's own input items, each with its type; a string input is a user's message.
        instructions: What the model is told first, for this response alone.
        stream: Whether the answer is a stream of events.
        store: Whether the response may be asked for again, and gone on from.
        background: Whether the response runs on without a connection.
        previous_response_id: The response that this one goes on from.
        max_output_tokens: How many tokens the response may have, reasoning included; None for no limit.
        max_tool_calls: How many calls of hosted tools it may have; None for no limit.
        parallel_tool_calls: Whether one turn may call several tools.
        tools: The tools, as they came.
        tool_choice: `none`, `auto`, `required`, or an object with a `type`.
        include: What the response shall carry beside the usual.
        top_logprobs: How many alternatives each token has in its log probabilities, 0 to 20.
        text_format: The form of the answer: an object with the type `text`, `json_object` or `json_schema`.
        reasoning_effort: One of `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`, or None.
    """

    raw: Mapping[str, object] = field(repr=False)
    model: str
    input: tuple[Item, ...]
    instructions: str | None
    stream: bool
    store: bool
    background: bool
    previous_response_id: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    parallel_tool_calls: bool
    tools: tuple[Mapping[str, object], ...]
    tool_choice: str | Mapping[str, object]
    include: tuple[str, ...]
    top_logprobs: int
    text_format: Mapping[str, object]
    reasoning_effort: str | None

    def conversation(self, previous: Sequence[Item] = (), stored: Mapping[str, Item] = STORED_NOWHERE) -> tuple[Item, ...]:
        """Give what the model is asked to go on from: what came before, and this request's input.

        Args:
            previous: The conversation until the previous response, its output included.
            stored: Other items that references in the input may mean, by their ids.

        Raises:
            ApiError: 400; a tool's output answers no call of the conversation.
        """
        return join(previous, self.input, stored)

    @property
    def wants_logprobs(self) -> bool:
        """Whether the text of messages shall carry its log probabilities."""
        return "message.output_text.logprobs" in self.include


def parse_request(body: bytes) -> CreateResponse:
    """Read and judge the body of a request.

    Args:
        body: JSON in UTF-8.

    Raises:
        ApiError: 400; it names the parameter that is wrong.
    """
    return read_request(read_object(body))


def read_request(raw: Mapping[str, object]) -> CreateResponse:
    """Judge a body that was read already.

    Args:
        raw: The body; it is kept, and must not change any more.

    Raises:
        ApiError: 400; it names the parameter that is wrong.
    """
    if raw.get("model") is None:
        raise missing("model")
    for name, check in FIELDS.items():
        optional(check)(name, raw.get(name))
    request = _create_response(raw)
    _require_input(request)
    _require_chosen_tool(request)
    _require_store(request)
    return request


def _create_response(raw: Mapping[str, object]) -> CreateResponse:
    """Pick what serving needs from a body whose fields are all valid."""
    settings = _given(raw, "text", cast("Mapping[str, object]", {}))
    return CreateResponse(
        raw=raw,
        model=str(raw["model"]),
        input=read_input(raw.get("input")),
        instructions=_given(raw, "instructions", cast("str | None", None)),
        stream=_given(raw, "stream", default=False),
        store=_given(raw, "store", default=True),
        background=_given(raw, "background", default=False),
        previous_response_id=_given(raw, "previous_response_id", cast("str | None", None)),
        max_output_tokens=_given(raw, "max_output_tokens", cast("int | None", None)),
        max_tool_calls=_given(raw, "max_tool_calls", cast("int | None", None)),
        parallel_tool_calls=_given(raw, "parallel_tool_calls", default=True),
        tools=tuple(_given(raw, "tools", cast("Sequence[Mapping[str, object]]", ()))),
        tool_choice=_given(raw, "tool_choice", cast("str | Mapping[str, object]", "auto")),
        include=tuple(_given(raw, "include", cast("Sequence[str]", ()))),
        top_logprobs=_given(raw, "top_logprobs", 0),
        text_format=_given(settings, "format", cast("Mapping[str, object]", {"type": "text"})),
        reasoning_effort=_given(_given(raw, "reasoning", cast("Mapping[str, object]", {})), "effort", cast("str | None", None)),
    )


def _given(of: Mapping[str, object], name: str, default: T) -> T:
    """A member that was checked before, so that it has the type of its default; null is the default too."""
    value = of.get(name)
    return default if value is None else cast("T", value)


def _require_input(request: CreateResponse) -> None:
    if not request.input and request.previous_response_id is None:
        message = "One of 'input' and 'previous_response_id' must be given, and 'input' must not be empty without the other."
        raise invalid("input", message, "missing_required_parameter")


def _require_chosen_tool(request: CreateResponse) -> None:
    """Refuse a choice among no tools, and of a function that is not declared."""
    choice = request.tool_choice
    if choice == "required" and not request.tools:
        raise invalid("tool_choice", "'tool_choice' is 'required', but there are no 'tools'.")
    declared = set(_declared(request.tools))
    for param, tool in _chosen(members(choice)):
        if tool.get("type") in CALLED and (tool["type"], tool.get("name")) not in declared:
            raise invalid(f"{param}.name", f"'{tool.get('name')}' is not among the 'tools'.")


def _require_store(request: CreateResponse) -> None:
    if request.background and not request.store:
        raise invalid("background", "A response in the background needs 'store' to be true.")


def _chosen(choice: Mapping[str, object]) -> Iterable[tuple[str, Mapping[str, object]]]:
    """The tools that an object of `tool_choice` names, each with its path."""
    if choice.get("type") != "allowed_tools":
        return [("tool_choice", choice)]
    return [(f"tool_choice.tools[{index}]", members(tool)) for index, tool in enumerate(elements(choice["tools"]))]


def _declared(tools: Iterable[object]) -> Iterable[tuple[object, object]]:
    """Type and name of every tool that the client runs, those of namespaces included."""
    for tool in map(members, tools):
        yield tool.get("type"), tool.get("name")
        if tool.get("type") == "namespace":
            yield from _declared(elements(tool.get("tools")))
