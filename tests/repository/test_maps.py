"""The map in a package's docstring names every module of its folder, and no other."""

import ast
import re
from pathlib import Path

from each import each

import interlock

PACKAGE = Path(interlock.__file__).parent
PACKAGES = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))
LEAST = 4
"""A folder with as many modules has a map."""


def modules(folder):
    """Give the names of the modules and packages in a folder."""
    files = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("__")}
    return files | {path.parent.name for path in folder.glob("*/__init__.py")}


def mapped(folder):
    """Give the names that a package's docstring lists: a name, two spaces or more, and what it is for."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    return [
        name for line in re.findall(r"^ *((?:\w+, )*\w+/?)  +\S", text, re.MULTILINE) for name in line.rstrip("/").split(", ")
    ]


@each("folder", PACKAGES, ids=lambda folder: str(folder.relative_to(PACKAGE.parent)))
def test_the_map_of_a_folder_is_what_is_in_it(folder):
    names = mapped(folder)
    assert len(names) == len({*names})
    if names or len(modules(folder)) >= LEAST:
        assert {*names} == modules(folder)
