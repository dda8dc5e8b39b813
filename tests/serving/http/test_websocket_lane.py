"""What a lane does, in every order of what can happen to it."""

from hypothesis import given
from hypothesis import strategies as st

from interlock.fsm.deltas import Cancel
from interlock.serving.http.websocket import CreateFrame, Lane


class Run:
    """Notes that it was interrupted."""

    def __init__(self):
        self.interruptions = []

    def interrupt(self, ending):
        self.interruptions.append(ending)


class Host:
    """Plays a connection: it begins and ends a request when the test says so."""

    def __init__(self):
        self.started = []
        self.lane = Lane("a")

    def start(self, request):
        self.started += [] if request is None else [request]

    def ask(self, number):
        self.start(self.lane.submit(CreateFrame("a", {"number": number}, generate=True, size=1)))

    def end(self):
        self.start(self.lane.end())

    def begin(self):
        self.run = Run()
        self.lane.begin(self.run.interrupt)


def numbers(host):
    return [request.body["number"] for request in host.started]


def test_requests_run_one_after_another_in_their_order() -> None:
    host = Host()
    for number in range(3):
        host.ask(number)
    assert (numbers(host), host.lane.in_flight) == ([0], 3)
    host.begin()
    host.end()
    assert (numbers(host), host.lane.in_flight) == ([0, 1], 2)
    host.end()  # it was refused, and never began
    host.begin()
    host.end()
    assert (numbers(host), host.lane.in_flight) == ([0, 1, 2], 0)


def test_a_cancel_and_a_client_that_leaves_interrupt_the_run_of_the_current_request() -> None:
    host = Host()
    host.lane.cancel()
    host.ask(0)
    host.ask(1)
    host.begin()
    host.lane.cancel()
    host.lane.close()
    assert host.run.interruptions == [Cancel(), Cancel()]
    host.end()
    assert (numbers(host), host.lane.in_flight) == ([0], 0)


def test_a_request_that_was_refused_at_once_has_no_run_to_interrupt() -> None:
    host = Host()
    host.ask(0)
    host.lane.cancel()
    host.end()
    assert (numbers(host), host.lane.in_flight) == ([0], 0)


@given(st.lists(st.sampled_from(["ask", "begin", "end", "cancel"])))
def test_no_order_of_events_loses_a_request_or_runs_two_at_once(happenings) -> None:
    host, requests, running, started = Host(), 0, 0, False
    for happening in happenings:
        match happening:
            case "ask":
                host.ask(requests)
                requests += 1
            case "begin" if running and not started:
                host.begin()
                started = True
            case "end" if running:
                host.end()
                started = False
            case "cancel":
                host.lane.cancel()
            case _:
                pass
        ended = len(host.started) - (1 if host.lane.in_flight else 0)
        running = len(host.started) - ended
        assert numbers(host) == list(range(len(host.started)))
        assert host.lane.in_flight == requests - ended
