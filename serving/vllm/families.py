"""Reading with parsers of our own, where the server's flags name families that are known.

vLLM's parser stays configured, for it adjusts requests, starts grammars and says whether a prompt ends inside of reasoning; what
the model writes is read here. It knows vLLM's tokenizers and outputs, and nothing of how a family writes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

from attrs import define, evolve, field, frozen

from interlock.fsm.deltas import Delta, FinishReason, Usage
from interlock.parsers.chunk import Chunk
from interlock.parsers.families import Family, FamilyParser, Settings, family, known
from interlock.parsers.families.family import Start
from interlock.parsers.writing import joined
from interlock.serving.vllm.pairing import Pairing
from interlock.serving.vllm.reading import Logprobs
from interlock.serving.vllm.shapes import Output, Tokenizer

__all__ = ["FORCED", "FamilyReader", "Source", "configured", "family_reader", "specials", "with_written_ids"]

FORCED: Final = "INTERLOCK_PARSERS"
"""The environment variable that makes the plugin use vLLM's parsers for all models, if it says `vllm`."""


@frozen
class Source:
    """What the engine makes of the tokens of a response and of their text.

    Args:
        pairs: Makes what pairs tokens with their text, of the tokens before them.
        controls: Returns the tokens that end a round, once it has begun.
        lags: Whether text may come after its tokens, because it may yet be cut by a stop sequence.
    """

    pairs: Callable[[Sequence[int]], Pairing]
    controls: Callable[[], AbstractSet[int]]
    lags: bool


_TAIL: Final = 32
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


def with_written_ids(items: Sequence[Mapping[str, object]], read: Family) -> list[Mapping[str, object]]:
    """Return a conversation in which calls and their outputs have the ids that the model wrote, for it to be rendered.

    Args:
        items: As the client sends them; their ids begin with `call_` (rule R7).
        read: The model's family.
    """
    ids = (item.get("call_id") for item in items)
    return [
        {**item, "call_id": read.written_id(said)} if isinstance(said, str) else item
        for item, said in zip(items, ids, strict=True)
    ]


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


@define(eq=False)
class FamilyReader:
    """Reads a model by the markers in its text.

    Args:
        parser: Of the family.
        special: The markers that are special tokens, by their ids.
        family: Whose markers they are.
        theirs: vLLM's parser for the first round, which knows whether a prompt ends inside of reasoning.
        source: Says what the engine makes of tokens and text.
        logprobs: Returns log probabilities; None if they were not asked for.
    """

    _parser: FamilyParser
    _special: Mapping[int, str]
    _family: Family
    _theirs: object
    _source: Source
    _logprobs: Logprobs | None = None
    _controls: AbstractSet[int] = field(factory=frozenset[int], init=False)
    """The tokens that end a round; their text is dropped where the engine passes it on."""
    _marks: AbstractSet[int] = field(factory=frozenset[int], init=False)
    """The tokens whose text means something by itself: those, and the special ones."""
    _seen: list[int] = field(factory=list[int], init=False)
    """The prompt and what was generated."""
    _thinks: bool = field(default=False, init=False)
    """Whether the round begins inside of reasoning."""
    _pairing: Pairing | None = field(default=None, init=False)
    """Where the text of tokens comes after them: what finds it."""
    _prompt: Usage | None = field(default=None, init=False)

    def read(self, output: Output) -> Sequence[Delta]:
        """Return the deltas of an output."""
        if self._prompt is None:
            self._begin(output)
        new = output.outputs[0]
        token_ids = new.token_ids
        logprobs = self._logprobs(output) if self._logprobs else None
        if self._pairing is None and (len(token_ids) == 1 or self._marks.isdisjoint(token_ids)):
            text = "" if token_ids and token_ids[0] in self._controls else new.text
            deltas = self._parser.feed(Chunk(token_ids, text, logprobs))
        else:
            # Markers are cut out, so that none is taken for text that is spelled like it.
            pairing = self._pairing or self._source.pairs(self._seen)
            finished = self._pairing is None or new.finish_reason is not None
            chunks = pairing.pair(token_ids, new.text, logprobs, finished=finished)
            deltas = joined([delta for chunk in chunks for delta in self._parser.feed(chunk)])
        self._seen.extend(token_ids)
        return deltas

    def end(self, reason: FinishReason) -> Sequence[Delta]:
        """End the round, and return what was held back."""
        prompt, self._prompt = self._prompt, None
        spent = evolve(prompt, reasoning_tokens=self._reasoned(prompt.input_tokens)) if prompt else Usage()
        return self._parser.end(reason, spent)

    def _begin(self, output: Output) -> None:
        prompt = output.prompt_token_ids or ()
        self._prompt = Usage(
            input_tokens=len(prompt),
            cached_tokens=output.num_cached_tokens or 0,
            cache_write_tokens=output.num_cache_creation_tokens or 0,
        )
        self._controls = self._source.controls()
        self._marks = self._controls | self._special.keys()
        self._seen = list(prompt)
        self._pairing = self._source.pairs(prompt) if self._source.lags else None
        start = self._starts(prompt)
        self._thinks = (start or self._family.starts) == "thinking"
        self._parser.begin(start)

    def _reasoned(self, start: int) -> int:
        """Return how many tokens of reasoning were generated: from the mark that begins it, or the prompt, to the next mark.

        It is 0 where the marks are no tokens of their own; the parser then estimates it.
        """
        reasoning = self._family.reasoning
        if reasoning is None or {*reasoning.ends}.isdisjoint(self._special.values()):
            return 0
        count, thinks = 0, self._thinks
        for token in self._seen[start:]:
            mark = self._special.get(token)
            if mark in reasoning.begins:
                thinks = True
            elif token in self._controls or mark in reasoning.ends or (mark and reasoning.yields):
                thinks = False
            else:
                count += thinks
        return count

    def _starts(self, prompt: Sequence[int]) -> Start | None:
        """Return where a round starts: as the last marker in the prompt's tail says, else as vLLM's parser does."""
        reasoning = self._family.reasoning
        if reasoning is None:
            return "between"
        for token in reversed(prompt[-_TAIL:]):
            text = self._special.get(token)
            if text in reasoning.begins:
                return "thinking"
            if text in reasoning.ends:
                return "between"
        ended = getattr(self._theirs, "is_reasoning_end", None)  # not every release has it
        return "between" if ended is not None and ended(list(prompt)) else None


def family_reader(
    read: Family | None,
    settings: Settings,
    tokenizer: Tokenizer,
    theirs: object,
    source: Source,
    logprobs: Logprobs | None,
    *,
    forced: bool,
) -> FamilyReader | None:
    """Return the reader of a model of a known family; None where vLLM's parser has to read.

    That is where vLLM has the model write JSON alone, without the family's markers, because a call is required or named; and
    where the vocabulary is older than the format.

    Args:
        read: The family that the server's flags name, if they name one.
        settings: How the response is read.
        tokenizer: The model's.
        theirs: vLLM's parser for the first round.
        source: Says what the engine makes of tokens and text.
        logprobs: Returns log probabilities, if they were asked for.
        forced: Whether the request requires a call, or names one.
    """
    if read is None or theirs is None or (forced and _writes_json(theirs)):
        return None
    special = specials(tokenizer, read)
    if read.syntax is not None and read.syntax.needs and read.syntax.needs not in special.values():
        return None
    parser = FamilyParser(read, evolve(settings, special=special))
    return FamilyReader(parser, special, read, theirs, source, logprobs)


def _writes_json(theirs: object) -> bool:
    """Return whether vLLM has a model write JSON without markers where a call is required or named, as far as that is known."""
    tool_parser = getattr(theirs, "tool_parser", None) or getattr(theirs, "_tool_parser", None)
    return getattr(tool_parser, "supports_required_and_named", True) is not False
