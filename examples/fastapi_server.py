"""Serve `POST /v1/responses`, `/v1/chat/completions` and `/v1/messages` with FastAPI, your own model, and Interlock's events.

    pip install '.[serve]' fastapi      # in a checkout
    python examples/fastapi_server.py --port 8002

The model is a stand-in that writes text as Hermes and Qwen models do. docs/library/embedding.md explains this file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final, TypeAlias, TypeVar

import uvicorn
from attrs import evolve
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from interlock import (
    CONTENT_TYPE,
    DONE_FRAME,
    ChatTransducer,
    Chunk,
    EventWriter,
    Finish,
    MessagesTransducer,
    ResponseDriver,
    Start,
    StopParser,
    Tagged,
    Usage,
    driver_for,
    parser_for,
)
from interlock.serve import ApiError, read_chat, read_messages, read_request

T = TypeVar("T")
Encoder: TypeAlias = ChatTransducer | MessagesTransducer

PAUSE: Final = 0.01
"""Seconds between two chunks of text."""
HEADERS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # proxies forward every event at once

logger = logging.getLogger("fastapi_server")
app = FastAPI()


def last_text(given: list[dict[str, Any]]) -> str:
    """Return the text of the last item of an input, which is a message or the output of a call."""
    content = given[-1].get("content", given[-1].get("output", ""))
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


async def generate(request: Mapping[str, Any]) -> AsyncGenerator[Chunk]:
    """Yield an answer in chunks; replace this by your engine."""
    answer = last_text(request["input"])
    functions = [tool["name"] for tool in request.get("tools") or [] if tool.get("type") == "function"]
    if functions and "output" not in request["input"][-1]:
        answer = f"<tool_call>\n{json.dumps({'name': functions[-1], 'arguments': {}})}\n</tool_call>"
    wants_logprobs = "message.output_text.logprobs" in (request.get("include") or ())
    for word in answer.split(" "):
        await asyncio.sleep(PAUSE)
        if word == "fail":
            raise RuntimeError("the model was asked to fail")
        token = f"{word} "
        yield Chunk(text=token, logprobs=[{"token": token, "logprob": -0.5}] if wants_logprobs else None)


async def respond(
    request: Mapping[str, Any], driver: ResponseDriver[T], encoder: Encoder | None = None
) -> AsyncGenerator[list[T]]:
    """Yield the events of one response, which ends legally whatever happens, and tell the encoder what no event shows."""
    parser = StopParser(parser_for(Tagged("hermes"), request), request.get("stop"))
    budget, usage = request.get("max_output_tokens"), Usage(input_tokens=len(last_text(request["input"]).split()))
    if encoder is not None:
        encoder.input_tokens = usage.input_tokens
    try:
        yield driver.feed([Start()])
        async with aclosing(generate(request)) as model:
            async for chunk in model:
                usage = evolve(usage, output_tokens=usage.output_tokens + 1)
                if events := driver.feed(parser.feed(chunk)):
                    yield events
                if parser.found or usage.output_tokens == budget:
                    break
        if encoder is not None:
            encoder.stop_sequence = parser.found
        yield driver.feed([*parser.end("length" if usage.output_tokens == budget else "stop", usage), Finish()])
    except Exception:
        logger.exception("the model failed")
        yield driver.feed(parser.end("error", usage))
    finally:
        driver.feed(parser.end("abort", usage))  # the client has disconnected; if the response has ended, this changes nothing
        logger.info("%s %s", driver.response["id"], driver.response["status"])


async def stream(request: Mapping[str, Any]) -> AsyncGenerator[bytes]:
    """Yield the body of a stream of Responses, including the end marker."""
    async with aclosing(respond(request, driver_for(request))) as steps:
        async for frames in steps:
            yield b"".join(frames)
    yield DONE_FRAME


async def stream_encoded(request: Mapping[str, Any], encoder: Encoder) -> AsyncGenerator[bytes]:
    """Yield the body of a stream of another API; the encoder adds the end marker."""
    async with aclosing(respond(request, driver_for(request, writer=EventWriter()), encoder)) as steps:
        async for events in steps:
            yield encoder.encode(events)


async def body_of(http: Request) -> dict[str, Any]:
    """Return the body of a request, which must be a JSON object."""
    try:
        body = await http.json()
    except ValueError:
        raise ApiError(400, "The body is not JSON.") from None
    if not isinstance(body, dict):
        raise ApiError(400, "The body must be a JSON object.")
    return body


@app.exception_handler(ApiError)
async def refuse(http: Request, error: ApiError) -> Response:
    """Answer an invalid request with its error."""
    return JSONResponse(error.body("messages" if http.url.path == "/v1/messages" else "responses"), error.status)


@app.post("/v1/responses")
async def create_response(http: Request) -> Response:
    """Answer with a stream, or with the response of its last event."""
    body = await body_of(http)
    for name in ("background", "conversation", "previous_response_id"):
        if body.get(name):
            raise ApiError(400, "This server stores no responses.", code="unsupported_parameter", param=name)
    if not body.get("input"):
        raise ApiError(400, "The request has no input.", param="input")
    request = {**body, "input": [*read_request(body).input], "store": False}
    if request.get("stream"):
        return StreamingResponse(stream(request), media_type=CONTENT_TYPE, headers=HEADERS)
    driver = driver_for(request)
    async for _ in respond(request, driver):
        pass
    return JSONResponse(dict(driver.response))


async def answer_encoded(request: Mapping[str, Any], encoder: Encoder) -> Response:
    """Answer in another API, with a stream, or with the whole that its events add up to."""
    if request["stream"]:
        return StreamingResponse(stream_encoded(request, encoder), media_type=CONTENT_TYPE, headers=HEADERS)
    steps = respond(request, driver_for(request, writer=EventWriter()), encoder)
    status, answer = encoder.encode_whole([event async for events in steps for event in events])
    return Response(answer, status, media_type="application/json")


@app.post("/v1/chat/completions")
async def create_completion(http: Request) -> Response:
    """Answer a request of Chat Completions."""
    return await answer_encoded(*await read_chat(await body_of(http)))


@app.post("/v1/messages")
async def create_message(http: Request) -> Response:
    """Answer a request of Messages."""
    return await answer_encoded(*await read_messages(await body_of(http)))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--port", type=int, default=8002)
    logging.basicConfig(level=logging.INFO)
    uvicorn.run(app, host="127.0.0.1", port=arguments.parse_args().port)
