"""Where finished responses are kept: as they are shown, and in vLLM's own store, which `previous_response_id` reads.

vLLM keeps responses for as long as it runs, if `VLLM_ENABLE_RESPONSES_API_STORE` is set, and none otherwise; so does this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from attrs import field, frozen

from interlock.fsm.driver import ResponseDriver
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
    "tool_choice",
    "tools",
    "top_p",
    "background",
    "max_output_tokens",
    "previous_response_id",
    "service_tier",
    "status",
    "truncation",
)
"""The fields of a response that vLLM's type requires or that vLLM reads of a stored one; its output comes beside them."""


@frozen(eq=False)
class Archive:
    """The finished responses of one server.

    Args:
        serving: vLLM's, whose store is filled.
        make: Makes what that store holds, of the fields of a response; it may refuse.
        shown: The responses as they are shown, by id.
    """

    _serving: Serving
    _make: Callable[..., object]
    shown: dict[str, Mapping[str, object]] = field(factory=dict[str, Mapping[str, object]], init=False)

    async def keep(self, driver: ResponseDriver[bytes]) -> None:
        """Keep a response that has ended.

        Args:
            driver: Its driver.
        """
        response = driver.response
        response_id = str(response["id"])
        self.shown[response_id] = response
        theirs = self._theirs(response)
        if theirs is not None:
            async with self._serving.response_store_lock:
                self._serving.response_store[response_id] = theirs

    async def drop(self, response_id: str) -> None:
        """Keep a response no longer.

        Args:
            response_id: Its id.
        """
        self.shown.pop(response_id, None)
        async with self._serving.response_store_lock:
            self._serving.response_store.pop(response_id, None)

    def _theirs(self, response: Mapping[str, object]) -> object | None:
        """Return a response in vLLM's form, without the items that its types refuse."""
        items = cast("Sequence[Mapping[str, object]]", response["output"])
        fields = {name: response[name] for name in THEIRS}
        kept = [item for item in items if self._accepts(fields, item)]
        try:
            return self._make(**fields, output=kept)
        except ValueError:
            logger.exception("%s: vLLM cannot store it, so no other response can go on from it", response["id"])
            return None

    def _accepts(self, fields: Mapping[str, object], item: Mapping[str, object]) -> bool:
        try:
            self._make(**fields, output=[item])
        except ValueError:
            logger.warning("%s: vLLM cannot store an item of type %s", fields["id"], item["type"])
            return False
        return True
