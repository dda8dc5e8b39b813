"""The scripted turns for real engines: the output of a model, round by round, and the fields of the request.

The outputs are text with control tokens in their usual spelling. The tests check the items in the responses, and
benchmarks/turns/vllm_turns.py plays the same turns on vLLM's own route.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import field, frozen

from interlock.parsers.families import SYNTAXES
from interlock.parsers.families.framing import Trigger
from interlock.parsers.families.reference_encoders import WrittenItem, encode
from interlock.testing.conformance.apis import Output

FUNCTION: Final = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CLOCK: Final = {"type": "function", "name": "now", "parameters": {"type": "object", "properties": {}}}
PYTHON: Final = {"type": "code_interpreter", "container": {"type": "auto"}}
BROWSER: Final = {"type": "web_search_preview"}

NEXT: Final = "<|start|>assistant"
THINK: Final = "<|channel|>analysis<|message|>"
COMMENT: Final = "<|channel|>commentary<|message|>"
ANSWER: Final = "<|channel|>final<|message|>"
WEATHER: Final = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
RUN: Final = "<|channel|>analysis to=python code<|message|>"
SEARCH: Final = "<|channel|>analysis to=browser.search code<|message|>"
DONE: Final = f"{ANSWER}It is done.<|return|>"


@frozen
class Turn:
    """One request, the output that the model writes for it, and the expected response.

    Args:
        name: The case that it tests.
        rounds: The output of each round of generation.
        items: The expected items, each as its type and, unless it is `completed`, its status.
        status: The expected status of the response.
        body: Further fields of the request.
        since: The first release of vLLM that gives this response.
        output: The expected content; None if it depends on the tokens of a model.
        is_odd: Whether the output is malformed or blank, quotes a marker, calls what nobody declared, or has text after a call.
    """

    name: str
    rounds: Sequence[str]
    items: Sequence[str] = ()
    status: str = "completed"
    body: Mapping[str, object] = field(factory=dict[str, object])
    since: tuple[int, int] = (0, 30)
    output: Output | None = Output()  # noqa: RUF009 - it is frozen
    is_odd: bool = False

    @property
    def is_ordinary(self) -> bool:
        """Whether a model that works writes this output, and writes it to its end."""
        return self.status == "completed" and not self.is_odd


FINISHED: Final = Output("It is done.")
ROME: Final = ("get_weather", '{"city": "Rome"}')


def _tools(*tools: Mapping[str, object], **fields: object) -> dict[str, object]:
    return {"tools": list(tools), **fields}


def _cut(tokens: int, *tools: Mapping[str, object]) -> dict[str, object]:
    return {"max_output_tokens": tokens, **(_tools(*tools) if tools else {})}


OK, CUT, FAILED = "completed", "incomplete", "failed"
REASONING, MESSAGE, CALL = "reasoning", "message", "function_call"
CODE, WEB, MCP = "code_interpreter_call", "web_search_call", "mcp_call"

HARMONY: Final[Sequence[Turn]] = (
    Turn("an answer", [f"{ANSWER}Hello.<|return|>"], [MESSAGE], output=Output("Hello.")),
    Turn(
        "reasoning and an answer",
        [f"{THINK}Hm, well.<|end|>{NEXT}{ANSWER}Hello.<|return|>"],
        [REASONING, MESSAGE],
        output=Output("Hello.", "Hm, well."),
    ),
    Turn(
        "reasoning twice",
        [f"{THINK}One.<|end|>{NEXT}{THINK}Two.<|end|>{NEXT}{DONE}"],
        [REASONING, REASONING, MESSAGE],
        output=Output("It is done.", "One.Two."),
    ),
    Turn(
        "a preamble and an answer",
        [f"{COMMENT}Let me see.<|end|>{NEXT}{DONE}"],
        [MESSAGE, MESSAGE],
        output=Output("Let me see.It is done."),
    ),
    Turn("an empty answer", [f"{ANSWER}<|return|>"], [], is_odd=True),
    Turn("nothing at all", ["<|return|>"], [], is_odd=True),
    Turn("a blank answer", [f"{ANSWER}\n \n<|return|>"], [], is_odd=True),
    Turn("empty reasoning", [f"{THINK}<|end|>{NEXT}{DONE}"], [MESSAGE], output=FINISHED, is_odd=True),
    Turn("blank reasoning", [f"{THINK} \n<|end|>{NEXT}{DONE}"], [MESSAGE], output=FINISHED, is_odd=True),
    Turn("an empty preamble", [f"{COMMENT}<|end|>{NEXT}{DONE}"], [MESSAGE], output=FINISHED, is_odd=True),
    Turn("an answer that begins blank", [f"{ANSWER}\n\nHello.<|return|>"], [MESSAGE], output=Output("\n\nHello.")),
    Turn("many scripts", [f"{ANSWER}Grüße, 世界! 👩‍👩‍👧 עִבְרִית<|return|>"], [MESSAGE], output=Output("Grüße, 世界! 👩‍👩‍👧 עִבְרִית")),
    Turn("a function call", [f'{WEATHER}{{"city": "Rome"}}<|call|>'], [CALL], body=_tools(FUNCTION), output=Output(calls=[ROME])),
    Turn(
        "reasoning, a preamble and a function call",
        [f'{THINK}Weather.<|end|>{NEXT}{COMMENT}I look.<|end|>{NEXT}{WEATHER}{{"city": "Rome"}}<|call|>'],
        [REASONING, MESSAGE, CALL],
        body=_tools(FUNCTION),
        output=Output("I look.", "Weather.", calls=[ROME]),
    ),
    Turn(
        "a call without a single argument",
        [f"{WEATHER}<|call|>"],
        [CALL],
        body=_tools(FUNCTION),
        output=Output(calls=[("get_weather", "")]),
        is_odd=True,
    ),
    Turn(
        "a call with empty arguments",
        [f"{WEATHER}{{}}<|call|>"],
        [CALL],
        body=_tools(FUNCTION),
        output=Output(calls=[("get_weather", "{}")]),
    ),
    Turn(
        "a call with malformed arguments",
        [f'{WEATHER}{{"city": Ro<|call|>'],
        [CALL],
        body=_tools(FUNCTION),
        output=Output(calls=[("get_weather", '{"city": Ro')]),
        is_odd=True,
    ),
    Turn(
        "two function calls",
        [f'{WEATHER}{{"city": "Rome"}}<|end|>{NEXT}{WEATHER}{{"city": "Oslo"}}<|call|>'],
        [CALL, CALL],
        body=_tools(FUNCTION),
        output=Output(calls=[ROME, ("get_weather", '{"city": "Oslo"}')]),
    ),
    Turn(
        "the recipient before the channel",
        [' to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Rome"}<|call|>'],
        [CALL],
        body=_tools(FUNCTION),
        output=Output(calls=[ROME]),
    ),
    Turn(
        "a bare function name",
        ['<|channel|>commentary to=get_weather <|constrain|>json<|message|>{"city": "Rome"}<|call|>'],
        [CALL],
        body=_tools(FUNCTION),
        output=Output(calls=[ROME]),
        is_odd=True,
    ),
    Turn(
        "a call in the analysis channel",
        ['<|channel|>analysis to=functions.get_weather <|constrain|>json<|message|>{"city": "Rome"}<|call|>'],
        [CALL],
        body=_tools(FUNCTION),
        output=Output(calls=[ROME]),
        is_odd=True,
    ),
    Turn(
        "a constraint glued to the recipient",
        ['<|channel|>commentary to=functions.get_weather<|constrain|>json<|message|>{"city": "Rome"}<|call|>'],
        [CALL],
        body=_tools(FUNCTION),
        output=Output(calls=[ROME]),
        is_odd=True,
    ),
    Turn(
        "a function that nobody declared",
        ["<|channel|>commentary to=functions.unheard <|constrain|>json<|message|>{}<|call|>"],
        [CALL],
        body=_tools(FUNCTION),
        output=Output(calls=[("unheard", "{}")]),
        is_odd=True,
    ),
    Turn(
        "a call that ends as a message does",
        [f'{WEATHER}{{"city": "Rome"}}<|return|>'],
        [CALL],
        body=_tools(FUNCTION),
        output=Output(calls=[ROME]),
        is_odd=True,
    ),
    Turn(
        "a tool of an MCP server that nobody declared",
        ["<|channel|>commentary to=docs.search <|constrain|>json<|message|>{}<|call|>", DONE],
        [f"{MCP} failed", MESSAGE],
        body=_tools(FUNCTION),
        output=FINISHED,
        is_odd=True,
    ),
    Turn(
        "cut in reasoning",
        [f"{THINK}One two three four five six seven."],
        [f"{REASONING} {CUT}"],
        CUT,
        _cut(7),
        output=Output(reasoning="One two three four"),
    ),
    Turn(
        "cut in an answer",
        [f"{ANSWER}One two three four five six seven."],
        [f"{MESSAGE} {CUT}"],
        CUT,
        _cut(7),
        output=Output("One two three four"),
    ),
    Turn(
        "cut in a preamble",
        [f"{COMMENT}One two three four five six."],
        [f"{MESSAGE} {CUT}"],
        CUT,
        _cut(7),
        output=Output("One two three"),
    ),
    Turn(
        "cut in arguments",
        [f'{WEATHER}{{"city": "Rome and more"}}'],
        [f"{CALL} {CUT}"],
        CUT,
        _cut(12, FUNCTION),
        output=Output(calls=[("get_weather", "")]),
    ),
    Turn("cut in a header", [f"{THINK}Hm.<|end|>{NEXT}<|channel|>fi"], [REASONING], CUT, _cut(9), output=Output(reasoning="Hm.")),
    Turn("cut before any text", [f"{ANSWER}Hello."], [], CUT, _cut(3)),
    Turn("cut in python code", [f"{RUN}print(1 + 2 + 3 + 4 + 5)"], [f"{CODE} {CUT}"], CUT, _cut(9, PYTHON)),
    Turn("cut inside a character", [f"{ANSWER}a👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧"], [f"{MESSAGE} {CUT}"], CUT, _cut(6), output=Output("a👩")),
    Turn("no header", ["Hello there.<|return|>"], [MESSAGE], output=Output("Hello there."), is_odd=True),
    Turn(
        "text where a header should be",
        [f"{THINK}Hm.<|end|>Hello there.<|return|>"],
        [REASONING, MESSAGE],
        output=Output("Hello there.", "Hm."),
        is_odd=True,
    ),
    Turn(
        "no start between messages",
        [f"{THINK}Hm.<|end|>{DONE}"],
        [REASONING, MESSAGE],
        output=Output("It is done.", "Hm."),
        is_odd=True,
    ),
    Turn("no message token", ["<|channel|>final Hello there.<|return|>"], [MESSAGE], output=Output("Hello there."), is_odd=True),
    Turn(
        "an unknown channel", ["<|channel|>thoughts<|message|>Hello.<|return|>"], [MESSAGE], output=Output("Hello."), is_odd=True
    ),
    Turn("no channel", ["<|message|>Hello.<|return|>"], [MESSAGE], output=Output("Hello."), is_odd=True),
    Turn("an empty channel", ["<|channel|><|message|>Hello.<|return|>"], [MESSAGE], output=Output("Hello."), is_odd=True),
    Turn(
        "a channel twice",
        ["<|channel|>analysis<|channel|>final<|message|>Hello.<|return|>"],
        [MESSAGE],
        output=Output("Hello."),
        is_odd=True,
    ),
    Turn(
        "a channel inside content",
        [f"{THINK}Hm.{ANSWER}Hello.<|return|>"],
        [REASONING, MESSAGE],
        output=Output("Hello.", "Hm."),
        is_odd=True,
    ),
    Turn(
        "a start inside content",
        [f"{THINK}Hm.{NEXT}{DONE}"],
        [REASONING, MESSAGE],
        output=Output("It is done.", "Hm."),
        is_odd=True,
    ),
    Turn(
        "an end twice",
        [f"{THINK}Hm.<|end|><|end|>{NEXT}{DONE}"],
        [REASONING, MESSAGE],
        output=Output("It is done.", "Hm."),
        is_odd=True,
    ),
    Turn(
        "a foreign role",
        [f"{THINK}Hm.<|end|><|start|>user{ANSWER}Hello.<|return|>"],
        [REASONING, MESSAGE],
        output=Output("Hello.", "Hm."),
        is_odd=True,
    ),
    Turn(
        "a constraint inside content", [f"{ANSWER}Hel<|constrain|>lo.<|return|>"], [MESSAGE], output=Output("Hello."), is_odd=True
    ),
    Turn(
        "a reserved token inside content",
        [f"{ANSWER}Hel<|reserved_200500|>lo.<|return|>"],
        [MESSAGE],
        output=Output("Hello."),
        is_odd=True,
    ),
    Turn(
        "two recipients",
        ["<|channel|>commentary to=a.b to=c.d<|message|>{}<|call|>", DONE],
        [f"{MCP} failed", MESSAGE],
        output=FINISHED,
        is_odd=True,
    ),
    Turn("a call without a recipient", [f"{COMMENT}Hello.<|call|>"], [MESSAGE], output=Output("Hello."), is_odd=True),
    Turn("python", [f"{RUN}print(1)<|call|>", DONE], [CODE, MESSAGE], body=_tools(PYTHON), output=FINISHED),
    Turn(
        "reasoning, python, reasoning, an answer",
        [f"{THINK}I run it.<|end|>{NEXT}{RUN}print(1)<|call|>", f"{THINK}I see.<|end|>{NEXT}{DONE}"],
        [REASONING, CODE, REASONING, MESSAGE],
        body=_tools(PYTHON),
        output=Output("It is done.", "I run it.I see."),
    ),
    Turn(
        "three rounds",
        [f"{RUN}print(1)<|call|>", f'{SEARCH}{{"query": "rome"}}<|call|>', DONE],
        [CODE, WEB, MESSAGE],
        body=_tools(PYTHON, BROWSER),
        output=FINISHED,
    ),
    Turn("a search", [f'{SEARCH}{{"query": "rome"}}<|call|>', DONE], [WEB, MESSAGE], body=_tools(BROWSER), output=FINISHED),
    Turn(
        "an opened page",
        ['<|channel|>analysis to=browser.open code<|message|>{"id": "https://rome.example"}<|call|>', DONE],
        [WEB, MESSAGE],
        body=_tools(BROWSER),
        output=FINISHED,
    ),
    Turn(
        "text found in a page",
        ['<|channel|>analysis to=browser.find code<|message|>{"pattern": "rome"}<|call|>', DONE],
        [WEB, MESSAGE],
        body=_tools(BROWSER),
        output=FINISHED,
    ),
    Turn(
        "a search whose arguments are no JSON",
        [f"{SEARCH}rome<|call|>", DONE],
        [f"{WEB} {FAILED}", MESSAGE],
        body=_tools(BROWSER),
        output=FINISHED,
        is_odd=True,
    ),
    Turn("python that fails", [f"{RUN}raise<|call|>", DONE], [f"{CODE} {FAILED}", MESSAGE], body=_tools(PYTHON), output=FINISHED),
    Turn("python that says nothing", [f"{RUN}silence<|call|>", DONE], [CODE, MESSAGE], body=_tools(PYTHON), output=FINISHED),
    Turn(
        "python that nobody asked for",
        [f"{RUN}print(1)<|call|>", DONE],
        [f"{CODE} {FAILED}", MESSAGE],
        output=FINISHED,
        is_odd=True,
    ),
    Turn(
        "a search and a function call",
        [f'{SEARCH}{{"query": "rome"}}<|call|>', f'{WEATHER}{{"city": "Rome"}}<|call|>'],
        [WEB, CALL],
        body=_tools(BROWSER, FUNCTION),
        output=Output(calls=[ROME]),
    ),
    Turn(
        "cut in the second round",
        [f"{RUN}print(1)<|call|>", f"{ANSWER}One two three four five six seven eight nine ten eleven."],
        [CODE, f"{MESSAGE} {CUT}"],
        CUT,
        _cut(20, PYTHON),
        output=Output("One two three four five"),
    ),
)
"""The turns of a model that writes harmony."""

TOOL_CALL: Final = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
END: Final = "<|im_end|>"

PARSED: Final[Sequence[Turn]] = (
    Turn("an answer (parsers)", [f"<think>\n\n</think>\n\nHello.{END}"], [MESSAGE], output=Output("Hello.")),
    Turn(
        "reasoning and an answer (parsers)",
        [f"<think>\nHm.\n</think>\n\nHello.{END}"],
        [REASONING, MESSAGE],
        output=Output("Hello.", "Hm."),
    ),
    Turn("reasoning alone (parsers)", [f"<think>\nHm.\n</think>{END}"], [REASONING], output=Output(reasoning="Hm."), is_odd=True),
    Turn("nothing at all (parsers)", [END], [], is_odd=True),
    Turn(
        "a blank answer (parsers)",
        [f"<think>\nHm.\n</think>\n\n \n{END}"],
        [REASONING],
        output=Output(reasoning="Hm."),
        is_odd=True,
    ),
    Turn(
        "reasoning and a function call (parsers)",
        [f"<think>\nHm.\n</think>\n\n{TOOL_CALL}{END}"],
        [REASONING, CALL],
        body=_tools(FUNCTION),
        output=Output(reasoning="Hm.", calls=[ROME]),
    ),
    Turn(
        "text and a function call (parsers)",
        [f"<think>\n\n</think>\n\nI look.\n{TOOL_CALL}{END}"],
        [MESSAGE, CALL],
        body=_tools(FUNCTION),
        output=Output("I look.\n", calls=[ROME]),
    ),
    Turn(
        "two function calls (parsers)",
        [f"<think>\nHm.\n</think>\n\n{TOOL_CALL}\n{TOOL_CALL.replace('Rome', 'Oslo')}{END}"],
        [REASONING, CALL, CALL],
        body=_tools(FUNCTION),
        output=Output(reasoning="Hm.", calls=[ROME, ("get_weather", '{"city": "Oslo"}')]),
    ),
    Turn(
        "an engine that gives up: its grammar allows one call (parsers)",
        [f"<think>\nHm.\n</think>\n\n{TOOL_CALL}\n{TOOL_CALL.replace('Rome', 'Oslo')}{END}"],
        [REASONING, CALL, f"{MESSAGE} {CUT}"],
        FAILED,
        _tools(FUNCTION, parallel_tool_calls=False),
        since=(0, 32),
        output=Output("!", "Hm.", calls=[ROME]),
    ),
    Turn(
        "a call without arguments (parsers)",
        [f'<think>\nHm.\n</think>\n\n<tool_call>\n{{"name": "now", "arguments": {{}}}}\n</tool_call>{END}'],
        [REASONING, CALL],
        body=_tools(CLOCK),
        output=Output(reasoning="Hm.", calls=[("now", "{}")]),
    ),
    Turn(
        "cut in reasoning (parsers)",
        ["<think>\nOne two three four five six seven"],
        [f"{REASONING} {CUT}"],
        CUT,
        _cut(12),
        output=Output(reasoning="One two three"),
    ),
    Turn(
        "cut in an answer (parsers)",
        ["<think>\nHm.\n</think>\n\nOne two three four five six seven eight nine ten"],
        [REASONING, f"{MESSAGE} {CUT}"],
        CUT,
        _cut(24),
        output=Output("One two three four five", "Hm."),
    ),
    Turn(
        "reasoning that is not wanted (parsers)",
        [f"<think>\nHm.\n</think>\n\nHello.{END}"],
        [MESSAGE],
        body={"include_reasoning": False},
        output=Output("Hello."),
    ),
    Turn(
        "log probabilities (parsers)",
        [f"<think>\nHm.\n</think>\n\nHello, world.{END}"],
        [REASONING, MESSAGE],
        body={"include": ["message.output_text.logprobs"], "top_logprobs": 2},
        output=Output("Hello, world.", "Hm."),
    ),
)
"""The turns of a model whose output vLLM's reasoning and tool parsers read."""


LOOK: Final = (
    WrittenItem("reasoning", "Hm, well."),
    WrittenItem("message", "I look."),
    WrittenItem("call", '{"city":"Rome"}', "get_weather"),
    WrittenItem("call", '{"city":"Oslo & \\"more\\""}', "get_weather"),
)


GRAMMATICAL: Final = frozenset({"glm45", "glm47"})
"""The families whose calls vLLM constrains with the grammar of GLM 4.7, which allows no line breaks and no undeclared tools.

A script cannot make an engine write text that the grammar does not allow.
"""


def family_turns(name: str, reasoning: str) -> Sequence[Turn]:
    """Return the turns of a family, by its names for `--tool-call-parser` and `--reasoning-parser` (empty if it has none)."""

    def encoded(*items: WrittenItem) -> str:
        return encode(items, "glm47" if name in GRAMMATICAL else name, reasoning or None, thinking=False)

    def expected(text: str, *calls: WrittenItem) -> Output:
        return Output(text, LOOK[0].text if reasoning else "", [(call.name, call.text) for call in calls])

    opening = [REASONING] if reasoning else []
    one, now, nope = encoded(*LOOK[:3]), WrittenItem("call", "{}", "now"), WrittenItem("call", "{}", "nope")
    marker = encoded(WrittenItem("call", "{}", "f"))[:11]
    tools = _tools(FUNCTION)
    turns = (
        Turn(
            f"reasoning, text and two calls ({name})",
            [encoded(*LOOK) + END],
            [*opening, MESSAGE, CALL, CALL],
            body=tools,
            output=expected("I look.", *LOOK[2:]),
        ),
        Turn(
            f"text after a call ({name})",
            [f"{one}And then.{END}"],
            [*opening, MESSAGE, CALL, MESSAGE],
            body=tools,
            output=expected("I look.And then.", LOOK[2]),
            is_odd=True,
        ),
        Turn(
            f"a call without arguments ({name})",
            [encoded(LOOK[0], now) + END],
            [*opening, CALL],
            body=_tools(CLOCK),
            output=expected("", now),
        ),
        Turn(f"no tools ({name})", [one + END], [*opening, MESSAGE], output=expected(one[one.index("I look.") :]), is_odd=True),
        Turn(
            f"cut in arguments ({name})",
            [one[: one.index("Rome") + 2]],
            [*opening, MESSAGE, f"{CALL} {CUT}"],
            CUT,
            _cut(200, FUNCTION),
            output=None,
        ),
    )
    markers = SYNTAXES[name].markers
    is_bare = Trigger.OBJECT in markers or {Trigger.SECTION, Trigger.CALL}.isdisjoint(markers)
    strange = MESSAGE if is_bare else CALL  # a call without a marker must name a declared tool
    loose = (
        Turn(
            f"a tool that nobody declared ({name})",
            [encoded(LOOK[0], nope) + END],
            [*opening, strange],
            body=tools,
            output=expected(encoded(nope)) if is_bare else expected("", nope),
            is_odd=True,
        ),
        Turn(
            f"a quoted marker ({name})",
            [encoded(*LOOK[:2]) + f" {marker} it says.{END}"],
            [*opening, MESSAGE],
            body=tools,
            output=expected(f"I look. {marker} it says."),
            is_odd=True,
        ),
    )
    return turns if name in GRAMMATICAL else (*turns, *loose)
