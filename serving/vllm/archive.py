"""Where finished responses are kept: as they are shown, and in vLLM's own store, which `previous_response_id` reads.

vLLM keeps responses for as long as it runs, if `VLLM_ENABLE_RESPONSES_API_STORE` is set, and none otherwise; so does this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, cast

from attrs import field, frozen

from interlock.serving.requests.conversation import Item
from interlock.serving.requests.plain import plain
from interlock.serving.store import StoredResponse
from interlock.serving.vllm.asking import Before
from interlock.serving.vllm.shapes import Serving

__all__ = ["Archive"]

logger = logging.getLogger(__name__)

THEIRS: Final = (
    "id",
    "created_at",
    "instructions",
    "metadata",
    "model",
    "parallel_tool_calls",
    "temperature",
    "top_p",
    "background",
    "max_output_tokens",
    "previous_response_id",
    "service_tier",
    "status",
    "truncation",
)
"""The fields of a response that vLLM's type requires or that vLLM reads of a stored one; its output comes beside them."""

NOT_READ: Final[Mapping[str, object]] = {"tools": [], "tool_choice": "auto"}
"""Those that it requires and does not read; tools may be of types that it does not know."""


@frozen(eq=False)
class Archive:
    """The finished responses of one server.

    Args:
        serving: vLLM's, whose store is filled.
        make: Makes what that store holds, of the fields of a response; it may refuse.
        held: The responses as they are shown, by id, each with the conversation that it answered.
    """

    _serving: Serving
    _make: Callable[..., object]
    held: dict[str, StoredResponse] = field(factory=dict[str, StoredResponse], init=False)

    async def keep(self, stored: StoredResponse) -> None:
        """Keep a response that has ended.

        Args:
            stored: The response.
        """
        self.held[stored.id] = stored
        theirs = self._theirs(stored.response)
        if theirs is not None:
            async with self._serving.response_store_lock:
                self._serving.response_store[stored.id] = theirs

    async def drop(self, response_id: str) -> None:
        """Keep a response no longer.

        Args:
            response_id: Its id.
        """
        self.held.pop(response_id, None)
        self._serving.msg_store.pop(response_id, None)
        async with self._serving.response_store_lock:
            self._serving.response_store.pop(response_id, None)

    def before(self, response_id: object, referred: Iterable[str]) -> Before:
        """Return what was said before a request.

        Args:
            response_id: The response that it goes on from; None for none.
            referred: The ids of the items that it refers to.
        """
        wanted = {*referred}
        held = self.held.get(str(response_id))
        items = (item for each in self.held.values() for item in each.output) if wanted else ()
        stored = {str(item["id"]): item for item in items if item["id"] in wanted}
        return Before((), stored) if held is None else Before(held.output, stored, held.conversation)

    def _theirs(self, response: Mapping[str, object]) -> object | None:
        """Return a response in vLLM's form, with its calls alone.

        Of a model that writes harmony, vLLM keeps the messages by itself, and looks here for the names of calls that were
        answered. Of any other model it would render the messages again and forget the calls; `asking` puts all into the input.
        """
        calls = [item for item in plain(_output(response)) if item["type"] == "function_call"]
        fields = {name: response[name] for name in THEIRS}
        try:
            return self._make(**fields, **NOT_READ, output=calls)
        except ValueError:
            logger.exception("%s: vLLM cannot store it, so no other response can go on from it", response["id"])
            return None


def _output(response: Mapping[str, object]) -> Sequence[Item]:
    return cast("Sequence[Item]", response["output"])
