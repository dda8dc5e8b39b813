"""Scripts: rules that say which requests get which answers, and the engine that follows them instead of a model.

They are for `interlock serve --script` and the mock for tests; docs/guides/mock.md describes the format. A recording of an
engine's output is a script of one rule that any request matches.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import tomllib
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import msgspec
from attrs import define, evolve, field, frozen
from msgspec import Meta, Struct
from starlette.datastructures import Headers

from interlock.events.json import dumps, elements, loads, members
from interlock.events.parts import Json
from interlock.fsm.table import InterlockError
from interlock.judges import AnyJudge, Finding
from interlock.parsers import Chunk, Format, Tagged, parser_for
from interlock.parsers.formats import tagged
from interlock.parsers.hosted_tools import HOSTED_CALLS
from interlock.serving.engines.engine import Engine, EngineOutput, Generation, Turn
from interlock.serving.engines.prompt import is_client_output, is_from_user
from interlock.serving.engines.recordings import RecordedTurn, Recording, ToolResult, read
from interlock.serving.engines.script_errors import explain
from interlock.serving.requests.api_errors import ApiError, EngineError, no_such_model
from interlock.serving.requests.create import ResponseRequest, read_request
from interlock.serving.requests.input_items import SUMMARIZE, JsonItem, text_of, waits_for_client
from interlock.testing.streams import describe_finding

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection


logger = logging.getLogger(__name__)

Ending: TypeAlias = Literal["stop", "length", "content_filter", "abort", "error"]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=86_400)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
SOME: Final = Meta(min_length=1)
Name: TypeAlias = Annotated[str, SOME]
Status: TypeAlias = Annotated[int, Meta(ge=400, le=599)]

V = TypeVar("V", bound=Struct)

HARMONY_NAMES: Final = ("gpt_oss", "harmony")
"""The family whose models write harmony, and the name of the format."""

ITEMS: Final = ("thinks", "says", "refuses", "calls")
ANSWER: Final = (*ITEMS, "writes", "uses", "between", "ends")
"""The fields of a step's answer."""
FAULTS: Final = ("fails", "disconnects", "stops", "breaks")
"""The fields of a step that spoil its answer."""
UNSENT: Final = ("fails", "disconnects before the first event", "stops before the first event")
EXCLUSIVE: Final = (
    (FAULTS, FAULTS, "a step has one fault"),
    (("writes",), ITEMS, "writes is the whole output"),
    (UNSENT, ANSWER, "the client receives no answer"),
    (UNSENT[1:], ("waits",), "the stream ends at once"),
)
"""Which fields of a step exclude which others, and why."""
_NAMED_GROUP: Final = re.compile(r"\?(<\w+>)")
"""Matches what begins a named group in JavaScript."""


def family_format(name: str) -> Literal["harmony"] | Tagged:
    """Return the format that the models of a family write.

    Raises:
        ValueError: The family is unknown; the message names the known ones.
    """
    from interlock.parsers.families import DEFAULT_REASONING  # noqa: PLC0415 - few scripts have families

    if name in HARMONY_NAMES:
        return "harmony"
    if (output_format := tagged(name)) is None:
        raise ValueError(f"unknown family {name!r}; choose one of {', '.join([*HARMONY_NAMES, *DEFAULT_REASONING])}")
    return output_format


class ScriptError(InterlockError):
    """A script is invalid; the message names the place."""


class _Fields(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """An object of the file."""


class When(_Fields, frozen=True):
    """The conditions of a rule, all of which a request must meet."""

    text: Annotated[str, SOME, Meta(description="A part of the user's message; upper and lower case are the same.")] | None = None
    pattern: Annotated[str, SOME, Meta(description="A regular expression that is found in the user's message.")] | None = None
    instructions: (
        Annotated[str, SOME, Meta(description="A part of the system prompt; upper and lower case are the same.")] | None
    ) = None
    tools: Annotated[list[Name], Meta(description="The names of tools that the request offers, among others.")] = []
    model: Annotated[str, SOME, Meta(description="The name of the model.")] | None = None
    turn: Annotated[int, Meta(ge=1, description="The number of the model's turn in the conversation, from 1.")] | None = None

    def __post_init__(self) -> None:
        """Refuse an invalid pattern."""
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            group = _NAMED_GROUP.match(str(self.pattern), error.pos or 0)
            hint = "" if group is None else f"; write (?P{group[1]}…) for JavaScript's (?{group[1]}…)"
            raise ValueError(f"pattern: {error}{hint}") from None

    def covers(self, other: When) -> bool:
        """Return whether each request that meets other conditions meets these, too."""
        return (
            self.turn == other.turn
            and self.model in (None, other.model)
            and self.pattern in (None, other.pattern)
            and {*self.tools} <= {*other.tools}
            and _is_part(self.text, other.text)
            and _is_part(self.instructions, other.instructions)
        )

    def __str__(self) -> str:
        """Return the conditions in words."""
        conditions = [
            *([f"text {self.text!r}"] if self.text is not None else []),
            *([f"pattern {self.pattern!r}"] if self.pattern is not None else []),
            *([f"instructions {self.instructions!r}"] if self.instructions is not None else []),
            *([f"tools {', '.join(self.tools)}"] if self.tools else []),
            *([f"model {self.model}"] if self.model is not None else []),
            *([f"turn {self.turn}"] if self.turn is not None else []),
        ]
        return "; ".join(conditions) or "any request"


def _is_part(part: str | None, text: str | None) -> bool:
    """Return whether a text has the part that a condition names, if it names one."""
    return part is None or (text is not None and part.casefold() in text.casefold())


class Call(_Fields, frozen=True):
    """A call of a tool."""

    name: Name
    arguments: Annotated[dict[str, object] | str, Meta(description="An object, or text that is sent as it is.")] = {}
    returns: Annotated[str, Meta(description="The result of a hosted tool.")] | None = None


class Tokens(_Fields, frozen=True):
    """The usage of a turn; the mock counts or estimates what is 0."""

    input_tokens: Annotated[Count, Meta(description="The tokens of the prompt, with the cached ones.")] = 0
    cached_tokens: Count = 0
    cache_write_tokens: Count = 0
    output_tokens: Annotated[Count, Meta(description="The generated tokens, with those of the reasoning.")] = 0
    reasoning_tokens: Count = 0


class Failure(_Fields, frozen=True):
    """An HTTP error in place of an answer."""

    status: Status
    message: str = "The script fails this request."
    retry_after: Annotated[Seconds, Meta(description="Seconds for the header Retry-After.")] | None = None


class ScriptStep(_Fields, frozen=True):
    """One turn of the model, or a fault in place of it."""

    waits: Annotated[Seconds, Meta(description="Seconds before the output or the error.")] = 0.0
    between: Annotated[Seconds, Meta(description="Seconds between two chunks of the output.")] = 0.0
    thinks: Annotated[str, Meta(description="The reasoning.")] | None = None
    says: (
        Annotated[str | dict[str, object] | list[object], Meta(description="The message; an object is written as JSON.")] | None
    ) = None
    refuses: Annotated[str, SOME, Meta(description="The refusal.")] | None = None
    calls: list[Call] = []
    writes: Annotated[str, Meta(description="The raw output, in the format of the rule's family.")] | None = None
    uses: Tokens = Tokens()
    ends: Annotated[Ending, Meta(description="Why the model's turn ends.")] = "stop"
    fails: Annotated[Failure | Status, Meta(description="An HTTP error; a number alone is `status`.")] | None = None
    disconnects: (
        Annotated[Count | bool, Meta(description="Break the connection after this many events; true: before the answer.")] | None
    ) = None
    stops: Annotated[Count | bool, Meta(description="End the stream after this many events; true: before the first.")] | None = (
        None
    )
    breaks: Annotated[str, Meta(description="Break this rule of docs/evidence/rules.md, such as R7, in the stream.")] | None = (
        None
    )

    def __post_init__(self) -> None:
        """Refuse fields that exclude each other, and a rule that no stream can break; a fault that is true has no events."""
        for name in ("disconnects", "stops"):
            if isinstance(value := getattr(self, name), bool):
                msgspec.structs.force_setattr(self, name, 0 if value else None)
        absent: Mapping[str, object] = {"calls": [], "uses": Tokens(), "waits": 0.0, "between": 0.0, "ends": "stop"}
        given = {name for name in ("waits", *ANSWER, *FAULTS) if getattr(self, name) != absent.get(name)}
        given |= {f"{name} before the first event" for name in ("disconnects", "stops") if getattr(self, name) == 0}
        for ones, others, reason in EXCLUSIVE:
            for one, other in product(ones, others):
                if one != other and given.issuperset((one, other)):
                    raise ValueError(f"{one} and {other} exclude each other: {reason}")
        if self.breaks is not None:
            from interlock.testing.streams import RULES  # noqa: PLC0415 - few scripts break streams

            if self.breaks not in RULES:
                raise ValueError(f"breaks: {self.breaks!r} is not one of {', '.join(RULES)}")
        needs_answer = self.breaks is not None or (self.stops or self.disconnects or 0) > 0
        if needs_answer and given.isdisjoint((*ITEMS, "writes")):
            [fault] = given.intersection(FAULTS)
            raise ValueError(f"{fault} belongs to a step with an answer, such as says")

    @property
    def failure(self) -> Failure | None:
        return Failure(self.fails) if isinstance(self.fails, int) else self.fails

    @property
    def has_answer(self) -> bool:
        """Whether the client receives the whole answer, and does not ask again."""
        return self.fails is None and self.disconnects is None and self.stops is None

    @property
    def results(self) -> Sequence[ToolResult]:
        """The results of its hosted calls, in order."""
        return [ToolResult(call.returns) for call in self.calls if call.returns is not None]


class ScriptRule(_Fields, frozen=True, kw_only=True):
    """The answers to the requests that meet its conditions, turn by turn."""

    when: Annotated[When | str, Meta(description="The conditions; a text alone is `text`.")] = When()
    family: Annotated[str, Meta(description="Write the format of this family of models; harmony for gpt-oss.")] | None = None
    per: Annotated[
        Literal["conversation", "server"],
        Meta(description="What counts the steps: the turns of each conversation, or all requests of a test."),
    ] = "conversation"
    steps: list[ScriptStep]

    def __post_init__(self) -> None:
        """Refuse an unknown family, a refusal in the format of one, and raw output without one."""
        if self.family is not None:
            family_format(self.family)
            if any(step.refuses is not None for step in self.steps):
                raise ValueError("refuses has no place in the format of a family: a refusal is a field of the API")
        elif any(step.writes is not None for step in self.steps):
            raise ValueError("writes needs a family, whose format it is in")

    @property
    def conditions(self) -> When:
        return When(text=self.when) if isinstance(self.when, str) else self.when

    @property
    def format(self) -> Format:
        return "chat" if self.family is None else family_format(self.family)

    @property
    def turns(self) -> list[list[int]]:
        """The indices of the steps of each turn: faults, each of which the same request meets once, and the answer.

        If the steps are counted `per` server, each is a turn.
        """
        turns: list[list[int]] = []
        for index, _ in enumerate(self.steps):
            if index == 0 or self.per == "server" or self.steps[index - 1].has_answer:
                turns.append([])
            turns[-1].append(index)
        return turns


class RecordedStep(ScriptStep, frozen=True, kw_only=True):
    """A recorded turn."""

    turn: RecordedTurn

    @property
    def results(self) -> Sequence[ToolResult]:
        return self.turn.results


class RecordedRule(ScriptRule, frozen=True, kw_only=True):
    """A recording: any user's message begins with its first turn."""

    recorded_format: Format

    @property
    def format(self) -> Format:
        return self.recorded_format


class Script(_Fields, frozen=True):
    """A file of rules, the first of which that matches a request answers it."""

    rules: list[ScriptRule]
    schema: str | None = msgspec.field(default=None, name="$schema")
    """The address of the JSON schema, for an editor."""


def recorded_rule(recording: Recording) -> ScriptRule:
    """Return the rule that replays a recording, whatever the request."""
    return RecordedRule(steps=[RecordedStep(turn=turn) for turn in recording.turns], recorded_format=recording.format)


def read_rules(file: Path, data: bytes | None = None) -> Sequence[ScriptRule]:
    """Read the rules of a script, as TOML if the name of the file ends so, or the rule of a recording; `data` is its content.

    Raises:
        ScriptError: The script is invalid.
        RecordingError: The recording is invalid.
        OSError: The file cannot be read.
    """
    data = file.read_bytes() if data is None else data
    if file.suffix == ".jsonl" or b'"interlock_recording"' in data[:512]:
        return [recorded_rule(read(data.splitlines()))]
    is_toml = file.suffix == ".toml"
    try:
        value = tomllib.loads(data.decode()) if is_toml else json.loads(data, object_pairs_hook=_distinct)
        rules = msgspec.convert(value, Script).rules
    except msgspec.ValidationError as error:
        raise ScriptError(explain(error, Script)) from None
    except (ValueError, RecursionError) as error:
        raise ScriptError(f"not {'TOML' if is_toml else 'JSON'}: {error}") from None
    for index, rule in enumerate(rules):
        if not rule.steps:
            raise ScriptError(f"rule {index + 1}: it has no steps")
        for number, step in enumerate(rule.steps, 1):
            if step == ScriptStep(between=step.between):
                raise ScriptError(f"rule {index + 1}, step {number}: it does nothing")
        if (other := find_cover(rules[:index], rule.conditions)) is not None:
            raise ScriptError(f"rule {index + 1} is never used: rule {other + 1} answers all of its requests")
    return rules


def find_cover(rules: Sequence[ScriptRule], when: When) -> int | None:
    """Return the index of the rule that answers all requests with these conditions, so that a later rule never does."""
    return next((index for index, rule in enumerate(rules) if rule.conditions.covers(when)), None)


def checked(value: V) -> V:
    """Return an object of a script that was made in Python, if a file may have it, too.

    Raises:
        ValueError: It has a field that a file may not have.
    """
    try:
        msgspec.convert(msgspec.to_builtins(value), type(value))
    except msgspec.ValidationError as error:
        raise ValueError(explain(error, type(value))) from None
    except TypeError as error:
        raise ValueError(str(error)) from None
    return value


def _distinct(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return an object of JSON, unless a name is repeated."""
    names = [name for name, _ in pairs]
    if len({*names}) < len(names):
        raise ValueError(f"the name {next(name for name in names if names.count(name) > 1)!r} is repeated in an object")
    return dict(pairs)


def script_schema() -> dict[str, object]:
    """Return the JSON schema of scripts."""
    schema = msgspec.json.schema(Script, schema_hook=lambda _: {"description": "Any JSON value."})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


@frozen
class Conversation:
    """The facts of a request that conditions match."""

    model: str
    tools: Sequence[str]
    """The names of the tools on offer."""
    texts: Sequence[str | None]
    """The user's message before each turn of the model, with the one that is requested; None if it answers only tools."""
    instructions: str = ""
    """The system prompt: the instructions, and the messages of the system and the developer."""

    @classmethod
    def of(cls, request: ResponseRequest, items: Sequence[JsonItem], turns: Mapping[object, object]) -> Conversation:
        """Return the conversation of a request, whose input is at the end of `items`; `turns` has the turn of each known call."""
        prompts = [text_of(item.get("content")) for item in items if item.get("role") in ("system", "developer")]
        instructions = "\n".join(filter(None, [request.instructions, *prompts]))
        return cls(request.model, [*_tool_names(request.tools)], _texts(items, turns), instructions)

    def offers(self, call: Call) -> bool:
        """Return whether the request offers the tool of a call: by its name, or by the name of its server or namespace."""
        hosted = [each for each in HOSTED_CALLS.values() if {*each.types} & {*self.tools}]
        offered = {*self.tools, *(name for each in hosted for name in (each.name, each.recipient))}
        return call.returns is not None or call.name in offered or any(call.name.startswith(f"{each}__") for each in self.tools)

    @property
    def turn(self) -> int:
        """The number of the turn that the request asks for, from 1."""
        return len(self.texts)

    @property
    def text(self) -> str:
        """The user's last message."""
        return next((text for text in reversed(self.texts) if text is not None), "")

    def starts(self, when: When, index: int) -> bool:
        """Return whether a rule with these conditions starts at a turn: where the user speaks, unless it names the turn."""
        text = self.texts[index]
        return (
            (text is not None or index == 0 if when.turn is None else when.turn == index + 1)
            and _is_part(when.text, text)
            and (when.pattern is None or (text is not None and re.search(when.pattern, text) is not None))
            and _is_part(when.instructions, self.instructions)
            and (when.model is None or when.model == self.model)
            and {*when.tools} <= {*self.tools}
        )

    def find(self, rules: Sequence[ScriptRule]) -> tuple[int, int] | None:
        """Return the index of the rule that answers, and how many turns of the model it has answered before, or None.

        It is the first rule that starts at the user's last message, or else at the one before, and so on.
        """
        for index in reversed(range(self.turn)):
            for number, rule in enumerate(rules):
                if self.starts(rule.conditions, index):
                    return number, self.turn - 1 - index
        return None

    def describe(self) -> str:
        tools = f", tools {', '.join(self.tools)}" if self.tools else ""
        instructions = f", instructions {self.instructions[:200]!r}" if self.instructions else ""
        return f"model {self.model}, turn {self.turn}, text {self.text[:200]!r}{instructions}{tools}"


def _tool_names(tools: Sequence[object]) -> Iterator[str]:
    for tool in map(members, tools):
        yield str(tool.get("name") or tool.get("server_label") or tool.get("type"))
        yield from _tool_names(elements(tool.get("tools")))


def _texts(items: Sequence[JsonItem], turns: Mapping[object, object]) -> list[str | None]:
    """Return the `texts` of a conversation. A model's turn ends where the user or a tool answers, also a tool of the server.

    The calls of a turn in `turns` belong together, although a client may write each with its output.
    """
    texts: list[str | None] = [None]
    seen: set[object] = set()
    part: Literal["input", "hosted", "output"] = "input"
    for item in items:
        if is_from_user(item):
            text = text_of(item.get("content"))
            texts[-1] = text if texts[-1] is None else f"{texts[-1]}\n{text}"
            part = "input"
        elif is_client_output(item):
            part = "input"
        elif (turn := turns.get(item.get("call_id"))) is not None and turn in seen:
            continue
        elif item.get("type") != "message" or item.get("role") == "assistant":
            seen.add(turn)
            now: Literal["hosted", "output"] = "hosted" if item.get("type") in HOSTED_CALLS else "output"
            if part == "input" or (part, now) == ("hosted", "output"):
                texts.append(None)
            part = now
    return texts


def _unanswered(items: Sequence[JsonItem]) -> list[str]:
    """Return the calls without an output, with their tools. Calls of async tools have one, and one that was cut needs none."""
    answered = {item.get("call_id") for item in items if is_client_output(item)}
    return [
        f"{item['call_id']} ({item.get('name') or item['type']})"
        for item in items
        if item.get("call_id")
        and item["call_id"] not in answered
        and item.get("status") != "incomplete"
        and not is_client_output(item)
        and waits_for_client(item)
    ]


# The engine.

SCRIPTED: Final = "interlock-script"

CONNECTION: Final = "interlock.scripted_connection"
"""The key of the `ScriptedConnection` in the scope of a connection."""
MOCKED: Final = "interlock.mocked_requests"
"""The key of the requests of a mock in the scope of a connection, which adds its own. Then the log has no warnings."""

_REMEMBERED: Final = 10_000
"""The most turns with faults, and the most calls, that an engine remembers of a test."""
_SHOWN: Final = 1_000
"""The most requests that an engine remembers of a test, with the streams that answered them."""
_TESTS: Final = 1_000
"""The most tests that an engine remembers."""
SECRETS: Final = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})
"""The headers whose values `/interlock/requests` does not list."""
_WORDS: Final = re.compile(r"\s*\S+|\s+")
"""Matches the text of a chunk: a word with the space before it."""


@define(eq=False, kw_only=True)
class ScriptedRequest:
    """A request that a script has received: a POST, one over a WebSocket, or one that no route serves.

    `model`, `text`, `instructions`, `tools` and `turn` are what rules match; the turn is 0 if the request did not ask the model,
    or was invalid.
    """

    path: str = ""
    headers: Headers = field(factory=Headers, repr=False)
    body: bytes = b""
    """The body, or the JSON of a frame of a WebSocket."""
    model: str = ""
    text: str = ""
    instructions: str = ""
    tools: Sequence[str] = ()
    turn: int = 0
    rule: str | None = None
    """The conditions of the rule that answered it; None if none did."""
    steps: Sequence[int] = ()
    """The numbers of the steps of this rule that answered it, from 1; several if it has hosted calls."""
    problem: str = ""
    """Why it had no answer."""
    unoffered: Sequence[str] = ()
    """The tools that the script has called, and that the request does not offer."""
    unanswered: Sequence[str] = ()
    """The calls in its conversation that have no output, such as `call_1 (get_weather)`."""
    is_spoiled: bool = False
    """Whether its scenario has broken the stream."""
    read: Mapping[str, object] | None = field(default=None, repr=False)
    """What the engine read of it, in the form of Responses."""
    _written: bytearray | None = field(default=None, init=False, repr=False)
    """The stream so far."""
    _is_complete: bool = field(default=False, init=False)
    """Whether the stream has ended, and did not break."""

    @property
    def stream(self) -> bytes | None:
        """What was sent of the stream that answers it, over a WebSocket as server-sent events; None if a whole answer does."""
        return None if self._written is None else bytes(self._written)

    @property
    def json(self) -> Mapping[str, Json]:
        """The body."""
        return members(loads(self.body))

    def add(self, data: bytes, *, is_last: bool) -> None:
        """Add to the stream that answers it."""
        self._written = self._written or bytearray()
        self._written += data
        self._is_complete = is_last

    def findings(self) -> Sequence[Finding]:
        """Return the errors of its stream; none if it has no complete one, or if the scenario has spoiled it."""
        stream = self.stream
        if stream is None or not self._is_complete or self.is_spoiled:
            return []
        judge = AnyJudge()
        judge.feed(stream)
        return [finding for finding in judge.end().findings if finding.severity == "error"]

    def listed(self) -> dict[str, object]:
        """Return what `/interlock/requests` lists of it; the body as the engine read it, if the client has compressed it."""
        try:
            body: object = self.json
        except ValueError:
            body = self.body.decode(errors="replace") if self.read is None else self.read
        return {
            "body": body,
            **{name: getattr(self, name) for name in LISTED},
            "headers": {name: "***" if name in SECRETS else value for name, value in self.headers.items()},
            "stream": None if self.stream is None else self.stream.decode(errors="replace"),
            "errors": [describe_finding(finding) for finding in self.findings()],
        }


LISTED: Final = ("path", "model", "text", "instructions", "tools", "turn", "rule", "steps", "problem", "unoffered", "unanswered")
"""The fields of a request that `/interlock/requests` lists as they are."""


@define(eq=False)
class ScriptedConnection:
    """A connection whose requests a script answers: its one HTTP request, or those of a WebSocket, which may overlap."""

    test: str = field(default="", kw_only=True)
    """The name before `/v1` in its URL. The requests of each name have rules, steps and a list of their own."""
    step: ScriptStep | None = field(default=None, init=False)
    """The step that answers the last request; its fault spoils the answer."""
    sent: int = field(default=0, init=False)
    """The events of the answer since the step began."""

    @property
    def warns(self) -> bool:
        """Whether the log has what is wrong with the script."""
        return True

    def begin(self, body: Mapping[str, object]) -> ScriptedRequest:
        """Return the request with this body."""
        del body
        return ScriptedRequest()

    def refuse(self, reason: str) -> None:
        """Note that the script could not spoil the last answer."""


@define(eq=False)
class ScriptProgress:
    """How far the requests of a test have come in its rules."""

    rules: Sequence[ScriptRule]
    requests: deque[ScriptedRequest] = field(factory=lambda: deque[ScriptedRequest](maxlen=_SHOWN), init=False, repr=False)
    """The last requests."""
    _served: Counter[int] = field(factory=Counter[int], init=False)
    """How many steps were taken of each rule that counts `per` server."""
    _attempts: dict[object, int] = field(factory=dict[object, int], init=False, repr=False)
    """How many steps were taken of each turn of a conversation that has faults, of the last `_REMEMBERED` of these."""
    turns: dict[object, object] = field(factory=dict[object, object], init=False, repr=False)
    """The turn of each call for the client, by `call_id`, of the last `_REMEMBERED` calls: the first `call_id` of the turn."""

    def take(self, index: int, turn: int, items: Sequence[JsonItem]) -> int:
        """Take the step for a turn of a rule, or its next step if it counts `per` server, and return its index in the rule.

        A conversation that asks again after a fault takes the next step of the turn.

        Raises:
            EngineError: The rule has no such step.
        """
        rule, turns = self.rules[index], self.rules[index].turns
        if rule.per == "server":
            turn, self._served[index] = self._served[index], self._served[index] + 1
        if turn >= len(turns):
            counted = f"turn {turn + 1}, counted from the user's message, whichever rule answered"
            place = f"request {turn + 1}" if rule.per == "server" else counted
            raise EngineError(f"Rule {index + 1} of the script ({rule.conditions}) has no step for its {place}.")
        steps, attempt = turns[turn], 0
        if len(steps) > 1:
            key = index, turn, hashlib.sha256(dumps([{**item, "id": None} for item in items])).digest()
            attempt = self._attempts.pop(key, 0)
            self._attempts[key] = attempt + 1
            if len(self._attempts) > _REMEMBERED:
                del self._attempts[next(iter(self._attempts))]  # the least recent
        return steps[min(attempt, len(steps) - 1)]

    def note_calls(self, output: Iterable[JsonItem]) -> None:
        """Note which calls of a response wait for the client: those of its last turn."""
        calls = [item["call_id"] for item in output if item.get("call_id") and waits_for_client(item)]
        self.turns |= dict.fromkeys(calls, calls[0] if calls else None)
        while len(self.turns) > _REMEMBERED:
            del self.turns[next(iter(self.turns))]  # the oldest

    def listed(self) -> dict[str, object]:
        """Return the last requests, and the verdict on them."""
        return {"requests": [each.listed() for each in self.requests], "verdict": verdict_of(self.rules, self.requests)}


@define(eq=False)
class ScriptedEngine(Engine):
    """An engine with rules, of which the first that matches a request answers it.

    Without `only`, a request may name any model. The rate is in tokens per second and turn, where an output without tokens
    counts as one; 0 for no limit.
    """

    rules: Sequence[ScriptRule]
    only: Sequence[str] = ()
    rate: float = field(default=0.0, kw_only=True)
    _tests: dict[str, ScriptProgress] = field(factory=dict[str, ScriptProgress], init=False, repr=False)
    """The progress of the last `_TESTS` tests, by name."""
    has_faults = True
    generate = Engine.generate_alone
    _generations: WeakValueDictionary[int, ScriptedGeneration] = field(
        factory=WeakValueDictionary[int, "ScriptedGeneration"], init=False, repr=False
    )
    """The generations in progress, by the identity of their requests, which they keep."""

    def __attrs_post_init__(self) -> None:
        self.models = self.only or [*dict.fromkeys([SCRIPTED, *(rule.conditions.model or SCRIPTED for rule in self.rules)])]
        self.format = self.rules[0].format if self.rules else "chat"

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
        declared, progress = request.declare_tools(items), self.progress(scripted.test)
        parser = parser_for(self.format, declared)
        generation = ScriptedGeneration(
            parser, engine=self, progress=progress, request=request, declared=declared, connection=scripted
        )
        self._generations[id(request)] = generation
        return generation

    def progress(self, test: str = "") -> ScriptProgress:
        """Return the progress of a test, which begins at the first steps of the script."""
        progress = self._tests.pop(test, None) or ScriptProgress(self.rules)
        self._tests[test] = progress
        if len(self._tests) > _TESTS:
            del self._tests[next(iter(self._tests))]  # the least recent
        return progress

    def knows(self, test: str) -> bool:
        """Return whether a request, or a script, has come for a test."""
        return test in self._tests

    def restart(self, test: str = "", rules: Sequence[ScriptRule] | None = None) -> None:
        """Forget the requests of a test, and begin at the first steps again, of its rules or of new ones."""
        self._tests[test] = ScriptProgress(self.progress(test).rules if rules is None else rules)

    def results(self, request: ResponseRequest) -> deque[ToolResult]:
        """Return the results of the hosted calls of a response in progress, to which each of its steps adds its own."""
        generation = self._generations.get(id(request))
        return deque() if generation is None else generation.results


def verdict_of(rules: Sequence[ScriptRule], requests: Iterable[ScriptedRequest]) -> dict[str, list[str]]:
    """Return the verdict on the requests of a test: three lists, all of which are empty if everything went by the script.

    `problems` are why requests had no answer, which calls have no output although the model was asked again, and where streams
    are not legal that no scenario has spoiled; `unoffered` the tools that the script called and the request did not offer; and
    `unused` the steps that no request has taken, and how many requests took the first step of the rule, if several did.
    """
    requests = [*requests]
    return {
        "problems": [each.problem for each in requests if each.problem]
        + [*dict.fromkeys(f"{each.path}: {call} has no output" for each in requests for call in each.unanswered)]
        + [
            f"the stream of {each.path} is not legal:{describe_finding(finding)}"
            for each in requests
            for finding in each.findings()
        ],
        "unoffered": [*dict.fromkeys(name for each in requests for name in each.unoffered)],
        "unused": [*_unused(rules, Counter((each.rule, number) for each in requests for number in each.steps))],
    }


def _unused(rules: Sequence[ScriptRule], taken: Counter[tuple[str | None, int]]) -> Iterator[str]:
    """Yield the steps that no request has taken: a rule that starts again and again does not come to its later ones."""
    for index, rule in enumerate(rules, 1):
        conditions = str(rule.conditions)
        starts = taken[conditions, 1]
        again = f"; {starts} requests took step 1" if starts > 1 else ""
        for number, _ in enumerate(rule.steps, 1):
            if not taken[conditions, number]:
                yield f"rule {index}, step {number} ({conditions}){again}"


@define(eq=False)
class ScriptedGeneration(Generation):
    """The generation of one response by the rule that its conversation matches."""

    engine: ScriptedEngine = field(kw_only=True)  # pyright: ignore[reportIncompatibleVariableOverride] - it is never assigned
    progress: ScriptProgress = field(kw_only=True, repr=False)
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
        self._conversation = conversation = Conversation.of(self.request, turn.items, self.progress.turns)
        found = conversation.find(self.progress.rules)
        rule = None if found is None else self.progress.rules[found[0]]
        body = self.request.forward(())
        self._asked = asked = self.connection.begin(body)
        asked.model, asked.text, asked.instructions = conversation.model, conversation.text, conversation.instructions
        asked.tools, asked.turn = conversation.tools, conversation.turn
        asked.rule = None if rule is None else str(rule.conditions)
        asked.read = body
        if found is None:
            listed = "; ".join(f"{number}. {rule.conditions}" for number, rule in enumerate(self.progress.rules, 1)) or "none"
            raise self._refuse(f"No rule of the script matches. The request: {conversation.describe()}. The rules: {listed}.")
        self._index, self._turn = found
        self.parser = parser_for(self.progress.rules[self._index].format, self.declared)
        try:
            self._take(turn)
        except EngineError as error:
            raise self._refuse(f"{error} The request: {conversation.describe()}.") from error
        return {}

    def _refuse(self, reason: str) -> ApiError:
        self._asked.problem = reason
        return ApiError(400, reason, code="no_rule_matches")

    def _take(self, turn: Turn) -> ScriptStep:
        index = self.progress.take(self._index, self._turn + turn.index, turn.items)
        self._step = self.progress.rules[self._index].steps[index]
        self._asked.steps = [*self._asked.steps, index + 1]
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
        del turn
        if self._step is not None and (failure := self._step.failure):
            await asyncio.sleep(self._step.waits)
            kind = "invalid_request_error" if failure.status < 500 else "server_error"  # noqa: PLR2004 - HTTP's classes
            kind = "rate_limit_error" if failure.status == 429 else kind  # noqa: PLR2004 - as above
            raise ApiError(failure.status, failure.message, kind, retry_after=failure.retry_after)

    async def count(self, turn: Turn) -> int:
        scripted = 0 if self._step is None else self._step.uses.input_tokens
        return scripted or await super().count(turn)

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Write the step of a turn.

        Raises:
            EngineError: The rule has no such step, or the response has begun and the step fails it.
        """
        try:
            step, self._step = self._step or self._take(turn), None
        except EngineError as error:
            self._asked.problem = str(error)
            raise
        if not turn.index and not self._is_for_server:
            self._asked.unanswered = _unanswered(turn.items)
        if step.failure is not None:
            raise EngineError(step.failure.message)
        if isinstance(step, RecordedStep):
            outputs: Sequence[EngineOutput] = step.turn.outputs
        else:
            outputs = await write_step(step, self.progress.rules[self._index].format, await self.count(turn))
        async for output in play(limit_tokens(outputs, turn.budget), self.engine.rate, step.waits, step.between):
            yield output

    @property
    def _is_for_server(self) -> bool:
        """Whether the request is for a summary or a cache, and no agent reads the answer: calls may wait meanwhile."""
        return self.request.prewarms or any(text_of(item.get("content")) == SUMMARIZE for item in self.request.input[-1:])

    def log(self, response: Mapping[str, object]) -> None:
        output = [*map(members, elements(response["output"]))]
        self.progress.note_calls(output)
        names = [str(item.get("name") or item["type"]) for item in output if item.get("call_id") and waits_for_client(item)]
        if self.results and names:
            self._asked.problem = f"The script has a result that no hosted tool returned; the client runs {', '.join(names)}."


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
    uses = step.uses
    inputs = (uses.input_tokens or prompt, uses.cached_tokens, uses.cache_write_tokens)
    counts = (*inputs, uses.output_tokens or tokens, uses.reasoning_tokens or reasoning)
    outputs = [EngineOutput(chunk, None, *counts) for chunk in chunks]
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
        for key, text in (("reasoning", step.thinks), ("content", says), ("refusal", step.refuses)):
            for word in _WORDS.findall(text or ""):
                yield Chunk(delta={key: word})
        for index, (name, arguments) in enumerate(calls):
            yield Chunk(delta={"tool_calls": [{"index": index, "function": {"name": name, "arguments": ""}}]})
            for word in _WORDS.findall(arguments):
                yield Chunk(delta={"tool_calls": [{"index": index, "function": {"arguments": word}}]})


def _in_family(step: ScriptStep, says: str | None, calls: Sequence[tuple[str, str]], output_format: Tagged) -> str:
    from interlock.parsers.families import family  # noqa: PLC0415 - few scripts have families
    from interlock.parsers.families.reference_encoders import WrittenItem, encode  # noqa: PLC0415 - as above

    items = [
        *([] if step.thinks is None else [WrittenItem("reasoning", step.thinks)]),
        *([] if says is None else [WrittenItem("message", says)]),
        *(WrittenItem("call", arguments, name) for name, arguments in calls),
    ]
    thinking = family(output_format.tool_parser, output_format.reasoning_parser).starts == "thinking"
    return encode(items, output_format.tool_parser or "hermes", output_format.reasoning_parser, thinking=thinking)


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
    text = chunk.text
    if text:
        is_exact = "".join(texts) == text
        text = "".join(texts[:count]) if is_exact else text[: len(text) * count // len(chunk.token_ids)]
    return Chunk(chunk.token_ids[:count], text, entries and entries[:count], chunk.delta if count else None)
