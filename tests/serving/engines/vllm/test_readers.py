"""Interlock's own parsers in vLLM: the family, the tokens that are markers, the start of a turn, and truncated text."""

from types import SimpleNamespace

import pytest
from attrs import evolve
from fake_vllm import Completion, Output, Request
from recovery.notation import answer, call, items, reasoning

from interlock.fsm.deltas import EndTurn, Usage
from interlock.parsers.chunk import Chunk
from interlock.parsers.families import family
from interlock.serving.engines.vllm import readers
from interlock.serving.engines.vllm.compat import VllmCall, response_template
from interlock.serving.engines.vllm.readers import FamilyReader, configure, specials

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
def test_a_round_starts_where_its_prompt_ends(prompt, ended, expected):
    parser = vllm_parser(is_reasoning_end=lambda _: ended)
    assert read(output([97], prompt=MARKED.encode("Hi.", prompt)), parser=parser) == [expected]


def test_without_reasoning_a_round_starts_with_a_message():
    assert read(output([97]), read=family("hermes")) == [answer("a")]


def test_without_a_parser_that_reads_prompts_a_turn_starts_as_the_family_says():
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


def test_the_text_of_the_token_that_ends_a_round_is_dropped():
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
    assert read(output(ids), entries=[{"token": MARKED.decode([token])} for token in ids])[1].tokens == ["b"]


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
