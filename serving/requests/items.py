"""The items of a request's input, each with its shape.

Items that only hosted tools and later releases make are carried as they came, once their ids are strings. An item of a type that
nobody knows is refused, because to pass over it would lose what the client said.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, Tag

from interlock.serving.requests.shapes import (
    AnyTool,
    CallName,
    Identifier,
    LongText,
    Object,
    Objects,
    Shape,
    Some,
    by_type,
    text_or,
)

__all__ = ["Input", "InputItem", "type_of"]

LONGEST_IMAGE: Final = 20_971_520
"""Characters of an image's URL, which may hold the image, as the Open Responses specification limits them."""

LONGEST_FILE: Final = 33_554_432
"""Characters of a file's data, likewise."""

MOST_ITEMS: Final = 5_000
"""Items of one input: more than any context window holds."""

SomeName: TypeAlias = Annotated[CallName, Field(min_length=1)]
Link: TypeAlias = Annotated[str, Field(max_length=LONGEST_IMAGE)]
File: TypeAlias = Annotated[str, Field(max_length=LONGEST_FILE)]


class TextPart(Shape):
    """A part that is text, whoever wrote it."""

    text: LongText


class OutputTextPart(Shape):
    """A part of an answer, as a response has it."""

    text: LongText
    annotations: Objects | None = None
    logprobs: Objects | None = None


class RefusalPart(Shape):
    """A refusal."""

    refusal: LongText


class ImagePart(Shape):
    """An image, by its URL or the id of a file."""

    image_url: Link | None = None
    file_id: Identifier | None = None
    detail: Literal["low", "high", "auto", "original"] | None = None


class FilePart(Shape):
    """A file, by its id, its URL or its data."""

    file_id: Identifier | None = None
    file_data: File | None = None
    file_url: Link | None = None
    filename: LongText | None = None


class Audio(Shape):
    """A sound."""

    data: File
    format: Identifier


class AudioPart(Shape):
    """A part that is a sound."""

    input_audio: Audio


class VideoPart(Shape):
    """A video, by its URL."""

    video_url: Link


PARTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("input_text", "text", "summary_text", "reasoning_text"), "<text>"),
        "output_text": "<output_text>",
        "refusal": "<refusal>",
        **dict.fromkeys(("input_image", "computer_screenshot"), "<image>"),
        "input_file": "<file>",
        "input_audio": "<audio>",
        "input_video": "<video>",
    }
)
"""The tag of each type of part."""

Part: TypeAlias = Annotated[
    Annotated[TextPart, Tag("<text>")]
    | Annotated[OutputTextPart, Tag("<output_text>")]
    | Annotated[RefusalPart, Tag("<refusal>")]
    | Annotated[ImagePart, Tag("<image>")]
    | Annotated[FilePart, Tag("<file>")]
    | Annotated[AudioPart, Tag("<audio>")]
    | Annotated[VideoPart, Tag("<video>")],
    by_type(PARTS),
]
Parts: TypeAlias = Annotated[list[Part], Field(fail_fast=True)]
Content: TypeAlias = Annotated[Annotated[LongText, Tag("<text>")] | Annotated[Parts, Tag("<array>")], text_or("<array>")]
"""A text, or the parts of a message or of a tool's output."""


class Item(Shape):
    """What every item may have."""

    id: Identifier | None = None
    status: Identifier | None = None


class Message(Item):
    """A message of anybody's."""

    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    phase: Identifier | None = None


class Reasoning(Item):
    """What the model thought."""

    summary: Parts | None = None
    content: Parts | None = None
    encrypted_content: LongText | None = None


class FunctionCall(Item):
    """A call of a function."""

    call_id: Some
    name: SomeName
    arguments: LongText
    namespace: CallName | None = None


class CustomToolCall(Item):
    """A call of a custom tool."""

    call_id: Some
    name: SomeName
    input: LongText
    namespace: CallName | None = None


class CallOutput(Item):
    """What the client's tool answered."""

    call_id: Some
    output: Content


class Reference(Shape):
    """A reference to an item that the server has."""

    id: Some


class ApprovalRequest(Item):
    """The question whether a call may be made."""

    server_label: SomeName
    name: SomeName
    arguments: LongText


class ApprovalResponse(Item):
    """The answer to it."""

    approval_request_id: Some
    approve: bool


class Compaction(Item):
    """What stands for a conversation that was compacted."""

    encrypted_content: LongText


class Carried(Item):
    """An item that is carried as it came."""

    call_id: Identifier | None = None
    name: CallName | None = None
    server_label: CallName | None = None
    tools: Annotated[list[AnyTool], Field(fail_fast=True)] | None = None
    action: Object | None = None
    outputs: Objects | None = None


CARRIED: Final = frozenset(
    {
        "additional_tools",
        "apply_patch_call",
        "apply_patch_call_output",
        "code_interpreter_call",
        "compaction_trigger",
        "computer_call",
        "computer_call_output",
        "configuration_update",
        "file_search_call",
        "image_generation_call",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_call",
        "mcp_list_tools",
        "program",
        "program_output",
        "shell_call",
        "shell_call_output",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)
"""The types of the items that are carried as they came."""

ITEMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "message": "<message>",
        "reasoning": "<reasoning>",
        "function_call": "<function_call>",
        "function_call_output": "<output>",
        "custom_tool_call": "<custom_tool_call>",
        "custom_tool_call_output": "<output>",
        "item_reference": "<reference>",
        "mcp_approval_request": "<approval_request>",
        "mcp_approval_response": "<approval_response>",
        "compaction": "<compaction>",
        **dict.fromkeys(sorted(CARRIED), "<carried>"),
    }
)
"""The tag of each type that an input item may have: the types of the `openai` package."""


def type_of(item: Mapping[str, object]) -> object:
    """Return the type of an item; one without it is a message if it has a role, or the reference that its id makes.

    Args:
        item: An object of a request's input.

    Returns:
        The type as it was given or as it is understood; None for an item that has neither type nor role nor id.
    """
    given = item.get("type")
    return given if given is not None else "message" if "role" in item else "item_reference" if "id" in item else None


InputItem: TypeAlias = Annotated[
    Annotated[Message, Tag("<message>")]
    | Annotated[Reasoning, Tag("<reasoning>")]
    | Annotated[FunctionCall, Tag("<function_call>")]
    | Annotated[CustomToolCall, Tag("<custom_tool_call>")]
    | Annotated[CallOutput, Tag("<output>")]
    | Annotated[Reference, Tag("<reference>")]
    | Annotated[ApprovalRequest, Tag("<approval_request>")]
    | Annotated[ApprovalResponse, Tag("<approval_response>")]
    | Annotated[Compaction, Tag("<compaction>")]
    | Annotated[Carried, Tag("<carried>")],
    by_type(ITEMS, type_of),
]
Items: TypeAlias = Annotated[list[InputItem], Field(fail_fast=True, max_length=MOST_ITEMS)]
Input: TypeAlias = Annotated[Annotated[LongText, Tag("<text>")] | Annotated[Items, Tag("<array>")], text_or("<array>")]
"""The `input` of a request: a user's message, or items."""
