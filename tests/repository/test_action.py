"""The GitHub action and the hook for pre-commit call the current command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from interlock.serving.cli.commands import app

ROOT = Path(__file__).parents[2]
LEGAL, BROKEN = (ROOT / "tests/corpus" / name for name in ("legal/nothing.sse", "broken/R9-delta-lost.sse"))
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())


@pytest.mark.parametrize(("source", "status", "annotations"), [(LEGAL, 0, 0), (f"{LEGAL} {BROKEN}", 1, 1)])
def test_the_action_annotates_findings_and_writes_a_summary(source, status, annotations, tmp_path) -> None:
    (script,) = (step["run"] for step in ACTION["runs"]["steps"] if step["name"] == "Check")
    summary = tmp_path / "summary.md"
    names = {"SOURCE": str(source), "CONFORMANCE": "", "ARGUMENTS": "--permissive", "GITHUB_STEP_SUMMARY": str(summary)}
    env = {**os.environ, **names, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["/bin/bash", "-eo", "pipefail", "-c", script], env=env, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert (done.returncode, done.stdout.count("::error ")) == (status, annotations)
    assert summary.read_text().startswith("```\n")
    assert summary.read_text().endswith("```\n")
    assert BROKEN.name in summary.read_text() or status == 0


def test_the_action_annotates_the_failed_cases_of_a_server(tmp_path) -> None:
    (script,) = (step["run"] for step in ACTION["runs"]["steps"] if step["name"] == "Check")
    fake, summary = tmp_path / "interlock", tmp_path / "summary.md"
    fake.write_text('#!/bin/sh\necho "  $1 $2    fails       R9: wrong\n  text    passes"\nexit 1\n')
    fake.chmod(0o755)
    names = {"SOURCE": "", "CONFORMANCE": "http://x", "ARGUMENTS": "", "GITHUB_STEP_SUMMARY": str(summary)}
    env = {**os.environ, **names, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["/bin/bash", "-eo", "pipefail", "-c", script], env=env, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    annotation = "::error title=Conformance::conformance http://x    fails       R9: wrong\n"
    assert (done.returncode, done.stdout) == (1, annotation)
    assert summary.read_text().splitlines()[1:3] == ["  conformance http://x    fails       R9: wrong", "  text    passes"]


def test_the_hook_names_a_command_that_judges_files() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    name, *arguments = hook["entry"].split()
    assert (name, CliRunner().invoke(app, [*arguments, str(BROKEN)]).exit_code) == ("interlock", 1)
