"""Encrypted content: reasoning and compactions that clients carry, and only a server with the key can read.

`SealingKeys` are the keys, an `Envelope` encrypts bytes with them, and the `Seals` of a request encrypt fields of items.
docs/state.md explains this protection and its limits.
"""

from __future__ import annotations

import asyncio
import binascii
import hashlib
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

import orjson
from attrs import field, frozen

from interlock.events.json import dumps
from interlock.events.response_object import InputTransformation
from interlock.fsm.errors import InterlockError
from interlock.serving.requests.api_errors import ApiError, invalid
from interlock.serving.requests.context_window import summary_message, window
from interlock.serving.requests.input_items import JsonItem
from interlock.serving.requests.runtime import is_fault

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

logger = logging.getLogger(__name__)

KEYS_VARIABLE: Final = "INTERLOCK_KEYS"
"""The environment variable with the keys: 32 bytes each in base64, separated by commas. The first key seals."""

RANDOM_KEY: Final = (
    f"{KEYS_VARIABLE} is not set: reasoning and compactions that this process encrypts cannot be decrypted by another one, "
    "or after a restart."
)
"""The warning when a server starts with a random key."""

KEY_BYTES: Final = 32
KEY_ID_BYTES: Final = 8
KEY_ID_PURPOSE: Final = b"interlock key id\0"

VERSION: Final = b"\x01"
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
HEAD: Final = len(VERSION) + KEY_ID_BYTES
SHORTEST: Final = HEAD + NONCE_BYTES + TAG_BYTES

SLICE: Final = 2**18
"""Characters of base64 to decode between two yields to the event loop."""

SEALED_TYPES: Final = ("reasoning", "compaction")

SealedContent: TypeAlias = tuple[str, str]
"""The `type` and the `encrypted_content` of an item."""


class SealError(InterlockError):
    """Sealed content cannot be opened by this server. Clients see the message, which reveals nothing of the content."""


@frozen
class SealingKey:
    """An AES-256 key: 32 bytes."""

    secret: bytes = field(repr=False)

    @property
    def id(self) -> bytes:
        """The id of the key in sealed content: 8 bytes of a hash, which does not reveal the key."""
        return hashlib.sha256(KEY_ID_PURPOSE + self.secret).digest()[:KEY_ID_BYTES]


@frozen
class SealingKeys:
    """The keys of a server: `sealing` seals and opens, and the `others`, from before or after a rotation, only open."""

    sealing: SealingKey
    others: tuple[SealingKey, ...] = ()

    @classmethod
    def from_text(cls, text: str) -> SealingKeys:
        """Parse the value of `INTERLOCK_KEYS`; a `ValueError` names the position of a bad key, and does not quote the key."""
        keys = [_key(position, key.strip()) for position, key in enumerate(text.split(","), start=1)]
        for position, key in enumerate(keys, start=1):
            if key in keys[: position - 1]:
                raise ValueError(f"key {position} repeats key {keys.index(key) + 1}")
        return cls(keys[0], tuple(keys[1:]))

    @classmethod
    def from_environment(cls) -> SealingKeys | None:
        """Return the keys in `INTERLOCK_KEYS`, or None if it is not set; raise a `ValueError` if it is malformed."""
        text = os.environ.get(KEYS_VARIABLE)
        try:
            return None if text is None else cls.from_text(text)
        except ValueError as error:
            raise ValueError(f"{KEYS_VARIABLE}: {error}") from None

    @classmethod
    def random(cls) -> SealingKeys:
        """Return one new random key."""
        return cls(SealingKey(secrets.token_bytes(KEY_BYTES)))

    def find(self, key_id: bytes) -> SealingKey | None:
        """Return the key with this id, or None if the server does not have it."""
        return next((key for key in (self.sealing, *self.others) if key.id == key_id), None)


def _key(position: int, key: str) -> SealingKey:
    try:
        secret = binascii.a2b_base64(key.encode("ascii"), strict_mode=True)
    except ValueError:  # also raised for a character that is not ASCII
        raise ValueError(f"key {position} is not base64") from None
    if len(secret) != KEY_BYTES:
        raise ValueError(f"key {position} has {len(secret)} bytes instead of {KEY_BYTES}")
    return SealingKey(secret)


class Binding(NamedTuple):
    """The type of item, the model and the tenant that sealed content belongs to; it can be opened only for these."""

    kind: str
    model: str
    tenant: str = ""


@frozen
class Envelope:
    """Seals content as text that only a holder of the key can read or change.

    Sealed content is the base64 of

        1 byte      the version, 1
        8 bytes     the id of the key
        12 bytes    the nonce, random
        the rest    the content, encrypted with AES-256-GCM, and the tag of 16 bytes

    The first nine bytes and the binding are authenticated too. With random nonces, one key can seal 2**32 times (NIST SP 800-38D,
    8.3).
    """

    keys: SealingKeys

    def seal(self, binding: Binding, content: bytes) -> str:
        """Seal content of fewer than 2**31 bytes."""
        key = self.keys.sealing
        head, nonce = VERSION + key.id, secrets.token_bytes(NONCE_BYTES)
        sealed = _cipher(key).encrypt(nonce, content, head + dumps([*binding]))
        return binascii.b2a_base64(head + nonce + sealed, newline=False).decode("ascii")

    async def open(self, binding: Binding, text: str) -> bytes:
        """Decrypt sealed content. Decoding yields to the event loop, because a request may have much of it.

        Raises:
            SealError: The text was not sealed for this `binding` with a key of this server, or was changed.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - see `_cipher`

        sealed = await _decode_base64(text)
        if len(sealed) < SHORTEST or not sealed.startswith(VERSION):
            raise SealError("it was not made by Interlock, or is truncated")
        head, nonce = sealed[:HEAD], sealed[HEAD : HEAD + NONCE_BYTES]
        key = self.keys.find(head[len(VERSION) :])
        if key is None:
            raise SealError("it was sealed with a key that this server does not have")
        try:
            return _cipher(key).decrypt(nonce, sealed[HEAD + NONCE_BYTES :], head + dumps([*binding]))
        except InvalidTag:
            raise SealError("it was changed, or belongs to another type of item, another model or another API key") from None


@cache
def _cipher(key: SealingKey) -> AESGCM:
    """Return the cipher of a key. The import is local, so that a server that seals nothing does not need the package."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    return AESGCM(key.secret)


async def _decode_base64(text: str) -> bytes:
    """Decode base64 in slices, and refuse a slice that is not canonical."""
    content = bytearray()
    for start in range(0, len(text), SLICE):
        try:
            section = text[start : start + SLICE].encode("ascii")
            chunk = binascii.a2b_base64(section, strict_mode=True)
        except ValueError:
            raise SealError("it is not base64") from None
        if binascii.b2a_base64(chunk, newline=False) != section:
            raise SealError("it is not base64")
        content += chunk
        await asyncio.sleep(0)
    return bytes(content)


@frozen
class Seals:
    """Seals and opens content for one request, bound to its model and tenant."""

    envelope: Envelope
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

    def seal_summary(self, text: str) -> str:
        """Seal a summary for a compaction item."""
        return self.seal("compaction", {"summary": text})

    def seal(self, kind: str, content: Mapping[str, object]) -> str:
        """Seal the content of an item."""
        return self.envelope.seal(Binding(kind, self.model, self.tenant), dumps(content))

    async def unseal(
        self, items: Sequence[JsonItem], request_input: Sequence[JsonItem], models: Callable[[], Awaitable[Sequence[str]]]
    ) -> tuple[tuple[JsonItem, ...], list[InputTransformation]]:
        """Return a conversation as the model reads it: compacted, with summaries and the reasoning of `request_input` opened.

        Reasoning before that input is opened only if it has no text; if that fails, it stays without text. Reasoning in the input
        that belongs to another of the server's `models` is removed, and listed in the second value.

        Raises:
            ApiError: 400 for a summary, or reasoning in the request's input, that was not sealed here, was changed, or belongs to
                another binding.
        """
        remaining = window(items)
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
            if kind == "compaction" or sealed in params:
                try:
                    contents[sealed] = await self.open(kind, text, params.get(sealed, "previous_response_id"))
                except ApiError:
                    if kind == "compaction" or not await self._is_of_another(text, await models()):
                        raise
                    removed[sealed] = InputTransformation(id=str(item.get("id") or ""), action="removed", reason="model_mismatch")
            elif not item.get("content"):
                with suppress(ApiError):  # without it, the model only misses some earlier reasoning
                    contents[sealed] = await self.open(kind, text, "previous_response_id")
        left = [item for item in remaining if _sealed_content(item) not in removed]
        return tuple(_unseal(item, contents.get(_sealed_content(item))) for item in left), [*removed.values()]

    async def _is_of_another(self, text: str, models: Iterable[str]) -> bool:
        """Return whether one of the models wrote sealed reasoning for the same tenant."""
        for model in models:
            with suppress(SealError):
                await self.envelope.open(Binding("reasoning", model, self.tenant), text)
                return True
        return False

    async def open(self, kind: str, sealed: str, param: str) -> Mapping[str, object]:
        """Open the content of an item; raise an `ApiError` that names the parameter if that fails."""
        try:
            content = await self.envelope.open(Binding(kind, self.model, self.tenant), sealed)
        except SealError as error:
            message = f"The encrypted content of '{param.removesuffix('.encrypted_content')}' could not be verified: {error}."
            raise invalid(param, message, "invalid_encrypted_content") from None
        return cast("Mapping[str, object]", orjson.loads(content))


async def require_openable(items: Sequence[JsonItem], envelope: Envelope, models: Iterable[str], tenant: str) -> None:
    """Raise a 400 if the items contain a compaction that was sealed for none of the models."""
    every = [Seals(envelope, model, tenant) for model in models]
    for index, sealed in enumerate(map(_sealed_content, items)):
        if sealed is not None and sealed[0] == "compaction":
            await _open_with_any(every, sealed[1], f"items[{index}].encrypted_content")


async def _open_with_any(every: Sequence[Seals], text: str, param: str) -> None:
    for seals in every[:-1]:
        with suppress(ApiError):
            await seals.open("compaction", text, param)
            return
    await every[-1].open("compaction", text, param)


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
