"""Engines: sources of model output, one turn at a time, independent of HTTP and events.

An `Engine` serves a server as long as it runs, and a `Generation` one response. A small engine has only `models`, `format` and
`generate`; docs/library/engines.md writes one. An engine that keeps something for each response overrides `begin`, and returns a
`Generation` of its own.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from inspect import get_annotations
from sys import maxsize
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, get_args, get_type_hints

from attrs import define, evolve, field, frozen
from msgspec import Meta, convert
from msgspec.structs import replace

from interlock.events.items import NOTHING
from interlock.events.json import is_array, members
from interlock.fsm.deltas import FinishReason, TokenLogprob, Usage
from interlock.parsers import Chunk, Format, Parser, StopParser, Tagged, parser_for
from interlock.parsers.hosted_tools import BUILT_IN
from interlock.parsers.stop_strings import stops_in
from interlock.serving.engines.chat_messages import as_object, chat_messages, function_of, template_messages
from interlock.serving.engines.prompt import estimate_prompt
from interlock.serving.metrics import OTHER
from interlock.serving.requests.api_errors import ApiError, PromptError, no_such_model
from interlock.serving.requests.input_items import JsonItem, truncate
from interlock.serving.requests.tool_offer import HostedTools, find_hosted, list_hosted_functions, offer
from interlock.serving.settings import ModelFacts

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from interlock.serving.engines.shortcut import Shortcut
    from interlock.serving.requests.create import ResponseRequest

TOO_LONG: Final = re.compile(r"\bcontext\b|too long|max_model_len|maximum model length", re.IGNORECASE)
"""Matches a refusal of vLLM, or of an upstream server, that has no code and says that the prompt is too long."""

WARMING: Final = 16
"""The budget of a turn whose output nobody reads: the smallest one that OpenAI's service accepts."""


@define
class EngineOutput:
    """One step of an engine for one request. Treat it as immutable; a frozen class takes three times as long to create.

    Counts are of the whole turn, and a later step may correct them; 0 is unknown.
    """

    chunk: Chunk
    """The new output; `Chunk()` if there is none."""
    finish_reason: FinishReason | None = None
    """Why the turn ended, in its last step; None in the others. A turn without one fails."""
    input_tokens: int = 0
    """The tokens of the prompt; if unknown, what the engine's `count` returns."""
    cached_tokens: int = 0
    """Tokens of the prompt that were read from a prefix cache."""
    cache_write_tokens: int = 0
    """Tokens of the prompt that were written to a prefix cache."""
    output_tokens: int = 0
    """The tokens that the model generated; if unknown, the number of `token_ids`."""
    reasoning_tokens: int = 0
    """Generated tokens that are reasoning; if unknown, what the parser counts by `token_ids`."""
    more: Sequence[Chunk] = ()
    """Further chunks of the same step, in order, as after several tokens at once."""
    stop_sequence: str | None = None
    """With the reason `stop`, the request's stop string that ended the turn; None if none did, or the engine does not say."""


REASONS: Final = tuple(reason for reason in get_args(FinishReason) if reason not in {"cut", "steered"})
"""The reasons for the end of a turn that an engine gives; the others are for parsers and the server."""

_COUNT: Final = Annotated[int, Meta(ge=0, le=maxsize)]
_HINTS: Final[Mapping[type, Mapping[str, object]]] = {
    kind: {name: _COUNT if hint is int else hint for name, hint in get_type_hints(kind).items()} for kind in (EngineOutput, Chunk)
}
"""The types of the fields of an output, by its class."""


def explain_output(output: object) -> str | None:
    """Return what is wrong with an output that `generate` yielded, or None. It takes long: for outputs that cannot be read."""
    if not isinstance(output, EngineOutput):
        return f"{output!r:.100}, and not an EngineOutput, such as EngineOutput(Chunk(text='Hi'), 'stop')"
    chunks = [("chunk.", output.chunk)]
    chunks += [(f"more[{index}].", chunk) for index, chunk in enumerate(output.more if is_array(output.more) else ())]
    problems = (explain_fields(part, place) for place, part in [("", output), *chunks])
    return next(filter(None, problems), None)


def explain_fields(part: object, place: str = "") -> str | None:
    """Return which field of an output, or of the chunk at a place of it, has another type, or None."""
    kind = type(part)
    for name, hint in _HINTS.get(kind, {}).items():
        value: object = getattr(part, name)
        try:
            convert(value, hint)
        except ValueError as error:
            reasons = f"None or one of {', '.join(REASONS)}"
            allowed = reasons if name == "finish_reason" else str(get_annotations(kind)[name]).replace(" | ", " or ")
            return f"an EngineOutput whose {place}{name} is {value!r:.100}, and not {allowed}: {error}"
    return None


def fit_logprobs(chunk: Chunk, request: ResponseRequest) -> Chunk:
    """Return a chunk with the log probabilities that the request wants."""
    if chunk.logprobs is None or not request.wants_logprobs:
        return replace(chunk, logprobs=None)
    count = request.top_logprobs
    entries: list[TokenLogprob] = [{**entry, "top_logprobs": entry.get("top_logprobs", [])[:count]} for entry in chunk.logprobs]
    return replace(chunk, logprobs=entries)


@frozen
class Turn:
    """The next turn of a response for an engine to generate; `index` counts the turns of the response from 0.

    `items` are the history, the request's input, and the response's earlier items with the results of their tools; async calls
    all have outputs. `budget` is the turn's token limit, at least 1, or None for no limit.
    """

    request: ResponseRequest
    items: Sequence[Mapping[str, object]] = field(converter=tuple[Mapping[str, object], ...])
    budget: int | None = None
    index: int = field(default=0, kw_only=True)

    def messages(self, tagged: Tagged | None = None) -> list[dict[str, object]]:
        """Return the instructions and the conversation as messages of Chat Completions, for a chat template.

        Calls of all kinds are calls of functions, whose arguments are objects, and reasoning has the names `reasoning` and
        `reasoning_content`, because templates differ. With `tagged`, the format of the model, ids of calls are as it wrote them.

        Raises:
            ApiError: 400 for a content part that Chat Completions cannot express.
        """
        written_id: Callable[[str], str] = str
        if tagged is not None:
            from interlock.parsers.families import family  # noqa: PLC0415 - other formats do without

            written_id = family(tagged.tool_parser, tagged.reasoning_parser).written_id
        instructions = self.request.instructions
        return template_messages(chat_messages(instructions, self.items, written_id=written_id, arguments=as_object))

    def functions(self, hosted: Mapping[str, str] = NOTHING) -> list[dict[str, object]]:
        """Return the tools that the model may call as functions of Chat Completions, for a chat template.

        They include the tools that MCP servers have listed, and those of `hosted`, which has the tools that the server runs and
        their descriptions, as in `ToolServers.descriptions`. There are none if `tool_choice` is `none`.
        """
        tools = HostedTools(list_hosted_functions(hosted))
        offered = offer(self.request.tools, self.request.tool_choice, self.items, tools)
        return [] if offered.choice == "none" else [*map(function_of, offered.tools)]

    async def harmony_tokens(self, hosted: Mapping[str, str] = NOTHING) -> list[int]:
        """Return the prompt of gpt-oss as tokens; see `functions` for `hosted`.

        Raises:
            ModuleNotFoundError: `openai_harmony` is not installed.
        """
        from interlock.serving.engines.harmony_prompt import harmony_prompt  # noqa: PLC0415 - other formats do without

        others = {tool: description for tool, description in hosted.items() if tool not in BUILT_IN}
        functions = [members(tool["function"]) for tool in self.functions(others)]
        built_in = {tool: hosted[tool] for tool in find_hosted(hosted, self.request.tools)}
        return await harmony_prompt(self.request, self.items, functions, built_in)


class Engine(ABC):
    """A source of model output."""

    models: Sequence[str]
    """The model names that a request may use; the first is the served model."""
    format: Format
    """The format of the output."""
    has_faults: ClassVar = False
    """Whether it may ask the server to break connections and streams (`interlock.serving.http.script_faults`)."""

    @abstractmethod
    def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Generate one turn, step by step; the last step has a finish reason.

        Closing the generator (`aclose`) aborts the generation and frees its resources.

        Raises:
            EngineError: The engine cannot continue; earlier steps remain valid.
            ApiError: Likewise, as `admit` would have said it: the response has begun, so it fails with the message.
        """

    async def generate_alone(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Generate a turn that belongs to no response: the `generate` of engines whose generations generate the turns."""
        generation = await self.begin(turn.request, turn.items)
        try:
            await generation.prepare(turn)
            async with aclosing(generation.generate(turn)) as outputs:
                async for output in outputs:
                    yield output
        finally:
            await generation.close()

    async def admit(self, turn: Turn) -> None:
        """Return when `generate` can begin with a turn; called before each one.

        Raises:
            ApiError: The engine refuses the turn. If it is the first, the client receives this error with its status. A response
                that has begun already, such as one in the background, fails with the message.
        """
        del turn

    async def count(self, turn: Turn) -> int:
        """Return the number of tokens in the prompt of a turn: by default an estimate.

        Raises:
            PromptError: The prompt exceeds the context window; with `truncation: auto`, the turn loses its oldest items then.
        """
        return estimate_prompt(turn)

    async def names(self) -> Sequence[str]:
        """Return the model names that requests may use, with an empty one if the model is optional: by default `models`."""
        return self.models

    def model_label(self, name: str) -> str:
        """Return a model's name as a label of metrics: `other` unless the configuration or an upstream lists it."""
        return name if name in self.models else OTHER

    def facts(self, name: str) -> ModelFacts:
        """Return what the engine knows of a model."""
        del name
        return ModelFacts()

    async def has_tools(self, name: str) -> bool:
        """Return whether the server of a model may run hosted tools itself; raise `ApiError` if no server has the model."""
        del name
        return False

    @property
    def passes_keys(self) -> bool:
        """Whether another server receives the clients' own keys."""
        return False

    def read(self, raw: Mapping[str, object]) -> ResponseRequest:
        """Validate a request body; raise `ApiError` if it is invalid, or names another model than one of `models`."""
        from interlock.serving.requests.create import read_request  # noqa: PLC0415 - a command that reads recordings starts faster

        request = read_request(raw)
        if request.model not in self.models:
            raise no_such_model(request.model, self.models)
        return request

    async def begin(
        self, request: ResponseRequest, items: Sequence[JsonItem], tenant: str = "", connection: HTTPConnection | None = None
    ) -> Generation:
        """Begin the response to a request that `read` returned; `items` are the conversation, and `connection` the client's.

        The generation's parser is a `StopParser` if the request has stop strings.

        Raises:
            ApiError: The engine refuses the request, such as for an unknown model.
        """
        del tenant, connection
        body = request.declare_tools(items)
        stop = stops_in(body)
        parser = parser_for(self.format, {**body, "stop": None} if stop else body)
        return Generation(self, StopParser(parser, stop) if stop else parser)

    async def require_ready(self) -> None:
        """Raise `ApiError` if no server answers."""
        return

    async def close(self) -> None:
        """Close the connections to other servers."""
        return


@define(eq=False)
class Generation:
    """What an engine does for one response: by default, generate its turns."""

    engine: Engine
    parser: Parser
    """Parses the model's output; `prepare` may replace it."""
    response_id: str | None = None
    """The id of the response, if the engine assigns one."""
    _admitted: Turn | None = field(default=None, init=False)
    no_usage: ClassVar[Usage | None] = Usage()
    """The usage of a turn whose tokens nobody counted: None if the engine does not count them itself."""
    encrypts: ClassVar = False
    """Whether reasoning may have encrypted content that must come back, whatever the request includes."""

    async def prepare(self, turn: Turn) -> Mapping[str, object]:
        """Validate and render the first turn, and return the resolved settings, which the response echoes.

        The server may still list tools or compact the conversation before that turn.

        Raises:
            ApiError: The engine refuses the request; no response begins.
        """
        del turn
        return {}

    async def admit(self, turn: Turn) -> None:
        """Begin the first turn, and wait until the engine accepts it; `start` continues it.

        Raises:
            Exception: The engine refuses the turn; no response begins.
        """
        await self.engine.admit(turn)
        self._admitted = turn

    async def count(self, turn: Turn) -> int:
        """Return the number of tokens in the prompt of a turn.

        Raises:
            PromptError: The prompt exceeds the context window.
            ApiError: The engine refuses the turn, for this or another reason.
        """
        count: object = await self.engine.count(turn)
        try:
            counted: int = convert(count, _COUNT)
        except ValueError as error:
            raise TypeError(f"'count' of {type(self.engine).__name__} returned {count!r:.100}, and not int: {error}") from None
        return counted

    async def count_locally(self, turn: Turn) -> int:
        """Return the number of tokens in the prompt of a turn, or an estimate, without asking another server."""
        return await self.count(turn)

    async def start(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Return the outputs of a turn, once the engine accepts it.

        Raises:
            ApiError: The engine refuses the turn.
        """
        if self._admitted != turn:
            await self.engine.admit(turn)
        return self.generate(turn)

    def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Generate one turn, up to its budget, or a stop string in the answer; see `Engine.generate`."""
        outputs = self.engine.generate(turn)
        if turn.budget is None and not isinstance(self.parser, StopParser):
            return outputs
        return _until_end(outputs, turn.budget, self.parser)

    def shorten(self, shortcut: Shortcut[Any]) -> None:
        """Allow `generate` to connect the shortcut, which takes what it would yield before the last output."""

    def additions(self) -> Mapping[str, object]:
        """Return the fields outside the API that the engine adds to the finished response."""
        return {}

    def log(self, response: Mapping[str, object]) -> None:
        """Log a finished response."""

    async def close(self) -> None:
        """Abort the generation if it still runs, and free its resources."""


async def _until_end(
    outputs: AsyncGenerator[EngineOutput, None], budget: int | None, parser: Parser
) -> AsyncGenerator[EngineOutput, None]:
    """Yield outputs until one goes on after `token_ids` have used the budget, or until the parser has found a stop string.

    `output_tokens` may be known from the start. The parser has read each output before the next one is requested.
    """
    used = 0
    async with aclosing(outputs):
        async for output in outputs:
            if budget is not None and used >= budget and output.finish_reason is None and output.chunk != Chunk():
                yield EngineOutput(Chunk(), "length")
                break
            yield output
            if isinstance(parser, StopParser) and parser.found is not None:
                yield EngineOutput(Chunk(), "stop", stop_sequence=parser.found)
                break
            used += sum(len(chunk.token_ids) for chunk in (output.chunk, *output.more))


@define(eq=False)
class Silence(Generation):
    """A response without output: the engine counts the prompt, or if it `warms`, reads it into its cache."""

    generation: Generation = field(kw_only=True)
    warms: bool = field(kw_only=True)

    async def admit(self, turn: Turn) -> None:
        pass

    async def start(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        return self.generate(turn)

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Yield the only output, which ends the turn; warming ends at the first output that has counted the prompt."""
        counts = EngineOutput(Chunk(), "stop")
        if not self.warms:
            counts.input_tokens = await self.generation.count(turn)
            yield counts
            return
        async with aclosing(await self.generation.start(evolve(turn, budget=WARMING))) as outputs:
            async for output in outputs:
                if output.input_tokens:
                    counts = EngineOutput(Chunk(), "stop", output.input_tokens, output.cached_tokens, output.cache_write_tokens)
                    break
        yield counts


async def prepare_later(generation: Generation, turn: Turn) -> tuple[Turn, Mapping[str, object]]:
    """Prepare a turn that is generated later: its prompt is counted, which may wait for another server, only if it is refused.

    Raises:
        ApiError: The engine refuses the turn, and nothing of it may be dropped.
    """
    try:
        return turn, await generation.prepare(turn)
    except ApiError as error:
        if turn.request.truncation != "auto" or not _is_too_long(error):
            raise
    turn = await fitting(generation, turn)
    return turn, await generation.prepare(turn)


async def fitting(generation: Generation, turn: Turn) -> Turn:
    """Return a turn without its oldest items if it is too long with `truncation: auto`.

    If nothing fits, or the prompt cannot be counted for another reason, nothing is dropped; the engine then refuses the turn.
    """
    if turn.request.truncation != "auto":
        return turn

    async def fits(items: Sequence[JsonItem]) -> bool:
        try:
            await generation.count(evolve(turn, items=items))
        except PromptError:
            return False
        except ApiError as error:
            return not _is_too_long(error)
        return True

    return evolve(turn, items=await truncate(turn.items, fits))


def _is_too_long(error: ApiError) -> bool:
    """Return whether an error says that a prompt exceeds the context window."""
    if error.code == "context_length_exceeded":
        return True
    return error.code in (None, "invalid_value") and TOO_LONG.search(error.message) is not None
