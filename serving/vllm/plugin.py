"""The endpoint plugin: what vLLM loads by its entry point, and what it is called for.

vLLM calls it twice while a server starts: to add routes, and to set up their state. On a vLLM that it does not know it says so
in one line of the log and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, Protocol, TypeVar

from attrs import define, field

from interlock.events.dialects import OPEN_RESPONSES, OPENAI, Dialect
from interlock.serving.keys import Keys
from interlock.serving.runs.archive import Archive
from interlock.serving.sealing import RANDOM_KEY, Envelope, SealingKeys
from interlock.serving.store import MemoryStore
from interlock.serving.store.opening import open_store
from interlock.serving.view.watching import Watch, Watching
from interlock.serving.vllm import seams
from interlock.serving.vllm.admission import announce_admissions
from interlock.serving.vllm.asking import CacheSalt
from interlock.serving.vllm.families import configured
from interlock.serving.vllm.middleware import Decompressing
from interlock.serving.vllm.routes import STATE, App, add_routes
from interlock.serving.vllm.serving import Hooks
from interlock.serving.vllm.shapes import Serving

__all__ = ["InterlockPlugin"]

T = TypeVar("T")

logger = logging.getLogger("vllm.interlock")  # below vLLM's own, which has a handler

TOOL_TIMEOUT: Final = "INTERLOCK_TOOL_TIMEOUT"
"""The environment variable that says how many seconds a tool may take."""

DIALECT: Final = "INTERLOCK_DIALECT"
"""The environment variable that names the dialect of requests that ask for none: `openai` or `open_responses`."""

DIALECTS: Final[Mapping[str, Dialect]] = {dialect.name: dialect for dialect in (OPENAI, OPEN_RESPONSES)}

CACHE_SALT: Final = "INTERLOCK_CACHE_SALT"
"""The environment variable that says which requests share vLLM's prefix cache."""

CACHE_SALTS: Final[Mapping[str, CacheSalt]] = {"tenant": "tenant", "key": "key", "none": "none"}

VIEW: Final = "INTERLOCK_VIEW"
"""The environment variable that, as 1, shows the last streams at `/interlock/`."""

VIEW_REDACT: Final = "INTERLOCK_VIEW_REDACT"
"""The environment variable that, as 1, hides what is said in them."""

SHARE: Final = "INTERLOCK_SHARE_BETWEEN_KEYS"
"""The environment variable that, as 1, lets what was stored with one API key be there for the others too."""

STORE: Final = "INTERLOCK_STORE"
"""The environment variable that names the store of responses; with it, responses are stored without vLLM's own variable."""

DEFAULT_TOOL_TIMEOUT: Final = 120.0


class State(Protocol):
    """The state of vLLM's application."""

    openai_serving_responses: Serving | None


class EngineClient(Protocol):
    """vLLM's way to its engine."""

    shutdown: Callable[..., object]


@define(eq=False)
class InterlockPlugin:
    """Makes Interlock the stream of a vLLM server's `/v1/responses`.

    Args:
        name: What `VLLM_PLUGINS` calls it.
        required_tasks: Only a server that generates has responses.
    """

    name: str = "interlock"
    required_tasks: tuple[str, ...] = ("generate",)
    _obstacle: str | None = field(default=None, init=False)
    """Why vLLM's own route stays."""
    _watching: asyncio.Task[None] | None = field(default=None, init=False)
    """Ends the responses whose process was lost."""
    _watch: Watch | None = field(default=None, init=False)
    """The last streams, if they are to be shown."""

    def attach_router(self, app: App) -> None:
        """Install our routes in front of vLLM's; the server starts even if that is impossible.

        Args:
            app: vLLM's application.
        """
        try:
            obstacle = seams.obstacle(seams.version())
            if obstacle is None:
                add_routes(app, seams.router(), import_module("fastapi").Depends)
                if os.environ.get(VIEW) == "1":
                    self._watch = Watch(None, redact=os.environ.get(VIEW_REDACT) == "1")
                    app.add_middleware(Watching, watch=self._watch)
                app.add_middleware(Decompressing)  # around the viewer, which shows bodies as they read
                with suppress(ImportError):  # a uvicorn that takes no WebSockets
                    import_module("interlock.serving.http.protocol").install()
        except Exception as error:  # noqa: BLE001 - a build that nobody foresaw
            obstacle = f"{error!r}"
        if obstacle is not None:
            self._leave(obstacle)

    async def init_state(self, engine_client: EngineClient | None, state: State, args: object) -> None:
        """Hook the instance that serves responses; until then, our routes pass on what is asked to vLLM's.

        Args:
            engine_client: vLLM's way to its engine.
            state: Of vLLM's application.
            args: vLLM's command line.
        """
        serving = getattr(state, "openai_serving_responses", None)
        if self._obstacle is not None or serving is None:
            return
        try:
            archive = _archive(serving)
            family = None if serving.use_harmony else configured(args)
            keys = _keys(args)
            sealing_keys = SealingKeys.from_environment()
            more: dict[str, Any] = {
                "family": family,
                "keys": keys,
                "envelope": Envelope(sealing_keys or SealingKeys.random()),
                "dialect": _chosen(DIALECT, DIALECTS, OPENAI.name),
                "cache_salt": _chosen(CACHE_SALT, CACHE_SALTS, "tenant"),
                "origins": frozenset(getattr(args, "allowed_origins", None) or ()),
            }
            hooks = Hooks(serving, archive, _tool_timeout(), hide_end=seams.reads_end_as_text(), **more)
            hooks.install()
            if engine_client is not None:
                announce_admissions(engine_client)
                _end_runs_at_shutdown(engine_client, hooks)
        except Exception as error:  # noqa: BLE001 - likewise
            self._leave(f"{error!r}")
            return
        setattr(state, STATE, hooks)
        self._watching = asyncio.create_task(archive.watch_over())
        readers = "its own parser of harmony" if serving.use_harmony else "vLLM's parsers"
        readers = readers if family is None else f"its own parsers for {family.name}"
        logger.info("Interlock makes the events of /v1/responses, with %s.", readers)
        if sealing_keys is None:
            logger.warning(RANDOM_KEY)
        if self._watch is not None:
            self._watch.keys = keys
        processes: int = getattr(args, "api_server_count", None) or 1
        if serving.enable_store and processes > 1 and isinstance(archive.store, MemoryStore):
            logger.warning(
                "With %d API processes, a stored response is there only in the one that made it, unless %s names a store.",
                processes,
                STORE,
            )

    def _leave(self, obstacle: str) -> None:
        self._obstacle = obstacle
        logger.warning("Interlock leaves vLLM %s's own /v1/responses in place: %s.", seams.version(), obstacle)


def _end_runs_at_shutdown(engine_client: EngineClient, hooks: Hooks) -> None:
    """End the open responses before the engine is shut down, which vLLM does in another thread."""
    loop, shut_down = asyncio.get_running_loop(), engine_client.shutdown

    def shutdown(*arguments: object, **options: object) -> object:
        if not loop.is_closed():
            loop.call_soon_threadsafe(hooks.end)
        return shut_down(*arguments, **options)

    engine_client.shutdown = shutdown


def _archive(serving: Serving) -> Archive:
    """Return the stored responses: where the environment says, or else in memory, if vLLM was told to store any.

    Raises:
        StoreError: The environment names no store that there is.
    """
    url = os.environ.get(STORE)
    if url:
        serving.enable_store = True
    return Archive(open_store(url) if url else MemoryStore())


def _keys(args: object) -> Keys:
    """Return the keys of vLLM's command line, else that of its environment variable.

    Raises:
        ValueError: One of them cannot be sent in a header.
    """
    given: list[str | None] = getattr(args, "api_key", None) or [os.environ.get("VLLM_API_KEY")]
    return Keys.of([key for key in given if key], shared=os.environ.get(SHARE) == "1")


def _chosen(variable: str, choices: Mapping[str, T], default: str) -> T:
    """Return what an environment variable names."""
    name = os.environ.get(variable, default)
    if name not in choices:
        logger.warning("%s is one of %s, and not %r: %s is used.", variable, ", ".join(choices), name, default)
    return choices.get(name, choices[default])


def _tool_timeout() -> float:
    given = os.environ.get(TOOL_TIMEOUT, "")
    try:
        return float(given) if given else DEFAULT_TOOL_TIMEOUT
    except ValueError:
        logger.warning("%s is no number of seconds: %r", TOOL_TIMEOUT, given)
        return DEFAULT_TOOL_TIMEOUT
