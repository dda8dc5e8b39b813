"""What every upstream API needs: the upstream, the context of a response, and the base class of translators.

The table of APIs is in `interlock.serving.engines.upstream.apis`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256
from importlib import import_module
from typing import ClassVar, Final

from attrs import define, field, frozen

from interlock.events.json import members
from interlock.fsm.deltas import FinishReason
from interlock.parsers import Chunk, Parser, Tagged
from interlock.parsers.routing import Routing
from interlock.serving.engines.engine import EngineOutput, Turn
from interlock.serving.engines.upstream.apis import UPSTREAM_APIS
from interlock.serving.engines.upstream.upstream_client import DISCONNECTED, EventStream, UpstreamClient, keys_of, upstream_error
from interlock.serving.requests.create import ResponseRequest
from interlock.serving.requests.input_items import short_id
from interlock.serving.requests.tool_offer import HostedTools, find_hosted, list_hosted_functions, route_hosted
from interlock.serving.settings import ModelFacts

MOST_TOKENS: Final = 2**53 - 1
"""The largest number of tokens that is believed: the largest integer that every JSON reader keeps exactly."""

CACHED: Final = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")
"""The fields of usage with the prompt's tokens from a cache, beside that in its details."""

SHORT_ID: Final = re.compile("[a-zA-Z0-9]{9}")
"""Matches the ids of calls that every service accepts."""


@frozen(eq=False)
class Upstream:
    """One server behind the gateway.

    `api` is a key of `UPSTREAM_APIS`. `models` are the names that it serves, by default all that it lists. `aliases` map further
    names to its models. With a `family`, Interlock parses its text as that family writes. `fields` renames fields of its
    requests, and drops those named "". With `short_call_ids`, it accepts only call ids of nine letters and digits; with
    `late_system`, system messages anywhere. `facts` are known facts of its models, which override the facts that it lists.
    """

    client: UpstreamClient
    api: str = "chat"
    models: Sequence[str] = ()
    aliases: Mapping[str, str] = field(factory=dict[str, str])
    family: Tagged | None = None
    fields: Mapping[str, str] = field(factory=dict[str, str])
    short_call_ids: bool = False
    late_system: bool = False
    facts: Mapping[str, ModelFacts] = field(factory=dict[str, ModelFacts])
    cache: dict[str, object] = field(factory=dict[str, object], init=False, repr=False)
    """Constant facts about the server, which translators cache here."""

    def rename_fields(self, body: Mapping[str, object]) -> dict[str, object]:
        """Return the body of a request with this upstream's field names, without nulls and dropped fields."""
        names = self.fields
        return {names.get(name, name): value for name, value in body.items() if value is not None and names.get(name, name)}

    @property
    def origin(self) -> str:
        """Names the service in the extras of calls (`interlock.events.chat`)."""
        return sha256(self.client.url.encode()).hexdigest()[:8]

    def fit(self, call_id: str) -> str:
        """Return the id of a call for this upstream: the same, or a short one in its place."""
        return short_id(call_id) if self.short_call_ids and not SHORT_ID.fullmatch(call_id) else call_id


@frozen
class UpstreamCall:
    """The context of one response, for its translator."""

    upstream: Upstream
    model: str
    """The upstream's own name of the model."""
    request: ResponseRequest
    declared: Mapping[str, object]
    """The body of the request with the tools of the conversation added; parsers need it to recognize calls."""
    hosted: Mapping[str, str]
    """The types of the tools that the gateway runs, and their descriptions."""
    authorization: str | None = field(repr=False)
    """The client's `Authorization` header."""
    limit: str = "max_completion_tokens"
    """The field with the limit of tokens, if the API is Chat Completions."""

    @property
    def functions(self) -> HostedTools:
        """The functions that stand for the tools of the gateway, for upstreams that know only functions."""
        return HostedTools(list_hosted_functions(self.hosted))

    @property
    def routing(self) -> Routing:
        """Maps the names that the model may call, including those of the gateway's tools, to kinds of items."""
        return route_hosted(Routing.from_request(self.declared), find_hosted(self.hosted, self.request.tools))

    @property
    def keys(self) -> Sequence[str]:
        """What no text of the upstream may contain; see `redact`."""
        return keys_of(self.upstream.client.authorization(self.authorization))

    async def fetch(self, path: str, body: Mapping[str, object] | None = None) -> object:
        """Return the JSON answer of the upstream; see `UpstreamClient.fetch`."""
        return await self.upstream.client.fetch(path, body, self.authorization)


@define(eq=False)
class Translator(ABC):
    """Translates one response to and from an upstream's API: writes the request of each turn and reads its events."""

    path: ClassVar[str]
    """The path of the API, relative to the upstream's URL."""
    not_sent: ClassVar[AbstractSet[str]]
    """The fields of a client's request that are not copied to the upstream's."""
    usage_follows: ClassVar = True
    """Whether events with the usage may follow the one that says why the turn ended."""
    _call: UpstreamCall
    parser: Parser
    """Parses the chunks of the outputs."""
    finish_reason: FinishReason | None = field(default=None, init=False)
    """Why the turn has ended, once an event says so."""
    _usage: Mapping[str, object] = field(factory=dict[str, object], init=False)
    """The upstream's counts of tokens."""

    @classmethod
    @abstractmethod
    def of(cls, call: UpstreamCall) -> Translator:
        """Return the translator of a response."""

    @property
    def upstream(self) -> Upstream:
        """The upstream that it speaks to."""
        return self._call.upstream

    async def stream(self, turn: Turn) -> EventStream:
        """Return the call of the upstream for a turn, which is not sent yet, and prepare to read its answer.

        Raises:
            ApiError: The turn cannot be expressed in the API.
        """
        self.finish_reason, self._usage = None, {}
        upstream = self._call.upstream
        return upstream.client.stream(self.path, upstream.rename_fields(await self._body(turn)), self._call.authorization)

    async def _body(self, turn: Turn) -> dict[str, object]:
        """Return the body of the request, with the API's own names of fields; fields that are None are not sent."""
        copied = turn.request.forward(self.not_sent)
        return {**copied, "model": self._call.model, "stream": True, **await self._fields(turn)}

    @abstractmethod
    async def _fields(self, turn: Turn) -> Mapping[str, object]:
        """Return the fields of the request that the API needs besides the copied ones, or in place of them."""

    @abstractmethod
    def read(self, data: bytes) -> Sequence[Chunk]:
        """Return the output in the data of one event, in small chunks; keep a finish reason for `end`.

        Raises:
            ApiError: The event is an error, or malformed.
        """

    def read_all(self, events: Iterable[bytes], chunks: list[Chunk]) -> bool:
        """Add the output in the data of events, up to the end of the turn; return whether the turn has ended with or before them.

        Raises:
            ApiError: As for `read`; `chunks` has what came before.
        """
        for data in events:
            chunks += self.read(data)
            if self.finish_reason is not None and not self.usage_follows:
                break
        return self.finish_reason is not None and not self.usage_follows

    def end(self) -> EngineOutput:
        """Return the last output of a turn, with its finish reason and usage, when the stream has ended.

        Raises:
            ApiError: The turn has not ended.
        """
        if self.finish_reason is None:
            message = "The upstream server ended its stream before the end of the turn."
            raise upstream_error(message, DISCONNECTED)
        usage = self._usage
        read = members(usage.get("input_tokens_details", usage.get("prompt_tokens_details")))
        written = members(usage.get("output_tokens_details", usage.get("completion_tokens_details")))
        return EngineOutput(
            Chunk(),
            self.finish_reason,
            input_tokens=count_of(usage.get("input_tokens", usage.get("prompt_tokens"))),
            cached_tokens=_first_count(read.get("cached_tokens"), *map(usage.get, CACHED)),
            cache_write_tokens=_first_count(read.get("cache_write_tokens"), usage.get("cache_creation_input_tokens")),
            output_tokens=count_of(usage.get("output_tokens", usage.get("completion_tokens"))),
            reasoning_tokens=_first_count(written.get("reasoning_tokens"), usage.get("reasoning_tokens")),
        )

    @abstractmethod
    async def count(self, turn: Turn) -> int:
        """Return the number of tokens in the prompt of a turn, or an estimate.

        Raises:
            PromptError: The prompt exceeds the context window.
            ApiError: The turn cannot be expressed in the API, or the upstream fails.
        """

    async def count_locally(self, turn: Turn) -> int:
        """Return the same without asking the upstream; by default, `count` does not ask it."""
        return await self.count(turn)


def count_of(value: object) -> int:
    """Return a positive number of tokens as it is, and 0 for anything else."""
    return value if type(value) is int and 0 < value <= MOST_TOKENS else 0


def _first_count(*values: object) -> int:
    """Return the first positive number of tokens: some services have a 0 beside it."""
    return next((count for value in values if (count := count_of(value))), 0)


def translator_of(call: UpstreamCall) -> Translator:
    """Return the translator of a response."""
    api = UPSTREAM_APIS[call.upstream.api]
    translator: type[Translator] = getattr(import_module(f"{__package__}.{api.module}"), api.translator)
    return translator.of(call)
