"""Checks that the driver survives a writer, a clock, or a source of ids or final fields that raises.

An item gets its final fields just before its `response.output_item.done`. The last delta of each path fires an edge.
For each call of these functions during that delta, the check repeats the path and makes that call raise. An edge during which a
call raises must be undone, so that the item or response and the events are as before, and the stream must still end legally.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import TypeAlias

from attrs import define, field

from interlock.events.json import is_array
from interlock.events.sse import SseWriter
from interlock.events.stream import StreamEvent
from interlock.fsm import deltas
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.ids import SequentialIds
from interlock.fsm.lifecycle import NO_FIELDS, AnySubject, Fields
from interlock.fsm.lifecycles import Lifecycles
from interlock.fsm.subjects import OpenPart
from interlock.verify import oracle
from interlock.verify.expectation import decode

FaultPath: TypeAlias = tuple[deltas.Delta, ...]


class InjectedError(Exception):
    """The injected error."""


@define
class _FaultyCallables:
    """The writer, ids, clock and final fields of a driver; one of their calls may raise."""

    successes: int | None = None
    """How many calls succeed before one raises; None if no call raises."""
    calls: int = 0
    ids: SequentialIds = field(factory=SequentialIds)

    def _call(self) -> None:
        self.calls += 1
        if self.successes is not None:
            self.successes -= 1
            if self.successes < 0:
                self.successes = None
                raise InjectedError

    def write(self, event: StreamEvent) -> bytes:
        self._call()
        return SseWriter().write(event)

    def repeat(self, event: StreamEvent) -> Callable[[str, int], bytes]:
        repeated = SseWriter().repeat(event)

        def write(text: str, number: int) -> bytes:
            self._call()
            return repeated(text, number)

        return write

    def make_id(self, prefix: str) -> str:
        self._call()
        return self.ids(prefix)

    def tell_time(self) -> int:
        self._call()
        return 0

    def final_fields(self, item: Mapping[str, object]) -> Fields:
        self._call()
        return {"encrypted_content": "sealed"} if item["type"] == "reasoning" else NO_FIELDS


class _FaultyDriver(ResponseDriver[bytes]):
    """The real driver, which also records what a failed edge has changed."""

    def __init__(self, lifecycles: Lifecycles, faulty: _FaultyCallables) -> None:
        super().__init__(
            {}, writer=faulty, ids=faulty.make_id, clock=faulty.tell_time, final_fields=faulty.final_fields, lifecycles=lifecycles
        )
        self.changes: list[str] = []

    def _fire(self, subject: AnySubject, trigger: str, args: Fields = NO_FIELDS) -> StreamEvent | None:
        before = self._snapshot(subject)
        try:
            return super()._fire(subject, trigger, args)
        except InjectedError:
            after = self._snapshot(subject)
            self.changes += [name for name in before if before[name] != after[name]]
            raise

    def _snapshot(self, subject: AnySubject) -> Mapping[str, object]:
        """Return a copy of everything that a failed edge must leave as it was."""
        backup = subject.save()
        fields: dict[str, object] = {name: _copy(getattr(backup, name)) for name in backup.__struct_fields__}
        return {**fields, "output": [*self._response.output], "events": [*self._events], "number": self._number}


def _copy(value: object) -> object:
    """Copy a list or a buffer, also of a part. The driver never mutates other values, so they need no copy."""
    if isinstance(value, OpenPart):
        return [_copy(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, BytesIO):
        return value.getvalue(), value.tell()
    return [*map(_copy, value)] if is_array(value) else value


def faults_of(lifecycles: Lifecycles, paths: Iterable[FaultPath]) -> Iterator[str]:
    """Yield every fault that occurs if a callable raises during the last delta of a path."""
    for path in paths:
        *before, last = path
        faulty = _FaultyCallables()
        driver = _FaultyDriver(lifecycles, faulty)
        driver.feed(before)
        calls = faulty.calls
        driver.feed([last])
        for successes in range(faulty.calls - calls):
            yield from (f"{path!r}, call {successes}: {fault}" for fault in _fault(lifecycles, before, last, successes))


def _fault(lifecycles: Lifecycles, before: Sequence[deltas.Delta], last: deltas.Delta, successes: int) -> Iterator[str]:
    faulty = _FaultyCallables()
    driver = _FaultyDriver(lifecycles, faulty)
    frames = driver.feed(before)
    faulty.successes = successes
    try:
        frames += driver.feed([last])
    except InjectedError:
        yield from (f"{name} was not undone" for name in driver.changes)
    frames += driver.feed([deltas.Fault("server_error", "It broke.")])
    findings = oracle.check([decode(frame) for frame in frames])
    yield from (f"{finding.rule}: {finding.message}" for finding in findings)
