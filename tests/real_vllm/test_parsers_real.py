"""`ChatParser` reads the deltas of vLLM's own parsers, fed as vLLM feeds them. Skipped if vLLM is not installed."""

import json
import warnings

import pytest
from recovery.notation import Item, answer, items, reasoning, run, tokens

from interlock.parsers import ChatParser, Chunk, Routing

pytest.importorskip("vllm.version", reason="vLLM is not installed")  # `vllm` alone may be the folder of this file
pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM and what it imports warn about many things

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tokenizers  # it comes with vLLM
    import transformers
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
    from vllm.parser.parser_manager import ParserManager

FUNCTION = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CUSTOM = {"type": "custom", "name": "apply_patch"}
NAMESPACE = {"type": "namespace", "name": "crm", "description": "", "tools": [{**FUNCTION, "name": "find"}]}
BODY = {"model": "m", "input": "x", "tools": [FUNCTION, CUSTOM, NAMESPACE]}
MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_start|>", "<|im_end|>"]


def byte_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """Create a tokenizer with single bytes and the markers of qwen."""
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    bare = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={letter: at for at, letter in enumerate(sorted(letters))}, merges=[]))
    bare.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = tokenizers.decoders.ByteLevel()
    bare.add_special_tokens([tokenizers.AddedToken(mark, special=True) for mark in MARKS])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=bare)


def read(
    written: str, size: int, *, tools: str | None, thinks: str | None, include_reasoning: bool = True
) -> tuple[list[Item], int]:
    """Stream a turn through vLLM's parser and `ChatParser`; return the items and the number of reasoning tokens."""
    tokenizer = byte_tokenizer()
    kind = ParserManager.get_parser(tool_parser_name=tools, reasoning_parser_name=thinks, enable_auto_tools=True)
    request = ResponsesRequest(**BODY)
    parser = kind(tokenizer, request.tools)
    ids = tokenizer.encode(written, add_special_tokens=False)
    chunks = []
    for at in range(0, len(ids), size):
        part = ids[at : at + size]
        text = tokenizer.decode(part, skip_special_tokens=False)
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
def test_qwen3_reasoning_and_an_answer(size: int):
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
def test_two_hermes_calls_after_a_message(size: int):
    second = CALL.replace("get_weather", "crm__find").replace("Rome", "Oslo")
    seen, _ = read(f"I look.{CALL}\n{second}", size, tools="hermes", thinks=None)
    assert [(item.kind, item.fields.get("name"), item.fields.get("namespace")) for item in seen] == [
        ("message", None, None),
        ("function_call", "get_weather", None),
        ("function_call", "find", "crm"),
    ]
    assert [json.loads(item.text) for item in seen[1:]] == [{"city": "Rome"}, {"city": "Oslo"}]


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
def test_vllms_harmony_parser(size: int):
    kind = ParserManager.get_parser("openai", "openai_gptoss", enable_auto_tools=True, is_harmony=True)
    request = ResponsesRequest(**BODY)
    parser = kind(byte_tokenizer(), request.tools)
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
