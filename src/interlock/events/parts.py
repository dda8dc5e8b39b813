"""Content parts, annotations and log probabilities, and the three ways in which a field may be left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

T = TypeVar("T")
S = TypeVar("S", bound=Struct)

Maybe: TypeAlias = Annotated[T | UnsetType | None, Meta(extra={"presence": "optional"})]
"""A field that may be left out. The API never says null for it, but a client that sends an item back may: null means the same."""
Nullable: TypeAlias = Annotated[T | UnsetType | None, Meta(extra={"presence": "nullable"})]
"""A field that may be left out or null, from either side."""
Outbound: TypeAlias = Annotated[T | UnsetType | None, Meta(extra={"presence": "outbound"})]
"""A field that a request may leave out, or say null for, and that a response always has."""

Json: TypeAlias = Any
"""Free-form JSON: a schema, the arguments or the result of a tool."""
Number: TypeAlias = int | float
"""A number, written as it was read."""


def kinds_of(base: type[S]) -> Iterator[type[S]]:
    """Yield the types that are declared with a base, but for those that are bases themselves."""
    below = base.__subclasses__()
    for kind in below:
        yield from kinds_of(kind)
    if not below:
        yield base


# The annotations of a text.


class Annotation(Struct, tag_field="type", kw_only=True):
    """What a stretch of an answer's text refers to."""


class FileCitation(Annotation, tag="file_citation", kw_only=True):
    """A file that was searched."""

    file_id: str
    filename: str
    index: int


class UrlCitation(Annotation, tag="url_citation", kw_only=True):
    """A page of the web."""

    start_index: int
    end_index: int
    title: str
    url: str


class ContainerFileCitation(Annotation, tag="container_file_citation", kw_only=True):
    """A file in the container of a code interpreter or a shell."""

    container_id: str
    file_id: str
    filename: str
    start_index: int
    end_index: int


class FilePath(Annotation, tag="file_path", kw_only=True):
    """A file that the model wrote."""

    file_id: str
    index: int


AnyAnnotation: TypeAlias = FileCitation | UrlCitation | ContainerFileCitation | FilePath


def placed(annotation: Mapping[str, object], start: int, end: int) -> Mapping[str, object]:
    """Return an annotation with the fields that say where it stands; one of another type as it is.

    Args:
        annotation: In the API's shape, with its `type`.
        start: Where the text that it is about begins, in characters of the part.
        end: Where that text ends.
    """
    match annotation.get("type"):
        case "url_citation" | "container_file_citation":
            return {**annotation, "start_index": start, "end_index": end}
        case "file_citation":
            return {**annotation, "index": end}
        case _:
            return annotation


# The log probabilities of a token.


class TopLogprob(Struct, kw_only=True):
    """A token that might have stood in the place of another."""

    token: str
    logprob: Number
    bytes: Maybe[list[int]] = UNSET


class Logprob(Struct, kw_only=True):
    """A token of a text with its log probability. The events of the `openai` package know no `bytes`; the API sends them."""

    token: str
    logprob: Number
    bytes: Maybe[list[int]] = UNSET
    top_logprobs: Maybe[list[TopLogprob]] = UNSET


# The parts of a response.


class Part(Struct, tag_field="type", kw_only=True, gc=False):
    """A part of an item's content."""


class OutputText(Part, tag="output_text", kw_only=True):
    """Text of an answer."""

    text: str
    annotations: Outbound[list[AnyAnnotation]] = []
    logprobs: Nullable[list[Logprob]] = []


class Refusal(Part, tag="refusal", kw_only=True):
    """The model's refusal to answer."""

    refusal: str


class ReasoningText(Part, tag="reasoning_text", kw_only=True):
    """Text of a model's reasoning."""

    text: str


class SummaryText(Part, tag="summary_text", kw_only=True):
    """Text of the summary of a reasoning."""

    text: str


# The parts of a request.


class CacheBreakpoint(Struct, kw_only=True):
    """The end of a prompt's part that the cache shall keep."""

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
    """The data of a sound."""

    data: str
    format: str


class InputAudio(InputPart, tag="input_audio", kw_only=True):
    """A sound."""

    input_audio: Audio


class InputVideo(InputPart, tag="input_video", kw_only=True):
    """A video, by its URL. Open Responses has it, and no release of the `openai` package."""

    video_url: str


class ComputerScreenshot(InputPart, tag="computer_screenshot", kw_only=True):
    """The screen of a computer that the model uses."""

    detail: Maybe[Literal["low", "high", "auto", "original"]] = UNSET
    file_id: Nullable[str] = UNSET
    image_url: Nullable[str] = UNSET


class PlainText(Part, tag="text", kw_only=True):
    """Text of nobody in particular."""

    text: str


class EncryptedContent(Part, tag="encrypted_content", kw_only=True):
    """What one agent says to another, for the server alone to read."""

    encrypted_content: str


OutputPart: TypeAlias = OutputText | Refusal | ReasoningText
"""A part of an output item's `content`."""
ContentPart: TypeAlias = (
    OutputText
    | Refusal
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
"""A text, or parts."""
