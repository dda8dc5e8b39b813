"""Serve `POST /v1/responses` with FastAPI, your own model, and a tool that the server runs.

    pip install fastapi uvicorn         # beside interlock
    python examples/fastapi_tools.py --port 8003

A request offers the tool as an MCP server with the label `clock`; the client sees the call and its result as events. The clock
asks for no approval. The model is a stand-in that asks for the time and repeats what it reads. docs/library/embedding.md explains
hosted calls.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response, StreamingResponse

from interlock import (
    CONTENT_TYPE,
    DONE_FRAME,
    Cancel,
    Chunk,
    Fail,
    Fault,
    Finish,
    ResponseDriver,
    Run,
    Start,
    Succeed,
    Tagged,
    Usage,
    driver_for,
    parser_for,
    result_fields,
)

TURNS: Final = 4
"""The most turns of the model in a response."""
CLIENT_CALLS: Final = ("function_call", "custom_tool_call")
"""The calls whose results come with the client's next request, so that the response ends after their turn."""

logger = logging.getLogger("fastapi_tools")
app = FastAPI()


def generate(request: Mapping[str, Any], results: list[str]) -> str:
    """Write one turn of the model; replace this by your engine, which reads the results of its calls."""
    offers_clock = any(tool.get("server_label") == "clock" for tool in request.get("tools") or [])
    if offers_clock and not results:
        return '<tool_call>\n{"name": "clock__now", "arguments": {"zone": "UTC"}}\n</tool_call>'
    return f"It is {results[-1]}." if results else "I have no clock."


async def run_tool(name: str, arguments: str) -> str:
    """Run a call; a `LookupError` or a `ValueError` becomes the error of the call, and the response goes on."""
    if name != "now":
        raise LookupError(f"the clock has no tool {name}")
    if (zone := json.loads(arguments).get("zone")) != "UTC":
        raise LookupError(f"the clock has no zone {zone}")
    return f"{datetime.now(UTC):%H:%M} UTC"


async def stream(request: Mapping[str, Any], driver: ResponseDriver[bytes]) -> AsyncGenerator[bytes]:
    """Yield the events of one response: a turn of the model, its calls, and another turn that reads their results."""
    parser = parser_for(Tagged("hermes"), request)
    results: list[str] = []
    try:
        yield b"".join(driver.feed([Start()]))
        for _ in range(TURNS):
            text = generate(request, results)
            usage = Usage(input_tokens=1, output_tokens=len(text.split()))
            yield b"".join(driver.feed([*parser.feed(Chunk(text=text)), *parser.end("stop", usage)]))
            calls = driver.ready
            for call in calls:
                yield b"".join(driver.feed([Run(call.id)]))
                outcome: Succeed | Fail
                try:
                    results.append(await run_tool(call.fields["name"], call.text))
                    outcome = Succeed(call.id, result_fields(call.kind, results[-1]))
                except (LookupError, ValueError) as error:
                    results.append(f"an error: {error}")
                    outcome = Fail(call.id, str(error))
                yield b"".join(driver.feed([outcome]))
            if not calls or any(item["type"] in CLIENT_CALLS for item in driver.response["output"]):
                break
        yield b"".join(driver.feed([Finish()]))
    except Exception:
        logger.exception("the server failed")
        yield b"".join(driver.feed([Fault("server_error", "The server failed.")]))
    finally:
        driver.feed([Cancel()])  # the client has disconnected; if the response has ended, this changes nothing
    yield DONE_FRAME


@app.post("/v1/responses")
async def create_response(request: dict[str, Any]) -> Response:
    """Answer with a stream, or with the response of its last event."""
    driver = driver_for(request)
    events = stream(request, driver)
    if request.get("stream"):
        return StreamingResponse(events, media_type=CONTENT_TYPE)
    async for _ in events:
        pass
    return JSONResponse(dict(driver.response))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--port", type=int, default=8003)
    uvicorn.run(app, host="127.0.0.1", port=arguments.parse_args().port)
