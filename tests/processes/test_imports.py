"""A command starts fast: it imports only what it uses."""

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

LIGHT = [
    ["check", STREAM],
    ["serve", "--help"],
    ["diagram", "message"],
    ["replay", ROOT / "recordings" / "vllm-calls.jsonl"],
]
"""Commands, of which only the first may import Rich."""

PROGRAM = """
import atexit, sys
from interlock.serving.cli.main import main
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
sys.argv = ["interlock", *sys.argv[1:]]
main()
"""


def test_a_light_command_imports_no_heavy_package() -> None:
    first, *others = [
        subprocess.Popen(
            [sys.executable, "-X", "utf8", "-c", PROGRAM, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for command in LIGHT
    ]
    outputs = [process.communicate() for process in (first, *others)]
    assert all(output for output, _ in outputs)
    used, *rest = ({name.partition(".")[0] for name in imported.split()} for _, imported in outputs)
    assert used & SLOW == set.union(*rest) & (SLOW | {"rich"}) == set()


SERVER = """
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
print(*sorted({"cryptography", "httpx2", "mcp", "mcp_types", "openai", "psycopg"} & sys.modules.keys()))
ToolServers({"web_search": "http://127.0.0.1:1/mcp"})
print(*sorted({"mcp", "openai"} & sys.modules.keys()))
"""


def test_a_server_imports_only_what_its_requests_need() -> None:
    done = subprocess.run([sys.executable, "-c", SERVER], capture_output=True, check=True, text=True)
    assert done.stdout.splitlines() == ["", "mcp"]


UNUSED = {
    *("cryptography", "httpx", "httpx2", "mcp", "mcp_types", "openai", "openai_harmony", "pydantic", "rich", "websockets"),
    "interlock.parsers.families",
    "interlock.parsers.harmony",
    "interlock.parsers.harmony_vocabulary",
    "interlock.serving.engines.embedded",
    "interlock.serving.engines.recordings",
    "interlock.serving.engines.upstream.vllm_upstream",
    "interlock.serving.engines.vllm",
    "interlock.serving.http.bounded_protocol",
    "interlock.serving.http.steering",
    "interlock.serving.http.websocket",
    "interlock.serving.http.workers",
    "interlock.serving.tools.code_interpreter",
    "interlock.serving.tools.mcp_session",
}
"""What a gateway of Chat Completions needs neither at its start nor for a request: each takes time and memory."""


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
