"""Recordings of the output of an engine, one for each request; their bytes are always the same.

The harmony recordings hold real tokens: what is written below as text is encoded by `openai_harmony`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import TypeAlias

from attrs import evolve, frozen
from openai_harmony import HarmonyEncodingName, load_harmony_encoding

from interlock.fsm.deltas import FinishReason
from interlock.parsers import Chunk, Tagged
from interlock.parsers.families import DEFAULT_REASONING
from interlock.parsers.families import reference_encoders as writing
from interlock.serving.engines.engine import EngineOutput
from interlock.serving.engines.recordings import RecordedTurn, Recording, ToolResult

JsonObject: TypeAlias = dict[str, object]

ENCODING = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)

ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|channel|>final<|message|>"
CALL = "<|channel|>commentary {} <|constrain|>json<|message|>"
NEXT = "<|start|>assistant"
NEXT_FINAL = f"{NEXT}{FINAL}"
SIZES = (1, 3, 2, 1, 5)

WEATHER: JsonObject = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CLOCK: JsonObject = {"type": "function", "name": "now", "parameters": {"type": "object", "properties": {}}}
PATCH: JsonObject = {"type": "custom", "name": "apply_patch", "description": "Applies a patch."}
DOCS: JsonObject = {
    "type": "mcp",
    "server_label": "docs",
    "server_url": "https://docs.example/mcp",
    "require_approval": "never",
}
PYTHON: JsonObject = {"type": "code_interpreter", "container": {"type": "auto"}}
WEB: JsonObject = {"type": "web_search"}


@frozen
class ModelTurn:
    """The output of a model in one turn, as harmony or as plain text, and the results of its tools.

    Args:
        text: The whole text.
        results: In the order of its hosted calls.
        reason: Why the turn ended.
        logprobs: Whether the tokens have log probabilities.
        sizes: Tokens, or characters of plain text, of the chunks, over and over.
        missing: How many of the last tokens the engine does not send.
    """

    text: str
    results: Sequence[ToolResult] = ()
    reason: FinishReason = "stop"
    logprobs: bool = False
    sizes: Sequence[int] = SIZES
    missing: int = 0


def request(text: str, *tools: object, **settings: object) -> JsonObject:
    """Return the body of a request with one user message."""
    body: JsonObject = {"model": "gpt-oss-20b", "input": text, "stream": True, **settings}
    return {**body, "tools": list(tools)} if tools else body


def harmony(body: JsonObject, *turns: ModelTurn) -> Recording:
    """Record turns that are written as harmony's text, control tokens included."""
    return Recording("harmony", body, tuple(_harmony_turn(turn) for turn in turns))


def text(body: JsonObject, *turns: ModelTurn) -> Recording:
    """Record turns of plain text, in chunks of tokens where they have log probabilities, else of characters."""
    return Recording("text", body, tuple(_text_turn(turn) for turn in turns))


def vllm(body: JsonObject, *deltas: JsonObject, reason: FinishReason = "stop") -> Recording:
    """Record one turn of the deltas of a vLLM parser, one chunk for each."""
    chunks = [Chunk(token_ids=(place,), delta=delta) for place, delta in enumerate(deltas)]
    recorded = _turn(chunks, ModelTurn("", reason=reason))
    return Recording("vllm", body, (recorded,))


def _harmony_turn(turn: ModelTurn) -> RecordedTurn:
    ids = ENCODING.encode(turn.text, allowed_special="all")
    ids = ids[: len(ids) - turn.missing]
    pieces = [tuple(ids[piece]) for piece in _pieces(len(ids), turn.sizes)]
    return _turn([Chunk(piece, logprobs=_logprobs(piece) if turn.logprobs else None) for piece in pieces], turn)


def _text_turn(turn: ModelTurn) -> RecordedTurn:
    if not turn.logprobs:
        return _turn([Chunk(text=turn.text[piece]) for piece in _pieces(len(turn.text), turn.sizes)], turn)
    ids = ENCODING.encode(turn.text)
    pieces = [tuple(ids[piece]) for piece in _pieces(len(ids), turn.sizes)]
    return _turn([Chunk(piece, ENCODING.decode(piece), _logprobs(piece)) for piece in pieces], turn)


def _turn(chunks: Sequence[Chunk], turn: ModelTurn) -> RecordedTurn:
    *before, last = (EngineOutput(chunk) for chunk in chunks)
    end = evolve(last, finish_reason=turn.reason, input_tokens=70, cached_tokens=64)
    return RecordedTurn((*before, end), tuple(turn.results))


def _pieces(length: int, sizes: Sequence[int]) -> Iterator[slice]:
    """Yield the slices of a sequence of this length."""
    start = 0
    for size in cycle(sizes):
        if start >= length:
            return
        yield slice(start, start + size)
        start += size


def _logprobs(ids: Sequence[int]) -> tuple[JsonObject, ...]:
    """Log probabilities that depend on the token alone, with one other token at each place."""
    return tuple({**_logprob(token), "top_logprobs": [_logprob(token), _logprob(token + 1)]} for token in ids)


def _logprob(token: int) -> JsonObject:
    piece = ENCODING.decode([token])
    return {"token": piece, "bytes": list(piece.encode()), "logprob": -(token % 64) / 64}


def tagged(name: str, body: JsonObject, *items: writing.WrittenItem) -> Recording:
    """Record one turn in the format of a family of models."""
    text = writing.encode(items, name, DEFAULT_REASONING[name], thinking=False)
    return Recording(Tagged(name, DEFAULT_REASONING[name]), body, (_text_turn(ModelTurn(text)),))


FAMILIES = (
    *("qwen3_coder", "hermes", "glm45", "minimax_m2", "deepseek_v32", "kimi_k2", "deepseek_v3", "mistral"),
    *("kimi_k3", "minimax_m3", "gemma4", "lfm2"),
)
"""A family for each way of writing a call."""

RECORDINGS = {
    # Reasoning, then an answer; characters of several tokens, one token at a time.
    "answer": harmony(
        request("Greet the astronaut in German and Chinese."),
        ModelTurn(
            f"{ANALYSIS}Grüße, 你好, 👩🏽‍🚀.<|end|>{NEXT_FINAL}Schöne Grüße, 👩🏽‍🚀! 你好，宇航员。<|return|>",
            sizes=(1,),
        ),
    ),
    # Reasoning, a preamble (a message of phase `commentary`), a function call.
    "preamble-and-function-call": harmony(
        request("What is the weather in Berlin?", WEATHER),
        ModelTurn(
            f"{ANALYSIS}I need the weather.<|end|>"
            f"{NEXT}<|channel|>commentary<|message|>Let me look at the sky over Berlin.<|end|>"
            f'{NEXT}{CALL.format("to=functions.get_weather")}{{"city": "Berlin"}}<|call|>'
        ),
    ),
    # Two function calls in one turn, the second with its recipient before the channel.
    "two-calls": harmony(
        request("Berlin and Zürich?", WEATHER),
        ModelTurn(
            f'{CALL.format("to=functions.get_weather")}{{"city": "Berlin"}}<|call|>'
            f'{NEXT} to=functions.get_weather<|channel|>commentary json<|message|>{{"city": "Zürich"}}<|call|>'
        ),
    ),
    # A function call without a single argument token is still a whole item (R18).
    "function-call-without-arguments": harmony(
        request("What time is it?", CLOCK),
        ModelTurn(f"{CALL.format('to=functions.now')}<|call|>"),
    ),
    # A call of a custom tool, whose input is text of its own format.
    "custom-tool-call": harmony(
        request("Fix the typo.", PATCH),
        ModelTurn(
            f"{ANALYSIS}A one-line patch.<|end|>{NEXT}<|channel|>commentary to=functions.apply_patch<|message|>"
            "*** Begin Patch\n-Helo\n+Hello\n*** End Patch<|call|>"
        ),
    ),
    # A call of an MCP server's tool with its result, then the answer.
    "mcp-call": harmony(
        request("How do I install it?", DOCS),
        ModelTurn(
            f'{ANALYSIS}The docs know.<|end|>{NEXT}{CALL.format("to=docs.lookup")}{{"query": "install"}}<|call|>',
            [ToolResult("pip install interlock")],
        ),
        ModelTurn(f"{FINAL}Run `pip install interlock`.<|return|>"),
    ),
    # The same with a tool that fails; the answer still follows.
    "mcp-call-that-fails": harmony(
        request("How do I install it?", DOCS),
        ModelTurn(
            f'{CALL.format("to=docs.lookup")}{{"query": "install"}}<|call|>',
            [ToolResult(error="the server did not answer")],
        ),
        ModelTurn(f"{FINAL}I could not reach the docs.<|return|>"),
    ),
    # Python code, its output, the answer.
    "code-interpreter": harmony(
        request("What is 2 to the 64th?", PYTHON),
        ModelTurn(
            f"{ANALYSIS}I compute it.<|end|>{NEXT}<|channel|>analysis to=python code<|message|>print(2**64)<|call|>",
            [ToolResult("18446744073709551616\n")],
        ),
        ModelTurn(f"{FINAL}2 to the 64th is 18446744073709551616.<|return|>"),
    ),
    # The same with code that could not be run.
    "code-interpreter-that-fails": harmony(
        request("What is 2 to the 64th?", PYTHON),
        ModelTurn(
            "<|channel|>analysis to=python code<|message|>print(2**64)<|call|>",
            [ToolResult(error="the sandbox is gone")],
        ),
        ModelTurn(f"{FINAL}I could not run it.<|return|>"),
    ),
    # A search, a page opened, a pattern found in it, one turn each; then the answer.
    "web-search": harmony(
        request("Who wrote h11?", WEB),
        ModelTurn(
            f'{ANALYSIS}Search.<|end|>{NEXT}{CALL.format("to=browser.search")}{{"query": "h11 author"}}<|call|>',
            [ToolResult("[0] h11: a pure-Python HTTP/1.1 library (https://h11.example)")],
        ),
        ModelTurn(
            f'{CALL.format("to=browser.open")}{{"id": 0}}<|call|>',
            [ToolResult("[0] h11: a pure-Python HTTP/1.1 library (https://h11.example)\nL0: h11 was written by …")],
        ),
        ModelTurn(
            f'{CALL.format("to=browser.find")}{{"pattern": "written by"}}<|call|>',
            [ToolResult("[0] h11: a pure-Python HTTP/1.1 library (https://h11.example)\nL0: h11 was written by …")],
        ),
        ModelTurn(f"{FINAL}Its page names the author.<|return|>"),
    ),
    # A search that failed; the answer still follows.
    "web-search-that-fails": harmony(
        request("Who wrote h11?", WEB),
        ModelTurn(f'{CALL.format("to=browser.search")}{{"query": "h11"}}<|call|>', [ToolResult(error="no network")]),
        ModelTurn(f"{FINAL}I could not search.<|return|>"),
    ),
    # The token budget ends inside the reasoning (R12).
    "cut-in-reasoning": harmony(
        request("Think hard.", max_output_tokens=7),
        ModelTurn(f"{ANALYSIS}First I think of", reason="length"),
    ),
    # The token budget ends inside a character of the answer (R9, R12).
    "cut-in-message": harmony(
        request("Greet the astronaut.", max_output_tokens=15),
        ModelTurn(f"{ANALYSIS}Wave.<|end|>{NEXT_FINAL}Hello 👩🏽", reason="length", missing=1),
    ),
    # The token budget ends inside a call's arguments.
    "cut-in-arguments": harmony(
        request("What is the weather in Berlin?", WEATHER),
        ModelTurn(f'{CALL.format("to=functions.get_weather")}{{"city": "Ber', reason="length"),
    ),
    # The token budget ends inside the header of a message, before any of its text.
    "cut-in-header": harmony(
        request("What is the weather in Berlin?", WEATHER),
        ModelTurn(f"{ANALYSIS}Call it.<|end|>{NEXT}<|channel|>commentary to=functions.get", reason="length"),
    ),
    # The token budget ends inside the code: it is never run.
    "cut-in-code": harmony(
        request("What is 2 to the 64th?", PYTHON),
        ModelTurn("<|channel|>analysis to=python code<|message|>print(2**", reason="length"),
    ),
    # The engine fails in the middle of the answer (R4).
    "engine-error": harmony(
        request("Hello?"),
        ModelTurn(f"{FINAL}Hello, how are", reason="error"),
    ),
    # The engine gives the request up: the response is cancelled (R3).
    "engine-abort": harmony(
        request("Hello?"),
        ModelTurn(f"{ANALYSIS}Greet.<|end|>{NEXT_FINAL}Hello, how", reason="abort"),
    ),
    # Log probabilities with one alternative for each token of the answer (R15).
    "logprobs": harmony(
        request("Hello?", include=["message.output_text.logprobs"], top_logprobs=2),
        ModelTurn(f"{ANALYSIS}Greet.<|end|>{NEXT_FINAL}Hello there, how are you?<|return|>", logprobs=True),
    ),
    # Plain text, which is an answer from its first character to its last.
    "text": text(
        request("Hello?"),
        ModelTurn("\n\nHello there.\n\nHow are you, 👩🏽‍🚀?"),
    ),
    # Plain text with log probabilities.
    "text-logprobs": text(
        request("Hello?", include=["message.output_text.logprobs"], top_logprobs=2),
        ModelTurn("Hello there, how are you?", logprobs=True),
    ),
    # The deltas of a reasoning and tool parser of vLLM: reasoning, white space that is no message, two calls.
    "vllm-calls": vllm(
        request("Berlin and Paris?", WEATHER),
        {"reasoning": "The user wants "},
        {"reasoning": "the weather.\n"},
        {"content": "\n\n"},
        {"tool_calls": [{"index": 0, "id": "call_berlin", "type": "function", "function": {"name": "get_weather"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"city": '}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"Berlin"}'}}]},
        {
            "tool_calls": [
                {
                    "index": 1,
                    "id": "call_paris",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
                }
            ]
        },
    ),
    # The same kind of deltas with an answer, its beginning in one delta with the end of the reasoning; cut.
    "vllm-answer": vllm(
        request("Hello?", max_output_tokens=4),
        {"role": "assistant", "reasoning": "Greet"},
        {"reasoning": ".", "content": "Hel"},
        {"content": "lo, "},
        {"content": "👩🏽‍🚀"},
        reason="length",
    ),
    # The same turn of reasoning, text and two calls as the models of each family write it.
    **{
        f"family-{name.replace('_', '-')}": tagged(
            name,
            request("Berlin and Zürich?", WEATHER),
            writing.WrittenItem("reasoning", "The user wants the weather, twice."),
            writing.WrittenItem("message", "Let me look."),
            writing.WrittenItem("call", '{"city":"Berlin"}', "get_weather"),
            writing.WrittenItem("call", '{"city":"Zürich \\"Altstadt\\""}', "get_weather"),
        )
        for name in FAMILIES
    },
}
