"""Several processes serve behind one port, drain before they end, and read new keys without a restart."""

import os
import re
import signal
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

from interlock.serving.http.server import reserve

ASK = {"model": "interlock-embedded", "input": "Say something long about the rivers of Europe", "stream": True}
SECONDS = 60
"""The longest wait of a test."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the processes and connections in /proc")


def wait_for(condition):
    """Wait until a condition is true, and return its result."""
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
    def measured(self):
        """The processes whose CPU time is on the page of metrics, but the supervisor."""
        page = self.ask("GET", "/metrics").text
        pids = re.findall(r'^process_cpu_seconds_total\{pid="(\d+)"\} ', page, re.MULTILINE)
        return {*map(int, pids)} - {self.process.pid}

    @property
    def workers(self):
        """The processes that serve; multiprocessing adds one that tracks resources."""
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        return {pid for pid in pids if status_of(pid) == self.process.pid and b"spawn_main" in command_of(pid)}

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
        """Begin as many streams at once, each over its own connection."""
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


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def opened(pid):
    return {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}


@contextmanager
def running(*arguments):
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as file:
            process = subprocess.Popen([sys.executable, *arguments], stderr=file, cwd=folder, start_new_session=True)
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


def test_two_processes_serve_behind_one_port_with_one_page_of_metrics() -> None:
    with serving() as command:
        answers = command.burst(24)
        assert {command.server_of(answer) for answer in answers} == command.workers
        assert {bodies(answer.read())[-1]["type"] for answer in answers} == {"response.completed"}
        sealed = {**ASK, "stream": False, "store": False, "include": ["reasoning.encrypted_content"]}
        output = command.ask("POST", "/v1/responses", json=sealed).json()["output"]
        again = {**sealed, "input": [{"role": "user", "content": "Hi"}, *output, {"role": "user", "content": "Go on"}]}
        assert {command.ask("POST", "/v1/responses", json=again).status_code for _ in range(12)} == {200}
        with pytest.raises(OSError, match="in use"):
            reserve("127.0.0.1", int(command.url.rpartition(":")[2]))
        line = 'interlock_responses_total{model="interlock-embedded",reason="",status="completed"} 37.0'
        for _ in range(4):
            wait_for(lambda: line in command.ask("GET", "/metrics").text.splitlines())
        wait_for(lambda: command.measured == command.workers)


def test_a_killed_process_is_replaced_and_its_background_response_fails() -> None:
    with serving("--rate", 1) as command:
        body = {**ASK, "background": True}
        with httpx.Client(timeout=SECONDS) as client, client.stream("POST", f"{command.url}/v1/responses", json=body) as answer:
            pieces = answer.iter_bytes()  # held, because the connection is closed with it
            name = re.search(rb'"id":"(resp_\w+)"', next(pieces))[1].decode()
            owner = command.server_of(answer)
            (other,) = command.workers - {owner}
            owners = {command.server_of(each): each for each in command.burst(16)}
            os.kill(owner, signal.SIGKILL)
        with pytest.raises(httpx.RemoteProtocolError):
            owners[owner].read()
        wait_for(lambda: len(command.workers) == 2 and owner not in command.workers)
        assert other in command.workers
        wait_for(lambda: command.measured == command.workers)
        response = wait_for(lambda: ended(command, name))
        reason = f"process {owner} was ended by signal 9 (Killed); another starts"
        assert re.search(rf"WARNING \S+server: {re.escape(reason)}\n", command.log.read_text())
    assert (response["status"], response["error"]["message"]) == ("failed", "The server that made the response was lost.")


def ended(command, name):
    answer = command.ask("GET", f"/v1/responses/{name}")
    return answer is not None and answer.json()["status"] not in {"queued", "in_progress"} and answer.json()


def test_a_draining_server_completes_its_streams_and_refuses_others() -> None:
    with serving("--drain", SECONDS, "--rate", 20) as command:
        answers = command.burst(6)
        assert [answer.status_code for answer in answers] == [200] * 6
        os.killpg(command.process.pid, signal.SIGINT)  # as a terminal does
        wait_for(command.drains)
        refused = wait_for(lambda: command.ask("POST", "/v1/responses", json=ASK))
        assert (refused.status_code, refused.json()["error"]["message"]) == (503, "The server is shutting down.")
        assert refused.headers["retry-after"] == "1"
        assert wait_for(lambda: command.ask("GET", "/health")).status_code == 200
        assert [bodies(answer.read())[-1]["type"] for answer in answers] == ["response.completed"] * 6
        assert command.process.wait(SECONDS) == 0
        assert command.workers == set()


def test_a_second_signal_ends_all_processes_even_if_one_hangs() -> None:
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


def test_the_processes_end_when_their_supervisor_is_killed() -> None:
    with serving("--rate", 1, "--drain", SECONDS) as command:
        answers, pids = command.burst(8), command.workers
        assert len(pids) == 2
        command.process.kill()
        assert {bodies(answer.read())[-1]["type"] for answer in answers} == {"response.failed"}
        for pid in pids:
            wait_for(lambda pid=pid: status_of(pid) is None)
        assert command.log.read_text().count("the supervisor is gone, so this process ends its responses and exits\n") == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_a_key_is_rotated_without_a_restart(workers, tmp_path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("acme old\n")
    with serving("--api-key-file", keys, "--log-level", "info", workers=workers) as command:

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
