"""Write the pages and pictures that are made from the tables: `make docs`. A test fails when a committed one differs.

python docs/generators/generate.py
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from html import escape
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Final, get_args

import architecture
import machines
import tested
from attrs import evolve, fields
from family_pictures import picture_of_call, picture_of_literals, picture_of_text
from openai_harmony import HarmonyEncodingName, load_harmony_encoding
from streams import body_of, driven, of_item, of_response, recorded, shortened, shortened_json
from subjects import subject_of

from interlock.diagram import Graph, NodeRole, to_svg
from interlock.dialects import DIALECT_APIS
from interlock.dialects.chat import ChatTransducer, fold_chat
from interlock.dialects.messages import MessagesTransducer, fold_messages
from interlock.events.items import ITEMS, literals_of
from interlock.events.stream import wire_name
from interlock.fsm import Delta, FinishReason, deltas, lifecycles
from interlock.fsm.table import Machine
from interlock.judges import DEVIATIONS, DIALECT_JUDGES, DIALECT_RULES, RULES, Deviation, judge
from interlock.judges.automaton import OBSERVED
from interlock.parsers import Chunk, harmony, parser_for
from interlock.parsers.families import DEFAULT_REASONING, OTHER_NAMES, REASONINGS, SYNTAXES, family
from interlock.parsers.families.family import ReasoningSyntax
from interlock.parsers.families.reference_encoders import WrittenItem, encode
from interlock.serving import settings
from interlock.serving.cli.machines import process_graphs, stream_graphs
from interlock.serving.engines.engine import EngineOutput
from interlock.serving.engines.script import script_schema
from interlock.serving.engines.upstream import connection_table as upstream_connection
from interlock.serving.engines.vllm.plugin import FIELDS as PLUGIN_FIELDS
from interlock.serving.http import tables
from interlock.serving.requests import input_items
from interlock.serving.responses import background_response as background
from interlock.serving.responses import turns_table as turns
from interlock.serving.store import tables as stores
from interlock.serving.tools import code_interpreter as container
from interlock.serving.tools.hosting import ToolRunner, Tools

ROOT = Path(__file__).parents[2]

WRITTEN = "../../../tests/support/corpus_streams/recordings.py"
sys.path.append(str(ROOT / "tests" / "support"))
from corpus_streams.make_corpus import corpus  # noqa: E402 - the path comes first
from corpus_streams.recordings import RECORDINGS  # noqa: E402 - the path comes first
from recovery.cases import rows as malformed_cases  # noqa: E402 - the path comes first

DOCS = ROOT / "docs"

STATUSES: Mapping[str, tuple[str, ...]] = {kind: literals_of(item, "status") for kind, item in ITEMS.items()}

MODULES = {
    "harmony": harmony,
    "turns": turns,
    "background": background,
    "stored": stores,
    "conversation": stores,
    **dict.fromkeys(("lane", "steering", "connection", "server"), tables),
    "container": container,
    "async_call": input_items,
    "upstream_connection": upstream_connection,
    **{name: import_module(f"interlock.dialects.{name}") for name in DIALECT_APIS},
}
"""The modules that declare the tables which are no lifecycles, by the name of the table."""

WALKED = {
    "turns": turns.TURNS,
    "background": background.BACKGROUND,
    "stored": stores.STORED,
    "conversation": stores.CONVERSATION,
    "lane": tables.LANE,
    "steering": tables.STEERING,
    "connection": tables.CONNECTION,
    "server": tables.SERVER,
    "container": container.CONTAINER,
    "async_call": input_items.ASYNC_CALL,
    "upstream_connection": upstream_connection.UPSTREAM_CONNECTION,
    **{name: judge.make_transducer().table for name, judge in DIALECT_JUDGES.items()},
}

LIFECYCLES = Path("docs", "design", "lifecycles")

READABLE = 1000
"""The width in pixels of a picture that a page shows in full size. The legend of a wider one is below it."""

WHOLE_KINDS = [graph.name for graph in stream_graphs().values() if len(graph.edges) == 1]
"""The kinds of item whose lifecycle has one edge: a page describes them together."""

PLAIN_CALLS = ["tool_search_call", "local_shell_call", "computer_call", "program"]
"""The kinds of call whose lifecycles differ in the name only: a page describes them together."""


PAGES: Mapping[str, tuple[str, str]] = {
    "items": ("Items", "The lifecycles of the response and of what the model writes for people: its reasoning and its messages."),
    "calls": ("Calls", "The lifecycles of calls: of the client's tools, and of tools that the server runs."),
    "formats": ("Formats and APIs", "The tables that read the tokens of gpt-oss, and that write the streams of other APIs."),
    "processes": ("Processes", "The tables of the service that makes and stores responses, and of its connections."),
}
"""The pages of the machines, each with its title and its first sentence."""

PAGE_OF: Mapping[str, str] = {
    **dict.fromkeys((name for name in stream_graphs() if name not in WHOLE_KINDS), "calls"),
    **dict.fromkeys(process_graphs(), "processes"),
    **dict.fromkeys(("response", "reasoning", "message", "compaction"), "items"),
    **dict.fromkeys(("harmony", *DIALECT_APIS), "formats"),
}
"""The page of each machine that has a section of its own."""


def place_of(name: str) -> str:
    """Return where the pages describe a machine, from `docs/design/lifecycles/`."""
    return f"{PAGE_OF[name]}.md#{name}"


def generated() -> dict[Path, str]:
    """Return every generated file, by its path from the root of the repository."""
    files: dict[Path, str] = {}
    graphs = {**stream_graphs(), **process_graphs()}
    files |= {
        LIFECYCLES / f"{name}.svg": to_svg(graphs[name], legend_within=READABLE) for name in PAGE_OF if name not in PLAIN_CALLS
    }
    files[LIFECYCLES / "plain_call.svg"] = to_svg(evolve(graphs[PLAIN_CALLS[0]], name="plain_call"), legend_within=READABLE)
    files[LIFECYCLES / "whole.svg"] = to_svg(evolve(graphs[WHOLE_KINDS[0]], name="whole"))
    files |= {LIFECYCLES / f"{page}.md": "\n\n".join(_page(page)) + "\n" for page in PAGES}
    files[Path("src", "interlock", "serving", "view", "page", "machines.json")] = machines.written(
        [*stream_graphs().values(), *(process_graphs()[name] for name in DIALECT_APIS)]
    )
    index = Path("docs", "design", "lifecycles.md")
    files[index] = _filled((ROOT / index).read_text(encoding="utf-8"), "all lifecycles", _index())
    readme = Path("README.md")
    files[readme] = _filled((ROOT / readme).read_text(encoding="utf-8"), "figures", _figures())
    rules = Path("docs", "evidence", "rules.md")
    files[rules] = _filled((ROOT / rules).read_text(encoding="utf-8"), "rules", _rules())
    dialects = Path("docs", "guides", "dialects.md")
    files[dialects] = (ROOT / dialects).read_text(encoding="utf-8")
    for letter in dict.fromkeys(number[0] for number in DIALECT_RULES):
        files[dialects] = _filled(files[dialects], letter, _dialect_rules(letter))
    families = Path("docs", "library", "families.md")
    page = _filled((ROOT / families).read_text(encoding="utf-8"), "families", _families())
    page = _filled(page, "names", _names())
    files[families] = _filled(page, "framing", _framings())
    framings = {Path("docs", "library", "families", f"{name}.svg"): graph for name, (_, graph) in _drawn_framings().items()}
    files |= {path: to_svg(graph, legend_within=READABLE) for path, graph in framings.items()}
    files[Path("docs", "design", "architecture.svg")] = architecture.drawing()
    files[Path("docs", "design", "request.svg")] = architecture.journey()
    files[Path("docs", "guides", "script.schema.json")] = json.dumps(script_schema(), indent=2) + "\n"
    malformed = Path("docs", "evidence", "conformance", "recovery.md")
    cases = ("| case | the model writes | the client receives |", "|---|---|---|", *malformed_cases())
    files[malformed] = _filled((ROOT / malformed).read_text(encoding="utf-8"), "cases", iter(cases))
    streams = Path("tests", "corpus", "README.md")
    files[streams] = _filled((ROOT / streams).read_text(encoding="utf-8"), "broken streams", _broken_streams())
    clients = Path("docs", "guides", "agents.md")
    files[clients] = _filled((ROOT / clients).read_text(encoding="utf-8"), "tested with", tested.table())
    embedding = Path("docs", "library", "embedding.md")
    files[embedding] = _filled((ROOT / embedding).read_text(encoding="utf-8"), "all deltas", _deltas())
    engines, example = Path("docs", "library", "engines.md"), Path("examples", "engine_server.py")
    page = _filled((ROOT / engines).read_text(encoding="utf-8"), "outputs", _attributes(EngineOutput, Chunk))
    page = _filled(page, "reasons", _reasons())
    page = _filled(page, "tool runner", _methods(ToolRunner, Tools))
    code = ("```python", *(ROOT / example).read_text(encoding="utf-8").splitlines(), "```")
    files[engines] = _filled(page, str(example), iter(code))
    serving, vllm = Path("docs", "guides", "serving.md"), Path("docs", "guides", "vllm.md")
    flags = [name for name, each in settings.options().items() if each.has_flag]
    files[serving] = _filled((ROOT / serving).read_text(encoding="utf-8"), "settings", _settings(flags, settings.flag))
    plugin = [name for name, each in settings.options().items() if name in PLUGIN_FIELDS or not each.has_flag]
    page = (ROOT / vllm).read_text(encoding="utf-8")
    files[vllm] = _filled(page, "settings of the plugin", _settings(plugin, settings.variable))
    return files


def _settings(names: Iterable[str], shown: Callable[[str], str]) -> Iterator[str]:
    """Yield the table of settings; `shown` returns what sets one."""
    yield "| setting | value | default | meaning |"
    yield "|---|---|---|---|"
    for name in names:
        each, default = settings.options()[name], settings.DEFAULTS[name]
        value = each.metavar or ", ".join(f"`{choice}`" for choice in settings.choices(name)) or "flag"
        text = (
            ", ".join(f"{part:g}" if isinstance(part, (int, float)) else part for part in default)
            if isinstance(default, tuple)
            else default
        )
        yield f"| `{shown(name)}` | {value} | {'' if default in (None, False, ()) else text} | {each.help} |"


def _page(page: str) -> Iterator[str]:
    title, about = PAGES[page]
    yield f"# {title}"
    yield f"{about} [lifecycles.md](../lifecycles.md) explains how to read them."
    graphs = {**stream_graphs(), **process_graphs()}
    for name, its_page in PAGE_OF.items():
        if its_page == page and name not in PLAIN_CALLS:
            yield from _section(name, graphs[name])
    if page == "calls":
        yield from _plain_calls()
    if page == "items":
        yield from _whole_section()
    yield "`make docs` writes this page from the tables. `interlock diagram NAME` prints a machine as Mermaid."


def _section(name: str, graph: Graph) -> Iterator[str]:
    yield f"## `{name}`"
    yield subject_of(name).about
    yield _declared(name)
    yield f"![The machine {name}: every edge is in the table below]({name}.svg)"
    yield from _shown(name, graph)
    yield "\n".join(_table(name, graph))
    for region in graph.regions:
        states = ", ".join(f"`{state}`" for state in region.states)
        stays = " A row that goes to it stays in the state." if any(edge.dest == region.name for edge in graph.edges) else ""
        yield f"`{region.name}` is a region: its rows hold in each of the states {states}.{stays}"
    if name in WALKED and (owned := WALKED[name].owned):
        triggers = ", ".join(f"`{trigger}`" for trigger in sorted(owned))
        yield f"Only the owner fires these triggers; from anyone else, they are refused in every state: {triggers}."
    yield from _meanings(graph)
    if name in OBSERVED:
        yield "`interlock check` also accepts these edges, which other services take where the driver does not:"
        yield "\n".join(_observed(name))
    yield from _framed() if name == "harmony" else _walked(name) if name in WALKED else _examples(name)


def _meanings(graph: Graph) -> Iterator[str]:
    for what, meanings in (("trigger", graph.triggers), ("effect", graph.key)):
        if meanings:
            yield "\n".join([f"| {what} | meaning |", "|---|---|", *(f"| `{one}` | {meaning} |" for one, meaning in meanings)])


def _declared(name: str) -> str:
    """Link the module that declares a table."""
    module = MODULES.get(name, lifecycles)
    path = f"{module.__name__.removeprefix('interlock.').replace('.', '/')}.py"
    return f"Declared in [{path}](../../../src/interlock/{path})."


def _shown(name: str, graph: Graph) -> Iterator[str]:
    """Return a legend of the lines, and the status that a reader sees in each state."""
    dropped = [f"`{node.name}`" for node in graph.nodes if node.role is NodeRole.DROPPED]
    if dropped:
        yield f"{', '.join(dropped)} is final too, but nothing was emitted on the way there, so the stream never shows the item."
    if statuses := STATUSES.get(name):
        inside = [node.name for node in graph.nodes if node.role in {NodeRole.NORMAL, NodeRole.FINAL}]
        hidden = [f"`{state}`" for state in inside if state not in statuses]
        if hidden:
            yield f"The API has no status for {', '.join(hidden)}; there the item's status is `in_progress`."


def _table(name: str, graph: Graph) -> Iterator[str]:
    heads = ("in", "on", "goes to", "and does" if name in MODULES else "and emits")
    yield f"| {' | '.join(heads)} |"
    yield "|---|---|---|---|"
    roles = {node.name: node.role for node in graph.nodes}
    for edge in graph.edges:
        mark = "**" if roles.get(edge.dest) in {NodeRole.FINAL, NodeRole.DROPPED} else ""
        for label in edge.labels:
            triggers = ", ".join(f"`{trigger}`" for trigger in label.triggers)
            events = "<br>".join(f"`{event}`" for event in label.events) or "nothing"
            yield f"| `{edge.source}` | {triggers} | {mark}`{edge.dest}`{mark} | {events} |"


def _observed(name: str) -> Iterator[str]:
    yield "| in | goes to | on | why it is legal |"
    yield "|---|---|---|---|"
    for edge in OBSERVED[name]:
        events = ", ".join(f"`{wire_name(event)}`" for event in edge.events)
        yield f"| `{edge.source}` | `{edge.dest}` | {events} | {edge.why} |"


def _plain_calls() -> Iterator[str]:
    """Describe the calls whose lifecycles differ in the name only: the machine once, then an example of each."""
    yield "## Calls that do not stream"
    yield (
        "Nothing of these calls streams between `response.output_item.added` and `response.output_item.done`, which has the "
        "complete item. Their lifecycles differ in the name only, so one picture and one table stand for all of them."
    )
    yield "Declared in [fsm/lifecycles.py](../../../src/interlock/fsm/lifecycles.py)."
    yield "![The machine of every call that does not stream](plain_call.svg)"
    yield "\n".join(_table("plain_call", stream_graphs()[PLAIN_CALLS[0]]))
    for name in PLAIN_CALLS:
        yield f"### `{name}`"
        yield subject_of(name).about
        yield from _examples(name)


def _whole_section() -> Iterator[str]:
    """Describe the kinds whose lifecycle has one edge: the machine once, then an example of each."""
    yield "## Items without deltas"
    yield (
        "These items have no deltas: `response.output_item.added` and `response.output_item.done` both carry the complete item. "
        "Most are outputs of tools or are made by the server. Their lifecycles differ in the name only, so one picture and one "
        "table stand for all of them."
    )
    yield "Declared in [fsm/lifecycles.py](../../../src/interlock/fsm/lifecycles.py)."
    yield "![The machine of every item without deltas](whole.svg)"
    yield "\n".join(_table("whole", stream_graphs()[WHOLE_KINDS[0]]))
    yield "Each example shows the delta that the driver is fed, and the item that both events then carry."
    for name in WHOLE_KINDS:
        yield f"### `{name}`"
        yield subject_of(name).about
        (delta,) = subject_of(name).deltas
        item = body_of(next(of_item(driven([delta]), name)))["item"]
        yield f"```text\n{delta!r}\n{shortened_json(item)}\n```"


def _rules() -> Iterator[str]:
    """Write a section for each rule: what it says, why, where it is kept, and the deviations from it that are no errors."""
    for rule in RULES.values():
        yield ""
        yield f'<a id="{rule.number.lower()}"></a>'
        yield ""
        yield f"### {rule.number}: {rule.name}"
        yield ""
        yield rule.says
        yield ""
        yield f"*If broken:* {rule.breaks}" if rule.breaks else "One stream alone cannot show it."
        if deviations := [each for each in DEVIATIONS.values() if each.rule == rule.number]:
            yield ""
            yield from _deviations(deviations)
    yield ""


def _broken_streams() -> Iterator[str]:
    """Write what the judge finds in each broken stream of the corpus."""
    yield "| stream | what `interlock check` finds |"
    yield "|---|---|"
    for path, data in corpus().items():
        if path.parent.name == "broken":
            found = "<br>".join(f"{one.rule}: {escape(one.message, quote=False)}" for one in judge([data]).findings)
            yield f"| `{path.stem}` | {found.replace('|', '&#124;')} |"


def _dialect_rules(letter: str) -> Iterator[str]:
    """Write a table of the rules of another API, whose numbers begin with a letter."""
    yield "| rule | | if broken |"
    yield "|---|---|---|"
    for rule in DIALECT_RULES.values():
        if rule.number.startswith(letter):
            yield f"| {rule.number} | {rule.says} | {rule.breaks or 'not judged: one stream cannot show it'} |"
    if deviations := [each for each in DEVIATIONS.values() if each.rule in DIALECT_RULES and each.rule.startswith(letter)]:
        yield ""
        yield from _deviations(deviations)


def _deviations(deviations: Iterable[Deviation]) -> Iterator[str]:
    yield "| deviation | what the stream has | why it is not an error | sent by |"
    yield "|---|---|---|---|"
    for each in deviations:
        name = f"`{each.name}`" + (" (not judged)" if each.severity == "not_judged" else "")
        yield f"| {name} | {each.what} | {each.why} | {each.senders} |"


def _examples(name: str) -> Iterator[str]:
    for recording in subject_of(name).recordings:
        link = f"the [recording]({WRITTEN}) `{recording}`"
        events = recorded(recording)
        if name == "response":
            yield f"The response's own events of {link}, with items by id and without the settings:"
            yield f"```text\n{shortened(of_response(events))}\n```"
        else:
            yield f"The item's events of {link}; without `item_id` and `output_index`:"
            yield f"```text\n{shortened(of_item(events, name))}\n```"
    if deltas := subject_of(name).deltas:
        yield "The driver is fed these deltas:"
        yield "```text\n" + "\n".join(map(repr, deltas)) + "\n```"
        yield "After the response's own first events it emits:"
        yield f"```text\n{shortened(of_item(driven(deltas), name))}\n```"


def _walked(name: str) -> Iterator[str]:
    """Show a path through a process: what is fired, the state that is entered, and the effects."""
    machine = Machine.at_start(WALKED[name])
    triggers = subject_of(name).triggers
    steps = [(trigger, machine.fire(trigger), machine.state.name) for trigger in triggers]
    width, place = max(map(len, triggers)), max(len(state) for *_, state in steps)
    yield f"A path from `{WALKED[name].initial}`: each line has the trigger, the state that it enters, and the effects."
    lines = [f"{trigger:{width}}  {state:{place}}  {', '.join(effects)}".rstrip() for trigger, effects, state in steps]
    yield "```text\n" + "\n".join(lines) + "\n```"


def _framed() -> Iterator[str]:
    """Show what the framing makes of a recording: what the model wrote, and the deltas of it."""
    (name,) = subject_of("harmony").recordings
    recording = RECORDINGS[name]
    outputs = [output for turn in recording.turns for output in turn.outputs]
    encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    tokens = [token for output in outputs for token in output.chunk.token_ids]
    yield f"In the [recording]({WRITTEN}) `{name}`, the model writes (one line for each header and each content):"
    written = re.sub(r"(<\|(?:start|message|end|call)\|>)", r"\n\1", encoding.decode(tokens)).strip()
    yield f"```text\n{written}\n```"
    yield "The parser turns this into these deltas:"
    parser = parser_for("harmony", recording.request)
    deltas = [repr(delta) for output in outputs for delta in parser.feed(output.chunk)]
    yield "```text\n" + "\n".join(deltas) + "\n```"


def _families() -> Iterator[str]:
    """List the families, and show the same call in each format."""
    yield "| `--tool-call-parser` | arguments | `--reasoning-parser` | a call |"
    yield "|---|---|---|---|"
    for name, syntax in SYNTAXES.items():
        call = encode([WrittenItem("call", '{"city":"Rome"}', "f")], name).replace("\n", "⏎").replace("|", "\\|")
        reasoning = f"`{DEFAULT_REASONING[name]}`" if DEFAULT_REASONING[name] else "—"
        yield f"| `{name}` | {syntax.style} | {reasoning} | `{call}` |"


def _names() -> Iterator[str]:
    """List the names of vLLM's parsers, and what reads the models of each."""
    yield "| name | `--tool-call-parser` | `--reasoning-parser` |"
    yield "|---|---|---|"
    for name in sorted({*SYNTAXES, *REASONINGS, *OTHER_NAMES}):
        calls = SYNTAXES[name].style if name in SYNTAXES else "—"
        reasoning = _markers(REASONINGS[name]) if name in REASONINGS else "—"
        yield f"| `{name}` | {calls} | {reasoning} |" if name not in OTHER_NAMES else f"| `{name}` | {OTHER_NAMES[name]} | |"


def _markers(reasoning: ReasoningSyntax) -> str:
    """Show the markers of a reasoning format."""
    return " … ".join(f"`{text.strip()}`" for text in (reasoning.begins[0], reasoning.ends[0])).replace("|", "\\|")


def _framings() -> Iterator[str]:
    """Show the pictures of the framing, and explain their triggers and effects: those of literals last."""
    for name, (about, graph) in _drawn_framings().items():
        yield f"### {graph.name[0].upper()}{graph.name[1:]}"
        yield ""
        yield about
        yield ""
        yield f"![{graph.name}](families/{name}.svg)"
        yield ""
        if name in _EXPLAINED:
            yield _EXPLAINED[name]
            for table in _meanings(graph):
                yield f"\n{table}"
            yield ""


_EXPLAINED: Final = {
    "literal": "All pictures above have these triggers and effects:",
    "literals": "This picture has triggers and effects of its own:",
}
"""The pictures below which a page explains triggers and effects, each with the sentence before the tables."""

_STYLES: Final = {
    "keys": "with keys and values",
    "json": "with JSON",
    "envelope": "in an envelope",
    "literal": "with a literal",
}


@cache
def _drawn_framings() -> dict[str, tuple[str, Graph]]:
    """Return the pictures of the framing by the names of their files, each with what it shows."""
    reads = {name: family(name, DEFAULT_REASONING[name]) for name in SYNTAXES}
    about = (
        "A turn starts in `thinking` if its prompt ends inside reasoning; in most families that reason, also if the prompt has "
        "no marker\nof reasoning. Otherwise it starts in `between`. A call leads to `inside`: in a family with sections, its "
        "section is still open\nthere."
    )
    drawn = {"text": (about, evolve(picture_of_text(reads.values()), name="the text around calls"))}
    for style, way in _STYLES.items():
        names = [name for name, read in reads.items() if read.style == style]
        graph = picture_of_call([reads[name] for name in names])
        drawn[style] = f"The families: {', '.join(f'`{name}`' for name in names)}.", evolve(graph, name=f"a call {way}")
    about = (
        "The inside of literals in all notations, which share a table of their own. The triggers are the parts of a literal: "
        "brackets,\nquotes, words and so on. A part without an edge in the picture breaks the literal (rule 2)."
    )
    drawn["literals"] = about, picture_of_literals()
    return drawn


def _filled(page: str, what: str, lines: Iterator[str]) -> str:
    """Fill in what is generated between the marks that ask for it."""
    before, mark, rest = page.partition(f"<!-- generated: {what} -->\n")
    _, end, after = rest.partition("<!-- end -->\n")
    if not end:
        raise LookupError(f"the page lacks the lines `<!-- generated: {what} -->` and `<!-- end -->`")
    return "".join((before, mark, *(f"{line}\n" for line in lines), end, after))


def _figures() -> Iterator[str]:
    """Repeat a few figures of the pages that `benchmarks/turns/vllm_turns.py` and `benchmarks/write_docs.py` write."""
    pages = ("evidence/conformance.md", "evidence/performance/bounds.md", "evidence/performance/figures.md", "guides/vllm.md")
    conformance, performance, figures, guide = ((DOCS / page).read_text("utf-8") for page in pages)
    conformance, _, _ = conformance.partition("### Key")
    ((turns, release),) = re.findall(r"^(\d+) scripted turns, played on vLLM (\S+)", conformance, flags=re.MULTILINE)
    (ordinary,) = re.findall(r"^(\d+) of the turns are \*ordinary\*", conformance, flags=re.MULTILINE)
    (next_release,) = re.findall(r"^The column of vLLM (\S+) is", conformance, flags=re.MULTILINE)
    release = release.partition("+")[0]
    yield f"| {turns} turns | vLLM {release} | vLLM {next_release} | Interlock in {release} |"
    yield "|---|---:|---:|---:|"
    for name, row in (
        ("turns whose stream has no error", "streams without an error"),
        (
            f"of the {ordinary} ordinary turns, those whose stream has no error",
            f"ordinary turns, of {ordinary}, whose stream has no error",
        ),
        ("turns whose stream stops without its last event", "turns whose stream has no terminal event"),
        ("turns whose events make the `openai` package raise", "turns whose events make the `openai` package raise"),
    ):
        (counts,) = re.findall(rf"^\| {row} \| (.* \| .* \| .*) \|$", conformance, flags=re.MULTILINE)
        yield f"| {name} | {counts} |"
    yield ""
    yield "| CPU time | vLLM | Interlock |"
    yield "|---|---:|---:|"
    for name, row in (
        ("a token of text", "text, 64 streams"),
        ("a token of text, if the engine sends ten at a time", "outputs of 10 tokens, 64 streams"),
        ("a token of an answer that is not streamed", "an answer that is not streamed, 64 requests"),
    ):
        (times,) = re.findall(rf"^\| {row} \|.*\| (\S+) \([^|]*\|[^|]*\|$", figures, flags=re.MULTILINE)
        yield f"| {name} | {float(times):.1f}x | 1x |"
    for name, row in (
        ("a token of text on a GPU", "text"),
        ("a token of text on a GPU, if the engine sends ten at a time", "outputs of 10 tokens"),
    ):
        ((ours, theirs),) = re.findall(rf"^  \| {row} \| (\d+) \| (\d+) \|", guide, flags=re.MULTILINE)
        yield f"| {name} | {int(theirs) / int(ours):.1f}x | 1x |"
    for name, row in (("text", "text deltas"), ("reasoning, text and a call", "reasoning, content, one call")):
        (times,) = re.findall(rf"^\| {row}, against vLLM \|[^|]*\| (\S+) times", performance, flags=re.MULTILINE)
        yield f"| from deltas to events alone: {name} | {float(times):.1f}x | 1x |"


def _deltas() -> Iterator[str]:
    """List the deltas and their fields by the first line of their docstrings."""
    yield "| delta | what it reports | fields |"
    yield "|---|---|---|"
    for delta in get_args(Delta):
        if delta is str:
            yield "| `str` | Text of the item that is being written, or of a new message. | |"
            continue
        names = ", ".join(f"`{field.name}`" for field in fields(delta) if field.init)
        yield f"| `{delta.__name__}` | {_line((inspect.getdoc(delta) or '').partition(chr(10) * 2)[0])} | {names} |"


def _attributes(*kinds: type) -> Iterator[str]:
    """List the fields of classes by the texts below them."""
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    for kind in kinds:
        body = ast.parse(inspect.getsource(kind)).body[0].body
        for one, text in pairwise(body):
            match one, text:
                case ast.AnnAssign(target, annotation), ast.Expr(ast.Constant(str() as meaning)):
                    kinds_of_value = ast.unparse(annotation).replace(" | ", "` or `")
                    yield f"| `{kind.__name__}.{ast.unparse(target)}` | `{kinds_of_value}` | {_line(meaning)} |"


def _reasons() -> Iterator[str]:
    """List the reasons for the end of a turn, and what each API calls them."""
    statuses = {"": "`completed`, or another turn", "cut": "`incomplete`", "fail": "`failed`", "cancel": "`cancelled`"}
    (meanings,) = re.findall(r'"""Why a turn ended\. In order: (.*?)\."""', inspect.getsource(deltas), re.DOTALL)
    yield "| `finish_reason` | meaning | Responses | Chat Completions | Messages |"
    yield "|---|---|---|---|---|"
    for reason, meaning in zip(get_args(FinishReason), _line(meanings).split(", "), strict=True):
        end = deltas.TURN_ENDS[reason]
        status = statuses[end.trigger] + f", `{end.detail}`" * bool(end.detail)
        others = ["an error"] * 2 if end.trigger == "fail" else _reasons_elsewhere(reason)
        yield f"| `{reason}` | {meaning.removeprefix('or ')} | {status} | {' | '.join(others)} |"


def _reasons_elsewhere(reason: FinishReason) -> Iterator[str]:
    """Yield what Chat Completions and Messages call a reason, after a text and after a call where they differ."""
    call = [deltas.Open("function_call", {"name": "f", "call_id": "call_1"}), "{}"]
    turns = [call] if reason == "cut" else [["It rains."], [*call, deltas.Close()]]  # only a call is cut
    ends = [driven([*turn, deltas.EndTurn(reason)]) for turn in turns]
    chats = [fold_chat(chunk for event in end for chunk in chat.feed(event)) for end in ends for chat in [ChatTransducer()]]
    whole = [fold_messages(each for event in end for each in one.feed(event)) for end in ends for one in [MessagesTransducer()]]
    for names in ([each.choices[0].finish_reason for each in chats], [each.stop_reason for each in whole]):
        yield ", ".join(f"`{name}`" for name in dict.fromkeys(names))


def _methods(*protocols: type) -> Iterator[str]:
    """List the members of protocols by the first line of their docstrings."""
    yield "| member | what it does |"
    yield "|---|---|"
    for protocol in protocols:
        for name, member in vars(protocol).items():
            if not name.startswith("_"):
                about = inspect.getdoc(member) or ""
                yield f"| `{protocol.__name__}.{name}` | {_line(about.partition(chr(10) * 2)[0])} |"


def _line(text: str) -> str:
    return " ".join(text.split())


def _index() -> Iterator[str]:
    graphs = {**stream_graphs(), **process_graphs()}
    for page, (title, about) in PAGES.items():
        yield f"### [{title}](lifecycles/{page}.md)"
        yield ""
        yield about
        yield ""
        yield "| machine | states | edges | the path to the normal end |"
        yield "|---|---:|---:|---|"
        yield from (_entry(graphs[name]) for name, its_page in PAGE_OF.items() if its_page == page)
        if page == "items":
            whole = f"[{len(WHOLE_KINDS)} items without deltas](lifecycles/items.md#items-without-deltas)"
            yield f"| {whole} | 2 | 1 | `absent` → `completed` |"
        yield ""


def _entry(graph: Graph) -> str:
    endless = not any(node.role is NodeRole.FINAL for node in graph.nodes)
    way = "no end" if endless else " → ".join(f"`{state}`" for state in graph.main_path)
    states, edges = graph.size
    return f"| [`{graph.name}`](lifecycles/{place_of(graph.name)}) | {states} | {edges} | {way} |"


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
