"""What is used of vLLM's objects, as protocols: the classes themselves cannot be imported where vLLM is not installed.

It says what is there, not what it means; that is vLLM's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol, TypeAlias


class Completion(Protocol):
    """One sequence of a `RequestOutput`: what is new of it."""

    text: str
    token_ids: Sequence[int]
    logprobs: object
    finish_reason: str | None
    stop_reason: int | str | None
    """What stopped it: a token, a text, or nothing if it was the tokenizer's own end."""


class Output(Protocol):
    """A `RequestOutput`: one step of the engine, or several that were merged."""

    prompt_token_ids: Sequence[int] | None
    num_cached_tokens: int | None
    num_cache_creation_tokens: int | None
    outputs: Sequence[Completion]
    finished: bool


class ParseDelta(Protocol):
    """The `parse_delta` of a `Parser`."""

    def __call__(
        self, text: str, token_ids: Sequence[int], request: Request, prompt_token_ids: Sequence[int] | None, /, *, finished: bool
    ) -> object:
        """Return a `DeltaMessage`, or None if nothing is certain yet."""
        ...


class DeltaParser(Protocol):
    """A `Parser`: the reasoning and tool parsers of a model in one."""

    def parse_delta(
        self,
        delta_text: str,
        delta_token_ids: Sequence[int],
        request: Request,
        prompt_token_ids: Sequence[int] | None,
        *,
        finished: bool,
    ) -> object:
        """Return a `DeltaMessage`, or None if nothing is certain yet."""
        ...


class Message(Protocol):
    """A message of harmony, or an item of the parsable context."""

    recipient: str | None
    channel: str | None


class Context(Protocol):
    """A `ConversationContext`: what vLLM's loop over rounds keeps of one request. Its methods are replaced on the instance."""

    response_parser: DeltaParser | None
    request: Request
    append_output: Callable[[Output], None]
    need_builtin_tool_call: Callable[[], bool]
    call_tool: Callable[[], Awaitable[Sequence[object]]]


class Request(Protocol):
    """A `ResponsesRequest`."""

    request_id: str
    input: str | Sequence[object]
    previous_response_id: str | None
    stream: bool | None
    store: bool | None
    background: bool | None
    include_reasoning: bool
    parallel_tool_calls: bool | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    top_logprobs: int | None
    enable_response_messages: bool

    def is_include_output_logprobs(self) -> bool:
        """Return whether log probabilities were asked for."""
        ...

    def model_copy(self, *, update: Mapping[str, object]) -> Request:
        """Return a copy with other values."""
        ...


class Sampling(Protocol):
    """`SamplingParams`: what vLLM made of a request's settings and the model's defaults."""

    temperature: float
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    max_tokens: int | None
    structured_outputs: object
    stop: Sequence[str]
    include_stop_str_in_output: bool
    logprobs: int | None
    detokenize: bool
    """Whether the engine's client makes text of the tokens."""
    skip_special_tokens: bool
    spaces_between_special_tokens: bool
    all_stop_token_ids: AbstractSet[int]
    """The tokens that end a round, those of the model among them once the engine has taken the request."""


class Tokenizer(Protocol):
    """A model's tokenizer."""

    all_special_ids: Sequence[int]
    all_special_tokens: Sequence[str]

    def __hash__(self) -> int:
        """Return its hash."""
        ...

    def get_added_vocab(self) -> Mapping[str, int]:
        """Return the tokens that were added to the vocabulary, special ones among them."""
        ...

    def convert_tokens_to_ids(self, tokens: str) -> int | None:
        """Return the id of a token."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of tokens."""
        ...


class Detokenizer(Protocol):
    """An `IncrementalDetokenizer` of one request."""

    token_ids: list[int]

    def decode_next(self, next_token_id: int) -> str:
        """Return the text that a token adds to those before it, which are in `token_ids` as it is itself."""
        ...


class Dumpable(Protocol):
    """A model of pydantic."""

    def model_dump(self, *, mode: str = ..., by_alias: bool = ...) -> dict[str, object]:
        """Return it as plain JSON values."""
        ...


class ErrorDetail(Protocol):
    """What an error response says."""

    code: int


class ErrorResponse(Dumpable, Protocol):
    """A refused request."""

    error: ErrorDetail


class RequestLogger(Protocol):
    """vLLM's log of requests."""

    def log_outputs(
        self, request_id: str, outputs: str, output_token_ids: None, *, finish_reason: str | None = ..., is_streaming: bool = ...
    ) -> None:
        """Log what was generated."""
        ...


class Card(Protocol):
    """`ModelCard`."""

    id: str


class ModelList(Protocol):
    """`ModelList`."""

    @property
    def data(self) -> Sequence[Card]:
        """Each model, LoRA adapters among them."""
        ...


class Models(Protocol):
    """`OpenAIServingModels`."""

    async def show_available_models(self) -> ModelList:
        """List the models."""
        ...


class Serving(Protocol):
    """`OpenAIServingResponses`; what is replaced on the instance is named in `interlock.serving.vllm.plugin`."""

    use_harmony: bool
    models: Models
    request_logger: RequestLogger | None
    enable_log_outputs: bool
    enable_store: bool
    response_store: MutableMapping[str, object]
    msg_store: MutableMapping[str, object]
    """The messages that each stored response went on from, in the form of the model's path."""
    response_store_lock: asyncio.Lock

    async def create_responses(self, request: Request, raw_request: object) -> object:
        """Validate, render and begin a response."""
        ...

    async def retrieve_responses(self, response_id: str, starting_after: int | None, stream: bool | None) -> object:  # noqa: FBT001 - vLLM's signature
        """Return a stored response."""
        ...

    async def cancel_responses(self, response_id: str) -> object:
        """Cancel a response in the background, or say why that is impossible."""
        ...


Steps: TypeAlias = AsyncGenerator[object, None]
"""vLLM's loop over rounds: each step is one output of the engine, which the context has been told of."""
