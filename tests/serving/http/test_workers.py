"""The supervisor replaces processes that exit or hang, and ends if none can start; the processes are stand-ins."""

import errno
import signal
import socket
from pathlib import Path

import pytest
from attrs import define, field
from uvicorn.supervisors.multiprocess import SIGNALS

from interlock.serving.http import workers
from interlock.serving.http.server import listen, reserve
from interlock.serving.http.workers import Supervisor
from interlock.serving.requests.api_keys import Keys
from interlock.serving.settings import Settings, Times

SETTINGS = Settings(workers=2, store="sqlite:unused.db", times=Times(tick=0.001, grace=0))


@define(eq=False)
class StubProcess:
    """What the supervisor knows of a process; `calls` has what it did with it."""

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
    """Run a supervisor whose processes are these, one after another; `rounds` are what happens before each of its rounds."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}

    def run(*processes, rounds=()):
        following, happening, announced = iter(processes), iter(rounds), []
        monkeypatch.setattr(workers, "Worker", lambda *_: next(following))
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
def test_a_server_whose_process_cannot_start_ends(run, caplog, processes, reason) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*processes)
    assert ended.value.code == 3
    assert [record.getMessage() for record in caplog.records if record.name == workers.__name__] == [
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
def test_a_closed_terminal_ends_the_server_unless_its_signal_reads_keys(keys, reads) -> None:
    with reserve("127.0.0.1", 0) as reserved:
        Supervisor(SETTINGS, dict, reserved, lambda: None, keys)
    ending = [number for number in SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    assert [signal.SIGHUP in ending, signal.SIGTTIN in ending, signal.SIGTERM in ending] == [not reads, True, False]


def test_connections_of_an_earlier_server_keep_no_port_from_workers() -> None:
    with listen("127.0.0.1", 0) as earlier:
        address = earlier.getsockname()
        with socket.create_connection(address):
            earlier.accept()[0].close()  # the side that closes first waits for late packets
    with reserve(*address) as reserved:
        assert reserved.getsockname() == address
