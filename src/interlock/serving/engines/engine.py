"""The engine protocol: a source of model output, one turn at a time, independent of HTTP and events.

An engine that validates requests itself, such as vLLM, is a `ResponseEngine` (`interlock.serving.engines.generation`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, runtime_checkable

from attrs import define, field, frozen
from msgspec import Meta, Struct

from interlock.fsm.deltas import FinishReason
from interlock.parsers import Chunk, Format

if TYPE_CHECKING:  # the command line reads recordings without importing request validation
    from interlock.serving.requests.create import ResponseRequest


@define
class EngineOutput:
    """One step of an engine for one request. Treat it as immutable; a frozen class takes three times as long to create.

    Any step may have the token counts of the prompt (all, read from a prefix cache, written to it) and, if chunks have no token
    ids, of the whole output (all, reasoning); 0 means unknown. `more` are further chunks of the same step, in order. With the
    finish reason `stop`, `stop_sequence` is the request's stop string that ended the turn, or None: no one did, or it is unknown.
    """

    chunk: Chunk
    finish_reason: FinishReason | None = None
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    more: Sequence[Chunk] = ()
    stop_sequence: str | None = None


@frozen
class Turn:
    """The next turn of a response for an engine to generate; `index` counts the turns of the response from 0.

    `items` are the history, the request's input, and the response's earlier items with the results of their tools. `budget` is
    the turn's token limit, at least 1, or None for no limit.
    """

    request: ResponseRequest
    items: Sequence[Mapping[str, object]] = field(converter=tuple[Mapping[str, object], ...])
    budget: int | None = None
    index: int = field(default=0, kw_only=True)


class ModelFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a server knows of a model, such as from the list of an upstream; None is unknown.

    `window` is the most tokens of a prompt and its output together. `efforts` are the reasoning efforts that a request may name,
    and `modalities` the kinds of input.
    """

    window: Annotated[int, Meta(ge=1)] | None = None
    efforts: list[str] | None = None
    modalities: list[Literal["text", "image", "audio"]] | None = None

    def fill_from(self, other: ModelFacts) -> ModelFacts:
        """Return these facts, with those of another source where these are unknown."""
        facts = {name: getattr(self, name) for name in self.__struct_fields__}
        return ModelFacts(**{name: getattr(other, name) if fact is None else fact for name, fact in facts.items()})


class Engine(Protocol):
    """A source of model output. It may also have `facts`, the `ModelFacts` of its model, and `admit`; see `AdmittingEngine`."""

    @property
    def models(self) -> Sequence[str]:
        """The model names that a request may use; the first is the served model."""
        ...

    @property
    def format(self) -> Format:
        """The format of the output."""
        ...

    async def count(self, turn: Turn) -> int:
        """Return how many tokens the prompt of a turn has."""
        ...

    def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Generate one turn, step by step; the last step has a finish reason.

        Closing the generator (`aclose`) aborts the generation and frees its resources.

        Raises:
            EngineError: The engine cannot continue; earlier steps remain valid.
            ApiError: Likewise, as `admit` would have said it: the response has begun, so it fails with the message.
        """
        ...


@runtime_checkable
class AdmittingEngine(Engine, Protocol):
    """An engine that may refuse a turn, or let it wait, before the response begins."""

    async def admit(self, turn: Turn) -> None:
        """Return when `generate` can begin with the turn; called before each one.

        Raises:
            ApiError: The engine refuses the turn. If it is the first, the client receives this error with its status. A response
                that has begun already, such as one in the background, fails with the message.
        """
        ...
