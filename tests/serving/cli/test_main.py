"""The command names a missing package."""

import subprocess
import sys
from pathlib import Path

import pytest

import interlock
from interlock.judges import Acceptor
from interlock.serving.cli.main import main

RECORDINGS = Path(__file__).parents[3] / "recordings"
LEGAL = Path(__file__).parents[2] / "corpus" / "legal"


def run(monkeypatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["interlock", *arguments])
    main()


WITHOUT = """
import sys
from interlock.serving.cli.main import main
package, *arguments = sys.argv[1:]
sys.modules[package] = None
sys.argv = ["interlock", *arguments]
main()
"""


@pytest.mark.parametrize(
    ("package", "arguments", "name", "extra"),
    [
        ("click", ["--help"], "click", "cli"),
        ("openai_harmony", ["replay", RECORDINGS / "answer.jsonl"], "oss-harmony", "cli"),
        ("uvicorn", ["serve"], "uvicorn", "serve"),
        ("mcp_types", ["serve", "--allow-mcp-host", "mcp.example"], "mcp", "serve"),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_the_command_that_installs_it(package, arguments, name, extra) -> None:
    command = [sys.executable, "-c", WITHOUT, package, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, check=False, input="", text=True, timeout=60)  # noqa: S603 - our own
    everything = f"in a checkout of Interlock, pip install '.[{extra}]' installs everything"
    message = f"interlock: this command needs {package}: pip install {name} ({everything})\n"
    assert (done.returncode, done.stderr) == (1, message)


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
