"""`POST /v1/responses/compact`: a conversation becomes its user messages and one compaction item."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive

from interlock.fsm.response_subject import usage_of
from interlock.serving.http.answers import JsonResponse, error_response, open_events
from interlock.serving.requests.api_errors import ApiError, EngineError, PromptError, invalid, missing
from interlock.serving.requests.context_window import SUMMARY_PARAMETERS
from interlock.serving.requests.identity import random_id
from interlock.serving.requests.input_items import Item
from interlock.serving.requests.json_values import elements, is_array, members
from interlock.serving.responses.active_runs import ActiveRuns
from interlock.serving.responses.response_run import summary_of
from interlock.serving.responses.run import Run

__all__ = ["compact_request", "compacted"]

PARAMETERS: Final = ("input", "previous_response_id", *SUMMARY_PARAMETERS)
"""The parameters of a compaction: those of the conversation, and those that the request for its summary takes over."""


def compact_request(body: Mapping[str, object]) -> dict[str, object]:
    """Return the body of a response that continues the conversation of a compaction; compaction triggers are left out.

    Raises:
        ApiError: 400; the model is missing.
    """
    if body.get("model") is None:
        raise missing("model")
    request = {name: body[name] for name in PARAMETERS if body.get(name) is not None}
    items = request.get("input")
    if is_array(items):
        request["input"] = [item for item in elements(items) if members(item).get("type") != "compaction_trigger"]
    return {**request, "store": False}


async def compacted(
    run: Run[Any], active_runs: ActiveRuns, items: Sequence[Item], seal: Callable[[str], str], receive: Receive
) -> Response:
    """Return the compacted conversation when the run has written its summary, or an error.

    A client that disconnects meanwhile cancels the run. `items` is the conversation as the client sees it.
    """
    async with open_events(run, active_runs, receive) as events:
        async for _ in events:
            pass
    result = summary_of(run.driver)
    if result.fault is not None:
        return error_response(_api_error(result.fault))
    response = run.driver.response
    item = {"id": random_id("cmp"), "type": "compaction", "encrypted_content": seal(result.text)}
    return JsonResponse(
        {
            "id": response["id"],
            "object": "response.compaction",
            "created_at": response["created_at"],
            "output": [*_user_messages(items), item],
            "usage": usage_of(result.usage),
        }
    )


def _api_error(fault: EngineError) -> ApiError:
    """Return the API error for a missing summary; a prompt that is too long is the client's fault."""
    if isinstance(fault, PromptError):
        return invalid("input", str(fault), fault.code)
    return ApiError(500, str(fault), "server_error", code="compaction_failed")


def _user_messages(items: Sequence[Item]) -> Iterator[dict[str, object]]:
    """Yield the user's messages as items of a response."""
    for item in items:
        if item.get("type") == "message" and item.get("role") == "user":
            content = item.get("content")
            parts = content if is_array(content) else [{"type": "input_text", "text": content}]
            yield {**item, "id": item.get("id") or random_id("msg"), "status": "completed", "content": parts}
