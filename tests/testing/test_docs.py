"""The examples on the pages about checking and testing streams give the printed results."""

import doctest
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from corpus_streams.make_corpus import corpus, recorded

from interlock.serving.cli.commands import app

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.parametrize("page", ["check.md", "testing.md"])
def test_the_examples_in_python_give_what_the_page_says(page):
    text = re.sub(r"^```.*$", "", (ROOT / "docs" / page).read_text("utf-8"), flags=re.MULTILINE)
    examples = doctest.DocTestParser().get_doctest(text, {}, page, page, 0)
    failed, tried = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples)
    assert (failed, tried > 0) == (0, True)


def test_the_examples_in_the_shell_print_what_the_page_says(monkeypatch):
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "docs" / "check.md").read_text(), re.DOTALL)
    examples = [example.partition("\n") for block in blocks for example in block.split("$ ")[1:]]
    assert len(examples) == 4
    for line, _, expected in examples:
        command, _, last = line.partition(" | tail -n ")
        _, *arguments = shlex.split(command)
        printed = CliRunner().invoke(app, arguments).stdout
        assert [each.rstrip() for each in printed.splitlines()][-int(last or 0) :] == expected.splitlines()


def test_the_example_streams_are_those_of_the_corpus():
    streams = {path.name: data for path, data in {**corpus(), **recorded()}.items()}
    examples = [*(ROOT / "examples" / "streams").iterdir(), *(ROOT / "examples" / "recordings").iterdir()]
    assert len(examples) == 10
    assert [path.name for path in examples if path.read_bytes() != streams[path.name]] == []
