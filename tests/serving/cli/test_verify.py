"""`interlock verify` prints the figures of the proof; its exit status shows whether the proof holds."""

import json
import os
import pty
import sys
from functools import partial

import pytest
from click.testing import CliRunner

from interlock.fsm import deltas
from interlock.serving.cli.commands import app
from interlock.verify import process_walks as processes
from interlock.verify import proof
from interlock.verify.oracle.grammar import ORDERS
from interlock.verify.proof import Counterexample, Coverage, Proof, prove

EDGES = {"response": Coverage(10, ()), "message": Coverage(21, ("pending/pad",))}
REFUTED = Proof(1, 2, 3, 4, 5, EDGES, Counterexample((deltas.Close(), "text"), ("R9: event 4: it is not the same",)), ())
UNFIRED = Proof(1, 2, 3, 4, 5, EDGES, None, ())
HOLDS = Proof(1, 2, 3, 4, 5, {"response": Coverage(10, ())}, None, ())


@pytest.fixture
def run(monkeypatch):
    def run(*arguments, result=None, invoke=None):
        stub = partial(prove, kinds=("function_call",)) if result is None else lambda **_: result
        monkeypatch.setattr(proof, "prove", stub)
        return (invoke or partial(CliRunner().invoke, app))(["verify", *arguments])

    return run


def test_a_proof_that_holds_gives_its_figures(run):
    result = run()
    lines = result.stdout.splitlines()
    assert (result.exit_code, result.stderr) == (0, "")  # progress is for terminals
    assert lines[0].split() == ["lifecycle", "edges", "fired", "never", "fired"]
    assert [line.split() for line in lines[1:3]] == [["response", "12", "12"], ["function_call", "4", "4"]]
    assert [line.split() for line in lines[3:6]] == [["turns", "52", "52"], ["background", "28", "28"], ["stored", "32", "32"]]
    assert lines[-1] == "every stream is legal, and every edge fired"


@pytest.mark.long
def test_the_number_of_open_items_is_an_option(run):
    few, more = (json.loads(run("--json", "--open", number).stdout) for number in ("1", "2"))
    assert few["holds"]
    assert more["holds"]
    assert few["states"] <= more["states"]


def test_a_missing_row_of_the_oracle_is_named(run, monkeypatch):
    monkeypatch.delitem(ORDERS, "function_call")
    result = run()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "ORDERS in verify/oracle/api.py has no row for 'function_call'" in result.stderr


def test_a_counterexample_is_shown_with_its_path(run):
    result = run(result=REFUTED)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-4:] == [
        "counterexample:",
        "    Close()",
        "    'text'",
        "R9: event 4: it is not the same",
    ]


def test_the_json_output_has_the_counterexample(run):
    result = run("--json", result=REFUTED)
    figures = json.loads(result.stdout)
    assert result.exit_code == 1
    assert figures.pop("seconds") >= 0
    unfired = {name: walk["unfired"] for name, walk in figures.pop("walks").items()}
    assert unfired == {name: [] for name in processes.WALKS}
    assert figures == {
        "holds": False,
        "states": 1,
        "inputs": 2,
        "transitions": 3,
        "streams": 4,
        "events": 5,
        "coverage": {
            "response": {"edges": 10, "unfired": []},
            "message": {"edges": 21, "unfired": ["pending/pad"]},
        },
        "faults": [],
        "counterexample": {"path": ["Close()", "'text'"], "faults": ["R9: event 4: it is not the same"]},
    }


def test_an_edge_that_never_fired_is_named(run):
    result = run(result=UNFIRED)
    assert result.exit_code == 1
    assert "pending/pad" in result.stdout
    assert result.stdout.splitlines()[-1] == "some edges never fired"


def test_a_failed_walk_is_reported(run, monkeypatch):
    monkeypatch.setitem(processes.WALKS, "turns", lambda: processes.Walk(1, 2, (), ("begin, leave: the response has not ended",)))
    result = run(result=HOLDS)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "turns: begin, leave: the response has not ended"
    assert json.loads(run("--json", result=HOLDS).stdout)["holds"] is False


def test_a_terminal_shows_progress(run, monkeypatch, capfd) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal, end = pty.openpty()
    with os.fdopen(end, "w") as error:
        monkeypatch.setattr(sys, "stderr", error)
        run(invoke=partial(app, standalone_mode=False))
    assert capfd.readouterr().out.splitlines()[-1] == "every stream is legal, and every edge fired"
    output = os.read(terminal, 10_000)
    os.close(terminal)
    assert b"Exploring the driver" in output
