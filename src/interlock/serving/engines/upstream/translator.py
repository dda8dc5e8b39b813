"""What every upstream API needs: the table of the APIs, the context of a response, the base class of translators, and names.

docs/design/adding-an-upstream.md adds an API.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import ChainMap, Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256
from importlib import import_module
from types import MappingProxyType
from typing import ClassVar, Final, Literal, TypeAlias

from attrs import define, evolve, field, frozen

from interlock.events.chat import split_extras
from interlock.events.items import ITEMS, required_fields
from interlock.events.json import members
from interlock.fsm.deltas import FinishReason
from interlock.parsers import Chunk, Parser
from interlock.parsers.routing import Route, Routing, flat_name
from interlock.serving.engines.engine import EngineOutput, Turn
from interlock.serving.engines.upstream.upstream_client import DISCONNECTED, EventStream, Upstream, keys_of, upstream_error
from interlock.serving.requests.create import ResponseRequest
from interlock.serving.requests.input_items import JsonItem, short_id
from interlock.serving.requests.tool_offer import HostedTools, OfferedTool, list_hosted_functions
from interlock.serving.settings import UpstreamApi

UPSTREAM_APIS: Final[Mapping[UpstreamApi, str]] = MappingProxyType(
    {
        "chat": "chat_upstream.ChatTranslator",
        "responses": "responses_upstream.ResponsesTranslator",
        "vllm": "vllm_upstream.VllmTranslator",
    }
)
"""The modules and names of the translators by the values of `--upstream-api`; a module is imported when it is first used."""

MOST_TOKENS: Final = 2**53 - 1
"""The largest number of tokens that is believed: the largest integer that every JSON reader keeps exactly."""

CACHED: Final = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")
"""The fields of usage with the prompt's tokens from a cache, beside that in its details."""


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
    """The client's `Authorization` header, if the upstream receives it."""
    limit: str = "max_completion_tokens"
    """The field with the limit of tokens, if the API is Chat Completions."""

    @property
    def functions(self) -> HostedTools:
        """The functions that stand for the tools of the gateway, for upstreams that know only functions."""
        return HostedTools(list_hosted_functions(self.hosted))

    @property
    def routing(self) -> Routing:
        """Maps the names that the model may call, including those of the gateway's tools, to kinds of items."""
        return Routing.from_request(self.declared, self.hosted)

    @property
    def keys(self) -> Sequence[str]:
        """What no text of the upstream may contain; see `redact`."""
        return keys_of(self.upstream.authorization(self.authorization))

    async def fetch(self, path: str, body: Mapping[str, object] | None = None) -> object:
        """Return the JSON answer of the upstream; see `Upstream.fetch`."""
        return await self.upstream.fetch(path, body, self.authorization)


@define(eq=False)
class Translator(ABC):
    """Translates one response to and from an upstream's API: writes the request of each turn and reads its events."""

    path: ClassVar[str]
    """The path of the API, relative to the upstream's URL."""
    not_sent: ClassVar[AbstractSet[str]]
    """The fields of a client's request that are not copied to the upstream's."""
    provider: ClassVar = "openai"
    """The `gen_ai.provider.name` of metrics and traces."""
    modalities: ClassVar[list[Literal["text", "image", "audio"]] | None] = None
    """The modalities of every model; None if they depend on the model."""
    passes_tools: ClassVar = False
    """Whether the upstream receives tools that the gateway does not run."""
    usage_follows: ClassVar = True
    """Whether events with the usage may follow the one that says why the turn ended."""
    call: UpstreamCall
    parser: Parser
    """Parses the chunks of the outputs."""
    finish_reason: FinishReason | None = field(default=None, init=False)
    """Why the turn has ended, once an event says so."""
    _usage: Mapping[str, object] = field(factory=dict[str, object], init=False)
    """The upstream's counts of tokens."""
    _body: tuple[Turn, Mapping[str, object]] | None = field(default=None, init=False)
    """The last body that was written."""

    @classmethod
    @abstractmethod
    def of(cls, call: UpstreamCall) -> Translator:
        """Return the translator of a response."""

    async def stream(self, turn: Turn) -> EventStream:
        """Return the call of the upstream for a turn, which is not sent yet, and prepare to read its answer.

        Raises:
            ApiError: The turn cannot be expressed in the API.
        """
        self.finish_reason, self._usage = None, {}
        upstream = self.call.upstream
        return upstream.stream(self.path, upstream.rename_fields(await self.body(turn)), self.call.authorization)

    async def body(self, turn: Turn) -> Mapping[str, object]:
        """Return the body of the request for a turn, which is written once for all counts and calls."""
        if self._body is None or self._body[0] != turn:
            self._body = turn, await self._write(turn)
        return self._body[1]

    async def _write(self, turn: Turn) -> dict[str, object]:
        """Return the body of the request, with the API's own names of fields; fields that are None are not sent."""
        copied = turn.request.forward(self.not_sent)
        return {**copied, "model": self.call.model, "stream": True, **await self._fields(turn)}

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


def translator_of(upstream: Upstream) -> type[Translator]:
    """Return the class of the translators for an upstream."""
    module, _, name = UPSTREAM_APIS[upstream.settings.api].partition(".")
    translator: type[Translator] = getattr(import_module(f"{__package__}.{module}"), name)
    return translator


# The ids of calls and the names of functions on an upstream, which accepts fewer of both. Each side follows from the other, so
# both stay the same if a client sends the whole conversation itself.

SHARED_ID: Final = re.compile(r"call_(?!_)[a-zA-Z0-9_-]{1,35}")
"""Matches the ids of an upstream that are the same in the API."""
MARK: Final = "call__"
"""Begins the ids that stand for another id of the upstream."""
UNSAFE: Final = re.compile(r"[^a-zA-Z0-9_-]|-(?=[0-9a-f]{2})")
"""Matches the characters that `MARK` ids write as bytes in hexadecimal digits."""
ESCAPED: Final = re.compile(rb"-([0-9a-f]{2})")
LONGEST_ID: Final = 1_024
"""The most characters of an id that is mapped; instead of a longer one, the server makes its own."""
FITTING_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,40}")
"""Matches the ids that most services accept from another one."""

NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Matches the names that all services accept."""
KEPT: Final = 55
"""How many characters of another name are kept; eight digits of a digest follow."""
CALLS: Final = frozenset(kind for kind, item in ITEMS.items() if item.as_function_call and "name" in required_fields(item))
"""The items that call a tool by its name."""

Identity: TypeAlias = tuple[str, str, str]
"""The namespace, the server and the name of a tool."""


def api_call_id(upstream_id: object) -> str:
    """Return the API's id for an upstream's, or "" if it has none: only letters, digits, `_` and `-` after `call_`."""
    if not isinstance(upstream_id, str) or not upstream_id or len(upstream_id) > LONGEST_ID:
        return ""
    if SHARED_ID.fullmatch(upstream_id):
        return upstream_id
    return MARK + UNSAFE.sub(lambda match: "".join(f"-{byte:02x}" for byte in match[0].encode(errors="replace")), upstream_id)


def upstream_call_id(call_id: str) -> str:
    """Return the upstream's id for one of the API's, and a short id for one that another server made and services refuse."""
    plain, _ = split_extras(call_id)
    if not plain.startswith(MARK):
        return plain if FITTING_ID.fullmatch(plain) else short_id(call_id)
    escaped = plain.removeprefix(MARK).encode(errors="replace")
    return ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), escaped).decode(errors="replace") or short_id(call_id)


@define(eq=False)
class FunctionNames:
    """The names of one response's functions on the upstream, where they differ from `<namespace>__<name>`.

    A name is replaced if it has other characters than letters, digits, `_` and `-`, or more than 64, or if another tool has it.
    """

    _routes: dict[str, Route] = field(factory=dict[str, Route])
    """The tools whose names alone do not say what they are, by the names that the model may call them by."""
    _names: dict[Identity, str] = field(factory=dict[Identity, str])

    def routing(self, routing: Routing) -> Routing:
        """Return a routing that also maps the upstream's names, including names that are assigned later."""
        return evolve(routing, declared=ChainMap(self._routes, dict(routing.declared)))

    def assign(self, tools: Sequence[OfferedTool]) -> Sequence[OfferedTool]:
        """Return tools with distinct names; of tools outside of namespaces and servers, the first one keeps the name."""
        counts = Counter(tool.name for tool in tools)
        named: dict[str, OfferedTool] = {}
        for tool in tools:
            name, route, is_shared = tool.name, tool.route, counts[tool.name] > 1
            if route is not None and (not NAME.fullmatch(name) or (is_shared and any(_identity(route.fields)[:2]))):
                name = _other_name(name, _identity(route.fields))
                self._names[_identity(route.fields)] = name
            if route is not None and name not in named and (is_shared or name != tool.name):
                self._routes[name] = self._routes[f"functions.{name}"] = route
            named.setdefault(name, tool if name == tool.name else evolve(tool, tool={**tool.tool, "name": name}))
        return [*named.values()]

    def apply(self, item: JsonItem) -> JsonItem:
        """Return an item with the upstream's name of its tool, if that is another one."""
        if item["type"] not in CALLS:
            return item
        identity = _identity(item)
        namespace, label, name = identity
        flat = flat_name(namespace or label, name)
        other = self._names.get(identity) or (flat if NAME.fullmatch(flat) else _other_name(flat, identity))
        return item if other == flat else {**item, "name": other, "namespace": None, "server_label": None}


def _identity(fields: Mapping[str, object]) -> Identity:
    return (str(fields.get("namespace") or ""), str(fields.get("server_label") or ""), str(fields["name"]))


def _other_name(name: str, identity: Identity) -> str:
    digest = sha256("\0".join(identity).encode(errors="replace")).hexdigest()
    return f"{re.sub('[^a-zA-Z0-9_-]', '_', name)[:KEPT]}_{digest[:8]}"
