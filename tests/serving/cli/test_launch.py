"""`interlock serve --engine vllm` is `vllm serve` with the plugin."""

import os
import shutil
import sys

import pytest

from interlock.serving.cli import main as cli
from interlock.serving.cli.main import launch_vllm, plugins, vllm_arguments


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        ([], None),
        (["check", "--engine", "vllm"], None),
        (["serve"], None),
        (["serve", "--engine", "embedded"], None),
        (["serve", "--engine", "vllm", "m", "--port", "1"], ["m", "--port", "1"]),
        (["serve", "m", "--engine=vllm", "--port", "1"], ["m", "--port", "1"]),
        (["serve", "m", "--port", "1", "--engine", "vllm"], ["m", "--port", "1"]),
    ],
)
def test_vllms_arguments_are_passed_on(arguments, passed):
    assert vllm_arguments(arguments) == passed


@pytest.mark.parametrize(
    ("named", "value"), [(None, "interlock"), ("", "interlock"), ("a,b", "a,b,interlock"), ("interlock,a", "interlock,a")]
)
def test_interlock_is_loaded_beside_other_plugins(named, value):
    assert plugins({} if named is None else {"VLLM_PLUGINS": named}) == value


@pytest.mark.parametrize("beside", [True, False])
def test_the_process_is_replaced_by_vllm(monkeypatch, tmp_path, beside):
    program = tmp_path / "vllm"
    if beside:
        program.touch()
    called = []
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(sys, "argv", ["interlock", "serve", "--engine", "vllm", "m"])
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/vllm")
    monkeypatch.setattr(os, "execve", lambda *arguments: called.append(arguments) or sys.exit())
    with pytest.raises(SystemExit):
        cli.main()
    ((path, command, environment),) = called
    expected = str(program) if beside else "/usr/bin/vllm"
    assert (path, command, environment["VLLM_PLUGINS"]) == (expected, [expected, "serve", "m"], "interlock")


def test_without_vllm_the_message_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(SystemExit, match=r"vLLM is not installed; in a checkout of Interlock: pip install '\.\[vllm\]'"):
        launch_vllm([])
