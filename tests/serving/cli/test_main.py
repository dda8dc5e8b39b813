"""The command names a missing package."""

import re
import signal
import sys
from pathlib import Path

import pytest

import interlock
from interlock.judges import Acceptor
from interlock.serving.cli import commands
from interlock.serving.cli.main import main

LEGAL = Path(__file__).parents[2] / "corpus" / "legal"


def run(monkeypatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["interlock", *arguments])
    main()


@pytest.mark.parametrize(
    ("package", "name", "extra"),
    [
        ("click", "click", "cli"),
        ("openai_harmony", "oss-harmony", "cli"),
        ("uvicorn", "uvicorn", "serve"),
        ("mcp_types", "mcp", "serve"),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_the_command_that_installs_it(monkeypatch, package, name, extra) -> None:
    def run_without():
        raise ModuleNotFoundError(name=f"{package}.part")

    monkeypatch.setattr(commands, "run", run_without)
    everything = f"in a checkout of Interlock, pip install '.[{extra}]' installs everything"
    message = re.escape(f"interlock: this command needs {package}: pip install {name} ({everything})")
    with pytest.raises(SystemExit, match=f"^{message}$"):
        run(monkeypatch, "serve")


def test_a_missing_module_of_interlock_is_an_internal_error(monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "interlock.serving.cli.commands", None)
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "--help")
    assert ended.value.code == 2
    assert "ModuleNotFoundError: import of interlock.serving.cli.commands halted" in capsys.readouterr().err


def test_an_internal_error_is_no_verdict(monkeypatch, capsys) -> None:
    monkeypatch.setattr(Acceptor, "feed", lambda *_: {}["lost"])
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "check", str(LEGAL / "message.sse"))
    assert ended.value.code == 2
    assert "KeyError" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_printed_in_every_install(monkeypatch, capsys, option) -> None:
    monkeypatch.setitem(sys.modules, "click", None)
    run(monkeypatch, option)
    assert capsys.readouterr().out == f"interlock {interlock.__version__}\n"


def test_an_output_that_cannot_be_written_ends_a_command(monkeypatch) -> None:
    with Path("/dev/full").open("w") as output, Path("/dev/full").open("w") as errors:
        monkeypatch.setattr(sys, "stdout", output)
        monkeypatch.setattr(sys, "stderr", errors)
        with pytest.raises(SystemExit) as ended:
            run(monkeypatch, "check", str(LEGAL / "message.sse"), "--json")
    assert ended.value.code == 2


def test_a_command_with_closed_output_has_its_usual_status(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "check", str(LEGAL / "message.sse"))
    assert ended.value.code == 0


def test_an_interrupted_command_ends_and_a_second_interrupt_ends_it_silently(monkeypatch) -> None:
    number = signal.getsignal(signal.SIGINT)

    def interrupt():
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(commands, "run", interrupt)
    try:
        with pytest.raises(SystemExit) as ended:
            run(monkeypatch)
        assert (ended.value.code, signal.getsignal(signal.SIGINT)) == (130, signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGINT, number)
