"""The two ways of a delta from an upstream to the client's socket.

    upstream ─▶ Connection.data_received ─▶ Answer.parts
                      │                        │
                      │ short                  │ long: the read wakes the task of the response
                      │                        ▼
                      │   EventStream.next_events ◀─ UpstreamGeneration.generate ◀─ ResponseRun ◀─ StreamedAnswer
                      │                        │     (the task waits at the end of this chain, and each link is resumed)
                      ▼                        ▼
              Shortcut.receive: SseReader.feed ─▶ Translator.read ─▶ Parser.feed ─▶ ResponseDriver.feed ─▶ write ─▶ client

To wake the chain for each read and to send it back to wait takes longer than to read, drive and write a delta. So while the task
waits for a small read, `Shortcut.receive` does in one call what the links do one after another. Whatever ends a stream, fails or
has to wait goes the long way. Both ways call the same functions, so they write the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from attrs import define, field, frozen

from interlock.fsm.deltas import Delta
from interlock.fsm.driver import ResponseDriver
from interlock.parsers import Chunk

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from interlock.serving.engines.upstream.translator import Translator
    from interlock.serving.engines.upstream.upstream_client import EventStream

T = TypeVar("T")


@frozen(eq=False)
class ClientSocket(Generic[T]):
    """The socket of a client in uvicorn; `encode` returns the bytes of values, which become a chunk of the body of an answer."""

    _cycle: RequestResponseCycle
    _encode: Callable[[list[T]], bytes]

    def is_open(self) -> bool:
        """Return whether values can be written now."""
        cycle = self._cycle
        return bool(cycle.chunked_encoding) and not (cycle.flow.write_paused or cycle.disconnected or cycle.response_complete)

    def write(self, values: list[T]) -> None:
        """Write values, while the socket is open."""
        if data := self._encode(values):  # an empty chunk would end the body
            self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))


class Unsent(Protocol[T]):
    """The events of a run that are not sent yet, and when the last ones were."""

    events: list[T]
    taken_at: float


@define(eq=False)
class Shortcut(Generic[T]):
    """The short way of one turn; `read` returns the deltas in chunks of output."""

    client: ClientSocket[T]
    driver: ResponseDriver[T]
    read: Callable[[Sequence[Chunk]], list[Delta]]
    unsent: Unsent[T]
    """The events that are not written; if the shortcut fails, the task writes them."""
    _stream: EventStream = field(init=False)
    _translator: Translator = field(init=False)

    def connect(self, stream: EventStream, translator: Translator) -> None:
        """Take the reads of an upstream's stream after its first events, until the turn ends."""
        self._stream, self._translator = stream, translator
        stream.receive = self.receive

    def receive(self) -> bool:
        """Pass on what has arrived; return whether the task goes on waiting for more. It raises the error if this fails."""
        stream, translator = self._stream, self._translator
        if not self.client.is_open():
            return False
        answer, reader = stream.answer, stream.reader
        try:
            chunks: list[Chunk] = []
            try:
                translator.read_all(reader.feed(answer.take()), chunks)
            finally:  # what came before a malformed event counts
                if chunks:
                    self.deliver(chunks)
        except BaseException as error:  # noqa: BLE001 - the task raises it
            answer.fail(error)
            return False
        stream.note_read()
        if translator.finish_reason is not None:
            answer.receive = None
            return False
        return not reader.is_complete

    def deliver(self, chunks: Sequence[Chunk]) -> None:
        unsent = self.unsent
        unsent.events += self.driver.feed(self.read(chunks))
        if unsent.events:
            self.client.write(unsent.events)
            unsent.events, unsent.taken_at = [], monotonic()
