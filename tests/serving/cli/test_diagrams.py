"""`interlock diagram` draws every lifecycle and the framing of harmony from the tables that run."""

import pytest
from click.testing import CliRunner

from interlock.diagram import RENDERERS
from interlock.events.items import ITEMS
from interlock.parsers.harmony_framing import HARMONY
from interlock.serving.cli.commands import app
from interlock.serving.cli.machines import process_graphs, stream_graphs

GRAPHS = {**stream_graphs(), **process_graphs()}


def run(*arguments: str):
    return CliRunner().invoke(app, ["diagram", *arguments])


def test_every_kind_of_item_the_response_the_framing_and_the_machines_of_the_hosts_can_be_drawn() -> None:
    assert set(GRAPHS) == {"response", "harmony", *ITEMS, *process_graphs()}


def test_the_framing_is_drawn_row_by_row() -> None:
    drawn = {
        (source, trigger, dest, label.events)
        for edge in GRAPHS["harmony"].edges
        for source, dest in GRAPHS["harmony"].ends(edge)
        for label in edge.labels
        for trigger in label.triggers
    }
    assert drawn == {(edge.source, edge.trigger, edge.dest, edge.effects) for edge in HARMONY.edges}


@pytest.mark.parametrize("form", RENDERERS)
def test_a_diagram_is_written_in_the_requested_format(form) -> None:
    result = run("mcp_call", "--format", form)
    assert (result.exit_code, result.stdout) == (0, RENDERERS[form](GRAPHS["mcp_call"]))


def test_the_default_format_is_mermaid() -> None:
    assert run("response").stdout == RENDERERS["mermaid"](GRAPHS["response"])


def test_without_a_kind_all_diagrams_are_listed() -> None:
    lines = run().stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == list(GRAPHS)
    assert lines[0] == "response: 7 states, 12 edges"


def test_an_unknown_kind_lists_the_known_ones() -> None:
    result = run("telepathy")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"interlock: no diagram of 'telepathy'; choose one of {', '.join(GRAPHS)}\n"
