"""Encrypted content: reasoning and compactions that clients carry, and only a server with the key can read.

`SealingKeys` encrypt what is `Sealed`, and the `Seals` of a request do so for its model and tenant. docs/guides/state.md explains
this protection and its limits.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import methodcaller
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import orjson
from attrs import field, frozen

from interlock.events.json import dumps
from interlock.events.response_object import InputTransformation
from interlock.fsm.table import InterlockError
from interlock.serving.requests.api_errors import ApiError, invalid
from interlock.serving.requests.input_items import JsonItem, summary_message, window
from interlock.serving.requests.runtime import is_fault

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

logger = logging.getLogger(__name__)

KEYS_VARIABLE: Final = "INTERLOCK_KEYS"
"""The environment variable with the keys: 32 bytes each in base64, separated by commas. The first key seals."""

RANDOM_KEY: Final = (
    f"{KEYS_VARIABLE} is not set: reasoning and compactions that this %s encrypts cannot be decrypted after a restart, "
    "or by another %s."
)
"""The warning at a start with a random key; twice in it is what has the key: a server, or in vLLM each of its processes."""

KEY_BYTES: Final = 32
TOKEN: Final = "gAAAA"  # noqa: S105 - the beginning of every token of Fernet, until the year 2106
INLINE: Final = 2**16  # characters of the longest token that is decrypted in the event loop

FOREIGN: Final = "it belongs to another type of item, another model or another API key"

SEALED_TYPES: Final = ("reasoning", "compaction")

_Mismatch: TypeAlias = Literal["organization_mismatch", "model_mismatch"]

SealedContent: TypeAlias = tuple[str, str]
"""The `type` and the `encrypted_content` of an item."""


class SealError(InterlockError):
    """Sealed content cannot be opened by this server. Clients see the message, which reveals nothing of the content."""


class Sealed(NamedTuple):
    """What is encrypted: the content, and the type of item, the model and the tenant that it belongs to."""

    kind: str
    model: str
    tenant: str
    content: Mapping[str, object]


@frozen
class SealingKeys:
    """The keys of a server: the first seals, and all open, so that keys can be rotated."""

    _keys: tuple[str, ...] = field(repr=False)  # in the base64 of URLs

    @classmethod
    def from_text(cls, text: str) -> SealingKeys:
        """Parse the value of `INTERLOCK_KEYS`; a `ValueError` names the position of a bad key, and does not quote the key."""
        # As of Python 3.15, the decoder of Fernet deprecates the other alphabet.
        keys = tuple(key.strip().replace("+", "-").replace("/", "_") for key in text.split(","))
        for position, key in enumerate(keys, start=1):
            try:
                length = len(base64.urlsafe_b64decode(key))
            except ValueError:
                raise ValueError(f"key {position} is not base64") from None
            if length != KEY_BYTES:
                raise ValueError(f"key {position} has {length} bytes instead of {KEY_BYTES}")
        return cls(keys)

    @classmethod
    def random(cls) -> SealingKeys:
        """Return one new random key."""
        return cls((base64.urlsafe_b64encode(os.urandom(KEY_BYTES)).decode(),))

    @cached_property
    def _fernet(self) -> MultiFernet:
        from cryptography.fernet import Fernet, MultiFernet  # noqa: PLC0415 - not needed by a server that seals nothing

        return MultiFernet([Fernet(key) for key in self._keys])

    def seal(self, sealed: Sealed) -> str:
        """Encrypt content and what it belongs to, as a token of Fernet, which also contains the time."""
        return self._fernet.encrypt(dumps([*sealed])).decode()

    async def open(self, kind: str, text: str, tenant: str) -> Sealed:
        """Decrypt content that belongs to a type of item and a tenant. A long text is decrypted in a thread.

        Raises:
            SealError: The text was not sealed for these with a key of this server, or was changed.
        """
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - see `_fernet`

        if not text.startswith(TOKEN):
            raise SealError("it was not sealed by Interlock")
        try:
            decrypted = await asyncio.to_thread(self._fernet.decrypt, text) if len(text) > INLINE else self._fernet.decrypt(text)
        except (InvalidToken, ValueError):  # a ValueError for a character that is not ASCII
            raise SealError("it was changed, or was sealed with a key that this server does not have") from None
        sealed = Sealed(*orjson.loads(decrypted))
        if (sealed.kind, sealed.tenant) != (kind, tenant):
            raise SealError(FOREIGN)
        return sealed


@frozen
class Seals:
    """Seals and opens content for one request, bound to its model and tenant."""

    keys: SealingKeys
    model: str
    tenant: str = ""

    def late_fields(self, item: Mapping[str, object]) -> dict[str, object]:
        """Return the encrypted content of a finished reasoning item. A fault is logged, so that the stream goes on."""
        if item["type"] != "reasoning":
            return {}
        content = {name: item[name] for name in ("summary", "content")}
        if item.get("encrypted_content"):  # from the server behind a gateway, which is the only one that can read it
            content["encrypted_content"] = item["encrypted_content"]
        try:
            return {"encrypted_content": self.seal("reasoning", content)}
        except BaseException as error:
            if not is_fault(error):
                raise
            logger.exception("%s: the reasoning is sent without its encrypted content", item["id"])
            return {}

    def kept_fields(self, item: Mapping[str, object]) -> dict[str, object]:
        """Return the encrypted content of a finished reasoning item that has what the server behind a gateway wants back."""
        return self.late_fields(item) if item.get("encrypted_content") else {}

    def seal_summary(self, text: str) -> str:
        """Seal a summary for a compaction item."""
        return self.seal("compaction", {"summary": text})

    def seal(self, kind: str, content: Mapping[str, object]) -> str:
        """Seal the content of an item."""
        return self.keys.seal(Sealed(kind, self.model, self.tenant, content))

    async def unseal(
        self, items: Sequence[JsonItem], request_input: Sequence[JsonItem]
    ) -> tuple[tuple[JsonItem, ...], list[InputTransformation]]:
        """Return a conversation as the model reads it: compacted, with summaries and the reasoning of `request_input` opened.

        Reasoning before that input stays as it is if it cannot be opened. Reasoning in the input that another model, key or
        service wrote is removed, and listed in the second value, because clients send it again in every request.

        Raises:
            ApiError: 400 for a summary that was not sealed here, was changed, or belongs to another binding.
        """
        remaining = window(items)
        if not any(map(methodcaller("get", "encrypted_content"), remaining)):
            return remaining, []
        params: dict[SealedContent | None, str] = {}
        for index, item in enumerate(request_input):
            params.setdefault(_sealed_content(item), f"input[{index}].encrypted_content")
        contents: dict[SealedContent | None, Mapping[str, object]] = {}
        removed: dict[SealedContent | None, InputTransformation] = {}
        for item in remaining:
            sealed = _sealed_content(item)
            if sealed is None:
                continue
            kind, text = sealed
            if kind == "compaction":
                contents[sealed] = await self.open(kind, text, params.get(sealed, "previous_response_id"))
                continue
            try:
                opened = await self.keys.open(kind, text, self.tenant)
            except SealError:
                reason: _Mismatch = "organization_mismatch"
            else:
                if opened.model == self.model:
                    contents[sealed] = opened.content
                    continue
                reason = "model_mismatch"
            if sealed in params:  # any other was stored with its text
                removed[sealed] = InputTransformation(id=str(item.get("id") or ""), action="removed", reason=reason)
        left = [item for item in remaining if _sealed_content(item) not in removed]
        return tuple(_unseal(item, contents.get(_sealed_content(item))) for item in left), [*removed.values()]

    async def open(self, kind: str, text: str, param: str) -> Mapping[str, object]:
        """Open the content of an item; raise an `ApiError` that names the parameter if that fails."""
        opened = await _open(self.keys, (kind, text), self.tenant, param)
        if opened.model != self.model:
            raise _refusal(param, FOREIGN)
        return opened.content


async def require_openable(items: Sequence[JsonItem], keys: SealingKeys, models: Sequence[str], tenant: str) -> None:
    """Raise a 400 if the items contain a compaction that was sealed for none of the models."""
    for index, sealed in enumerate(map(_sealed_content, items)):
        if sealed is not None and sealed[0] == "compaction":
            param = f"items[{index}].encrypted_content"
            if (await _open(keys, sealed, tenant, param)).model not in models:
                raise _refusal(param, FOREIGN)


async def _open(keys: SealingKeys, content: SealedContent, tenant: str, param: str) -> Sealed:
    try:
        return await keys.open(*content, tenant)
    except SealError as error:
        raise _refusal(param, str(error)) from None


def _refusal(param: str, reason: str) -> ApiError:
    message = f"The encrypted content of '{param.removesuffix('.encrypted_content')}' could not be verified: {reason}."
    return invalid(param, message, "invalid_encrypted_content")


def _sealed_content(item: JsonItem) -> SealedContent | None:
    kind, text = item.get("type"), item.get("encrypted_content")
    return (kind, text) if isinstance(kind, str) and kind in SEALED_TYPES and isinstance(text, str) and text else None


def _unseal(item: JsonItem, content: Mapping[str, object] | None) -> JsonItem:
    """Return an item for the model, with the opened content instead of the encrypted content."""
    if not item.get("encrypted_content"):
        return item
    if content is not None and item["type"] == "compaction":
        return summary_message(str(content["summary"]))
    return {**{name: value for name, value in item.items() if name != "encrypted_content"}, **(content or {})}
