"""docs/families.md says how a family is added: the family of its example is added from the page's own text."""

import re
from pathlib import Path
from types import MappingProxyType

import pytest
from families import derived, properties, relations
from families.firing import fired_by, means
from family_pictures import part_for

from interlock.parsers.families import catalog, family, reference_encoders

PAGE = Path(__file__).parents[2] / "docs" / "families.md"
NAME = "parrot"


@pytest.fixture
def parrot(monkeypatch):
    """Add the family of the page's example."""
    text = PAGE.read_text("utf-8").partition("## Add a family")[2]
    syntax, row, template = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    scope = {**vars(catalog), **vars(reference_encoders)}
    exec(syntax, scope)  # noqa: S102 - our own page
    rows, templates = (eval(f"{{{block}}}", scope) for block in (row, template))  # noqa: S307 - likewise
    syntaxes = MappingProxyType({**catalog.SYNTAXES, **{name: each for name, (each, _) in rows.items()}})
    for module in (catalog, derived, properties, relations):
        monkeypatch.setattr(module, "SYNTAXES", syntaxes)
    for module in (reference_encoders, derived):
        monkeypatch.setattr(module, "TEMPLATES", {**reference_encoders.TEMPLATES, **templates})
    assert list(rows) == list(templates) == [NAME]


@pytest.mark.usefixtures("parrot")
def test_the_family_of_the_page_has_the_cases_of_every_family():
    cases = list(derived.cases_of(NAME))
    assert len(cases) > 10
    for case in cases:
        for sizes in ((1 << 20,), (1,)):
            read = properties.read(NAME, case.text, sizes, case.reason)
            assert [(item.kind, item.text, item.fields.get("name")) for item in read] == list(case.items), case


def test_a_family_without_a_template_says_what_is_missing():
    with pytest.raises(
        LookupError, match=r"^'parrot' needs a template in TEMPLATES of reference_encoders.py: see 'Add a family'"
    ):
        next(derived.cases_of(NAME))


@pytest.mark.usefixtures("parrot")
def test_the_family_of_the_page_fires_its_rows():
    read_as = family(NAME, "qwen3")
    rows = {(edge.source, edge.trigger) for edge in part_for(read_as, NAME).edges}
    assert {(state, trigger) for state, trigger in fired_by(NAME) if means(state, trigger)} == rows
    family.cache_clear()
