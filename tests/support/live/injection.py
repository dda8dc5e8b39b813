"""Faults at every call and every await: a profile function that raises at a call, or after an await, in Interlock's code.

A first run finds the places, so the tests need no change when the code changes.
"""

import asyncio
import builtins
import sys
from collections import Counter
from contextlib import contextmanager
from inspect import ismodule
from pathlib import Path

from attrs import define, field, frozen

import interlock

HOME = str(Path(interlock.__file__).parent)
INNER = ("asyncio/base_events.py", "_weakrefset.py", "/contextlib.py")
"""Python's own code for tasks, weak references and `with`: after a fault there, nothing could be cleaned up."""


class PanicException(BaseException):
    """A panic in Rust, as Python raises it: not an `Exception`."""


@frozen
class Place:
    """A call or an await in Interlock's code, and how often it was reached before.

    Args:
        file: The file, below the package.
        function: The function that calls or awaits.
        line: The line.
        callee: The called function; `await` where a coroutine resumes, `yield` where a generator does.
        occurrence: How often it was reached before, from 0.
    """

    file: str
    function: str
    line: int
    callee: str
    occurrence: int = 0

    def __str__(self):
        return f"{self.file}:{self.line} {self.function} -> {self.callee} #{self.occurrence}"


@define
class Injector:
    """Counts the places that a run goes through, and raises at one of them.

    Args:
        target: Where to raise; None only records the places.
        error: The exception to raise.
    """

    target: Place | None = None
    error: BaseException | None = None
    seen: Counter = field(factory=Counter)
    raised: bool = False
    _resumed: object = None
    """The frame that resumes at the target, until the innermost one is known, which alone can raise."""

    def __call__(self, frame, event, argument):
        if self._resumed is not None:
            if event != "call" or frame.f_back is not self._resumed or not _resumes(frame):
                self._raise()
            self._resumed = frame
            return
        place = _place(frame, event, argument)
        if place is None:
            return
        occurrence = self.seen[place]
        self.seen[place] += 1
        if self.target == Place(*place, occurrence):
            if place[-1] != "await":
                self._raise()
            self._resumed = frame

    def _raise(self):
        self._resumed, self.raised = None, True
        raise self.error  # which also ends the profiling

    def places(self):
        """Every place, by its first and its last occurrence."""
        return [Place(*place, occurrence) for place, count in self.seen.items() for occurrence in sorted({0, count - 1})]

    @contextmanager
    def active(self):
        sys.setprofile(self)
        try:
            yield self
        finally:
            sys.setprofile(None)


def _place(frame, event, argument):
    """Return the place of an event; None outside of Interlock's code, and for methods of built-in types, which call nothing."""
    if event == "c_call":
        owner = argument.__self__
        plain = owner is None or owner is builtins or (type(owner).__module__ in {"builtins", "_io"} and not ismodule(owner))
        return None if plain else _at(frame, argument.__qualname__)
    if event != "call":
        return None
    code = frame.f_code
    if kind := _resumes(frame):
        return _at(frame, kind)
    if frame.f_back is None or code.co_filename.endswith(INNER):
        return None
    return _at(frame.f_back, code.co_qualname)


def _resumes(frame):
    """Return whether a frame resumes after a `yield` or an `await`; None if it begins."""
    return {1: "yield", 2: "await", 3: "await"}.get(frame.f_code.co_code[frame.f_lasti + 1] & 3)


def _at(frame, callee):
    file = frame.f_code.co_filename
    if not file.startswith(HOME):
        return None
    return file.removeprefix(HOME + "/"), frame.f_code.co_qualname, frame.f_lineno, callee


@define
class Answered:
    """The answer of an ASGI application.

    Args:
        messages: What it sent.
        raised: What it raised then.
    """

    messages: list = field(factory=list)
    raised: BaseException | None = None

    @property
    def status(self):
        return self.messages[0]["status"]

    @property
    def content_type(self):
        return dict(self.messages[0]["headers"])[b"content-type"].decode()

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.messages[1:])

    @property
    def whole(self):
        return not self.messages[-1].get("more_body", False)


async def ask(app, method, path, body=b"", query=b""):
    """Send a request to an ASGI application, as a client that does not disconnect."""
    headers = [(b"content-type", b"application/json"), (b"host", b"test")]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query,
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("test", 80),
        "app": app,
    }
    answered = Answered()
    requests = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return requests.pop() if requests else await asyncio.Event().wait()

    async def send(message):
        answered.messages.append(message)

    try:
        await app(scope, receive, send)
    except BaseException as error:  # noqa: BLE001 - what a server would log
        answered.raised = error
    return answered
