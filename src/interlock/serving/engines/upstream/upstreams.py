"""The upstreams of a gateway: made from its settings, and the models that they list."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import Context
from http import HTTPStatus
from typing import Final, Literal
from urllib.parse import urlsplit

from attrs import Factory, define, evolve, field, frozen

from interlock.events.json import as_text, elements, members
from interlock.parsers import Tagged
from interlock.parsers.formats import tagged
from interlock.serving import metrics
from interlock.serving.engines.upstream.translator import count_of
from interlock.serving.engines.upstream.upstream_client import (
    DISCONNECTED,
    REDIRECTED,
    STALLED,
    UNAUTHORIZED,
    UNREACHABLE,
    Upstream,
)
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.settings import ModelFacts, Settings, SettingsError, UpstreamSettings

logger = logging.getLogger(__name__)

FIELDS: Final[Mapping[str, str]] = {"url": "upstream", "key": "upstream_key", "family": "family"}
"""The fields of `Settings` that stand for those of a table."""


def upstreams_of(settings: Settings) -> list[Upstream]:
    """Return the upstream at the URL, or those of the file if there is no URL; a model `ALIAS=NAME` is an alias.

    Raises:
        SettingsError: A value cannot be used, or two upstreams have the same model.
    """
    if settings.upstream is None:
        place = settings.place("upstreams")
        upstreams = [upstream_of(table, f"{place}[{index}]") for index, table in enumerate(settings.upstreams)]
        _require_distinct(upstreams, place)
        return upstreams
    table = UpstreamSettings(
        url=settings.upstream,
        api=settings.upstream_api,
        models=tuple(name for name in settings.model if "=" not in name),
        aliases=dict(name.split("=", 1) for name in settings.model if "=" in name),
        family=settings.family,
        key=settings.upstream_key,
        pass_key=settings.pass_key,
        first_timeout=settings.upstream_timeout[0],
        between_timeout=settings.upstream_timeout[-1],
        retries=settings.upstream_retries,
    )
    try:
        return [upstream_of(table, "")]
    except SettingsError as error:
        raise settings.error(FIELDS[error.place.lstrip(".")], error.message) from None


def upstream_of(table: UpstreamSettings, place: str = "upstream") -> Upstream:
    """Return the upstream of a table; the `SettingsError` of a wrong value has its key after `place`."""
    try:
        family = None if table.family is None else family_format(table.family)
        return Upstream(table, _base_url(table.url), _key(table), family)
    except SettingsError as error:
        raise SettingsError(f"{place}.{error.place}", error.message) from None


def _key(table: UpstreamSettings) -> str | None:
    if table.key is not None and table.key_variable is not None:
        raise SettingsError("key_variable", "give a 'key' or a 'key_variable', not both")
    if table.key_variable is None:
        return _sendable(table.key or None, "key")
    if not os.environ.get(table.key_variable):
        raise SettingsError("key_variable", f"the environment has no variable {table.key_variable}")
    return _sendable(os.environ[table.key_variable], "key_variable")


def family_format(name: str) -> Tagged:
    """Return the format of a model family, or of reasoning alone; raise `SettingsError` for an unknown one."""
    from interlock.parsers.families import DEFAULT_REASONING, REASONINGS  # noqa: PLC0415 - only gateways with a family load them

    if (output_format := tagged(name)) is not None:
        return output_format
    if name in REASONINGS:
        return Tagged(None, name)
    names = ", ".join(dict.fromkeys((*DEFAULT_REASONING, *REASONINGS)))
    raise SettingsError("family", f"unknown family {name!r}; choose one of {names}")


def _sendable(key: str | None, name: str) -> str | None:
    """Return a key; raise `SettingsError` if a header cannot contain it. The message does not have the key."""
    if key is not None and not (key.isascii() and key.isprintable() and key == key.strip()):
        raise SettingsError(name, "a key has only printable ASCII characters, and no white space at its ends")
    return key


def _base_url(url: str) -> str:
    """Return a URL without a trailing slash; its path defaults to `/v1`."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise SettingsError("url", f"{url!r} is invalid: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError("url", f"{url!r} is not an HTTP URL")
    if parts.query or parts.fragment or parts.username is not None:
        raise SettingsError("url", "a URL of an upstream has no user, query or fragment")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/v1'}"


def _require_distinct(upstreams: list[Upstream], place: str) -> None:
    seen: dict[str, int] = {}
    for index, upstream in enumerate(upstreams):
        for name in (*upstream.settings.models, *upstream.settings.aliases):
            if seen.setdefault(name, index) != index:
                raise SettingsError(f"{place}[{index}]", f"upstream[{seen[name]}] has the model {name!r} already")


# The models that an upstream lists.

UNLISTED: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
"""The statuses of upstreams that have no list of models."""
PRIVATE: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
"""The statuses of upstreams that list models only for clients' own keys."""

FRESH: Final = 10.0
"""Seconds after which a request for models fetches the list again; an upstream that refuses its list is asked as often."""
LISTING: Final = 10.0
"""The longest time in seconds for a list."""
LIST_SECONDS: Final = 1.0
"""Seconds between two attempts to reach an upstream that is down."""

WINDOWS: Final = ("max_model_len", "context_length", "context_window", "max_context_length", "n_ctx")
"""Where lists have a window: vLLM and SGLang, OpenRouter and Together, Groq, Mistral and LM Studio, llama.cpp in its `meta`."""

LIMITS: Final[Mapping[str, str]] = dict.fromkeys(("library", "organization_owner", "mistralai", "deepseek"), "max_tokens")
"""The only limit of tokens that a server knows, by the owner of its models: Ollama, LM Studio, Mistral, DeepSeek."""

MODALITIES: Final[Sequence[Literal["text", "image", "audio"]]] = ("text", "image", "audio")

FAULTS: Final = frozenset({STALLED, UNREACHABLE, DISCONNECTED, REDIRECTED, UNAUTHORIZED, "upstream_error"})
"""The codes of faults that clients may see; any other may be the upstream's own."""

UNKNOWN: Final = ApiError(504, "The upstream server has not listed its models yet.", "server_error", code=STALLED)


@define(eq=False)
class ModelList:
    """The list of one upstream. Only its tasks wait for the upstream; reading it never waits."""

    upstream: Upstream
    names: Sequence[str] = field(default=(), init=False)
    """The names of the last list; none if the upstream has no list, or only for clients' own keys."""
    served: Sequence[str] = field(default=Factory(lambda self: served_names(self.upstream, ()), takes_self=True), init=False)
    """The names that clients can use."""
    facts: Mapping[str, ModelFacts] = field(factory=dict[str, ModelFacts], init=False)
    """What the last list says of models, by their names."""
    limit: str = field(default="max_completion_tokens", init=False)
    """The field of Chat Completions with the limit of tokens."""
    unlisted: str | None = field(default=None, init=False)
    """What `unlisted_models` says of the last list."""
    fault: ApiError | None = field(default=UNKNOWN, init=False)
    """Why the last attempt failed."""
    started_at: float = field(default=0, init=False)
    """When the last attempt began, in seconds of the event loop."""
    _attempt: asyncio.Task[None] | None = field(default=None, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    """Begins the next attempt after one that failed."""

    @property
    def is_down(self) -> bool:
        """Whether the upstream cannot be reached, is silent or broken; one that refuses its list answers other requests."""
        return self.fault is not None and self.fault.status >= HTTPStatus.INTERNAL_SERVER_ERROR

    def refresh(self) -> asyncio.Task[None] | None:
        """Return the task that fetches the list; begin one if the list is no longer fresh."""
        is_due = asyncio.get_running_loop().time() - self.started_at > FRESH or self.fault is UNKNOWN
        return self.check() if is_due else self._attempt

    def check(self) -> asyncio.Task[None] | None:
        """Return the task that fetches the list again because a call failed; None if the upstream is known to be down."""
        if self._attempt is None and (self._timer is None or not self.is_down):
            self._begin()
        return self._attempt

    @property
    def has_fault(self) -> bool:
        """Whether the last attempt failed."""
        return self.fault not in (None, UNKNOWN)

    def close(self) -> None:
        self._set_fault(UNKNOWN)
        for each in (self._attempt, self._timer):
            if each is not None:
                each.cancel()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
        self.started_at, self._timer = loop.time(), None
        self._attempt = loop.create_task(self._fetch(), context=Context())  # whose log lines have the id of no request

    async def _fetch(self) -> None:
        before, unlisted_before = self.fault, self.unlisted
        try:
            answer = await self.upstream.fetch("models", limit=LISTING, is_probe=True)
            models = models_in(answer)
            facts = {name: _facts(model) for name, model in models.items()}
            self.names, self.served, self.facts = [*models], served_names(self.upstream, [*models]), facts
            self._set_fault(None)
            self.unlisted = unlisted_models(self.upstream, self.names)
            owners = {as_text(model.get("owned_by")) for model in models.values()}
            self.limit = next((LIMITS[owner] for owner in owners if owner in LIMITS), self.limit)
        except ApiError as error:
            self._set_fault(None if self._can_lack_list(error) else error)
        finally:
            self._attempt = None
        if self.fault is not None:  # no request may ask again
            self._timer = asyncio.get_running_loop().call_later(LIST_SECONDS if self.is_down else FRESH, self._begin)
        if self.fault is not None and (before is None or before.message != self.fault.message):
            logger.warning("the upstream server %s does not list its models: %s", self.upstream.url, _text(self.fault))
        elif self.fault is None and before not in (None, UNKNOWN):
            logger.warning("the upstream server %s answers again", self.upstream.url)
        if self.unlisted not in (None, unlisted_before):
            logger.warning("the upstream server %s %s", self.upstream.url, self.unlisted)

    def _can_lack_list(self, refusal: ApiError) -> bool:
        """Whether an upstream may refuse its list: the settings name its models, or only clients have its keys."""
        settings = self.upstream.settings
        if settings.models and refusal.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return True
        return refusal.status in UNLISTED or (settings.pass_key and refusal.status in PRIVATE)

    def _set_fault(self, fault: ApiError | None) -> None:
        had_fault, self.fault = self.has_fault, fault
        labels = map(str, self.upstream.address)
        metrics.count("interlock_upstream_faults", *labels, amount=self.has_fault - had_fault)


def fault_of(lists: Iterable[ModelList]) -> ApiError:
    """Return the error for clients of upstreams of which one at least does not list its models; its code is of the first fault.

    It has no text of an upstream, which may name the operator's key, account or quota, and which the log has.
    """
    fault = next(each.fault for each in lists if each.fault is not None)
    code = UNAUTHORIZED if fault.status == HTTPStatus.UNAUTHORIZED else fault.code
    message = "No upstream server lists its models."
    return ApiError(503, message, "server_error", code=code if code in FAULTS else "upstream_error")


def served_names(upstream: Upstream, listed: Sequence[str]) -> list[str]:
    """Return the names that clients can use of an upstream's models, given those that it lists."""
    return [*dict.fromkeys([*(upstream.settings.models or listed), *upstream.settings.aliases])]


def unlisted_models(upstream: Upstream, listed: Sequence[str]) -> str | None:
    """Return the rest of a sentence about an upstream whose list lacks models that its settings name, or None."""
    configured = dict.fromkeys([*upstream.settings.models, *upstream.settings.aliases.values()])
    known = {*listed, *(name.removesuffix(":latest") for name in listed)}  # Ollama lists `qwen3:latest`, and serves `qwen3`
    missing = [name for name in configured if name not in known] if listed else []
    return f"does not list {', '.join(missing)}, which the settings name" if missing else None


def models_in(answer: object) -> dict[str, Mapping[str, object]]:
    """Return the models in the answer with a list, by their names."""
    listed = elements(answer) or elements(members(answer).get("data"))
    return {name: members(model) for model in listed if (name := as_text(members(model).get("id")))}


def _facts(model: Mapping[str, object]) -> ModelFacts:
    """Return what an upstream's list says of a model; only OpenRouter's has parameters and kinds of input."""
    inputs = elements(members(model.get("architecture")).get("input_modalities"))
    parameters = elements(model.get("supported_parameters"))
    windows = {**members(model.get("meta")), **model}
    return ModelFacts(
        window=next(filter(None, (count_of(windows.get(key)) for key in WINDOWS)), None),
        efforts=[] if parameters and "reasoning" not in parameters else None,
        modalities=[each for each in MODALITIES if each in inputs] or None,
    )


# What is wrong with the upstreams when a gateway starts.

PROBE_SECONDS: Final = 2.0
"""The longest time in seconds for the list of an upstream, because the server says only then what it serves."""

ENDPOINTS: Final = ("/chat/completions", "/completions", "/responses", "/messages", "/models")
"""The paths that belong to a request, not to the URL of an upstream."""

OWN: Final = (HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT)
"""The statuses of the gateway's own errors."""

MISPLACED: Final = (*UNLISTED, 502)
"""The statuses of an upstream whose URL may have a wrong path, with that for an answer which is not JSON."""


LISTS_FOR_KEYS: Final = "lists its models only for clients' keys: to find it among several, the gateway needs its `models`"
"""What is wrong with one of several upstreams whose list the gateway cannot read, the rest of a sentence about it."""


@frozen
class UpstreamReport:
    """The models of an upstream, and what is wrong with it; the fault is the rest of a sentence about it."""

    upstream: Upstream
    listed: Sequence[str] = ()
    fault: str | None = None
    is_lost: bool = False
    """Whether no request can work: the upstream cannot be reached, or its URL is wrong."""

    @property
    def names(self) -> list[str]:
        """The names that clients can use."""
        return served_names(self.upstream, self.listed)


async def survey(upstreams: Iterable[Upstream]) -> list[UpstreamReport]:
    """Return a report on each upstream, after `PROBE_SECONDS` twice at most."""
    examined = [*upstreams]
    return await asyncio.gather(*(_examine(each, is_alone=len(examined) == 1) for each in examined))


async def _examine(upstream: Upstream, *, is_alone: bool) -> UpstreamReport:
    """Return the report on an upstream; one that is alone receives each name, whether or not it is known."""
    error = None
    try:
        if listed := await _list(upstream, upstream.url):
            return UpstreamReport(upstream, listed, unlisted_models(upstream, listed))
    except ApiError as raised:
        error = raised
        if upstream.settings.pass_key and error.status in PRIVATE:
            needs_names = not (is_alone or served_names(upstream, ()))
            return UpstreamReport(upstream, fault=LISTS_FOR_KEYS if needs_names else None)
    if (error is None or error.status in MISPLACED) and (error is None or error.code != UNREACHABLE):
        urls = [*_other_urls(upstream.url)]
        lists = await asyncio.gather(*(_list(upstream, url) for url in urls), return_exceptions=True)
        for url, found in zip(urls, lists, strict=True):
            if found and not isinstance(found, BaseException):
                return UpstreamReport(upstream, fault=f"lists no models, but {url} does: its URL must be {url}", is_lost=True)
    if error is None or error.status in UNLISTED:
        return UpstreamReport(upstream, fault=None if upstream.settings.models else "lists no models")
    is_lost = error.code == UNREACHABLE
    return UpstreamReport(upstream, fault=f"does not list its models: {_text(error)}{_reason(error)}", is_lost=is_lost)


def _text(error: ApiError) -> str:
    """Return the message of an error, with the status if the upstream chose it, because "Unauthorized" alone says little."""
    is_own = error.status in OWN and error.code in FAULTS
    return str(error) if is_own else f"failed with status {error.status}: {error}"


def _reason(error: ApiError) -> str:
    """Return why a connection failed, as the system says it; clients do not learn that."""
    cause = error.__cause__
    return "" if cause is None else f" ({cause.__cause__ or cause})"


async def _list(upstream: Upstream, url: str) -> Sequence[str]:
    """Return the models that an upstream lists below a URL, over connections of its own, which this event loop closes."""
    own = evolve(upstream, url=url)
    try:
        return [*models_in(await own.fetch("models", limit=PROBE_SECONDS, is_probe=True))]
    finally:
        await own.close()


def _other_urls(url: str) -> Iterator[str]:
    """Yield the URLs that may be meant by one whose path is wrong."""
    parts = urlsplit(url)
    path = parts.path
    for endpoint in ENDPOINTS:
        path = path.removesuffix(endpoint)
    bare = path
    while bare.endswith("/v1"):
        bare = bare.removesuffix("/v1")
    for other in dict.fromkeys((path, f"{bare}/v1", bare, "/v1")):
        if other != parts.path:
            yield f"{parts.scheme}://{parts.netloc}{other}"
