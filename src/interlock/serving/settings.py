"""The settings of a server. Each field is an option of the command, a variable of the environment and a key of the file.

`Settings` is also what an application that embeds a server writes. `read_settings` reads it from outside; every error is a
`SettingsError`, which names where the value was set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from attrs import frozen
from msgspec import Meta, Struct, inspect, structs

from interlock.dialects import ApiName
from interlock.events.dialects import DialectName
from interlock.events.json import is_array
from interlock.fsm.table import InterlockError
from interlock.parsers.hosted_tools import HOSTED_TOOLS
from interlock.serving.requests.logs import LogFormat
from interlock.serving.requests.tool_offer import CALL_SECONDS

PLACE: Final = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.DOTALL)
"""Matches the text of a msgspec error, and the path of the wrong value."""

HOST: Final = re.compile(r"\*|(\*\.)?[A-Za-z0-9_-][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\]")
"""Matches the hosts that can be allowed, as `TrustedHostMiddleware` understands them."""

ORIGIN: Final = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/?#\s]+")
"""Matches the origins that can be allowed: no page has another, such as one with a path."""

UpstreamApi: TypeAlias = Literal["chat", "responses", "vllm"]
Count: TypeAlias = Annotated[int, Meta(ge=1)]
Retries: TypeAlias = Annotated[int, Meta(ge=0, le=10)]
Wait: TypeAlias = Annotated[float, Meta(gt=0)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
Texts: TypeAlias = Sequence[str]
Waits: TypeAlias = Annotated[tuple[Wait, ...], Meta(min_length=1, max_length=2)]


@frozen
class SettingsError(InterlockError):
    """A setting is invalid. `place` is where it was set: `--port`, `INTERLOCK_STORE`, `gateway.toml: serve.port` or a field."""

    place: str
    message: str

    def __str__(self) -> str:
        """Return the place and the message."""
        return f"{self.place}: {self.message}"


@frozen
class Option:
    """How a field is set from outside, and what the documentation says of it."""

    help: str  # the meaning, in one sentence or two
    metavar: str = ""  # the name of the value in the help; empty for a flag or a choice
    repeats: bool = False  # whether the option is repeated for each value; a variable has values separated by commas
    has_flag: bool = True  # whether `interlock serve` has the option, and the file the key
    has_variable: bool = True  # whether the environment has the variable
    is_secret: bool = False  # whether the value is hidden where settings are shown


def variable(name: str) -> str:
    """Return the environment variable of a field."""
    return f"INTERLOCK_{name.upper()}"


def flag(name: str) -> str:
    """Return the option of a field."""
    return f"--{name.replace('_', '-')}"


class ModelFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a server knows of a model, such as from the list of an upstream; None is unknown.

    The server only lists them. An engine enforces its window itself, because only the engine can count the tokens of a prompt:
    `window` is the most tokens of a prompt and its output together. `efforts` are the reasoning efforts that a request may name,
    and `modalities` the kinds of input.
    """

    window: Annotated[int, Meta(ge=1)] | None = None
    efforts: list[str] | None = None
    modalities: list[Literal["text", "image", "audio"]] | None = None

    def fill_from(self, other: ModelFacts) -> ModelFacts:
        """Return these facts, with those of another source where these are unknown."""
        facts = {name: getattr(self, name) for name in self.__struct_fields__}
        return ModelFacts(**{name: getattr(other, name) if fact is None else fact for name, fact in facts.items()})


class UpstreamSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table `[[upstream]]` of the file; docs/guides/gateway.md explains the keys."""

    url: str
    api: UpstreamApi = "chat"
    models: tuple[str, ...] = ()
    aliases: dict[str, str] = {}
    family: str | None = None
    key: str | None = None
    key_variable: str | None = None
    pass_key: bool = False
    connect_timeout: Wait = 10
    first_timeout: Wait = 600
    between_timeout: Wait = 600
    retries: Retries = 2
    fields: dict[str, str] = {}
    short_call_ids: bool = False
    late_system: bool = False
    facts: dict[str, ModelFacts] = {}


class SocketLimits(Struct, frozen=True, kw_only=True):
    """The limits of WebSockets: of each connection, and of the memory of all in a process."""

    lifetime: float = 3600  # the seconds after which it accepts no more requests
    in_flight: int = 16  # the most running and waiting requests in all lanes
    lanes: int = 32  # the most lanes with a name; the lane without a name is not counted
    memory_bytes: int = 2**30
    """The most bytes of the requests of all connections, and of the responses that their lanes may continue from."""


class Times(Struct, frozen=True, kw_only=True):
    """What a server waits for, in seconds; a test makes it faster with smaller values."""

    tick: float = 0.1  # between two checks whether the server has to stop
    grace: int = 5  # at shutdown, for responses to end, and for clients to read the last events
    idle: int = 75
    """Until the server closes an idle connection. A client that does not close it earlier loses a request that it sends at that
    moment. httpx, which the SDK uses, closes idle connections after five seconds, which is uvicorn's default."""
    maintenance: float = 5  # between two rounds of maintenance of the store
    poll: float = 1  # until a reader of stored events reads again without a notification


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of a server; each has a default. `build` makes an application from them.

    Raises:
        SettingsError: A value has the wrong type or is out of range, or two settings exclude each other.
    """

    host: Annotated[str, Option("The address to listen on.", "ADDRESS")] = "127.0.0.1"
    # Kubernetes sets INTERLOCK_PORT to the URL of a service that is named `interlock`.
    port: Annotated[int, Meta(ge=0, le=65535), Option("The port; 0 for any free one.", "PORT", has_variable=False)] = 8000
    engine: Annotated[
        Literal["embedded", "vllm"],
        Option(
            "The engine: the embedded one, which needs no model, or vLLM. `--engine vllm MODEL` runs `vllm serve MODEL` "
            "with the plugin, and takes the options of vLLM instead of these."
        ),
    ] = "embedded"
    api_key: Annotated[
        Texts,
        Option("An API key that clients must send; can be repeated. The variable has one.", "KEY", repeats=True, is_secret=True),
    ] = ()
    api_key_file: Annotated[
        Path | None,
        Option("Read the API keys from a file, and again at SIGHUP; each line is a key, or a tenant's name and a key.", "FILE"),
    ] = None
    metrics_key: Annotated[
        str | None,
        Option("The only key that reads /metrics, for Prometheus. Default: any key of --api-key.", "KEY", is_secret=True),
    ] = None
    share_between_keys: Annotated[bool, Option("Let all API keys see the same stored responses, instead of each its own.")] = (
        False
    )
    cors_origin: Annotated[
        Texts, Option("Allow web pages of this origin; can be repeated; * allows all.", "ORIGIN", repeats=True)
    ] = ()
    allowed_host: Annotated[
        Texts,
        Option(
            "Refuse requests for other hosts, except probes; can be repeated; *.example.com allows all names below. "
            "Default: the names of this machine if --host is one, else all.",
            "HOST",
            repeats=True,
        ),
    ] = ()
    dialect: Annotated[DialectName, Option("The dialect for clients that name none.")] = "openai"
    model: Annotated[
        Texts,
        Option(
            "The name of the model; repeat it for clients that accept only certain names: --model tiny --model gpt-4o. "
            "For a gateway also ALIAS=NAME.",
            "NAME",
            repeats=True,
        ),
    ] = ()
    rate: Annotated[Seconds, Option("Tokens per second of each stream; 0 for no limit.", "N")] = 0
    script: Annotated[Path | None, Option("Answer by this script (TOML or JSON), or replay this recording.", "FILE")] = None
    family: Annotated[
        str | None,
        Option(
            "The format of a model family, such as qwen3_coder, or qwen3_coder/none for models that do not reason: the embedded "
            "engine writes it, a gateway reads its text.",
            "NAME",
        ),
    ] = None
    pass_key: Annotated[bool, Option("Send each client's own key to the server behind the gateway.")] = False
    store: Annotated[
        str | None,
        Option(
            "The store for responses: memory:, sqlite:PATH (shared on one host) or "
            "postgresql://HOST/DATABASE (shared by several hosts).",
            "URL",
            is_secret=True,
        ),
    ] = None
    max_stored: Annotated[
        Count,
        Option("The largest size of the default store in memory, which evicts the least recently used responses.", "MIB"),
    ] = 256
    max_streams: Annotated[
        Count | None,
        Option("The most responses that a process generates at once; further requests receive 429.", "N"),
    ] = None
    workers: Annotated[
        Count,
        Option("The number of processes that serve, usually one for each core; more than one need a store that they share.", "N"),
    ] = 1
    drain: Annotated[
        Seconds,
        Option(
            "The longest time for which responses in progress may go on after SIGINT or SIGTERM; new requests receive 503.",
            "SECONDS",
        ),
    ] = 0
    keep_alive: Annotated[
        Seconds,
        Option(
            "Break every silence of a stream after this time, so that clients and proxies do not end it; 0 for never.", "SECONDS"
        ),
    ] = 15
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Option(
            "The least severe messages to log to standard error; info logs each response, and each request but successful probes."
        ),
    ] = "warning"
    log_format: Annotated[LogFormat, Option("Log lines of text, or JSON objects.")] = "text"
    tool_server: Annotated[
        Texts,
        Option(f"The MCP server of a hosted tool ({', '.join(HOSTED_TOOLS)}); can be repeated.", "NAME=URL", repeats=True),
    ] = ()
    tool_timeout: Annotated[float, Meta(ge=0.1), Option("The longest time for a call of a hosted tool.", "SECONDS")] = (
        CALL_SECONDS
    )
    code_interpreter: Annotated[bool, Option("Run the code of `code_interpreter` in a sandbox of this server.")] = False
    web_search: Annotated[
        str | None,
        Option("Search the web for `web_search` with searxng=URL, brave, tavily or exa, and open the pages.", "PROVIDER"),
    ] = None
    raw_reasoning: Annotated[
        bool, Option("Send reasoning as it is to requests that ask for a summary, which get it as the summary otherwise.")
    ] = False
    view: Annotated[bool, Option("Show recent streams at /interlock/, to clients with the API key.")] = False
    allow_mcp_host: Annotated[
        Texts,
        Option(
            "Let requests name MCP servers of this host or private network; can be repeated; * allows all public hosts.",
            "HOST",
            repeats=True,
        ),
    ] = ()
    upstream: Annotated[str | None, Option("Serve the models of this server, as a gateway to it.", "URL")] = None
    upstream_api: Annotated[UpstreamApi, Option("The API of that server; vllm exchanges tokens with any vLLM server.")] = "chat"
    upstream_key: Annotated[str | None, Option("The API key for that server.", "KEY", is_secret=True)] = None
    upstream_timeout: Annotated[
        Waits,
        Option(
            "The most seconds to wait for the first chunk of that server, and for each further one; one number is both.",
            "FIRST,BETWEEN",
        ),
    ] = (600, 600)
    upstream_retries: Annotated[Retries, Option("The most retries; there are none after the first chunk.", "N")] = 2
    config: Annotated[
        Path | None,
        Option("A TOML file with several upstreams, and with defaults of the options of `serve`.", "FILE"),
    ] = None

    keys: Annotated[
        str | None,
        Option(
            "The keys that encrypt reasoning and compactions: 32 bytes each in base64.", "KEYS", has_flag=False, is_secret=True
        ),
    ] = None
    # Settings of the vLLM plugin alone; docs/guides/vllm.md explains them.
    required: Annotated[bool, Option("Make vLLM refuse to start where the plugin cannot work.", has_flag=False)] = False
    cache_salt: Annotated[
        Literal["none", "tenant", "key"] | None,
        Option(
            "Which requests share vLLM's prefix cache: all (none), those of an API key (tenant), or those of an API key with the "
            "same prompt_cache_key (key). Default: tenant with several keys that do not share what is stored, else none.",
            has_flag=False,
        ),
    ] = None
    parsers: Annotated[
        Literal["interlock", "vllm"],
        Option("Whose parsers read the output of models other than gpt-oss.", has_flag=False),
    ] = "interlock"
    dialects: Annotated[
        tuple[ApiName, ...], Option("The APIs to serve instead of vLLM's own routes.", has_flag=False, repeats=True)
    ] = ("responses",)

    upstreams: tuple[UpstreamSettings, ...] = ()
    """The tables `[[upstream]]` of the file."""
    max_body_bytes: int = 32 * 2**20
    """The most bytes of a request's body."""
    socket_limits: SocketLimits = SocketLimits()
    times: Times = Times()
    places: dict[str, str] = {}
    """Where each field was set, if not by code."""

    def __post_init__(self) -> None:
        """Convert the values to their types, and refuse those that exclude each other."""
        for name in self.__struct_fields__:
            structs.force_setattr(self, name, _convert(name, getattr(self, name), self.places.get(name, name)))
        for host in self.allowed_host:
            if HOST.fullmatch(host) is None:
                raise self.error("allowed_host", f"{host!r} is no host, such as api.example.com, *.example.com, [::1] or *")
        for origin in self.cors_origin:
            if ORIGIN.fullmatch(origin) is None:
                raise self.error("cors_origin", f"{origin!r} is no origin, such as https://app.example.com, or *")
        if self.view and self.workers > 1:
            raise self.error("view", f"it shows the streams of one process, not of --workers {self.workers}")
        if self.workers > 1 and (self.store or "memory:").startswith("memory:"):
            shared = "sqlite:PATH or postgresql://HOST/DATABASE"
            raise self.error("workers", f"each process would have a store of its own in memory; add --store {shared}")
        if self.api_key_file and (self.share_between_keys or self.api_key):
            other = "api_key" if self.api_key else "share_between_keys"
            raise self.error("api_key_file", f"the file has all keys and their tenants; leave out {self.place(other)}")

    def __repr__(self) -> str:
        """Return the fields that differ from their defaults, without secrets."""
        changed = {each.name: getattr(self, each.name) for each in structs.fields(self) if each.name != "places"}
        shown = {
            name: "…" if name in options() and options()[name].is_secret else repr(value)
            for name, value in changed.items()
            if value != DEFAULTS[name]
        }
        return f"Settings({', '.join(f'{name}={value}' for name, value in shown.items())})"

    def place(self, name: str) -> str:
        """Return where a field was set, or its name."""
        return self.places.get(name, name)

    def error(self, name: str, message: str) -> SettingsError:
        """Return the error of a field."""
        return SettingsError(self.place(name), message)

    @contextmanager
    def errors(self, name: str) -> Generator[None]:
        """Raise errors of the value of a field as a `SettingsError`."""
        try:
            yield
        except SettingsError:
            raise
        except (OSError, ValueError, InterlockError) as error:
            raise self.error(name, str(error)) from error


class _File(Struct, forbid_unknown_fields=True):
    """The file: the upstreams, and under `[serve]` defaults of options, named with underscores."""

    upstream: list[object] = []
    serve: dict[str, object] = {}


@cache
def options() -> Mapping[str, Option]:
    """Return the options of the fields that have one, in the order of the help."""
    metadata = {name: getattr(hint, "__metadata__", ()) for name, hint in _hints().items()}
    return {name: each for name, found in metadata.items() for each in found if isinstance(each, Option)}


@cache
def _hints() -> Mapping[str, object]:
    return get_type_hints(Settings, include_extras=True)


DEFAULTS: Final[Mapping[str, object]] = {each.name: each.default for each in structs.fields(Settings)}
"""The default of each field."""


@cache
def kind_of(name: str) -> inspect.Type:
    """Return the type of a field, without the None of an optional one."""
    info = inspect.type_info(_hints()[name])
    kinds = info.types if isinstance(info, inspect.UnionType) else (info,)
    return next(kind for kind in kinds if not isinstance(kind, inspect.NoneType))


def choices(name: str) -> tuple[str, ...]:
    """Return the values of a field that has a choice of them, in their order, else none."""
    return _literals(_hints()[name])


def _literals(hint: object) -> tuple[str, ...]:
    kinds: tuple[object, ...] = get_args(hint)
    if get_origin(hint) is Literal:
        return tuple(map(str, kinds))
    return next((found for kind in kinds if (found := _literals(kind))), ())


def _convert(name: str, value: object, place: str) -> object:
    """Convert the value of a field, which may be a text for any type; a sequence becomes a tuple, as in the defaults."""
    try:
        converted: object = msgspec.convert(value, _hints()[name], strict=False, dec_hook=_path)
    except msgspec.ValidationError as error:
        path, message = _explain(error)
        if isinstance(value, str) and not options()[name].is_secret:
            message = message.replace("got `str`", f"got {value!r}")
        allowed = choices(name)
        if name == "upstreams":
            field = path.partition(".")[2]
            is_table = not field and "unknown field" in message
            allowed = UpstreamSettings.__struct_fields__ if is_table else _literals(get_type_hints(UpstreamSettings).get(field))
        if allowed:
            message = f"{message}; choose one of {', '.join(allowed)}"
        raise SettingsError(f"{place}{path}", message) from None
    return tuple(converted) if is_array(converted) else converted


def _path(_kind: type, value: object) -> object:
    if not isinstance(value, (str, Path)):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    return Path(value)


def _explain(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return the path of the wrong value, and what is wrong."""
    match = PLACE.fullmatch(str(error))
    assert match is not None  # noqa: S101 - it matches everything
    return match[2] or "", match[1]


def read_settings(
    given: Mapping[str, object] | None = None,
    *,
    names: Container[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Read settings from the command line, the environment, and the file that either names; the first that has a value decides.

    Args:
        given: The values of the command line by field, texts or lists of texts.
        names: The fields to read, beside those that only variables set; by default all. The file may have others.
        environment: The variables; by default those of the process.

    Raises:
        SettingsError: A file cannot be read, a key is unknown, or a value is wrong.
    """
    variables = os.environ if environment is None else environment
    read = [name for name, option in options().items() if names is None or name in names or not option.has_flag]
    found: dict[str, tuple[str, object]] = {}
    for name in read:
        text = variables.get(variable(name)) if options()[name].has_variable else None
        if text or (text is not None and name == "api_key"):  # an empty key is refused, not ignored
            found[name] = variable(name), [text] if name == "api_key" else _split(name, text)
    found |= {name: (flag(name), _split(name, value)) for name, value in (given or {}).items()}
    if "config" in found:
        place, path = found["config"]
        file = _read_file(Path(str(path)), place)
        found = {**{name: value for name, value in file.items() if name in (*read, "upstreams")}, **found}
    values: dict[str, Any] = {name: _convert(name, value, place) for name, (place, value) in found.items()}
    return Settings(**values, places={name: place for name, (place, _) in found.items()})


def _split(name: str, value: object) -> object:
    """Return the values in a text, if the field has several."""
    is_list = isinstance(DEFAULTS[name], tuple)
    return [part for part in re.split(r"[,\s]+", value) if part] if is_list and isinstance(value, str) else value


def _read_file(path: Path, place: str) -> dict[str, tuple[str, object]]:
    """Return the values of a file by field, each with its place."""
    try:
        file = msgspec.toml.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise SettingsError(place, f"{path}: {error.strerror}") from None
    except msgspec.ValidationError as error:
        key, message = _explain(error)
        if not key:
            raise SettingsError(str(path), f"{message}; choose one of {', '.join(_File.__struct_fields__)}") from None
        raise SettingsError(f"{path}: {key[1:]}", message) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(str(path), f"not TOML: {error}") from None
    known = [name for name, option in options().items() if option.has_flag and name != "config"]
    for name in file.serve:
        if name not in known:
            raise SettingsError(f"{path}: serve.{name}", f"unknown option; choose one of {', '.join(sorted(known))}")
    places = {name: (f"{path}: serve.{name}", value) for name, value in file.serve.items()}
    places["upstreams"] = f"{path}: upstream", file.upstream
    return {name: (place, _convert(name, value, place)) for name, (place, value) in places.items()}
