"""The command says what it lacks where it lacks something."""

import subprocess
import sys
from pathlib import Path

import pytest

import interlock
from interlock.serving.cli.main import main

RECORDINGS = Path(__file__).parents[3] / "recordings"


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
    ("package", "arguments", "extra"),
    [
        ("typer", ["--help"], "cli"),
        ("openai_harmony", ["replay", RECORDINGS / "answer.jsonl"], "cli"),
        ("uvicorn", ["serve"], "serve"),
        ("mcp_types", ["serve", "--allow-mcp-host", "mcp.example"], "serve"),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_the_extra_that_brings_it(package, arguments, extra) -> None:
    command = [sys.executable, "-c", WITHOUT, package, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, check=False, input="", text=True, timeout=60)  # noqa: S603 - our own
    message = f"interlock: this command needs {package}; the extra '{extra}' of interlock installs it\n"
    assert (done.returncode, done.stderr) == (1, message)


def test_a_module_that_is_our_own_is_missed_aloud(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "interlock.serving.cli.commands", None)
    with pytest.raises(ModuleNotFoundError, match=r"interlock\.serving\.cli\.commands"):
        run(monkeypatch, "--help")


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_printed_in_every_install(monkeypatch, capsys, option) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    run(monkeypatch, option)
    assert capsys.readouterr().out == f"interlock {interlock.__version__}\n"
