"""The code interpreter that the server itself runs: `pydantic-monty`, a Python without files and network.

Each container is a process of its own, so that no code delays the event loop or reads the variables of another container. It
keeps the variables of one call for the next, and its calls run one after another. The table `CONTAINER` declares its life.
"""

from __future__ import annotations

import ast
import asyncio
import logging
import re
import warnings
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from attrs import define, field, frozen

from interlock.events.items import NOTHING
from interlock.fsm.table import Edge, Machine, Table
from interlock.serving.requests.api_errors import ToolError, ToolFailedError

if TYPE_CHECKING:
    from pydantic_monty import AsyncMonty, AsyncMontySession

logger = logging.getLogger(__name__)

MODULES: Final = (
    *("asyncio", "base64", "binascii", "bisect", "collections", "copy", "csv", "dataclasses", "datetime", "decimal", "functools"),
    *("hashlib", "itertools", "json", "math", "os", "pathlib", "random", "re", "sys", "time", "tomllib", "typing", "unicodedata"),
)
"""The modules that code may import."""

SHOWN: Final = 20_000
"""The most characters of code whose last value is shown; parsing more would delay other streams."""

RESET: Final = "The interpreter was reset: its variables are lost."

LINE_END: Final = re.compile(rb"\r\n|\r|\n")

SUSPENSIONS: Final = 1_000
"""The most accesses to the system, such as opening a file, that a container may try."""
SUSPENDED: Final = f"suspension limit {SUSPENSIONS} exceeded"

GRACE: Final = 5.0
"""Seconds after which a process is killed that neither ends nor answers."""


class ContainerTrigger(StrEnum):
    """The triggers of a container."""

    RUN = "run"
    """The next call has its turn."""
    END = "end"
    """The code has ended, with or without an exception."""
    BREAK = "break"
    """The code exceeded a limit, the process crashed or did not start, or the call was cancelled."""
    DROP = "drop"
    """The container was not used for too long, has to make room for another, or the server ends."""


class ContainerEffect(StrEnum):
    """The effects of a container."""

    START = "start"
    """Start a process."""
    FEED = "feed"
    """Run the code in the process."""
    STOP = "stop"
    """End the process, and forget the container."""


_T, _E = ContainerTrigger, ContainerEffect

CONTAINER: Final[Table[ContainerTrigger, ContainerEffect]] = Table(
    "container",
    initial="new",
    final={"expired"},
    edges=[
        #    in         on        goes to    effects
        Edge("new",     _T.RUN,   "running", [_E.START, _E.FEED]),
        Edge("running", _T.END,   "idle"),
        Edge("idle",    _T.RUN,   "running", [_E.FEED]),

        Edge("running", _T.BREAK, "expired", [_E.STOP]),
        Edge("idle",    _T.DROP,  "expired", [_E.STOP]),
    ],
)  # fmt: skip
"""A container. `running` has no row for `run` or `drop`, so calls take turns and a container in use is never dropped."""


@define(eq=False)
class Container:
    """A container, the session of its process, and the timer that drops it when it is idle for too long."""

    machine: Machine[ContainerTrigger, ContainerEffect] = field(factory=lambda: Machine.at_start(CONTAINER))
    session: AsyncMontySession | None = None
    timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether the container can be dropped."""
        return _T.DROP in self.machine.state.rows

    def fire(self, trigger: ContainerTrigger) -> tuple[ContainerEffect, ...]:
        """Fire an edge of the table, and return its effects."""
        if self.timer is not None:
            self.timer.cancel()
        return self.machine.fire(trigger)


@frozen
class Ended:
    """What code has printed, what becomes of its container, and whether the code failed."""

    text: str
    trigger: ContainerTrigger = _T.END
    failed: bool = False


@define(eq=False)
class FairSlots:
    """Slots for calls; a free one goes to the waiting tenant that has the fewest, so that no tenant keeps all of them."""

    free: int
    _taken: Counter[str] = field(factory=Counter[str], init=False)
    _waiting: dict[asyncio.Future[None], str] = field(factory=dict[asyncio.Future[None], str], init=False)
    """The tenants of the calls that wait, the longest first."""

    @asynccontextmanager
    async def taken_by(self, tenant: str) -> AsyncGenerator[None]:
        """Wait for a slot, and hold it for the duration of the context."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = tenant
        self._hand_out()
        try:
            await turn
            yield
        finally:
            if self._waiting.pop(turn, None) is None:  # it was handed out, even if its call was cancelled since
                self.free += 1
                self._taken -= Counter([tenant])
            self._hand_out()

    def _hand_out(self) -> None:
        while self.free and self._waiting:
            turn, tenant = min(self._waiting.items(), key=lambda waiting: self._taken[waiting[1]])
            del self._waiting[turn]
            self.free -= 1
            self._taken[tenant] += 1
            if not turn.done():
                turn.set_result(None)


@define(eq=False)
class CodeInterpreter:
    """Runs code in containers, each of which belongs to one tenant.

    Raises:
        ValueError: The package `pydantic-monty` is not installed.
    """

    seconds: float = 10.0  # the longest that code may run
    memory: int = 128 * 2**20  # the most bytes that it may use
    output: int = 100_000  # the most bytes that it may print
    most: int = 32  # the most containers; a further one takes the place of the least recently used one that is idle
    idle: float = 20 * 60.0  # the seconds after which an idle container is dropped
    wait: float = 60.0  # the most seconds that a call waits for its turn
    _pool: AsyncMonty | None = field(default=None, init=False)
    _starting: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _slots: FairSlots = field(init=False)
    _turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = field(
        factory=WeakValueDictionary[tuple[str, str], asyncio.Lock], init=False
    )
    """What makes the calls of a container take turns, by its tenant and id."""
    _containers: dict[tuple[str, str], Container] = field(factory=dict[tuple[str, str], Container], init=False)
    """The containers, the least recently used first."""
    _endings: list[asyncio.Future[None]] = field(factory=list[asyncio.Future[None]], init=False)
    """The processes that are being ended."""

    def __attrs_post_init__(self) -> None:
        """Load the package before a response needs it."""
        try:
            import_module("pydantic_monty")
        except ImportError as error:
            raise ValueError("pydantic-monty is not installed; in a checkout of Interlock: pip install '.[tools]'") from error
        self._slots = FairSlots(self.most)

    def require_start(self) -> None:
        """Start a process and end it; raise a `ValueError` if that fails, such as where a server may start no processes."""
        from pydantic_monty import Monty, MontyError  # noqa: PLC0415 - an extra

        try:
            with Monty(min_processes=0, max_processes=1, request_timeout=self.seconds) as pool, pool.checkout():
                pass
        except (MontyError, OSError, RuntimeError) as error:
            raise ValueError(f"the interpreter cannot be started: {error}") from error

    @property
    def description(self) -> str:
        """What models read about the tool."""
        return (
            "Runs Python code and returns what it prints and the value of its last line. Variables are kept for the next call. "
            "The language lacks `yield`, `del` and `except*`. "
            f"Only these modules can be imported: {', '.join(MODULES)}. There are no files, no network and no images. Code may "
            f"run for {self.seconds:g} seconds, use {self.memory >> 20} MiB of memory and print {self.output} bytes."
        )

    def session(
        self, tenant: str, container_id: str, earlier: Sequence[str] = (), domains: Mapping[str, object] = NOTHING
    ) -> CodeSession:
        """Return the session of a response with a container, which need not exist yet."""
        del earlier, domains
        return CodeSession(self, (tenant, container_id))

    async def run(self, key: tuple[str, str], code: str) -> str:
        """Run code in the container of a tenant and id when it is its turn, and return what it prints.

        Raises:
            ToolFailedError: The code failed, or exceeded a limit.
            ToolError: No process can be started, or none was free for too long.
        """
        async with self._turn(key):
            container = self._containers.pop(key, None) or self._add()
            self._containers[key] = container
            ended = Ended("", trigger=_T.BREAK)
            try:
                for effect in container.fire(_T.RUN):
                    if effect is _E.START:
                        container.session = await self._start()
                    elif container.session is not None:
                        ended = await self._feed(container.session, code)
            finally:
                self._fire(key, ended.trigger)
        if ended.failed:
            raise ToolFailedError(ended.text)
        return ended.text

    @asynccontextmanager
    async def _turn(self, key: tuple[str, str]) -> AsyncGenerator[None]:
        """Wait until no other call uses the container and its tenant has a slot."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self.wait):
                    await stack.enter_async_context(self._turns.setdefault(key, asyncio.Lock()))
                    await stack.enter_async_context(self._slots.taken_by(key[0]))
            except TimeoutError:
                raise ToolError(f"The interpreter had no time for this call within {self.wait:g} seconds.") from None
            yield

    async def close(self) -> None:
        """End all processes."""
        for key in [key for key, container in self._containers.items() if container.is_idle]:
            self._fire(key, _T.DROP)
        await asyncio.gather(*self._endings, return_exceptions=True)
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.__aexit__(None, None, None)

    def _add(self) -> Container:
        """Return a new container, for which an idle one makes room: this call is one of the `most` that may run."""
        if len(self._containers) >= self.most:
            self._fire(next(key for key, container in self._containers.items() if container.is_idle), _T.DROP)
        return Container()

    def _fire(self, key: tuple[str, str], trigger: ContainerTrigger) -> None:
        """End a call, or drop a container."""
        container = self._containers[key]
        if _E.STOP in container.fire(trigger):
            del self._containers[key]
            if container.session is not None:
                self._endings.append(asyncio.ensure_future(container.session.__aexit__(None, None, None)))
                self._endings = [ending for ending in self._endings if not ending.done()]
        else:
            container.timer = asyncio.get_running_loop().call_later(self.idle, self._fire, key, _T.DROP)

    async def _start(self) -> AsyncMontySession:
        from pydantic_monty import AsyncMonty, MontyError  # noqa: PLC0415 - an extra

        try:
            async with self._starting:
                if self._pool is None:
                    pool = AsyncMonty(
                        min_processes=0,
                        max_processes=self.most,
                        max_checkouts_per_worker=1,  # no container sees what another has left in memory
                        request_timeout=self.seconds + GRACE,
                    )
                    self._pool = await pool.__aenter__()
            session = self._pool.checkout(
                limits={"max_feed_duration_secs": self.seconds, "max_memory": self.memory, "max_suspensions": SUSPENSIONS},
                os_policy={"sleep": "zero"},
            )
            return await session.__aenter__()
        except (MontyError, OSError, RuntimeError) as error:
            logger.warning("The interpreter cannot be started: %s", error)
            raise ToolError("The interpreter cannot be started.") from error

    async def _feed(self, session: AsyncMontySession, code: str) -> Ended:
        from pydantic_monty import CollectString, MontyError, MontyRuntimeError, MontySyntaxError  # noqa: PLC0415 - an extra

        printed = CollectString(self.output)
        try:
            await session.feed_run(prepare(code), print_callback=printed)
        except (MontyRuntimeError, MontySyntaxError) as error:
            raised = error.exception()
            if isinstance(raised, SystemExit):
                return Ended("\n".join(filter(None, (printed.output.removesuffix("\n"), _status(raised)))))
            text = error.display()[: self.output]
            is_over_limit = isinstance(raised, (MemoryError, TimeoutError)) and not error.traceback()
            if f"> {self.output} bytes" in text:
                text, is_over_limit = f"\nThe code was stopped: it may print {self.output} bytes.", False
            if not is_over_limit and session.worker_pid is not None and SUSPENDED not in text:
                return Ended(f"{printed.output}{text}", failed=True)
        except (MontyError, RuntimeError) as error:  # the latter if the process has ended since the last call
            text = str(error)
        else:
            return Ended(printed.output)
        return Ended(f"{printed.output}{text}\n{RESET}", _T.BREAK, failed=True)


@frozen
class CodeSession:
    """The code interpreter of one response, with the tenant and the id of its container."""

    interpreter: CodeInterpreter
    key: tuple[str, str]

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        """Run the code of a call; see `CodeInterpreter.run` for other errors.

        Raises:
            ToolError: The tool is not `python`, or `code` is not a string.
        """
        code = arguments.get("code")
        if name != "python" or not isinstance(code, str):
            raise ToolError(f"The interpreter has no tool '{name}', or the call has no 'code'.")
        return await self.interpreter.run(self.key, code)


def prepare(code: str) -> str:
    """Make code do what Python does and the interpreter does not: show the value of its last statement, and exit.

    As in an interactive Python, `_` is then that value. `exit`, `quit` and `sys.exit` become `raise SystemExit`, and its status a
    text, because the interpreter has no such functions, and its exceptions hold only text.
    """
    if len(code) > SHOWN:
        return code
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(code)
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # newer syntax, or an error that the interpreter explains
        return code
    raw = code.encode()
    lines = [0, *(line.end() for line in LINE_END.finditer(raw))]
    edits: list[tuple[int, int, bytes]] = []
    for node in ast.walk(tree):
        match node:
            case ast.Expr(ast.Call(ast.Name("exit" | "quit") | ast.Attribute(ast.Name("sys"), "exit")) as call):
                edits.append((*_span(call.func, lines), b"raise SystemExit"))
            case ast.Raise(ast.Call(ast.Name("SystemExit")) as call):
                pass
            case _:
                continue
        for status in call.args:
            start, end = _span(status, lines)
            edits.append((start, end, b"str(" + raw[start:end] + b")"))
    match tree.body[-1:]:
        case [ast.Expr(ast.Call(ast.Name("print" | "exit" | "quit") | ast.Attribute(ast.Name("sys"), "exit")))]:
            pass
        case [ast.Expr() as last]:
            start, end = _span(last, lines)
            edits += (start, start, b"_ = "), (end, len(raw), b"\nif _ is not None: print(repr(_))")
        case _:
            pass
    for start, end, text in sorted(edits, reverse=True):
        raw = raw[:start] + text + raw[end:]
    return raw.decode()


def _span(node: ast.expr | ast.Expr, lines: Sequence[int]) -> tuple[int, int]:
    """Return where a node starts and ends, in bytes, for the starts of all lines."""
    assert node.end_lineno is not None and node.end_col_offset is not None  # noqa: PT018, S101 - as `ast.parse` sets them
    return lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset


def _status(ended: SystemExit) -> str:
    """Return what the model reads of a program's status; nothing if it is 0."""
    return "" if f"{ended}" in {"", "0", "None"} else f"The program ended with status {ended}."
