"""Real servers for the tests: `vllm serve` with a tiny model, and MCP tool servers, each in its own process.

    python tests/real_vllm/servers.py SETUP [FOLDER]

serves for programs that run in another environment: SETUP is one of `SETUPS`; for one that ends in `-turns`, FOLDER has the
script (see `middlewares.ScriptedTurns`). When the server is ready, its URL is written to standard output; at the end of standard
input, it stops.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import Final, Self

import httpx
import tiny_models
from attrs import define, evolve, field, frozen
from live.ports import free_port
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from interlock.parsers.families import DEFAULT_REASONING, DISTINCT

HERE: Final = Path(__file__).parent
CACHE: Final = Path(os.environ.get("INTERLOCK_CACHE", Path.home() / ".cache" / "interlock"))
RELEASE: Final = tuple(int(part) for part in version("vllm").split(".")[:2])
STORED: Final = Path(tempfile.mkdtemp(prefix="interlock-stored-"), "store.db")
"""The store of the server with two processes; deleted when the tests end."""
atexit.register(shutil.rmtree, STORED.parent, ignore_errors=True)
START: Final = 600.0  # seconds that a server may take to start

ENVIRONMENT: Final = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TORCH_COMPILE_DISABLE": "1",  # vLLM compiles the ranking of log probabilities for half a minute otherwise
    "VLLM_USE_V2_MODEL_RUNNER": "0",  # the default on a device, whose logits processors have another interface
    "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "75",  # after the default five seconds, a client may send a request while vLLM closes
    "VLLM_ENABLE_RESPONSES_API_STORE": "1",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
    "OTEL_BSP_SCHEDULE_DELAY": "100",  # milliseconds between two exports of spans
    "INTERLOCK_TOOL_TIMEOUT": "8",
    "INTERLOCK_ALLOW_MCP_HOST": "localhost",
}
AT_ONCE: Final = 32
"""How many requests a server runs at once; a step of its engine for many of them costs little more than for one."""
FLAGS: Final = (
    *("--dtype", "bfloat16", "--enforce-eager", "--max-num-seqs", str(AT_ONCE)),
    *("--override-generation-config", '{"temperature": 0}'),  # scripts force the tokens, and a choice by chance costs more
)
DEVICES: Final = {
    # As on a device, the engine runs the model itself: a further process would take seconds to start.
    "cpu": ("--distributed-executor-backend", "vllm.v1.executor.uniproc_executor.UniProcExecutor"),
    # A tiny model needs no more, and others may use the device. An engine that measures how much is free fails when another ends.
    "cuda": ("--gpu-memory-utilization", "0.3", "--kv-cache-memory-bytes", "1G"),
}
PARSERS: Final = ("--reasoning-parser", "qwen3", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
FAULTS: Final = ("--middleware", "middlewares.FailingEngine")
KEY: Final = "sesame"
OTHER_KEY: Final = "poppy"
HEADERS: Final = {"Authorization": f"Bearer {KEY}"}
"""The headers for the server with API keys."""

OPERATED: Final = (
    *("--reasoning-parser", "qwen3", "--enable-auto-tool-choice"),
    *("--tool-parser-plugin", str(HERE / "failing_parser.py"), "--tool-call-parser", "failing"),
    *("--api-key", KEY, OTHER_KEY, "--enable-log-requests", "--enable-log-outputs"),
    *(("--enable-per-request-metrics",) if RELEASE >= (0, 32) else ()),
)


SEARCH_PORT: Final = free_port()
"""The port at which a test plays SearXNG for the server with tools of its own."""
OWN_TOOLS: Final = {"INTERLOCK_CODE_INTERPRETER": "1", "INTERLOCK_WEB_SEARCH": f"searxng=http://127.0.0.1:{SEARCH_PORT}"}
ALL_APIS: Final = {"INTERLOCK_DIALECTS": "responses,messages,chat"}


@frozen
class Setup:
    """The settings of a server.

    Args:
        model: One of `tiny_models.BUILDERS`.
        flags: The flags for `vllm serve`.
        environment: Environment variables besides `ENVIRONMENT`.
        context: The size of its context, in tokens.
        tools: Whether it has tool servers, which are started first.
        traced: Whether its spans are collected, in `Server.spans`.
        adapters: LoRA adapters, by their names in requests; each one of `tiny_models.BUILDERS`.
        plugin: Whether vLLM loads Interlock.
        command: The command, without the flags for `vllm serve`.
        processor: The logits processor that forces the scripted tokens.
    """

    model: str
    flags: Sequence[str] = ()
    environment: Mapping[str, str] = field(factory=dict[str, str])
    context: int = 4096
    tools: bool = False
    traced: bool = False
    adapters: Mapping[str, str] = field(factory=dict[str, str])
    plugin: bool = True
    command: Sequence[str] = ("vllm", "serve")
    processor: str = "scripted_tokens:ScriptedTokens"


HARMONY: Final = Setup("gpt_oss", tools=True, context=16384)  # an endless response fills it in most of a minute
PARSED: Final = Setup("qwen3", (*FAULTS, *PARSERS))
SMOLLM2: Final = Setup("smollm2", ("--enable-auto-tool-choice", "--tool-call-parser", "hermes"))


def family(name: str) -> Setup:
    """Return a server with a model of a family."""
    flags = ["--enable-auto-tool-choice", "--tool-call-parser", name]
    reasoning = {**EVERY, **FAMILIES}[name]
    return Setup("families", [*flags, "--reasoning-parser", reasoning] if reasoning else flags)


FAMILIES: Final[Mapping[str, str]] = {
    "qwen3_coder": "qwen3",
    "hermes": "qwen3",
    "glm45": "glm45",
    "glm47": "glm47",
    "minimax_m2": "minimax_m2",
    "deepseek_v32": "deepseek_r1",
    "kimi_k2": "kimi_k2",
    "deepseek_v3": "deepseek_r1",
    "mistral": "",  # its reasoning parser needs Mistral's own tokenizer
    "kimi_k3": "kimi_k3",
    "minimax_m3": "minimax_m3",
    "gemma4": "gemma4",
    "lfm2": "qwen3",
}
"""The families that the tests play on real engines, each with its reasoning parser."""

_UNREGISTERED: Final = {"nemotron_json", "spark25", "gigachat35", "functionary_v31", "mirothinker"}
"""Families that vLLM 0.33 has no parser for."""

EVERY: Final[Mapping[str, str]] = {
    **{
        name: DEFAULT_REASONING[name] or ""
        for name in DISTINCT
        if not name.startswith("cohere_") and name not in _UNREGISTERED  # vLLM needs a package for Cohere's
    },
    "mistral": "",
    "olmo3": "qwen3",  # their own reasoning parsers need their own tokenizers
}
"""A family for each format, with its reasoning parser."""

NAMES: Final = ("tiny", "gpt-5.5", "openai/gpt-oss-20b")
TURNS: Final = ("--middleware", "middlewares.ScriptedTurns", "--served-model-name", *NAMES)
HAS_EXAMPLE: Final = RELEASE in ((0, 32), (0, 33))
"""Whether the release is one that examples/vllm_events.py is for."""
CHOSEN: Final = ("--middleware", "chosen_serving.ChosenServing") if HAS_EXAMPLE else ()
EXAMPLE: Final = ("python", str(HERE.parents[1] / "examples" / "vllm_events.py"), "serve") if HAS_EXAMPLE else ("vllm", "serve")
LONG: Final = 60_000
"""The size of a context with room for an agent's instructions, and for a response that outlasts every pause of a busy machine."""

SETUPS: Final[Mapping[str, Setup]] = {
    "gpt_oss-turns": Setup("gpt_oss", TURNS, ALL_APIS, context=LONG),
    "stock-gpt_oss-turns": Setup("gpt_oss", TURNS, context=LONG, plugin=False),
    "qwen3_coder-turns": evolve(
        family("qwen3_coder"), flags=(*family("qwen3_coder").flags, *TURNS), environment=ALL_APIS, context=LONG
    ),
    "stock-qwen3_coder-turns": evolve(
        family("qwen3_coder"), flags=(*family("qwen3_coder").flags, *TURNS), context=LONG, plugin=False
    ),
    **{f"family-{name}": family(name) for name in FAMILIES},
    **{f"example-{name}": evolve(family(name), plugin=False, command=EXAMPLE) for name in FAMILIES},
    **{f"every-{name}": evolve(family(name), flags=(*family(name).flags, "--stream-interval", "5")) for name in EVERY},
    "harmony": evolve(HARMONY, flags=FAULTS, environment=ALL_APIS),
    "open-responses": Setup("gpt_oss", ("--api-key", KEY), {"INTERLOCK_DIALECT": "open_responses", **OWN_TOOLS}),
    "parsed": evolve(PARSED, environment=ALL_APIS, tools=True, context=LONG),
    "shared": evolve(
        PARSED,
        flags=(*PARSED.flags, "--stream-interval", "7", "--api-server-count", "2"),
        environment={"INTERLOCK_STORE": f"sqlite:{STORED}"},
        context=LONG,
    ),
    "operated": Setup(
        "qwen3",
        (*FAULTS, *OPERATED),
        {"INTERLOCK_VIEW": "1"},
        context=LONG,
        traced=True,
        plugin=False,
        command=("interlock", "serve", "--engine", "vllm"),
    ),
    "stock-harmony": evolve(HARMONY, flags=(*FAULTS, *CHOSEN), plugin=False),
    "stock-parsed": evolve(PARSED, flags=(*PARSERS, *CHOSEN), plugin=False, tools=True),
    "stock-families": Setup("families", CHOSEN, plugin=False, command=EXAMPLE),
    "example": Setup("families", ("--api-server-count", "2"), plugin=False, command=EXAMPLE),
    "smollm2": evolve(SMOLLM2, environment=ALL_APIS, adapters={"adapted": "smollm2_lora"}),
    "stock-smollm2": evolve(SMOLLM2, plugin=False),
}


@define
class Process:
    """A process with a port, and the processes that it starts."""

    command: Sequence[str]
    environment: Mapping[str, str]
    port: int
    _log: Path = field(init=False)
    _running: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        handle, name = tempfile.mkstemp(suffix=".log", prefix=f"{Path(self.command[0]).name}-")
        self._log = Path(name)
        self._running = subprocess.Popen(  # noqa: S603 - our own command
            self.command, env={**os.environ, **self.environment}, stdout=handle, stderr=handle, start_new_session=True
        )
        os.close(handle)

    def wait(self, url: str) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + START
        while time.monotonic() < deadline:
            try:
                with httpx.stream("GET", url, timeout=5) as answer:
                    if answer.status_code == 200:
                        return
            except httpx.TransportError:
                pass
            if self.over:
                break
            time.sleep(0.3)
        log_end = self.log[-4000:]
        self.stop()
        raise RuntimeError(f"{' '.join(self.command)} did not start:\n{log_end}")

    @property
    def pid(self) -> int:
        assert self._running is not None
        return self._running.pid

    @property
    def over(self) -> bool:
        return self._running is None or self._running.poll() is not None

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def terminate(self) -> None:
        """Ask the process to end."""
        if self._running is not None:
            self._running.terminate()

    def stop(self) -> None:
        """End the process and the processes that it started."""
        if self._running is None:
            return
        self._running.terminate()
        try:
            self._running.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self._running.pid, signal.SIGKILL)
            self._running.wait()
        self._log.unlink(missing_ok=True)
        self._running = None


class Collector(ThreadingHTTPServer):
    """Receives the spans of a server, in the protocol of OpenTelemetry."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _CollectorHandler)
        self.spans: list[dict[str, str]] = []
        Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/traces"


class _CollectorHandler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        received = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        for scope in (scope for resource in received.resource_spans for scope in resource.scope_spans):
            for span in scope.spans:
                ids = {"trace": span.trace_id.hex(), "id": span.span_id.hex(), "parent": span.parent_span_id.hex()}
                self.server.spans.append({"scope": scope.scope.name, "name": span.name, **ids})
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@define
class Server:
    """A vLLM server with its tool servers, as a context manager."""

    setup: Setup
    name: str = ""
    _collector: Collector | None = field(default=None, init=False)
    _tools: dict[str, Process] = field(factory=dict[str, Process], init=False)
    process: Process = field(init=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.process.port}"

    def begin(self) -> Self:
        """Start the server, without waiting until it answers."""
        with self._undone():
            self._start()
        return self

    def __enter__(self) -> Self:
        if not hasattr(self, "process"):
            self.begin()
        with self._undone():
            self.process.wait(f"{self.url}/health")
        return self

    @contextmanager
    def _undone(self) -> Generator[None]:
        """Stop all processes on an exception."""
        try:
            yield
        except BaseException:
            self.__exit__()
            raise

    @property
    def spans(self) -> Sequence[Mapping[str, str]]:
        """The spans that the server has exported so far, each with the name of its `scope`, its own, and its ids."""
        assert self._collector is not None
        return self._collector.spans

    def __exit__(self, *_: object) -> None:
        if self._collector is not None:
            self._collector.shutdown()
            self._collector.server_close()
        for process in (*self._tools.values(), *([self.process] if hasattr(self, "process") else [])):
            process.stop()

    def start_tool(self, name: str) -> None:
        """Start a tool server, or start it again at its port."""
        old = self._tools.get(name)
        port = old.port if old else free_port()
        if old:
            old.stop()
        started = Process([sys.executable, str(HERE / "tool_server.py"), name, str(port)], {}, port)
        self._tools[name] = started
        started.start()
        started.wait(f"http://127.0.0.1:{port}/sse")

    def tool_url(self, name: str) -> str:
        """Return the URL of a tool server for a request."""
        return f"http://localhost:{self._tools[name].port}/sse"

    def stop_tool(self, name: str) -> None:
        self._tools[name].stop()

    def _start(self) -> None:
        setup = self.setup
        model = tiny_models.built(setup.model, CACHE / "models")
        port = free_port()
        flags = ["--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port)]
        flags += ["--max-model-len", str(setup.context), *FLAGS, *setup.flags]
        flags += DEVICES[os.environ.get("INTERLOCK_DEVICE", "cpu")]
        if setup.model != "smollm2":
            flags += ["--load-format", "dummy", "--logits-processors", setup.processor]
        if setup.adapters:
            paths = (f"{name}={tiny_models.built(adapter, CACHE / 'models')}" for name, adapter in setup.adapters.items())
            flags += ["--enable-lora", "--lora-modules", *paths]
        if setup.tools:
            for name in ("python", "browser", "container"):
                self.start_tool(name)
            flags += ["--tool-server", ",".join(f"127.0.0.1:{tool.port}" for tool in self._tools.values())]
        if setup.traced:
            self._collector = Collector()
            flags += ["--otlp-traces-endpoint", self._collector.url]
        path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
        loaded = "interlock" if setup.plugin else ""
        environment = {**ENVIRONMENT, "PYTHONPATH": path, "VLLM_PLUGINS": loaded, **setup.environment}
        program, *rest = setup.command
        self.process = Process([str(Path(sys.executable).with_name(program)), *rest, str(model), *flags], environment, port)
        self.process.start()


@define
class Line:
    """A sequence of servers, by their names in `SETUPS`; while the tests of one run, the next one starts, which takes long."""

    names: Sequence[str] = ()
    _servers: dict[str, Server] = field(factory=dict[str, Server], init=False)
    _serving: dict[str, Server] = field(factory=dict[str, Server], init=False)
    """The current server, by name; pytest may request it again for each test."""

    def serving(self, name: str) -> Server:
        """Return a server that is ready, and begin to start the next one."""
        if name not in self._serving:
            self._end(self._serving)
            self._serving[name] = (self._servers.pop(name, None) or Server(SETUPS[name], name)).__enter__()
            for other in self.names[self.names.index(name) + 1 :][:1]:
                if other not in self._servers:
                    self._servers[other] = Server(SETUPS[other], other).begin()
        return self._serving[name]

    def stop(self) -> None:
        """Stop all servers."""
        self._end(self._serving)
        self._end(self._servers)

    @staticmethod
    def _end(servers: dict[str, Server]) -> None:
        while servers:
            servers.popitem()[1].__exit__()


def main(name: str, folder: str = "") -> None:
    """Serve until standard input ends."""
    setup = SETUPS[name]
    turns = {"INTERLOCK_TURNS": folder, "INTERLOCK_TURNS_MODEL": setup.model}
    with Server(evolve(setup, environment={**setup.environment, **turns})) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
