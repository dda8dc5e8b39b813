"""A process imports only the modules that it uses, so that it starts fast and works without optional packages."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx
from live.chunk_shapes import chunk
from live.upstream import ScriptedUpstream, serve_upstream, stream

ROOT = Path(__file__).parents[2]
STREAM = ROOT / "tests" / "corpus" / "legal" / "message.sse"

SLOW = frozenset(
    {
        *("fastapi", "httpx", "httpx2", "hypothesis", "jsonschema", "mcp", "mcp_types", "openai", "openai_harmony"),
        *("pydantic", "starlette", "torch", "uvicorn", "vllm"),
    }
)
"""Packages that take at least a tenth of a second to import."""

COMMANDS = {
    f"check {STREAM}": SLOW,
    "serve --help": SLOW | {"rich"},
    "diagram message": SLOW | {"rich"},
    f"replay {ROOT / 'tests' / 'corpus' / 'recordings' / 'vllm-calls.jsonl'}": SLOW | {"rich"},
}
"""Commands, each with the packages that it must not import."""

COMMAND = """
import sys
from interlock.serving.cli.main import main
sys.argv = ["interlock", *{command!r}.split()]
try:
    main()
except SystemExit as ended:
    assert not ended.code
unused = {{name.partition(".")[0] for name in sys.modules}} & {packages!r}
assert not unused, unused
"""

CASES = {
    **{command: COMMAND.format(command=command, packages={*packages}) for command, packages in COMMANDS.items()},
    "the package imports only what loads its modules": """
import sys, interlock
assert [name for name in sys.modules if name.startswith("interlock.")] == ["interlock.lazy"]
""",
    "requests are read without the SDK and Pydantic": """
import sys
from interlock.serving.requests.create import read_request
tools = [{"type": "function", "name": "now", "parameters": {}}, {"type": "web_search"}]
settings = {"temperature": 0.5, "reasoning": {"effort": "high"}, "text": {"verbosity": "low"}, "metadata": {"a": "b"}}
read_request({"model": "m", "input": "Hi", "tools": tools, "tool_choice": "auto", **settings})
assert not {"openai", "pydantic"} & {*sys.modules}
""",
    "the oracle imports nothing that it judges": """
import sys, interlock.verify.oracle
imported = {name.split(".")[1] for name in sys.modules if name.startswith("interlock.")}
assert imported == {"events", "lazy", "verify"}, imported
assert "openai" not in sys.modules
""",
    "without the SDK, all but the conversion is imported": """
import sys
sys.modules["openai"] = None
import interlock.events, interlock.judges, interlock.parsers, interlock.embedding, interlock.testing.streams
""",
    "without OpenTelemetry there are no spans": """
import sys
sys.modules["opentelemetry"] = None
from interlock.serving import traces
assert not traces.HAS_API
headers = {}
parent = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
with traces.continue_trace(parent), traces.record("a", "SERVER", {}) as span:
    span.set({"a": 1})
    span.fail("error")
    span.inject(headers)
assert headers == {}
""",
    "without apsw, a server and the plugin are imported, and a store says what is missing": """
import sys
sys.modules["apsw"] = None
import interlock.serving.http.app, interlock.serving.engines.vllm.plugin
from interlock.serving.store.values import StoreUnusable
from interlock.serving.store import open_store
try:
    open_store()
except StoreUnusable as error:
    assert str(error) == "This store needs apsw: pip install 'interlock[serve]' (in a checkout, '.[serve]')"
else:
    raise AssertionError
""",
    "without Hypothesis, a strategy says what is missing": """
import sys
sys.modules["hypothesis"] = None
import interlock.testing
interlock.testing.assert_legal
try:
    interlock.testing.broken_streams
except ModuleNotFoundError as error:
    assert str(error) == "the strategies of interlock.testing need Hypothesis: pip install hypothesis"
else:
    raise AssertionError
""",
    "only gpt-oss loads a vocabulary": """
import asyncio, sys
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.engines.engine import Turn
from interlock.serving.requests.create import read_request

async def run(engine):
    request = read_request({"model": "m", "input": "Hi"})
    async for output in engine.generate(Turn(request, request.input)):
        pass

for family in (None, "harmony"):
    asyncio.run(run(EmbeddedEngine(family=family)))
    assert ("openai_harmony" in sys.modules) == bool(family)
""",
    "a server imports only what its requests need": """
import json, sys, urllib.request
from interlock.serving.build import build
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings
from interlock.serving.tools.hosting import ToolServers
body = {"model": "interlock-embedded", "input": "hi", "stream": True, "tool_choice": "auto", "reasoning": {"effort": "low"}}
body["tools"] = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
with ServerThread(build(Settings(), EmbeddedEngine())) as url:
    request = urllib.request.Request(f"{url}/v1/responses", json.dumps(body).encode(), {"content-type": "application/json"})
    assert urllib.request.urlopen(request).read().endswith(b"[DONE]\\n\\n")
assert not {"cryptography", "httpx2", "mcp", "mcp_types", "openai", "psycopg"} & sys.modules.keys()
ToolServers({"web_search": "http://127.0.0.1:1/mcp"})
assert {"mcp", "openai"} & sys.modules.keys() == {"mcp"}
""",
    # Eight threads that convert to a type for the first time make msgspec 0.22 crash.
    "the first readers of a process may come at once": """
import sys
from threading import Barrier, Thread
from interlock.events.settings_echo import response_settings
from interlock.events.sse import SseWriter
from interlock.fsm.deltas import Fault, Start
from interlock.fsm.driver import ResponseDriver
from interlock.embedding import now, random_id
from interlock.serving.responses.archive import _resume_driver
from interlock.serving.store.values import StoredResponse

driver = ResponseDriver(response_settings({"model": "any"}), writer=SseWriter(), ids=random_id, clock=now)
frames = driver.feed([Start(), Fault("server_error", "It failed.")])
stored = StoredResponse(driver.response, ())
barrier, read = Barrier(8), []
sys.setswitchinterval(1e-6)

def read_at_once():
    barrier.wait()
    read.append(_resume_driver(stored, frames, len(frames)).response)

threads = [Thread(target=read_at_once) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert read == [driver.response] * 8
""",
}
"""Programs that import and assert, each for a new process."""

FORKS = """
import json, os, sys, traceback
failed = []
for name, code in json.load(sys.stdin).items():
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            exec(code, {})
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        failed.append(name)
print(*failed, sep="\\n")
"""
"""Runs each program in a fork of a process that has imported nothing, and prints the names of those that fail."""


def test_every_program_imports_only_what_it_needs() -> None:
    command = [sys.executable, "-X", "utf8", "-c", FORKS]
    done = subprocess.run(command, input=json.dumps(CASES), capture_output=True, check=True, text=True)
    assert done.stdout == "\n", done.stderr


PROGRAM = """
import atexit, sys
from interlock.serving.cli.main import main
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
sys.argv = ["interlock", *sys.argv[1:]]
main()
"""


UNUSED = {
    *("cryptography", "httpx", "httpx2", "mcp", "mcp_types", "openai", "openai_harmony", "pydantic", "rich", "websockets"),
    "interlock.parsers.families",
    "interlock.parsers.harmony",
    "interlock.serving.engines.embedded",
    "interlock.serving.engines.recordings",
    "interlock.serving.engines.upstream.vllm_upstream",
    "interlock.serving.engines.vllm",
    "interlock.serving.http.bounded_protocol",
    "interlock.serving.http.websocket",
    "interlock.serving.tools.code_interpreter",
    "interlock.serving.tools.mcp_session",
}
"""Modules that a gateway of Chat Completions needs neither to start nor for a request; each takes time and memory."""


def test_a_gateway_imports_only_what_its_start_and_a_request_need() -> None:
    answer = stream(chunk({"content": "Yes."}), chunk({}, "stop"))
    with serve_upstream(ScriptedUpstream([answer])) as url:
        command = [sys.executable, "-c", PROGRAM, "serve", "--port", "0", "--upstream", url]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as gateway:
            base = gateway.stderr.readline().split()[-1]
            assert httpx.post(f"{base}/responses", json={"model": "m", "input": "Hi"}).json()["status"] == "completed"
            gateway.send_signal(signal.SIGINT)
            imported = set(gateway.stderr.read().split())
    assert "interlock.serving.engines.upstream.chat_upstream" in imported
    assert imported & UNUSED == set()
