"""benchmarks/turns/faults.py: the faults behind the errors of recorded streams, and the table of them."""

import re
from pathlib import Path

import pytest
from faults import FAULTS, OTHERS, count_faults

ROOT = Path(__file__).parents[2]
STREAMS = ROOT / "tests" / "corpus" / "vllm"
FIELDS, WHITE, TEXT_AFTER, BESIDE, COMPLETED, TOOL, ENDLESS, ITEMS, STATUS, CODE = FAULTS


def counted(*streams):
    read = [((STREAMS / f"{name}.sse").read_bytes(), whole) for name, whole in streams]
    return [(fault, dict(counts.errors), counts.turns, counts.raises) for fault, counts in count_faults(read).items()]


@pytest.mark.parametrize(
    ("name", "whole", "faults"),
    [
        ("a-function-call", "", [(FIELDS, {"R13": 1, "R14": 2}, 1, 0)]),
        ("a-search", "", [(TOOL, {"R7": 1, "R11": 1}, 1, 1), (OTHERS, {"R13": 1}, 1, 0)]),
        ("no-channel", "R19: no outcome", [(ENDLESS, {"R3": 1, "R19": 1}, 1, 1)]),
        ("cut-in-arguments", "", [(ITEMS, {"R13": 1}, 1, 0), (COMPLETED, {"R3": 1}, 1, 0)]),
        ("empty-reasoning", "", [(ITEMS, {"R6": 1, "R13": 2}, 1, 0)]),
        ("python", "", [(CODE, {"R13": 1}, 1, 0)]),
        ("log-probabilities-parsers", "R19: another outcome", [(BESIDE, {"R19": 1}, 1, 0), (OTHERS, {"R15": 1}, 1, 0)]),
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
        ("text-after-a-call-mistral", "", []),
    ],
)
def test_the_errors_of_a_stream_have_these_faults(name, whole, faults):
    assert counted((name, whole)) == faults


def test_the_fault_of_most_turns_comes_first_and_others_last():
    streams = [(name, "") for name in ("a-search", "log-probabilities-parsers", "python", "a-function-call", "a-function-call")]
    assert [(fault, turns) for fault, _, turns, _ in counted(*streams)] == [(FIELDS, 2), (CODE, 1), (TOOL, 1), (OTHERS, 2)]


def test_the_page_gives_each_error_to_one_rule_and_to_one_fault():
    page = (ROOT / "docs" / "evidence" / "conformance.md").read_text("utf-8")
    ((errors,),) = [row.split(" | ")[1:2] for row in page.splitlines() if row.startswith("| errors |")]
    by_rule, by_fault = (page.partition(f"### {title}\n")[2].partition("\n#")[0] for title in ("By rule", "By fault"))
    assert sum(map(int, re.findall(r"^\| \[R[^|]*\| (\d+) \|", by_rule, re.MULTILINE))) == int(errors)
    rows = re.findall(r"^\| (.*) \| .* \| (\d+) \| (\d+) \| \d+ \|$", by_fault, re.MULTILINE)
    assert sum(int(number) for _, _, number in rows) == int(errors)
    assert {says for says, *_ in rows} <= {fault.says for fault in (*FAULTS, OTHERS)}
