"""What of which item is sealed: the seals of one request, which are bound to its model and its tenant.

Sealing leaves an item as it is and gives its `encrypted_content`; opening gives the item that the model is to be shown.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, cast

import orjson
from attrs import frozen

from interlock.events.json import dumps
from interlock.serving.errors import ApiError, invalid
from interlock.serving.faults import is_fault
from interlock.serving.requests.conversation import Item
from interlock.serving.sealing.envelope import Binding, Envelope, SealError

__all__ = ["Seals"]

logger = logging.getLogger(__name__)

SEALED: Final = ("summary", "content")
"""The fields of reasoning that are sealed."""


@frozen
class Seals:
    """The seals of one request.

    Args:
        envelope: The server's.
        model: The name of the model that is asked for.
        tenant: Whose request it is; an empty text where a server tells nobody apart.
    """

    envelope: Envelope
    model: str
    tenant: str = ""

    def late_fields(self, item: Mapping[str, object]) -> dict[str, object]:
        """Return the encrypted content of reasoning that is done; any other item has none.

        A stream ends whatever happens (rule R4): where nothing can be sealed, the item goes without, and the log says why.

        Args:
            item: An item as it is shown.
        """
        if item["type"] != "reasoning" or item.get("encrypted_content"):
            return {}
        try:
            return {"encrypted_content": self.seal("reasoning", {name: item[name] for name in SEALED})}
        except BaseException as error:
            if not is_fault(error):
                raise
            logger.exception("%s: the reasoning goes without its encrypted content", item["id"])
            return {}

    def seal(self, kind: str, content: Mapping[str, object]) -> str:
        """Return a content sealed.

        Args:
            kind: The type of the item that is to carry it.
            content: JSON values.
        """
        return self.envelope.seal(self._binding(kind), dumps(content))

    async def opened(self, items: Sequence[Item], given: Sequence[Item]) -> tuple[Item, ...]:
        """Return a conversation as the model is to be shown it: what it carries sealed is opened.

        Reasoning of stored responses is there as text and is not opened again; the store is our own.

        Args:
            items: The conversation, those of the input the same objects as in `given`.
            given: The request's own input, which a refusal names the place in.

        Raises:
            ApiError: 400; something was not sealed here, was changed, or is bound to something else.
        """
        places = {id(item): f"input[{index}]" for index, item in enumerate(given)}
        return tuple([await self._shown(item, places.get(id(item))) for item in items])

    async def _shown(self, item: Item, param: str | None) -> Item:
        sealed = item.get("encrypted_content")
        if item.get("type") != "reasoning" or not sealed or param is None:
            return item
        rest = {name: value for name, value in item.items() if name != "encrypted_content"}
        return {**rest, **await self._opened("reasoning", str(sealed), param)}

    async def _opened(self, kind: str, sealed: str, param: str) -> Mapping[str, object]:
        try:
            content = await self.envelope.open(self._binding(kind), sealed)
        except SealError as error:
            raise _refused(param, error) from None
        return cast("Mapping[str, object]", orjson.loads(content))

    def _binding(self, kind: str) -> Binding:
        return Binding(kind, self.model, self.tenant)


def _refused(param: str, why: SealError) -> ApiError:
    message = f"The encrypted content of '{param}' could not be verified: {why}."
    return invalid(f"{param}.encrypted_content", message, "invalid_encrypted_content")
