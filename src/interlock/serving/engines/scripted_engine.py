"""An engine that follows a script instead of a model: the engine of `interlock serve --script` and of the mock for tests."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final
from weakref import WeakValueDictionary

from attrs import define, evolve, field

from interlock.events.json import dumps
from interlock.parsers import ChatParser, Chunk, Format, Parser, Routing, Tagged, parser_for
from interlock.serving.engines.engine import Engine, EngineOutput, Generation, Turn, generate_alone
from interlock.serving.engines.recordings import ToolResult
from interlock.serving.engines.script import Conversation, RecordedStep, ScriptRule, ScriptStep
from interlock.serving.requests.api_errors import ApiError, EngineError, no_such_model
from interlock.serving.requests.create import ResponseRequest, read_request
from interlock.serving.requests.input_items import JsonItem
from interlock.serving.requests.tool_offer import HOSTED_TOOLS, find_hosted, route_hosted

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

logger = logging.getLogger(__name__)

SCRIPTED: Final = "interlock-script"

CONNECTION: Final = "interlock.scripted_connection"
"""The key of the `ScriptedConnection` in the scope of a connection."""

_REMEMBERED: Final = 10_000
"""The most requests, and the most turns with faults, that an engine remembers."""
_WORDS: Final = re.compile(r"\s*\S+|\s+")
"""Matches the text of a chunk: a word with the space before it."""


@define(eq=False)
class ScriptedRequest:
    """A request for an answer of the model, with the facts that rules match."""

    model: str = field(default="", kw_only=True)
    text: str = field(default="", kw_only=True)
    tools: Sequence[str] = field(default=(), kw_only=True)
    turn: int = field(default=0, kw_only=True)
    rule: str | None = field(default=None, kw_only=True)
    """The conditions of the rule that answered it; None if none did."""
    problem: str = field(default="", kw_only=True)
    """Why the script has no answer."""
    unoffered: Sequence[str] = field(default=(), kw_only=True)
    """The tools that the script has called, and that the request does not offer."""
    is_spoiled: bool = field(default=False, kw_only=True)
    """Whether its scenario has broken the stream."""


LISTED: Final = ("model", "text", "tools", "turn", "rule", "problem", "unoffered")
"""The fields of a request that `/interlock/requests` lists."""


@define(eq=False)
class ScriptedConnection:
    """A connection whose requests a script answers: its one HTTP request, or those of a WebSocket, which may overlap."""

    step: ScriptStep | None = field(default=None, init=False)
    """The step that answers the last request; its fault spoils the answer."""
    sent: int = field(default=0, init=False)
    """The events of the answer since the step began."""
    warns: ClassVar = True
    """Whether the log has what is wrong with the script."""

    def begin(self, body: Mapping[str, object]) -> ScriptedRequest:
        """Return the request with this body."""
        del body
        return ScriptedRequest()

    def refuse(self, reason: str) -> None:
        """Note that the script cannot spoil the last answer."""


@define(eq=False)
class ScriptedEngine(Engine):
    """An engine with rules, of which the first that matches a request answers it.

    Without `only`, a request may name any model. The rate is in tokens per second and turn, where an output without tokens
    counts as one; 0 for no limit.
    """

    rules: Sequence[ScriptRule]
    only: Sequence[str] = ()
    rate: float = field(default=0.0, kw_only=True)
    requests: deque[tuple[ScriptedRequest, Mapping[str, object]]] = field(
        factory=lambda: deque(maxlen=_REMEMBERED), init=False, repr=False
    )
    """The last requests, with their bodies."""
    _served: Counter[int] = field(factory=Counter[int], init=False)
    """How many steps were taken of each rule that counts `per` server."""
    _attempts: dict[object, int] = field(factory=dict[object, int], init=False, repr=False)
    """How many steps were taken of each turn of a conversation that has faults, of the last `_REMEMBERED` of these."""
    _generations: WeakValueDictionary[int, ScriptedGeneration] = field(
        factory=WeakValueDictionary[int, "ScriptedGeneration"], init=False, repr=False
    )
    """The generations in progress, by the identity of their requests, which they keep."""

    def __attrs_post_init__(self) -> None:
        self.models = self.only or [*dict.fromkeys([SCRIPTED, *(rule.conditions.model or SCRIPTED for rule in self.rules)])]
        self.format = self.rules[0].format if self.rules else "chat"

    @property
    def has_faults(self) -> bool:
        return True

    def read(self, raw: Mapping[str, object]) -> ResponseRequest:
        """Validate a request body; raise a 404 for an unknown model."""
        request = read_request(raw)
        if self.only and request.model not in self.only:
            raise no_such_model(request.model, self.only)
        return request

    async def begin(
        self, request: ResponseRequest, items: Sequence[JsonItem], tenant: str = "", connection: HTTPConnection | None = None
    ) -> ScriptedGeneration:
        del tenant
        scripted = ScriptedConnection() if connection is None else connection.scope.get(CONNECTION, ScriptedConnection())
        declared = request.declare_tools(items)
        parser = parser_for(self.format, declared)
        generation = ScriptedGeneration(parser, engine=self, request=request, declared=declared, connection=scripted)
        self._generations[id(request)] = generation
        return generation

    def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        return generate_alone(self, turn)

    def take(self, index: int, turn: int, items: Sequence[JsonItem]) -> ScriptStep:
        """Take the step for a turn of a rule, or its next step if it counts `per` server.

        A conversation that asks again after a fault takes the next step of the turn.

        Raises:
            EngineError: The rule has no such turn.
        """
        rule, turns = self.rules[index], self.rules[index].turns
        if rule.per == "server":
            turn, self._served[index] = self._served[index], self._served[index] + 1
        if turn >= len(turns):
            raise EngineError(f"Rule {index + 1} of the script ({rule.conditions}) has {len(turns)} turns, and needs {turn + 1}.")
        steps, attempt = turns[turn], 0
        if len(steps) > 1:
            key = index, turn, hashlib.sha256(dumps([{**item, "id": None} for item in items])).digest()
            attempt = self._attempts.pop(key, 0)
            self._attempts[key] = attempt + 1
            if len(self._attempts) > _REMEMBERED:
                del self._attempts[next(iter(self._attempts))]  # the least recent
        return steps[min(attempt, len(steps) - 1)]

    def listed(self) -> dict[str, object]:
        """Return the last requests, and the conditions of the rules that have answered none of them."""
        listed = [{**{name: getattr(each, name) for name in LISTED}, "body": body} for each, body in self.requests]
        return {"requests": listed, "unused": unused_rules(self.rules, (each for each, _ in self.requests))}

    def reset(self) -> None:
        """Forget all requests, and begin with the first steps again."""
        self.requests.clear()
        self._served.clear()
        self._attempts.clear()

    def results(self, request: ResponseRequest) -> deque[ToolResult]:
        """Return the results of the hosted calls of a response in progress, to which each of its steps adds its own."""
        generation = self._generations.get(id(request))
        return deque() if generation is None else generation.results


def unused_rules(rules: Iterable[ScriptRule], requests: Iterable[ScriptedRequest]) -> list[str]:
    """Return the conditions of the rules that have answered none of the requests."""
    used = {request.rule for request in requests}
    return [text for rule in rules if (text := str(rule.conditions)) not in used]


@define(eq=False)
class ScriptedGeneration(Generation):
    """The generation of one response by the rule that its conversation matches."""

    engine: ScriptedEngine = field(kw_only=True)  # pyright: ignore[reportIncompatibleVariableOverride] - it is never assigned
    request: ResponseRequest = field(kw_only=True)
    declared: Mapping[str, object] = field(kw_only=True, repr=False)
    connection: ScriptedConnection = field(kw_only=True, repr=False)
    results: deque[ToolResult] = field(factory=deque[ToolResult], init=False)
    """The results of the hosted calls of the steps so far; a tool that runs removes its own."""
    _index: int = field(default=0, init=False)
    _turn: int = field(default=0, init=False)
    _step: ScriptStep | None = field(default=None, init=False)
    """The step of the next turn, if it is taken."""
    _asked: ScriptedRequest = field(factory=ScriptedRequest, init=False)
    _conversation: Conversation | None = field(default=None, init=False)

    async def prepare(self, turn: Turn) -> Mapping[str, object]:
        """Find the rule.

        Raises:
            ApiError: 400 if none matches; the message has what the request asks, and the rules.
        """
        self._conversation = conversation = Conversation.of(self.request, turn.items)
        found = conversation.find(self.engine.rules)
        rule = None if found is None else self.engine.rules[found[0]]
        body = self.request.forward(())
        self._asked = asked = self.connection.begin(body)
        asked.model, asked.text, asked.tools = conversation.model, conversation.text, conversation.tools
        asked.turn, asked.rule = conversation.turn, None if rule is None else str(rule.conditions)
        self.engine.requests.append((asked, body))
        if found is None:
            listed = "; ".join(f"{number}. {rule.conditions}" for number, rule in enumerate(self.engine.rules, 1)) or "none"
            raise self._refuse(f"No rule of the script matches. The request: {conversation.describe()}. The rules: {listed}.")
        self._index, self._turn = found
        self.parser = self._new_parser(self.engine.rules[self._index].format)
        try:
            self._take(turn)
        except EngineError as error:
            raise self._refuse(f"{error} The request: {conversation.describe()}.") from error
        return {}

    def _new_parser(self, output_format: Format) -> Parser:
        if output_format != "chat":
            return parser_for(output_format, self.declared)
        hosted = find_hosted(HOSTED_TOOLS, self.request.tools)
        return ChatParser(route_hosted(Routing.from_request(self.declared), hosted))

    def _refuse(self, reason: str) -> ApiError:
        self._asked.problem = reason
        return ApiError(400, reason, code="no_rule_matches")

    def _take(self, turn: Turn) -> ScriptStep:
        self._step = self.engine.take(self._index, self._turn + turn.index, turn.items)
        self.results.extend(self._step.results)
        conversation = self._conversation
        unoffered = [call.name for call in self._step.calls if conversation is not None and not conversation.offers(call)]
        for name in unoffered if self.connection.warns else ():
            logger.warning("the script calls the tool %r, which the request does not offer", name)
        self._asked.unoffered = [*self._asked.unoffered, *unoffered]
        self._asked.is_spoiled |= not (self._step.has_answer and self._step.breaks is None)
        if turn.index and self._step.breaks is not None:
            raise EngineError("Write breaks at the first step of a response: the hosted calls before this step belong to it too.")
        if turn.index == 0 or not self._step.has_answer:  # keep the fault of an earlier turn
            self.connection.step, self.connection.sent = self._step, 0
        return self._step

    async def admit(self, turn: Turn) -> None:
        """Fail the request if the step does."""
        del turn
        if self._step is not None and (failure := self._step.fails):
            await asyncio.sleep(self._step.waits)
            kind = "invalid_request_error" if failure.status < 500 else "server_error"  # noqa: PLR2004 - HTTP's classes
            kind = "rate_limit_error" if failure.status == 429 else kind  # noqa: PLR2004 - as above
            raise ApiError(failure.status, failure.message, kind, retry_after=failure.retry_after)

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Write the step of a turn.

        Raises:
            EngineError: The rule has no such turn, or the response has begun and the step fails it.
        """
        try:
            step, self._step = self._step or self._take(turn), None
        except EngineError as error:
            self._asked.problem = str(error)
            raise
        if step.fails is not None:
            raise EngineError(step.fails.message)
        if isinstance(step, RecordedStep):
            outputs: Sequence[EngineOutput] = step.turn.outputs
        else:
            outputs = await write_step(step, self.engine.rules[self._index].format, await self.count(turn))
        async for output in play(limit_tokens(outputs, turn.budget), self.engine.rate, step.waits, step.between):
            yield output


async def play(
    outputs: Iterable[EngineOutput], rate: float, waits: float = 0.0, between: float = 0.0
) -> AsyncGenerator[EngineOutput, None]:
    """Yield outputs at a rate, in tokens per second, where one without tokens counts as one, after delays in seconds."""
    pause = waits
    for output in outputs:
        await asyncio.sleep(pause + ((len(output.chunk.token_ids) or 1) / rate if rate else 0))
        pause = between
        yield output


async def write_step(step: ScriptStep, output_format: Format, prompt: int, budget: int | None = None) -> list[EngineOutput]:
    """Return the output of a step, a word or a token of harmony in each chunk, and no more chunks than the budget.

    `prompt` is the number of tokens of the prompt. A chunk without tokens counts as one.
    """
    chunks = [chunk async for chunk in _chunks(step, output_format)] or [Chunk()]
    ends = step.ends if budget is None or len(chunks) <= budget else "length"
    chunks = chunks[:budget]
    tokens = 0 if chunks[0].token_ids else len(chunks)
    reasoning = min(tokens, len(_WORDS.findall(step.thinks or "")))
    outputs = [EngineOutput(chunk, None, prompt, output_tokens=tokens, reasoning_tokens=reasoning) for chunk in chunks]
    outputs[-1].finish_reason = ends
    return outputs


async def _chunks(step: ScriptStep, output_format: Format) -> AsyncGenerator[Chunk, None]:
    says = step.says if isinstance(step.says, str | None) else dumps(step.says).decode()
    calls = [
        (call.name, call.arguments if isinstance(call.arguments, str) else dumps(call.arguments).decode()) for call in step.calls
    ]
    if output_format == "harmony":
        from interlock.serving.engines.harmony_tokens import encode_framing, encode_turn  # noqa: PLC0415 - loads a vocabulary

        written = await encode_turn(step.thinks, says, calls) if step.writes is None else encode_framing(step.writes)
        for token in written:
            yield Chunk([token])
    elif isinstance(output_format, Tagged):
        for word in _WORDS.findall(step.writes or _in_family(step, says, calls, output_format)):
            yield Chunk(text=word)
    else:
        for key, text in (("reasoning", step.thinks), ("content", says)):
            for word in _WORDS.findall(text or ""):
                yield Chunk(delta={key: word})
        for index, (name, arguments) in enumerate(calls):
            yield Chunk(delta={"tool_calls": [{"index": index, "function": {"name": name, "arguments": ""}}]})
            for word in _WORDS.findall(arguments):
                yield Chunk(delta={"tool_calls": [{"index": index, "function": {"arguments": word}}]})


def _in_family(step: ScriptStep, says: str | None, calls: Sequence[tuple[str, str]], tagged: Tagged) -> str:
    from interlock.parsers.families import family  # noqa: PLC0415 - few scripts have families
    from interlock.parsers.families.reference_encoders import WrittenItem, encode  # noqa: PLC0415 - as above

    items = [
        *([] if step.thinks is None else [WrittenItem("reasoning", step.thinks)]),
        *([] if says is None else [WrittenItem("message", says)]),
        *(WrittenItem("call", arguments, name) for name, arguments in calls),
    ]
    thinking = family(tagged.tool_parser, tagged.reasoning_parser).starts == "thinking"
    return encode(items, tagged.tool_parser or "hermes", tagged.reasoning_parser, thinking=thinking)


def limit_tokens(outputs: Sequence[EngineOutput], budget: int | None) -> list[EngineOutput]:
    """Return the outputs of a turn within its limit of tokens, the last of them with a finish reason."""
    turn: list[EngineOutput] = []
    for output in outputs:
        if budget is not None:
            if len(output.chunk.token_ids) > budget:
                return [*turn, evolve(output, chunk=_truncate(output.chunk, budget), finish_reason="length")]
            budget -= len(output.chunk.token_ids)
        turn.append(output)
    last = turn.pop() if turn else EngineOutput(Chunk())
    return [*turn, evolve(last, finish_reason=last.finish_reason or "stop")]


def _truncate(chunk: Chunk, count: int) -> Chunk:
    """Return the first tokens of a chunk with their text, which is estimated without log probabilities; a delta stays whole."""
    entries = chunk.logprobs
    texts = [str(entry.get("token", "")) for entry in entries or ()]
    is_exact = "".join(texts) == chunk.text
    text = "".join(texts[:count]) if is_exact else chunk.text[: len(chunk.text) * count // len(chunk.token_ids)]
    return Chunk(chunk.token_ids[:count], text, entries and entries[:count], chunk.delta if count else None)
