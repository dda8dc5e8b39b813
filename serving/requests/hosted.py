"""The part of a request that is ours where a host validates requests by itself: the items and tools that the host does not know.

Messages, reasoning, function calls and functions are the host's to judge, in its own words; of everything else the type must be
known and the shape right, as in a server of our own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Final, TypeAlias

from attrs import frozen
from pydantic import Field, Tag, ValidationError

from interlock.serving.requests.body import require_shallow
from interlock.serving.requests.compaction import require_last_trigger
from interlock.serving.requests.conversation import Item, read_input
from interlock.serving.requests.items import (
    ITEMS,
    MOST_ITEMS,
    ApprovalRequest,
    ApprovalResponse,
    CallOutput,
    Carried,
    Compaction,
    CustomToolCall,
    Reference,
    type_of,
)
from interlock.serving.requests.parameters import ContextManagements
from interlock.serving.requests.refusals import refusal
from interlock.serving.requests.shapes import AnyTool, CallName, LongText, Shape, by_type, text_or
from interlock.serving.requests.tools import TOOLS, Custom, McpServer, Namespace, OtherTool
from interlock.serving.requests.values import elements, members

__all__ = ["HostedRequest", "read_hosted"]


class Left(Shape):
    """What the host judges, but for names that it cannot render."""

    name: CallName | None = None
    namespace: CallName | None = None


class Sealed(Shape):
    """Reasoning, of which the host judges all but what is sealed."""

    encrypted_content: LongText | None = None


ITEM_TAGS: Final[Mapping[str, str]] = MappingProxyType(
    {**ITEMS, **dict.fromkeys(("message", "function_call", "function_call_output"), "<left>"), "reasoning": "<sealed>"}
)
ITEM: TypeAlias = Annotated[
    Annotated[Left, Tag("<left>")]
    | Annotated[CustomToolCall, Tag("<custom_tool_call>")]
    | Annotated[CallOutput, Tag("<output>")]
    | Annotated[Reference, Tag("<reference>")]
    | Annotated[ApprovalRequest, Tag("<approval_request>")]
    | Annotated[ApprovalResponse, Tag("<approval_response>")]
    | Annotated[Sealed, Tag("<sealed>")]
    | Annotated[Compaction, Tag("<compaction>")]
    | Annotated[Carried, Tag("<carried>")],
    by_type(ITEM_TAGS, type_of),
]
TOOL_TAGS: Final[Mapping[str, str]] = MappingProxyType(
    {kind: tag if kind in ("custom", "namespace", "mcp") else "<left>" for kind, tag in TOOLS.items()}
)
TOOL: TypeAlias = Annotated[
    Annotated[Left, Tag("<left>")]
    | Annotated[Custom, Tag("<custom>")]
    | Annotated[Namespace, Tag("<namespace>")]
    | Annotated[McpServer, Tag("<mcp>")]
    | Annotated[OtherTool, Tag("<other>")],
    by_type(TOOL_TAGS, otherwise="<other>"),
]
LIST: TypeAlias = Annotated[list[ITEM], Field(fail_fast=True, max_length=MOST_ITEMS)]
INPUT: TypeAlias = Annotated[Annotated[LongText, Tag("<text>")] | Annotated[LIST, Tag("<array>")], text_or("<array>")]


class Ours(Shape):
    """The parameters that hold items and tools."""

    input: INPUT | None = None
    context_management: ContextManagements | None = None
    tools: Annotated[list[TOOL], Field(fail_fast=True)] | None = None
    tool_choice: Annotated[Annotated[str, Tag("<text>")] | Annotated[AnyTool, Tag("<object>")], text_or("<object>")] | None = None


@frozen
class HostedRequest:
    """The items and tools of a request.

    Args:
        items: Its input, each item with its type; a text is a user's message.
        tools: Its tools.
    """

    items: tuple[Item, ...]
    tools: Sequence[Mapping[str, object]]


def read_hosted(body: Mapping[str, object]) -> HostedRequest:
    """Return the items and tools of a request.

    Args:
        body: Of `POST /v1/responses`.

    Raises:
        ApiError: 400; an item is of a type that nobody knows, or one that is not the host's has not its shape, or the body is
            nested too deeply.
    """
    require_shallow(body)
    try:
        Ours.model_validate({name: body[name] for name in Ours.model_fields if name in body})
    except ValidationError as error:
        raise refusal(error) from None
    items = read_input(body.get("input"))
    require_last_trigger(items)
    return HostedRequest(items, [members(tool) for tool in elements(body.get("tools"))])
