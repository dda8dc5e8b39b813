"""The answer to `POST /v1/responses/compact`: the user's messages and one compaction item, with what the summary cost.

It knows HTTP and runs. Both servers answer with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from attrs import frozen
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from interlock.events.json import dumps
from interlock.fsm.response_subject import usage_of
from interlock.serving.http.answers import Exchange
from interlock.serving.http.intake import JSON, error_response
from interlock.serving.requests.api_errors import ApiError, EngineError, PromptError, invalid, missing
from interlock.serving.requests.context_window import SUMMARY_PARAMETERS
from interlock.serving.requests.identity import random_id
from interlock.serving.requests.input_items import Item
from interlock.serving.requests.json_values import elements, is_array, members
from interlock.serving.responses.response_run import Summary, summary_of

__all__ = ["CompactedAnswer", "compact_request"]

TAKEN: Final = ("input", "previous_response_id", *SUMMARY_PARAMETERS)
"""The parameters of a compaction: the conversation, and what the request for its summary takes over."""


def compact_request(body: Mapping[str, object]) -> dict[str, object]:
    """Return the body of a response that goes on from the conversation that is to be compacted.

    Args:
        body: Of `POST /v1/responses/compact`. A trigger at the end of its input says nothing that is not said already.

    Raises:
        ApiError: 400; the model is missing.
    """
    if body.get("model") is None:
        raise missing("model")
    given = body.get("input")
    said = [item for item in elements(given) if not _is_trigger(item)] if is_array(given) else given
    taken = {name: body[name] for name in TAKEN if body.get(name) is not None}
    return {**taken, **({"input": said} if said is not None else {}), "store": False}


def _is_trigger(item: object) -> bool:
    return members(item).get("type") == "compaction_trigger"


@frozen(eq=False)
class CompactedAnswer:
    """Answers with a compacted conversation, once its summary is written; without a whole one, with an error.

    Args:
        exchange: The run that writes the summary.
        items: The conversation, as the client sees it.
        seal: Returns a summary sealed.
    """

    exchange: Exchange[Any]
    items: Sequence[Item]
    seal: Callable[[str], str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for the end of the run, then answer; a client that goes away stops it."""
        async with self.exchange.events(receive) as events:
            async for _ in events:
                pass
        await self._answer(summary_of(self.exchange.run.driver))(scope, receive, send)

    def _answer(self, made: Summary) -> Response:
        if made.fault is not None:
            return error_response(_refusal(made.fault))
        response = self.exchange.run.driver.response
        item = {"id": random_id("cmp"), "type": "compaction", "encrypted_content": self.seal(made.text)}
        body = {
            "id": response["id"],
            "object": "response.compaction",
            "created_at": response["created_at"],
            "output": [*_user_messages(self.items), item],
            "usage": usage_of(made.usage),
        }
        return Response(dumps(body), media_type=JSON)


def _refusal(fault: EngineError) -> ApiError:
    """Return the error that says why there is no summary; that a prompt is too long is the client's fault."""
    if isinstance(fault, PromptError):
        return invalid("input", str(fault), fault.code)
    return ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, str(fault), "server_error", code="compaction_failed")


def _user_messages(items: Sequence[Item]) -> Iterator[dict[str, object]]:
    """Yield what the user said, each message in the form of an item of a response."""
    for item in items:
        if item.get("type") == "message" and item.get("role") == "user":
            content = item.get("content")
            parts = content if is_array(content) else [{"type": "input_text", "text": content}]
            made = {"id": item.get("id") or random_id("msg"), "status": "completed"}
            yield {**item, **made, "content": parts}
