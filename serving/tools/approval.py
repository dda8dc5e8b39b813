"""Calls that are asked for: where a call of an MCP tool has to be approved, an `mcp_approval_request` takes its place.

It stands between parser and driver, hears deltas and gives deltas. A call that has to be approved is held until its
arguments are whole, because the question shows them all. One that the end of a turn cuts is given as the call it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import define, field

from interlock.fsm.deltas import Close, Delta, EndTurn, Open, Text

__all__ = ["Approvals"]


@define(eq=False)
class Approvals:
    """Puts questions in the place of calls.

    Args:
        asks_for: Says of a server's label and a tool's name whether the call has to be approved.
    """

    asks_for: Callable[[str, str], bool]
    _held: Open | None = field(default=None, init=False)
    _pieces: list[str] = field(factory=list[str], init=False)

    def feed(self, deltas: Iterable[Delta]) -> list[Delta]:
        """Return what the driver is to be told.

        Args:
            deltas: What the parser said.
        """
        told: list[Delta] = []
        for delta in deltas:
            match delta:
                case str(text) | Text(text) if self._held is not None:
                    self._pieces.append(text)
                case Open("mcp_call", fields) if self.asks_for(str(fields["server_label"]), str(fields["name"])):
                    told += self._asked()
                    self._held = delta
                case Close():
                    told += self._asked() if self._held is not None else [delta]
                case EndTurn(reason) if reason != "stop":
                    told += [*self._cut(), delta]
                case _:
                    told += [*self._asked(), delta]
        return told

    def _asked(self) -> list[Delta]:
        """Return the question that takes the place of the call that was held, if one was."""
        if self._held is None:
            return []
        held, arguments = self._held, self._take()
        fields = {name: held.fields[name] for name in ("server_label", "name")}
        return [Open("mcp_approval_request", {**fields, "arguments": arguments})]

    def _cut(self) -> list[Delta]:
        return [self._held, self._take()] if self._held is not None else []

    def _take(self) -> str:
        arguments = "".join(self._pieces)
        self._held, self._pieces = None, []
        return arguments
