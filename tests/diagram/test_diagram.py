"""A diagram shows every edge of its table, in every format, legibly."""

import json
import re
import xml.etree.ElementTree as ET
from enum import StrEnum
from functools import cache
from itertools import combinations, pairwise
from math import ceil

import pytest
from attrs import evolve
from family_pictures import picture_of_call, picture_of_literals, picture_of_text
from for_each import for_each

from interlock.diagram import RENDERERS, Graph, NodeRole, draw, graph_of, key_of, to_mermaid, to_svg
from interlock.diagram.graph import DrawnEdge, GraphNode, Label, LineStyle, Region
from interlock.diagram.layout import MARGIN, Layout, PlacedLine, _orders, _overlaps, _spread, lay_out, untidiness
from interlock.fsm.lifecycles import LIFECYCLES, RESPONSE
from interlock.fsm.table import Edge, Table
from interlock.parsers.families import DEFAULT_REASONING, SYNTAXES, family
from interlock.serving.cli.machines import process_graphs, stream_graphs
from interlock.serving.responses.background_response import BACKGROUND
from interlock.serving.responses.turns_table import TURNS
from interlock.serving.store.tables import STORED

LIFECYCLE = {"response": RESPONSE, **LIFECYCLES}
WIDEST = 1400  # pixels

# A table without a final state, whose lines return, like the framing of a format.
FRAMING = graph_of(
    "framing",
    "between",
    [
        ("between", "start", "header", ("note",)),
        ("between", "text", "content", ("open", "append")),
        ("between", "cut", "between", ()),
        ("header", "message", "content", ("open",)),
        ("header", "end", "between", ("open", "close")),
        ("content", "text", "content", ("append",)),
        ("content", "start", "header", ("close",)),
        ("content", "end", "between", ("close",)),
        ("content", "cut", "between", ()),
    ],
)
# Tables with regions whose main column is not chosen by hand, so that some frames are around both columns.
HOSTS = {f"default {graph.name}": graph for graph in (draw(TURNS), draw(BACKGROUND), draw(STORED))}
FAMILIES = [family(name, DEFAULT_REASONING[name]) for name in SYNTAXES]
STYLES = ("keys", "json", "envelope", "literal")
CALLS = {style: picture_of_call([read for read in FAMILIES if read.style == style]) for style in STYLES}
DRAWN = {**stream_graphs(), **process_graphs(), **CALLS, "text": picture_of_text(FAMILIES), "literals": picture_of_literals()}
"""Every graph that the documentation has as a picture."""

GRAPHS = {**DRAWN, "framing": FRAMING, **HOSTS}

NOTES = re.compile(r'<text class="note" [^>]*>([^<]*)</text>')
"""The words of a legend."""

LARGE = {"reasoning", "turns", "default turns", "background", "default background", "default stored", "text", *STYLES, "literals"}
"""The graphs whose layout takes a second or more."""

every_graph = pytest.mark.parametrize(
    "graph", [pytest.param(graph, id=name, marks=[pytest.mark.long] if name in LARGE else []) for name, graph in GRAPHS.items()]
)


@cache
def laid_out(graph):
    """Return the layout, which is slow to compute, from a cache."""
    return lay_out(graph)


@cache
def picture(graph):
    return ET.fromstring(to_svg(graph))  # noqa: S314 - our own text


def overlap(one, other):
    """Return whether two boxes share more than a border."""
    return one.x < other.right and other.x < one.right and one.y < other.bottom and other.y < one.bottom


def rows(graph):
    """The rows of the table of a graph."""
    return sorted(
        (source, trigger, dest, label.events)
        for edge in graph.edges
        for source, dest in graph.ends(edge)
        for label in edge.labels
        for trigger in label.triggers
    )


def test_draw_returns_the_graph_of_a_lifecycle() -> None:
    added, done = "response.output_item.added", "response.output_item.done"
    delta, whole = (f"response.function_call_arguments.{end}" for end in ("delta", "done"))
    assert draw(LIFECYCLES["function_call"]) == Graph(
        "function_call",
        (
            GraphNode("absent", NodeRole.INITIAL),
            GraphNode("in_progress", NodeRole.NORMAL),
            GraphNode("completed", NodeRole.FINAL),
            GraphNode("incomplete", NodeRole.FINAL),
        ),
        (
            DrawnEdge("absent", "in_progress", (Label(("open",), (added,)),)),
            DrawnEdge("in_progress", "in_progress", (Label(("append",), (delta,)),)),
            DrawnEdge("in_progress", "completed", (Label(("close",), (whole, done)),)),
            DrawnEdge("in_progress", "incomplete", (Label(("cut",), (whole, done)),)),
        ),
        ("absent", "in_progress", "completed"),
    )


@for_each("name", LIFECYCLE)
def test_a_graph_holds_each_edge_of_its_lifecycle_once(name) -> None:
    declared = [(edge.source, edge.trigger, edge.dest, tuple(map(str, edge.effects))) for edge in LIFECYCLE[name].edges]
    assert rows(GRAPHS[name]) == sorted(declared)


def test_edges_between_two_states_share_a_line_and_equal_effects_a_label() -> None:
    graph = graph_of("g", "a", [("a", "x", "b", ("e",)), ("a", "y", "b", ()), ("a", "cut", "b", ("e",)), ("b", "x", "b", ())])
    assert graph.edges == (
        DrawnEdge("a", "b", (Label(("x", "cut"), ("e",)), Label(("y",)))),
        DrawnEdge("b", "b", (Label(("x",)),)),
    )


def test_a_line_is_normal_if_any_of_its_triggers_is_normal() -> None:
    def style(*triggers):
        return DrawnEdge("a", "b", (Label(triggers),)).style

    assert (style("cut", "x"), style("cut", "fail"), style("cancel", "leave")) == (
        LineStyle.NORMAL,
        LineStyle.FAIL,
        LineStyle.CUT,
    )


def test_a_region_that_shares_a_state_with_an_earlier_one_has_no_frame() -> None:
    rows = [("a", "go", "b", ()), ("b", "go", "c", ()), ("a", "end", "d", ()), ("b", "end", "d", ()), ("c", "end", "d", ())]
    graph = graph_of("g", "a", rows, {"d"}, regions={"r": ["a", "b"], "s": ["b", "c"]})
    assert graph.regions == (Region("r", ("a", "b")),)
    assert [(edge.source, edge.dest) for edge in graph.edges] == [("a", "b"), ("b", "c"), ("r", "d"), ("c", "d")]


def test_an_edge_of_all_states_of_a_region_is_one_line() -> None:
    rows = [
        ("a", "go", "b", ("e",)),
        ("a", "wait", "a", ("w",)),
        ("a", "stop", "c", ()),
        ("b", "go", "a", ("e",)),
        ("b", "wait", "b", ("w",)),
        ("b", "back", "a", ()),
        ("a", "back", "a", ()),
        ("b", "stop", "c", ()),
        ("b", "end", "c", ()),
    ]
    graph = graph_of("g", "a", rows, {"c"}, regions={"r": ["a", "b"]})
    assert graph.edges == (
        DrawnEdge("a", "b", (Label(("go",), ("e",)),)),
        DrawnEdge("r", "r", (Label(("wait",), ("w",)),)),
        DrawnEdge("r", "c", (Label(("stop",)),)),
        DrawnEdge("b", "a", (Label(("go",), ("e",)),)),
        DrawnEdge("r", "a", (Label(("back",)),)),
        DrawnEdge("b", "c", (Label(("end",)),)),
    )
    assert graph.size == (3, len(rows))


def test_a_final_state_reached_without_effects_is_dropped() -> None:
    assert {node.name: node.role for node in GRAPHS["message"].nodes if node.role is not NodeRole.NORMAL} == {
        "absent": NodeRole.INITIAL,
        "dropped": NodeRole.DROPPED,
        "completed": NodeRole.FINAL,
        "incomplete": NodeRole.FINAL,
    }


@pytest.mark.parametrize(
    ("event", "short"),
    [
        ("response.output_item.added", "added"),
        ("response.mcp_call.in_progress", ".in_progress"),
        ("response.mcp_call_arguments.delta", "mcp_call_arguments.delta"),
        ("response.content_part.done", "content_part.done"),
        ("append", "append"),
    ],
)
def test_a_label_omits_the_common_prefixes_of_events(event, short) -> None:
    assert GRAPHS["mcp_call"].short(event) == short


@every_graph
def test_short_names_stay_distinct(graph) -> None:
    events = {event for *_, names in rows(graph) for event in names}
    assert len({graph.short(event) for event in events}) == len(events)


def test_a_label_is_broken_between_words() -> None:
    label = Label(("start", "channel"), ("one", "two", "three"))
    assert FRAMING.lines(label, 9) == (("start,", "channel"), ("one · two ·", "three"))
    assert FRAMING.lines(Label(("cut",)), 9) == (("cut",), ())
    assert FRAMING.written(label) == "start, channel / one · two · three"


@every_graph
def test_json_has_all_data_of_the_graph(graph) -> None:
    document = json.loads(RENDERERS["json"](graph))
    assert document["name"] == graph.name
    assert [GraphNode(node["name"], NodeRole(node["role"])) for node in document["nodes"]] == list(graph.nodes)
    assert [
        DrawnEdge(
            edge["source"],
            edge["dest"],
            tuple(Label(tuple(label["triggers"]), tuple(label["events"])) for label in edge["labels"]),
        )
        for edge in document["edges"]
    ] == list(graph.edges)
    assert [LineStyle(edge["style"]) for edge in document["edges"]] == [edge.style for edge in graph.edges]
    assert [Region(name, tuple(states)) for name, states in document["regions"].items()] == list(graph.regions)
    assert (tuple(document["way"]), tuple(document["key"].items())) == (graph.main_path, graph.key)
    assert tuple(document["triggers"].items()) == graph.triggers


# One state of the graph "text" represents many, whose edges on `text` differ.
@for_each("graph", [pytest.param(graph, id=name) for name, graph in GRAPHS.items() if name != "text"])
def test_a_configuration_for_xstate_has_every_edge_in_every_state(graph) -> None:
    machine = json.loads(RENDERERS["xstate"](graph))
    edges = {
        (source, trigger, dest, label.events)
        for edge in graph.edges
        for source, dest in graph.ends(edge)
        for label in edge.labels
        for trigger in label.triggers
    }
    found = {
        (state, trigger, row["target"], tuple(row["actions"]))
        for state, node in machine["states"].items()
        for trigger, row in node.get("on", {}).items()
    }
    assert (machine["id"], machine["initial"], found) == (graph.name, graph.nodes[0].name, edges)
    assert [name for name, node in machine["states"].items() if node == {"type": "final"}] == [
        node.name for node in graph.nodes if node.role in {NodeRole.FINAL, NodeRole.DROPPED}
    ]


@every_graph
def test_dot_draws_every_edge_with_its_style(graph) -> None:
    drawn = RENDERERS["dot"](graph)
    looks = {LineStyle.NORMAL: "solid", LineStyle.CUT: "dashed", LineStyle.FAIL: "dotted"}
    for edge in graph.edges:
        label = "".join(f"{graph.written(label)}\\l" for label in edge.labels)
        source, dest = graph.ends(edge)[0]
        (line,) = [line for line in drawn.splitlines() if line.startswith(f'    "{source}" -> "{dest}" [label="{label}" ')]
        assert f" style={looks[edge.style]} " in line
        assert (f' ltail="cluster_{edge.source}"' in line) == (edge.source in {region.name for region in graph.regions})
    assert drawn.count("->") == len(graph.edges)


@every_graph
def test_mermaid_draws_every_edge_with_its_style(graph) -> None:
    drawn = to_mermaid(graph)
    lines = re.findall(r'^ +(\w+) --- \w+\["(.*?)"\]:::label --> (\w+)$', drawn, re.MULTILINE)
    inside = {region.name: {region.name, *region.states} for region in graph.regions}
    loops = [edge for edge in graph.edges if edge.dest in inside.get(edge.source, {edge.source})]
    wanted = [
        (identifier(edge.source), [word for label in edge.labels for word in words(graph.written(label))], identifier(edge.dest))
        for edge in graph.edges
        if edge not in loops
    ]
    assert sorted((source, words(text), dest) for source, text, dest in lines) == sorted(wanted)
    for edge in loops:
        name = identifier(edge.source) + ("_all" if edge.source in inside else "")
        node = next(line for line in drawn.splitlines() if line.strip().startswith(f'{name}["'))
        end = "" if edge.source == edge.dest else f" → {edge.dest}"
        assert all(f"↻ {graph.written(label)}{end}" in node for label in edge.labels)


def identifier(name):
    return re.sub(r"\W", "_", name)


def words(text):
    return re.findall(r"[^ ,·/]+", text.replace("<br/>", " "))


def test_mermaid_draws_a_label_as_a_node_and_a_region_as_a_subgraph() -> None:
    rows = [
        ("a", "x", "b", ()),
        ("b", "y", "a", ()),
        *((state, "fail", "c", ("e",)) for state in "ab"),
        *((state, "z", "b", ()) for state in "ab"),
        *((state, "w", state, ()) for state in "ab"),
        ("a", "cut", "c", ()),
    ]
    assert to_mermaid(graph_of("g", "a", rows, ["c"], regions={"r": ["a", "b"]})) == (
        "flowchart TD\n"
        '    subgraph r["r"]\n'
        '        a["a"]:::initial\n'
        '        b["b"]:::normal\n'
        '        r_all["↻ z → b<br/>↻ w"]:::label\n'
        '        a --- line0["x"]:::label --> b\n'
        '        b --- line1["y"]:::label --> a\n'
        "    end\n"
        '    c["c"]:::final\n'
        '    r --- line2["fail /<br/>e"]:::label --> c\n'
        '    a --- line3["cut"]:::label --> c\n'
        "    style r fill:none,stroke:#8c959f\n"
        "    linkStyle 0,1,2,3 stroke:#768390\n"
        "    linkStyle 6,7 stroke:#bf8700,stroke-dasharray:8 4\n"
        "    linkStyle 4,5 stroke:#d1242f,stroke-dasharray:2 4\n"
        "    classDef initial stroke-dasharray:4 3\n"
        "    classDef normal stroke-width:1px\n"
        "    classDef final stroke-width:4px,rx:14,ry:14\n"
        "    classDef dropped stroke-width:4px,stroke-dasharray:4 3,rx:14,ry:14\n"
        "    classDef label fill:none,stroke:none\n"
    )


@every_graph
def test_the_picture_has_a_title_and_the_words_of_every_edge(graph) -> None:
    root = picture(graph)
    space = "{http://www.w3.org/2000/svg}"
    titles = [title.text for title in root.findall(f"{space}g/{space}title")]
    assert sorted(titles) == sorted(
        "\n".join(f"{', '.join(label.triggers)}: {', '.join(label.events) or 'no event'}" for label in edge.labels)
        for edge in graph.edges
    )
    written = words(" ".join("".join(text.itertext()) for text in root.iter(f"{space}text")))
    for edge in graph.edges:
        assert set(words(" ".join(graph.written(label) for label in edge.labels))) <= set(written)


@every_graph
def test_nothing_in_a_picture_overlaps(graph) -> None:
    layout = laid_out(graph)
    labels = [label.box for label in layout.labels]
    states = [state.box for state in layout.states]
    assert len(labels) == len(graph.edges)
    assert len(states) == len(graph.nodes)
    assert not any(overlap(one, other) for one, other in combinations([*labels, *states], 2))
    segments = [segment for line in layout.lines for segment in line.segments]
    assert not any(overlap(label, segment) for label in labels for segment in segments)


@every_graph
def test_no_two_lines_overlap(graph) -> None:
    lines = [(line.owner, start, end) for line in laid_out(graph).lines for start, end in pairwise(line.points)]
    levels = [(y, min(x, end_x), max(x, end_x), owner) for owner, (x, y), (end_x, end_y) in lines if y == end_y]
    assert _overlaps(levels) == 0


@every_graph
def test_every_box_is_inside_the_picture(graph) -> None:
    width, height = map(int, picture(graph).attrib["viewBox"].split()[2:])
    layout = laid_out(graph)
    boxes = [state.box for state in layout.states] + [label.box for label in layout.labels] + [*layout.frames.values()]
    assert all(box.x > 0 and box.y > 0 and box.right < width and box.bottom < height for box in boxes)


@pytest.mark.long
def test_every_picture_is_as_narrow_as_a_screen() -> None:
    widths = {name: int(picture(graph).attrib["width"]) for name, graph in DRAWN.items()}
    assert {name: width for name, width in widths.items() if width > WIDEST} == {}


def test_only_a_width_that_is_too_large_scales_a_picture_down() -> None:
    tall = picture(graph_of("g", "s0", [(f"s{number}", "go", f"s{number + 1}", ()) for number in range(20)]))
    assert tall.attrib["viewBox"] == f"0 0 {tall.attrib['width']} {tall.attrib['height']}"
    assert int(tall.attrib["height"]) > WIDEST


@pytest.mark.parametrize(
    ("name", "legend"),
    [
        ("message", " ".join(NOTES.findall(to_svg(GRAPHS["message"])))),
        ("chat", "normal failure, or failure and cut final state from every state in the frame"),
    ],
)
def test_a_legend_that_makes_a_picture_too_wide_is_below_without_meanings_of_the_graph_itself(name, legend) -> None:
    graph, (right, bottom) = GRAPHS[name], laid_out(GRAPHS[name]).corner
    _, _, width, _ = map(int, picture(graph).attrib["viewBox"].split())
    assert to_svg(graph, legend_within=width) == to_svg(graph)
    below = to_svg(graph, legend_within=width - 1)
    assert f'viewBox="0 0 {ceil(right + MARGIN)} ' in below
    assert " ".join(NOTES.findall(below)).split() == legend.split()
    notes = [float(y) for y in re.findall(r'<text class="note" x="[^"]*" y="([^"]*)"', below)]
    assert bottom < min(notes) < max(notes) < int(re.findall(r'viewBox="0 0 \d+ (\d+)"', below)[0])


def test_the_legend_names_the_patterns_of_the_lines() -> None:
    assert NOTES.findall(to_svg(GRAPHS["mcp_call"]))[:4] == ["normal", "cut", "failure, or failure and cut", "final state"]


def test_no_region_has_the_name_of_a_trigger_or_an_effect() -> None:
    labels = {name: [label for edge in graph.edges for label in edge.labels] for name, graph in DRAWN.items()}
    words = {name: {word for label in some for word in (*label.triggers, *label.events)} for name, some in labels.items()}
    shared = {name: [region.name for region in DRAWN[name].regions if region.name in words[name]] for name in DRAWN}
    assert {name: regions for name, regions in shared.items() if regions} == {}


@every_graph
def test_a_frame_contains_exactly_the_states_of_its_region(graph) -> None:
    layout = laid_out(graph)
    boxes = {state.node.name: state.box for state in layout.states}
    for region in graph.regions:
        frame = layout.frames[region.name]
        assert {name for name, box in boxes.items() if overlap(box, frame)} == {*region.states}
        for box in (boxes[name] for name in region.states):
            assert frame.x < box.x
            assert frame.y < box.y
            assert box.right < frame.right
            assert box.bottom < frame.bottom
        outside = [label.box for label in layout.labels if label.edge.source not in {region.name, *region.states}]
        assert not any(overlap(box, frame) for box in outside)
    assert not any(overlap(one, other) for one, other in combinations(layout.frames.values(), 2))


@every_graph
def test_the_lines_of_a_region_leave_its_frame(graph) -> None:
    layout = laid_out(graph)
    for edge, points in layout.routes.items():
        if frame := layout.frames.get(edge.source):
            x, y = points[0]
            assert min(abs(x - frame.x), abs(x - frame.right)) < 0.1
            assert frame.y < y < frame.bottom


@every_graph
def test_arrows_end_at_states(graph) -> None:
    layout = laid_out(graph)
    ends = [line.points[-1] for line in layout.lines if line.arrow]
    for x, y in ends:
        assert any(
            box.x - 0.1 <= x <= box.right + 0.1 and box.y - 0.1 <= y <= box.bottom + 0.1
            for box in (*(state.box for state in layout.states), *layout.frames.values())
        )


def test_the_main_path_is_straight() -> None:
    layout = laid_out(GRAPHS["mcp_call"])
    middles = {state.node.name: state.box.middle[0] for state in layout.states}
    main = ["absent", "in_progress", "ready", "calling", "completed"]
    assert len({middles[name] for name in main}) == 1
    assert [line.points[0][0] for line in layout.lines if line.main] == [middles["absent"]] * (len(main) - 1)


@pytest.mark.parametrize("name", ["messages", "stored", "lane"])
def test_exactly_the_lines_of_the_main_path_are_bold(name) -> None:
    graph, layout = GRAPHS[name], laid_out(GRAPHS[name])
    assert {*pairwise(graph.main_path)} <= {end for edge in graph.main_edges for end in graph.ends(edge)}
    drawn = [line.points for line in layout.lines if line.main]
    assert sorted(drawn) == sorted(layout.routes[edge] for edge in graph.main_edges)


def test_a_bold_line_keeps_the_pattern_of_its_style() -> None:
    kinds = [path.attrib["class"] for path in picture(GRAPHS["lane"]).findall("{http://www.w3.org/2000/svg}path")]
    assert sorted(kind for kind in kinds if kind.endswith("bold")) == ["line cut bold", "line main bold", "line main bold"]


def test_crossed_lines_have_a_gap_and_joined_lines_have_none() -> None:
    merged = [[*lines] for lines in laid_out(GRAPHS["message"]).merged]
    assert [len({id(line.owner) for line in lines}) for lines in merged] == [1] * len(merged)
    assert sum(len(lines) > 1 for lines in merged) == 5
    drawn = [path.attrib["class"].split()[0] for path in picture(GRAPHS["message"]).findall("{http://www.w3.org/2000/svg}path")]
    assert drawn[: sum(map(len, merged)) * 2] == [kind for lines in merged for kind in ("halo", "line") for _ in lines]


def test_the_styles_for_dark_pages_have_the_same_rules_and_other_colours() -> None:
    light, dark = re.search(
        r"(\ntext { fill.*?)@media \(prefers-color-scheme: dark\) {(.*?)}\n</style>", to_svg(FRAMING), re.DOTALL
    ).groups()
    colour = re.compile(r"#[0-9a-f]{6}")
    assert colour.sub("", light) == colour.sub("", dark)
    assert not set(colour.findall(light)) & set(colour.findall(dark))


def test_a_picture_is_the_same_every_time() -> None:
    assert to_svg(GRAPHS["mcp_call"]) == to_svg(draw(LIFECYCLES["mcp_call"]))


def test_lines_that_overlap_are_worse_than_lines_that_cross() -> None:
    def layout(*lines):
        return Layout((), tuple(PlacedLine(LineStyle.NORMAL, points, object()) for points in lines), ())

    level, parallel, upright = ((0, 5), (10, 5)), ((5, 9), (15, 9)), ((5, 0), (5, 10))
    assert round(untidiness(layout(level, parallel))) == 100
    assert round(untidiness(layout(level, upright))) == 1
    assert round(untidiness(layout(upright, level))) == 1
    assert untidiness(layout(level, ((11, 5), (20, 5)))) == 0


def test_states_beside_the_main_path_do_not_overlap() -> None:
    assert list(_spread([(300, 36), (310, 36), (900, 36)])) == [278, 332, 900]
    assert list(_spread([(0, 36)])) == [76]  # never in the title


def test_a_table_for_a_terminal_has_a_line_for_each_event() -> None:
    graph = graph_of("g", "a", [("a", "open", "b", ("response.output_item.added", "g.delta")), ("b", "close", "c", ())])
    assert RENDERERS["table"](graph) == (
        "state  trigger  next state  emits\n"
        "a      open     b           added\n"
        "                            .delta\n"
        "b      close    c\n"
    )


def test_the_main_path_is_the_shortest_normal_path_to_an_end_or_all_states() -> None:
    assert GRAPHS["message"].main_path == ("absent", "pending", "output_text", "completed")
    assert GRAPHS["response"].main_path == ("absent", "in_progress", "completed")
    assert FRAMING.main_path == ("between", "header", "content")


def test_states_off_the_main_path_stand_beside_it() -> None:
    boxes = {state.node.name: state.box for state in laid_out(GRAPHS["message"]).states}
    way = {boxes[name].x for name in GRAPHS["message"].main_path}
    beside = {boxes[name].x for name in ("refusal", "in_progress", "dropped", "incomplete")}
    assert (len(way), len(beside)) == (1, 1)
    assert min(beside) > boxes["output_text"].right


class Act(StrEnum):
    BEGIN = "begin"
    """Begin. At once."""
    NOTE = "note"
    """Note `text`,
    in two lines."""
    ODD = "odd"


def test_less_obvious_triggers_of_a_lifecycle_are_explained() -> None:
    assert ">White space, which waits for other</text>" in to_svg(GRAPHS["message"])
    assert ">White space" not in to_svg(GRAPHS["function_call"])


def test_the_key_explains_the_effects_of_a_picture() -> None:
    assert key_of(Act) == (("begin", "Begin"), ("note", "Note `text`, in two lines"))
    drawn = to_svg(evolve(graph_of("g", "a", [("a", "x", "a", ("note", "odd"))]), key=key_of(Act)))
    assert ">note</text>" in drawn
    assert ">Note text, in two lines</text>" in drawn
    assert ">Begin</text>" not in drawn


def test_the_graph_of_a_table_of_enums_has_the_docstrings_as_its_key():
    graph = draw(Table("g", "a", [Edge("a", Act.BEGIN, "a", [Act.NOTE])]))
    assert (graph.triggers, graph.key) == (key_of(Act), key_of(Act))
    assert (GRAPHS["message"].triggers, GRAPHS["message"].key) == ((), ())


def test_the_key_stands_beside_the_machine_in_short_lines() -> None:
    meaning = "A meaning that is so long that it takes more than one line of the key"
    root = picture(evolve(graph_of("g", "a", [("a", "x", "a", ("note",))]), key=(("note", meaning),)))
    lines = [
        text
        for text in root.iter("{http://www.w3.org/2000/svg}text")
        if (text.text or "-") in meaning and text.attrib["class"] == "note"
    ]
    assert " ".join(line.text for line in lines) == meaning
    assert len({line.attrib["x"] for line in lines}) == 1
    assert int(root.attrib["viewBox"].split()[2]) > max(float(line.attrib["x"]) for line in lines)


def test_a_state_whose_name_has_spaces_is_one_word_in_mermaid():
    table = Table("doors", "at rest", [Edge("at rest", "push", "wide open"), Edge("wide open", "pull", "at rest")])
    lines = to_mermaid(draw(table)).splitlines()
    assert [line for line in lines if "at_rest" in line] == [
        '    at_rest["at rest"]:::initial',
        '    at_rest --- line0["push"]:::label --> wide_open',
        '    wide_open --- line1["pull"]:::label --> at_rest',
    ]


def test_in_a_crowded_picture_only_nearby_lines_are_swapped() -> None:
    row = tuple(range(8))
    assert len({*_orders(row, is_crowded=False)}) > len({*_orders(row, is_crowded=True)}) == 25
    assert all(abs(place - line) <= 5 for order in _orders(row, is_crowded=True) for place, line in enumerate(order))


@pytest.mark.parametrize(
    ("name", "explained"),
    [("message", ["annotate", "cut", "dropped", "pad", "refuse", "split"]), ("response", ["cut", "silence"])],
)
def test_the_legend_explains_only_marks_of_the_picture(name, explained):
    drawn = to_svg(stream_graphs()[name])
    assert sorted(re.findall(r'<text class="event" font-weight="700" [^>]*>(\w+)</text>', drawn)) == explained
