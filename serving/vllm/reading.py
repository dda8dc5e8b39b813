"""Reading: from what vLLM's engine yields to deltas, in the two ways in which vLLM's models are read.

A model that writes harmony is read by its token ids, any other by the deltas of vLLM's own reasoning and tool parsers. A reader
knows one response, all its rounds included, and nothing of tools or events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias, cast

from attrs import define, evolve, field

from interlock.fsm.deltas import Delta, FinishReason, Usage
from interlock.parsers.chunk import Chunk, Parser
from interlock.parsers.harmony import HarmonyParser
from interlock.parsers.routing import Route, Routing
from interlock.parsers.vllm import VllmParser
from interlock.parsers.vocabulary import Entry
from interlock.parsers.writing import joined
from interlock.serving.vllm.pairing import Pairing
from interlock.serving.vllm.shapes import DeltaParser, Output, ParseDelta, Request

__all__ = ["DeltaReader", "HarmonyReader", "Reader", "delta_reader", "finish_reason", "harmony_reader", "hosted_functions"]

REASONS: Final[Mapping[str, FinishReason]] = {
    "length": "length",
    "repetition": "content_filter",
    "abort": "abort",
    "error": "error",
}
"""vLLM's reasons for the end of a round; every other one is the model's own end. What cuts repetitions is a filter."""

HOSTED: Final[Mapping[str, Route]] = {
    "python": Route("code_interpreter_call", payload="code"),
    "code_interpreter": Route("code_interpreter_call", payload="code"),
    "web_search_preview": Route("web_search_call", payload="browser", function="search"),
}
"""The functions by which models other than gpt-oss call the tools that vLLM runs for them."""

TOOL_OF: Final[Mapping[str, str]] = {
    "python": "python",
    "code_interpreter": "python",
    "web_search_preview": "browser",
}
"""The tool of vLLM's tool server that runs each of them."""

Ids: TypeAlias = Sequence[int]

Logprobs = Callable[[Output], Sequence[Entry]]
"""Gives the log probabilities of an output's tokens, in the API's shape."""


class Reader(Protocol):
    """Reads the outputs of one response."""

    def read(self, output: Output) -> Sequence[Delta]:
        """Return the deltas that an output makes certain."""
        ...

    def end(self, reason: FinishReason) -> Sequence[Delta]:
        """End the round, and give what was held back."""
        ...


@define(eq=False)
class _Counting:
    """Knows what a round's prompt cost, which its first output says; what is generated, the parser counts."""

    _parser: Parser
    _prompt: Usage | None = field(default=None, init=False)

    def end(self, reason: FinishReason) -> Sequence[Delta]:
        """End the round, and give what was held back."""
        prompt, self._prompt = self._prompt, None
        return self._parser.end(reason, prompt or Usage())


def _prompt_of(output: Output) -> Usage:
    return Usage(
        input_tokens=len(output.prompt_token_ids or ()),
        cached_tokens=output.num_cached_tokens or 0,
        cache_write_tokens=output.num_cache_creation_tokens or 0,
    )


@define(eq=False)
class HarmonyReader(_Counting):
    """Reads harmony by its token ids."""

    def read(self, output: Output) -> Sequence[Delta]:
        """Return the deltas of an output's tokens."""
        if self._prompt is None:
            self._prompt = _prompt_of(output)
        return self._parser.feed(Chunk(output.outputs[0].token_ids))


@define(eq=False)
class DeltaReader(_Counting):
    """Reads any other model by the deltas of vLLM's parsers, or as plain text where it has none.

    Args:
        request: For vLLM's parser.
        parse: That of vLLM's parser for the first round, or None.
        following: Returns that for each further round: a parser remembers a round, so each has its own.
        pairs: Makes what pairs the tokens of a round, of which it is given the prompt, with their text.
        logprobs: Returns log probabilities; None if they were not asked for.
        hide_end: Whether vLLM's parser must not see the token that ends a round, which has no text.
    """

    _request: Request
    _parse: ParseDelta | None
    _following: Callable[[], ParseDelta | None]
    _pairs: Callable[[Sequence[int]], Pairing]
    _logprobs: Logprobs | None = None
    _hide_end: bool = False
    _pairing: Pairing | None = field(default=None, init=False)
    """That of the round, once it has begun."""

    def read(self, output: Output) -> Sequence[Delta]:
        """Return the deltas of an output."""
        if self._prompt is None:
            self._prompt = _prompt_of(output)
        logprobs = None if self._logprobs is None else self._logprobs(output)
        new, parse = output.outputs[0], self._parse
        token_ids, text = new.token_ids, new.text
        if parse is None:
            return self._parser.feed(Chunk(token_ids, text, logprobs, {"content": text}))
        if self._pairing is None:
            self._pairing = self._pairs(output.prompt_token_ids or ())
        finished = new.finish_reason is not None
        paired = self._pairing.take(token_ids, text, logprobs)
        if paired and not finished:
            delta = parse(text, token_ids, self._request, output.prompt_token_ids, finished=False)
            return self._parser.feed(Chunk(token_ids, text, logprobs, delta))
        chunks = [Chunk(token_ids, text, logprobs)] if paired else self._pairing.paired(finished=finished) or [Chunk([])]
        return joined(self._read(parse, chunks, output))

    def _read(self, parse: ParseDelta, chunks: Sequence[Chunk], output: Output) -> list[Delta]:
        """Return the deltas of tokens, each of which vLLM's parser is given with its text; the last may end the round."""
        deltas: list[Delta] = []
        ends = None if output.outputs[0].finish_reason is None else chunks[-1]
        for chunk in chunks:
            token_ids = chunk.token_ids[:-1] if chunk is ends and self._hides_end(output) else chunk.token_ids
            chunk.delta = parse(chunk.text, token_ids, self._request, output.prompt_token_ids, finished=chunk is ends)
            deltas += self._parser.feed(chunk)
        return deltas

    def _hides_end(self, output: Output) -> bool:
        new = output.outputs[0]
        return self._hide_end and new.finish_reason == "stop" and not isinstance(new.stop_reason, str)

    def end(self, reason: FinishReason) -> Sequence[Delta]:
        """End the round, and return what was held back."""
        ended = _Counting.end(self, reason)
        self._parse, self._pairing = self._following(), None
        return ended


def harmony_reader(body: Mapping[str, object]) -> HarmonyReader:
    """Return the reader of a model that writes harmony.

    Args:
        body: The request's body: its tools say where calls go.
    """
    return HarmonyReader(HarmonyParser(Routing.from_request(body)))


def delta_reader(
    body: Mapping[str, object],
    request: Request,
    deltas: DeltaParser | None,
    following: Callable[[], DeltaParser | None],
    pairs: Callable[[Sequence[int]], Pairing],
    *,
    available: Sequence[str] = (),
    logprobs: Logprobs | None = None,
    hide_end: bool = False,
) -> DeltaReader:
    """Return the reader of any other model.

    Args:
        body: The request's body: its tools say where calls go.
        request: vLLM's reading of it.
        deltas: vLLM's parser for the first round, or None.
        following: Returns vLLM's parser for each further round.
        pairs: Makes what pairs the tokens of a round, of which it is given the prompt, with their text.
        available: The tools that vLLM would run.
        logprobs: Returns log probabilities, if they were asked for.
        hide_end: Whether vLLM's parser must not see the token that ends a round.
    """
    count = getattr(deltas, "count_reasoning_tokens", None)  # vLLM has it since 0.27
    parser = VllmParser(hosted_functions(Routing.from_request(body), available), request.include_reasoning, count)
    parsing = partial(_parsing, one=request.parallel_tool_calls is False)
    return DeltaReader(parser, request, parsing(deltas), lambda: parsing(following()), pairs, logprobs, hide_end)


def hosted_functions(routing: Routing, available: Sequence[str]) -> Routing:
    """Route the functions that stand for tools that vLLM runs to the items of those tools.

    Args:
        routing: What the request declares.
        available: The tools that vLLM would run for it.
    """
    hosted = {name: route for name, route in HOSTED.items() if TOOL_OF[name] in available}
    return evolve(routing, declared={**routing.declared, **hosted}) if hosted else routing


def finish_reason(output: Output) -> FinishReason:
    """Return why a round ended.

    Args:
        output: Its last output.
    """
    return REASONS.get(output.outputs[0].finish_reason or "", "stop")


def _parsing(deltas: DeltaParser | None, *, one: bool) -> ParseDelta | None:
    """Return how a parser of vLLM's is asked, if there is one; with one call for each turn where no parallel ones are wanted."""
    parse = None if deltas is None else deltas.parse_delta
    if parse is None or not one:
        return parse

    def parse_one(text: str, token_ids: Ids, request: Request, prompt: Ids | None, /, *, finished: bool) -> object:
        return _with_one_call(parse(text, token_ids, request, prompt, finished=finished))

    return parse_one


def _with_one_call(delta: object) -> object:
    """Drop the calls after the first, where the request wants no parallel ones."""
    calls = cast("Sequence[object]", getattr(delta, "tool_calls", None) or ())
    if not calls:
        return delta
    kept = [call for call in calls if not getattr(call, "index", 0)]
    names = ("reasoning", "content")
    return {**{name: getattr(delta, name, None) for name in names}, "tool_calls": kept}
