"""Serve `POST /v1/responses` with FastAPI, your own model, and Interlock's events.

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
from typing import Any, Final

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from interlock import (
    CONTENT_TYPE,
    DONE_FRAME,
    Cancel,
    Chunk,
    Fault,
    Finish,
    ResponseDriver,
    Start,
    Tagged,
    Usage,
    driver_for,
    parser_for,
)
from interlock.serve import ApiError, read_request

PAUSE: Final = 0.01
"""Seconds between two chunks of text."""
HEADERS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # proxies forward every event at once

logger = logging.getLogger("fastapi_server")
app = FastAPI()


def last_text(given: list[dict[str, Any]]) -> str:
    """Return the text of the last item of an input, which is a message or the output of a call."""
    content = given[-1].get("content", given[-1].get("output", ""))
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


async def generate(request: Mapping[str, Any]) -> AsyncGenerator[str]:
    """Yield an answer in chunks; replace this by your engine."""
    answer = last_text(request["input"])
    functions = [tool["name"] for tool in request.get("tools") or [] if tool.get("type") == "function"]
    if functions and "output" not in request["input"][-1]:
        answer = f"<tool_call>\n{json.dumps({'name': functions[-1], 'arguments': {}})}\n</tool_call>"
    for word in answer.split(" "):
        await asyncio.sleep(PAUSE)
        if word == "fail":
            raise RuntimeError("the model was asked to fail")
        yield f"{word} "


async def respond(request: Mapping[str, Any], driver: ResponseDriver[bytes]) -> AsyncGenerator[bytes]:
    """Yield the events of one response, which ends legally whatever happens."""
    parser = parser_for(Tagged("hermes"), request)
    budget, spent = request.get("max_output_tokens"), 0
    try:
        yield b"".join(driver.feed([Start()]))
        async with aclosing(generate(request)) as model:
            async for text in model:
                spent += 1
                if events := driver.feed(parser.feed(Chunk(text=text))):
                    yield b"".join(events)
                if spent == budget:
                    break
        reason = "length" if spent == budget else "stop"
        usage = Usage(input_tokens=len(last_text(request["input"]).split()), output_tokens=spent)
        yield b"".join(driver.feed([*parser.end(reason, usage), Finish()]))
    except Exception:
        logger.exception("the model failed")
        yield b"".join(driver.feed([Fault("server_error", "The model failed.")]))
    finally:
        driver.feed([Cancel()])  # the client has disconnected; if the response has ended, this changes nothing
        logger.info("%s %s", driver.response["id"], driver.response["status"])


async def stream(request: Mapping[str, Any]) -> AsyncGenerator[bytes]:
    """Yield the body of a stream, including the end marker."""
    async with aclosing(respond(request, driver_for(request))) as steps:
        async for events in steps:
            yield events
    yield DONE_FRAME


def validated(body: object) -> dict[str, Any]:
    """Return a valid request, its input as a list of items; this server has no earlier responses to continue."""
    if not isinstance(body, dict) or not body.get("input"):
        raise ApiError(400, "The body must be a JSON object with an input.", param="input")
    return {**body, "input": [*read_request(body).input]}


@app.post("/v1/responses")
async def create_response(http: Request) -> Response:
    """Answer with a stream, or with the response of its last event."""
    try:
        request = validated(await http.json())
    except ValueError:
        return JSONResponse(ApiError(400, "The body is not JSON.").body(), status_code=400)
    except ApiError as error:
        return JSONResponse(error.body(), status_code=error.status)
    if request.get("stream"):
        return StreamingResponse(stream(request), media_type=CONTENT_TYPE, headers=HEADERS)
    driver = driver_for(request)
    async for _ in respond(request, driver):
        pass
    return JSONResponse(dict(driver.response))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--port", type=int, default=8002)
    logging.basicConfig(level=logging.INFO)
    uvicorn.run(app, host="127.0.0.1", port=arguments.parse_args().port)
