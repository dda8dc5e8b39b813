"""Events that a recorder wrote as bare JSON lines: one object in each line, without the framing of server-sent events."""

from __future__ import annotations

from attrs import define, field

from interlock.events.decode import DEFAULT_LIMIT, SseMessage


@define
class Lines:
    """Turns the bytes of such a file into messages, in memory that does not grow with it.

    Args:
        limit: How many bytes a line may have; one that is longer is cut.
    """

    limit: int = DEFAULT_LIMIT
    _pieces: list[bytes] = field(factory=list[bytes], init=False)
    """The pieces of the line that has not ended, as far as they fit."""
    _size: int = field(default=0, init=False)
    """How long the line is."""
    _line: int = field(default=0, init=False)

    def feed(self, data: bytes) -> list[SseMessage]:
        """Decode some bytes.

        Args:
            data: The next bytes of the file, split anywhere.

        Returns:
            A message for each line that they complete and that is not blank.
        """
        first, *rest = data.split(b"\n")
        self._keep(first)
        messages: list[SseMessage] = []
        for piece in rest:
            messages += self.end()
            self._keep(piece)
        return messages

    def end(self) -> list[SseMessage]:
        """End the line, and return its message if it is not blank."""
        data, overlong = b"".join(self._pieces).strip(), self._size > self.limit
        self._pieces, self._size, self._line = [], 0, self._line + 1
        if not data:
            return []
        text = data.decode(errors="replace")
        return [SseMessage("message", text, fields=("data",), overlong=overlong, line=self._line)]

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if piece and self._size <= self.limit:
            self._pieces.append(piece)
