"""The HTTP client of upstreams, on real sockets: how answers arrive, end and break, and when a connection is used again."""

import asyncio
import socket
import ssl
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import uvloop
from attrs import define, field
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from interlock.serving.engines.upstream import http_client
from interlock.serving.engines.upstream.http_client import Connection, HttpClient, HttpError

CERTIFICATE = Path(__file__).parents[3] / "support" / "live" / "mcp_test.pem"
OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = OK + b"content-type: text/plain\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    OK + b"Content-Type: text/event-stream\r\nX-Empty:\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"6\r\nhello \r\n5;name=value\r\nworld\r\n0\r\nX-Trailer: late\r\n\r\n"
)
INFORMED = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\ncontent-length: 9\r\n\r\n" + LENGTH
TO_THE_END = OK + b"content-type: text/plain\r\n\r\nhello"
CUT = "the server closes the connection"
PATIENCE = 60


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request):
    """Run a coroutine on each kind of event loop."""

    async def patient(work):
        async with asyncio.timeout(PATIENCE):
            return await work

    def run_on_loop(work):
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(patient(work))

    return run_on_loop


@define(eq=False)
class Server:
    """Answers each request, on any connection, with the next reply; the last one answers all others."""

    replies: list
    requests: list = field(factory=list)
    """The head and the body of each request."""
    connections: int = 0
    closed: asyncio.Queue = field(factory=asyncio.Queue)
    """Has an entry for each connection that the client has closed."""
    url: str = ""
    tasks: list = field(factory=list)

    async def __call__(self, reader, writer):
        self.connections += 1
        self.tasks.append(asyncio.current_task())
        with suppress(ConnectionError, asyncio.CancelledError):
            while await self._answer(reader, writer):
                pass
        writer.close()

    async def _answer(self, reader, writer):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            self.closed.put_nowait(None)
            return False
        lines = head.decode().lower().splitlines()
        length = next((int(line[15:]) for line in lines if line.startswith("content-length:")), 0)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        body = b"" if callable(reply) else await reader.readexactly(length)
        self.requests.append((head.decode(), body))
        if callable(reply):
            return await reply(reader, writer)
        for piece in reply if isinstance(reply, tuple) else (reply,):
            if piece is CUT:
                return False
            writer.write(piece)
            await writer.drain()
        return True

    @property
    def places(self):
        """The first line of each request."""
        return [head.splitlines()[0] for head, _ in self.requests]


@asynccontextmanager
async def serving(*replies, tls=None):
    server = Server([*replies])
    listener = await asyncio.start_server(server, "127.0.0.1", 0, ssl=tls)
    host, port = listener.sockets[0].getsockname()
    server.url = f"http://{host}:{port}" if tls is None else f"https://mcp.test:{port}"
    try:
        yield server
    finally:
        listener.close()
        for task in server.tasks:
            task.cancel()
        await asyncio.gather(*server.tasks)
        await asyncio.sleep(0)  # the sockets are closed in the next step of the loop


@asynccontextmanager
async def client_of(url):
    client = HttpClient(url, PATIENCE)
    try:
        yield client
    finally:
        await client.close()


async def read(answer):
    """Read an answer to its end; return the body, and the text of the error that it ends with."""
    body = bytearray()
    try:
        while True:
            if not answer.parts:
                await answer.more()
            if not (part := answer.take()):
                return bytes(body), None
            body += part
    except HttpError as error:
        return bytes(body), str(error)


async def until(condition):
    """Let the event loop run until a condition holds."""
    while not condition():  # noqa: ASYNC110 - nothing announces it
        await asyncio.sleep(0)


async def get(client, path="/v1/models"):
    return await read(await client.request("GET", path, {}))


async def post(client, body=b"{}"):
    return await read(await client.request("POST", "/v1/x", {}, body))


@pytest.mark.parametrize(
    ("recorded", "headers", "body"),
    [
        (LENGTH, {"content-type": "text/plain", "content-length": "5"}, b"hello"),
        (
            CHUNKED,
            {"content-type": "text/event-stream", "x-empty": "", "transfer-encoding": "chunked"},
            b"hello world",
        ),
        (INFORMED, {"content-type": "text/plain", "content-length": "5"}, b"hello"),
        (TO_THE_END, {"content-type": "text/plain"}, b"hello"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", {}, b""),
    ],
    ids=["length", "chunks", "informational", "end", "none"],
)
def test_an_answer_is_the_same_in_any_chunks(recorded, headers, body, run, monkeypatch):
    arrived, received = asyncio.Event(), Connection.data_received

    def record(connection, data):
        received(connection, data)
        arrived.set()

    monkeypatch.setattr(Connection, "data_received", record)

    async def work():
        for split in range(1, len(recorded) + 1):
            arrived.clear()

            async def reply(_, writer, split=split):
                writer.write(recorded[:split])
                await arrived.wait()
                writer.write(recorded[split:])

            async with serving(reply) as server, client_of(server.url) as client:
                answer = await client.request("GET", "/v1/models", {})
                assert (await read(answer), answer.headers) == ((body, None), headers), split

    run(work())


def test_a_request_is_written_as_http_1_1(run):
    async def work():
        async with serving(LENGTH) as server, client_of(server.url) as client:
            await (await client.request("POST", "/v1/a b/ü%20?", {"authorization": "Bearer key"}, b"{}")).more()
            await get(client)
            place = server.url.removeprefix("http://")
            head = f"POST /v1/a%20b/%C3%BC%20%3F HTTP/1.1\r\nhost: {place}\r\nuser-agent: {http_client.AGENT}\r\n"
            assert server.requests == [
                (f"{head}authorization: Bearer key\r\ncontent-length: 2\r\n\r\n", b"{}"),
                (f"GET /v1/models HTTP/1.1\r\nhost: {place}\r\nuser-agent: {http_client.AGENT}\r\n\r\n", b""),
            ]

    run(work())


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\0"])
def test_a_header_with_a_control_character_is_not_sent(value, run):
    async def work():
        async with serving(LENGTH) as server, client_of(server.url) as client:
            with pytest.raises(HttpError, match="a header has a character that no header may have"):
                await client.request("GET", "/v1", {"authorization": value})
            assert server.connections == 0

    run(work())


# The next request over the same connection.


@pytest.mark.parametrize("recorded", [LENGTH, CHUNKED, INFORMED])
def test_a_connection_is_used_again_after_a_whole_answer(recorded, run):
    async def work():
        async with serving(recorded) as server, client_of(server.url) as client:
            answers = [await post(client) for _ in range(3)]
            assert answers == [answers[0]] * 3
            assert (server.connections, len(client.connections), len(client.idle)) == (1, 1, 1)

    run(work())


@pytest.mark.parametrize(
    "recorded",
    [
        TO_THE_END,
        LENGTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        LENGTH.replace(b"HTTP/1.1", b"HTTP/1.0"),
        LENGTH + b"x",
        LENGTH + LENGTH,
    ],
)
def test_a_connection_is_not_used_again_if_its_state_is_unclear(recorded, run):
    async def work():
        async with serving((recorded, CUT)) as server, client_of(server.url) as client:
            assert [await post(client) for _ in range(3)] == [(b"hello", None)] * 3
            assert (server.connections, client.connections, client.idle) == (3, set(), [])

    run(work())


@pytest.mark.parametrize("rest", [b"x", LENGTH, b"\r\n"])
def test_unexpected_data_closes_an_idle_connection(rest, run):
    async def work():
        idle = asyncio.Event()

        async def reply(_, writer):
            writer.write(LENGTH)
            await idle.wait()
            writer.write(rest)
            return True

        async with serving(reply) as server, client_of(server.url) as client:
            assert await get(client) == (b"hello", None)
            assert len(client.idle) == 1
            idle.set()
            await server.closed.get()
            assert (client.idle, client.connections) == ([], set())

    run(work())


def test_an_idle_connection_is_closed_after_a_while(run, monkeypatch):
    monkeypatch.setattr(http_client, "IDLE", 0)

    async def work():
        async with serving(LENGTH) as server, client_of(server.url) as client:
            assert await get(client) == (b"hello", None)
            await server.closed.get()
            assert (client.idle, client.connections) == ([], set())

    run(work())


def test_an_answer_before_the_end_of_the_request_ends_the_connection(run):
    async def work():
        async def early(reader, writer):
            writer.write(LENGTH)
            await reader.read()

        async with serving(early) as server, client_of(server.url) as client:
            assert await post(client, b"x" * 2**24) == (b"hello", None)
            assert client.connections == set()

    run(work())


def test_concurrent_requests_have_their_own_connections(run):
    async def work():
        async with serving(LENGTH) as server, client_of(server.url) as client:
            assert await asyncio.gather(*(post(client) for _ in range(5))) == [(b"hello", None)] * 5
            assert (server.connections, len(client.idle)) == (5, 5)

    run(work())


@pytest.mark.parametrize("send", [get, post])
def test_a_request_over_a_closed_idle_connection_is_sent_again(run, send):
    async def work():
        async with serving(LENGTH, (CUT,), LENGTH) as server, client_of(server.url) as client:
            assert [await send(client), await send(client)] == [(b"hello", None)] * 2
            assert (server.connections, len(server.requests)) == (2, 3)

    run(work())


def test_a_request_tries_one_idle_connection_and_closes_the_others(run):
    async def work():
        async with serving(LENGTH, LENGTH, LENGTH, (CUT,), LENGTH) as server, client_of(server.url) as client:
            await asyncio.gather(*(post(client) for _ in range(3)))
            assert (server.connections, len(client.idle)) == (3, 3)
            assert await post(client) == (b"hello", None)
            assert (server.connections, len(server.requests), len(client.connections)) == (4, 5, 1)

    run(work())


@seed(7)
@settings(max_examples=40, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=8),
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.booleans(),
)
def test_each_request_is_answered_once_whichever_idle_connections_the_server_closes(run, lives, bursts, resets):
    """A connection lives for some requests; the server answers the next one with a close, or with a reset."""

    async def work():
        answered = 0
        remaining, tasks = [*lives], []

        async def serve(reader, writer):
            nonlocal answered
            tasks.append(asyncio.current_task())
            life = remaining.pop() if remaining else 1
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                for _ in range(life):
                    await reader.readuntil(b"\r\n\r\n")
                    await reader.readexactly(2)
                    answered += 1
                    writer.write(LENGTH)
                await reader.readuntil(b"\r\n\r\n")
            if resets:
                writer.transport.abort()
            writer.close()

        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        _, port = listener.sockets[0].getsockname()
        async with client_of(f"http://127.0.0.1:{port}") as client:
            for count in bursts:
                assert await asyncio.gather(*(post(client) for _ in range(count))) == [(b"hello", None)] * count
        listener.close()
        await asyncio.gather(*tasks)
        await asyncio.sleep(0)  # the sockets are closed in the next step of the loop
        assert answered == sum(bursts)

    run(work())


def test_a_get_over_a_new_connection_is_not_sent_again(run):
    async def work():
        async with serving((CUT,)) as server, client_of(server.url) as client:
            with pytest.raises(HttpError):
                await get(client)
            assert len(server.requests) == 1

    run(work())


# Answers that break off, and servers that violate HTTP.


@pytest.mark.parametrize(
    ("recorded", "body"),
    [
        (OK + b"content-length: 9\r\n\r\nhello", b"hello"),
        (OK + b"transfer-encoding: chunked\r\n\r\n9\r\nhello", b"hello"),
        (OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", b"hello"),
        (OK + b"transfer-encoding: gzip\r\n\r\nhello", b"hello"),
        (OK + b"content-length: 9\r\n\r\n", b""),
    ],
)
def test_data_before_a_broken_connection_is_read_first(recorded, body, run):
    async def work():
        async with serving((recorded, CUT)) as server, client_of(server.url) as client:
            assert await get(client) == (body, "the connection was closed before the end of the answer")
            assert client.connections == set()

    run(work())


@pytest.mark.parametrize(
    ("recorded", "error"),
    [
        ((CUT,), "the connection was closed before the end of the answer"),
        ((b"HTTP/1.1 200", CUT), "the connection was closed before the end of the answer"),
        ((b"HTTP/1.1 100 Continue\r\n\r\n", CUT), "the connection was closed before the end of the answer"),
        ((b"SSH-2.0\r\n",), "the answer is not HTTP/1.1: "),
        ((b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",), "the answer is not HTTP/1.1: "),
        ((OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",), "the answer is not HTTP/1.1: "),
        ((OK + b"content-length: 5\r\ncontent-length: 6\r\n\r\n",), "the answer is not HTTP/1.1: "),
        ((b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",), "the answer is not HTTP/1.1: "),
        ((OK + b"x: " + b"y" * 2**20,), "the head or the trailer of the answer is too large"),
        ((OK, *[b"x: y\r\n" * 1000] * 20), "the head or the trailer of the answer is too large"),
        (tuple([b"HTTP/1.1 100 Continue\r\n\r\n" * 1000] * 10), "the head or the trailer of the answer is too large"),
    ],
)
def test_a_missing_or_invalid_head_is_an_error(recorded, error, run):
    async def work():
        async with serving(recorded) as server, client_of(server.url) as client:
            with pytest.raises(HttpError) as fault:
                await get(client)
            assert (str(fault.value)[: len(error)], client.connections) == (error, set())

    run(work())


@pytest.mark.parametrize("rest", [b"0\r\nx: " + b"y" * 2**20, b"5;" + b"x" * 2**20, *[b"0\r\n" + b"x: y\r\n" * 2**18]])
def test_a_trailer_or_an_extension_without_end_is_an_error(rest, run):
    async def work():
        chunk = OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"
        async with serving((chunk, rest)) as server, client_of(server.url) as client:
            assert await get(client) == (b"hello", "the head or the trailer of the answer is too large")

    run(work())


def test_a_malformed_chunk_is_an_error_after_the_ones_before(run):
    async def work():
        chunk = OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\n"
        async with serving(chunk) as server, client_of(server.url) as client:
            body, error = await get(client)
            assert (body, error.startswith("the answer is not HTTP/1.1: "), client.connections) == (b"hello", True, set())

    run(work())


# Backpressure, cancellation and closing.


def test_an_unread_body_pauses_its_server(run):
    size = 2**24

    async def work():
        sent = asyncio.Event()

        async def reply(_, writer):
            writer.write(OK + b"content-length: %d\r\n\r\n" % size)
            for _ in range(size // 2**16):
                writer.write(b"x" * 2**16)
                await writer.drain()
            sent.set()
            return True

        async with serving(reply) as server, client_of(server.url) as client:
            answer = await client.request("GET", "/v1/models", {})
            await until(lambda: answer.is_paused)
            unread = sum(map(len, answer.parts))
            assert http_client.MAX_UNREAD < unread <= http_client.MAX_UNREAD + 2**18
            assert not sent.is_set()
            body, error = await read(answer)
            assert (len(body), error, len(client.idle)) == (size, None, 1)

    run(work())


def test_a_cancelled_request_closes_its_connection(run):
    async def work():
        async def silent(reader, _):
            assert await reader.read() == b""
            server.closed.put_nowait(None)

        async with serving(silent) as server, client_of(server.url) as client:
            task = asyncio.create_task(get(client))
            await until(lambda: server.requests)
            task.cancel()
            await server.closed.get()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert client.connections == set()

    run(work())


def test_an_answer_that_fails_ends_the_wait_and_the_connection(run):
    async def work():
        async with serving((OK + b"content-length: 9\r\n\r\nhello",)) as server, client_of(server.url) as client:
            answer = await client.request("GET", "/v1/models", {})
            while not answer.parts:
                await answer.more()
            answer.fail(HttpError("too slow"))
            answer.fail(HttpError("twice"))
            assert await read(answer) == (b"hello", "too slow")
            await server.closed.get()

    run(work())


def test_a_paused_answer_that_fails_gives_its_bytes(run):
    async def work():
        async with serving((OK + b"content-length: 999999999\r\n\r\n", b"x" * 2**22)) as server, client_of(server.url) as client:
            answer = await client.request("GET", "/v1/models", {})
            await until(lambda: answer.is_paused)
            answer.fail(HttpError("enough"))
            body, error = await read(answer)
            assert (len(body) > http_client.MAX_UNREAD, error) == (True, "enough")

    run(work())


def test_a_client_that_is_closed_ends_all_answers(run):
    async def work():
        async with serving(LENGTH, (OK + b"content-length: 9\r\n\r\n",)) as server, client_of(server.url) as client:
            assert await get(client) == (b"hello", None)
            answer = await client.request("GET", "/v1/models", {})
            await client.close()
            assert await read(answer) == (b"", "the client was closed")
            assert client.connections == set()

    run(work())


# How a connection is made.


def addresses(*hosts):
    return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", host) for host in hosts]


@pytest.mark.parametrize("faults", [["refused"], ["hangs"], ["hangs", "refused", "hangs"]])
def test_the_first_address_that_answers_is_used(faults, run, monkeypatch):
    async def work():
        open_socket, loop = http_client._open, asyncio.get_running_loop()
        cancelled = []

        async def attempt(family, kind, protocol, address):
            if address == "refused":
                raise ConnectionRefusedError
            if address == "hangs":
                try:
                    await loop.create_future()
                finally:
                    cancelled.append(address)
            return await open_socket(family, kind, protocol, address)

        async with serving(LENGTH) as server:
            port = int(server.url.rpartition(":")[2])
            found = addresses(*faults, ("127.0.0.1", port))
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
            monkeypatch.setattr(http_client, "_open", attempt)
            monkeypatch.setattr(http_client, "STAGGER", 0.01)
            async with client_of("http://upstream.invalid") as client:
                assert await get(client) == (b"hello", None)
            assert cancelled == [fault for fault in faults if fault == "hangs"]

    run(work())


def test_the_second_of_two_simultaneous_connections_is_closed(run, monkeypatch):
    async def work():
        made, both = [], asyncio.Event()

        async def attempt(*_):
            made.append(socket.socket())
            if len(made) == 2:
                both.set()
            await both.wait()
            return made[0] if asyncio.current_task() is first[0] else made[1]

        first = []
        create_task = asyncio.create_task

        def create(work):
            task = create_task(work)
            first.append(task)
            return task

        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses("a", "b"))
        monkeypatch.setattr(http_client, "_open", attempt)
        monkeypatch.setattr(http_client, "STAGGER", 0)
        monkeypatch.setattr(asyncio, "create_task", create)
        with await http_client._dial("upstream.invalid", 80) as used:
            assert sorted(each.fileno() for each in made) == [-1, used.fileno()]

    run(work())


def test_a_server_that_refuses_all_connections_is_an_error(run, monkeypatch):
    async def refuse(*_):
        raise ConnectionRefusedError

    async def work():
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses("a", "b"))
        monkeypatch.setattr(http_client, "_open", refuse)
        async with client_of("http://upstream.invalid") as client:
            with pytest.raises(HttpError, match="no connection: ConnectionRefusedError"):
                await get(client)

    run(work())


def test_an_unused_port_and_an_unknown_host_are_errors(run):
    async def work():
        for url, error in (("http://127.0.0.1:1", "ConnectionRefusedError"), ("http://upstream.invalid", "gaierror")):
            async with client_of(url) as client:
                with pytest.raises(HttpError, match=f"no connection: {error}"):
                    await get(client)

    run(work())


def test_a_timeout_of_the_connection_is_an_error(run, monkeypatch):
    async def hang(*_):
        await asyncio.get_running_loop().create_future()

    async def work():
        monkeypatch.setattr(http_client, "_open", hang)
        with pytest.raises(HttpError, match="no connection: TimeoutError"):
            await HttpClient("http://127.0.0.1:1", 0.01).request("GET", "/", {})

    run(work())


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://localhost", "localhost"),
        ("http://localhost:80", "localhost"),
        ("https://localhost:443", "localhost"),
        ("https://localhost:80", "localhost:80"),
        ("http://[::1]:8000", "[::1]:8000"),
        ("http://bücher.example", "xn--bcher-kva.example"),
    ],
)
def test_the_host_header_has_the_form_of_http(url, host):
    assert HttpClient(url, 1)._head("GET", "/", {}, None).splitlines()[1] == f"host: {host}".encode()


@pytest.fixture
def tls(monkeypatch):
    """Resolve `mcp.test` to this machine, and return a server's context with a certificate for that name."""
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda name, *args, **options: resolve("127.0.0.1" if name == b"mcp.test" else name, *args, **options),
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE)
    return context


def test_tls_requires_a_trusted_certificate(tls, run, monkeypatch):
    async def work():
        async with serving(LENGTH, (CHUNKED, CUT), tls=tls) as server:
            async with client_of(server.url) as client:
                with pytest.raises(HttpError, match="no connection: SSLCertVerificationError"):
                    await get(client)
            monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
            async with client_of(server.url) as client:
                assert [await get(client), await get(client)] == [(b"hello", None), (b"hello world", None)]
            assert len(server.requests) == 2

    run(work())


# Proxies.


def tunnel_to(server):
    """The reply of a proxy that connects its client to a server."""

    async def copy(reader, writer):
        while part := await reader.read(2**16):
            writer.write(part)
        writer.close()

    async def reply(reader, writer):
        other_reader, other = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
        writer.write(b"HTTP/1.1 200 Connection established\r\nvia: proxy\r\n\r\n")
        try:
            await asyncio.gather(copy(reader, other), copy(other_reader, writer))
        finally:
            other.transport.abort()

    return reply


def test_a_proxy_tunnels_tls(tls, run, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))

    async def work():
        async with serving(LENGTH, tls=tls) as server, serving(tunnel_to(server)) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("http://", "http://me:p%40ss@"))
            async with client_of(server.url) as client:
                assert [await get(client), await post(client)] == [(b"hello", None)] * 2
            place = server.url.removeprefix("https://")
            head = f"CONNECT {place} HTTP/1.1\r\nhost: {place}\r\nproxy-authorization: Basic bWU6cEBzcw==\r\n\r\n"
            assert (proxy.requests, server.connections) == ([(head, b"")], 1)
            assert "proxy-authorization" not in server.requests[0][0]

    run(work())


@pytest.mark.parametrize("answer", [b"HTTP/1.1 407 Who are you?\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b"x" * 2**17])
def test_a_proxy_that_opens_no_tunnel_is_an_error(answer, run, monkeypatch):
    async def work():
        async with serving((answer, CUT)) as proxy:
            monkeypatch.setenv("all_proxy", proxy.url)
            async with client_of("https://upstream.invalid") as client:
                with pytest.raises(HttpError, match="the proxy refuses a tunnel to the server"):
                    await get(client)

    run(work())


def test_a_proxy_gets_the_whole_url_and_its_own_key(run, monkeypatch):
    async def work():
        async with serving(LENGTH) as proxy:
            monkeypatch.setenv("http_proxy", proxy.url.replace("http://", "me@"))
            async with client_of("http://upstream.invalid:81") as client:
                assert await get(client) == (b"hello", None)
            assert proxy.places == ["GET http://upstream.invalid:81/v1/models HTTP/1.1"]
            assert "proxy-authorization: Basic bWU6\r\n" in proxy.requests[0][0]

    run(work())


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1080", "https://127.0.0.1", "http://"])
def test_a_proxy_of_another_kind_is_an_error(proxy, monkeypatch):
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(HttpError, match="the proxy that the environment names is not an http:// URL"):
        HttpClient("http://upstream.invalid", 1)


def test_no_proxy_is_used_for_the_hosts_that_the_environment_excludes(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "upstream.invalid")
    assert http_client.proxy_for("http://upstream.invalid:81/v1") is None
    assert http_client.proxy_for("https://other.invalid") is None
    assert http_client.proxy_for("http://other.invalid") == http_client.Proxy("127.0.0.1", 9, {})
