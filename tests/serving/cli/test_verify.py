"""`interlock verify` prints the figures of the proof; its exit status shows whether the proof holds."""

import json
import os
import pty
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import attrs
import pytest
from click.testing import CliRunner

from interlock.fsm import deltas
from interlock.serving.cli.commands import app
from interlock.serving.tools.code_interpreter import ContainerEffect
from interlock.verify import proof
from interlock.verify.oracle import ORDERS
from interlock.verify.process_models import MODELS
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
    assert result.exit_code == 0
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
    assert "_ORDERS in verify/oracle.py has no row for 'function_call'" in result.stderr


def test_a_counterexample_is_shown_with_its_path(run):
    result = run(result=REFUTED)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-4:] == [
        "counterexample:",
        "    Close()",
        "    'text'",
        "R9: event 4: it is not the same",
    ]


def test_a_log_shows_the_progress_of_a_long_proof(run, monkeypatch):
    monkeypatch.setattr("interlock.serving.cli.machines.PROGRESS", -1.0)
    first, *lines = run(result=REFUTED).stderr.splitlines()
    assert first == "The proof takes one to two minutes of CPU time."
    assert [line.rpartition(", after ")[0] for line in lines] == [f"Exploring the process {name}" for name in MODELS]
    assert all(re.fullmatch(r"\d+ s", line.rpartition(", after ")[2]) for line in lines)


def test_the_json_output_has_the_counterexample(run):
    result = run("--json", result=REFUTED)
    figures = json.loads(result.stdout)
    assert result.exit_code == 1
    assert figures.pop("seconds") >= 0
    unfired = {name: each["unfired"] for name, each in figures.pop("processes").items()}
    assert unfired == {name: [] for name in MODELS}
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


def test_a_process_that_differs_from_its_model_is_reported(run, monkeypatch):
    effects = {**MODELS["container"].effects, ContainerEffect.START: {}}
    monkeypatch.setitem(MODELS, "container", attrs.evolve(MODELS["container"], effects=effects))
    result = run(result=HOLDS)
    assert result.exit_code == 1
    assert "container: new/run: [start, feed] instead of [feed]" in result.stdout.splitlines()
    assert json.loads(run("--json", result=HOLDS).stdout)["holds"] is False


def read_all(terminal):
    """Read a terminal while it is written: its buffer holds 4 KiB, and a full one blocks the writer."""
    output = b""
    with suppress(OSError):  # which ends a terminal's output on Linux
        while chunk := os.read(terminal, 10_000):
            output += chunk
    return output


def test_a_terminal_shows_progress(run, monkeypatch, capfd) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal, end = pty.openpty()
    with ThreadPoolExecutor(1) as pool, os.fdopen(end, "w") as error:
        reading = pool.submit(read_all, terminal)
        monkeypatch.setattr(sys, "stderr", error)
        run(invoke=partial(app, standalone_mode=False))
    os.close(terminal)
    assert capfd.readouterr().out.splitlines()[-1] == "every stream is legal, and every edge fired"
    assert b"Exploring the driver" in reading.result()
