"""Events that a recorder wrote as bare JSON lines: one object in each line, without the framing of server-sent events."""

from __future__ import annotations

from attrs import define, field

from interlock.events.decode import SseMessage


@define
class Lines:
    """Turns the bytes of such a file into messages."""

    _rest: bytes = field(default=b"", init=False)
    _line: int = field(default=0, init=False)

    def feed(self, data: bytes) -> list[SseMessage]:
        """Decode some bytes.

        Args:
            data: The next bytes of the file, split anywhere.

        Returns:
            A message for each line that they complete and that is not blank.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [message for line in lines for message in self._message(line)]

    def end(self) -> list[SseMessage]:
        """Return the message of the last line, if it does not end with a line feed."""
        rest, self._rest = self._rest, b""
        return self._message(rest)

    def _message(self, line: bytes) -> list[SseMessage]:
        self._line += 1
        data = line.strip()
        return [SseMessage("message", data.decode(errors="replace"), fields=("data",), line=self._line)] if data else []
