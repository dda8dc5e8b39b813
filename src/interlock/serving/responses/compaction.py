"""The summary that replaces a conversation: the request for it, and what its response says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from attrs import frozen

from interlock.events.json import elements, members
from interlock.fsm.deltas import Usage
from interlock.fsm.driver import ResponseDriver
from interlock.serving.engines.engine import Engine, Generation, Turn
from interlock.serving.engines.generation import fitting
from interlock.serving.requests.api_errors import EngineError, PromptError
from interlock.serving.requests.input_items import JsonItem
from interlock.serving.responses.context import RequestContext

NOT_COMPACTED: Final = "The conversation could not be compacted: "


class CompactionError(EngineError):
    """A conversation could not be compacted. The response fails instead of losing part of the conversation."""


@frozen
class CompactionSummary:
    """The summary of a conversation, its usage, and why it failed if it did."""

    text: str
    usage: Usage | None
    fault: EngineError | None = None


async def needs_compaction(context: RequestContext, generation: Generation, turn: Turn) -> bool:
    """Return whether the conversation of a turn is compacted before the model answers."""
    if context.seals is None:
        return False
    if context.request.compacts_only:
        return True
    threshold = context.request.compact_threshold
    return threshold is not None and await generation.count(await fitting(generation, turn)) > threshold


def summary_context(context: RequestContext, engine: Engine) -> RequestContext:
    """Return the request for a summary of a conversation; raise `ApiError` if the engine refuses its parameters."""
    request = engine.read(context.request.summary())
    model_items = (*context.model_items, *request.input)
    return RequestContext(request, context.items, context.tenant, model_items, connection=context.connection)


def summary_of(driver: ResponseDriver[Any]) -> CompactionSummary:
    """Return the summary that an ended response has written; a truncated, failed or empty one has a fault."""
    response, usage = driver.response, driver.usage
    output = cast("Sequence[JsonItem]", response["output"])
    parts = [members(part) for item in output if item["type"] == "message" for part in elements(item["content"])]
    text = "".join(str(part["text"]) for part in parts if part["type"] == "output_text").strip()
    error = members(response["error"])
    match response["status"]:
        case "completed" if text:
            return CompactionSummary(text, usage)
        case "completed":
            fault: EngineError = CompactionError(f"{NOT_COMPACTED}the model wrote no summary.")
        case "failed" if error.get("code") == PromptError.code:
            fault = PromptError(str(error.get("message")))
        case "failed":
            fault = CompactionError(f"{NOT_COMPACTED}{error.get('message')}")
        case status:
            fault = CompactionError(f"{NOT_COMPACTED}the model did not finish the summary (status '{status}').")
    return CompactionSummary("", usage, fault)
