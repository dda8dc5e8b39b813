"""Long texts of gpt-oss' prompts: they are encoded slice by slice, and the prompt has the tokens that it would have anyway."""

import asyncio
import json
import re

import fake_vllm as fake
import pytest
from fake_vllm import ENCODING, Serving, outputs
from live.plugged import ANSWER, BODY, client_of
from openai_harmony import Author, Conversation, DeveloperContent, Message, Role, ToolDescription

from interlock.serving.engines import harmony_tokens
from interlock.serving.engines.harmony_tokens import ENCODED_AT_ONCE
from interlock.serving.engines.vllm.long_texts import LongTexts
from interlock.serving.requests.api_errors import ApiError

WORDS = ["the", "train,", "runs", "42 km\n", "—", "über", "  x", "'s", "日本", "😀", "<|end|>", "e.g."]
PROSE = " ".join(WORDS[number * number % 97 % len(WORDS)] for number in range(4_000))
RUN = "a" * 20_000


def render(body):
    """Render the texts of a request as vLLM does: instructions and tools, a question, a call and its output."""
    question, call, output = body["input"]
    tools = [ToolDescription.new(tool["name"], tool["description"]) for tool in body["tools"]]
    developer = DeveloperContent.new().with_instructions(body["instructions"]).with_function_tools(tools)
    messages = [
        Message.from_role_and_content(Role.DEVELOPER, developer),
        Message.from_role_and_content(Role.USER, question["content"][0]["text"]),
        Message.from_role_and_content(Role.ASSISTANT, call["arguments"]).with_channel("commentary"),
        Message.from_author_and_content(Author.new(Role.TOOL, "functions.f"), output["output"]),
    ]
    return ENCODING.render_conversation_for_completion(Conversation.from_messages(messages), Role.ASSISTANT)


def body_of(text):
    return {
        "instructions": text,
        "tools": [{"type": "function", "name": "f", "description": f"Reads.\n{text.replace(chr(10), ' ')}\nAnd writes."}],
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": text},
            {"type": "function_call_output", "call_id": "c", "output": text},
        ],
        "model": text,
    }


@pytest.fixture
def encoded(monkeypatch):
    """The texts that the tokenizer encodes."""
    texts = []

    class Recorded:
        def encode(self, text, **options):
            texts.append(text)
            return ENCODING.encode(text, **options)

    monkeypatch.setattr(harmony_tokens, "encoding", Recorded)
    return texts


@pytest.mark.parametrize("text", [PROSE, PROSE[:2_000], "Short.", "short and\nlong " * 100])
def test_the_prompt_has_the_tokens_of_its_texts(text):
    texts = LongTexts(1_000_000)
    hidden = texts.hide(body_of(text))
    assert asyncio.run(texts.reveal(render(hidden))) == render(body_of(text))
    assert texts.reveal_json(hidden) == body_of(text)


@pytest.mark.parametrize("text", ["a b" + "c" * 2_000 + " d", "c" * 3_000 + ". ", f"{'c' * 3_000} d {'c' * 3_000}"])
def test_the_prompt_has_words_that_are_longer_than_a_slice(text):
    texts = LongTexts(1_000_000)
    hidden = texts.hide(body_of(text))
    assert ENCODING.decode(asyncio.run(texts.reveal(render(hidden)))) == ENCODING.decode(render(body_of(text)))


def test_only_slices_are_encoded(encoded):
    texts = LongTexts(1_000_000)
    hidden = texts.hide(body_of(RUN))
    text = ENCODING.decode(asyncio.run(texts.reveal(render(hidden))))
    assert (max(map(len, encoded)), hidden["model"]) == (ENCODED_AT_ONCE, RUN)
    assert (text.count(RUN), max(len(item) for item in map(str, hidden["input"])) < ENCODED_AT_ONCE) == (5, True)


def test_many_texts_are_as_short_as_one(encoded):
    body = {"input": [{"role": "user", "content": "a" * 1_000}] * 50}
    texts = LongTexts(1_000_000)
    hidden = texts.hide(body)
    prompt = ENCODING.encode("\n".join(item["content"] for item in hidden["input"]))
    assert ENCODING.decode(asyncio.run(texts.reveal(prompt))) == "\n".join(["a" * 1_000] * 50)
    assert len(encoded) == 50
    assert max(len(item["content"]) for item in hidden["input"]) == 4


def tool_of(word):
    """A tool that has a word wherever harmony writes a string."""
    properties = {
        word: {"type": "string", "description": f"A {word}.", "title": word, "examples": [word]},
        "a": {"type": "string", "enum": [word, "b"]},
        "c": {"type": "array", "items": {"type": "string", "enum": [word]}, "default": [word]},
        "d": {"type": "string", "default": word},
        "e": {"type": [word, "string"]},
    }
    parameters = {"type": "object", "description": word, "title": word, "required": [word], "properties": properties}
    return {"type": "function", "name": word, "description": f"{word}\n{word}", "parameters": parameters}


def render_tools(tools):
    descriptions = [ToolDescription.new(tool["name"], tool["description"], tool["parameters"]) for tool in tools]
    developer = DeveloperContent.new().with_function_tools(descriptions)
    message = Message.from_role_and_content(Role.DEVELOPER, developer)
    return ENCODING.render_conversation_for_completion(Conversation.from_messages([message]), Role.ASSISTANT)


@pytest.mark.parametrize(
    "word", ["a" * 900, "a" * 2_000, '"' * 1_500, "\\n" * 800, " " * 1_500 + "a", "\n" * 1_500 + "a", "ab c"]
)
def test_no_string_of_a_tool_has_a_word_longer_than_a_slice(word):
    tools, texts = [tool_of(word)], LongTexts(1_000_000)
    hidden = texts.hide({"tools": tools})["tools"]
    runs = re.findall(r"[^\W\d]+|\d+|\s+|[^\w\s]+", ENCODING.decode(render_tools(hidden)))
    assert max(map(len, runs)) < 600  # twice the slice, because JSON escapes some characters
    assert ENCODING.decode(asyncio.run(texts.reveal(render_tools(hidden)))) == ENCODING.decode(render_tools(tools))
    assert texts.reveal_json(hidden) == tools


def test_a_grammar_has_the_names_of_its_tools():
    word = "a" * 900
    texts = LongTexts(1_000_000)
    hidden = texts.hide({"tools": [tool_of(word)]})["tools"]
    for grammar in (json.dumps(hidden), json.dumps(hidden, ensure_ascii=False)):
        assert json.loads(texts.reveal_grammar(grammar)) == [tool_of(word)]


def test_long_names_of_calls_are_short_for_vllm():
    texts, call = LongTexts(1_000_000), {"type": "function_call", "call_id": "c", "name": "a" * 4_000, "arguments": "{}"}
    (hidden,) = texts.hide({"input": [call]})["input"]
    assert (len(hidden["name"]), texts.reveal_json(hidden)) == (4, call)


def test_tools_that_are_too_large_are_refused():
    tools = [{"type": "function", "name": "f", "parameters": {"properties": {f"a{number}": {} for number in range(49_000)}}}]
    with pytest.raises(ApiError) as refused:
        LongTexts(1_000_000).hide({"tools": tools})
    assert (refused.value.status, refused.value.param) == (400, "tools")
    described = [{"type": "function", "name": "f", "description": PROSE * 40}]
    assert LongTexts(1_000_000).hide({"tools": described}) != {"tools": described}


def test_only_texts_in_the_prompt_count():
    reasoning = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": PROSE}]}  # older reasoning is not rendered
    texts = LongTexts(2_000)
    hidden = texts.hide({"input": [reasoning, {"role": "user", "content": PROSE[:4_000]}]})
    prompt = ENCODING.encode(hidden["input"][1]["content"])
    assert asyncio.run(texts.reveal(prompt)) == ENCODING.encode(PROSE[:4_000], disallowed_special=())


def test_a_prompt_that_is_too_long_is_not_encoded_to_its_end(encoded):
    texts = LongTexts(1_000)
    hidden = texts.hide(body_of(PROSE))
    assert len(asyncio.run(texts.reveal(render(hidden)))) > 1_000
    assert sum(map(len, encoded)) < len(PROSE)


@pytest.mark.usefixtures("vllm")
@pytest.mark.parametrize(("most", "status"), [(10_000, 200), (1_000, 400)])
def test_vllm_renders_only_short_texts(monkeypatch, most, status):
    monkeypatch.setattr(fake, "prompt_of", lambda request: ENCODING.encode(str(request.input)))
    serving = Serving(fake.HarmonyContext, outputs(ANSWER))
    serving.model_config.max_model_len = most

    async def asking():
        async with client_of(serving) as client:
            return await client.post("/v1/responses", json={**BODY, "input": RUN, "enable_response_messages": True})

    answer = asyncio.run(asking())
    assert answer.status_code == status
    assert len(str(serving.requests[-1].input)) < ENCODED_AT_ONCE
    if status == 200:
        prompt = serving.turns[0].input["prompt_token_ids"]
        assert (ENCODING.decode(prompt), serving.turns[0].sampling.max_tokens) == (RUN, most - len(prompt))
