"""The body of `POST /v1/responses`, read and judged, as one frozen object that the rest of serving can rely on.

The shape of each parameter is in `interlock.serving.requests.parameters`; what no single parameter can say follows here in a few
rules. This module knows nothing of the models that are served, of stored responses, or of the size of bodies: the server
judges those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from attrs import field, frozen
from pydantic import ValidationError

from interlock.events.resource import without_secrets
from interlock.serving.errors import invalid, missing
from interlock.serving.requests.compaction import require_last_trigger, threshold_of
from interlock.serving.requests.conversation import STORED_NOWHERE, Item, join, read_input, require_input
from interlock.serving.requests.conversations import require_alone
from interlock.serving.requests.parameters import Parameters, id_of
from interlock.serving.requests.refusals import QUOTED, refusal, too_long
from interlock.serving.requests.schema import flaw
from interlock.serving.requests.tools import CALLED, MOST_TOOLS
from interlock.serving.requests.values import elements, members

__all__ = ["CreateResponse", "read_request"]


@frozen
class CreateResponse:
    """A valid request for a response; what was not given has the API's default.

    Args:
        raw: The whole body, as it came; `interlock.events.resource.response_settings` echoes it. It alone holds what only an MCP
            server is to get (`authorization`, `headers`), and so no engine renders tools from it.
        model: The name of the model that is asked for.
        input: The request's own input items, each with its type; a string input is a user's message.
        instructions: Instructions that precede the conversation, for this response alone.
        stream: Whether the answer is a stream of events.
        store: Whether the response may be asked for again, and gone on from.
        background: Whether the response runs on without a connection.
        previous_response_id: The response that this one goes on from.
        conversation_id: The conversation that this one goes on from and is added to; never given beside the former.
        max_output_tokens: How many tokens the response may have, reasoning included; None for no limit.
        max_tool_calls: How many calls of hosted tools it may have; None for no limit.
        parallel_tool_calls: Whether one turn may call several tools.
        tools: The tools, MCP servers without `authorization` and `headers`.
        tool_choice: `none`, `auto`, `required`, or an object with a `type`.
        include: What the response shall carry beside the usual.
        top_logprobs: How many alternatives each token has in its log probabilities, 0 to 20.
        text_format: The form of the answer: an object with the type `text`, `json_object` or `json_schema`.
        compact_threshold: The tokens of a prompt beyond which the conversation is compacted before the model answers; None for
            never.
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
    conversation_id: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    parallel_tool_calls: bool
    tools: tuple[Mapping[str, object], ...]
    tool_choice: str | Mapping[str, object]
    include: tuple[str, ...]
    top_logprobs: int
    text_format: Mapping[str, object]
    reasoning_effort: str | None
    compact_threshold: int | None

    def conversation(self, previous: Sequence[Item] = (), stored: Mapping[str, Item] = STORED_NOWHERE) -> tuple[Item, ...]:
        """Return what the model is asked to go on from: what came before, and this request's input.

        Args:
            previous: The conversation until the previous response, its output included.
            stored: Other items that references in the input may mean, by their ids.

        Raises:
            ApiError: 400 if a tool's output answers no call before it, 404 if a reference means no item that there is.
        """
        return join(previous, self.input, stored)

    @property
    def compacts_only(self) -> bool:
        """Whether the conversation is to be compacted and nothing else."""
        return bool(self.input) and self.input[-1]["type"] == "compaction_trigger"

    @property
    def wants_logprobs(self) -> bool:
        """Whether the text of messages shall carry its log probabilities."""
        return "message.output_text.logprobs" in self.include


def read_request(raw: Mapping[str, object]) -> CreateResponse:
    """Judge a body that was read already.

    Args:
        raw: The body; it is kept, and must not change any more.

    Raises:
        ApiError: 400; it names the parameter that is wrong.
    """
    if raw.get("model") is None:
        raise missing("model")
    _require_few_tools(raw.get("tools"))
    try:
        parameters = Parameters.model_validate(raw)
    except ValidationError as error:
        raise refusal(error) from None
    request = _create_response(raw, parameters)
    for require in RULES:
        require(request)
    return request


def _create_response(raw: Mapping[str, object], given: Parameters) -> CreateResponse:
    """Return what serving needs of a valid body."""
    settings = members(raw.get("text"))
    return CreateResponse(
        raw=raw,
        model=given.model,
        input=read_input(raw.get("input")),
        instructions=given.instructions,
        stream=given.stream is True,
        store=given.store is not False,
        background=given.background is True,
        previous_response_id=given.previous_response_id,
        conversation_id=id_of(given.conversation),
        max_output_tokens=given.max_output_tokens,
        max_tool_calls=given.max_tool_calls,
        parallel_tool_calls=given.parallel_tool_calls is not False,
        tools=tuple(without_secrets(members(tool)) for tool in elements(raw.get("tools"))),
        tool_choice=_choice(raw.get("tool_choice")),
        include=tuple(given.include or ()),
        top_logprobs=given.top_logprobs or 0,
        text_format=members(settings.get("format")) or {"type": "text"},
        reasoning_effort=given.reasoning.effort if given.reasoning else None,
        compact_threshold=threshold_of(raw),
    )


def _choice(given: object) -> str | Mapping[str, object]:
    return given if isinstance(given, str) else members(given) or "auto"


def _require_few_tools(tools: object) -> None:
    """Refuse too many tools before they are checked, those of namespaces counted."""
    count = sum(1 + len(elements(members(tool).get("tools"))) for tool in elements(tools))
    if count > MOST_TOOLS:
        raise too_long("tools", MOST_TOOLS, count)


def _require_input(request: CreateResponse) -> None:
    require_input(request.input, continues=request.previous_response_id is not None or request.conversation_id is not None)


def _require_one_past(request: CreateResponse) -> None:
    require_alone(request.conversation_id, request.previous_response_id, stored=request.store)


def _require_last_trigger(request: CreateResponse) -> None:
    require_last_trigger(request.input)


def _require_distinct_names(request: CreateResponse) -> None:
    """Refuse two tools of one name, among the tools themselves and in each namespace."""
    seen: set[tuple[str, object]] = set()
    for param, tool in declared_tools(request.tools):
        if tool["type"] in CALLED:
            name = (param.rpartition("[")[0], tool["name"])
            if name in seen:
                raise invalid(f"{param}.name", f"Two tools are named '{tool['name']}'.", "duplicate_tool_name")
            seen.add(name)


def _require_schemas(request: CreateResponse) -> None:
    """Refuse what is no JSON schema where one must be: the parameters of a strict function, the form of an answer."""
    if request.text_format.get("type") == "json_schema":
        _require_schema("text.format.schema", request.text_format["schema"])
    for param, tool in declared_tools(request.tools):
        if tool["type"] == "function" and tool.get("strict") is True and tool.get("parameters") is not None:
            _require_schema(f"{param}.parameters", tool["parameters"])


def _require_schema(param: str, schema: object) -> None:
    found = flaw(schema)
    if found is not None:
        raise invalid(param, f"Invalid schema for '{param}': {found[:QUOTED]}.", "invalid_json_schema")


def _require_chosen_tool(request: CreateResponse) -> None:
    """Refuse a choice of a tool that is not declared."""
    choice = request.tool_choice
    if choice == "required" and not request.tools:
        raise invalid("tool_choice", "Tool choice 'required' must be specified with 'tools' parameter.")
    declared = [tool for _, tool in declared_tools(request.tools)]
    named = {(tool["type"], tool["name"]) for tool in declared if tool["type"] in CALLED}
    labels = {tool["server_label"] for tool in request.tools if tool["type"] == "mcp"}
    kinds = {tool["type"] for tool in declared}
    for param, tool in _chosen(members(choice)):
        kind = tool["type"]
        if kind in CALLED and (kind, tool.get("name")) not in named:
            raise invalid(f"{param}.name", f"'{tool.get('name')}' is not among the 'tools'.")
        if kind == "mcp" and "server_label" in tool and tool["server_label"] not in labels:
            raise invalid(f"{param}.server_label", f"'{tool['server_label']}' is not among the 'tools'.")
        if kind not in kinds:
            raise invalid(param, f"Tool choice '{kind}' not found in 'tools' parameter.")


def _require_store(request: CreateResponse) -> None:
    if request.background and not request.store:
        raise invalid("background", "A response in the background needs 'store' to be true.")


def _chosen(choice: Mapping[str, object]) -> Iterable[tuple[str, Mapping[str, object]]]:
    """Return the tools that an object of `tool_choice` names, each with its path."""
    if choice.get("type") != "allowed_tools":
        return [("tool_choice", choice)] if choice else []
    return [(f"tool_choice.tools[{index}]", members(tool)) for index, tool in enumerate(elements(choice["tools"]))]


def declared_tools(tools: Iterable[object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield every tool of a valid request with its path, those of namespaces after their namespace."""
    for index, tool in enumerate(map(members, tools)):
        yield f"tools[{index}]", tool
        if tool["type"] == "namespace":
            inner = map(members, elements(tool.get("tools")))
            yield from ((f"tools[{index}].tools[{at}]", each) for at, each in enumerate(inner))


RULES: Final = (
    _require_input,
    _require_one_past,
    _require_last_trigger,
    _require_distinct_names,
    _require_schemas,
    _require_chosen_tool,
    _require_store,
)
"""What no single parameter can say."""
