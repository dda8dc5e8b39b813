"""The servers for the clients: our own, vLLM with the plugin, and gateways; their models write the script of a test."""

import asyncio
import json
import os
import re
import subprocess
from contextlib import contextmanager, nullcontext
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from attrs import define, evolve, field, frozen
from live.engines import prompt_text, steps

from interlock.parsers.families.reference_encoders import encode
from interlock.serving.build import build
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.engines.engine import Engine
from interlock.serving.engines.harmony_tokens import encoding
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.upstreams import upstream_of
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import ModelFacts, Settings, UpstreamSettings

HERE = Path(__file__).parent
ROOT = Path(__file__).parents[2]
PATIENCE = 300


def run(command, cwd, **variables):
    """Return the client's process when it has ended."""
    return subprocess.run(  # noqa: S603 - commands of the tests
        command,
        cwd=cwd,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


VLLM = ROOT / "tests" / "real_vllm"
SUPPORT = ROOT / "tests" / "support"
UNKNOWN = ModelFacts()
KEEP_ALIVE = 0.2
"""The longest silence of a stream, in seconds, in every host."""
SETTINGS = Settings(keep_alive=KEEP_ALIVE)
VLLM_PYTHON = ROOT / ".venv-vllm" / "bin" / "python"

OURS = ("a server of our own", "a gateway over our chat")
OF_ALL_APIS = (*OURS, "gpt-oss in vLLM", "qwen3_coder in vLLM")
"""The hosts that serve Messages and Chat Completions too."""


@frozen
class ScriptedHost:
    """A server while it plays a script.

    Args:
        url: The URL of the server.
        model: The name of its model; `gpt-5.5`, a name that clients know, and `openai/gpt-oss-20b` are the same one.
        recalls: The thoughts that its template repeats in the next prompt: `all`, those since the last `question`, or `none`.
        prompts: Returns the prompts that the model received, as text, control tokens included.
    """

    url: str
    model: str
    recalls: str
    prompts: object


def harmony(turn):
    """Write a turn as gpt-oss does."""
    written = {
        "reasoning": "<|channel|>analysis<|message|>{0.text}<|end|><|start|>assistant",
        "call": "<|channel|>commentary to=functions.{0.name} <|constrain|>json<|message|>{0.text}<|call|>",
        "message": "<|channel|>final<|message|>{0.text}<|return|>",
    }
    return "".join(written[item.kind].format(item) for item in turn)


def qwen3_coder(turn):
    """Write a turn as Qwen3-Coder does."""
    return encode(turn, "qwen3_coder", "qwen3", thinking=False) + "<|im_end|>"


@frozen
class RecordingEngine(Engine):
    """An engine that writes one turn after another, or the result of a function of the prompt, and records the prompts.

    It waits before each turn, so that the server sends a keep-alive.
    """

    turns: object
    known: ModelFacts = UNKNOWN
    models: tuple = ("tiny", "gpt-5.5", "openai/gpt-oss-20b")
    format: str = "harmony"
    prompts: list = field(factory=list)

    def facts(self, name):
        del name
        return self.known

    async def count(self, turn):
        return len(encoding().encode(prompt_text(turn), allowed_special="all"))

    async def generate(self, turn):
        text = prompt_text(turn)
        self.prompts.append(text)
        count = await self.count(turn)
        written = self.turns(text) if callable(self.turns) else self.turns[len(self.prompts) - 1]
        await asyncio.sleep(KEEP_ALIVE * 2)
        for output in steps(harmony(written)):
            yield evolve(output, input_tokens=count)


@contextmanager
def standalone(turns, facts=UNKNOWN):
    """Serve a script with a server of our own."""
    engine = RecordingEngine(turns, facts)
    with ServerThread(build(SETTINGS, engine)) as url:
        yield ScriptedHost(url, engine.models[0], "all", lambda: engine.prompts)


@contextmanager
def over_chat(turns, facts=UNKNOWN):
    """Serve a script with a gateway in front of the Chat Completions of a server of our own."""
    with (
        standalone(turns, facts) as behind,
        ServerThread(build(SETTINGS, Gateway([upstream_of(UpstreamSettings(url=behind.url, api="chat"))]))) as url,
    ):
        yield evolve(behind, url=url)


@contextmanager
def slow_server():
    """Serve the embedded engine so slowly that the server sends a keep-alive before every token.

    Yields:
        The URL, and a function that returns how many keep-alives the server has sent.
    """
    breaks = []

    class Counter:
        def __init__(self, app):
            self._app = app

        async def __call__(self, scope, receive, send):
            async def count(message):
                content = message.get("body") or (message.get("text") or "").encode()
                breaks.extend(re.findall(rb'"type":"keepalive"|"type":"ping"|: keep-alive', content))
                await send(message)

            await self._app(scope, receive, count)

    app = build(Settings(keep_alive=0.005), EmbeddedEngine(rate=100))
    app.add_middleware(Counter)
    with ServerThread(app) as url:
        yield url, lambda: len(breaks)


@define(eq=False)
class InVllm:
    """vLLM with a tiny model, in its own environment.

    Args:
        setup: A name in `SETUPS` of tests/real_vllm/servers.py.
        write: Writes a turn as the model does.
        recalls: As in `ScriptedHost`.
        folder: The folder of the script.
        api: The API of a gateway in front of the server; None for the server's own routes.
    """

    setup: str
    write: object
    recalls: str
    folder: Path
    api: str | None = None
    _process: subprocess.Popen = field(init=False)
    _url: str = field(init=False)

    def __enter__(self):
        command = [str(VLLM_PYTHON), str(VLLM / "servers.py"), self.setup, str(self.folder)]
        path = os.pathsep.join([str(SUPPORT), str(VLLM), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "INTERLOCK_KEEP_ALIVE": str(KEEP_ALIVE)}
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._url = self._process.stdout.readline().strip()
        assert self._url, "vLLM did not start"
        return self

    def __exit__(self, *_):
        self._process.communicate()

    @contextmanager
    def __call__(self, turns):
        """Make the next generations write a script."""
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text("")
        (self.folder / "turns.json").write_text(json.dumps([self.write(turn) for turn in turns]))
        front = nullcontext(self._url) if self.api is None else ServerThread(build(SETTINGS, Gateway([self._upstream()])))
        with front as url:
            yield ScriptedHost(url, "tiny", self.recalls, partial(_lines, prompts))

    def _upstream(self):
        return upstream_of(UpstreamSettings(url=self._url, api=self.api))


def _lines(prompts):
    return [json.loads(line) for line in prompts.read_text().splitlines()]


@contextmanager
def scripted(turns):
    """Send each client the turns that the path of its URL names.

    Args:
        turns: The bytes of the turn that calls a tool and of the turn that answers, for each URL.

    Yields:
        The base URLs. The output of another call than the one in the first turn is refused.
    """

    class Player(BaseHTTPRequestHandler):
        def do_POST(self):
            request = self.rfile.read(int(self.headers["Content-Length"]))
            first, second = turns[int(self.path.split("/")[1])]
            items = [one for one in json.loads(request)["input"] if isinstance(one, dict)]
            outputs = [one for one in items if one.get("type") == "function_call_output"]
            served = [(one["call_id"], "sunny" in json.dumps(one["output"])) for one in outputs[-1:]]
            call_id = re.findall(rb'"function_call", .*?"call_id": "([^"]*)"', first)[-1].decode()
            played = second if outputs else first
            if b'"get_weather"' not in request:
                played = (
                    played.replace(b"get_weather", b"exec_command").replace(b"city", b"cmd").replace(b"Berlin", b"echo sunny")
                )
            self.send_response(200 if served in ([], [(call_id, True)]) else 400)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(played)

        def log_message(self, *_):
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Player) as server:
        Thread(target=server.serve_forever).start()
        try:
            yield [f"http://127.0.0.1:{server.server_port}/{number}/v1" for number in range(len(turns))]
        finally:
            server.shutdown()
