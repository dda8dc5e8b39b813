"""Compressed request bodies are read like plain ones, within the same bounds."""

import asyncio
import gzip
import json
import os
import sys
import tracemalloc
import zlib

import httpx
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from interlock.serving.engines.embedded import MODEL
from interlock.serving.http.answers import answer_error
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.body import DECODED_BYTES, MAX_MEMBERS, decoder_for, read_body
from interlock.serving.requests.runtime import Yielder

BODY = json.dumps({"model": MODEL, "input": "Hi there"}).encode()
COMPRESS = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd.compress}
MIB = 2**20

each_coding = pytest.mark.parametrize("coding", COMPRESS)


def post(url, body, coding):
    headers = {"content-type": "application/json", "content-encoding": coding}
    return httpx.post(f"{url}/v1/responses", content=body, headers=headers, timeout=60)


def refusal_of(answer):
    return answer.status_code, answer.json()["error"]["code"]


def read(body, coding, piece=2**16, most=32 * MIB):
    """Read a body that arrives in pieces of the given size."""
    pieces = [body[start : start + piece] for start in range(0, len(body), piece)] or [b""]
    messages = [{"type": "http.request", "body": each, "more_body": True} for each in pieces]
    messages[-1]["more_body"] = False

    async def receive():
        return messages.pop(0)

    headers = [(b"content-type", b"application/json"), (b"content-encoding", coding.encode())]
    return asyncio.run(read_body(Request({"type": "http", "headers": headers}, receive), most, Yielder()))


@each_coding
def test_a_compressed_body_is_read(url, coding) -> None:
    assert post(url, COMPRESS[coding](BODY), coding).json()["status"] == "completed"


def test_the_coding_may_be_identity(url) -> None:
    assert post(url, BODY, "Identity").json()["status"] == "completed"


@pytest.mark.parametrize("coding", ["br", "gzip, zstd", "identity, identity", "x" * 9999])
def test_an_error_lists_the_codings_if_a_coding_is_unknown_or_chained(url, coding) -> None:
    answer = post(url, BODY, coding)
    assert refusal_of(answer) == (415, "unsupported_content_encoding")
    assert answer.headers["accept-encoding"] == "gzip, deflate, zstd"
    assert len(answer.text) < 400


@each_coding
def test_invalid_or_truncated_data_is_refused(url, coding) -> None:
    whole = COMPRESS[coding](BODY)
    for body in (b"", b"{}", whole[:-1], whole[: len(whole) // 2], whole + b"more"):
        assert refusal_of(post(url, body, coding)) == (400, "invalid_body")


@each_coding
def test_a_decompression_bomb_is_refused_in_bounded_memory(coding) -> None:
    bomb = COMPRESS[coding](bytes(64 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(ApiError) as error:
            read(bomb, coding, most=MIB)
        assert tracemalloc.get_traced_memory()[1] < 6 * MIB
    finally:
        tracemalloc.stop()
    assert (error.value.status, error.value.code) == (413, "request_too_large")


def test_a_zstd_frame_with_a_large_window_is_refused() -> None:
    body = zstd.compress(os.urandom(9 * MIB), options={zstd.CompressionParameter.window_log: 27})
    with pytest.raises(ApiError, match="too much memory"):
        read(body, "zstd")


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_body_may_have_several_members_up_to_a_limit(coding) -> None:
    compress = COMPRESS[coding]
    assert read(compress(BODY[:9]) + compress(b"") + compress(BODY[9:]), coding, piece=7) == BODY
    with pytest.raises(ApiError, match=f"more than {MAX_MEMBERS} members"):
        read(compress(b"") * (MAX_MEMBERS + 1), coding)


@each_coding
@given(text=st.binary(max_size=300), repeated=st.integers(1, 900), piece=st.integers(1, 5000))
def test_decompression_does_not_depend_on_the_chunks(coding, text, repeated, piece) -> None:
    body = text * repeated
    decoder = decoder_for(coding)
    compressed = COMPRESS[coding](body)
    pieces = [compressed[start : start + piece] for start in range(0, len(compressed), piece)]
    assert b"".join(part for each in pieces for part in decoder.decompress(each)) == body
    decoder.end()


@each_coding
def test_other_tasks_run_while_a_body_is_decompressed(coding) -> None:
    messages = [{"type": "http.request", "body": COMPRESS[coding](bytes(16 * MIB)), "more_body": False}]
    turns = []

    async def receive():
        return messages.pop()

    async def another():
        while True:
            turns.append(None)
            await asyncio.sleep(0)

    async def reading():
        other = asyncio.create_task(another())
        headers = [(b"content-type", b"application/json"), (b"content-encoding", coding.encode())]
        await read_body(Request({"type": "http", "headers": headers}, receive), 32 * MIB, Yielder())
        other.cancel()

    asyncio.run(reading())
    assert len(turns) >= 16 * MIB // DECODED_BYTES


def test_without_its_package_zstd_is_an_unknown_coding(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "backports", None)
    with pytest.raises(ApiError, match=r"Unsupported content encoding: 'zstd'\. Supported encodings are: gzip, deflate\."):
        decoder_for("zstd")
    request = Request({"type": "http", "scheme": "http", "server": ("test", 80), "path": "/v1/responses", "headers": []})
    answer = answer_error(request, ApiError(415, "It cannot be read."))
    assert (answer.headers["accept"], answer.headers["accept-encoding"]) == ("application/json", "gzip, deflate")


def test_a_body_with_an_oversized_first_piece_is_refused() -> None:
    with pytest.raises(ApiError, match="larger than 10 bytes"):
        read(bytes(65 * MIB), "identity", piece=65 * MIB, most=10)
