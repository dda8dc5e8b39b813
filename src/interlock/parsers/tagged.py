"""The name of a format that has a family: text with markers."""

from __future__ import annotations

from attrs import frozen

__all__ = ["Tagged"]


@frozen
class Tagged:
    """A format of recordings and engines: text with the markers of a family.

    Args:
        tool_parser: How calls are written, by a name of vLLM's `--tool-call-parser`; None if they are not read.
        reasoning_parser: How reasoning is written, by a name of `--reasoning-parser`; None if it is not read.
    """

    tool_parser: str | None = None
    reasoning_parser: str | None = None

    def __str__(self) -> str:
        """Return the name of the format."""
        return "tagged"
