"""Write the pages and pictures that are made from the tables: `make docs`. A test fails when a committed one differs.

python docs/generate.py
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import get_args

import architecture
import machines
from attrs import evolve
from openai_harmony import HarmonyEncodingName, load_harmony_encoding
from streams import RECORDINGS, driven, of_item, of_response, recorded, shortened
from subjects import subject_of

from interlock.events.items import ITEMS, statuses_of
from interlock.events.stream import wire_name
from interlock.fsm import Delta
from interlock.fsm.acceptor import HABITS, RULES, Deviation, Rule
from interlock.fsm.acceptor.observed import OBSERVED
from interlock.fsm.diagram import Graph, Role, Style, key_of, to_mermaid, to_svg
from interlock.fsm.lifecycles.whole import WHOLE
from interlock.fsm.lifecycles.written import WRITTEN
from interlock.fsm.processes import background, connection, conversation, lane, stored, turns
from interlock.fsm.table import Machine
from interlock.parsers import harmony_framing as framing
from interlock.parsers import parser_for
from interlock.parsers.families import SYNTAXES, USUAL, family
from interlock.parsers.families.alphabet import Effect
from interlock.parsers.families.drawing import picture_of
from interlock.parsers.families.reference_encoders import Said, encode
from interlock.serving.cli.machines import process_graphs, stream_graphs
from interlock.serving.engines.recordings import read

ROOT = Path(__file__).parents[1]

DOCS = ROOT / "docs"

STATUSES: Mapping[str, tuple[str, ...]] = {kind: statuses_of(item) for kind, item in ITEMS.items()}

MODULES = {
    "harmony": framing,
    "turns": turns,
    "background": background,
    "stored": stored,
    "conversation": conversation,
    "lane": lane,
    "connection": connection,
}
"""The modules that declare the tables which are no lifecycles, by the name of the table."""

WALKED = {
    "turns": turns.TURNS,
    "background": background.BACKGROUND,
    "stored": stored.STORED,
    "conversation": conversation.CONVERSATION,
    "lane": lane.LANE,
    "connection": connection.CONNECTION,
}

SHARED = {"written": WRITTEN, "whole": WHOLE}
"""The modules that declare several lifecycles."""

LOOKS = {Style.NORMAL: "", Style.CUT: " (dashed)", Style.FAIL: " (dotted)"}


def generated() -> dict[Path, str]:
    """Return every generated file, by its path from the root of the repository."""
    files: dict[Path, str] = {}
    for name, graph in {**stream_graphs(), **process_graphs()}.items():
        folder = Path("docs", "lifecycles")
        files[folder / f"{name}.svg"] = to_svg(graph)
        files[folder / f"{name}.md"] = "\n\n".join(_page(name, graph)) + "\n"
    files[Path("src", "interlock", "serving", "view", "page", "machines.json")] = machines.written(stream_graphs().values())
    index = Path("docs", "lifecycles.md")
    files[index] = _filled((ROOT / index).read_text(encoding="utf-8"), "all lifecycles", _index())
    readme = Path("README.md")
    files[readme] = _filled((ROOT / readme).read_text(encoding="utf-8"), "figures", _figures())
    check = Path("docs", "check.md")
    files[check] = _filled((ROOT / check).read_text(encoding="utf-8"), "habits", _real())
    for rule in RULES.values():
        files[Path("docs", "rules", f"{rule.number}.md")] = "\n\n".join(_rule(rule)) + "\n"
    families = Path("docs", "families.md")
    page = _filled((ROOT / families).read_text(encoding="utf-8"), "families", _families())
    files[families] = _filled(page, "framing", _framings())
    files |= {Path("docs", "families", f"{name}.svg"): to_svg(graph) for name, (_, graph) in _drawn_framings().items()}
    files[Path("docs", "architecture.svg")] = architecture.drawing()
    files[Path("docs", "request.svg")] = architecture.journey()
    embedding = Path("docs", "embedding.md")
    files[embedding] = _filled((ROOT / embedding).read_text(encoding="utf-8"), "all deltas", _deltas())
    return files


def _page(name: str, graph: Graph) -> Iterator[str]:
    yield f"# `{name}`"
    yield subject_of(name).about
    yield _declared(name)
    yield f"![The machine {name}: every edge is in the table below]({name}.svg)"
    yield from _shown(name, graph)
    yield "## The table"
    yield "\n".join(_table(name, graph))
    if graph.key:
        yield "What the effects mean:"
        yield "\n".join(["| effect | meaning |", "|---|---|", *(f"| `{effect}` | {meaning} |" for effect, meaning in graph.key)])
    if name in OBSERVED:
        yield "## What real services do besides"
        yield "The driver takes none of these edges; `interlock check` does, in somebody else's stream."
        yield "\n".join(_observed(name))
    yield "## An example"
    yield from _framed() if name == "harmony" else _walked(name) if name in WALKED else _examples(name)
    yield "## As mermaid"
    yield f"```mermaid\n{to_mermaid(graph)}```"
    yield f"Made from the table by `make docs`; `interlock diagram {name} --format svg` draws it alone."


def _declared(name: str) -> str:
    """Return what the module that declares a table says of it."""
    shared = next((file for file, kinds in SHARED.items() if any(one.name == name for one in kinds)), name)
    module = MODULES.get(name) or sys.modules[f"interlock.fsm.lifecycles.{shared}"]
    path = f"{module.__name__.removeprefix('interlock.').replace('.', '/')}.py"
    return f"{(module.__doc__ or '').strip()}\n\nDeclared in [{path}](../../{path})."


def _shown(name: str, graph: Graph) -> Iterator[str]:
    """Return a legend of the lines, and the status that a reader sees in each state."""
    dropped = [f"`{node.name}`" for node in graph.nodes if node.role is Role.DROPPED]
    if dropped:
        yield f"{', '.join(dropped)} is final too, but nothing was emitted on the way: no reader can tell that it was."
    if statuses := STATUSES.get(name):
        inside = [node.name for node in graph.nodes if node.role in {Role.NORMAL, Role.FINAL}]
        hidden = [f"`{state}`" for state in inside if state not in statuses]
        if hidden:
            yield f"The API has no status for {', '.join(hidden)}: an item shows `in_progress` there."


def _table(name: str, graph: Graph) -> Iterator[str]:
    heads = ("in", "on", "goes to", "and does" if name in MODULES else "and emits")
    yield f"| {' | '.join(heads)} |"
    yield "|---|---|---|---|"
    roles = {node.name: node.role for node in graph.nodes}
    for edge in graph.edges:
        mark = "**" if roles[edge.dest] in {Role.FINAL, Role.DROPPED} else ""
        for label in edge.labels:
            triggers = ", ".join(f"`{trigger}`" for trigger in label.triggers)
            events = "<br>".join(f"`{event}`" for event in label.events) or "nothing"
            yield f"| `{edge.source}` | {triggers}{LOOKS[edge.style]} | {mark}`{edge.dest}`{mark} | {events} |"


def _observed(name: str) -> Iterator[str]:
    yield "| in | goes to | when this comes | judged |"
    yield "|---|---|---|---|"
    for edge in OBSERVED[name]:
        events = ", ".join(f"`{wire_name(event)}`" for event in edge.events)
        yield f"| `{edge.source}` | `{edge.dest}` | {events} | legal: {edge.why} |"


def _rule(rule: Rule) -> Iterator[str]:
    yield f"# {rule.number}: {rule.name}"
    yield rule.says
    yield f"**Breaking it is an error.** {rule.breaks}" if rule.breaks else "One stream alone cannot show whether it holds."
    corpus = sorted((ROOT / "tests" / "corpus" / "broken").glob(f"{rule.number}-*.sse"))
    if corpus:
        yield "Streams that break it, each in one place:"
        yield "\n".join(f"- [{path.stem}](../../tests/corpus/broken/{path.name})" for path in corpus)
    habits = [habit for habit in HABITS.values() if habit.rule == rule.number]
    if habits:
        yield "## What departs from it and is no error"
        yield "\n".join(_habits(habits))
    yield f"`interlock check --explain {rule.number}` says the same. All rules: [rules.md](../rules.md)."


def _habits(habits: Iterable[Deviation]) -> Iterator[str]:
    yield "| name | what is seen | judged | why it is no error | seen |"
    yield "|---|---|---|---|---|"
    for habit in habits:
        judged = "not judged" if habit.severity == "not_judged" else "deviation"
        yield f"| `{habit.name}` | {habit.what} | {judged} | {habit.why} | {habit.seen} |"


def _real() -> Iterator[str]:
    """List what real services send, and how it is judged."""
    yield "| what real services send | seen | judged |"
    yield "|---|---|---|"
    for habit in HABITS.values():
        judged = "not judged" if habit.severity == "not_judged" else "deviation"
        yield f"| {habit.what} | {habit.seen} | {judged}, [{habit.rule}](rules/{habit.rule}.md) `{habit.name}` |"
    for kind, edges in OBSERVED.items():
        for edge in edges:
            yield f"| `{kind}`: {edge.why} | | legal, [R10](rules/R10.md) |"


def _examples(name: str) -> Iterator[str]:
    for recording in subject_of(name).recordings:
        link = f"`interlock replay` [recordings/{recording}.jsonl](../../recordings/{recording}.jsonl)"
        events = recorded(recording)
        if name == "response":
            yield f"The response's own events of {link}; its items are shown by their ids, its settings are left out:"
            yield f"```text\n{shortened(of_response(events))}\n```"
        else:
            yield f"The item's events of {link}; the fields that address it are left out:"
            yield f"```text\n{shortened(of_item(events, name))}\n```"
    if told := subject_of(name).told:
        yield "The server makes this item. A driver that is fed"
        yield "```text\n" + "\n".join(map(repr, told)) + "\n```"
        yield "emits, after the response's own events,"
        yield f"```text\n{shortened(of_item(driven(told), name))}\n```"


def _walked(name: str) -> Iterator[str]:
    """Show a walk through the machine of a host: what is fired, the state that is entered, and what is done."""
    machine = Machine.at_start(WALKED[name])
    fired = subject_of(name).fired
    steps = [(trigger, machine.fire(trigger), machine.state.name) for trigger in fired]
    width, place = max(map(len, fired)), max(len(state) for *_, state in steps)
    yield f"A walk from `{WALKED[name].initial}`: what is fired, the state that is entered, what is done."
    lines = [f"{trigger:{width}}  {state:{place}}  {', '.join(effects)}".rstrip() for trigger, effects, state in steps]
    yield "```text\n" + "\n".join(lines) + "\n```"


def _framed() -> Iterator[str]:
    """Show what the framing makes of a recording: what the model wrote, and the deltas of it."""
    (name,) = subject_of("harmony").recordings
    recording = read(RECORDINGS / f"{name}.jsonl")
    outputs = [output for turn in recording.turns for output in turn.outputs]
    encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    tokens = [token for output in outputs for token in output.chunk.token_ids]
    yield f"In [{name}](../../recordings/{name}.jsonl) the model wrote, a line for each header and content:"
    written = re.sub(r"(<\|(?:start|message|end|call)\|>)", r"\n\1", encoding.decode(tokens)).strip()
    yield f"```text\n{written}\n```"
    yield "of which the parser makes these deltas:"
    parser = parser_for("harmony", recording.request)
    deltas = [repr(delta) for output in outputs for delta in parser.feed(output.chunk)]
    yield "```text\n" + "\n".join(deltas) + "\n```"


def _families() -> Iterator[str]:
    """List the families, and show the same call in each format."""
    yield "| `--tool-call-parser` | arguments | reasoning | a call |"
    yield "|---|---|---|---|"
    for name, syntax in SYNTAXES.items():
        call = encode([Said("call", '{"city":"Rome"}', "f")], name).replace("\n", "⏎").replace("|", "\\|")
        yield f"| `{name}` | {syntax.style} | `{USUAL[name]}` | `{call}` |"


def _framings() -> Iterator[str]:
    """Show the pictures of the framing, and what its effects mean."""
    for name, (about, graph) in _drawn_framings().items():
        yield f"### {graph.name[0].upper()}{graph.name[1:]}"
        yield ""
        yield about
        yield ""
        yield f"![The framing, {graph.name}: every edge that is more than text](families/{name}.svg)"
        yield ""
    yield "| effect | meaning |"
    yield "|---|---|"
    yield from (f"| `{effect}` | {meaning} |" for effect, meaning in key_of(Effect).items())


@cache
def _drawn_framings() -> dict[str, tuple[str, Graph]]:
    """Return the pictures of the framing by the names of their files, each with what it shows."""
    reads = {name: family(name, USUAL[name]) for name in SYNTAXES}
    drawn = {
        "messages": (
            "Text outside of reasoning and calls, and the calls that begin in it. A turn starts in `between`.",
            picture_of(reads.values(), "messages"),
        ),
        "reasoning": (
            "Reasoning, and the calls that begin in it and so end it. A turn starts in `thinking` if its prompt ends there.",
            picture_of(reads.values(), "reasoning"),
        ),
        "after": ("What stands after a call, where its section may still be open.", picture_of(reads.values(), "after a call")),
    }
    for style, way in {"keys": "with keys and values", "json": "with JSON", "envelope": "in an envelope"}.items():
        names = [name for name, read in reads.items() if read.style == style]
        graph = picture_of([reads[name] for name in names], "a call")
        drawn[style] = f"The families: {', '.join(f'`{name}`' for name in names)}.", evolve(graph, name=f"a call {way}")
    return drawn


def _filled(page: str, what: str, lines: Iterator[str]) -> str:
    """Fill in what is generated between the marks that ask for it."""
    before, mark, rest = page.partition(f"<!-- generated: {what} -->\n")
    _, end, after = rest.partition("<!-- end -->\n")
    return "".join((before, mark, *(f"{line}\n" for line in lines), end, after))


def _figures() -> Iterator[str]:
    """Repeat a few figures of the pages that `make conformance` and `make bench-docs` write."""
    conformance, performance = ((DOCS / page).read_text("utf-8") for page in ("conformance.md", "performance.md"))
    ((turns, release),) = re.findall(r"^(\d+) scripted turns, played on vLLM (\S+)", conformance, flags=re.MULTILINE)
    yield f"| {turns} turns, vLLM {release.partition('+')[0]} | vLLM's events | Interlock's |"
    yield "|---|---:|---:|"
    for row in ("turns without a finding", "turns whose stream has no terminal event", "findings"):
        yield re.findall(rf"^\| {row} \|.*$", conformance, flags=re.MULTILINE)[0]
    for name, row in (
        ("a text delta", "text deltas"),
        ("a token of gpt-oss, 20,000 into it", "harmony after 20,000 reasoning tokens"),
    ):
        (times,) = re.findall(rf"^\| {row}, against vLLM \|[^|]*\| (\S+) times", performance, flags=re.MULTILINE)
        yield f"| CPU time of {name} | {times} times as much | 1 |"


def _deltas() -> Iterator[str]:
    """List the deltas with their fields, as their docstrings describe them."""
    yield "| delta | what it says | fields |"
    yield "|---|---|---|"
    for delta in get_args(Delta):
        if delta is str:
            yield "| `str` | A piece of text of the item that is being written; of a new message, if none is. | |"
            continue
        about, _, arguments = inspect.getdoc(delta).partition("\n\nArgs:\n")
        fields = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", arguments.partition("\n\n")[0], flags=re.MULTILINE)
        described = "<br>".join(f"`{name}`: {_line(text)}" for name, text in fields)
        yield f"| `{delta.__name__}` | {_line(about.partition(chr(10) * 2)[0])} | {described} |"


def _line(text: str) -> str:
    return " ".join(text.split())


def _index() -> Iterator[str]:
    yield "| lifecycle | states | edges | the way to the good end |"
    yield "|---|---|---|---|"
    yield from map(_entry, [*stream_graphs().values(), *process_graphs().values()])


def _entry(graph: Graph) -> str:
    endless = not any(node.role is Role.FINAL for node in graph.nodes)
    way = "it has no end" if endless else " → ".join(f"`{state}`" for state in graph.way)
    edges = sum(len(label.triggers) for edge in graph.edges for label in edge.labels)
    return f"| [`{graph.name}`](lifecycles/{graph.name}.md) | {len(graph.nodes)} | {edges} | {way} |"


def main() -> None:
    """Write what differs."""
    for path, text in generated().items():
        target = ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
