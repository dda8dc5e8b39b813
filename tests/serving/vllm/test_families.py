"""Reading with parsers of our own: which family, which tokens are markers, where a round starts, what is cut."""

from types import SimpleNamespace

import pytest
from fake_vllm import Completion, Output
from recovery.notation import answer, call, items, reasoning

from interlock.fsm.deltas import EndTurn, Usage
from interlock.parsers.families import Settings, family
from interlock.serving.vllm.families import FORCED, Source, configured, family_reader, specials, with_written_ids
from interlock.serving.vllm.pairing import Pairing
from interlock.serving.vllm.reading import finish_reason

HERMES = family("hermes", "qwen3")
TOOLS = {"tools": [{"type": "function", "name": "f"}]}
CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'


class Tokenizer:
    """A vocabulary of letters, and of the markers that are given."""

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
        """Letters of strings, and the token of a marker that is given in a list."""
        return [
            token
            for piece in pieces
            for token in (map(self.convert_tokens_to_ids, piece) if isinstance(piece, list) else map(ord, piece))
        ]


MARKED = Tokenizer("<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_end|>")
THEIRS = SimpleNamespace(tool_parser=SimpleNamespace(supports_required_and_named=False), is_reasoning_end=lambda _: False)


def output(ids, text=None, prompt=(), logprobs=None):
    text = MARKED.decode(ids) if text is None else text
    return Output([Completion(text, ids, logprobs=logprobs)], prompt_token_ids=list(prompt))


def reader(theirs=THEIRS, *, read=HERMES, tokenizer=MARKED, forced=False, logprobs=None, lags=False):
    controls = {tokenizer.convert_tokens_to_ids("<|im_end|>")}
    source = Source(lambda _: Pairing(lambda token: tokenizer.decode([token]), controls), lambda: controls, lags)
    return family_reader(read, Settings.from_request(TOOLS), tokenizer, theirs, source, logprobs, forced=forced)


def read(*outputs, **others):
    reading = reader(**others)
    return items([*(delta for each in outputs for delta in reading.read(each)), *reading.end("stop")])


def test_the_flags_name_the_family():
    args = SimpleNamespace(tool_call_parser="hermes", enable_auto_tool_choice=True, reasoning_parser="qwen3")
    assert configured(args) is family("hermes", "qwen3")
    nested = SimpleNamespace(
        tool_call_parser="hermes",
        enable_auto_tool_choice=False,
        structured_outputs_config=SimpleNamespace(reasoning_parser="glm45"),
    )
    assert configured(nested) is family(None, "glm45")


@pytest.mark.parametrize("args", [object(), SimpleNamespace(tool_call_parser="pythonic", enable_auto_tool_choice=True)])
def test_flags_that_name_none_leave_vllms_parsers(args):
    assert configured(args) is None


def test_vllms_parsers_can_be_forced(monkeypatch):
    monkeypatch.setenv(FORCED, "vllm")
    assert configured(SimpleNamespace(tool_call_parser="hermes", enable_auto_tool_choice=True)) is None


@pytest.mark.parametrize("added", [True, False])
def test_the_markers_that_a_vocabulary_has_are_special(added):
    tokenizer = Tokenizer("<think>", "</think>", "<tool_call>", "<|im_end|>", added=added)
    assert specials(tokenizer, HERMES) == {1000: "<think>", 1001: "</think>", 1002: "<tool_call>"}


def test_vllms_parser_reads_where_there_is_no_family_or_json_alone_is_written_or_the_vocabulary_is_old():
    assert reader(read=None) is None
    assert reader(None) is None
    assert reader(forced=True) is not None
    for theirs in (SimpleNamespace(), SimpleNamespace(_tool_parser=SimpleNamespace(supports_required_and_named=True))):
        assert reader(theirs, forced=True) is None
        assert reader(theirs) is not None
    assert reader(read=family("mistral")) is None
    assert reader(read=family("mistral"), tokenizer=Tokenizer("[TOOL_CALLS]", "[ARGS]")) is not None


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
    theirs = SimpleNamespace(is_reasoning_end=lambda _: ended)
    assert read(output([97], prompt=MARKED.encode("Hi.", prompt)), theirs=theirs) == [expected]


def test_without_reasoning_a_round_starts_with_a_message():
    assert read(output([97]), read=family("hermes")) == [answer("a")]


def test_a_release_whose_parser_does_not_know_prompts_starts_as_the_family_does():
    assert read(output([97]), theirs=SimpleNamespace()) == [reasoning("a")]


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_markers_that_are_spelled_are_text_however_many_tokens_come_at_once(size):
    ids = MARKED.encode(
        "It is </think>.", ["</think>"], f"Say {CALL}.", ["<tool_call>"], CALL[11:-12], ["</tool_call>"], "</think>"
    )
    outputs = [output(ids[at : at + size]) for at in range(0, len(ids), size)]
    assert read(*outputs) == [reasoning("It is </think>."), answer(f"Say {CALL}."), call("f", "{}"), answer("</think>")]


@pytest.mark.parametrize("lags", [True, False])
def test_text_that_comes_after_its_tokens_is_read_when_it_comes(lags):
    ids = MARKED.encode("a", ["</think>"], "b")
    assert read(output(ids, "a"), output([99], "</think>bc"), lags=lags) == [reasoning("a"), answer("bc")]


def test_where_text_lags_behind_a_stop_sequence_cuts_it_inside_of_a_token():
    ids = MARKED.encode("a", ["</think>"], "bcd")
    cut = output(MARKED.encode("e"), "c")
    cut.outputs[0].finish_reason = "stop"
    assert read(output(ids, ""), output([], "a</think>b"), cut, lags=True) == [reasoning("a"), answer("bc")]


def test_the_text_of_the_token_that_ends_a_round_is_dropped():
    ids = MARKED.encode(["</think>"], "a", ["<|im_end|>"], "b", ["<|im_end|>"])
    assert read(output(ids)) == [answer("ab")]
    assert read(*(output([token]) for token in ids)) == [answer("ab")]


def test_what_a_round_cost_is_counted():
    reading = reader()
    reading.read(output([], ""))
    reading.read(output(MARKED.encode("ab", ["</think>"], "c"), prompt=[1, 2, 3]))
    assert reading.end("stop")[-1] == EndTurn("stop", Usage(0, 1, 4, 2, 2))
    reading.read(output([97], prompt=[1, 2, 3]))
    assert reading.end("length")[-1] == EndTurn("length", Usage(3, 1, 1, 1, 2))
    assert reading.end("abort")[-1] == EndTurn("abort")


def test_log_probabilities_go_with_their_text():
    ids = MARKED.encode("a", ["</think>"], "b")
    entries = [{"token": MARKED.decode([token])} for token in ids]
    assert read(output(ids), logprobs=lambda _: entries)[1].tokens == ["b"]


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_reasoning_tokens_are_those_between_the_marks_however_many_come_at_once(size):
    ids = MARKED.encode(["<think>"], "\nabc\n", ["</think>"], "d", ["<think>"], "e", ["<tool_call>"], CALL[11:-12])
    reading = reader()
    for at in range(0, len(ids), size):
        reading.read(output(ids[at : at + size], prompt=[1]))
    assert reading.end("stop")[-1].usage == Usage(1, 1, len(ids), 6, 2)


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
def test_the_model_is_shown_the_ids_that_it_wrote(name, call_id, written):
    said = {"type": "message", "role": "user", "content": "Hi."}
    called, answered = ({"type": kind, "call_id": call_id} for kind in ("function_call", "function_call_output"))
    assert with_written_ids([said, called, answered], family(name)) == [
        said,
        {**called, "call_id": written},
        {**answered, "call_id": written},
    ]
    assert family(None, "qwen3").written_id(call_id) == call_id


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("stop", "stop"),
        (None, "stop"),
        ("length", "length"),
        ("repetition", "content_filter"),
        ("abort", "abort"),
        ("error", "error"),
    ],
)
def test_a_round_ends_for_the_reason_that_vllm_gives(theirs, ours):
    assert finish_reason(Output([Completion(finish_reason=theirs)])) == ours


def test_a_stop_sequence_inside_a_call_cuts_the_turn():
    reading = reader()
    told = [*reading.read(output(MARKED.encode("</think>", ["<tool_call>"], '{"name": "f", "arguments": {"s": "Par')))]
    told += reading.end("stop")
    assert items(told)[-1] == call("f", '{"s": "Par', "")
    assert told[-1].reason == "cut"
