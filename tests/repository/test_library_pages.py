"""The code in the pages of the library runs, and prints what they show."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from openai import OpenAI, RateLimitError

from interlock.serve import ApiError
from interlock.serving.build import build
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings
from interlock.testing import assert_legal

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "docs" / "library"
ENGINE_PAGE = (LIBRARY / "engine.md").read_text("utf-8")
SOURCE = ROOT / "src" / "interlock"
FOLDERS = re.findall(r"^\| \[`(\w+)/`\]", ENGINE_PAGE, re.MULTILINE)
MODULES = ["__init__.py", "embedding.py", "lazy.py"]


def test_the_code_prints_what_the_page_shows_with_only_the_files_that_it_names(tmp_path) -> None:
    package = tmp_path / "interlock"
    for folder in FOLDERS:
        shutil.copytree(SOURCE / folder, package / folder)
    for module in MODULES:
        shutil.copy(SOURCE / module, package / module)
    code = "\n".join(re.findall(r"```python\n(.*?)```", ENGINE_PAGE, re.DOTALL))
    shown = "".join(re.findall(r"```text\n(Open.*?|    function.*?)```", ENGINE_PAGE, re.DOTALL))
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
    optional = {"openai", "transitions", "openai_harmony"}  # imported by a conversion or a format, when it is asked for
    assert imported - {*sys.stdlib_module_names, "interlock"} - optional == {"attrs", "msgspec", "orjson"}


EMBEDDING_PAGE = (LIBRARY / "embedding.md").read_text("utf-8")


def test_the_pieces_of_code_run_one_after_another() -> None:
    known = {}
    for code in re.findall(r"```python\n(.*?)```", EMBEDDING_PAGE, re.DOTALL):
        exec(code, known)  # noqa: S102 - our own text
    assert known["driver"].response["status"] == "completed"
    assert known["driver"].response["output"][0]["content"][0]["text"] == "It rains."


ENGINES_PAGE = (LIBRARY / "engines.md").read_text("utf-8")
ASK = {"model": "parrot", "input": "Polly wants a cracker."}


@pytest.fixture
def names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = {}
    for code in re.findall(r"```python\n(.*?)```", ENGINES_PAGE, re.DOTALL):
        exec(code, known)  # noqa: S102 - our own text
    return known


def client_of(url):
    return OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)


def test_the_page_prints_what_it_says(capsys, names):
    assert capsys.readouterr().out == "".join(re.findall(r"```text\n(.*?)```", ENGINES_PAGE, re.DOTALL))
    assert names["app"].state.keys.tenants


def test_the_test_of_the_page_passes(names):
    (cases,) = names["test_streams_are_legal"].pytestmark
    for case in cases.args[1]:
        names["test_streams_are_legal"](*case)


def test_a_refusal_keeps_its_status_whether_the_client_streams_or_not(names):
    with ServerThread(build(Settings(), names["BusyParrot"]())) as url, client_of(url) as client:
        for stream in (False, True):
            with pytest.raises(RateLimitError, match=r"The parrot is asleep\.") as refused:
                client.responses.create(**ASK, stream=stream)
            assert refused.value.status_code == 429
            assert refused.value.response.headers["Retry-After"] == "5"


def test_an_engine_that_admits_a_turn_generates_it(names):
    engine = names["BusyParrot"]()
    engine.busy = False
    with ServerThread(build(Settings(), engine)) as url, client_of(url) as client:
        assert client.responses.create(**ASK).output_text == "Polly wants a cracker. "


def test_a_refusal_after_the_response_began_fails_it_with_the_message(names):
    class Late(names["Parrot"]):
        async def generate(self, turn):
            async for output in super().generate(turn):
                yield output
                raise ApiError(429, "The parrot fell asleep.")

    with ServerThread(build(Settings(), Late())) as url, client_of(url) as client:
        failed = client.responses.create(**ASK)
        assert (failed.status, failed.output_text) == ("failed", "Polly ")
        assert failed.error.to_dict() == {"code": "rate_limit_exceeded", "message": "The parrot fell asleep."}
        with client.responses.create(**ASK, stream=True) as stream:
            assert_legal([event.to_dict(mode="json") for event in stream])


def test_a_response_in_the_background_fails_where_another_is_refused(names):
    with ServerThread(build(Settings(), names["BusyParrot"]())) as url, client_of(url) as client:
        with client.responses.create(**ASK, background=True, stream=True) as stream:
            *_, last = stream
        assert (last.type, last.response.error.message) == ("response.failed", "The parrot is asleep.")
