"""The documentation is up to date and complete, and its links work."""

import os
import re
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path

import build_site
import generate
import pytest
from attrs import evolve
from for_each import for_each
from generate import PLAIN_CALLS

from interlock.events.request import CreateResponse
from interlock.judges import DEVIATIONS, DIALECT_RULES, RULES
from interlock.serving.cli.machines import process_graphs, stream_graphs
from interlock.serving.requests.chat_request import FORWARDED, ChatRequest
from interlock.serving.requests.messages_request import MessagesRequest

ROOT = Path(__file__).parents[2]
GRAPHS = {**stream_graphs(), **process_graphs()}
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *DOCS.rglob("*.md")]


@pytest.fixture(scope="module")
def generated():
    return generate.generated()


@pytest.mark.long
def test_the_generated_files_are_up_to_date(generated) -> None:
    stale = [
        str(path) for path, text in generated.items() if not (ROOT / path).exists() or (ROOT / path).read_text("utf-8") != text
    ]
    assert stale == [], "the tables say something else: run `make docs`"


@pytest.mark.long
def test_the_pages_of_lifecycles_are_exactly_the_generated_ones(generated) -> None:
    assert {path.relative_to(ROOT) for path in (DOCS / "design" / "lifecycles").iterdir()} == {
        path for path in generated if path.parent == Path("docs", "design", "lifecycles")
    }


def sections(generated):
    """Return the sections of the pages of machines, by their headings."""
    pages = [
        text for path, text in generated.items() if path.parent == Path("docs", "design", "lifecycles") and path.suffix == ".md"
    ]
    return {section.partition("\n")[0].strip("`"): section for page in pages for section in page.split("\n## ")[1:]}


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, graph in GRAPHS.items() if len(graph.edges) > 1 and name not in PLAIN_CALLS])
def test_the_section_of_a_machine_has_its_picture_its_table_and_a_stream(generated, name) -> None:
    section = sections(generated)[name]
    assert section.count(f"]({name}.svg)") == 1
    assert section.count("```text\n") >= 1
    for edge in GRAPHS[name].edges:
        for label in edge.labels:
            triggers = ", ".join(f"`{trigger}`" for trigger in label.triggers)
            row = next(line for line in section.splitlines() if line.startswith(f"| `{edge.source}` | {triggers} "))
            assert re.findall(r"`([^`]+)`", row) == [edge.source, *label.triggers, edge.dest, *label.events]


def test_the_calls_with_one_section_have_the_same_machine() -> None:
    assert {evolve(GRAPHS[name], name="plain_call") for name in PLAIN_CALLS} == {evolve(GRAPHS["program"], name="plain_call")}


@pytest.mark.long
def test_one_section_has_an_example_of_every_call_that_does_not_stream(generated) -> None:
    section = sections(generated)["Calls that do not stream"]
    assert section.count("](plain_call.svg)") == 1
    assert re.findall(r"^### `(\w+)`$", section, flags=re.MULTILINE) == PLAIN_CALLS


@pytest.mark.long
def test_one_section_has_an_example_of_every_kind_that_comes_whole(generated) -> None:
    section = sections(generated)["Items without deltas"]
    whole = [name for name, graph in GRAPHS.items() if len(graph.edges) == 1]
    assert section.count("](whole.svg)") == 1
    assert re.findall(r"^### `(\w+)`$", section, flags=re.MULTILINE) == whole
    assert section.count("```text\n") == len(whole)


def test_the_page_of_rules_has_every_rule_and_every_deviation() -> None:
    page = (DOCS / "evidence" / "rules.md").read_text("utf-8")
    assert re.findall(r'^<a id="(r\w+)"></a>$', page, flags=re.MULTILINE) == [number.lower() for number in RULES]
    assert re.findall(r"^### (R\w+): (.*)$", page, flags=re.MULTILINE) == [(rule.number, rule.name) for rule in RULES.values()]
    deviations = {name for name, each in DEVIATIONS.items() if each.rule in RULES}
    assert {*re.findall(r"^\| `([\w-]+)`", page, flags=re.MULTILINE)} == deviations


def test_the_page_of_messages_and_chat_has_every_rule_and_parameter() -> None:
    page = (DOCS / "guides" / "dialects.md").read_text("utf-8")
    letters = Counter(number[0] for number in DIALECT_RULES)
    assert [*DIALECT_RULES] == [f"{letter}{number}" for letter, last in letters.items() for number in range(1, last + 1)]
    rows = re.findall(r"^\| ([A-Z]\d+) \| (.*) \| .* \|$", page, flags=re.MULTILINE)
    assert sorted(rows) == sorted((rule.number, rule.says) for rule in DIALECT_RULES.values())
    _, messages, chat, *_ = re.split(r"^## Requests of |^## Errors", page, flags=re.MULTILINE)
    read = {*MessagesRequest.__struct_fields__} - {"metadata"} | {"metadata.user_id"}
    assert {name for name in read if f"`{name}`" not in messages} == set()
    same = {"presence_penalty", "frequency_penalty", "service_tier", "prompt_cache_key", "safety_identifier", "model", "stream"}
    read = {*ChatRequest.__struct_fields__, *FORWARDED} - same
    assert {name for name in read if f"`{name}`" not in chat} == set()


def test_the_page_of_the_api_has_every_parameter() -> None:
    _, parameters, *_ = re.split(
        r"^## (?:Parameters|Tools)$", (DOCS / "guides" / "api.md").read_text("utf-8"), flags=re.MULTILINE
    )
    assert {name for name in CreateResponse.__struct_fields__ if not re.search(rf"`{name}[`.]", parameters)} == set()


def test_the_error_for_a_page_without_its_marks_names_them() -> None:
    with pytest.raises(LookupError, match=r"^the page lacks the lines `<!-- generated: T -->` and `<!-- end -->`$"):
        generate._filled("# Title\n<!-- generated: T -->\n", "T", iter(()))


def test_the_site_and_the_viewer_have_the_same_mark() -> None:
    mark, bars = ((ROOT / name).read_text("utf-8") for name in ("docs/mark.svg", "viewer/src/Bars.tsx"))
    shapes = r'<(rect|path|circle)(?: class="thrown")?((?: [a-z]+="[\d.MVL ]+")+)'
    assert re.findall(shapes, mark) == re.findall(shapes, bars.partition("function Mark")[2].partition("</svg>")[0]) != []


def places(nav):
    """Return the places of the pages of a menu."""
    return [place for entry in nav for place in ([entry] if isinstance(entry, str) else chain(*map(places, entry.values())))]


def test_the_menu_of_the_site_has_every_page_once() -> None:
    pages = {*build_site.NAMED, *DOCS.rglob("*.md")}
    assert sorted(places(build_site.NAV)) == sorted(str(build_site.page_of(page).relative_to(build_site.PAGES)) for page in pages)


@for_each(
    ("link", "shown"),
    [
        ("[api.md]({docs}/guides/api.md#tools)", "[*API coverage*](guides/api.md#tools)"),
        ("[the tools]({docs}/guides/api.md#tools)", "[the tools](guides/api.md#tools)"),
        ("[security]({root}/.github/SECURITY.md)", "[security](security-policy.md)"),
        ("![mark]({docs}/mark.svg)", "[![mark](mark.svg)](mark.svg)"),
        ("![live]({docs}/guides/viewer/live.png)", "[![live](guides/viewer/live.png)](guides/viewer/live.png)"),
        ("[build.py]({root}/src/interlock/serving/build.py)", "<code>src/<wbr>interlock/<wbr>serving/<wbr>build.py</code>"),
        ("[the license]({root}/LICENSE)", "the license (<code>LICENSE</code>)"),
        ("[engine]({root}/src/interlock/serving/engines)", "engine (<code>src/<wbr>interlock/<wbr>serving/<wbr>engines</code>)"),
    ],
)
def test_a_link_of_the_site_has_the_title_of_its_page_or_the_path_of_its_file(link, shown, tmp_path) -> None:
    page = tmp_path / "page.md"
    page.write_text(link.format(root=ROOT, docs=DOCS), "utf-8")
    assert build_site.linked(page, build_site.PAGES / "page.md") == shown


@for_each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_existing_files(page) -> None:
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


@for_each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_into_a_page_lead_to_an_anchor_of_the_page(page) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s:]*)#([^)\s]+)\)", text)
    assert [(name, anchor) for name, anchor in targets if anchor not in anchors(page.parent / name if name else page)] == []


def test_the_index_lists_every_page() -> None:
    index = (DOCS / "README.md").read_text("utf-8")
    assert [page.name for page in DOCS.glob("*/*.md") if f"]({page.parent.name}/{page.name})" not in index] == []


def test_the_code_of_the_pages_for_embedders_passes_mypy(tmp_path) -> None:
    for name in ("embedding", "engine", "engines"):
        page = (DOCS / "library" / f"{name}.md").read_text("utf-8")
        blocks = ["from typing import Any", "run_tool: Any  # the reader's", *re.findall(r"```python\n(.*?)```", page, re.DOTALL)]
        (tmp_path / f"{name}.py").write_text("\n".join(blocks), "utf-8")
    # Strict, as the configuration says; with other options, mypy would read the whole package again.
    done = subprocess.run([sys.executable, "-m", "mypy", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.stdout == "Success: no issues found in 3 source files\n"
