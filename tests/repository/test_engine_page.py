"""The page about the engine alone: its code runs, with the files and the packages that it names and no others."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "library" / "engine.md").read_text("utf-8")
SOURCE = ROOT / "src" / "interlock"
FOLDERS = re.findall(r"^\| \[`(\w+)/`\]", PAGE, re.MULTILINE)
MODULES = ["__init__.py", "embedding.py", "lazy.py"]


def test_the_code_prints_what_the_page_shows_with_only_the_files_that_it_names(tmp_path) -> None:
    package = tmp_path / "interlock"
    for folder in FOLDERS:
        shutil.copytree(SOURCE / folder, package / folder)
    for module in MODULES:
        shutil.copy(SOURCE / module, package / module)
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    shown = "".join(re.findall(r"```text\n(Open.*?|    function.*?)```", PAGE, re.DOTALL))
    done = subprocess.run(  # noqa: S603 - our own text
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == (shown, "")


def test_the_files_import_the_packages_that_the_page_names() -> None:
    paths = [SOURCE / module for module in MODULES] + [path for folder in FOLDERS for path in (SOURCE / folder).rglob("*.py")]
    imported = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else names
            imported |= {name.partition(".")[0] for name in names}
    optional = {"openai", "transitions"}  # imported by a conversion each, when it is asked for
    assert imported - {*sys.stdlib_module_names, "interlock"} - optional == {"attrs", "msgspec", "orjson"}


# The page about a server of one's own: its pieces of code run, one after another, and make a legal stream


EMBEDDING_PAGE = (Path(__file__).parents[2] / "docs" / "library" / "embedding.md").read_text("utf-8")


def test_the_pieces_of_code_run_one_after_another() -> None:
    known = {}
    for code in re.findall(r"```python\n(.*?)```", EMBEDDING_PAGE, re.DOTALL):
        exec(code, known)  # noqa: S102 - our own text
    assert known["driver"].response["status"] == "completed"
    assert known["driver"].response["output"][0]["content"][0]["text"] == "It rains."
