"""vLLM as a pure engine: sends a prompt of token ids for a turn, and reads the tokens of the answer with our own parsers.

Prompts of gpt-oss are rendered here, and a later turn continues from the exact tokens of the last one. vLLM renders the prompts
of other models with their templates. docs/guides/gateway.md has a table of the request.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import ClassVar, Final, cast

from attrs import define, evolve, field
from msgspec import Struct, ValidationError, convert
from msgspec.json import Decoder

from interlock.events import request as wire
from interlock.events.json import elements, members
from interlock.fsm.deltas import ScoredToken, TokenLogprob
from interlock.parsers import Chunk, Tagged
from interlock.parsers.families import Family, FamilyParser, ParserSettings, family
from interlock.parsers.families.family import TurnStart
from interlock.parsers.harmony import HarmonyParser
from interlock.parsers.hosted_tools import BUILT_IN, SEARCHES
from interlock.parsers.routing import Routing
from interlock.serving.engines.chat_messages import function_of, template_messages
from interlock.serving.engines.engine import EngineOutput, Turn
from interlock.serving.engines.harmony_prompt import harmony_prompt
from interlock.serving.engines.harmony_tokens import (
    encode_replies,
    token_entry,
    tool_messages,
    write_required_call,
)
from interlock.serving.engines.prompt import TOO_LONG, estimate_prompt
from interlock.serving.engines.upstream.chat_upstream import (
    CompletionsChunk,
    CompletionsTranslator,
    StreamChoice,
)
from interlock.serving.engines.upstream.translator import FunctionNames, UpstreamCall, count_of
from interlock.serving.engines.upstream.upstream_client import EventStream, upstream_error
from interlock.serving.requests.api_errors import invalid
from interlock.serving.requests.tool_offer import HostedTools, ToolOffer, find_hosted, list_hosted_functions

logger = logging.getLogger(__name__)


SAME: Final = frozenset({"temperature", "top_p", "presence_penalty", "frequency_penalty"})
"""The parameters of the Responses API that completions receive unchanged."""
RESERVED: Final = ("n", "prompt", "echo", "suffix", "use_beam_search", "chat_template_kwargs")
"""The fields that a client must not set in a request for completions; the prompt depends on the last."""

TAIL: Final = 32
"""How many tokens at the end of a prompt are searched for markers of reasoning."""
MARKER: Final = 5
"""The fewest characters of a marker that may be a special token; a shorter one can be an ordinary token in any vocabulary."""

STOPS: Final = [200002, 199999, 200012]
"""The tokens that end a turn: `<|return|>`, `<|endoftext|>` and `<|call|>`."""
DEFAULT_WINDOW: Final = 131_072
"""The context size for gpt-oss, if the server does not report its own."""


class CompletionLogprobs(Struct):
    """The log probabilities of the tokens in a choice."""

    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] | None = None


class CompletionChoice(StreamChoice):
    """A choice of a chunk."""

    text: str = ""
    token_ids: list[int] | None = None
    logprobs: CompletionLogprobs | None = None


class Tokenized(Struct):
    """The answer of `/tokenize`."""

    tokens: list[int]
    max_model_len: int


@define(eq=False)
class VllmTranslator(CompletionsTranslator[CompletionChoice]):
    """Translates one response to and from vLLM's completions; `of` returns the translator for the model."""

    path = "completions"
    provider = "vllm"
    modalities: ClassVar = ["text"]
    not_sent = frozenset({*wire.CreateResponse.__struct_fields__, *RESERVED}) - SAME
    decoder: ClassVar = Decoder(CompletionsChunk[CompletionChoice])
    stops: ClassVar[Sequence[int]] = ()
    """Tokens that end a turn, besides the model's own."""
    scores_ids: ClassVar[bool] = False
    """Whether log probabilities name tokens by their ids."""
    _prompt: Sequence[int] = field(default=(), init=False)
    """The prompt in the last body."""
    _tokens: list[int] = field(factory=list[int], init=False)
    """The output of the current turn."""

    @classmethod
    def of(cls, call: UpstreamCall) -> VllmTranslator:
        """Return the translator of a response; without a family, the model is gpt-oss."""
        tagged = call.upstream.family
        return HarmonyTranslator.begin(call) if tagged is None else FamilyTranslator.begin(call, tagged)

    @abstractmethod
    async def _render(self, turn: Turn) -> tuple[Sequence[int], int]:
        """Return the prompt of a turn, and the most tokens that the prompt and the output may have together."""

    @abstractmethod
    def _entry(self, token: str, logprob: float) -> ScoredToken:
        """Return the log probability of a token in the API's format."""

    async def stream(self, turn: Turn) -> EventStream:
        stream = await super().stream(turn)
        self._tokens = []
        return stream

    async def _fields(self, turn: Turn) -> dict[str, object]:
        self._prompt, context = await self._render(turn)
        room = context - len(self._prompt)
        if room <= 0:
            raise invalid("input", TOO_LONG, "context_length_exceeded")
        request = turn.request
        fields: dict[str, object] = {
            "prompt": self._prompt,
            "max_tokens": room if turn.budget is None else min(turn.budget, room),
            "return_token_ids": True,
            "skip_special_tokens": False,
            "stop_token_ids": [*elements(request.extensions.get("stop_token_ids")), *self.stops] or None,
        }
        if request.wants_logprobs:
            fields |= {"logprobs": request.top_logprobs, "return_tokens_as_token_ids": self.scores_ids}
        return fields

    def _read_choice(self, choice: CompletionChoice) -> Sequence[Chunk]:
        if choice.token_ids is None:
            raise upstream_error("The upstream server sends no token ids; vLLM has them since 0.10.2.")
        self._tokens += choice.token_ids
        return [Chunk(choice.token_ids, self._raw(choice.text), self._entries(choice.logprobs))]

    def end(self) -> EngineOutput:
        output = super().end()
        return output if output.output_tokens else evolve(output, output_tokens=len(self._tokens))

    async def count(self, turn: Turn) -> int:
        await self.body(turn)
        return len(self._prompt)

    async def count_locally(self, turn: Turn) -> int:
        """Return the number of tokens of the prompt if the upstream has rendered it, otherwise an estimate."""
        return len(self._prompt) if self._body is not None and self._body[0] == turn else estimate_prompt(turn)

    def _offer(self, turn: Turn, hosted: HostedTools) -> ToolOffer:
        offered = super()._offer(turn, hosted)
        return offered if offered.choice != "none" else evolve(offered, tools=())

    def _entries(self, logprobs: CompletionLogprobs | None) -> Sequence[TokenLogprob] | None:
        """Return the log probabilities of a chunk's tokens, whose alternatives vLLM does not rank."""
        if logprobs is None or not self.call.request.wants_logprobs:
            return None
        entries: list[TokenLogprob] = []
        for token, logprob, likely in zip_longest(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs or ()):
            ranked = sorted((likely or {}).items(), key=lambda each: -each[1])
            top = [self._entry(other, rank) for other, rank in ranked]
            entries.append({**self._entry(token or "", logprob or 0.0), "top_logprobs": top})
        return entries


@define(eq=False)
class HarmonyTranslator(VllmTranslator):
    """gpt-oss: renders the prompt here, and continues from the tokens of the last turn."""

    _turn: Turn | None = field(default=None, init=False)
    """The last turn that was sent."""
    _sent: Sequence[int] = field(default=(), init=False)
    """The prompt of that turn, including the prefix."""
    _prefix: Sequence[int] = field(default=(), init=False)
    """The beginning of a call that the request requires, put into the prompt for the model to continue."""

    stops = STOPS
    scores_ids = True

    @classmethod
    def begin(cls, call: UpstreamCall) -> HarmonyTranslator:
        names = FunctionNames()
        return cls(call, HarmonyParser.from_request(call.declared, names.routing(Routing.from_request(call.declared))), names)

    async def stream(self, turn: Turn) -> EventStream:
        stream = await super().stream(turn)
        self._turn, self._sent = turn, self._prompt
        return stream

    async def _render(self, turn: Turn) -> tuple[Sequence[int], int]:
        context, replies = await self._context(), self._replies(turn)
        if replies:
            return [*self._sent, *self._tokens, *await encode_replies(replies)], context
        request = turn.request
        hosted = find_hosted(self.call.hosted, request.tools)
        built_in = {kind: {"type": kind} for kind in (*SEARCHES, "code_interpreter") if kind.startswith((*hosted,))}
        functions = list_hosted_functions({tool: text for tool, text in self.call.hosted.items() if tool not in BUILT_IN})
        offered = self._offer(turn, HostedTools({**functions, **built_in}))
        tools = [tool for tool in offered.tools if tool["type"] == "function"]
        descriptions = {kind: self.call.hosted[kind] for kind in hosted}
        tokens = await harmony_prompt(request, map(self._names.apply, turn.items), tools, descriptions)
        if not turn.index and not self._prefix:
            self._prefix = write_required_call(offered.choice)
            self.parser.feed(Chunk(self._prefix))
        return [*tokens, *(() if turn.index else self._prefix)], context

    def _replies(self, turn: Turn) -> Sequence[object]:
        """Return the messages of the tools that the last turn called, or none if this turn does not continue it."""
        last = self._turn
        if last is None or not turn.index or turn.items[: len(last.items)] != last.items:
            return ()
        output = self._tokens if last.index else [*self._prefix, *self._tokens]
        return tool_messages(output, turn.items[len(last.items) :])

    def _entry(self, token: str, logprob: float) -> ScoredToken:
        number = token.removeprefix("token_id:")
        if not number.isdecimal():
            raise upstream_error("The upstream server sends log probabilities without token ids.")
        return token_entry(int(number), logprob)

    async def _context(self) -> int:
        """Return the most tokens of a prompt and its output together, which is requested from vLLM once per model."""
        cache, name = self.call.upstream.cache, self.call.model
        if name not in cache:
            models = [members(model) for model in elements(members(await self.call.fetch("models")).get("data"))]
            lengths = {model.get("id"): count_of(model.get("max_model_len")) for model in models}
            # vLLM lists adapters without a length: they have that of their model.
            cache[name] = lengths.get(name) or max(lengths.values(), default=0) or DEFAULT_WINDOW
        return cast("int", cache[name])


@define(eq=False)
class FamilyTranslator(VllmTranslator):
    """A model of another family: vLLM renders the prompt with the model's template, and the parser reads text with markers."""

    _family_parser: FamilyParser
    """The parser, by its own type."""
    _family: Family
    _settings: ParserSettings
    _start: TurnStart | None = field(default=None, init=False)
    """Where the turn starts, if the end of the prompt decides that."""

    @classmethod
    def begin(cls, call: UpstreamCall, tagged: Tagged) -> FamilyTranslator:
        names = FunctionNames()
        settings = ParserSettings.from_request(call.declared, names.routing(call.routing))
        model_family = family(tagged.tool_parser, tagged.reasoning_parser)
        parser = FamilyParser(model_family, settings)
        return cls(call, parser, names, parser, model_family, settings)

    async def stream(self, turn: Turn) -> EventStream:
        stream = await super().stream(turn)
        self._family_parser.begin(self._start)
        return stream

    async def _render(self, turn: Turn) -> tuple[Sequence[int], int]:
        request = turn.request
        self._settings.special = await self._special()
        effort = request.reasoning_effort
        template = {} if effort is None else {"reasoning_effort": effort, "enable_thinking": effort != "none"}
        offered = self._offer(turn, self.call.functions)
        messages = template_messages(self._messages(turn, "reasoning", self._family.written_id))
        for message in messages:
            _require_text(message)
        if offered.choice not in ("auto", "none"):
            logger.warning("the tool_choice is not enforced: vLLM's completions cannot require a call of this model")
        body = {
            "model": self.call.model,
            "messages": messages,
            "tools": [*map(function_of, offered.tools)] or None,
            "add_generation_prompt": True,
            "chat_template_kwargs": {**template, **members(request.extensions.get("chat_template_kwargs"))},
        }
        answer = await self._tokenized(body)
        special, reasoning, prompt = self._settings.special, self._family.reasoning, answer.tokens
        self._start = self._family.start_after(special[token] for token in prompt[-TAIL:] if token in special)
        if request.text_format.get("type") != "text" and reasoning and (self._start or self._family.starts) == "thinking":
            ends = [
                token for token, text in special.items() if text in reasoning.ends
            ]  # the grammar of the output applies at once
            prompt, self._start = [*prompt, *ends[:1]], "between"
        return prompt, answer.max_model_len

    def end(self) -> EngineOutput:
        count = self._family.count_reasoning(self._tokens, self._settings.special, self._start)
        return evolve(super().end(), reasoning_tokens=count)

    def _entry(self, token: str, logprob: float) -> ScoredToken:
        return {"token": token, "bytes": [*token.encode(errors="replace")], "logprob": logprob}

    async def _special(self) -> Mapping[int, str]:
        """Return the family's markers that are single tokens, by token id."""
        cache = self.call.upstream.cache
        if self.call.model not in cache:
            texts = sorted({text for markers in self._family.markers.values() for text in markers if len(text) >= MARKER})
            bodies = [{"model": self.call.model, "prompt": text, "add_special_tokens": False} for text in texts]
            answers = await asyncio.gather(*map(self._tokenized, bodies))
            cache[self.call.model] = {
                answer.tokens[0]: text for text, answer in zip(texts, answers, strict=True) if len(answer.tokens) == 1
            }
        return cast("Mapping[int, str]", cache[self.call.model])

    async def _tokenized(self, body: Mapping[str, object]) -> Tokenized:
        answer = await self.call.fetch("/tokenize", {name: value for name, value in body.items() if value is not None})
        try:
            return convert(answer, Tokenized)
        except ValidationError as error:
            raise upstream_error(f"The upstream server does not tokenize as vLLM does: {error}.") from None


def _require_text(message: Mapping[str, object]) -> None:
    """Refuse a message with images or files."""
    if any(members(part).get("type") != "text" for part in elements(message.get("content"))):
        raise invalid(
            "input", "Images and files cannot be sent as tokens; use the upstream API 'chat' for them.", "unsupported_value"
        )
