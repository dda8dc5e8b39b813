"""Reading models that write no harmony: with our parsers where the server's flags name known families, else with vLLM's.

vLLM's parser stays configured in either case, for it adjusts requests, starts grammars and says whether a prompt ends inside of
reasoning. A reader is the `Parser` of one response; `begin` tells it of each turn. It knows nothing of tools or events.

vLLM's engine yields tokens and text, but not always the text of those tokens: with stop sequences the text lags behind; with a
stream interval, or on a busy machine, many tokens come at once; where a stop sequence ends the turn, the text is cut. Parsers go
wrong with each of these. So each token is paired with its own text, and they see the same whatever the engine makes of it (R16).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from types import SimpleNamespace
from typing import Final, TypeAlias, cast

from attrs import define, evolve, field

from interlock.fsm.deltas import Delta, FinishReason, Usage
from interlock.parsers.chunk import Chunk
from interlock.parsers.families import Family, FamilyParser, Settings, family, known
from interlock.parsers.families.family import Start
from interlock.parsers.harmony_vocabulary import Entry
from interlock.parsers.item_writers import joined
from interlock.parsers.routing import Route, Routing
from interlock.parsers.vllm_deltas import VllmParser
from interlock.serving.engines.vllm.compat import Call, DeltaParser, Output, Request, Tokenizer, detokenizer

__all__ = ["FORCED", "DeltaReader", "FamilyReader", "Pairing", "Reader", "configured", "reader", "specials", "with_written_id"]

FORCED: Final = "INTERLOCK_PARSERS"
"""The environment variable that makes the plugin use vLLM's parsers for all models, if it says `vllm`."""

HOSTED: Final[Mapping[str, Route]] = {
    "python": Route("code_interpreter_call", payload="code"),
    "code_interpreter": Route("code_interpreter_call", payload="code"),
    "web_search": Route("web_search_call", payload="browser", function="search"),
    "web_search_preview": Route("web_search_call", payload="browser", function="search"),
}
"""The functions by which models other than gpt-oss call hosted tools."""

TAIL: Final = 32
"""How many tokens at the end of a prompt may say whether it ends inside of reasoning."""


def configured(args: object) -> Family | None:
    """Return the family that a server's flags name; None if vLLM's parsers are to be used.

    Args:
        args: vLLM's command line.
    """
    if os.environ.get(FORCED, "") == "vllm":
        return None
    tools = getattr(args, "tool_call_parser", None) if getattr(args, "enable_auto_tool_choice", False) else None
    outputs = getattr(args, "structured_outputs_config", None)
    reasoning = getattr(args, "reasoning_parser", None) or getattr(outputs, "reasoning_parser", None)
    return family(tools or None, reasoning or None) if known(tools, reasoning) else None


def reader(
    read: Family | None, body: Mapping[str, object], call: Call, hosted: Container[str], *, forced: bool, hide_end: bool
) -> Reader:
    """Return the reader of a response: of a known family, or with vLLM's parser.

    vLLM's parser has to read where vLLM has the model write JSON alone, without the family's markers, because a call is required
    or named; and where the vocabulary is older than the format.

    Args:
        read: The family that the server's flags name, if they name one.
        body: The request's, with the tools by which calls are read.
        call: What the first turn is generated with.
        hosted: The tools that are run for the response, by their types.
        forced: Whether the request requires a call, or names one.
        hide_end: Whether vLLM's parser must not see the token that ends a turn.
    """
    theirs = call.context.response_parser
    special: Mapping[int, str] = {} if read is None else specials(call.tokenizer, read)
    if read is not None and theirs is not None and not (forced and _writes_json(theirs)) and _has_markers(read, special):
        settings = Settings.from_request(body)
        settings.routing = hosted_functions(settings.routing, hosted)
        return FamilyReader(FamilyParser(read, evolve(settings, special=special)), special, read)
    count = getattr(theirs, "count_reasoning_tokens", None)  # vLLM has it since 0.27
    parser = VllmParser(hosted_functions(Routing.from_request(body), hosted), call.request.include_reasoning, count)
    return DeltaReader(parser, call.request.parallel_tool_calls is False, hide_end)


def hosted_functions(routing: Routing, hosted: Container[str]) -> Routing:
    """Route the functions that stand for hosted tools to the items of those tools.

    Args:
        routing: What the request declares.
        hosted: The tools that are run for the response, by their types.
    """
    tools = {"code_interpreter_call": "code_interpreter", "web_search_call": "web_search"}
    routes = {name: route for name, route in HOSTED.items() if tools[route.kind] in hosted}
    return evolve(routing, declared={**routing.declared, **routes}) if routes else routing


@lru_cache(maxsize=16)
def specials(tokenizer: Tokenizer, read: Family) -> Mapping[int, str]:
    """Return the markers of a family that a vocabulary has as tokens of their own, by their ids.

    Args:
        tokenizer: The model's.
        read: The family.
    """
    added = tokenizer.get_added_vocab() or {
        text: token for text in tokenizer.all_special_tokens if (token := tokenizer.convert_tokens_to_ids(text)) is not None
    }
    texts = {text for markers in read.markers.values() for text in markers}
    return {token: text for text, token in added.items() if text in texts}


def with_written_id(item: Mapping[str, object], read: Family) -> Mapping[str, object]:
    """Return a call or its output with the id that the model wrote: clients know it with the prefix `call_` (rule R7)."""
    call_id = item.get("call_id")
    return {**item, "call_id": read.written_id(call_id)} if isinstance(call_id, str) else item


def _has_markers(read: Family, special: Mapping[int, str]) -> bool:
    return read.syntax is None or not read.syntax.needs or read.syntax.needs in special.values()


def _writes_json(theirs: object) -> bool:
    """Return whether vLLM has a model write JSON without markers where a call is required or named, as far as that is known."""
    tool_parser = getattr(theirs, "tool_parser", None) or getattr(theirs, "_tool_parser", None)
    return getattr(tool_parser, "supports_required_and_named", True) is not False


@define(eq=False)
class FamilyReader:
    """Reads a model by the markers of its family, of which `special` has those that are special tokens, by their ids."""

    _parser: FamilyParser
    _special: Mapping[int, str]
    _family: Family
    _call: Call = field(init=False)
    _controls: AbstractSet[int] = field(factory=frozenset[int], init=False)
    """The tokens that end a turn; their text is dropped where the engine passes it on."""
    _marks: AbstractSet[int] = field(factory=frozenset[int], init=False)
    """The tokens whose text means something by itself: those, and the special ones."""
    _seen: list[int] = field(factory=list[int], init=False)
    """The prompt and what was generated."""
    _start: int = field(default=0, init=False)
    """The length of the prompt."""
    _thinks: bool = field(default=False, init=False)
    """Whether the turn begins inside of reasoning."""
    _pairing: Pairing | None = field(default=None, init=False)
    """Where the text of tokens comes after them, because a stop sequence may yet cut it: what finds it."""

    def begin(self, call: Call) -> None:
        """Begin a turn."""
        self._call, self._seen, self._start = call, [*call.prompt], len(call.prompt)
        self._controls = _controls(call)
        self._marks = self._controls | self._special.keys()
        lags = bool(call.sampling.stop) and not call.sampling.include_stop_str_in_output
        self._pairing = _pairing(call, self._seen) if lags else None
        start = self._starts(call)
        self._thinks = (start or self._family.starts) == "thinking"
        self._parser.begin(start)

    def feed(self, chunk: Chunk) -> list[Delta]:
        """Return the deltas of an output; markers are cut out, so that none is taken for text that is spelled like it."""
        token_ids = chunk.token_ids
        if self._pairing is None and (len(token_ids) == 1 or self._marks.isdisjoint(token_ids)):
            if token_ids and token_ids[0] in self._controls:
                chunk.text = ""
            deltas = self._parser.feed(chunk)
        else:
            pairing = self._pairing or _pairing(self._call, self._seen)
            finished = self._pairing is None or _is_last(chunk)
            chunks = pairing.pair(token_ids, chunk.text, chunk.logprobs, finished=finished)
            deltas = joined([delta for each in chunks for delta in self._parser.feed(each)])
        self._seen.extend(token_ids)
        return deltas

    def end(self, reason: FinishReason, usage: Usage) -> list[Delta]:
        """End the turn, and return what was held back."""
        return self._parser.end(reason, evolve(usage, reasoning_tokens=self._reasoned()))

    def _reasoned(self) -> int:
        """Return how many tokens of reasoning were generated: from the mark that begins it, or the prompt, to the next mark.

        It is 0 where the marks are no tokens of their own; the parser then estimates it.
        """
        reasoning = self._family.reasoning
        if reasoning is None or {*reasoning.ends}.isdisjoint(self._special.values()):
            return 0
        count, thinks = 0, self._thinks
        for token in self._seen[self._start :]:
            mark = self._special.get(token)
            if mark in reasoning.begins:
                thinks = True
            elif token in self._controls or mark in reasoning.ends or (mark and reasoning.yields):
                thinks = False
            else:
                count += thinks
        return count

    def _starts(self, call: Call) -> Start | None:
        """Return where a turn starts: as the last marker in the prompt's tail says, else as vLLM's parser does."""
        reasoning = self._family.reasoning
        if reasoning is None:
            return "between"
        for token in reversed(call.prompt[-TAIL:]):
            text = self._special.get(token)
            if text in reasoning.begins:
                return "thinking"
            if text in reasoning.ends:
                return "between"
        ended = getattr(call.context.response_parser, "is_reasoning_end", None)  # not every release has it
        return "between" if ended is not None and ended([*call.prompt]) else None


@define(eq=False)
class DeltaReader:
    """Reads a model by the deltas of vLLM's parser, of which each turn has its own, or as plain text where it has none.

    Args:
        parser: Reads those deltas.
        one: Whether a turn may have one call alone.
        hide_end: Whether vLLM's parser must not see the token that ends a turn, which has no text.
    """

    _parser: VllmParser
    _one: bool
    _hide_end: bool
    _parse: Callable[..., object] | None = field(default=None, init=False)
    _call: Call = field(init=False)
    _pairing: Pairing = field(init=False)

    def begin(self, call: Call) -> None:
        """Begin a turn."""
        self._call, self._pairing = call, _pairing(call, call.prompt)
        theirs = call.context.response_parser
        self._parse = None if theirs is None else _one_call(theirs) if self._one else theirs.parse_delta

    def feed(self, chunk: Chunk) -> list[Delta]:
        """Return the deltas of an output."""
        parse, finished, output = self._parse, _is_last(chunk), chunk.delta
        if parse is None:
            chunk.delta = {"content": chunk.text}
            return self._parser.feed(chunk)
        paired = self._pairing.take(chunk.token_ids, chunk.text, chunk.logprobs)
        if paired and not finished:
            chunk.delta = parse(chunk.text, chunk.token_ids, self._call.request, self._call.prompt, finished=False)
            return self._parser.feed(chunk)
        chunks = [chunk] if paired else self._pairing.paired(finished=finished) or [Chunk([])]
        deltas: list[Delta] = []
        for each in chunks:
            ends = finished and each is chunks[-1]
            token_ids = each.token_ids[:-1] if ends and self._hides_end(cast("Output", output)) else each.token_ids
            each.delta = parse(each.text, token_ids, self._call.request, self._call.prompt, finished=ends)
            deltas += self._parser.feed(each)
        return joined(deltas)

    def end(self, reason: FinishReason, usage: Usage) -> list[Delta]:
        """End the turn, and return what was held back."""
        return self._parser.end(reason, usage)

    def _hides_end(self, output: Output) -> bool:
        new = output.outputs[0]
        return self._hide_end and new.finish_reason == "stop" and not isinstance(new.stop_reason, str)


Reader: TypeAlias = FamilyReader | DeltaReader
"""A parser that is told of each turn (`begin`), and whose chunks have the engine's output as their `delta`."""


def _is_last(chunk: Chunk) -> bool:
    return cast("Output", chunk.delta).outputs[0].finish_reason is not None


def _one_call(parser: DeltaParser) -> Callable[..., object]:
    """Return how a parser is asked where no parallel calls are wanted: calls after the first are dropped."""

    def parse(
        text: str, token_ids: Sequence[int], request: Request, prompt: Sequence[int] | None, /, *, finished: bool
    ) -> object:
        delta = parser.parse_delta(text, token_ids, request, prompt, finished=finished)
        calls = cast("Sequence[object]", getattr(delta, "tool_calls", None) or ())
        if not calls:
            return delta
        kept = [call for call in calls if not getattr(call, "index", 0)]
        return {**{name: getattr(delta, name, None) for name in ("reasoning", "content")}, "tool_calls": kept}

    return parse


def _controls(call: Call) -> AbstractSet[int]:
    """Return the special tokens that end a turn."""
    return call.sampling.all_stop_token_ids & {*call.tokenizer.all_special_ids}


def _pairing(call: Call, prompt: Sequence[int]) -> Pairing:
    """Return what pairs tokens with the text that vLLM makes of them.

    Args:
        call: What the turn is generated with.
        prompt: The tokens before them.
    """
    sampling = SimpleNamespace(
        stop=None,
        min_tokens=0,
        include_stop_str_in_output=True,
        skip_special_tokens=call.sampling.skip_special_tokens,
        spaces_between_special_tokens=call.sampling.spaces_between_special_tokens,
    )
    made = {"request_id": call.request.request_id, "sampling_params": sampling, "prompt_embeds": None}
    made_of = detokenizer(call.tokenizer, SimpleNamespace(**made, prompt_token_ids=list(prompt)))

    def decode(token: int) -> str:
        made_of.token_ids.append(token)
        return made_of.decode_next(token)

    return Pairing(decode, _controls(call))


@define(eq=False)
class Pairing:
    """Pairs the tokens of one turn with their text.

    Args:
        decode: Returns the text that a token adds to those before it, "" while a character is not whole. Called once for each
            token, in order.
        controls: The tokens that end a turn. Their text is dropped where the engine passes it on, because what follows from
            them is not text (rule R17).
    """

    _decode: Callable[[int], str]
    _controls: Container[int] = frozenset[int]()
    _waiting: deque[Chunk] = field(factory=deque[Chunk], init=False)
    """Tokens whose text was not given yet, each with the text that it should have."""
    _text: str = field(default="", init=False)
    """Text that was given and belongs to the tokens that wait."""

    def pair(
        self, token_ids: Sequence[int], text: str, logprobs: Sequence[Entry] | None = None, *, finished: bool = False
    ) -> Sequence[Chunk]:
        """Return the tokens whose text is there: a chunk for each, and for several only where they cannot be told apart.

        Where no text comes any more (`finished`), what waits has what text is left, and is given as one.
        """
        return [Chunk(token_ids, text, logprobs)] if self.take(token_ids, text, logprobs) else self.paired(finished=finished)

    def take(self, token_ids: Sequence[int], text: str, logprobs: Sequence[Entry] | None = None) -> bool:
        """Take new tokens and text; return whether they are a pair as they are. If not they wait, and `paired` gives them."""
        if len(token_ids) == 1 and not self._waiting and not self._text:
            token = token_ids[0]
            expected = self._decode(token)
            if expected == text and token not in self._controls:
                return True
            self._waiting.append(Chunk(token_ids, expected, logprobs))
        else:
            for place, token in enumerate(token_ids):
                entries = None if logprobs is None else logprobs[place : place + 1]
                self._waiting.append(Chunk([token], self._decode(token), entries))
        self._text += text
        return False

    def paired(self, *, finished: bool) -> list[Chunk]:
        """Return those that wait whose text is there, as `pair` does."""
        return [*self._paired(finished=finished)]

    def _paired(self, *, finished: bool) -> Iterator[Chunk]:
        """Yield those that wait whose text is there, in order."""
        while self._waiting and self._text.startswith(self._waiting[0].text):
            chunk = self._waiting.popleft()
            self._text = self._text[len(chunk.text) :]
            yield Chunk([chunk.token_ids[0]]) if chunk.token_ids[0] in self._controls else chunk
        if self._waiting and (finished or not self._waiting[0].text.startswith(self._text)):
            yield self._rest()

    def _rest(self) -> Chunk:
        """Return what waits, with whatever text is there: the end of a turn, or a text that its tokens do not say."""
        token_ids = [token for chunk in self._waiting for token in chunk.token_ids]
        logprobs = [entry for chunk in self._waiting for entry in chunk.logprobs or ()]
        self._waiting.clear()
        text, self._text = self._text, ""
        return Chunk(token_ids, text, logprobs or None)
