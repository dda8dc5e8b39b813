"""A chunk of engine output, and the protocol of all parsers.

Chunk boundaries mean nothing: any partition of the same tokens gives the same items (rule R16).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from interlock.fsm.deltas import Delta, TokenLogprob, Usage
from interlock.parsers.routing import EndReason


class Chunk(Struct):
    """The output of one engine step for one request."""

    token_ids: Sequence[int] = ()
    """The new token ids, in order; a parser of text counts them, and looks for those in `Tagged.special`."""
    text: str | None = None
    """The new text, for formats that are parsed as text: empty if the tokens have none; harmony ignores it."""
    logprobs: Sequence[TokenLogprob] | None = None
    """The log probabilities, one for each new token; None if there are none."""
    delta: object | None = None
    """For the format `chat`: an object or mapping with the fields of a delta of Chat Completions (`content`, `reasoning` or
    `reasoning_content`, `refusal`, `tool_calls`, `function_call`), or None."""


class ChunkError(TypeError):
    """A chunk has only fields that its parser does not read."""

    def __init__(self, chunk: Chunk, reads: str) -> None:
        hint = "; the text of a token that has none is ''" if reads == "text" and chunk.token_ids else ""
        super().__init__(f"this parser reads a chunk's {reads}, but got {chunk!r:.200}{hint}")


ReasoningCounter: TypeAlias = Callable[[list[int]], int]
"""Counts the reasoning tokens of a turn, as `count_reasoning_tokens` of vLLM's parsers does."""


class Recoveries(dict[tuple[str, str], int]):
    """Repairs of malformed output, counted by format or family, and by the kind of fault.

    The parsers of the package have one, their attribute `recoveries`. For the format `responses`, the kind is the rule that the
    service broke, such as `R9`.
    """

    __slots__ = ()

    def __missing__(self, _: tuple[str, str]) -> int:
        return 0


class Parser(Protocol):
    """Parses model output in one format; one instance parses all turns of one response."""

    def feed(self, chunk: Chunk) -> list[Delta]:
        """Return the deltas that are certain after a chunk; never raises, for any model output (rule R17).

        Raises:
            ChunkError: The chunk has only what this parser does not read, such as text for one of deltas.
        """
        ...

    def end(self, reason: EndReason, usage: Usage) -> list[Delta]:
        """End the turn, and return the pending deltas and `EndTurn`; the parser is then ready for another turn.

        The `EndTurn` has the engine's usage, completed with the parser's counts of reasoning and output tokens.
        """
        ...


class ListReader(ABC):  # no protocol, against which a check takes 17 µs
    """A parser that needs the schemas of tools, also of those that an MCP server lists after the response has begun."""

    __slots__ = ()

    @abstractmethod
    def read_lists(self, items: Iterable[Mapping[str, object]]) -> None:
        """Take the schemas from the `mcp_list_tools` items of a conversation, before a turn that may call their tools."""
