"""What the README shows is what happens."""

import re
from collections import defaultdict
from pathlib import Path

from interlock.fsm.lifecycles import LIFECYCLES

README = (Path(__file__).parents[1] / "README.md").read_text()


def block(language: str, holding: str) -> str:
    (found,) = (text for text in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if holding in text)
    return found


def test_the_library_example_prints_what_the_readme_says(capsys) -> None:
    exec(block("python", "ResponseDriver"), {})  # noqa: S102 - our own text
    assert capsys.readouterr().out == block("text", "('function_call', 'incomplete')")


def test_the_diagram_shows_every_edge_of_the_lifecycle_and_no_other() -> None:
    lifecycle = LIFECYCLES["mcp_call"]
    triggers = defaultdict(list)
    for edge in lifecycle.edges:
        events = ", ".join(emission.spec.name.removeprefix("response.") for emission in edge.emits)
        source = "[*]" if edge.source == lifecycle.initial else edge.source
        triggers[f"{source} --> {edge.dest}", f" / {events}" if events else ""].append(edge.trigger)
    expected = {f"{ends}: {', '.join(on)}{events}" for (ends, events), on in triggers.items()}
    drawn = {line.strip() for line in block("mermaid", "mcp_call").splitlines() if "-->" in line}
    assert drawn == expected | {f"{state} --> [*]" for state in lifecycle.final}
