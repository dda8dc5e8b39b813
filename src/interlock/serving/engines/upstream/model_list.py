"""The models that an upstream lists: its last answer, fetched again in the background, and its fault while it gives none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final, Literal

from attrs import define, field

from interlock.events.json import as_text, elements, members
from interlock.serving.engines.upstream.translator import count_of
from interlock.serving.engines.upstream.upstream_client import STALLED, UpstreamClient
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.settings import ModelFacts

logger = logging.getLogger(__name__)

UNLISTED: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
"""The statuses of upstreams that have no list of models."""
UNAUTHORIZED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
"""The statuses of upstreams that list models only for clients' own keys."""

FRESH: Final = 10.0
"""Seconds after which a request for models fetches the list again."""
LISTING: Final = 10.0
"""The longest time in seconds for a list."""
LIST_SECONDS: Final = 1.0
"""Seconds between two attempts to reach an upstream that is down."""

WINDOWS: Final = ("max_model_len", "context_length", "context_window", "max_context_length", "n_ctx")
"""Where lists have a window: vLLM and SGLang, OpenRouter and Together, Groq, Mistral and LM Studio, llama.cpp in its `meta`."""

LIMITS: Final[Mapping[str, str]] = dict.fromkeys(("library", "organization_owner", "mistralai", "deepseek"), "max_tokens")
"""The only limit of tokens that a server knows, by the owner of its models: Ollama, LM Studio, Mistral, DeepSeek."""

MODALITIES: Final[Sequence[Literal["text", "image", "audio"]]] = ("text", "image", "audio")

UNKNOWN: Final = ApiError(504, "The upstream server has not listed its models yet.", "server_error", code=STALLED)


@define(eq=False)
class ModelList:
    """The list of one upstream. Only the tasks of `refresh` wait for the upstream; whoever reads the list does not."""

    _client: UpstreamClient
    names: Sequence[str] = field(default=(), init=False)
    """The names of the last list; none if the upstream has no list, or only for clients' own keys."""
    facts: Mapping[str, ModelFacts] = field(factory=dict[str, ModelFacts], init=False)
    """What the last list says of models, by their names."""
    limit: str = field(default="max_completion_tokens", init=False)
    """The field of Chat Completions with the limit of tokens."""
    fault: ApiError | None = field(default=UNKNOWN, init=False)
    """Why the last attempt failed."""
    started_at: float = field(default=0, init=False)
    """When the last attempt began, in seconds of the event loop."""
    _attempt: asyncio.Task[None] | None = field(default=None, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    """Begins the next attempt while the upstream is down."""

    @property
    def is_down(self) -> bool:
        """Whether the upstream cannot be reached, is silent or broken; one that refuses its list answers other requests."""
        return self.fault is not None and self.fault.status >= HTTPStatus.INTERNAL_SERVER_ERROR

    def refresh(self) -> asyncio.Task[None] | None:
        """Return the task that fetches the list; begin one if the list is no longer fresh."""
        is_due = asyncio.get_running_loop().time() - self.started_at > FRESH or self.fault is UNKNOWN
        if is_due and self._attempt is None and self._timer is None:
            self._begin()
        return self._attempt

    def close(self) -> None:
        """End the attempts."""
        for each in (self._attempt, self._timer):
            if each is not None:
                each.cancel()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        self.started_at, self._timer, self._attempt = loop.time(), None, loop.create_task(self._fetch())

    async def _fetch(self) -> None:
        before = self.fault
        try:
            answer = await self._client.fetch("models", limit=LISTING, is_probe=True)
            models = models_in(answer)
            facts = {name: _facts(model) for name, model in models.items()}
            self.names, self.facts, self.fault = [*models], facts, None
            owners = {as_text(model.get("owned_by")) for model in models.values()}
            self.limit = next((LIMITS[owner] for owner in owners if owner in LIMITS), self.limit)
        except ApiError as error:
            has_no_list = error.status in UNLISTED or (self._client.pass_key and error.status in UNAUTHORIZED)
            self.fault = None if has_no_list else error
        finally:
            self._attempt = None
        if self.is_down:
            self._timer = asyncio.get_running_loop().call_later(LIST_SECONDS, self._begin)
        if self.fault is not None and (before is None or before.message != self.fault.message):
            logger.warning("the upstream server %s does not list its models: %s", self._client.url, self.fault)
        elif self.fault is None and before not in (None, UNKNOWN):
            logger.warning("the upstream server %s answers again", self._client.url)


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
