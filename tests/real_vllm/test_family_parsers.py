"""The families read well-formed turns as vLLM's own parsers do: the same calls, text and reasoning."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from recovery.notation import items, run

from interlock.parsers import Chunk, FamilyParser
from interlock.parsers.families import DEFAULT_REASONING, OTHER_NAMES, REASONINGS, SYNTAXES, ParserSettings, family
from interlock.parsers.families.patterns import example
from interlock.parsers.families.reference_encoders import WrittenItem, encode

pytest.importorskip("vllm.version", reason="vLLM is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.parser_manager import ParserManager
    from vllm.reasoning import _REASONING_PARSERS_TO_REGISTER
    from vllm.tool_parsers import _TOOL_PARSERS_TO_REGISTER

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "more": {"type": "object", "properties": {"a": {"type": "array", "items": {"type": ["integer", "null"]}}}},
    },
}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("get_weather", "now")]
THINKING = {"thinking": True, "enable_thinking": True, "reasoning_effort": "high"}
ROLES = ("<assistant>",)
"""The tokens that vLLM's parsers require in a vocabulary, besides the markers."""
ROME = WrittenItem("call", '{"city":"Rome & <b>"}', "get_weather")
TYPED = WrittenItem("call", '{"city":"New\\nYork","days":7,"more":{"a":[1,null]}}', "get_weather")
TURNS = {
    "a call": [ROME],
    "text and a call": [WrittenItem("message", "Let me see."), ROME],
    "two calls": [ROME, WrittenItem("call", '{"city":"Oslo"}', "get_weather")],
    "values of all types": [TYPED],
    "no arguments": [WrittenItem("call", "{}", "now")],
    "an answer": [WrittenItem("message", "It is sunny.")],
}
FAULTS = {
    "step3": ("a call", "text and a call", "two calls", "values of all types"),  # values with "<", and objects
    "internlm": ("two calls",),
    "gigachat3": ("two calls",),
    **dict.fromkeys(("llama3_json", "llama4_json", "xlam"), ("text and a call",)),
    **dict.fromkeys(("cohere_command3", "cohere_command4"), ("no arguments",)),
    "phi4_mini_json": ("text and a call", "values of all types"),  # and lists in arguments
    **dict.fromkeys(("minicpm5", "pythonic", "llama4_pythonic"), ("text and a call",)),
    "olmo3": ("text and a call",),
    "functiongemma": ("values of all types",),
}
"""The turns that vLLM's parser misreads, by family."""
SAME = {"olmo3": "qwen3"}
"""The reasoning parsers of vLLM that need a real vocabulary, each with another one for the same format."""

Turn = tuple[str, str, list[tuple[str, Any]]]
"""The reasoning, the text, and the calls with their arguments."""


def tokenizer(texts: Sequence[str]) -> Any:
    """Create a tokenizer with single bytes and the markers of a family."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bare = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(letters)}, merges=[]))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    bare.add_special_tokens([AddedToken(text, special=True) for text in texts])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=bare)


def markers(name: str) -> list[str]:
    """Return the markers of a family that may be tokens."""
    texts = [example(text) for texts in family(name, DEFAULT_REASONING[name]).markers.values() for text in texts]
    return [*dict.fromkeys(text for text in texts if text[0] in "<[" and text[-1] in ">]" and ":other>" not in text)]


def vllm_parser(name: str, reasoning: str | None, vocabulary: Any) -> tuple[Any, ChatCompletionRequest]:
    request = ChatCompletionRequest.model_validate({"model": "m", "messages": [], "tools": TOOLS})
    kind = ParserManager.get_parser(tool_parser_name=name, reasoning_parser_name=reasoning or "", enable_auto_tools=True)
    return kind(vocabulary, request.tools, chat_template_kwargs=THINKING), request


def whole(name: str, reasoning: str | None, text: str) -> Turn:
    """Return a turn as vLLM's parser reads it at once."""
    vocabulary = tokenizer([*markers(name), *ROLES])
    parser, request = vllm_parser(name, reasoning, vocabulary)
    ids = vocabulary.encode(text, add_special_tokens=False)
    thought, content, calls = parser.parse(text, request, enable_auto_tools=True, model_output_token_ids=ids)
    return (thought or "").strip(), (content or "").strip(), [(call.name, json.loads(call.arguments)) for call in calls or ()]


def read_turn(name: str, reasoning: str | None, text: str, size: int) -> Turn:
    reader = FamilyParser(family(name, reasoning), ParserSettings.from_request({"tools": TOOLS}))
    read = items(run(reader, [Chunk(text=text[at : at + size]) for at in range(0, len(text), size)]))
    calls = [(item.fields["name"], json.loads(item.text)) for item in read if item.kind == "function_call"]
    texts = ("".join(item.text for item in read if item.kind == kind).strip() for kind in ("reasoning", "message"))
    return (*texts, calls)


def cases() -> Iterator[Any]:
    for name in filter(_TOOL_PARSERS_TO_REGISTER.__contains__, SYNTAXES):
        for about, turn in TURNS.items():
            yield pytest.param(name, turn, id=f"{name}, {about}")


@pytest.mark.parametrize(("name", "turn"), list(cases()))
def test_a_well_formed_turn_is_read_as_vllm_reads_it(name: str, turn: list[WrittenItem]) -> None:
    reasoning = DEFAULT_REASONING[name]
    thought = [WrittenItem("reasoning", "Hm.")] if reasoning else []
    text = encode([*thought, *turn], name, reasoning, thinking=family(name, reasoning).starts == "thinking")
    expected = (
        "Hm." if reasoning else "",
        "".join(item.text for item in turn if item.kind == "message"),
        [(item.name, json.loads(item.text)) for item in turn if item.kind == "call"],
    )
    for size in (len(text), 1, 3):
        assert read_turn(name, reasoning, text, size) == expected
    about = next(about for about, other in TURNS.items() if other is turn)
    if name.startswith("cohere_"):
        pytest.importorskip("cohere_melody", reason="vLLM reads Cohere's models with this package")
    if about not in FAULTS.get(name, ()):
        assert whole(name, SAME.get(reasoning, reasoning), text) == expected


def test_every_name_of_vllms_parsers_has_a_row_or_a_reason() -> None:
    tools, reasoning = set(_TOOL_PARSERS_TO_REGISTER), set(_REASONING_PARSERS_TO_REGISTER)
    assert tools - {*SYNTAXES, *OTHER_NAMES} == set()
    assert reasoning - {*REASONINGS, *OTHER_NAMES} == set()
    assert (len(tools & {*SYNTAXES}), len(tools)) >= (50, 54)
