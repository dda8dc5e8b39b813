"""The framing of the families as a table, the markers that are compiled from it, and a sample of `families.mutations`."""

import json
import re
from itertools import chain

import families.mutations as framing_mutations
import orjson
import pytest
from families.literals import ALIKE, CASES, STOP, mutations
from families.mutations import fate_of, text_that_shows, texts
from families.relations import fired_by, means, pairs
from family_pictures import part_for, picture_of_call, picture_of_text
from for_each import for_each
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.fsm.deltas import Usage
from interlock.fsm.table import DeclarationError, Edge
from interlock.parsers import Chunk, Routing, Tagged, parser_for
from interlock.parsers.chunk import ListReader
from interlock.parsers.families import DISTINCT, SYNTAXES, Schemas, family
from interlock.parsers.families.family import CALLING
from interlock.parsers.families.framing import FRAMING, Effect, Framing, Trigger
from interlock.parsers.families.literals import ELEMENTS, FUNCTION_GEMMA, GEMMA, LITERALS, PYTHON, LiteralPart, LiteralReader
from interlock.parsers.families.parameter_values import STRING, Schema, convert, escape_json, quote_json
from interlock.parsers.families.reference_encoders import WrittenItem, encode
from interlock.parsers.families.state_markers import markers_by_state

CHANNELS = {"reasoning", "content", "aside"}
TENTATIVE = {name for name in FRAMING.states if name.endswith(("section", "name", "bare")) or name.startswith("rehearsed")}
COMMITTED = {
    *(
        "body",
        "stray_text",
        "key",
        "keyed",
        "value_start",
        "value",
        "value_end",
        "value_tail",
        "value_key",
        "value_call",
        "value_uncall",
        "unended_value",
        "call_end",
    ),
    *(
        "member",
        "argument",
        "json",
        "quoted",
        "encoded",
        "dictionary",
        "torn_string",
        "json_complete",
        "envelope_closed",
        "broken_arguments",
    ),
    "literal",
}
RESTING = {"thinking", "between", "inside"}


def test_the_states_are_of_four_kinds():
    assert set(FRAMING.states) == CHANNELS | TENTATIVE | COMMITTED | RESTING


def test_every_state_has_a_row_for_every_trigger():
    assert all(set(state.rows) == set(Trigger) for state in FRAMING.states.values())


def test_a_tentative_state_continues_commits_or_gives_back_its_text():
    for name in TENTATIVE:
        for dest, effects in FRAMING.states[name].rows.values():
            gives_back = effects == (Effect.AGAIN,)
            assert gives_back is (dest.name in CHANNELS)
            assert (Effect.OPEN in effects) is (dest.name in COMMITTED)
            assert gives_back or Effect.OPEN in effects or dest.name in TENTATIVE


def test_a_committed_call_is_never_taken_back():
    ending = {Effect.CLOSE, Effect.LEAVE}
    for name in COMMITTED:
        for dest, effects in FRAMING.states[name].rows.values():
            assert Effect.OPEN not in effects
            assert bool(ending & set(effects)) is (dest.name not in COMMITTED)


def test_a_turn_ends_in_a_resting_state():
    for state in FRAMING.states.values():
        for end in (Trigger.FINISH, Trigger.CUT):
            dest, effects = state.rows[end]
            assert dest.name in RESTING or Effect.AGAIN in effects


def test_no_trigger_is_read_again_forever():
    for state in FRAMING.states.values():
        for trigger in Trigger:
            seen, now = [state], state
            while Effect.AGAIN in now.rows[trigger][1]:
                now = now.rows[trigger][0]
                assert now not in seen
                seen.append(now)


@for_each("name", SYNTAXES)
@for_each("calls", [True, False])
def test_a_resting_state_has_every_marker_of_its_channel(name: str, calls):
    """So the text that opens an item is already split at every marker of its channel."""
    markers = markers_by_state(family(name, "qwen3"), FRAMING, calls=calls)
    for rest, channel in (("thinking", "reasoning"), ("between", "content"), ("inside", "aside")):
        assert markers[channel].roles.keys() <= markers[rest].roles.keys()


@for_each("name", SYNTAXES)
def test_no_marker_hides_in_the_middle_of_another(name: str):
    """So an incomplete marker never hides another one."""
    markers = markers_by_state(family(name, "qwen3"), FRAMING, calls=True)
    for state in reachable(name) - {"member"}:  # the text after a name there is not searched for markers
        for text in markers[state].roles:
            for other in markers[state].roles:
                at = text.find(other, 1, -1)
                assert at < 0 or text[: at + len(other)] in markers[state].roles


def test_without_calls_no_marker_begins_a_call():
    for markers in markers_by_state(family("qwen3_coder", "qwen3"), FRAMING, calls=False).values():
        assert not CALLING & set(markers.roles.values())


def reachable(name):
    """The states that texts of a family can lead to."""
    return set(part_for(family(name, "qwen3"), name).states)


def test_every_state_is_reachable_in_some_family():
    assert set().union(*map(reachable, SYNTAXES)) == set(FRAMING.states)


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.parametrize("name", DISTINCT)
def test_texts_of_a_family_fire_exactly_its_rows(name: str):
    read_as = family(name, "qwen3")
    rows = {(edge.source, edge.trigger) for edge in part_for(read_as, name).edges}
    assert {(state, trigger) for state, trigger in fired_by(name) if means(state, trigger)} == rows


def test_every_row_belongs_to_a_family():
    used = {(edge.source, edge.trigger) for name in SYNTAXES for edge in part_for(family(name, "qwen3"), name).edges}
    meaning = {(state, trigger) for state in FRAMING.states for trigger in Trigger if means(state, trigger)}
    assert used == meaning - {("rehearsed_call", Trigger.TEXT)}  # pending text is read again there, and begins with a marker


def test_the_pictures_show_every_state_of_the_framing():
    families = [family(name, "qwen3") for name in SYNTAXES]
    around, call = picture_of_text(families), picture_of_call(families)
    alike = {"thought_section", "aside_section", "thought_name", "aside_name", "thought_bare"}
    assert {node.name for node in around.nodes} == {*RESTING, *CHANNELS, "call"}
    assert {node.name for node in call.nodes} == {"outside", *COMMITTED, *TENTATIVE} - alike


@for_each(
    ("source", "trigger", "dest", "effects", "refusal"),
    [
        ("section", "text", "content", ["again", "hold"], "text in state 'section' has effects after 'again'"),
        ("between", "text", "between", ["again"], "text in state 'between' is read again forever"),
        ("content", "text", "content", ["again"], "text in state 'section' is read again forever|text in state 'content' is"),
        (
            "between",
            "text",
            "content",
            ["write"],
            "text in state 'between' has the effect .* where nothing is open and no text",
        ),
        (
            "name",
            "text",
            "content",
            ["hold"],
            "text in state 'content' has the effect 'speak' where .* some text is pending",
        ),
        (
            "content",
            "text",
            "between",
            ["speak"],
            "state 'between' has the effect .* where a message is open and no text|in state 'between' .* entered",
        ),
        ("broken_arguments", "text", "broken_arguments", ["again"], "text in state 'broken_arguments' is read again forever"),
        ("content", "answer", "content", ["close"], "state 'content' is entered with a message and with nothing open"),
        ("content", "finish", "content", ["close"], "finish in state 'content' does not lead to 'between'"),
        ("section", "blank", "section", ["hold", "hold"], "blank in state 'section' has an effect twice"),
        ("section", "blank", "section", [], "blank in state 'section' loses its text"),
        ("value", "text", "body", ["set"], "text in state 'value' loses its text"),
    ],
)
def test_a_framing_with_invalid_effects_is_refused_at_its_declaration(source, trigger, dest, effects, refusal):
    changed = [edge for edge in FRAMING.edges if (edge.source, str(edge.trigger)) != (source, trigger)]
    wrong = Edge(source, Trigger(trigger), dest, [Effect[name.upper()] for name in effects])
    with pytest.raises(DeclarationError, match=refusal):
        Framing(FRAMING.name, FRAMING.initial, [*changed, wrong], total=Trigger)


def test_a_framing_that_may_begin_a_turn_with_pending_text_is_refused():
    edges = [Edge("rest", trigger, "rest", [Effect.HOLD]) for trigger in Trigger]
    with pytest.raises(DeclarationError, match="state 'rest' is entered with an open item or pending text"):
        Framing("small", "rest", edges, total=Trigger)


# Literals: arguments in the notations of Python, of Gemma and of elements, read as JSON


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
KEYS = st.from_regex(r"[a-z]\w{0,3}", fullmatch=True)
SCALARS = TEXT | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none()
FAMILIES = {"pythonic": PYTHON, "gemma4": GEMMA, "functiongemma": FUNCTION_GEMMA, "minimax_m3": ELEMENTS}


def read(notation, text, schema=None, size=1 << 20, stops=frozenset()):
    """Return a literal as JSON, the rest of the text, and why the literal stops there."""
    reader = LiteralReader(notation, frozenset(stops), Schema(schema or {}, schema or {}))
    out, rest, stop = "", "", ""
    for start in range(0, len(text), size):
        rest += text[start : start + size]
        written, at, stop = reader.read(rest, 0, final=start + size >= len(text))
        out, rest = out + written, rest[at:]
    return out + reader.end(), rest, stop


def values(keys):
    return st.recursive(
        SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=6
    )


def schema_of(value):
    """Return the schema of a value, which elements do not show."""
    match value:
        case dict():
            return {"type": "object", "properties": {key: schema_of(each) for key, each in value.items()}}
        case list():
            return {"type": "array", "items": {"anyOf": [schema_of(each) for each in value]}}
        case None:
            return {"type": "null"}
        case _:
            return {"type": {bool: "boolean", int: "integer", float: "number", str: "string"}[type(value)]}


@for_each("case", CASES, ids=lambda case: case.text)
def test_a_literal_case_holds(case):
    assert case.holds()


@settings(deadline=None)
@given(st.dictionaries(KEYS, values(TEXT), max_size=3), st.integers(1, 9))
def test_arguments_in_python_are_read(members, size):
    text = encode([WrittenItem("call", json.dumps(members), "")], "pythonic")[1:-1]
    out, rest, stop = read(PYTHON, text, size=size)
    assert (orjson.loads(out), rest, stop) == (members, "", "ended")


@settings(deadline=None)
@given(st.dictionaries(KEYS, values(KEYS), max_size=3), st.integers(1, 9), st.sampled_from(["gemma4", "functiongemma"]))
def test_arguments_in_the_notation_of_gemma_are_read(members, size, name):
    begin, _, written = encode([WrittenItem("call", json.dumps(members), "")], name).partition("{")
    assert begin.endswith("call:")
    text = "{" + written.rpartition("}")[0] + "}"
    out, rest, stop = read(FAMILIES[name], text, size=size)
    assert (orjson.loads(out), rest, stop) == (members, "", "ended")


SIMPLE = TEXT.filter(str.strip) | st.integers(-99, 99) | st.booleans()
NESTED = (
    SIMPLE
    | st.lists(st.dictionaries(KEYS, SIMPLE, min_size=1, max_size=2), min_size=1, max_size=1)
    | st.dictionaries(KEYS, SIMPLE | st.lists(st.integers(0, 9), max_size=3), min_size=1, max_size=3)
)


@settings(deadline=None)
@given(st.dictionaries(KEYS, NESTED, max_size=3), st.integers(1, 9))
def test_elements_are_read_with_the_types_of_the_schema(members, size):
    written = encode([WrittenItem("call", json.dumps(members), "")], "minimax_m3")
    text = written.partition('name=""')[2].partition(f"{ELEMENTS.namespace}</invoke>")[0]
    out, rest, stop = read(ELEMENTS, text, schema_of(members), size)
    assert (orjson.loads(out), rest, stop) == (members, "", "")


@pytest.mark.parametrize("notation", FAMILIES.values(), ids=FAMILIES)
@settings(deadline=None)
@given(st.data(), st.integers(1, 5))
def test_any_text_gives_the_same_json_in_any_chunks(notation, data, size):
    parts = [*notation.signs, *(f"{notation.namespace}<{tag}>" for tag in ("a", "/a", "item", "/item") if notation.namespace)]
    pieces = st.sampled_from(
        [*parts, STOP, "a", "r", " ", "\n", "\\", "\\n", "\\ud83d", "\\ude00", "\\x4", "\\N{DASH}", "1", "True"]
    )
    text = "".join(data.draw(st.lists(pieces, max_size=12)))
    opening = {"minimax_m3": ">", "pythonic": "("}.get(next(name for name, each in FAMILIES.items() if each is notation), "{")
    whole, rest, stop = read(notation, opening + text, stops={STOP})
    assert stop in {"", "ended", "broken", "marker"}
    if stop == "":
        assert read(notation, opening + text, size=size, stops={STOP}) == (whole, rest, "")


def test_every_state_of_a_literal_has_a_row_for_every_part():
    assert all(state.rows.keys() == set(LiteralPart) for name, state in LITERALS.states.items() if name not in LITERALS.final)


@pytest.mark.long
def test_only_equivalent_mutations_of_the_literals_survive():
    survived = {str(each) for each in mutations() if each.fate() == "survived"}
    assert survived == {*chain.from_iterable(ALIKE.values())}


def test_reading_a_tag_compiles_no_regular_expression(monkeypatch):
    element = f"{ELEMENTS.namespace}<%s>x{ELEMENTS.namespace}</%s>"
    assert read(ELEMENTS, ">" + element % ("a", "a")) == ('{"a":"x"}', "", "")
    monkeypatch.setattr(re, "compile", None)
    assert read(ELEMENTS, ">" + element % ("b", "b")) == ('{"b":"x"}', "", "")


def test_plain_text_in_a_string_passes_unchanged():
    reader = LiteralReader(PYTHON, frozenset({STOP}), Schema())
    assert reader.passes is None
    reader.read("(a='x", 0, final=False)
    assert [text for text in ("it", "it's", '"', "\\", "\n", "<") if reader.passes(text) is None] == ["it", "<"]
    reader.read("\n", 0, final=False)
    assert [text for text in ("it", "it's", '"', "\\", "\n", "<") if reader.passes(text) is None] == ["it"]


# The values of parameters, by the types that schemas give


BODY = {
    "tools": [
        {
            "type": "function",
            "name": "f",
            "parameters": {
                "$defs": {"count": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}, "a/b": {"type": "null"}},
                "properties": {
                    "string": {"type": "string"},
                    "number": {"type": "number"},
                    "either": {"type": ["string", "null"]},
                    "nullable": {"type": "integer", "nullable": True},
                    "any_of": {"anyOf": [{"type": "integer"}, {"anyOf": [{"type": "boolean"}]}]},
                    "reference": {"$ref": "#/$defs/count", "description": "how many"},
                    "escaped": {"$ref": "#/$defs/a~1b"},
                    "loop": {"$ref": "#/$defs/loop"},
                    "nowhere": {"$ref": "#/$defs/none"},
                    "enum": {"enum": ["a", 1, 1.5, True, None, [], {}]},
                    "const": {"const": 3},
                    "open": {},
                    "odd": True,
                },
                "allOf": [{"properties": {"part": {"type": "array"}}}],
            },
        },
        {"type": "function", "function": {"name": "chat", "parameters": {"properties": {"x": {"type": "object"}}}}},
        {
            "type": "namespace",
            "name": "crm",
            "tools": [{"type": "function", "name": "get", "parameters": {"properties": {"id": {"type": "integer"}}}}],
        },
        "no tool",
    ]
}


@for_each(
    ("key", "types"),
    [
        ("string", {"string"}),
        ("number", {"number"}),
        ("either", {"string", "null"}),
        ("nullable", {"integer", "null"}),
        ("any_of", {"integer", "boolean"}),
        ("reference", {"integer"}),
        ("escaped", {"null"}),
        ("loop", None),
        ("nowhere", None),
        ("enum", {"string", "integer", "number", "boolean", "null", "array", "object"}),
        ("const", {"integer"}),
        ("open", None),
        ("odd", None),
        ("part", {"array"}),
        ("unknown", None),
    ],
)
def test_types_come_from_the_schema(key, types):
    assert types_of(BODY, "f", key) == types_of(BODY, "functions.f", key) == (types or set())


def types_of(body, name, key):
    return Schemas.from_request(body).of(Routing.from_request(body).function(name)).member(key).types


def test_types_are_found_by_every_name_of_a_tool():
    assert types_of(BODY, "chat", "x") == {"object"}
    assert types_of(BODY, "crm__get", "id") == types_of(BODY, "crm.get", "id") == {"integer"}
    assert types_of(BODY, "nobody", "x") == types_of({}, "f", "string") == set()


DICE = {"properties": {"sides": {"type": "integer"}, "loud": {"type": "boolean"}}}
LISTED = {"type": "mcp_list_tools", "server_label": "dice", "tools": [{"name": "roll", "input_schema": DICE}, "no tool"]}
ROLL = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in (("sides", "6"), ("loud", "true"), ("other", "1")))


def test_the_types_of_listed_mcp_tools_come_from_the_input():
    body = {"tools": [{"type": "mcp", "server_label": "dice"}], "input": [LISTED, {"type": "message"}]}
    parser = parser_for(Tagged("qwen3_coder"), body)
    for name in ("dice__roll", "dice.roll", "functions.dice__roll"):
        deltas = parser.feed(Chunk(text=f"<tool_call>\n<function={name}>\n{ROLL}</function>\n</tool_call>"))
        assert "".join(each for each in deltas if isinstance(each, str)) == '{"sides":6,"loud":true,"other":"1"}'


def test_a_parser_reads_tool_lists_after_its_creation():
    parser = parser_for(Tagged("qwen3_coder"), {"tools": [{"type": "mcp", "server_label": "dice"}], "input": "Roll!"})
    assert isinstance(parser, ListReader)
    parser.read_lists([{"type": "message"}, LISTED])
    deltas = parser.feed(Chunk(text=f"<tool_call>\n<function=dice__roll>\n{ROLL}</function>\n</tool_call>"))
    assert "".join(each for each in deltas if isinstance(each, str)) == '{"sides":6,"loud":true,"other":"1"}'


def test_code_and_custom_inputs_stay_text_where_untyped_values_are_json():
    body = {"tools": [{"type": "code_interpreter"}, {"type": "custom", "name": "note"}]}
    for name, key in (("python", "code"), ("note", "input")):
        parser = parser_for(Tagged("glm45"), body)
        written = f"<tool_call>{name}\n<arg_key>{key}</arg_key>\n<arg_value>[1,  2]</arg_value>\n</tool_call>"
        deltas = [*parser.feed(Chunk(text=written)), *parser.end("stop", Usage())]
        assert "".join(each for each in deltas if isinstance(each, str)) == "[1,  2]"


def test_a_tool_without_a_name_has_no_schema():
    tools = [{"type": "function", "parameters": {}}, {"type": "function", "function": {"name": None}}, {"type": "file_search"}]
    assert Schemas.from_request({"tools": [*tools, {"type": "namespace", "tools": tools}]}) == Schemas()


def test_a_schema_that_is_nested_too_deeply_has_no_types():
    deep: dict[str, object] = {"type": "integer"}
    for _ in range(100):
        deep = {"anyOf": [deep], "allOf": [{"properties": {"x": deep}}]}
    body = {"tools": [{"type": "function", "name": "f", "parameters": {"properties": {"x": deep}, **deep}}]}
    assert types_of(body, "f", "x") == set()


@for_each(
    ("text", "types", "value"),
    [
        ("a", {"string"}, '"a"'),
        ("5", {"string"}, '"5"'),
        (" 5\n", {"integer"}, "5"),
        ("-007", {"integer"}, "-7"),
        ("5.0", {"integer"}, "5"),
        ("5.5", {"integer"}, "5.5"),
        ("5,0", {"integer"}, '"5,0"'),
        ("9" * 5000, {"integer"}, f'"{"9" * 5000}"'),
        ("1_0", {"integer", "number"}, '"1_0"'),
        ("5", {"number"}, "5"),
        ("3.10", {"number"}, "3.10"),
        ("1e3", {"number"}, "1e3"),
        (".5", {"number"}, "0.5"),
        ("+2.", {"number"}, "2.0"),
        ("+1e999", {"number"}, '"+1e999"'),
        ("NaN", {"number"}, '"NaN"'),
        ("true", {"number"}, "true"),
        ("True", {"boolean"}, "true"),
        ("0", {"boolean"}, "false"),
        ("yes", {"boolean"}, '"yes"'),
        ("null", {"string", "null"}, "null"),
        ("NULL", {"null"}, "null"),
        ("None", {"object", "null"}, "null"),
        ("None", {"string"}, '"None"'),
        ("None", {"object"}, '"None"'),
        ("nil", {"null"}, '"nil"'),
        ('{"a": 1.0}', {"object"}, '{"a": 1.0}'),
        ("[1, 2]", {"object"}, "[1, 2]"),
        ("[1, 2]", {"string", "object"}, '"[1, 2]"'),
        ("[1, 2]", {"array"}, "[1, 2]"),
        ("{'a': 1}", {"object"}, '{"a":1}'),
        ("{'a': {'b': None}, 'a': -1.5}", {"object"}, '{"a":{"b":null},"a":-1.5}'),
        ("['a', \"it's\", True, false, (-2,), '\\d\\n']", {"array"}, '["a","it\'s",true,false,[-2],"\\\\d\\n"]'),
        ("(1, 2)", {"array"}, "[1,2]"),
        ("{'a'}", {"object"}, "\"{'a'}\""),
        ("{1: 2}", {"object"}, '"{1: 2}"'),
        ("{**a}", {"object"}, '"{**a}"'),
        ("[x]", {"array"}, '"[x]"'),
        ("[1e999]", {"array"}, '"[1e999]"'),
        ("['a'", {"array"}, "\"['a'\""),
        ("5", {"string", "integer"}, "5"),
        ("five", {"string", "integer"}, '"five"'),
        ('{"a"', {"object", "array"}, '"{\\"a\\""'),
        ("x", {"unheard of"}, '"x"'),
        ("[null]", {"any"}, "[null]"),
        ("x y", {"any"}, '"x y"'),
    ],
)
def test_a_value_is_of_the_first_type_that_fits(text, types, value):
    assert convert(text, frozenset(types)) == value


@given(st.text(), st.sets(st.sampled_from(["null", "integer", "number", "boolean", "object", "array", "any", "string"])))
def test_any_value_becomes_valid_json(text, types):
    orjson.loads(convert(text, frozenset(types)))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_a_string_can_be_escaped_in_chunks(chunks):
    assert orjson.loads(f'"{"".join(map(escape_json, chunks))}"') == "".join(chunks)
    assert quote_json("".join(chunks)) == convert("".join(chunks), STRING)


def test_a_lone_surrogate_is_replaced():
    assert quote_json("a\ud800") == '"a\ufffd"'


def test_types_may_have_their_python_names():
    properties = {name: {"type": name} for name in ("int", "Float", "bool", "LIST", "tuple", "dict", "str", "None")}
    body = {"tools": [{"type": "function", "name": "f", "parameters": {"properties": properties}}]}
    types = ["integer", "number", "boolean", "array", "array", "object", "string", "null"]
    assert [types_of(body, "f", name) for name in properties] == [{name} for name in types]


def changes_of(state):
    return [each for each in framing_mutations.mutations() if each.edge.source == state]


def change(text):
    return next(each for each in changes_of(text.partition("/")[0]) if str(each) == text)


def test_an_edge_cannot_be_moved_to_another_trigger():
    changes_tried = [each for each in changes_of("value") if each.change.startswith("on ")]
    assert len(changes_tried) > 100
    assert {fate_of(each) for each in changes_tried} == {"refused"}


@pytest.mark.nightly
@pytest.mark.long
def test_the_unchanged_framing_passes_every_trial():
    assert [each for each in chain(pairs(), texts()) if not each.holds(FRAMING)] == []


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.parametrize("state", ["keyed", "key", "member"])
def test_only_equivalent_mutations_of_the_framing_survive(state):
    survived = {str(each) for each in changes_of(state) if not each.change.startswith("on ") and fate_of(each) == "survived"}
    assert survived == {each for each in chain.from_iterable(framing_mutations.ALIKE.values()) if each.startswith(f"{state}/")}


@pytest.mark.nightly
@pytest.mark.long
def test_a_text_that_shows_a_mutation_is_found():
    torn = change("member/text: go to torn_string")
    witness = text_that_shows(torn, 2)
    assert witness is not None
    assert witness.holds(FRAMING)
    assert not witness.holds(torn.declare())


@pytest.mark.nightly
@pytest.mark.long
def test_no_text_is_found_for_an_equivalent_mutation():
    assert text_that_shows(change("bare/declared: go to aside_name"), 1) is None


def test_a_framing_whose_invalid_key_leads_back_to_the_body_is_refused():
    assert fate_of(change("key/text: go to body")) == fate_of(change("keyed/text: go to body")) == "refused"
