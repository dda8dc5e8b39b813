"""Content parts, annotations and log probabilities, and three types for fields that may be omitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

T = TypeVar("T")
S = TypeVar("S", bound=Struct)

Maybe: TypeAlias = Annotated[T | UnsetType | None, Meta(extra={"presence": "optional"})]
"""A field that may be omitted. The API never sends null for it; clients may, with the same meaning."""
Nullable: TypeAlias = Annotated[T | UnsetType | None, Meta(extra={"presence": "nullable"})]
"""A field that may be omitted or null in requests and responses."""
Outbound: TypeAlias = Annotated[T | UnsetType | None, Meta(extra={"presence": "outbound"})]
"""A field that a request may omit or set to null, and that a response always has."""

SECRET: Final = Meta(extra={"secret": "value"})
"""Marks a field that a response leaves out, because responses are stored and logged. It can be omitted."""
SECRET_USER: Final = Meta(extra={"secret": "user"})
"""Marks a URL that a response shows without a user and a password."""

Json: TypeAlias = Any
"""Free-form JSON: a schema, the arguments or the result of a tool."""
Number: TypeAlias = int | float
"""A number; integers stay integers."""


def kinds_of(base: type[S]) -> Iterator[type[S]]:
    """Yield the leaf classes below a base, or the base itself if it has no subclasses."""
    below = base.__subclasses__()
    for kind in below:
        yield from kinds_of(kind)
    if not below:
        yield base


# The annotations of a text.


class FileCitation(Struct, tag="file_citation", kw_only=True):
    """A citation of a file."""

    file_id: str
    filename: str
    index: int


class UrlCitation(Struct, tag="url_citation", kw_only=True):
    """A citation of a web page."""

    start_index: int
    end_index: int
    title: str
    url: str


class ContainerFileCitation(Struct, tag="container_file_citation", kw_only=True):
    """A citation of a file in the container of a code interpreter or a shell."""

    container_id: str
    file_id: str
    filename: str
    start_index: int
    end_index: int


class FilePath(Struct, tag="file_path", kw_only=True):
    """The path of a file that the model wrote."""

    file_id: str
    index: int


AnyAnnotation: TypeAlias = FileCitation | UrlCitation | ContainerFileCitation | FilePath


def set_position(annotation: Mapping[str, object], start: int, end: int) -> Mapping[str, object]:
    """Return an annotation with its position in the part, in characters, if its type has a position."""
    match annotation.get("type"):
        case "url_citation" | "container_file_citation":
            return {**annotation, "start_index": start, "end_index": end}
        case "file_citation":
            return {**annotation, "index": end}
        case _:
            return annotation


# The log probabilities of a token: those of events may omit what those of parts have.


class TopLogprob(Struct, kw_only=True):
    """An alternative token with its log probability, in an event."""

    token: str
    logprob: Number
    bytes: Maybe[list[int]] = UNSET


class Logprob(Struct, kw_only=True):
    """A token with its log probability, in an event. OpenAI sends `bytes`; the event types of its package lack it."""

    token: str
    logprob: Number
    bytes: Maybe[list[int]] = UNSET
    top_logprobs: Maybe[list[TopLogprob]] = UNSET


class PartTopLogprob(Struct, kw_only=True):
    """An alternative token with its log probability, in a part."""

    token: str
    logprob: Number
    bytes: list[int] = []


class PartLogprob(Struct, kw_only=True):
    """A token with its log probability, in a part."""

    token: str
    logprob: Number
    bytes: list[int] = []
    top_logprobs: list[PartTopLogprob] = []


# The parts of a response.


class Part(Struct, tag_field="type", kw_only=True, gc=False):
    """A part of an item's content."""


class OutputText(Part, tag="output_text", kw_only=True):
    """Text of an answer."""

    text: str
    annotations: Outbound[list[AnyAnnotation]] = []
    logprobs: Nullable[list[PartLogprob]] = []


class OutputRefusal(Part, tag="refusal", kw_only=True):
    """The model's refusal to answer."""

    refusal: str


class ReasoningText(Part, tag="reasoning_text", kw_only=True):
    """Text of the model's reasoning."""

    text: str


class SummaryText(Part, tag="summary_text", kw_only=True):
    """Text of a reasoning summary."""

    text: str


# The parts of a request.


class CacheBreakpoint(Struct, kw_only=True):
    """The end of a prompt prefix to cache."""

    mode: Literal["explicit"]
    ttl: Maybe[Literal["30m", "12h"]] = UNSET


class InputPart(Part, kw_only=True):
    """A part that a client sends."""

    prompt_cache_breakpoint: Maybe[CacheBreakpoint] = UNSET


class InputText(InputPart, tag="input_text", kw_only=True):
    """Text of a user, a developer or a tool."""

    text: str


class InputImage(InputPart, tag="input_image", kw_only=True):
    """An image, by its URL or the id of a file."""

    detail: Maybe[Literal["low", "high", "auto", "original"]] = UNSET
    file_id: Nullable[str] = UNSET
    image_url: Nullable[str] = UNSET


class InputFile(InputPart, tag="input_file", kw_only=True):
    """A file, by its id, its URL or its data."""

    detail: Maybe[Literal["auto", "low", "high"]] = UNSET
    file_data: Maybe[str] = UNSET
    file_id: Nullable[str] = UNSET
    file_url: Maybe[str] = UNSET
    filename: Maybe[str] = UNSET


class Audio(Struct, kw_only=True):
    """Audio data."""

    data: str
    format: str


class InputAudio(InputPart, tag="input_audio", kw_only=True):
    """Audio."""

    input_audio: Audio


class InputVideo(InputPart, tag="input_video", kw_only=True):
    """A video, by its URL. Open Responses has it; no release of the `openai` package does."""

    video_url: str


class ComputerScreenshot(InputPart, tag="computer_screenshot", kw_only=True):
    """A screenshot of a computer that the model uses."""

    detail: Maybe[Literal["low", "high", "auto", "original"]] = UNSET
    file_id: Nullable[str] = UNSET
    image_url: Nullable[str] = UNSET


class PlainText(Part, tag="text", kw_only=True):
    """Text without a role."""

    text: str


class EncryptedContent(Part, tag="encrypted_content", kw_only=True):
    """A message between agents that only the server can read."""

    encrypted_content: str


OutputPart: TypeAlias = OutputText | OutputRefusal | ReasoningText
"""A part of an output item's `content`."""
ContentPart: TypeAlias = (
    OutputText
    | OutputRefusal
    | ReasoningText
    | SummaryText
    | InputText
    | InputImage
    | InputFile
    | InputAudio
    | InputVideo
    | ComputerScreenshot
    | PlainText
    | EncryptedContent
)
"""A part of any item."""
Content: TypeAlias = str | list[ContentPart]
"""A string, or parts."""
