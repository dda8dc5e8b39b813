"""Parsers for models other than gpt-oss: Interlock's own if the server's flags name a known family, else vLLM's.

vLLM's parser stays configured in either case: it adjusts requests, starts grammars and says whether a prompt ends in reasoning.
With stop sequences, a stream interval or a busy machine, vLLM's text lags behind its tokens or is truncated. Where that matters,
each token is paired with its own text, so that parsers read the same from any chunks (rule R16 in docs/evidence/rules.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final, TypeAlias, cast

from attrs import define, evolve, field

from interlock.fsm.deltas import Delta, TokenLogprob, Usage
from interlock.parsers import families
from interlock.parsers.chat_deltas import ChatParser
from interlock.parsers.chunk import Chunk, ListReader, Recoveries
from interlock.parsers.families import Family, FamilyParser, ParserSettings, has_family
from interlock.parsers.families.family import TurnStart
from interlock.parsers.families.response_template import compile_template
from interlock.parsers.item_writers import join_text
from interlock.parsers.routing import EndReason, Routing
from interlock.serving.engines.vllm import compat
from interlock.serving.engines.vllm.compat import DeltaParser, Output, Request, Tokenizer, VllmCall, decoder

HF: Final = "hf"
"""The name of the parsers that read the checkpoint's `response_template`."""

TAIL: Final = 32
"""How many tokens at the end of a prompt are searched for the marker that shows where the turn starts."""


def configure(args: object, template: Mapping[str, object] | None = None) -> Family | None:
    """Return the family that vLLM's command line names, perhaps by the checkpoint's `template`; None to use vLLM's parsers.

    Raises:
        ValueError: The command line names the template, but it cannot be compiled; the message says why.
    """
    tools = getattr(args, "tool_call_parser", None) if getattr(args, "enable_auto_tool_choice", False) else None
    outputs = getattr(args, "structured_outputs_config", None)
    reasoning = getattr(args, "reasoning_parser", None) or getattr(outputs, "reasoning_parser", None)
    if template is not None and {tools or HF, reasoning or HF} == {HF} and (tools or reasoning):
        return compile_template(template, tools=bool(tools), reasoning=bool(reasoning))
    return families.family(tools or None, reasoning or None) if has_family(tools, reasoning) else None


def reader(family: Family | None, body: Mapping[str, object], call: VllmCall, hosted: Container[str], *, forced: bool) -> Reader:
    """Return the parser of a response: the family's if possible, else vLLM's.

    Even for a known family, vLLM's parser is used if the vocabulary lacks a marker that the family's format needs, or if vLLM
    makes the model write a required or named call (`forced`) as JSON without the family's markers. `body` has the tools that
    calls may name, and `hosted` the hosted tools that are offered.
    """
    routing = Routing.from_request(body, hosted)
    special: Mapping[int, str] = {} if family is None else specials(call.tokenizer, family)
    needs = None if family is None or family.syntax is None else family.syntax.required_marker
    has_markers = not needs or needs in special.values()
    writes_json = forced and compat.writes_json(call.parser)
    if family is not None and call.parser is not None and has_markers and not writes_json:
        settings = ParserSettings.from_request(body, routing)
        return FamilyReader(FamilyParser(family, evolve(settings, special=special)), special, family)
    count = None if call.parser is None else call.parser.count_reasoning_tokens
    parser = ChatParser(routing, call.request.include_reasoning, count)
    return DeltaReader(parser, call.request.parallel_tool_calls is False)


@lru_cache(maxsize=16)
def specials(tokenizer: Tokenizer, family: Family) -> Mapping[int, str]:
    """Return the markers of a family that are single tokens in a model's vocabulary, by token id."""
    added = tokenizer.get_added_vocab() or {
        text: token for text in tokenizer.all_special_tokens if (token := tokenizer.convert_tokens_to_ids(text)) is not None
    }
    return family.special_markers(added)


@define(eq=False)
class FamilyReader(ListReader):
    """Reads a model's output by the markers of its family; `special` has the markers that are single tokens, by token id."""

    _parser: FamilyParser
    _special: Mapping[int, str]
    _family: Family
    _call: VllmCall = field(init=False)
    _controls: AbstractSet[int] = field(factory=frozenset[int], init=False)
    _marks: AbstractSet[int] = field(factory=frozenset[int], init=False)
    _tokens: list[int] = field(factory=list[int], init=False)
    """The prompt and the output."""
    _prompt_length: int = field(default=0, init=False)
    _start: TurnStart | None = field(default=None, init=False)
    _pairing: Pairing | None = field(default=None, init=False)
    """Pairs tokens with their text, which lags behind if a stop sequence may truncate it; None if it does not lag."""

    @property
    def recoveries(self) -> Recoveries:
        return self._parser.recoveries

    def begin(self, call: VllmCall) -> None:
        self._call, self._tokens, self._prompt_length = call, [*call.prompt], len(call.prompt)
        self._controls = _controls(call)
        self._marks = self._controls | self._special.keys()
        lags = bool(call.sampling.stop) and not call.sampling.include_stop_str_in_output
        self._pairing = _pairing(call, self._tokens) if lags else None
        self._start = self._starts(call)
        self._parser.begin(self._start)

    def read_lists(self, items: Iterable[Mapping[str, object]]) -> None:
        self._parser.read_lists(items)

    def feed(self, chunk: Chunk) -> list[Delta]:
        token_ids = chunk.token_ids
        if self._pairing is None and (len(token_ids) == 1 or self._marks.isdisjoint(token_ids)):
            if token_ids and token_ids[0] in self._controls:
                chunk.text = ""
            deltas = self._parser.feed(chunk)
        else:  # separate marker tokens from text that is spelled like them
            pairing = self._pairing or _pairing(self._call, self._tokens)
            finished = self._pairing is None or _is_last(chunk)
            chunks = pairing.pair(token_ids, chunk.text or "", chunk.logprobs, finished=finished)
            deltas = join_text([delta for each in chunks for delta in self._parser.feed(each)])
        self._tokens.extend(token_ids)
        return deltas

    def end(self, reason: EndReason, usage: Usage) -> list[Delta]:
        output = self._tokens[self._prompt_length :]
        count = self._family.count_reasoning(output, self._special, self._start, self._controls)
        return self._parser.end(reason, evolve(usage, reasoning_tokens=count))

    def _starts(self, call: VllmCall) -> TurnStart | None:
        """Return where a turn starts, from the last marker in the prompt's tail or else from vLLM's parser."""
        start = self._family.start_after(self._special[token] for token in call.prompt[-TAIL:] if token in self._special)
        if start is not None:
            return start
        return "between" if call.parser is not None and call.parser.is_reasoning_end([*call.prompt]) else None


@define(eq=False)
class DeltaReader:
    """Reads a model's output by the deltas of vLLM's parser, a new one for each turn; without a parser, as plain text.

    `one` keeps only a turn's first call.
    """

    _parser: ChatParser
    _one: bool
    _parse: Callable[..., object] | None = field(default=None, init=False)
    _call: VllmCall = field(init=False)
    _pairing: Pairing = field(init=False)

    @property
    def recoveries(self) -> Recoveries:
        return self._parser.recoveries

    def begin(self, call: VllmCall) -> None:
        self._call, self._pairing = call, _pairing(call, call.prompt)
        vllm_parser = call.parser
        if call.request.tool_choice == "required" and compat.writes_json(vllm_parser):
            compat.keep_text(vllm_parser)
        self._parse = None if vllm_parser is None else _one_call(vllm_parser) if self._one else vllm_parser.parse_delta

    def feed(self, chunk: Chunk) -> list[Delta]:
        parse, finished = self._parse, _is_last(chunk)
        if parse is None:
            chunk.delta = {"content": chunk.text}
            return self._parser.feed(chunk)
        is_pair = self._pairing.take(chunk.token_ids, chunk.text or "", chunk.logprobs)
        if is_pair and not finished:
            chunk.delta = parse(chunk.text, chunk.token_ids, self._call.request, self._call.prompt, finished=False)
            return self._parser.feed(chunk)
        chunks = [chunk] if is_pair else self._pairing.take_pairs(finished=finished) or [Chunk([], "")]
        deltas: list[Delta] = []
        for each in chunks:
            is_last = finished and each is chunks[-1]
            each.delta = parse(each.text, each.token_ids, self._call.request, self._call.prompt, finished=is_last)
            deltas += self._parser.feed(each)
        return join_text(deltas)

    def end(self, reason: EndReason, usage: Usage) -> list[Delta]:
        return self._parser.end(reason, usage)


Reader: TypeAlias = FamilyReader | DeltaReader
"""A parser whose `begin` starts each turn; its chunks have the engine's output as their `delta`."""


def _is_last(chunk: Chunk) -> bool:
    return cast("Output", chunk.delta).outputs[0].finish_reason is not None


def _one_call(parser: DeltaParser) -> Callable[..., object]:
    """Return a parser's `parse_delta` without the calls after the first one."""

    def parse(
        text: str, token_ids: Sequence[int], request: Request, prompt: Sequence[int] | None, /, *, finished: bool
    ) -> object:
        delta = parser.parse_delta(text, token_ids, request, prompt, finished=finished)
        calls = cast("Sequence[object]", getattr(delta, "tool_calls", None) or ())
        if not calls:
            return delta
        first = [call for call in calls if not getattr(call, "index", 0)]
        return {**{name: getattr(delta, name, None) for name in ("reasoning", "content")}, "tool_calls": first}

    return parse


def _controls(call: VllmCall) -> AbstractSet[int]:
    return call.sampling.all_stop_token_ids & {*call.tokenizer.all_special_ids}


def _pairing(call: VllmCall, prompt: Sequence[int]) -> Pairing:
    return Pairing(decoder(call, prompt), _controls(call))


@define(eq=False)
class Pairing:
    """Pairs the tokens of one turn with their text, and drops the text of `controls`, the tokens that end a turn.

    `decode` returns the text that a token adds to the earlier tokens; "" while a character is incomplete.
    """

    _decode: Callable[[int], str]
    _controls: Container[int] = frozenset[int]()
    _pending: deque[Chunk] = field(factory=deque[Chunk], init=False)
    """Tokens whose text has not arrived, each with its expected text."""
    _text: str = field(default="", init=False)

    def pair(
        self, token_ids: Sequence[int], text: str, logprobs: Sequence[TokenLogprob] | None = None, *, finished: bool = False
    ) -> Sequence[Chunk]:
        """Return the tokens whose text has arrived, one chunk for each, or for several whose texts cannot be separated.

        If no text will follow (`finished`), the pending tokens become one chunk with the rest of the text.
        """
        return [Chunk(token_ids, text, logprobs)] if self.take(token_ids, text, logprobs) else self.take_pairs(finished=finished)

    def take(self, token_ids: Sequence[int], text: str, logprobs: Sequence[TokenLogprob] | None = None) -> bool:
        """Take new tokens and text. Return whether they are one token and its text; otherwise they wait for `take_pairs`."""
        if len(token_ids) == 1 and not self._pending and not self._text:
            token = token_ids[0]
            expected = self._decode(token)
            if expected == text and token not in self._controls:
                return True
            self._pending.append(Chunk(token_ids, expected, logprobs))
        else:
            for place, token in enumerate(token_ids):
                entries = None if logprobs is None else logprobs[place : place + 1]
                self._pending.append(Chunk([token], self._decode(token), entries))
        self._text += text
        return False

    def take_pairs(self, *, finished: bool) -> list[Chunk]:
        """Return the pending tokens whose text has arrived, as `pair` does."""
        chunks: list[Chunk] = []
        while self._pending and self._text.startswith(expected := self._pending[0].text or ""):
            chunk = self._pending.popleft()
            self._text = self._text[len(expected) :]
            chunks.append(Chunk([chunk.token_ids[0]], "") if chunk.token_ids[0] in self._controls else chunk)
        if self._pending and (finished or not (self._pending[0].text or "").startswith(self._text)):
            chunks.append(self._rest())
        return chunks

    def _rest(self) -> Chunk:
        """Return all pending tokens and text as one chunk, at the end of a turn or if the tokens do not spell the text."""
        token_ids = [token for chunk in self._pending for token in chunk.token_ids]
        logprobs = [entry for chunk in self._pending for entry in chunk.logprobs or ()]
        self._pending.clear()
        text, self._text = self._text, ""
        return Chunk(token_ids, text, logprobs or None)
