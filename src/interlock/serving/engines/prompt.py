"""What engines read of a conversation, and an estimate of its tokens.

Images are estimated by their pixels, audio by its length, and text and files by their bytes.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Mapping
from math import ceil
from typing import TYPE_CHECKING, Final

from interlock.events.items import ITEMS, ClientCall
from interlock.events.json import as_text, dumps, is_array, is_object
from interlock.serving.requests.input_items import JsonItem, is_summary, text_of

if TYPE_CHECKING:
    from interlock.serving.engines.engine import Turn

TOO_LONG: Final = "Your input exceeds the context window of this model. Please adjust your input and try again."

NAMED_CALLS: Final = frozenset(kind for kind, item in ITEMS.items() if issubclass(item, ClientCall))
"""The calls of the tools that a client names."""
CLIENT_OUTPUTS: Final = frozenset(ITEMS[kind].answer for kind in NAMED_CALLS)
SERVER_CALLS: Final = frozenset(kind for kind, item in ITEMS.items() if item.tool_result is not None and item.as_function_call)
"""The calls that a server runs; their items contain the tool's output."""


def call_text(item: JsonItem) -> str:
    """Return the arguments of a call, or the input of a custom tool."""
    return text_of(item.get("arguments", item.get("input")))


def is_client_output(item: JsonItem) -> bool:
    """Return whether an item is the output of a call that the client ran."""
    return item.get("type") in CLIENT_OUTPUTS


def is_from_user(item: JsonItem) -> bool:
    """Return whether an item is a message of the user, and not a summary of the conversation."""
    return item.get("type") == "message" and item.get("role") == "user" and not is_summary(text_of(item.get("content")))


def output_text(item: JsonItem) -> str:
    """Return the output of a server's or client's tool; empty if there is none."""
    if is_client_output(item):
        return text_of(item.get("output"))
    return ITEMS[str(item["type"])].result_text(item) or ""


# The estimate.

BYTES_PER_TOKEN: Final = 4
PATCH: Final = 32
"""The width and height in pixels of the part of an image that is a token."""
MAX_PATCHES: Final = 1_536
"""The most tokens of an image, because models scale larger ones down, and those of one whose size is unknown."""
BYTES_PER_AUDIO_TOKEN: Final[Mapping[str, int]] = {"wav": 4_800, "pcm16": 4_800}
"""The bytes of a tenth of a second, which is a token, by format: uncompressed with 24,000 samples of two bytes a second."""
COMPRESSED_AUDIO: Final = 1_600
"""The same for compressed formats, at 128 kbit/s."""
BYTES_PER_FILE_TOKEN: Final = 64
"""The bytes of a file that is no text, such as a PDF file with pictures and fonts, per token."""
TEXT_TYPES: Final = ("text/", "application/json", "application/xml")
TEXT_ENDINGS: Final = (".txt", ".md", ".csv", ".json", ".xml", ".html", ".py", ".yaml", ".toml", ".log")
_HEAD: Final = 2**18  # characters of base64 in which the size of an image stands; metadata may precede it


def estimate_prompt(turn: Turn) -> int:
    """Estimate the number of tokens in the prompt of a turn."""
    request, media = turn.request, list[int]()
    _without_media(turn.items, media)
    texts = [request.instructions or "", *map(_text, turn.items)]
    count = sum(map(len, texts)) // BYTES_PER_TOKEN + len(turn.items)
    return count + sum(media) + estimate([request.tools, request.text_format])


def _text(item: JsonItem) -> str:
    """Return what a model reads of an item; a part without text counts as its type."""
    match item.get("type"):
        case "message" | "reasoning":
            return text_of(item.get("content")) or text_of(item.get("summary"))
        case kind if kind in NAMED_CALLS:
            return f"{item.get('name')} {call_text(item)}"
        case _ if is_client_output(item):
            return output_text(item)
        case "image_generation_call":
            return as_text(item.get("revised_prompt"))
        case _:
            return dumps(dict(item)).decode()


def estimate(body: object) -> int:
    """Estimate the number of tokens in the JSON of a request, with the media in it."""
    media: list[int] = []
    return len(dumps(_without_media(body, media))) // BYTES_PER_TOKEN + sum(media)


def _without_media(value: object, media: list[int], key: str = "") -> object:
    """Return a value without its media, and append their tokens; `key` is the name of the member that has the value."""
    if isinstance(value, str):
        tokens = _tokens_of_text(value, key)
        media += [] if tokens is None else [tokens]
        return value if tokens is None else ""
    if is_array(value):
        return [_without_media(each, media) for each in value]
    if not is_object(value):
        return value
    for name, count in _DATA.items():
        if isinstance(value.get(name), str) and (tokens := count(value, key)) is not None:
            media.append(tokens)
            value = {other: each for other, each in value.items() if other != name}
    nested = "image_url" if key == "image_url" else ""
    return {name: _without_media(each, media, nested if name == "url" else name) for name, each in value.items()}


def _tokens_of_text(text: str, key: str) -> int | None:
    """Return the tokens of an image or a file by its URL; None for any other text."""
    if key == "image_url" and text:
        _, found, data = text.partition(";base64,")
        return _image_tokens(data) if found else MAX_PATCHES
    return _file_tokens(text, "") if key == "file_url" and text.startswith("data:") else None


def _file_tokens(text: str, name: str) -> int:
    head, found, _ = text[:200].partition(";base64,")
    kind = head.removeprefix("data:") if found else ""
    size = (len(text) - (len(head) + len(found) if found else 0)) * 3 // 4
    is_text = kind.startswith(TEXT_TYPES) or name.lower().endswith(TEXT_ENDINGS)
    return ceil(size / (BYTES_PER_TOKEN if is_text else BYTES_PER_FILE_TOKEN))


def _audio_tokens(audio: Mapping[str, object], key: str) -> int | None:
    if key != "input_audio":
        return None
    size = len(as_text(audio["data"])) * 3 // 4
    return ceil(size / BYTES_PER_AUDIO_TOKEN.get(as_text(audio.get("format")), COMPRESSED_AUDIO))


_DATA: Final[Mapping[str, Callable[[Mapping[str, object], str], int | None]]] = {
    "data": _audio_tokens,
    "file_data": lambda file, _key: _file_tokens(as_text(file["file_data"]), as_text(file.get("filename"))),
    "result": lambda item, _key: _image_tokens(as_text(item["result"])) if item.get("type") == "image_generation_call" else None,
}
"""Counts the tokens of a member that may be media, by its name; returns None if it is not."""


def _image_tokens(data: str) -> int:
    """Return the tokens of an image in base64: one for each patch, up to the most."""
    try:
        head = base64.b64decode(data[:_HEAD][: len(data[:_HEAD]) // 4 * 4])
    except (ValueError, binascii.Error):
        return MAX_PATCHES
    size = image_size(head)
    if size is None or 0 in size:
        return MAX_PATCHES
    return max(min(ceil(size[0] / PATCH) * ceil(size[1] / PATCH), MAX_PATCHES), 1)


def image_size(head: bytes) -> tuple[int, int] | None:
    """Return the width and height of a PNG, GIF, WebP or JPEG image, from its first bytes; None if they are not there."""
    try:
        if head.startswith(b"\x89PNG"):
            return struct.unpack(">II", head[16:24])
        if head.startswith(b"GIF8"):
            return struct.unpack("<HH", head[6:10])
        if head[8:12] == b"WEBP":
            return _webp_size(head)
        return _jpeg_size(head) if head.startswith(b"\xff\xd8") else None
    except (struct.error, IndexError):
        return None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    match head[12:16]:
        case b"VP8X":
            return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
        case b"VP8L":
            (bits,) = struct.unpack("<I", head[21:25])
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            width, height = struct.unpack("<HH", head[26:30])
            return width & 0x3FFF, height & 0x3FFF
        case _:
            return None


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    """Return the size in the frame header, which follows other segments, each with its length."""
    place = 2
    while head[place] == 0xFF:  # noqa: PLR2004 - begins each segment
        marker = head[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # noqa: PLR2004 - the frame headers, without tables
            height, width = struct.unpack(">HH", head[place + 5 : place + 9])
            return width, height
        place += 2 + int.from_bytes(head[place + 2 : place + 4], "big")
    return None
