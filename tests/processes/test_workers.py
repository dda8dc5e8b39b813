"""Several processes serve behind one port, and a server drains before it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from attrs import define, field
from live.wire import bodies

from interlock.serving.http.server import listen, reserve

ASK = {"model": "interlock-embedded", "input": "Say something long about the rivers of Europe", "stream": True}
SECONDS = 60
"""How long a test waits for something."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the processes and connections in /proc")


def wait_for(condition):
    """Return what a condition returns as soon as that is true."""
    deadline = time.monotonic() + SECONDS
    while not (result := condition()):
        assert time.monotonic() < deadline, f"waited for {condition}"
        time.sleep(0.02)
    return result


def status_of(pid):
    """Return the parent of a process, or None if it has exited."""
    try:
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in {"Z", "X"} else int(parent)


@define(eq=False)
class Command:
    """A running command that serves."""

    process: subprocess.Popen
    log: Path
    streams: ExitStack = field(factory=ExitStack)

    @property
    def url(self):
        def written():
            assert self.process.poll() is None, self.log.read_text()
            return re.search(r"http://\S+(?=/v1)", self.log.read_text())

        return wait_for(written)[0]

    @property
    def workers(self):
        """The processes of the workers."""
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        return {pid for pid in pids if status_of(pid) == self.process.pid}

    def ask(self, method, path, **options):
        """Send a request over a new connection; None if it is not answered."""
        try:
            return httpx.request(method, f"{self.url}{path}", timeout=5, **options)
        except httpx.TransportError:
            return None

    def begin(self, client=None):
        """Begin a stream, and return the answer with its headers; None if it is not answered."""
        client = client or self.streams.enter_context(httpx.Client(timeout=httpx.Timeout(SECONDS, read=SECONDS)))
        try:
            return self.streams.enter_context(client.stream("POST", f"{self.url}/v1/responses", json=ASK))
        except httpx.TransportError:
            return None

    def burst(self, count):
        """Begin as many streams at once, each over a connection of its own."""
        with ThreadPoolExecutor(count) as threads:
            return [*threads.map(lambda _: self.begin(), range(count))]

    def server_of(self, answer):
        """Return the process that has the connection of a stream."""
        _, port = answer.extensions["network_stream"].get_extra_info("client_addr")[:2]
        listening = int(self.url.rpartition(":")[2])
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        (inode,) = [row[9] for row in rows if [int(end.partition(":")[2], 16) for end in row[1:3]] == [listening, port]]
        return next(pid for pid in self.workers if f"socket:[{inode}]" in opened(pid))

    def drains(self):
        """Return whether the server refuses because it drains."""
        answer = self.ask("GET", "/ready")
        return answer is not None and answer.status_code == 503


def opened(pid):
    return {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}


@contextmanager
def running(*arguments):
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as file:
            process = subprocess.Popen([sys.executable, *arguments], stderr=file, cwd=folder)
        command = Command(process, log)
        try:
            with command.streams:
                yield command
        finally:
            left = command.workers
            process.kill()
            process.wait()
            for pid in left:
                wait_for(lambda pid=pid: status_of(pid) != process.pid)
                os.kill(pid, signal.SIGKILL) if status_of(pid) else None
        assert "Traceback" not in log.read_text()


def serving(*options, workers=2):
    arguments = ["-m", "interlock", "serve", "--port", "0", "--store", "sqlite:store.db", "--workers", str(workers)]
    return running(*arguments, *map(str, options))


def test_both_workers_serve_behind_one_port_which_no_other_server_takes() -> None:
    with serving() as command:
        answers = command.burst(24)
        assert {command.server_of(answer) for answer in answers} == command.workers
        assert {bodies(answer.read())[-1]["type"] for answer in answers} == {"response.completed"}
        sealed = {**ASK, "stream": False, "store": False, "include": ["reasoning.encrypted_content"]}
        output = command.ask("POST", "/v1/responses", json=sealed).json()["output"]
        again = {**sealed, "input": [{"role": "user", "content": "Hi"}, *output, {"role": "user", "content": "Go on"}]}
        assert {command.ask("POST", "/v1/responses", json=again).status_code for _ in range(12)} == {200}
        port = command.url.rpartition(":")[2]
        other = [sys.executable, "-m", "interlock", "serve", "--workers", "2", "--store", "sqlite:x.db", "--port", port]
        refused = subprocess.run(other, capture_output=True, text=True, check=False)
        taken = f"interlock: 127.0.0.1:{port}: Address already in use; choose another port with --port\n"
        assert (refused.returncode, refused.stderr) == (2, taken)


def test_the_limit_of_streams_holds_over_all_workers() -> None:
    limit = 6
    with serving("--max-streams", limit, "--rate", 1) as command:
        answers = command.burst(30)
        statuses = [answer.status_code for answer in answers]
        assert {*statuses} == {200, 429}
        assert statuses.count(200) <= limit  # two processes that both ask for the last slot may both be refused
        while (answer := command.begin()).status_code == 200:
            answers.append(answer)
        assert [answer.status_code for answer in answers].count(200) == limit
        command.streams.close()
        assert wait_for(lambda: {answer.status_code for answer in command.burst(limit)} == {200} or command.streams.close())


def test_a_worker_that_is_killed_is_replaced_its_slots_are_free_and_its_background_response_ends() -> None:
    limit = 8
    with serving("--max-streams", limit, "--rate", 1) as command:
        body = {**ASK, "background": True}
        with httpx.Client(timeout=SECONDS) as client, client.stream("POST", f"{command.url}/v1/responses", json=body) as answer:
            pieces = answer.iter_bytes()  # held, because the connection is closed with it
            name = re.search(rb'"id":"(resp_\w+)"', next(pieces))[1].decode()
            owner = command.server_of(answer)
            (other,) = command.workers - {owner}
            foreground = [each for each in command.burst(2 * limit) if each.status_code == 200]
            while len(foreground) < limit - 1 and (more := command.begin()).status_code == 200:
                foreground.append(more)
            assert len(foreground) == limit - 1
            broken = [each for each in foreground if command.server_of(each) == owner]
            os.kill(owner, signal.SIGKILL)
        for each in broken:
            with pytest.raises(httpx.RemoteProtocolError):
                each.read()
        wait_for(lambda: len(command.workers) == 2)
        assert other in command.workers
        assert owner not in command.workers
        wait_for(lambda: command.ask("GET", "/ready") is not None)
        free, deadline = len(broken) + 1, time.monotonic() + SECONDS
        while free and time.monotonic() < deadline:
            answer = command.begin()
            free -= answer is not None and answer.status_code == 200
        assert free == 0
        assert command.begin().status_code == 429
        response = wait_for(lambda: ended(command, name))
        assert re.search(
            rf"WARNING \S+: process {owner} was ended by signal 9 \(Killed\); another starts in \d", command.log.read_text()
        )
    assert (response["status"], response["error"]["message"]) == ("failed", "The server that made the response was lost.")


def ended(command, name):
    answer = command.ask("GET", f"/v1/responses/{name}")
    return answer is not None and answer.json()["status"] not in {"queued", "in_progress"} and answer.json()


@pytest.mark.parametrize(("workers", "sent"), [(1, signal.SIGTERM), (2, signal.SIGINT)])
def test_a_server_that_drains_ends_the_running_streams_complete_and_refuses_others(workers, sent) -> None:
    with serving("--drain", SECONDS, "--rate", 20, workers=workers) as command:
        answers = command.burst(6)
        assert [answer.status_code for answer in answers] == [200] * 6
        command.process.send_signal(sent)
        wait_for(command.drains)
        refused = wait_for(lambda: command.ask("POST", "/v1/responses", json=ASK))
        assert (refused.status_code, refused.json()["error"]["message"]) == (503, "The server is shutting down.")
        assert refused.headers["retry-after"] == "1"
        assert wait_for(lambda: command.ask("GET", "/health")).status_code == 200
        assert [bodies(answer.read())[-1]["type"] for answer in answers] == ["response.completed"] * 6
        assert command.process.wait(SECONDS) == (0 if sent == signal.SIGINT else -sent)
        assert command.workers == set()


@pytest.mark.parametrize(("workers", "options"), [(1, ["--drain", 0.2]), (2, [])])
def test_a_stream_that_runs_longer_than_the_drain_fails(workers, options) -> None:
    with serving("--rate", 1, *options, workers=workers) as command:
        answers = command.burst(4)
        command.process.send_signal(signal.SIGTERM)
        ends = [bodies(answer.read())[-1] for answer in answers]
        assert {(end["type"], end["response"]["error"]["message"]) for end in ends} == {
            ("response.failed", "The server is shutting down.")
        }
        assert command.process.wait(SECONDS) == -signal.SIGTERM


def test_a_second_signal_ends_a_server_at_once_even_if_a_worker_hangs() -> None:
    with serving("--rate", 1, "--drain", SECONDS) as command:
        command.burst(4)
        pids = command.workers
        command.process.send_signal(signal.SIGTERM)
        wait_for(command.drains)
        for pid in [*pids][:1]:
            os.kill(pid, signal.SIGSTOP)
        command.process.send_signal(signal.SIGTERM)
        assert command.process.wait(SECONDS) == -signal.SIGTERM
        assert {wait_for(lambda pid=pid: status_of(pid) is None) for pid in pids} <= {True}


def stop(pid):
    """Stop a process where it locks no file; return whether it did, for the others would wait for the lock."""
    os.kill(pid, signal.SIGSTOP)
    if any(f" WRITE {pid} " in line for line in Path("/proc/locks").read_text().splitlines()):
        os.kill(pid, signal.SIGCONT)
        return False
    return True


def test_a_worker_that_hangs_keeps_no_other_from_its_work() -> None:
    limit = 4
    with serving("--max-streams", limit, "--rate", 1) as command:
        wait_for(lambda: len(command.workers) == 2 and command.ask("GET", "/ready") is not None)
        worker = min(command.workers)
        wait_for(lambda: stop(worker))
        answers, deadline = [], time.monotonic() + SECONDS
        while len(answers) < limit and time.monotonic() < deadline:
            client = command.streams.enter_context(httpx.Client(timeout=httpx.Timeout(SECONDS, read=1)))
            if (answer := command.begin(client)) is not None:
                answers.append(answer)
        assert [answer.status_code for answer in answers] == [200] * limit


def test_workers_end_when_their_supervisor_is_killed() -> None:
    with serving("--rate", 1, "--drain", SECONDS) as command:
        answers, pids = command.burst(8), command.workers
        assert len(pids) == 2
        command.process.kill()
        assert {bodies(answer.read())[-1]["type"] for answer in answers} == {"response.failed"}
        for pid in pids:
            wait_for(lambda pid=pid: status_of(pid) is None)


PROGRAM = """
import os, sys
from pathlib import Path
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.http import workers
from interlock.serving.build import build
from interlock.serving.http.server import reserve
from interlock.serving.http.workers import Supervisor
from interlock.serving.requests.logs import log_to_stderr
from interlock.serving.responses.active_runs import Slots
from interlock.serving.settings import Settings

starts, failing, unforked, fork = Path("starts"), eval(sys.argv[1]), eval(sys.argv[2]), os.fork
forks = iter(range(1, 100))

def application(slots):
    with starts.open("a") as file:
        file.write(".")
    if starts.stat().st_size in failing:
        raise SystemExit(7)
    return build(Settings(), EmbeddedEngine(), slots=slots)

def fork_or_fail():
    if next(forks) in unforked:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()

os.fork = fork_or_fail
workers.SHUTDOWN_SECONDS = 1
log_to_stderr("warning")
reserved = reserve("127.0.0.1", 0)
ready = lambda: print(f"http://127.0.0.1:{reserved.getsockname()[1]}/v1", file=sys.stderr, flush=True)
Supervisor(application, reserved, Slots.shared(None, 1), ready).run()
"""
"""A server with one worker. The first argument has the starts that fail, the second the forks that do."""


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["{1}", "{}"], r"process \d+ has exited with status 7"),
        (["{}", "{1}"], "no process could start: Resource temporarily unavailable"),
    ],
)
def test_a_server_whose_worker_cannot_start_ends(arguments, reason) -> None:
    with running("-c", PROGRAM, *arguments) as command:
        assert command.process.wait(SECONDS) == 3
        line = rf"\S+Z ERROR interlock\.serving\.http\.workers: {reason}; the server cannot start\n"
        assert re.fullmatch(line, command.log.read_text())


def test_a_worker_that_hangs_is_killed_after_the_drain() -> None:
    with running("-c", PROGRAM, "{}", "{}") as command:
        assert command.url
        (hanging,) = command.workers
        os.kill(hanging, signal.SIGSTOP)
        command.process.send_signal(signal.SIGTERM)
        assert command.process.wait(SECONDS) == -signal.SIGTERM
        assert wait_for(lambda: status_of(hanging) is None)


def test_connections_of_an_earlier_server_keep_no_port_from_workers() -> None:
    with listen("127.0.0.1", 0) as earlier:
        address = earlier.getsockname()
        with socket.create_connection(address):
            earlier.accept()[0].close()  # the side that closes first waits for late packets
    with reserve(*address) as reserved:
        assert reserved.getsockname() == address


def test_a_worker_that_exits_soon_after_its_start_starts_again_after_a_growing_delay() -> None:
    with running("-c", PROGRAM, "{2}", "{3}") as command:
        assert command.url
        (first,) = command.workers
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: command.ask("GET", "/ready") is not None)
        reasons = re.findall(r": (?:process \d+ )?(.+); another starts in (.+) s", command.log.read_text())
    assert reasons == [
        ("was ended by signal 9 (Killed)", "0.5"),
        ("has exited with status 7", "1.0"),
        ("no process could start: Resource temporarily unavailable", "2.0"),
    ]


def test_one_page_has_the_metrics_of_all_workers() -> None:
    with serving() as command:
        for _ in range(4):
            assert command.ask("POST", "/v1/responses", json={**ASK, "input": "Hello", "stream": False}).status_code == 200
        line = 'interlock_responses_total{model="interlock-embedded",reason="",status="completed"} 4.0'
        for _ in range(4):
            wait_for(lambda: line in command.ask("GET", "/metrics").text.splitlines())


@pytest.mark.parametrize("workers", [1, 2])
def test_a_key_is_rotated_without_a_restart(workers, tmp_path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("acme old\n")
    with serving("--api-key-file", keys, workers=workers) as command:

        def statuses(*names):
            """The statuses with each key, the same from every process."""
            path = f"/v1/responses/{name}"
            found = [{command.ask("GET", path, headers={"x-api-key": key}).status_code for _ in range(8)} for key in names]
            return [status for (status,) in found] if all(len(each) == 1 for each in found) else None

        name = command.ask("POST", "/v1/responses", json={**ASK, "stream": False}, headers={"x-api-key": "old"}).json()["id"]
        before = command.workers
        for text, expected in [
            ("acme old\nacme new\nother c\n", [200, 200, 404]),
            ("acme new key\n", [200, 200, 404]),
            ("acme new\n", [401, 200, 401]),
        ]:
            keys.write_text(text)
            command.process.send_signal(signal.SIGHUP)
            log = "the API keys stay as they are" if "key" in text else f"API keys: {text.count(chr(10))}, tenants"
            wait_for(lambda log=log: log in command.log.read_text())
            wait_for(lambda expected=expected: statuses("old", "new", "c") == expected)
        if workers > 1:
            os.kill(min(before), signal.SIGKILL)
            wait_for(lambda: len(command.workers - before) == 1)
            wait_for(lambda: command.ask("GET", "/ready") is not None)
            assert wait_for(lambda: statuses("old", "new", "c")) == [401, 200, 401]
