"""benchmarks/turns: the faults behind the errors of recorded streams, and the pages of the results."""

from collections import Counter
from pathlib import Path

import pytest
from faults import FAULTS, NO_END, OPENAI_RAISES, OTHERS, count_faults, symptoms
from turns_pages import PAGE, RESULTS, SAMPLES, TURNS_PAGE, UNSTEADY, Played, page, read_fixes, read_results, turns_page

ROOT = Path(__file__).parents[2]
STREAMS = ROOT / "tests" / "corpus" / "vllm"
(
    FIELDS,
    CUT,
    THINK,
    LOST,
    TEXT_LOST,
    WHITE,
    TEXT_AFTER,
    TEXT_IN_CALL,
    COMPLETED,
    TOOL,
    *UNENDED,
    ITEMS,
    STATUS,
    CODE,
    QUERY,
    LOGPROBS,
) = FAULTS


def counted(*streams):
    read = [symptoms((STREAMS / f"{name}.sse").read_bytes(), whole) for name, whole in streams]
    return [(fault, dict(counts.errors), counts.turns, counts.raises) for fault, counts in count_faults(read).items()]


@pytest.mark.parametrize(
    ("name", "whole", "faults"),
    [
        ("a-function-call", "", [(FIELDS, {"R13": 1, "R14": 2}, 1, 0)]),
        ("a-search", "", [(TOOL, {"R7": 1, "R11": 1}, 1, 1), (QUERY, {"R13": 1}, 1, 0)]),
        ("no-channel", "", [(UNENDED[-1], {"R3": 1}, 1, 0)]),
        ("cut-in-arguments", "", [(ITEMS, {"R13": 1}, 1, 0), (COMPLETED, {"R3": 1}, 1, 0)]),
        ("empty-reasoning", "", [(ITEMS, {"R6": 1, "R13": 2}, 1, 0)]),
        ("python", "", [(CODE, {"R13": 1}, 1, 0)]),
        (
            "log-probabilities-parsers",
            "R19: `output[1].content[0].logprobs` is a list of 1, but a list of 2 in the whole answer",
            [(LOGPROBS, {"R15": 1, "R19": 1}, 1, 0)],
        ),
        (
            "text-after-a-call-mistral",
            'R19: `output` is `["reasoning", "function_call"]`, but `["reasoning", "message"]` in the whole answer',
            [(CUT, {"R19": 1}, 1, 0)],
        ),
        (
            "text-after-a-call-mistral",
            'R19: `output[0].content[0].text` is `"<think>Hm."`, but `"Hm."` in the whole answer',
            [(THINK, {"R19": 1}, 1, 0)],
        ),
        (
            "text-after-a-call-mistral",
            'R19: `output` is `["reasoning"]`, but `["reasoning", "function_call"]` in the whole answer',
            [(LOST, {"R19": 1}, 1, 0)],
        ),
        (
            "reasoning-and-a-function-call-parsers",
            'R19: `output` is `["message", "function_call"]`, but `["function_call"]` in the whole answer',
            [(WHITE, {"R19": 1}, 1, 0)],
        ),
        (
            "text-after-a-call-mistral",
            'R19: `output[1].content[0].text` is `"\\n\\nI look."`, but `"I look."` in the whole answer',
            [(WHITE, {"R19": 1}, 1, 0)],
        ),
        (
            "text-after-a-call-mistral",
            'R19: `output` is `["function_call", "message"]`, but `["function_call"]` in the whole answer',
            [(TEXT_AFTER, {"R19": 1}, 1, 0)],
        ),
        (
            "text-after-a-call-mistral",
            r'R19: `output[1].arguments` is `"{\"city\":\"Rome\"}And then."`, but `"{\"city\":\"Rome\"}"` in the whole answer',
            [(TEXT_IN_CALL, {"R19": 1}, 1, 0)],
        ),
        ("text-after-a-call-mistral", "", []),
    ],
)
def test_the_errors_of_a_stream_have_these_faults(name, whole, faults):
    assert counted((name, whole)) == faults


@pytest.mark.parametrize(
    ("raised", "fault"),
    [
        ("ValueError: Unknown channel: None", UNENDED[0]),
        ("VLLMValidationError: Unknown channel: None", UNENDED[0]),
        ("ValidationError: 103 validation errors for …", UNENDED[1]),
        ("JSONDecodeError: Expecting value: line 1 column 1 (char 0)", UNENDED[2]),
        ("IndexError: list index out of range", UNENDED[3]),
        ("ValidationError: 1 validation error for ResponseFunctionToolCallItem name Input should be …", UNENDED[4]),
        ("KeyError: 'a'", UNENDED[5]),
    ],
)
def test_the_exception_that_ends_a_stream_tells_its_fault(raised, fault):
    turn = Played("harmony", symptoms=tuple(symptoms((STREAMS / "no-channel.sse").read_bytes())), raised=raised)
    assert [*count_faults([turn.causes])] == [fault]


@pytest.mark.parametrize(
    ("other_content", "fault"),
    [
        ('the text is `"I \\n"` instead of `"I look."`', TEXT_LOST),
        ('the text is `"I look."` instead of `"I look.<tool_call>"`', WHITE),
        ('the reasoning is `"<think>Hm."` instead of `"Hm."`', WHITE),
        ("", WHITE),
    ],
)
def test_what_differs_from_what_the_model_wrote_tells_the_fault(other_content, fault):
    whole = 'R19: `output` is `["message", "function_call"]`, but `["function_call"]` in the whole answer'
    turn = Played("hermes", symptoms=[(whole, 1)], other_content=other_content)
    assert [*count_faults([turn.causes])] == [fault]


def test_a_fault_breaks_what_its_turns_show():
    _, sides = read_results(RESULTS.read_text("utf-8"))
    found = count_faults(turn.causes for turn in sides["vllm"]["responses"].values())
    assert {fault for fault, counts in found.items() if counts.raises} == {
        fault for fault in found if fault.harm == OPENAI_RAISES
    }
    assert {fault for fault in FAULTS if fault.harm == NO_END} == {*UNENDED}


def test_the_worst_fault_comes_first_and_of_these_that_of_most_turns():
    streams = [(name, "") for name in ("a-search", "log-probabilities-parsers", "python", "a-function-call", "a-function-call")]
    assert [(fault, turns) for fault, _, turns, _ in counted(*streams)] == [
        (TOOL, 1),
        (CODE, 1),
        (QUERY, 1),
        (FIELDS, 2),
        (LOGPROBS, 1),
    ]


def test_each_fault_that_was_found_has_a_stream_in_the_corpus():
    _, sides = read_results(RESULTS.read_text("utf-8"))
    found = count_faults(turn.causes for turn in sides["vllm"]["responses"].values())
    assert {fault.turn for fault in found if fault is not OTHERS} - {*SAMPLES} == set()


def test_the_pages_of_the_turns_are_generated_from_their_results():
    run, sides = read_results(RESULTS.read_text("utf-8"))
    assert PAGE.read_text("utf-8") == "\n".join(page(run, sides, read_fixes())) + "\n"
    assert TURNS_PAGE.read_text("utf-8") == "\n".join(turns_page(sides)) + "\n"


def test_each_error_of_vllm_has_one_fault():
    _, sides = read_results(RESULTS.read_text("utf-8"))
    turns = sides["vllm"]["responses"].values()
    errors = sum((Counter(turn.errors) for turn in turns), Counter())
    assert sum((counts.errors for counts in count_faults(turn.causes for turn in turns).values()), Counter()) == errors


def test_each_stream_without_an_end_has_the_exception_that_ended_it():
    _, sides = read_results(RESULTS.read_text("utf-8"))
    played = (side["responses"] for side in sides.values())
    unended = {name: turn for turns in played for name, turn in turns.items() if not turn.ended}
    assert unended
    assert [name for name, turn in unended.items() if not (turn.raised and turn.at)] == []


def test_the_turns_with_fixes_are_those_without():
    _, sides = read_results(RESULTS.read_text("utf-8"))
    results = read_fixes()
    for turns in results.rules.values():
        assert [*turns] == [*sides["vllm"]["responses"]]
        assert {len(rules) for rules in turns.values()} == {len(results.fixes) + 1}


def test_the_page_of_the_engine_repeats_the_counts_of_the_turns():
    run, sides = read_results(RESULTS.read_text("utf-8"))
    vllm = sides["vllm"]["responses"]
    turns = [*vllm.values()]
    text = " ".join((ROOT / "docs" / "library" / "engine.md").read_text("utf-8").split())
    ordinary = [turn for turn in turns if turn.ordinary]
    legal, sound = (
        [sum(not turn.errors.keys() - ignored for turn in each) for each in (turns, ordinary)] for ignored in ({"R19"}, set())
    )
    assert f"All {len(turns)} are legal" in text
    assert f"{legal[0]} [are legal]" in text
    assert (
        f"and {sound[0]} of these equal theirs; of the {len(ordinary)} that are ordinary output, {legal[1]} and {sound[1]}."
        in text
    )
    completed = count_faults(turn.causes for turn in turns)[COMPLETED].turns
    assert f"The last event, which {completed} turns met, is fixed in 0.33." in text
    steady = [name for name, turn in vllm.items() if turn.group not in UNSTEADY]
    columns = steady, [name for name in steady if vllm[name].ordinary]
    none, three, six = ([read_fixes().sound(run.build, number, names, {"R19"}) for names in columns] for number in (0, 3, 6))
    assert f"{three[0]} of {len(steady)} streams have no error instead of {none[0]}" in text
    assert f"and {three[1]} of {len(columns[1])} ordinary ones instead of {none[1]}" in text
    assert f"with all six, {six[0]} and {six[1]} have none" in text
