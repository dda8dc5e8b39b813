"""The format of scripts: rules that say which requests get which answers, for `interlock serve --script` and the mock for tests.

docs/guides/mock.md describes the format. A recording of an engine's output is a script of one rule that any request matches.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec
from attrs import frozen
from msgspec import Meta, Struct

from interlock.events.json import elements, members
from interlock.fsm.table import InterlockError
from interlock.parsers import Format, Tagged
from interlock.serving.engines.prompt import is_client_output, is_from_user
from interlock.serving.engines.recordings import RecordedTurn, Recording, ToolResult, read
from interlock.serving.requests.create import ResponseRequest
from interlock.serving.requests.input_items import JsonItem, text_of
from interlock.serving.requests.tool_offer import HOSTED_CALLS

Ending: TypeAlias = Literal["stop", "length", "content_filter", "abort", "error"]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=86_400)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
SOME: Final = Meta(min_length=1)
Name: TypeAlias = Annotated[str, SOME]

V = TypeVar("V", bound=Struct)

HARMONY_NAMES: Final = ("gpt_oss", "harmony")
"""The family whose models write harmony, and the name of the format."""

FAULTS: Final = ("fails", "disconnects", "stops", "breaks")
"""The fields of a step that spoil its answer; a step has at most one of them."""


def family_format(name: str) -> Literal["harmony"] | Tagged:
    """Return the format that the models of a family write.

    Raises:
        ValueError: The family is unknown; the message names the known ones.
    """
    from interlock.parsers.families import DEFAULT_REASONING  # noqa: PLC0415 - few scripts have families

    if name in HARMONY_NAMES:
        return "harmony"
    if name not in DEFAULT_REASONING:
        raise ValueError(f"unknown family {name!r}; choose one of {', '.join([*HARMONY_NAMES, *DEFAULT_REASONING])}")
    return Tagged(name, DEFAULT_REASONING[name])


class ScriptError(InterlockError):
    """A script is invalid; the message names the place."""


class _Fields(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """An object of the file."""


class When(_Fields, frozen=True):
    """The conditions of a rule, all of which a request must meet."""

    text: Annotated[str, SOME, Meta(description="A part of the user's message; upper and lower case are the same.")] | None = None
    pattern: Annotated[str, SOME, Meta(description="A regular expression that is found in the user's message.")] | None = None
    tools: Annotated[list[Name], Meta(description="The names of tools that the request offers, among others.")] = []
    model: Annotated[str, SOME, Meta(description="The name of the model.")] | None = None
    turn: Annotated[int, Meta(ge=1, description="The number of the model's turn in the conversation, from 1.")] | None = None

    def __post_init__(self) -> None:
        """Refuse an invalid pattern."""
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            raise ValueError(f"pattern: {error}") from None

    def covers(self, other: When) -> bool:
        """Return whether each request that meets other conditions meets these, too."""
        return (
            self.turn == other.turn
            and self.model in (None, other.model)
            and self.pattern in (None, other.pattern)
            and {*self.tools} <= {*other.tools}
            and (self.text is None or (other.text is not None and self.text.casefold() in other.text.casefold()))
        )

    def __str__(self) -> str:
        """Return the conditions in words."""
        conditions = [
            *([f"text {self.text!r}"] if self.text is not None else []),
            *([f"pattern {self.pattern!r}"] if self.pattern is not None else []),
            *([f"tools {', '.join(self.tools)}"] if self.tools else []),
            *([f"model {self.model}"] if self.model is not None else []),
            *([f"turn {self.turn}"] if self.turn is not None else []),
        ]
        return "; ".join(conditions) or "any request"


class Call(_Fields, frozen=True):
    """A call of a tool."""

    name: Name
    arguments: Annotated[dict[str, object] | str, Meta(description="An object, or text that is sent as it is.")] = {}
    returns: Annotated[str, Meta(description="The result of a hosted tool.")] | None = None


class Failure(_Fields, frozen=True):
    """An HTTP error in place of an answer."""

    status: Annotated[int, Meta(ge=400, le=599)]
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
    calls: list[Call] = []
    writes: Annotated[str, Meta(description="The raw output, in the format of the rule's family.")] | None = None
    ends: Annotated[Ending, Meta(description="Why the model's turn ends.")] = "stop"
    fails: Failure | None = None
    disconnects: Annotated[Count, Meta(description="Break the connection after this many events.")] | None = None
    stops: Annotated[Count, Meta(description="End the stream after this many events.")] | None = None
    breaks: Annotated[str, Meta(description="Break this rule of docs/evidence/rules.md, such as R7, in the stream.")] | None = (
        None
    )

    def __post_init__(self) -> None:
        """Refuse fields that exclude each other, and a rule that no stream can break."""
        faults = [name for name in FAULTS if getattr(self, name) is not None]
        if len(faults) > 1:
            raise ValueError(f"{faults[0]} and {faults[1]} exclude each other: a step has one fault")
        if self.writes is not None and self.has_items:
            raise ValueError("writes is the whole output, without thinks, says and calls")
        if self.breaks is not None:
            from interlock.testing.streams import RULES  # noqa: PLC0415 - few scripts break streams

            if self.breaks not in RULES:
                raise ValueError(f"breaks: {self.breaks!r} is not one of {', '.join(RULES)}")

    @property
    def has_items(self) -> bool:
        """Whether the step has reasoning, a message or calls, instead of raw output."""
        return (self.thinks, self.says, self.calls) != (None, None, [])

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
        Meta(description="What counts the steps: the turns of each conversation, or all requests to the server."),
    ] = "conversation"
    steps: list[ScriptStep]

    def __post_init__(self) -> None:
        """Refuse an unknown family, and raw output without one."""
        if self.family is not None:
            family_format(self.family)
        elif any(step.writes is not None for step in self.steps):
            raise ValueError("writes needs a family, whose format it is in")

    @property
    def conditions(self) -> When:
        """The conditions of the rule."""
        return When(text=self.when) if isinstance(self.when, str) else self.when

    @property
    def format(self) -> Format:
        """The format of the output."""
        return "chat" if self.family is None else family_format(self.family)

    @property
    def turns(self) -> list[list[ScriptStep]]:
        """The steps of each turn of the model: faults, each of which the same request meets once, and the answer.

        If the steps are counted `per` server, each is a turn.
        """
        if self.per == "server":
            return [[step] for step in self.steps]
        turns: list[list[ScriptStep]] = []
        for step in self.steps:
            if turns and not turns[-1][-1].has_answer:
                turns[-1].append(step)
            else:
                turns.append([step])
        return turns


class RecordedStep(ScriptStep, frozen=True, kw_only=True):
    """A recorded turn."""

    turn: RecordedTurn

    @property
    def results(self) -> Sequence[ToolResult]:
        """The recorded results."""
        return self.turn.results


class RecordedRule(ScriptRule, frozen=True, kw_only=True):
    """A recording: any user's message begins with its first turn."""

    recorded_format: Format

    @property
    def format(self) -> Format:
        """The format of the recorded output."""
        return self.recorded_format


class Script(_Fields, frozen=True):
    """A file of rules, the first of which that matches a request answers it."""

    rules: Annotated[list[ScriptRule], SOME]
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
        raise ScriptError(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise ScriptError(f"not {'TOML' if is_toml else 'JSON'}: {error}") from None
    for index, rule in enumerate(rules):
        if not rule.steps or ScriptStep() in rule.steps:
            raise ScriptError(f"a rule has steps, and each does something - at `$.rules[{index}].steps`")
        if (other := find_cover(rules[:index], rule.conditions)) is not None:
            raise ScriptError(f"rule {other + 1} answers all of its requests - at `$.rules[{index}]`")
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
    except (msgspec.ValidationError, TypeError) as error:
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
    """The facts of a request that conditions match.

    Args:
        model: The model.
        tools: The names of the tools on offer.
        texts: For each turn of the model, and for the one that the request asks for, the user's message before it; None if the
            turn answers only results of tools.
    """

    model: str
    tools: Sequence[str]
    texts: Sequence[str | None]

    @classmethod
    def of(cls, request: ResponseRequest, items: Sequence[JsonItem]) -> Conversation:
        """Return the conversation of a request, whose input is at the end of `items`."""
        return cls(request.model, [*_tool_names(request.tools)], _texts(items))

    def offers(self, call: Call) -> bool:
        """Return whether the request offers the tool of a call: by its name, or by the name of its server or namespace."""
        hosted = [each for each in HOSTED_CALLS.values() if {*each.types} & {*self.tools}]
        offered = {*self.tools, *(name for each in hosted for name in (each.function["name"], each.recipient))}
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
            and (when.text is None or (text is not None and when.text.casefold() in text.casefold()))
            and (when.pattern is None or (text is not None and re.search(when.pattern, text) is not None))
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
        """Return the facts in words."""
        tools = f", tools {', '.join(self.tools)}" if self.tools else ""
        return f"model {self.model}, turn {self.turn}, text {self.text[:200]!r}{tools}"


def _tool_names(tools: Sequence[object]) -> Iterator[str]:
    for tool in map(members, tools):
        yield str(tool.get("name") or tool.get("server_label") or tool.get("type"))
        yield from _tool_names(elements(tool.get("tools")))


def _texts(items: Sequence[JsonItem]) -> list[str | None]:
    """Return the `texts` of a conversation. A model's turn ends where the user or a tool answers, also a tool of the server."""
    texts: list[str | None] = [None]
    part: Literal["input", "hosted", "output"] = "input"
    for item in items:
        if is_from_user(item):
            text = text_of(item.get("content"))
            texts[-1] = text if texts[-1] is None else f"{texts[-1]}\n{text}"
            part = "input"
        elif is_client_output(item):
            part = "input"
        elif item.get("type") != "message" or item.get("role") == "assistant":
            now: Literal["hosted", "output"] = "hosted" if item.get("type") in HOSTED_CALLS else "output"
            if part == "input" or (part, now) == ("hosted", "output"):
                texts.append(None)
            part = now
    return texts
