"""The examples in the README print the output in the README."""

import ast
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from for_each import for_each
from openai import OpenAI

import interlock
from interlock.serving.build import build
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings
from interlock.serving.tools.code_interpreter import CodeInterpreter
from interlock.serving.tools.hosting import ToolServers

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def block(language: str, holding: str) -> str:
    (example,) = (text for text in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if holding in text)
    return example


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ServerThread(build(Settings(), EmbeddedEngine(), tools=ToolServers({"code_interpreter": CodeInterpreter()}))) as served:
        yield served


def printed(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout  # noqa: S603 - our own text


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_curl_example_prints_the_output_in_the_readme(url) -> None:
    example = block("sh", "curl -sN").replace("http://127.0.0.1:8000", url)
    assert printed(["bash", "-c", example]) == block("text", "event: response.created")


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_code_interpreter_example_prints_the_output_in_the_readme(url) -> None:
    example = block("sh", "calculate 6 * 7").replace("http://127.0.0.1:8000", url)
    assert printed(["bash", "-c", example]) == block("text", "python says: 42") == "python says: 42\n"


def test_the_openai_example_prints_the_output_in_the_readme(url, capsys) -> None:
    exec(block("python", "OpenAI(").replace("http://127.0.0.1:8000", url), {})  # noqa: S102 - our own text
    assert capsys.readouterr().out == block("text", "get_weather says")


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_the_make_targets_in_the_readme_install_what_they_need() -> None:
    for target in {*re.findall(r"(?:^|`)make (\w+)", README, re.MULTILINE)}:
        planned = printed(["make", "--dry-run", "--always-make", "--directory", str(ROOT), target])
        assert "-m venv" in planned
        assert "-m pip install --editable" in planned


def test_the_address_to_clone_is_the_repository_url_of_the_package() -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    (address,) = re.findall(r"git clone (\S+)", README)
    assert address == urls["Repository"]
    assert [url for url in urls.values() if not url.startswith(address)] == []


def test_the_library_example_prints_the_output_in_the_readme(capsys) -> None:
    exec(block("python", "driver_for"), {})  # noqa: S102 - our own text
    assert capsys.readouterr().out == block("text", "created in_progress")


def test_the_agent_test_in_the_readme_passes(interlock) -> None:
    def ask(text: str) -> str:
        with OpenAI() as client:
            (call,) = client.responses.create(model="gpt-5", input=text).output
            result = {"type": "function_call_output", "call_id": call.call_id, "output": "18"}
            history = [{"role": "user", "content": text}, call.to_dict(), result]
            return client.responses.create(model="gpt-5", input=history).output_text

    names = {"ask": ask}
    exec(block("python", "def test_an_agent"), names)  # noqa: S102 - our own text
    names["test_an_agent"](interlock)
    assert [request.turn for request in interlock.requests] == [1, 2]


# The map in the docstring of a package names exactly the modules of its folder


PACKAGE = Path(interlock.__file__).parent
PACKAGES = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))
MODULES_WITH_MAP = 4
"""The least number of modules of a folder that must have a map."""


def modules(folder):
    """Return the names of the modules and packages in a folder."""
    files = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("__")}
    return files | {path.parent.name for path in folder.glob("*/__init__.py")}


def mapped(folder):
    """Return the names that the docstring of a package lists: a name, two spaces or more, and its purpose."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    return [
        name for line in re.findall(r"^ *((?:\w+, )*\w+/?)  +\S", text, re.MULTILINE) for name in line.rstrip("/").split(", ")
    ]


@for_each("folder", PACKAGES, ids=lambda folder: str(folder.relative_to(PACKAGE.parent)))
def test_the_map_of_a_package_names_exactly_its_modules(folder):
    names = mapped(folder)
    assert len(names) == len({*names})
    if names or len(modules(folder)) >= MODULES_WITH_MAP:
        assert {*names} == modules(folder)
