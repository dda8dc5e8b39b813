"""The cases: the requests, and what their answers must show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Literal, TypeAlias, get_args

from attrs import evolve, field, frozen

from interlock.events.items import FunctionCall, FunctionCallOutput
from interlock.events.json import is_object, parse
from interlock.events.shapes import name_of
from interlock.testing.conformance.apis import Body, Output, TestedApi

Result: TypeAlias = Literal["passes", "fails", "not served", "not seen"]
"""`not served`: the server refuses or ignores the request; `not seen`: the model did not do what the case needs."""
Outcome: TypeAlias = tuple[Result, str]
"""A result, and a note that explains it."""
PASSES: Final[Outcome] = ("passes", "")

LIMIT: Final = 16
"""The least limit of tokens that OpenAI accepts."""
TRUNCATED: Final = frozenset({"incomplete", "length", "max_tokens"})
"""The reasons of an answer that reached its limit of tokens."""
OPEN: Final = ("queued", "in_progress")
ENDED: Final = ("completed", "incomplete")
"""The statuses of a response that has not ended, and of one that has ended by itself."""
ANY: Final = object()
"""Stands for any value of a field that is true: not null, zero or empty."""


@frozen
class Reply:
    """An answer: its content, why it ended, its tokens (input, output, total), and its bytes."""

    output: Output
    reason: str
    usage: tuple[int, int, int]
    data: bytes


Check: TypeAlias = Callable[[Reply], Outcome]


def says_text(reply: Reply) -> Outcome:
    """Check that there is text."""
    return PASSES if reply.output.text else ("not seen", "the model writes no text")


def reasons(reply: Reply) -> Outcome:
    """Check that there is reasoning."""
    if reply.output.reasoning:
        return PASSES
    tag = reply.output.text.lstrip().startswith("<")
    return "not seen", "the text begins with a tag instead" if tag else "the model does not reason"


def answers(reply: Reply) -> Outcome:
    """Check that there is text, and that its tokens are counted."""
    outcome = says_text(reply)
    return counts(reply) if outcome == PASSES else outcome


def counts(reply: Reply) -> Outcome:
    """Check that the usage adds up."""
    tokens, output, total = reply.usage
    return PASSES if tokens > 0 and output > 0 and total == tokens + output else ("fails", f"usage is {[*reply.usage]}")


def calls(reply: Reply, names: Sequence[str], *, most: int = 9, forced: bool = False) -> Outcome:
    """Check that these tools are called, with at most so many calls; if the request has `forced` one, an answer without fails."""
    called = [name for name, _ in reply.output.calls]
    if len(called) > most:
        return "fails", f"{len(called)} calls: {', '.join(called)}"
    if forced and reply.reason not in TRUNCATED and not set(called) & set(names):
        return "fails", f"calls {', '.join(called) or 'nothing'}"
    missing = [name for name in names if name not in called]
    return ("not seen", f"the model does not call {', '.join(missing)}") if missing else PASSES


def writes(reply: Reply, text: str) -> Outcome:
    """Check that the text contains this one."""
    return PASSES if text in reply.output.text else ("not seen", f"the model does not write {text!r}")


def calls_nothing(reply: Reply) -> Outcome:
    """Check that no tool is called."""
    return ("fails", f"calls {reply.output.calls[0][0]}") if reply.output.calls else PASSES


def is_truncated(reply: Reply) -> Outcome:
    """Check that the limit of tokens ends the answer."""
    if reply.reason in TRUNCATED:
        return PASSES
    return ("fails", f"{reply.usage[1]} tokens instead of {LIMIT}") if reply.usage[1] > LIMIT else ("not seen", "it ends earlier")


def is_json(reply: Reply, names: Sequence[str] = ()) -> Outcome:
    """Check that the text is an object with these fields."""
    if reply.reason in TRUNCATED:
        return "not seen", "the text reaches its limit"
    value = parse(reply.output.text)
    return PASSES if is_object(value) and set(names) <= value.keys() else ("fails", f"the text is {reply.output.text[:40]!r}")


def stops(reply: Reply, stop: str) -> Outcome:
    """Check that the text does not have the stop string."""
    return ("fails", f"the text has {stop!r}") if stop in reply.output.text else PASSES


def has_logprobs(reply: Reply) -> Outcome:
    """Check that there are log probabilities."""
    if not reply.output.text:
        return "not seen", "there is no text"
    return PASSES if b'"logprob":' in reply.data.replace(b'" :', b'":') else ("not served", "there are none")


@frozen
class CaseStep:
    """A request of a case that has several, because one answer cannot show it."""

    method: str = "POST"
    path: str = ""  # after that of the API, or whole, from `/v1`; `{id}` is the id in the first answer
    fields: Body | bytes | None = None  # the request of the Responses API, or its bytes
    verbatim: bool = False  # whether other APIs receive the same fields, untranslated
    refused: Literal["", "must", "may"] = ""  # whether the server must refuse it with an error of the API, or only may
    has: Mapping[str, object] = field(
        factory=dict[str, object]
    )  # the fields of the answer, with their values, or a tuple of them
    same: Sequence[str] = ()  # the fields that must be those of the first answer
    grows: bool = False  # whether the input must have more tokens than that of the first request
    ends: Sequence[str] = ()
    """Repeat the request until the response ends; with one of these statuses, nobody can tell."""


@frozen
class Case:
    """A request that is sent twice, for a stream and for a whole answer; or its `steps`, or another `way` to send it."""

    name: str  # what it tries
    fields: Body = field(factory=dict[str, object])  # the request of the Responses API
    check: Check = says_text  # what the answer must show
    apis: Sequence[TestedApi] = get_args(TestedApi)  # which have it
    needs: str = ""  # the case that must pass, because this one shows nothing without it
    steps: Sequence[CaseStep] = ()
    way: Literal["", "socket", "disconnect", "resume"] = ""
    """`socket`: over a WebSocket, twice; `disconnect`: the client leaves the stream; `resume`: and reads the rest."""


_R: Final[Sequence[TestedApi]] = ("responses",)
_RC: Final[Sequence[TestedApi]] = ("responses", "chat")
_MC: Final[Sequence[TestedApi]] = ("messages", "chat")


def _steps(name: str, *steps: CaseStep, apis: Sequence[TestedApi] = _R, needs: str = "") -> Case:
    return Case(name, apis=apis, steps=steps, needs=needs)


def _object(**properties: str) -> Body:
    described = {name: {"type": type_} for name, type_ in properties.items()}
    return {"type": "object", "properties": described, "required": [*properties], "additionalProperties": False}


def _tool(name: str, **parameters: str) -> Body:
    return {"type": "function", "name": name, "description": "Get it.", "parameters": _object(**parameters)}


def _called(*names: str, most: int = 9, forced: bool = False) -> Check:
    return partial(calls, names=names, most=most, forced=forced)


HELLO: Final[Body] = {"input": "Say hello."}
COUNT: Final[Body] = {"input": "Count from one to twenty in words: one, two, three"}
STORY: Final[Body] = {"input": "Write a long story about a railway, with every detail that you can think of."}
WEATHER: Final = _tool("get_weather", city="string")
TOOLS: Final = [WEATHER, _tool("get_time", zone="string")]
ASK: Final[Body] = {"input": "Call get_weather with the city: Berlin", "tools": [WEATHER]}
BOTH: Final[Body] = {"input": "Call get_weather for Berlin, and also get_time for the zone: CET", "tools": TOOLS}
SQL: Final[Body] = {"type": "custom", "name": "run_sql", "description": "Run a query in SQL."}
SCHEMA: Final[Body] = {"type": "json_schema", "name": "place", "schema": _object(city="string"), "strict": True}
DIALOGUE: Final[Sequence[Body]] = (
    {"role": "user", "content": "My name is Ada."},
    {"role": "assistant", "content": "Hello, Ada."},
    {"role": "user", "content": "What is my name?"},
)
ANSWERED: Final[Sequence[Body]] = (
    {"role": "user", "content": ASK["input"]},
    {"type": name_of(FunctionCall), "call_id": "call_1", "name": "get_weather", "arguments": '{"city": "Berlin"}'},
    {"type": name_of(FunctionCallOutput), "call_id": "call_1", "output": "18 degrees and sunny"},
)
LOGPROBS: Final[Body] = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
STORED: Final = CaseStep(fields={**HELLO, "store": True}, has={"id": ANY})
BEGUN: Final = CaseStep(fields={**HELLO, "store": True, "background": True}, has={"id": ANY, "background": True})
PAGES: Final = {f"call_{n}": " ".join(f"Station {n}{lamps} has {lamps} lamps." for lamps in range(100, 250)) for n in (1, 2)}
"""The results of two calls, each of some 1,000 tokens."""
READ: Final[Body] = {
    "input": [
        {"role": "user", "content": "Call read_page for the pages 1 and 2, and repeat all that they say, word for word."},
        *(
            {"type": name_of(FunctionCall), "call_id": call, "name": "read_page", "arguments": f'{{"page": "{call[-1]}"}}'}
            for call in PAGES
        ),
        *({"type": name_of(FunctionCallOutput), "call_id": call, "output": page} for call, page in PAGES.items()),
    ],
    "tools": [_tool("read_page", page="string")],
    "max_output_tokens": 2_000,
}
"""Asks for an answer so long that a cancellation comes before its end, also if the server writes without a model."""
BEGUN_READING: Final = CaseStep(fields={**READ, "store": True, "background": True}, has={"id": ANY, "background": True})
GET: Final = CaseStep("GET", "/{id}")
REFUSED: Final = CaseStep("GET", "/{id}", refused="must")
NOBODY: Final = "resp_0123456789abcdef0123456789abcdef"
ANY_API: Final[Body] = {
    "input": "Hi.",
    "messages": [{"role": "user", "content": "Hi."}],
    "max_output_tokens": LIMIT,
    "max_tokens": LIMIT,
}


def _invalid(**fields: object) -> CaseStep:
    return CaseStep(fields={**ANY_API, **fields}, verbatim=True, refused="must")


CASES: Final[Mapping[str, Sequence[Case]]] = {
    "text": [
        Case("text", HELLO),
        Case("instructions", {**HELLO, "instructions": "You are a pirate."}),
        Case("a dialogue", {"input": DIALOGUE}),
        Case("other scripts", {"input": "Repeat: Grüße, 世界 👩‍👩‍👧 עִבְרִית"}),
        Case("usage", HELLO, counts),
        Case("reasoning", {"input": "What is 17 times 23?", "reasoning": {"effort": "low"}}, reasons),
        Case("a long text", COUNT, partial(writes, text="e")),
        Case("a stop string", {**COUNT, "stop": ["e"]}, partial(stops, stop="e"), _MC, needs="a long text"),
        Case("a limit of tokens", {**STORY, "max_output_tokens": LIMIT}, is_truncated),
        Case("log probabilities", {**HELLO, **LOGPROBS}, has_logprobs, _RC),
        Case("a JSON schema", {"input": "Name the city: Berlin", "text": {"format": SCHEMA}}, partial(is_json, names=["city"])),
        Case("a JSON object", {"input": "Answer in JSON.", "text": {"format": {"type": "json_object"}}}, is_json, _RC),
    ],
    "tools": [
        Case("a call", ASK, _called("get_weather")),
        Case("a required call", {**ASK, "tool_choice": "required"}, _called("get_weather", forced=True)),
        Case(
            "a named call",
            {**ASK, "tools": TOOLS, "tool_choice": {"type": "function", "name": "get_time"}},
            _called("get_time", forced=True),
        ),
        Case("no call", {**ASK, "tool_choice": "none"}, calls_nothing, needs="a call"),
        Case("parallel calls", BOTH, _called("get_weather", "get_time")),
        Case("one call at a time", {**BOTH, "parallel_tool_calls": False}, _called(most=1), needs="parallel calls"),
        Case("the result of a call", {"input": ANSWERED, "tools": [WEATHER]}),
        Case("a truncated call", {**ASK, "tool_choice": "required", "max_output_tokens": LIMIT}, is_truncated),
        Case("a custom tool", {"input": "Call run_sql: SELECT 1", "tools": [SQL]}, _called("run_sql"), _R),
    ],
    "state": [
        _steps("retrieve", STORED, evolve(GET, same=["id", "output", "status"])),
        _steps("delete", STORED, CaseStep("DELETE", "/{id}", has={"deleted": True}), REFUSED),
        _steps("list the input", STORED, CaseStep("GET", "/{id}/input_items", has={"object": "list", "data": ANY})),
        _steps("do not store", CaseStep(fields={**HELLO, "store": False}, has={"id": ANY}), REFUSED, needs="retrieve"),
        _steps("continue", STORED, CaseStep(fields={**HELLO, "previous_response_id": "{id}"}, has={"output": ANY}, grows=True)),
        _steps(
            "a conversation",
            CaseStep(path="/v1/conversations", fields={}, has={"object": "conversation", "id": ANY}),
            CaseStep(fields={**HELLO, "conversation": "{id}"}, has={"output": ANY}),
            CaseStep("GET", "/v1/conversations/{id}/items", has={"object": "list", "data": ANY}),
        ),
        _steps("background", BEGUN, evolve(GET, ends=OPEN, has={"status": ENDED, "output": ANY})),
        Case("resume a stream", {**HELLO, "store": True, "background": True}, apis=_R, way="resume"),
        _steps("cancel", BEGUN_READING, CaseStep(path="/{id}/cancel"), evolve(GET, ends=ENDED, has={"status": "cancelled"})),
        _steps("count the input", CaseStep(path="/input_tokens", fields=HELLO, has={"input_tokens": ANY})),
        _steps(
            "count tokens",
            CaseStep(path="/count_tokens", fields=HELLO, has={"input_tokens": ANY}),
            apis=["messages"],
        ),
        _steps(
            "compact", CaseStep(path="/compact", fields={"input": DIALOGUE}, has={"object": "response.compaction", "output": ANY})
        ),
        _steps("list the models", CaseStep("GET", "/v1/models", has={"data": ANY}), apis=get_args(TestedApi)),
    ],
    "connections": [
        Case("a WebSocket", HELLO, apis=_R, way="socket"),
        Case("a client that leaves", STORY, way="disconnect"),
    ],
    "errors": [
        Case("malformed JSON", steps=[CaseStep(fields=b'{"model": ', refused="must")]),
        Case("a number as the input", steps=[_invalid(input=5, messages=5)]),
        Case("a tool without a name", steps=[_invalid(tools=[{"type": "function"}])]),
        Case("an unknown model", steps=[CaseStep(fields={**HELLO, "model": "no-such-model"}, refused="may")]),
        Case("a temperature of 9", steps=[CaseStep(fields={**HELLO, "temperature": 9}, refused="may")]),
        _steps("an unknown response", CaseStep("GET", f"/{NOBODY}", refused="must"), needs="retrieve"),
        _steps(
            "an unknown previous response",
            CaseStep(fields={**HELLO, "previous_response_id": NOBODY}, refused="must"),
            needs="continue",
        ),
    ],
}
"""The cases by topic."""

QUICK: Final[Mapping[str, Sequence[Case]]] = {
    "quick": [
        Case("answers", HELLO, answers),
        Case("limit", {**STORY, "max_output_tokens": LIMIT}, is_truncated),
        Case("tools", {**ASK, "tool_choice": "required"}, _called("get_weather", forced=True)),
        Case("reasoning", {"input": "What is 17 times 23?", "reasoning": {"effort": "low"}}, reasons),
        Case("schema", {"input": "Name the city: Berlin", "text": {"format": SCHEMA}}, partial(is_json, names=["city"])),
    ]
}
"""The cases of `interlock doctor`."""
