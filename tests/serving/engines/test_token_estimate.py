"""Media count by what models read of them, and not by the bytes of their base64."""

import base64
import struct

import pytest

from interlock.serving.engines.token_estimate import MAX_PATCHES, estimate, image_size, media_tokens


def png(width, height, rest=b""):
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", width, height) + rest


GIF = b"GIF89a" + struct.pack("<HH", 320, 200)
JPEG = b"\xff\xd8\xff\xe1\x00\x06Exif\xff\xc0\x00\x11\x08" + struct.pack(">HH", 480, 640)
WEBP = {
    b"VP8X": bytes(8) + (99).to_bytes(3, "little") + (49).to_bytes(3, "little"),
    b"VP8L": bytes(4) + b"\x2f" + struct.pack("<I", 99 | 49 << 14),
    b"VP8 ": bytes(7) + b"\x9d\x01\x2a" + struct.pack("<HH", 100, 50),
}


def encoded(data):
    return base64.b64encode(data).decode()


def image(data):
    return {"type": "input_image", "image_url": f"data:image/png;base64,{encoded(data)}"}


@pytest.mark.parametrize(
    ("head", "size"),
    [
        (png(640, 480), (640, 480)),
        (GIF, (320, 200)),
        (JPEG, (640, 480)),
        *((b"RIFF\0\0\0\0WEBP" + kind + rest, (100, 50)) for kind, rest in WEBP.items()),
        (b"RIFF\0\0\0\0WEBPVP9 ", None),
        (png(640, 480)[:20], None),
        (JPEG[:12], None),
        (b"\xff\xd8\x00", None),
        (b"text", None),
        (b"", None),
    ],
)
def test_the_size_of_an_image_is_read_from_its_beginning(head, size) -> None:
    assert image_size(head) == size


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (image(png(640, 480)), 20 * 15),
        (image(png(640, 480, bytes(1_000_000))), 20 * 15),
        (image(png(1, 1)), 1),
        (image(png(10_000, 10_000)), MAX_PATCHES),
        (image(png(0, 9)), MAX_PATCHES),
        ({"type": "input_image", "image_url": "data:image/png;base64,%%%ä"}, MAX_PATCHES),
        ({"type": "input_image", "image_url": "https://example.org/a.png"}, MAX_PATCHES),
        ({"type": "image_url", "image_url": {"url": f"data:image/gif;base64,{encoded(GIF)}"}}, 10 * 7),
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, MAX_PATCHES),
        ({"type": "image_generation_call", "result": encoded(png(64, 64))}, 4),
        ({"type": "input_file", "filename": "a.txt", "file_data": encoded(b"a" * 400)}, 101),
        ({"type": "input_file", "file_data": f"data:text/plain;base64,{encoded(b'a' * 400)}"}, 101),
        ({"type": "file", "file": {"filename": "a.pdf", "file_data": encoded(bytes(6_400))}}, 101),
        ({"type": "input_audio", "input_audio": {"data": encoded(bytes(48_000)), "format": "wav"}}, 10),
        ({"type": "input_audio", "input_audio": {"data": encoded(bytes(48_000)), "format": "mp3"}}, 30),
        ({"type": "function_call_output", "output": [image(png(640, 480))]}, 20 * 15),
        ({"type": "function_call_output", "result": "text", "data": "text", "url": "https://example.org"}, 0),
        ({"type": "input_text", "text": "data:image/png;base64, is how it begins"}, 0),
        ({"type": "function_call_output", "output": f"data:image/png;base64,{encoded(GIF)}"}, 0),
        ({"type": "input_file", "file_url": f"data:text/plain;base64,{encoded(b'a' * 400)}"}, 100),
        ({"type": "input_file", "file_url": "https://example.org/a.pdf"}, 0),
    ],
)
def test_the_tokens_of_media(part, tokens) -> None:
    assert media_tokens([{"content": [part]}]) == pytest.approx(tokens, abs=1)


def test_an_estimate_counts_media_beside_the_text() -> None:
    part = image(png(640, 480, bytes(1_000_000)))
    assert estimate([part, "a" * 400]) == pytest.approx(300 + 100, abs=20)
