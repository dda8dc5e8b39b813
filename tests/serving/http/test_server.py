"""Servers start, bound the frames of WebSockets, supervise processes, and drain streams at a shutdown."""

import errno
import json
import logging
import re
import signal
import socket
import threading
import time
from functools import partial
from itertools import count, islice
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from attrs import define, field
from live.engines import ANSWER, Gate, StagedEngine, step
from live.sockets import DEFLATE, framed, raw_socket
from live.wire import bodies
from openai import DEFAULT_CONNECTION_LIMITS
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from uvicorn.supervisors.multiprocess import SIGNALS
from websockets.frames import CloseCode, Opcode

from interlock.serving.build import build
from interlock.serving.engines.embedded import MODEL, EmbeddedEngine
from interlock.serving.http import bounded_protocol as protocol
from interlock.serving.http import server as module
from interlock.serving.http.server import Server, ServerThread, Supervisor, listen, reserve, url_of
from interlock.serving.requests.api_keys import Keys
from interlock.serving.requests.logs import JsonFormatter, begin_logs
from interlock.serving.settings import Settings, Times
from interlock.testing import assert_legal

STREAM = {"model": "staged", "input": "Hi", "stream": True}


def test_a_shutdown_ends_open_streams_as_failed_and_closes_the_engine(caplog) -> None:
    gate = Gate()
    engine = StagedEngine([step(ANSWER), gate])
    server = ServerThread(build(Settings(), engine))
    with server as url, httpx.stream("POST", f"{url}/v1/responses", json=STREAM) as answer:
        assert gate.reached.wait(10)
        server.stop()
        events = bodies(answer.read())
    response = events[-1]["response"]
    assert (events[-1]["type"], response["error"]["message"]) == ("response.failed", "The server is shutting down.")
    assert response["output"][0]["status"] == "incomplete"
    assert engine.closed.is_set()
    logged = [each.getMessage() for each in caplog.records if each.name == module.__name__]
    assert logged == ["the server shuts down, and ends 1 response in progress"]


def test_a_server_drains_its_streams_and_sockets_and_refuses_new_requests(caplog) -> None:
    caplog.set_level("INFO", module.__name__)
    gate = Gate()
    server = ServerThread(build(Settings(drain=600), StagedEngine([step(ANSWER), gate, step("", "stop")])))
    with server as url, httpx.stream("POST", f"{url}/v1/responses", json=STREAM) as answer:
        assert gate.reached.wait(10)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        while (ready := httpx.get(f"{url}/ready")).status_code == 200:
            time.sleep(0.01)
        refused = httpx.post(f"{url}/v1/responses", json=STREAM)
        alive = httpx.get(f"{url}/health")
        waiting = httpx.get(f"{url}/metrics").text
        gate.open()
        assert bodies(answer.read())[-1]["type"] == "response.completed"
        stopping.join(10)
    assert [each.status_code for each in (ready, refused, alive)] == [503, 503, 200]
    errors = [each.json()["error"] for each in (ready, refused)]
    error = {"message": "The server is shutting down.", "type": "server_error", "param": None, "code": "shutting_down"}
    assert errors == [error] * 2
    assert {each.headers["retry-after"] for each in (ready, refused)} == {"1"}
    assert "\ninterlock_open_streams 1.0\n" in waiting
    logged = [each.getMessage() for each in caplog.records if each.name == module.__name__]
    assert logged == ["draining for at most 600 seconds: 1 response in progress"]


def test_a_server_whose_application_cannot_start_raises_an_error(caplog) -> None:
    engine = StagedEngine([])
    app = build(Settings(), engine)
    engine.format = "unknown"
    with pytest.raises(RuntimeError, match="the server did not start"), ServerThread(app):
        pytest.fail("the server has started")
    assert "unknown" in caplog.text


async def hello(scope, _, send):
    if scope["type"] == "lifespan":
        raise NotImplementedError
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"Hello"})


def test_a_server_serves_any_application() -> None:
    with ServerThread(hello) as url:
        assert httpx.get(url).text == "Hello"


def test_the_line_about_draining_has_no_request_even_if_a_signal_interrupts_one(caplog, monkeypatch) -> None:
    # The package of MCP replaces uvicorn's handler by one that ends every later stream of MCP in this process too.
    monkeypatch.setattr("uvicorn.Server.handle_exit", lambda server, *_: setattr(server, "should_exit", True))
    caplog.set_level("INFO", module.__name__)
    caplog.handler.setFormatter(JsonFormatter())

    async def interrupted(scope, receive, send):
        if scope["type"] == "http":
            begin_logs("req_1")
            running._server.handle_exit(signal.SIGTERM, None)
        await hello(scope, receive, send)

    running = ServerThread(interrupted)
    with running as url:
        httpx.get(url)
    (line,) = map(json.loads, caplog.handler.stream.getvalue().splitlines())
    assert {name: value for name, value in line.items() if name != "time"} == {
        "level": "info",
        "logger": module.__name__,
        "message": "draining for at most 0 seconds: 0 responses in progress",
    }


def test_a_server_in_a_thread_leaves_the_access_lines_of_its_program_as_they_are(monkeypatch) -> None:
    monkeypatch.setattr(logging.getLogger("uvicorn.access"), "filters", [])
    with ServerThread(Starlette()):
        assert logging.getLogger("uvicorn.access").filters == []


def test_a_server_serves_an_application_that_mounts_another() -> None:
    mounted = build(Settings(), StagedEngine([step(ANSWER, "stop")]))
    site = Starlette(lifespan=lambda _: mounted.router.lifespan_context(mounted))
    site.mount("/ai", mounted)
    with ServerThread(site) as url:
        events = bodies(httpx.post(f"{url}/ai/v1/responses", json=STREAM).content)
    assert events[-1]["type"] == "response.completed"


def test_a_request_that_arrives_during_a_shutdown_is_refused() -> None:
    engine = StagedEngine([step(ANSWER, "stop")])
    app = build(Settings(), engine)
    app.api.service.active_runs.end()
    with ServerThread(app) as url:
        answer = httpx.post(f"{url}/v1/responses", json=STREAM)
    assert (answer.status_code, answer.json()["error"]["message"]) == (503, "The server is shutting down.")
    assert answer.headers["retry-after"] == "1"
    assert engine.turns == []


def test_an_ended_response_is_not_an_active_run() -> None:
    app = build(Settings(), StagedEngine([step(ANSWER, "stop")]))
    with ServerThread(app) as url:
        bodies(httpx.post(f"{url}/v1/responses", json=STREAM).content)
    assert len(app.api.service.active_runs) == 0


def test_the_server_keeps_idle_connections_longer_than_the_sdk() -> None:
    server = Server(build(Settings(), StagedEngine([])), lambda: None)
    assert DEFAULT_CONNECTION_LIMITS.keepalive_expiry is not None
    assert server.config.timeout_keep_alive > 2 * DEFAULT_CONNECTION_LIMITS.keepalive_expiry


@pytest.mark.parametrize(("host", "pattern"), [("127.0.0.1", r"http://127\.0\.0\.1:\d+"), ("localhost", r"http://127.*")])
def test_a_socket_has_a_url(host, pattern) -> None:
    with listen(host, 0) as listening:
        assert re.fullmatch(pattern, url_of(listening))


@pytest.mark.skipif(not socket.has_ipv6, reason="the machine has no IPv6")
def test_an_ipv6_address_stands_in_brackets() -> None:
    with listen("::1", 0) as listening:
        assert re.fullmatch(r"http://\[::1\]:\d+", url_of(listening))


def test_listening_on_a_used_port_raises() -> None:
    with listen("127.0.0.1", 0) as listening, pytest.raises(OSError, match="in use"):
        listen("127.0.0.1", listening.getsockname()[1])


def test_accepted_connections_disable_nagles_algorithm() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/models", "/v1/no"])
@pytest.mark.parametrize("changes_bodies", [False, True])
def test_an_http_1_0_client_gets_no_chunked_encoding(path, changes_bodies) -> None:
    body = b'{"model": "interlock-embedded", "input": "Hi", "stream": true}' if path == "/v1/responses" else b""
    head = f"{'POST' if body else 'GET'} {path} HTTP/1.0\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(body)}\r\n\r\n"
    application = build(Settings(), EmbeddedEngine())
    if changes_bodies:
        application.add_middleware(GZipMiddleware)
    with ServerThread(application) as url:
        place = urlsplit(url)
        with socket.create_connection((place.hostname, place.port), timeout=30) as connection:
            connection.sendall(head.encode() + body)
            answer = b"".join(iter(partial(connection.recv, 65_536), b""))
    headers, _, content = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in headers.lower()
    if body:
        assert_legal(content)
    else:
        json.loads(content)


# Bounds on WebSocket clients: the rate and size of frames, and clients that do not read


ASK = {"type": "response.create", "model": MODEL, "input": "Hi", "store": False, "generate": False}
MIB = 2**20
OPEN = framed(Opcode.TEXT, fin=False)


def request_bytes(**fields):
    return json.dumps({**ASK, **fields}, ensure_ascii=False).encode()


def test_a_message_may_be_fragmented_with_pings_in_between(url) -> None:
    content = request_bytes(input="\u4e16\U0001f600" * 50_000)
    with raw_socket(url) as client:
        client.send(Opcode.TEXT, content[:1], fin=False)
        for start in range(1, len(content), 1001):
            client.send(Opcode.CONT, content[start : start + 1001], fin=False)
        client.send(Opcode.PING, b"a")
        client.send(Opcode.CONT)
        assert next(client.frames()) == (Opcode.PONG, b"a")
        assert client.end_of_turn()["type"] == "response.completed"


def test_an_offer_of_websocket_compression_is_declined(url) -> None:
    with raw_socket(url, DEFLATE) as client:
        assert "sec-websocket-extensions" not in client.head.lower()
        client.send(Opcode.TEXT, request_bytes())
        assert client.end_of_turn()["type"] == "response.completed"


def test_a_binary_message_is_refused_and_the_connection_goes_on(url) -> None:
    with raw_socket(url) as client:
        client.send(Opcode.BINARY, b"a" * MIB)
        assert client.end_of_turn()["error"]["message"] == "Frames must be text, not binary."
        client.send(Opcode.TEXT, request_bytes())
        assert client.end_of_turn()["type"] == "response.completed"


@pytest.fixture(scope="module")
def small():
    """The URL of a server that takes small messages."""
    with ServerThread(build(Settings(max_body_bytes=MIB), EmbeddedEngine())) as url:
        yield url


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (framed(Opcode.PING) * 2000, CloseCode.POLICY_VIOLATION),
        (framed(Opcode.PONG, b"a" * 125) * 2000, CloseCode.POLICY_VIOLATION),
        (OPEN + framed(Opcode.CONT, fin=False) * 2000, CloseCode.POLICY_VIOLATION),
        (OPEN + framed(Opcode.CONT, b"ab", fin=False) * 2000, CloseCode.POLICY_VIOLATION),
        (framed(Opcode.TEXT, b"\xff"), CloseCode.INVALID_DATA),
        (framed(Opcode.TEXT, b"\xe2\x82"), CloseCode.INVALID_DATA),
        (framed(Opcode.TEXT, b"a" * 20, rsv1=True), CloseCode.PROTOCOL_ERROR),
        (framed(Opcode.TEXT, b"x" * (MIB + 1)), CloseCode.MESSAGE_TOO_BIG),
        (OPEN + framed(Opcode.CONT, b"x" * (MIB + 1)), CloseCode.MESSAGE_TOO_BIG),
        (framed(Opcode.CONT), CloseCode.PROTOCOL_ERROR),
        (OPEN + framed(Opcode.CONT, rsv1=True), CloseCode.PROTOCOL_ERROR),
        (OPEN + framed(Opcode.CLOSE), CloseCode.PROTOCOL_ERROR),
    ],
    ids=count(),  # a frame is masked by chance
)
def test_excessive_or_invalid_frames_close_the_connection_without_a_warning(small, caplog, sent, code) -> None:
    with raw_socket(small, DEFLATE) as client:
        client.connection.sendall(sent)
        assert client.closed() == code
    assert httpx.get(f"{small}/health").status_code == 200
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_the_count_of_small_frames_starts_again_after_a_period(small, monkeypatch) -> None:
    monkeypatch.setattr(protocol, "PERIOD", 0.0)
    with raw_socket(small) as client:
        client.connection.sendall(framed(Opcode.PING) * 2000)
        assert [opcode for opcode, _ in islice(client.frames(), 2000)] == [Opcode.PONG] * 2000


def test_a_client_that_pings_and_never_reads_is_paused_and_then_aborted(monkeypatch) -> None:
    monkeypatch.setattr(protocol, "MAX_SMALL", 10**9)
    monkeypatch.setattr(protocol, "ABORT_SECONDS", 0)
    running, pings, sent = ServerThread(build(Settings(), EmbeddedEngine())), framed(Opcode.PING, b"a" * 125) * 1000, 0
    with running as url, raw_socket(url) as client, httpx.Client() as other_clients:
        client.connection.settimeout(0)
        patience = 20
        while patience:
            try:
                sent += client.connection.send(pings)
                patience = 20
            except BlockingIOError:
                patience -= 1
                assert other_clients.get(f"{url}/health").status_code == 200
        (connection,) = [each for each in running._server.server_state.connections if isinstance(each, protocol.BoundedProtocol)]
        assert connection.transport.get_write_buffer_size() < MIB
        connection.loop.call_soon_threadsafe(connection.keepalive_timeout)
        while connection in running._server.server_state.connections:
            other_clients.get(f"{url}/health")
    assert sent < 100 * MIB


def test_messages_sent_at_once_are_answered_in_turn(url) -> None:
    with raw_socket(url) as client:
        client.connection.sendall(framed(Opcode.TEXT, b"[]") * 3000 + framed(Opcode.TEXT, request_bytes()))
        assert [client.end_of_turn()["type"] for _ in range(3001)] == [*["error"] * 3000, "response.completed"]


# The supervisor replaces processes that exit or hang, and exits if none can start; the processes are stubs


SETTINGS = Settings(workers=2, store="sqlite:unused.db", times=Times(tick=0.001, grace=0))


@define(eq=False)
class StubProcess:
    """A process as the supervisor sees it; `calls` records the supervisor's calls."""

    pid: int
    exitcode: int | None = None
    ready: bool = True
    hangs: bool = False
    calls: list[str] = field(factory=list)

    @property
    def process(self):
        return self

    def start(self):
        self.calls.append("start")

    def is_ready(self, timeout):
        assert timeout > 0
        return self.ready

    def is_alive(self, timeout=None):
        return self.exitcode is None and not (self.hangs and timeout)

    def terminate(self):
        self.calls.append("terminate")
        if not self.hangs:
            self.exitcode = 0

    def kill(self):
        self.calls.append("kill")
        self.exitcode = -signal.SIGKILL if self.exitcode is None else self.exitcode

    def join(self):
        self.calls.append("join")


class UnstartedProcess(StubProcess):
    def start(self):
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


@pytest.fixture
def run(monkeypatch):
    """Run a supervisor that starts the given processes in turn; `rounds` are actions, one before each of its rounds."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}

    def run(*processes, rounds=()):
        following, happening, announced = iter(processes), iter(rounds), []
        monkeypatch.setattr(module, "Worker", lambda *_: next(following))
        with reserve("127.0.0.1", 0) as reserved:
            supervisor = Supervisor(SETTINGS, dict, reserved, lambda: announced.append("ready"), Keys())
            keep, finished = supervisor.keep_subprocess_alive, object()

            def round_of():
                action = next(happening, finished)
                if action is finished:
                    supervisor.signal_queue.append(signal.SIGINT)
                    supervisor.handle_signals()
                    return
                action()
                keep()

            monkeypatch.setattr(supervisor, "keep_subprocess_alive", round_of)
            monkeypatch.setattr(supervisor.should_exit, "wait", lambda _: supervisor.should_exit.is_set())
            supervisor.run()
        return announced

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_processes_start_drain_and_end(run) -> None:
    first, second = StubProcess(1), StubProcess(2)
    assert run(first, second) == ["ready"]
    assert first.calls == second.calls == ["start", "terminate", "kill", "join"]


@pytest.mark.parametrize(
    ("processes", "reason"),
    [
        ([StubProcess(1), StubProcess(2, exitcode=7, ready=False)], "process 2 has exited with status 7"),
        ([StubProcess(1), UnstartedProcess(2)], "no process could start: Resource temporarily unavailable"),
    ],
)
def test_a_supervisor_exits_if_a_process_cannot_start(run, caplog, processes, reason) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*processes)
    assert ended.value.code == 3
    assert [record.getMessage() for record in caplog.records if record.name == module.__name__] == [
        f"{reason}; the server cannot start"
    ]
    assert processes[0].exitcode == 0


def test_a_process_that_exits_or_hangs_is_replaced(run, caplog) -> None:
    lost, hanging = StubProcess(1), StubProcess(2)
    others = StubProcess(3), UnstartedProcess(4), StubProcess(5)

    def lose():
        lost.exitcode = -signal.SIGKILL

    def hang():
        hanging.hangs = True

    assert run(lost, hanging, *others, rounds=[lose, hang, lambda: None]) == ["ready"]
    assert hanging.calls == ["start", "kill", "join", "kill", "join"]
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "process 1 was ended by signal 9 (Killed); another starts",
        "process 2 hangs; another starts",
        "no process could start: Resource temporarily unavailable",
        "process 2 was ended by signal 9 (Killed); another starts",
    ]
    assert others[2].calls == ["start", "terminate", "kill", "join"]


def test_a_process_that_hangs_is_killed_after_the_drain(run) -> None:
    hanging = StubProcess(1, hangs=True)
    assert run(hanging, StubProcess(2)) == ["ready"]
    assert (hanging.exitcode, hanging.calls) == (-signal.SIGKILL, ["start", "terminate", "kill", "join"])


@pytest.mark.usefixtures("run")  # puts the handlers back
@pytest.mark.parametrize(("keys", "reads"), [(Keys(), False), (Keys(file=Path("keys")), True)])
def test_sighup_ends_the_server_unless_it_reloads_the_keys(keys, reads) -> None:
    with reserve("127.0.0.1", 0) as reserved:
        Supervisor(SETTINGS, dict, reserved, lambda: None, keys)
    ending = [number for number in SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    assert [signal.SIGHUP in ending, signal.SIGTTIN in ending, signal.SIGTERM in ending] == [not reads, True, False]


def test_workers_can_reserve_a_port_whose_old_connections_linger() -> None:
    with listen("127.0.0.1", 0) as earlier:
        address = earlier.getsockname()
        with socket.create_connection(address):
            earlier.accept()[0].close()  # the side that closes first waits for late packets
    with reserve(*address) as reserved:
        assert reserved.getsockname() == address
