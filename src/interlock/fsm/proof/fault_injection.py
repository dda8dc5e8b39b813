"""Faults of what a driver is handed: a writer, a clock, or a maker of ids or late fields that raises changes nothing.

Each edge is fired again where the exploration fired it first, once for every call of these that it makes, and that call raises.
The subject and the events must then be what they were before the edge, and the stream must be brought to a legal end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, TypeAlias, cast

import msgspec
from attrs import define, field

from interlock.events.sse import SseWriter
from interlock.events.stream import StreamEvent
from interlock.fsm import deltas, oracle
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.ids import SequentialIds
from interlock.fsm.lifecycle import NO_FIELDS, Fields
from interlock.fsm.lifecycles import Lifecycles

__all__ = ["Path", "faults_of"]

Path: TypeAlias = tuple[deltas.Delta, ...]


class InjectedError(Exception):
    """What a handed function raises here."""


@define
class _Handed:
    """What a driver is handed: a writer, a maker of ids, a clock and late fields, of which one call may raise.

    Args:
        successes: How many calls succeed before one raises; None for all.
    """

    successes: int | None = None
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
        again = SseWriter().repeat(event)

        def write(text: str, number: int) -> bytes:
            self._call()
            return again(text, number)

        return write

    def make_id(self, prefix: str) -> str:
        self._call()
        return self.ids(prefix)

    def tell_time(self) -> int:
        self._call()
        return 0

    def late(self, item: Mapping[str, object]) -> Fields:
        self._call()
        return {"encrypted_content": "sealed"} if item["type"] == "reasoning" else NO_FIELDS


class _Watched(ResponseDriver[bytes]):
    """The real driver, which is looked at before an edge fires and after it has failed.

    Args:
        lifecycles: What it composes.
        handed: What it is handed.
    """

    def __init__(self, lifecycles: Lifecycles, handed: _Handed) -> None:
        super().__init__({}, writer=handed, ids=handed.make_id, clock=handed.tell_time, late=handed.late, lifecycles=lifecycles)
        self.changed: list[str] = []

    def _fire(self, subject: Any, trigger: str, args: Fields = NO_FIELDS) -> StreamEvent | None:  # noqa: ANN401 - as there
        before = self._look(subject)
        try:
            return super()._fire(subject, trigger, args)
        except InjectedError:
            after = self._look(subject)
            self.changed += [name for name in before if before[name] != after[name]]
            raise

    def _look(self, subject: Any) -> Mapping[str, object]:  # noqa: ANN401 - an item or the response
        """Return everything that firing an edge may change, as values that change no more."""
        saved = subject.save()
        fields: dict[str, object] = {name: _frozen(getattr(saved, name)) for name in saved.__struct_fields__}
        return {**fields, "output": [*self._response.output], "events": [*self._events], "number": self._number}


def _frozen(value: object) -> object:
    """Return what a container holds now; any other value is replaced and never changed."""
    match value:
        case list():
            return [*cast("list[object]", value)]
        case BytesIO():
            return value.getvalue(), value.tell()
        case _:
            return value


def faults_of(lifecycles: Lifecycles, paths: Iterable[Path]) -> Iterator[str]:
    """Yield what is wrong where something that the driver was handed raises.

    Args:
        lifecycles: What the driver composes.
        paths: Deltas, the last of which fires edges that are to be tried: at each call that they make.
    """
    for path in paths:
        *before, last = path
        handed = _Handed()
        driver = _Watched(lifecycles, handed)
        driver.feed(before)
        calls = handed.calls
        driver.feed([last])
        for successes in range(handed.calls - calls):
            yield from (f"{path!r}, call {successes}: {fault}" for fault in _fault(lifecycles, before, last, successes))


def _fault(lifecycles: Lifecycles, before: Sequence[deltas.Delta], last: deltas.Delta, successes: int) -> Iterator[str]:
    handed = _Handed()
    driver = _Watched(lifecycles, handed)
    frames = driver.feed(before)
    handed.successes = successes
    try:
        frames += driver.feed([last])
    except InjectedError:
        yield from (f"{name} was not undone" for name in driver.changed)
    frames += driver.feed([deltas.Fault("server_error", "It broke.")])
    events = [cast("Mapping[str, object]", msgspec.json.decode(frame.partition(b"\ndata: ")[2])) for frame in frames]
    yield from (f"{violation.rule}: {violation.message}" for violation in oracle.check(events))
