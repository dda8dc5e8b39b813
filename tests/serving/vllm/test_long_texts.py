"""Long texts of gpt-oss' prompts: they are encoded slice by slice, and the prompt has the tokens that it would have anyway."""

import asyncio

import fake_vllm as fake
import pytest
from fake_vllm import ENCODING, Serving, outputs
from live.plugged import ANSWER, BODY, client_of
from openai_harmony import Author, Conversation, DeveloperContent, Message, Role, ToolDescription

from interlock.serving.engines import harmony_tokens
from interlock.serving.engines.harmony_tokens import SLICE
from interlock.serving.engines.vllm.long_texts import LongTexts

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
    hidden = asyncio.run(texts.hide(body_of(text)))
    assert texts.reveal(render(hidden)) == render(body_of(text))
    assert texts.reveal_json(hidden) == body_of(text)


@pytest.mark.parametrize("text", ["a b" + "c" * 2_000 + " d", "c" * 3_000 + ". ", f"{'c' * 3_000} d {'c' * 3_000}"])
def test_the_prompt_has_words_that_are_longer_than_a_slice(text):
    texts = LongTexts(1_000_000)
    hidden = asyncio.run(texts.hide(body_of(text)))
    assert ENCODING.decode(texts.reveal(render(hidden))) == ENCODING.decode(render(body_of(text)))


def test_only_slices_are_encoded(encoded):
    texts = LongTexts(1_000_000)
    hidden = asyncio.run(texts.hide(body_of(RUN)))
    assert (max(map(len, encoded)), hidden["model"]) == (SLICE, RUN)
    text = ENCODING.decode(texts.reveal(render(hidden)))
    assert (text.count(RUN), max(len(item) for item in map(str, hidden["input"])) < SLICE) == (5, True)


def test_many_texts_are_as_short_as_one(encoded):
    body = {"input": [{"role": "user", "content": "a" * 1_000}] * 50}
    texts = LongTexts(1_000_000)
    hidden = asyncio.run(texts.hide(body))
    prompt = ENCODING.encode("\n".join(item["content"] for item in hidden["input"]))
    assert ENCODING.decode(texts.reveal(prompt)) == "\n".join(["a" * 1_000] * 50)
    assert len(encoded) == 50
    assert max(len(item["content"]) for item in hidden["input"]) == 4


def test_a_prompt_that_is_too_long_is_not_encoded_to_its_end(encoded):
    texts = LongTexts(1_000)
    hidden = asyncio.run(texts.hide(body_of(PROSE)))
    assert len(texts.reveal(render(hidden))) > 1_000
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
    assert len(str(serving.requests[-1].input)) < SLICE
    if status == 200:
        prompt = serving.turns[0].input["prompt_token_ids"]
        assert (ENCODING.decode(prompt), serving.turns[0].sampling.max_tokens) == (RUN, most - len(prompt))
