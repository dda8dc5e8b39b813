"""The documentation is up to date, complete, and leads nowhere that is not there; what its code shows is what happens."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import generate
import pytest
from each import each
from openai import OpenAI, RateLimitError

from interlock.judges import DEVIATIONS, DIALECT_RULES, RULES
from interlock.serve import ApiError
from interlock.serving.build import build
from interlock.serving.cli.machines import process_graphs, stream_graphs
from interlock.serving.http.server import ServerThread
from interlock.serving.requests.chat_request import FORWARDED, ChatRequest
from interlock.serving.requests.messages_request import MessagesRequest
from interlock.serving.settings import Settings
from interlock.testing import assert_legal

ROOT = Path(__file__).parents[2]
GRAPHS = {**stream_graphs(), **process_graphs()}
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *DOCS.rglob("*.md")]


@pytest.fixture(scope="module")
def generated():
    return generate.generated()


@pytest.mark.long
def test_what_is_generated_is_committed_as_it_is_generated(generated) -> None:
    stale = [
        str(path) for path, text in generated.items() if not (ROOT / path).exists() or (ROOT / path).read_text("utf-8") != text
    ]
    assert stale == [], "the tables say something else: run `make docs`"


@pytest.mark.long
def test_no_page_is_left_of_a_table_that_is_gone(generated) -> None:
    assert {path.relative_to(ROOT) for path in (DOCS / "design" / "lifecycles").iterdir()} == {
        path for path in generated if path.parent == Path("docs", "design", "lifecycles")
    }


def sections(generated):
    """The sections of the pages of the machines, by their headings."""
    pages = [
        text for path, text in generated.items() if path.parent == Path("docs", "design", "lifecycles") and path.suffix == ".md"
    ]
    return {section.partition("\n")[0].strip("`"): section for page in pages for section in page.split("\n## ")[1:]}


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, graph in GRAPHS.items() if len(graph.edges) > 1])
def test_a_machine_has_its_picture_its_table_and_a_stream(generated, name) -> None:
    section = sections(generated)[name]
    assert section.count(f"]({name}.svg)") == 1
    assert section.count("```text\n") >= 1
    for edge in GRAPHS[name].edges:
        for label in edge.labels:
            triggers = ", ".join(f"`{trigger}`" for trigger in label.triggers)
            row = next(line for line in section.splitlines() if line.startswith(f"| `{edge.source}` | {triggers} "))
            assert re.findall(r"`([^`]+)`", row) == [edge.source, *label.triggers, edge.dest, *label.events]


@pytest.mark.long
def test_one_section_has_the_picture_and_an_example_of_every_kind_that_comes_whole(generated) -> None:
    section = sections(generated)["Items that come whole"]
    whole = [name for name, graph in GRAPHS.items() if len(graph.edges) == 1]
    assert section.count("](whole.svg)") == 1
    assert re.findall(r"^### `(\w+)`$", section, flags=re.MULTILINE) == whole
    assert section.count("```text\n") == len(whole)


def test_the_page_of_the_rules_has_every_rule_in_order_and_every_deviation() -> None:
    page = (DOCS / "evidence" / "rules.md").read_text("utf-8")
    assert re.findall(r'^<a id="(r\w+)"></a>$', page, flags=re.MULTILINE) == [number.lower() for number in RULES]
    assert re.findall(r"^### (R\w+): (.*)$", page, flags=re.MULTILINE) == [(rule.number, rule.name) for rule in RULES.values()]
    deviations = {name for name, each in DEVIATIONS.items() if each.rule in RULES}
    assert {*re.findall(r"^\| `([\w-]+)`", page, flags=re.MULTILINE)} == deviations


def test_the_page_of_the_other_apis_has_every_rule_and_every_parameter() -> None:
    page = (DOCS / "guides" / "dialects.md").read_text("utf-8")
    assert [*DIALECT_RULES] == [*(f"M{number}" for number in range(1, 15)), *(f"C{number}" for number in range(1, 10))]
    rows = re.findall(r"^\| ([MC]\d+) \| (.*) \| .* \|$", page, flags=re.MULTILINE)
    assert rows == [(rule.number, rule.says) for rule in DIALECT_RULES.values()]
    _, messages, chat, *_ = re.split(r"^## Requests of |^## Errors", page, flags=re.MULTILINE)
    read = {*MessagesRequest.__struct_fields__} - {"metadata"} | {"metadata.user_id"}
    assert {name for name in read if f"`{name}`" not in messages} == set()
    same = {"presence_penalty", "frequency_penalty", "service_tier", "prompt_cache_key", "safety_identifier", "model", "stream"}
    read = {*ChatRequest.__struct_fields__, *FORWARDED} - same
    assert {name for name in read if f"`{name}`" not in chat} == set()


@each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_what_is_there(page) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []
    paths = [Path(os.path.normpath(page.parent / target)) for target in targets]
    assert [path for path in paths if path.resolve() != path] == [], "GitHub does not follow a symbolic link inside a path"


def anchors(page):
    """Return the anchors of a page: those of its headings, as GitHub makes them, and those that it declares."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    return slugs | {*re.findall(r'<a id="([^"]+)">', text)}


@each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_into_a_page_lead_to_a_heading_of_it(page) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s:]*)#([^)\s]+)\)", text)
    assert [(name, anchor) for name, anchor in targets if anchor not in anchors(page.parent / name if name else page)] == []


def test_the_index_lists_every_page() -> None:
    index = (DOCS / "README.md").read_text("utf-8")
    assert [page.name for page in DOCS.glob("*/*.md") if f"]({page.parent.name}/{page.name})" not in index] == []


ENGINE_PAGE = (ROOT / "docs" / "library" / "engine.md").read_text("utf-8")
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


# The page about a server of one's own: its pieces of code run, one after another, and make a legal stream


EMBEDDING_PAGE = (Path(__file__).parents[2] / "docs" / "library" / "embedding.md").read_text("utf-8")


def test_the_pieces_of_code_run_one_after_another() -> None:
    known = {}
    for code in re.findall(r"```python\n(.*?)```", EMBEDDING_PAGE, re.DOTALL):
        exec(code, known)  # noqa: S102 - our own text
    assert known["driver"].response["status"] == "completed"
    assert known["driver"].response["output"][0]["content"][0]["text"] == "It rains."


ENGINES_PAGE = (Path(__file__).parents[2] / "docs" / "library" / "engines.md").read_text("utf-8")
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
    (output,) = re.findall(r"```text\n(.*?)```", ENGINES_PAGE, re.DOTALL)
    assert capsys.readouterr().out == output
    assert names["app"].state.keys.tenants


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
