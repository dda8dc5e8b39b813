"""Lines that are being made while pages read them: one source, read once, and any number of readers.

The source is read in a thread, because it may block and because judging a long stream takes a while; readers wait in their
event loop and never hold it up.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterable

from attrs import define, field

from interlock.serving.view.trace import Line, encoded

_PATIENCE = 0.05
"""Seconds between two looks for further lines."""


@define(eq=False)
class Feed:
    """The lines of one page."""

    _pieces: list[bytes] = field(factory=list[bytes], init=False)
    _over: threading.Event = field(factory=threading.Event, init=False)

    def fill(self, batches: Iterable[Iterable[Line]]) -> None:
        """Read lines until there are no more.

        Args:
            batches: Of one or more streams, the head first; what is in a batch is sent together. They may block.
        """
        try:
            for batch in batches:
                self._pieces.append(encoded(batch))
        finally:
            self._over.set()

    def begin(self, batches: Iterable[Iterable[Line]]) -> None:
        """Start reading lines in a thread of its own.

        Args:
            batches: See `fill`.
        """
        threading.Thread(target=self.fill, args=(batches,), name="interlock-view", daemon=True).start()

    async def read(self) -> AsyncGenerator[bytes]:
        """Yield all lines from the first, as they come; it ends when there will be no more."""
        sent = 0
        while True:
            over = self._over.is_set()
            pieces = self._pieces[sent:]
            sent += len(pieces)
            for piece in pieces:
                yield piece
            if over:
                return
            if not pieces:
                await asyncio.sleep(_PATIENCE)
