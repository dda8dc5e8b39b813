"""vLLM's own parsers and structural tags: `ChatParser` reads their deltas; families read and write turns as they do."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pytest
from families.derived import special_tokens
from recovery.notation import Item, answer, items, reasoning, run, tokens

from interlock.parsers import ChatParser, Chunk, FamilyParser, Routing
from interlock.parsers.families import DEFAULT_REASONING, OTHER_NAMES, REASONINGS, SYNTAXES, ParserSettings, family
from interlock.parsers.families.patterns import ANY, example
from interlock.parsers.families.reference_encoders import WrittenItem, encode

pytest.importorskip("vllm.version", reason="vLLM is not installed")  # `vllm` alone may be the folder of this file
pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM and what it imports warn about many things

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers
    import xgrammar
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
    from vllm.parser.parser_manager import ParserManager
    from vllm.reasoning import _REASONING_PARSERS_TO_REGISTER
    from vllm.tool_parsers import _TOOL_PARSERS_TO_REGISTER
    from vllm.tool_parsers import structural_tag_registry as registry

FUNCTION = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CUSTOM = {"type": "custom", "name": "apply_patch"}
NAMESPACE = {"type": "namespace", "name": "crm", "description": "", "tools": [{**FUNCTION, "name": "find"}]}
BODY = {"model": "m", "input": "x", "tools": [FUNCTION, CUSTOM, NAMESPACE]}
MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_start|>", "<|im_end|>"]


def tokenizer(texts: Sequence[str]) -> Any:
    """Create a tokenizer with single bytes and the markers of a family."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bare = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(letters)}, merges=[]))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    bare.add_special_tokens([AddedToken(text, special=True) for text in texts])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=bare)


def read(
    written: str, size: int, *, tools: str | None, thinks: str | None, include_reasoning: bool = True
) -> tuple[list[Item], int]:
    """Stream a turn through vLLM's parser and `ChatParser`; return the items and the number of reasoning tokens."""
    vocabulary = tokenizer(MARKS)
    kind = ParserManager.get_parser(tool_parser_name=tools, reasoning_parser_name=thinks, enable_auto_tools=True)
    request = ResponsesRequest(**BODY)
    parser = kind(vocabulary, request.tools)
    ids = vocabulary.encode(written, add_special_tokens=False)
    chunks = []
    for at in range(0, len(ids), size):
        part = ids[at : at + size]
        text = vocabulary.decode(part, skip_special_tokens=False)
        delta = parser.parse_delta(text, part, request, prompt_token_ids=[], finished=at + size >= len(ids))
        chunks.append(Chunk(part, delta=delta))
    wrapper = ChatParser(Routing.from_request(BODY), include_reasoning, getattr(parser, "count_reasoning_tokens", None))
    deltas = run(wrapper, chunks)
    return items(deltas), deltas[-1].usage.reasoning_tokens


def bare(read_items: list[Item]) -> list[tuple[str, object, str]]:
    """Return the kind, name and text of each item, without the ids that vLLM generates."""
    return [(each.kind, each.fields.get("name"), each.text) for each in read_items]


CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_qwen3_reasoning_and_an_answer_are_two_items(size: int):
    seen, _ = read("<think>\nI think.\n</think>\n\nIt is sunny.", size, tools=None, thinks="qwen3")
    assert [(item.kind, item.text.strip()) for item in seen] == [("reasoning", "I think."), ("message", "It is sunny.")]


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_qwen3_reasoning_and_a_hermes_call_have_no_message_between_them(size: int):
    seen, _ = read(f"<think>\nI think.\n</think>\n\n{CALL}", size, tools="hermes", thinks="qwen3")
    assert [item.kind for item in seen] == ["reasoning", "function_call"]
    assert seen[1].fields["name"] == "get_weather"
    assert seen[1].fields["call_id"]
    assert json.loads(seen[1].text) == {"city": "Rome"}


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_message_and_two_hermes_calls_are_three_items(size: int):
    second = CALL.replace("get_weather", "crm__find").replace("Rome", "Oslo")
    seen, _ = read(f"I look.{CALL}\n{second}", size, tools="hermes", thinks=None)
    assert [(item.kind, item.fields.get("name"), item.fields.get("namespace")) for item in seen] == [
        ("message", None, None),
        ("function_call", "get_weather", None),
        ("function_call", "find", "crm"),
    ]
    assert [json.loads(item.text) for item in seen[1:]] == [{"city": "Rome"}, {"city": "Oslo"}]


@pytest.mark.parametrize("arguments", ['{"city": "Rome",}', "{city: 5}", '{"city": "Rome"'])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_malformed_call_before_another_is_passed_on(size: int, arguments: str):
    malformed = CALL.replace('{"city": "Rome"}', arguments)
    seen, _ = read(f"{malformed}\n{CALL}", size, tools="hermes", thinks=None)
    assert [(item.kind, item.ending) for item in seen] == [("function_call", "Close")] * 2
    assert json.loads(seen[1].text) == {"city": "Rome"}


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_a_custom_tool_receives_its_input(size: int):
    call = '<tool_call>\n{"name": "apply_patch", "arguments": {"input": "a\\nb \\"c\\""}}\n</tool_call>'
    seen, _ = read(call, size, tools="hermes", thinks=None)
    assert bare(seen) == [("custom_tool_call", "apply_patch", 'a\nb "c"')]


@pytest.mark.parametrize("size", [1, 1000])
def test_excluded_reasoning_is_counted(size: int):
    written = "<think>abc</think>Sunny."
    with_it, count = read(written, size, tools=None, thinks="qwen3")
    without, same_count = read(written, size, tools=None, thinks="qwen3", include_reasoning=False)
    assert [item.kind for item in with_it] == ["reasoning", "message"]
    assert without == with_it[1:]
    assert count == same_count
    assert count == 3


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_chat_parser_reads_the_deltas_of_vllms_harmony_parser(size: int):
    kind = ParserManager.get_parser("openai", "openai_gptoss", enable_auto_tools=True, is_harmony=True)
    request = ResponsesRequest(**BODY)
    parser = kind(tokenizer(MARKS), request.tools)
    ids = tokens(
        "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        '<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Rome"}<|call|>'
    )
    chunks = []
    for at in range(0, len(ids), size):
        part = ids[at : at + size]
        chunks.append(Chunk(part, delta=parser.parse_delta("", part, request, finished=at + size >= len(ids))))
    seen = items(run(ChatParser(Routing.from_request(BODY)), chunks))
    assert seen[:2] == [reasoning("Think."), answer("I look.")]
    assert bare(seen[2:]) == [("function_call", "get_weather", '{"city":"Rome"}')]


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


def vllm_parser(name: str, reasoning: str | None, vocabulary: Any) -> tuple[Any, ChatCompletionRequest]:
    request = ChatCompletionRequest.model_validate({"model": "m", "messages": [], "tools": TOOLS})
    kind = ParserManager.get_parser(tool_parser_name=name, reasoning_parser_name=reasoning or "", enable_auto_tools=True)
    return kind(vocabulary, request.tools, chat_template_kwargs=THINKING), request


def whole(name: str, reasoning: str | None, text: str) -> Turn:
    """Return a turn as vLLM's parser reads it at once."""
    markers = [text for text in special_tokens(family(name, DEFAULT_REASONING[name])) if text[-1] in ">]" and ANY not in text]
    vocabulary = tokenizer([*map(example, markers), *ROLES])
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


MODELS = {
    "qwen3_coder": "qwen_3_coder",
    "hermes": "hermes",
    "qwen3_json": "qwen_3",
    "glm47": "glm_4_7",
    "minimax_m2": "minimax",
    "deepseek_v32": "deepseek_v3_2",
    "deepseek_v4": "deepseek_v4",
    "kimi_k2": "kimi",
    "deepseek_v3": "deepseek_r1",
    "deepseek_v31": "deepseek_v3_1",
}
STRICT_SCHEMA = {"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"}}, "required": ["s", "n"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": STRICT_SCHEMA, "strict": True}}


def grammar(name):
    """Return the grammar for a required call."""
    model = MODELS[name]
    builtin = getattr(registry, "_VLLM_STRUCTURAL_TAG_REGISTRY", {})
    if model in builtin:
        functions, others, choice = xgrammar.normalize_tool_choice([TOOL], "required")
        tag = builtin[model](functions, others, choice, False, "")  # noqa: FBT003 - as vLLM calls it
    else:
        tag = xgrammar.get_model_structural_tag(model, [TOOL], "required", "disabled")
    return xgrammar.Grammar.from_structural_tag(tag)


@pytest.mark.parametrize("name", MODELS)
def test_an_encoded_call_follows_the_structural_tag(name):
    text = encode([WrittenItem("call", orjson.dumps({"s": "Rome", "n": 5}).decode(), "get_weather")], name)
    info = xgrammar.TokenizerInfo([bytes([byte]) for byte in range(256)])
    compiled = xgrammar.GrammarCompiler(info).compile_grammar(grammar(name))
    for before in ("", "\n", "\n\n"):  # some tags require the line breaks between text and calls
        matcher = xgrammar.GrammarMatcher(compiled, terminate_without_stop_token=True)
        if matcher.accept_string(before + text) and matcher.is_terminated():
            return
    matcher = xgrammar.GrammarMatcher(compiled, terminate_without_stop_token=True)
    taken = next((at for at in range(len(text)) if not matcher.accept_string(text[at])), len(text))
    raise AssertionError(f"{text[:taken]!r} is taken, then comes {text[taken : taken + 40]!r}")
