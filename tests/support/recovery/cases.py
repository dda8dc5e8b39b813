"""The recovery cases: malformed harmony, and its items. docs/evidence/conformance/recovery.md has the rules.

Recordings are made of them: every case is one turn of tokens, its finish reason and the items expected. Items of white
space, which the driver drops, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from attrs import field, frozen
from recovery.notation import Item, answer, call, encoding, mcp, preamble, python, reasoning, search, tokens, words

from interlock.fsm.deltas import FinishReason
from interlock.parsers.chunk import Chunk
from interlock.serving.engines.engine import EngineOutput
from interlock.serving.engines.recordings import RecordedTurn, Recording

REQUEST = {
    "model": "gpt-oss-20b",
    "input": "What is the weather in Rome?",
    "tools": [
        {"type": "function", "name": "get_weather", "parameters": {"type": "object"}},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "web_search"},
    ],
}
"""The request of every case."""


@frozen
class Case:
    """A malformed turn.

    Args:
        name: As in docs/evidence/conformance/recovery.md.
        ids: Its tokens.
        items: What the reader sees.
        reason: Why the turn ended.
    """

    name: str
    ids: Sequence[int] = field(converter=lambda written: tokens(written) if isinstance(written, str) else written)
    items: Sequence[Item]
    reason: FinishReason = "stop"


_ROME = '{"city":"Rome"}'
_THINK = "<|channel|>analysis<|message|>Think.<|end|>"

CASES = [
    # no header, or not where it should be
    Case("no header at all", "It is sunny in Rome.", [answer("It is sunny in Rome.")]),
    Case("no header at all, one word", "Sunny", [answer("Sunny")]),
    Case("no header, cut", "It is", [answer("It is", "")], "length"),
    Case("message without a header", "<|message|>Sunny.<|return|>", [answer("Sunny.")]),
    Case("text where start should be", _THINK + "It is sunny.<|return|>", [reasoning("Think."), answer("It is sunny.")]),
    Case(
        "start missing",
        _THINK + "assistant<|channel|>final<|message|>Sunny.<|return|>",
        [reasoning("Think."), answer("Sunny.")],
    ),
    Case(
        "start and role missing", _THINK + "<|channel|>final<|message|>Sunny.<|return|>", [reasoning("Think."), answer("Sunny.")]
    ),
    Case(
        "text before the channel",
        "Well, then<|channel|>final<|message|>Sunny.<|return|>",
        [answer("Well, then"), answer("Sunny.")],
    ),
    Case("start repeated", "<|start|>assistant<|start|>assistant<|channel|>final<|message|>Sunny.<|return|>", [answer("Sunny.")]),
    # the message marker is missing
    Case("message marker missing", "<|channel|>final It is sunny.<|return|>", [answer("It is sunny.")]),
    Case("message marker missing, reasoning", "<|channel|>analysis We think.<|end|>", [reasoning("We think.")]),
    Case(
        "message marker missing, call",
        f"<|channel|>commentary to=functions.get_weather json{_ROME}<|call|>",
        [call("get_weather", _ROME)],
    ),
    Case(
        "message marker missing, constrained call",
        f"<|channel|>commentary to=functions.get_weather <|constrain|>json{_ROME}<|call|>",
        [call("get_weather", _ROME)],
    ),
    Case("message marker doubled", "<|channel|>final<|message|><|message|>Sunny.<|return|>", [answer("Sunny.")]),
    # a header that the turn cuts
    Case("header cut", "<|channel|>commentary to=functions.get_wea", [], "length"),
    Case("header cut inside a channel", "<|channel|>comment", [], "length"),
    Case("header cut after text", "<|channel|>final Sun", [answer("Sun", "")], "length"),
    Case("header that names a call, not ended", "<|channel|>commentary to=functions.get_weather", [call("get_weather", "", "")]),
    Case(
        "call that is not ended",
        '<|channel|>commentary to=functions.get_weather<|message|>{"city":"Ro',
        [call("get_weather", '{"city":"Ro', "")],
    ),
    Case(
        "call that is not ended, without the message marker",
        '<|channel|>commentary to=functions.get_weather {"city":"Ro',
        [call("get_weather", '{"city":"Ro', "")],
    ),
    Case("code that is not ended", "<|channel|>analysis to=python<|message|>1+", [python("1+", "")]),
    Case("call without arguments", "<|channel|>commentary to=functions.get_weather<|call|>", [call("get_weather", "")]),
    # channels
    Case("unknown channel", "<|channel|>thoughts<|message|>Sunny.<|return|>", [answer("Sunny.")]),
    Case("empty channel", "<|channel|><|message|>Sunny.<|return|>", [answer("Sunny.")]),
    Case("doubled channel", "<|channel|>finalfinal<|message|>Sunny.<|return|>", [answer("Sunny.")]),
    Case("two channels", "<|channel|>analysis<|channel|>final<|message|>Sunny.<|return|>", [answer("Sunny.")]),
    Case("channel glued to text", "<|channel|>finalSunny in Rome.<|return|>", [answer("Sunny in Rome.")]),
    Case("channel glued to recipient", "<|channel|>commentaryto=python<|message|>1+1<|call|>", [python("1+1")]),
    Case("channel marker missing", "<|start|>assistantfinal<|message|>Sunny.<|return|>", [answer("Sunny.")]),
    Case("words after the channel", "<|channel|>analysis a b c<|message|>Think.<|end|>", [reasoning("a b cThink.")]),
    # recipients and roles
    Case(
        "two recipients",
        f"<|channel|>commentary to=python to=functions.get_weather<|message|>{_ROME}<|call|>",
        [call("get_weather", _ROME)],
    ),
    Case("empty recipient", "<|channel|>commentary to=<|message|>I look.<|end|>", [preamble("I look.")]),
    Case("unknown recipient", "<|channel|>commentary to=files.read<|message|>{}<|call|>", [mcp("files", "read", "{}")]),
    Case("undeclared function", "<|channel|>commentary to=functions.nope<|message|>{}<|call|>", [call("nope", "{}")]),
    Case(
        "bare function name",
        f"<|channel|>commentary to=get_weather<|message|>{_ROME}<|call|>",
        [call("get_weather", _ROME)],
    ),
    Case("recipient on the final channel", "<|channel|>final to=python<|message|>1+1<|call|>", [python("1+1")]),
    Case(
        "foreign role",
        _THINK + "<|start|>user<|message|>And in Paris?<|end|>",
        [reasoning("Think."), preamble("And in Paris?")],
    ),
    Case(
        "made-up tool output",
        "<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>sunny<|end|>",
        [preamble("sunny")],
    ),
    Case("unknown role", "<|start|>nobody<|channel|>final<|message|>Sunny.<|return|>", [answer("Sunny.")]),
    # control tokens in the wrong place
    Case(
        "start inside content",
        "<|channel|>analysis<|message|>Think.<|start|>assistant<|channel|>final<|message|>Sunny.<|return|>",
        [reasoning("Think."), answer("Sunny.")],
    ),
    Case(
        "channel inside content",
        "<|channel|>analysis<|message|>Think.<|channel|>final<|message|>Sunny.<|return|>",
        [reasoning("Think."), answer("Sunny.")],
    ),
    Case("message inside content", "<|channel|>final<|message|>It is <|message|>sunny.<|return|>", [answer("It is sunny.")]),
    Case("constrain inside content", "<|channel|>final<|message|>It is <|constrain|>sunny.<|return|>", [answer("It is sunny.")]),
    Case("doubled end", "<|channel|>final<|message|>Sunny.<|end|><|end|>", [answer("Sunny.")]),
    Case("call without a recipient", "<|channel|>final<|message|>Sunny.<|call|>", [answer("Sunny.")]),
    Case("end after a call", f"<|channel|>commentary to=get_weather<|message|>{_ROME}<|end|>", [call("get_weather", _ROME)]),
    Case("constrain before the recipient", "<|channel|>commentary<|constrain|>json to=python<|message|>1<|call|>", [python("1")]),
    Case("constrain without a channel", "<|constrain|>json<|message|>{}<|return|>", [answer("{}")]),
    Case("constrained answer", "<|channel|>final <|constrain|>json<|message|>{}<|return|>", [answer("{}")]),
    Case("control tokens alone", "<|end|><|call|><|start|><|channel|><|constrain|><|message|><|return|><|message|>", []),
    # ids and bytes
    Case(
        "ids that no vocabulary has",
        [-1, *tokens("<|channel|>final<|message|>It is "), 2**40, 201_088, 200_013, *words("sunny."), 300_000],
        [answer("It is sunny.")],
    ),
    Case(
        "character cut by the end of the message",
        [*tokens("<|channel|>final<|message|>ok "), 127, *tokens("<|end|>")],
        [answer("ok \ufffd")],
    ),
    Case(
        "character cut by the end of the turn",
        [*tokens("<|channel|>final<|message|>ok "), 127],
        [answer("ok \ufffd", "")],
        "length",
    ),
    Case(
        "bytes that are no character",
        [*tokens("<|channel|>final<|message|>"), 128, 128, *words("ok")],
        [answer("\ufffd\ufffdok")],
    ),
    # browser calls
    Case(
        "browser arguments that are not JSON",
        "<|channel|>analysis to=browser.search<|message|>weather in Rome<|call|>",
        [search({"type": "search", "query": "weather in Rome"}, "Reject")],
    ),
    Case(
        "browser arguments without a query",
        "<|channel|>analysis to=browser.search<|message|>{}<|call|>",
        [search({"type": "search", "query": "{}"}, "Reject")],
    ),
    Case(
        "browser arguments without a pattern",
        "<|channel|>analysis to=browser.find<|message|>{}<|call|>",
        [search({"type": "search", "query": "{}"}, "Reject")],
    ),
    Case(
        "unknown browser action",
        "<|channel|>analysis to=browser.click<|message|>{}<|call|>",
        [search({"type": "search", "query": "{}"}, "Reject")],
    ),
    Case(
        "browser arguments cut",
        '<|channel|>analysis to=browser.search<|message|>{"query": "weather',
        [search({"type": "search", "query": "weather"}, "")],
        "length",
    ),
]


LAST_TOKEN = 201_087
"""The highest id of harmony's vocabulary."""

WORDS = {
    "reasoning": "reasoning",
    "function_call": "call of {name}",
    "mcp_call": "call of {name} on the MCP server {server_label}",
    "code_interpreter_call": "code",
    "web_search_call": "web search",
}
"""The word of the table for each kind of item."""

ENDINGS = {"Close": "", "Reject": ", failed", "": ", incomplete"}
"""The addition of the table to an item, by the way in which the parser ended it."""


def recording_of(case: Case) -> Recording:
    """Record a case as one turn, in chunks of three tokens."""
    chunks = [Chunk(tuple(case.ids[start : start + 3])) for start in range(0, len(case.ids), 3)] or [Chunk()]
    *before, last = (EngineOutput(chunk) for chunk in chunks)
    ended = EngineOutput(last.chunk, finish_reason=case.reason, input_tokens=12)
    return Recording("harmony", REQUEST, (RecordedTurn((*before, ended)),))


def written(case: Case) -> str:
    """Return the output of the model, as the table shows it."""
    groups = groupby(case.ids, key=lambda token: 0 <= token <= LAST_TOKEN)
    text = "".join(encoding().decode([*ids]) if valid else "".join(f"<{token}>" for token in ids) for valid, ids in groups)
    return f"`{text.replace('<|', '<').replace('|>', '>')}`" + (" (the budget ends)" if case.reason == "length" else "")


def received(item: Item) -> str:
    """Return an item as the client receives it and the table shows it."""
    if item.kind == "message":
        name = "answer" if item.fields["phase"] == "final_answer" else "preamble"
    else:
        name = WORDS[item.kind].format(**item.fields)
    text = item.fields["action"]["query"] if item.kind == "web_search_call" else item.text
    return name + (f" `{text}`" if text else ", empty") + ENDINGS[item.ending]


def recordings() -> dict[str, Recording]:
    """Return the recording of each case, by the name of the case."""
    return {case.name: recording_of(case) for case in CASES}


def rows() -> Iterator[str]:
    """Yield the rows of the table."""
    for case in CASES:
        yield f"| {case.name} | {written(case)} | {'; '.join(map(received, case.items)) or 'nothing'} |"
