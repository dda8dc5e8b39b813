"""The framing of the families as a table, and the markers that are compiled from it."""

import pytest
from each import each
from families.firing import fired_by, means
from family_pictures import part_for, picture_of_call, picture_of_text

from interlock.fsm.errors import DeclarationError
from interlock.fsm.table import Edge
from interlock.parsers.families import DISTINCT, SYNTAXES, family
from interlock.parsers.families.family import CALLING
from interlock.parsers.families.framing import FRAMING, Effect, Framing, Trigger
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


def test_every_state_answers_every_trigger():
    assert all(set(state.rows) == set(Trigger) for state in FRAMING.states.values())


def test_a_tentative_state_goes_on_commits_or_gives_back_what_it_holds():
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


def test_a_turn_ends_outside_of_everything():
    for state in FRAMING.states.values():
        for end in (Trigger.FINISH, Trigger.CUT):
            dest, effects = state.rows[end]
            assert dest.name in RESTING or Effect.AGAIN in effects


def test_what_is_read_again_is_read_in_a_state_that_does_not_read_it_again_for_ever():
    for state in FRAMING.states.values():
        for trigger in Trigger:
            seen, now = [state], state
            while Effect.AGAIN in now.rows[trigger][1]:
                now = now.rows[trigger][0]
                assert now not in seen
                seen.append(now)


@each("name", SYNTAXES)
@each("calls", [True, False])
def test_a_channel_looks_for_no_marker_that_its_rest_does_not_look_for(name: str, calls):
    """So that text which opens an item was cut at every marker that counts there."""
    markers = markers_by_state(family(name, "qwen3"), FRAMING, calls=calls)
    for rest, channel in (("thinking", "reasoning"), ("between", "content"), ("inside", "aside")):
        assert markers[channel].roles.keys() <= markers[rest].roles.keys()


@each("name", SYNTAXES)
def test_no_marker_is_inside_of_another_but_at_its_beginning_or_end(name: str):
    """So that a marker that is not whole hides no other."""
    markers = markers_by_state(family(name, "qwen3"), FRAMING, calls=True)
    for state in reachable(name) - {"member"}:  # what follows a name there is no marker
        for text in markers[state].roles:
            for other in markers[state].roles:
                at = text.find(other, 1, -1)
                assert at < 0 or text[: at + len(other)] in markers[state].roles


def test_without_calls_nothing_begins_one():
    for markers in markers_by_state(family("qwen3_coder", "qwen3"), FRAMING, calls=False).values():
        assert not CALLING & set(markers.roles.values())


def reachable(name):
    """The states that texts of a family can lead to."""
    return set(part_for(family(name, "qwen3"), name).states)


def test_every_state_can_be_reached_in_some_family():
    assert set().union(*map(reachable, SYNTAXES)) == set(FRAMING.states)


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.parametrize("name", DISTINCT)
def test_every_row_that_a_family_has_is_fired_and_no_other(name: str):
    read_as = family(name, "qwen3")
    rows = {(edge.source, edge.trigger) for edge in part_for(read_as, name).edges}
    assert {(state, trigger) for state, trigger in fired_by(name) if means(state, trigger)} == rows


def test_every_row_belongs_to_a_family():
    used = {(edge.source, edge.trigger) for name in SYNTAXES for edge in part_for(family(name, "qwen3"), name).edges}
    meaning = {(state, trigger) for state in FRAMING.states for trigger in Trigger if means(state, trigger)}
    assert used == meaning - {("rehearsed_call", Trigger.TEXT)}  # what waited is read again there, and begins with a marker


def test_the_pictures_show_every_state_of_the_framing():
    families = [family(name, "qwen3") for name in SYNTAXES]
    around, call = picture_of_text(families), picture_of_call(families)
    alike = {"thought_section", "aside_section", "thought_name", "aside_name", "thought_bare"}
    assert {node.name for node in around.nodes} == {*RESTING, *CHANNELS, "call"}
    assert {node.name for node in call.nodes} == {"outside", *COMMITTED, *TENTATIVE} - alike


@each(
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
def test_a_framing_whose_effects_do_not_fit_is_refused_when_it_is_declared(source, trigger, dest, effects, refusal):
    changed = [edge for edge in FRAMING.edges if (edge.source, str(edge.trigger)) != (source, trigger)]
    wrong = Edge(source, Trigger(trigger), dest, [Effect[name.upper()] for name in effects])
    with pytest.raises(DeclarationError, match=refusal):
        Framing(FRAMING.name, FRAMING.initial, [*changed, wrong], total=Trigger)


def test_a_turn_that_may_begin_with_pending_text_is_refused():
    edges = [Edge("rest", trigger, "rest", [Effect.HOLD]) for trigger in Trigger]
    with pytest.raises(DeclarationError, match="state 'rest' is entered with an open item or pending text"):
        Framing("small", "rest", edges, total=Trigger)
