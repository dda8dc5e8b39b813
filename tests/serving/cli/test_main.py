"""The command says what it lacks where it lacks something."""

import sys

import pytest

from interlock.serving.cli.main import main


def test_a_package_that_is_not_installed_is_named_with_the_extra_that_brings_it(monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "interlock.serving.cli.commands", raising=False)
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == "interlock: the command needs typer; install it with: pip install 'interlock[serve]'"


def test_a_module_that_is_our_own_is_missed_aloud(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "interlock.serving.cli.commands", None)
    with pytest.raises(ModuleNotFoundError, match=r"interlock\.serving\.cli\.commands"):
        main()


def test_the_command_runs(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["interlock", "--version"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("interlock ")
