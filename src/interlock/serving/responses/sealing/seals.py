"""What of which item is sealed: the seals of one request, which are bound to its model and its tenant.

Sealing leaves an item as it is and gives its `encrypted_content`; opening gives the item that the model is to be shown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeAlias, cast

import orjson
from attrs import frozen

from interlock.events.json import dumps
from interlock.serving.requests.api_errors import ApiError, invalid
from interlock.serving.requests.containment import is_fault
from interlock.serving.requests.input_items import Item
from interlock.serving.requests.normalize import unopened
from interlock.serving.requests.summaries import summary_message, window
from interlock.serving.responses.sealing.sealed_text import Binding, Envelope, SealError

__all__ = ["REASONING_WANTED", "Seals", "require_openable"]

logger = logging.getLogger(__name__)

REASONING_WANTED: Final = "reasoning.encrypted_content"
"""What a request includes to be given reasoning that it can send back."""

Carried: TypeAlias = tuple[str, str]
"""The type of an item and what it carries sealed."""

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

    def seal_summary(self, text: str) -> str:
        """Return a summary sealed, for the item of a compaction."""
        return self.seal("compaction", {"summary": text})

    def seal(self, kind: str, content: Mapping[str, object]) -> str:
        """Return a content sealed.

        Args:
            kind: The type of the item that is to carry it.
            content: JSON values.
        """
        return self.envelope.seal(self._binding(kind), dumps(content))

    async def opened(self, items: Sequence[Item], given: Sequence[Item]) -> tuple[Item, ...]:
        """Return a conversation as the model is to be shown it: what is left by compactions, and what is carried sealed opened.

        Args:
            items: The conversation, those of the input the same objects as in `given`.
            given: The request's own input, which a refusal names the place in.

        Raises:
            ApiError: 400; something was not sealed here, was changed, or is bound to something else.
        """
        left = window(items)
        open_sealed = await self.opener(left, given)
        return tuple([open_sealed(item) if item.get("encrypted_content") else item for item in left])

    async def opener(self, items: Iterable[Item], given: Sequence[Item]) -> Callable[[Item], Item]:
        """Open what some items carry sealed, and return what gives each of them as the model is to be shown it.

        Reasoning of stored responses is there as text and is not opened; the store is our own.

        Args:
            items: Those that are to be shown; what carries nothing sealed is passed over.
            given: The request's own input, likewise; a refusal names the place in it.

        Raises:
            ApiError: 400; something was not sealed here, was changed, or is bound to something else.
        """
        places: dict[Carried | None, str] = {}
        for index, item in enumerate(given):
            places.setdefault(_carried(item), f"input[{index}].encrypted_content")
        shown: dict[Carried | None, Callable[[Item], Item]] = {}
        for carried in filter(None, map(_carried, items)):
            kind, sealed = carried
            if kind == "compaction" or carried in places:
                shown[carried] = SHOWN[kind](await self.open(kind, sealed, places.get(carried, "previous_response_id")))
        return lambda item: shown.get(_carried(item), unopened)(item)

    async def open(self, kind: str, sealed: str, param: str) -> Mapping[str, object]:
        """Return what was sealed.

        Args:
            kind: The type of the item that carries it.
            sealed: As the item carries it.
            param: Where in the request it stands.

        Raises:
            ApiError: 400; it was not sealed here, was changed, or is bound to something else.
        """
        try:
            content = await self.envelope.open(self._binding(kind), sealed)
        except SealError as error:
            message = f"The encrypted content of '{param.removesuffix('.encrypted_content')}' could not be verified: {error}."
            raise invalid(param, message, "invalid_encrypted_content") from None
        return cast("Mapping[str, object]", orjson.loads(content))

    def _binding(self, kind: str) -> Binding:
        return Binding(kind, self.model, self.tenant)


async def require_openable(items: Sequence[Item], envelope: Envelope, models: Iterable[str], tenant: str) -> None:
    """Refuse a compaction that no model of this server could be shown.

    Args:
        items: Of the body of a request that adds them to a conversation.
        envelope: The server's.
        models: The names of its models.
        tenant: Whose request it is.

    Raises:
        ApiError: 400.
    """
    every = [Seals(envelope, model, tenant) for model in models]
    for index, carried in enumerate(map(_carried, items)):
        if carried is not None and carried[0] == "compaction":
            await _open_with_any(every, carried[1], f"items[{index}].encrypted_content")


async def _open_with_any(every: Sequence[Seals], sealed: str, param: str) -> None:
    for seals in every[:-1]:
        with suppress(ApiError):
            await seals.open("compaction", sealed, param)
            return
    await every[-1].open("compaction", sealed, param)


def _carried(item: Item) -> Carried | None:
    """Return what an item carries; None for nothing."""
    kind, sealed = item.get("type"), item.get("encrypted_content")
    return (kind, sealed) if isinstance(kind, str) and kind in SHOWN and isinstance(sealed, str) and sealed else None


def _reasoning(content: Mapping[str, object]) -> Callable[[Item], Item]:
    """Return what shows reasoning with what was sealed, whatever stands beside it."""
    return lambda item: {**unopened(item), **content}


def _compaction(content: Mapping[str, object]) -> Callable[[Item], Item]:
    """Return what shows a summary in the place of a compaction."""
    return lambda _: summary_message(str(content["summary"]))


SHOWN: Final = {"reasoning": _reasoning, "compaction": _compaction}
"""What shows an item that carries something sealed, of what was sealed, by its type."""
