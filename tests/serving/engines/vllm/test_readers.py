"""Interlock's own parsers in vLLM: the family, the tokens that are markers, the start of a turn, and truncated text."""

import asyncio
import json
import re
from types import SimpleNamespace

import fake_vllm as fake
import pytest
from attrs import evolve
from fake_vllm import ANSWER, BODY, ENCODING, Completion, Output, Request, Serving, client_of, outputs
from hypothesis import given
from hypothesis import strategies as st
from openai_harmony import Author, Conversation, DeveloperContent, Message, Role, ToolDescription
from recovery.notation import answer, call, items, reasoning

from interlock.fsm.deltas import EndTurn, Usage
from interlock.parsers.chunk import Chunk
from interlock.parsers.families import family
from interlock.serving.engines import harmony_tokens
from interlock.serving.engines.harmony_tokens import ENCODED_AT_ONCE
from interlock.serving.engines.vllm import readers
from interlock.serving.engines.vllm.compat import VllmCall, response_template
from interlock.serving.engines.vllm.readers import FamilyReader, Pairing, configure, specials
from interlock.serving.engines.vllm.vllm_engine import LongTexts
from interlock.serving.requests.api_errors import ApiError

HERMES = family("hermes", "qwen3")
TOOLS = {"tools": [{"type": "function", "name": "f"}]}
CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'


class Tokenizer:
    """A vocabulary of letters and the given markers."""

    def __init__(self, *markers, added=True):
        self.texts = dict(enumerate(markers, 1000))
        self.added = added
        self.all_special_tokens = [*markers, "<unknown>"]
        self.all_special_ids = [*self.texts]

    def get_added_vocab(self):
        return {text: token for token, text in self.texts.items()} if self.added else {}

    def convert_tokens_to_ids(self, text):
        return {text: token for token, text in self.texts.items()}.get(text)

    def decode(self, ids):
        return "".join(self.texts.get(token) or chr(token) for token in ids)

    def encode(self, *pieces):
        """Encode strings letter by letter, and a marker in a list as its token."""
        return [
            token
            for piece in pieces
            for token in (map(self.convert_tokens_to_ids, piece) if isinstance(piece, list) else map(ord, piece))
        ]


MARKED = Tokenizer("<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_end|>")


def vllm_parser(**attributes):
    return SimpleNamespace(**{"count_reasoning_tokens": len, "is_reasoning_end": lambda _: False, **attributes})


PARSER = vllm_parser(tool_parser=SimpleNamespace(supports_required_and_named=False))


def output(ids, text=None, prompt=(), logprobs=None):
    text = MARKED.decode(ids) if text is None else text
    return Output([Completion(text, ids, logprobs=logprobs)], prompt_token_ids=list(prompt))


@pytest.fixture(autouse=True)
def _decoding(monkeypatch):
    monkeypatch.setattr(readers, "decoder", lambda call, _: lambda token: call.tokenizer.decode([token]))


def rendered_call(parser=PARSER, tokenizer=MARKED, prompt=(), *, lags=False, choice="auto"):
    """Return a call that would generate a turn."""
    sampling = SimpleNamespace(
        stop=["x"] if lags else [],
        include_stop_str_in_output=False,
        all_stop_token_ids={tokenizer.convert_tokens_to_ids("<|im_end|>")},
        skip_special_tokens=True,
        spaces_between_special_tokens=True,
    )
    request, arguments = Request(input="Hi", tool_choice=choice), {"engine_input": {"prompt_token_ids": list(prompt)}}
    return VllmCall(request, sampling, parser, (), "m", tokenizer, arguments)


def reader(parser=PARSER, *, read=HERMES, tokenizer=MARKED, forced=False):
    return readers.reader(read, TOOLS, rendered_call(parser, tokenizer), (), forced=forced)


def fed(reading, each, entries=None):
    new = each.outputs[0]
    return reading.feed(Chunk(new.token_ids, new.text, entries, each))


def read(*outputs, parser=PARSER, lags=False, entries=None, **options):
    reading = reader(parser, **options)
    reading.begin(rendered_call(parser, prompt=outputs[0].prompt_token_ids, lags=lags))
    return items([*(delta for each in outputs for delta in fed(reading, each, entries)), *reading.end("stop", Usage())])


def test_the_flags_name_the_family():
    args = SimpleNamespace(tool_call_parser="hermes", enable_auto_tool_choice=True, reasoning_parser="qwen3")
    assert configure(args) is family("hermes", "qwen3")
    nested = SimpleNamespace(
        tool_call_parser="hermes",
        enable_auto_tool_choice=False,
        structured_outputs_config=SimpleNamespace(reasoning_parser="glm45"),
    )
    assert configure(nested) is family(None, "glm45")


@pytest.mark.parametrize("args", [object(), SimpleNamespace(tool_call_parser="esperanto", enable_auto_tool_choice=True)])
def test_flags_without_a_family_leave_vllms_parsers(args):
    assert configure(args) is None


TEMPLATE = {
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>"},
        "tool_calls": {
            "open": "<tool_call>",
            "close": "</tool_call>",
            "content": "json",
            "transform": {"function": "{content}"},
        },
    }
}


@pytest.mark.parametrize(("tools", "reasons"), [("hf", "hf"), ("hf", None), (None, "hf")])
def test_the_checkpoints_own_template_is_compiled(tools, reasons):
    args = SimpleNamespace(tool_call_parser=tools, enable_auto_tool_choice=True, reasoning_parser=reasons)
    read = configure(args, TEMPLATE)
    assert ("think" in read.markers, "call" in read.markers) == (bool(reasons), bool(tools))


def test_the_checkpoints_template_is_used_only_if_the_flags_name_it():
    args = SimpleNamespace(tool_call_parser="hf", enable_auto_tool_choice=True, reasoning_parser="qwen3")
    assert configure(args, TEMPLATE) is None
    assert configure(SimpleNamespace(tool_call_parser="hf", enable_auto_tool_choice=True)) is None
    assert configure(object(), TEMPLATE) is None


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [
        (SimpleNamespace(response_template=TEMPLATE), TEMPLATE),
        (SimpleNamespace(init_kwargs={"response_template": TEMPLATE}), TEMPLATE),
        (SimpleNamespace(response_template="no template"), None),
        (None, None),
    ],
)
def test_the_template_comes_from_the_tokenizer(tokenizer, expected):
    assert response_template(SimpleNamespace(renderer=SimpleNamespace(tokenizer=tokenizer))) is expected


@pytest.mark.parametrize("added", [True, False])
def test_the_markers_that_a_vocabulary_has_are_special(added):
    tokenizer = Tokenizer("<think>", "</think>", "<tool_call>", "<|im_end|>", added=added)
    assert specials(tokenizer, HERMES) == {1000: "<think>", 1001: "</think>", 1002: "<tool_call>"}


def test_vllms_parser_reads_bare_json_old_vocabularies_and_unknown_families():
    def is_family_reader(*arguments, **options):
        return isinstance(reader(*arguments, **options), FamilyReader)

    assert not is_family_reader(read=None)
    assert not is_family_reader(None)
    assert is_family_reader(forced=True)
    for parser in (vllm_parser(), vllm_parser(tool_parser=SimpleNamespace(supports_required_and_named=True))):
        assert not is_family_reader(parser, forced=True)
        assert is_family_reader(parser)
    assert not is_family_reader(read=family("mistral"))
    assert is_family_reader(read=family("mistral"), tokenizer=Tokenizer("[TOOL_CALLS]", "[ARGS]"))


@pytest.mark.parametrize(
    ("choice", "writes_json", "keeps"), [("required", True, True), ("required", False, False), ("auto", True, False)]
)
def test_vllms_parser_keeps_the_text_of_a_required_call_in_json(choice, writes_json, keeps):
    state = SimpleNamespace(engine_based=True)
    tool_parser = SimpleNamespace(supports_required_and_named=writes_json)
    parser = vllm_parser(tool_parser=tool_parser, parse_delta=None, _stream_state=state)
    reader(parser, read=None, forced=True).begin(rendered_call(parser, choice=choice))
    assert state.engine_based is not keeps


@pytest.mark.parametrize(
    ("prompt", "ended", "expected"),
    [
        (["<think>"], True, reasoning("a")),
        (["<think>", "</think>"], False, answer("a")),
        ([], True, answer("a")),
        ([], False, reasoning("a")),
        (["<think>", "<|im_end|>"], False, reasoning("a")),
    ],
)
def test_a_turn_starts_in_the_state_where_its_prompt_ends(prompt, ended, expected):
    parser = vllm_parser(is_reasoning_end=lambda _: ended)
    assert read(output([97], prompt=MARKED.encode("Hi.", prompt)), parser=parser) == [expected]


def test_a_turn_without_reasoning_starts_with_a_message():
    assert read(output([97]), read=family("hermes")) == [answer("a")]


def test_a_turn_starts_as_its_family_says_if_no_parser_reads_the_prompt():
    assert read(output([97]), parser=vllm_parser()) == [reasoning("a")]


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_spelled_markers_are_text_in_any_chunks(size):
    ids = MARKED.encode(
        "It is </think>.", ["</think>"], f"Say {CALL}.", ["<tool_call>"], CALL[11:-12], ["</tool_call>"], "</think>"
    )
    outputs = [output(ids[at : at + size]) for at in range(0, len(ids), size)]
    assert read(*outputs) == [reasoning("It is </think>."), answer(f"Say {CALL}."), call("f", "{}"), answer("</think>")]


@pytest.mark.parametrize("lags", [True, False])
def test_late_text_is_read_when_it_arrives(lags):
    ids = MARKED.encode("a", ["</think>"], "b")
    assert read(output(ids, "a"), output([99], "</think>bc"), lags=lags) == [reasoning("a"), answer("bc")]


def test_a_stop_sequence_truncates_lagging_text_inside_a_token():
    ids = MARKED.encode("a", ["</think>"], "bcd")
    cut = output(MARKED.encode("e"), "c")
    cut.outputs[0].finish_reason = "stop"
    assert read(output(ids, ""), output([], "a</think>b"), cut, lags=True) == [reasoning("a"), answer("bc")]


def test_the_text_of_the_token_that_ends_a_turn_is_dropped():
    ids = MARKED.encode(["</think>"], "a", ["<|im_end|>"], "b", ["<|im_end|>"])
    assert read(output(ids)) == [answer("ab")]
    assert read(*(output([token]) for token in ids)) == [answer("ab")]


def test_the_tokens_of_a_turn_are_counted():
    reading = reader()
    prompt = Usage(input_tokens=3, cached_tokens=1, cache_write_tokens=2)
    reading.begin(rendered_call())
    fed(reading, output([], ""))
    fed(reading, output(MARKED.encode("ab", ["</think>"], "c")))
    assert reading.end("stop", prompt)[-1] == EndTurn("stop", evolve(prompt, output_tokens=4, reasoning_tokens=2))
    reading.begin(rendered_call(prompt=[1, 2, 3]))
    fed(reading, output([97]))
    assert reading.end("length", prompt)[-1] == EndTurn("length", evolve(prompt, output_tokens=1, reasoning_tokens=1))


def test_log_probabilities_go_with_their_text():
    ids = MARKED.encode("a", ["</think>"], "b")
    assert read(output(ids), entries=[{"token": MARKED.decode([token]), "logprob": -1.0} for token in ids])[1].tokens == ["b"]


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_reasoning_tokens_are_those_between_the_markers_in_any_chunks(size):
    ids = MARKED.encode(["<think>"], "\nabc\n", ["</think>"], "d", ["<think>"], "e", ["<tool_call>"], CALL[11:-12])
    reading = reader()
    reading.begin(rendered_call(prompt=[1]))
    for at in range(0, len(ids), size):
        fed(reading, output(ids[at : at + size]))
    assert reading.end("stop", Usage())[-1].usage == Usage(output_tokens=len(ids), reasoning_tokens=6)


@pytest.mark.parametrize(
    ("name", "call_id", "written"),
    [
        ("kimi_k2", "call_functions.f:0", "functions.f:0"),
        ("kimi_k2", "call_6f1a", "call_6f1a"),
        ("mistral", "call_abc123def", "abc123def"),
        ("mistral", "call_0123456789abcdef", "call_0123456789abcdef"),
        ("hermes", "call_functions.f:0", "call_functions.f:0"),
    ],
)
def test_the_model_reads_the_call_ids_that_it_wrote(name, call_id, written):
    message = {"type": "message", "role": "user", "content": "Hi."}
    item = {"type": "function_call", "call_id": call_id}
    assert family(name).with_written_id(message) == message
    assert family(name).with_written_id(item) == {**item, "call_id": written}
    assert family(None, "qwen3").written_id(call_id) == call_id


def test_a_stop_sequence_inside_a_call_ends_the_turn():
    reading = reader()
    reading.begin(rendered_call())
    deltas = fed(reading, output(MARKED.encode("</think>", ["<tool_call>"], '{"name": "f", "arguments": {"s": "Par')))
    deltas += reading.end("stop", Usage())
    assert items(deltas)[-1] == call("f", '{"s": "Par', "")
    assert deltas[-1].reason == "cut"


# Long texts of gpt-oss' prompts: they are encoded slice by slice, and the prompt has the same tokens as without


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
def test_words_longer_than_a_slice_are_kept(text):
    texts = LongTexts(1_000_000)
    hidden = texts.hide(body_of(text))
    assert ENCODING.decode(asyncio.run(texts.reveal(render(hidden)))) == ENCODING.decode(render(body_of(text)))


def test_only_slices_are_encoded(encoded):
    texts = LongTexts(1_000_000)
    hidden = texts.hide(body_of(RUN))
    text = ENCODING.decode(asyncio.run(texts.reveal(render(hidden))))
    assert (max(map(len, encoded)), hidden["model"]) == (ENCODED_AT_ONCE, RUN)
    assert (text.count(RUN), max(len(item) for item in map(str, hidden["input"])) < ENCODED_AT_ONCE) == (5, True)


def test_each_of_many_hidden_texts_is_short(encoded):
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
def test_hidden_strings_of_a_tool_have_no_word_much_longer_than_a_slice(word):
    tools, texts = [tool_of(word)], LongTexts(1_000_000)
    hidden = texts.hide({"tools": tools})["tools"]
    runs = re.findall(r"[^\W\d]+|\d+|\s+|[^\w\s]+", ENCODING.decode(render_tools(hidden)))
    assert max(map(len, runs)) < 600  # twice the slice, because JSON escapes some characters
    assert ENCODING.decode(asyncio.run(texts.reveal(render_tools(hidden)))) == ENCODING.decode(render_tools(tools))
    assert texts.reveal_json(hidden) == tools


def test_hidden_names_of_tools_are_restored_in_a_grammar():
    word = "a" * 900
    texts = LongTexts(1_000_000)
    hidden = texts.hide({"tools": [tool_of(word)]})["tools"]
    for grammar in (json.dumps(hidden), json.dumps(hidden, ensure_ascii=False)):
        assert json.loads(texts.reveal_grammar(grammar)) == [tool_of(word)]


def test_long_names_of_calls_are_shortened_for_vllm():
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


def test_only_texts_in_the_prompt_count_towards_its_limit():
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


# Each token is paired with its own text, however the engine splits texts and tokens


TEXTS = ("", "a", "b", "ab", "<", "é", "\n")
END = len(TEXTS)


def pairing():
    return Pairing(lambda token: "<|end|>" if token == END else TEXTS[token], {END})


def pairs(*outputs):
    """Return the pairs of the outputs of a turn; the last one ends it."""
    pairs_of_turn = pairing()
    *others, last = outputs
    chunks = [each for output in others for each in pairs_of_turn.pair(*output)]
    return chunks + list(pairs_of_turn.pair(*last, finished=True))


def single_tokens(tokens):
    return [Chunk([token], TEXTS[token]) for token in tokens]


@pytest.mark.parametrize(
    "outputs",
    [
        [([1], "a"), ([2], "b"), ([3], "ab")],
        [([1, 2, 3], "abab")],
        [([1], ""), ([2], "a"), ([3], "b"), ([], "ab")],  # a stop sequence makes the text lag behind
        [([0, 1], "a"), ([2, 3], "ba"), ([], "b")],
    ],
)
def test_a_token_is_paired_with_its_own_text(outputs):
    tokens = [token for ids, _ in outputs for token in ids]
    assert pairs(*outputs) == single_tokens(tokens)


def test_log_probabilities_go_with_their_tokens():
    first, second = {"token": "a"}, {"token": "b"}
    assert pairs(([1, 2], "a", [first, second]), ([], "b")) == [Chunk([1], "a", [first]), Chunk([2], "b", [second])]


def test_tokens_of_truncated_text_become_one_chunk():
    entries = [{"token": "ab"}, {"token": "b"}]
    assert pairs(([3, 2], "", entries), ([], "a")) == [Chunk([3, 2], "a", entries)]


def test_the_token_that_ends_a_turn_has_no_text():
    assert pairs(([1, END], "a")) == [Chunk([1], "a"), Chunk([END], "")]
    assert pairs(([1, END, 2], "a<|end|>b")) == [Chunk([1], "a"), Chunk([END], ""), Chunk([2], "b")]


def test_text_that_its_tokens_do_not_spell_stays_with_them():
    assert pairs(([1, 2], "x"), ([3], "ab")) == [Chunk([1, 2], "x"), Chunk([3], "ab")]


@given(st.lists(st.integers(0, END - 1)), st.data())
def test_pairing_loses_nothing_and_gives_each_token_its_own_text(tokens, data):
    whole = "".join(TEXTS[token] for token in tokens)
    cut = data.draw(st.integers(0, len(whole)))
    outputs, read, length = [], 0, 0
    while read < len(tokens):
        size = data.draw(st.integers(1, len(tokens) - read))
        read += size
        text_length = len("".join(TEXTS[token] for token in tokens[:read]))
        upto = data.draw(st.integers(min(length, cut), min(text_length, cut)))
        outputs.append((tokens[read - size : read], whole[length:upto]))
        length = upto
    outputs.append(([], whole[length:cut]))
    paired = pairs(*outputs)
    assert "".join(each.text for each in paired) == whole[:cut]
    assert [token for each in paired for token in each.token_ids] == tokens
    assert paired[:-1] == single_tokens(tokens)[: max(len(paired) - 1, 0)]
