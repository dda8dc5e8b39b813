"""Every sequence of ids, in every partition: the properties of `recovery.properties`, over three kinds of sequences."""

from itertools import chain

import openai_harmony
from hypothesis import given, settings
from hypothesis import strategies as st
from recovery.notation import answer, encoding, items, parse, preamble, reasoning, tokens, words
from recovery.properties import CONTROLS, is_the_same_in_every_partition, keeps_all_text, makes_a_legal_stream

REASONS = st.sampled_from(["stop", "length"])
SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=5)

CONTROL = st.sampled_from(sorted(CONTROLS.values()))
TEXT = st.integers(0, 199_997)
ODD = st.sampled_from([-1, 2**40, 300_000, 201_088, 200_013, 199_998, 127, 128])
WORD = st.sampled_from(
    ["assistant", "final", "analysis", "commentary", " to=functions.f", "to=", " json", "code", "{}", "Hello", " a", "\n", "é😀"]
)
RAW = st.lists(st.one_of(CONTROL, CONTROL, TEXT, ODD), max_size=40)
MIXED = st.lists(st.one_of(CONTROL.map(lambda token: [token]), WORD.map(words)), max_size=20).map(
    lambda parts: list(chain(*parts))
)

CONTENT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
HEADERS = st.sampled_from(
    [
        "<|channel|>analysis",
        "<|channel|>final",
        "<|channel|>commentary",
        "<|channel|>commentary to=functions.f <|constrain|>json",
        "<|channel|>analysis to=python code",
        " to=functions.f<|channel|>commentary json",
        " to=files.read<|channel|>commentary",
    ]
)
MESSAGE = st.tuples(HEADERS, CONTENT, st.sampled_from(["<|end|>", "<|call|>", "<|return|>"]))
CONVERSATION = st.lists(MESSAGE, min_size=1, max_size=4)


def conversation_ids(messages: list[tuple[str, str, str]]) -> list[int]:
    """Encode a conversation: a turn starts after `<|start|>assistant`."""
    ids: list[int] = []
    for header, content, end in messages:
        ids += [
            *(tokens("<|start|>assistant") if ids else []),
            *tokens(header),
            *tokens("<|message|>"),
            *words(content),
            *tokens(end),
        ]
    return ids


@st.composite
def mutated(draw: st.DrawFn) -> list[int]:
    """A well-formed turn of which tokens were dropped, doubled, replaced or swapped."""
    ids = conversation_ids(draw(CONVERSATION))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(ids) - 1, 0)))
        match draw(st.sampled_from(["drop", "double", "replace", "swap", "cut"])):
            case "drop":
                del ids[at : at + 1]
            case "double":
                ids[at:at] = ids[at : at + 1]
            case "replace":
                ids[at : at + 1] = [draw(st.one_of(CONTROL, TEXT, ODD))]
            case "swap":
                ids[at : at + 2] = reversed(ids[at : at + 2])
            case _:
                del ids[at:]
    return ids


SEQUENCES = st.one_of(RAW, MIXED, mutated())


@settings(max_examples=400, deadline=None)
@given(SEQUENCES, REASONS)
def test_no_text_is_lost_and_no_control_token_is_text(ids, reason):
    keeps_all_text(ids, reason)


@settings(max_examples=300, deadline=None)
@given(SEQUENCES, REASONS)
def test_any_sequence_gives_a_legal_stream(ids, reason):
    makes_a_legal_stream(ids, reason)


@settings(max_examples=400, deadline=None)
@given(SEQUENCES, SIZES, REASONS)
def test_any_partition_gives_the_same_items(ids, sizes, reason):
    is_the_same_in_every_partition(ids, sizes, reason)


def by_the_oracle(ids: list[int]) -> list[object]:
    """What `openai_harmony`'s own parser makes of a well-formed turn."""
    oracle = openai_harmony.StreamableParser(encoding(), openai_harmony.Role.ASSISTANT)
    for token in ids:
        oracle.process(token)
    oracle.process_eos()
    return [(each.channel, each.recipient, each.content[0].text) for each in oracle.messages]


@settings(max_examples=200, deadline=None)
@given(CONVERSATION)
def test_well_formed_turns_are_read_as_openai_harmony_reads_them(messages):
    ids = conversation_ids(messages)
    plain = {"analysis": reasoning, "final": answer, "commentary": preamble}
    expected = []
    for channel, recipient, text in by_the_oracle(ids):
        if recipient is None:
            expected.append((plain[channel]("").kind, dict(plain[channel]("").fields), text))
        elif recipient == "python":
            expected.append(("code_interpreter_call", {}, text))
        elif recipient == "functions.f":
            expected.append(("function_call", {"name": "f"}, text))
        else:
            expected.append(("mcp_call", {"name": "read", "server_label": "files"}, text))
    assert [(item.kind, item.fields, item.text) for item in items(parse(ids))] == expected
