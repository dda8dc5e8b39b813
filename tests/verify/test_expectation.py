"""The judges and the expectation of the proof, on scenarios about calls that the server runs."""

import pytest
from fuzzing.properties import is_legal_and_true

from interlock.events.items import open_item
from interlock.events.json import as_json
from interlock.fsm.deltas import Close, EndOutput, Fail, Open, Progress, Run, Succeed

PRINTED = {"stdout": "signals\n", "stderr": ""}
EXIT = {"type": "exit", "exit_code": 0}
PATCH = {"operation": {"type": "delete_file", "path": "a.txt"}}


@pytest.mark.parametrize(
    "scenario",
    [
        [Open("shell_call", {"action": {}}), "ls", " -l", Close()],
        [Open("shell_call_output", {"call_id": "call_1"}), Progress("#0", PRINTED), EndOutput("#0", EXIT), Succeed("#0")],
        [Open("shell_call_output", {"call_id": "call_1"}), Progress("#0", PRINTED), Progress("#0", PRINTED), Succeed("#0")],
        [Open("shell_call_output", {"call_id": "call_1"}), Progress("#0", PRINTED), Fail("#0", "It broke.")],
        [Open("shell_call_output", {"call_id": "call_1"}), EndOutput("#0", EXIT)],
        [Open("mcp_list_tools", {"server_label": "s"}), EndOutput("#0", EXIT), Progress("#0", {}), Run("#0"), Succeed("#0")],
        [Open("apply_patch_call", PATCH), Close()],
        [Open("mcp_call", {"server_label": "s", "name": "n"}), "{}", Close(), Fail("#0", "It is not there.")],
    ],
    ids=repr,
)
def test_a_scenario_is_legal_and_has_the_expected_effects(scenario) -> None:
    is_legal_and_true(scenario)


def test_a_patch_that_deletes_has_no_diff() -> None:
    assert as_json(open_item("apply_patch_call", PATCH))["operation"] == PATCH["operation"]
