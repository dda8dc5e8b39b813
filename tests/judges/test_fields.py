"""Every field of every event and item is judged by its type, with JSON of any kind as its value."""

import random
from itertools import product
from typing import get_type_hints

import msgspec
import pytest
from corpus_streams.broken import numbered
from corpus_streams.legal import item, stream
from each import each

from interlock.events.items import ITEMS
from interlock.events.rulebook import Finding
from interlock.events.stream import EVENTS, wire_name
from interlock.judges.digests import digests, loose_digests, quote
from interlock.judges.fields import check_fields
from interlock.testing import findings, legality

VALUES = (None, True, 1, 0.5, "x", [], {}, [[]], [None], {"type": {}}, {"type": "x"})
UNSEEN = {"keepalive"}


class Seeded(random.Random):
    """Makes the choices of a stream from a seed."""

    def text(self):
        return self.choice(("rain", " x"))


def samples():
    """Return a legal event of every name, and one that begins and one that ends an item of every kind."""
    bodies = {("error", None): {"type": "error", "code": None, "message": "it broke", "param": None, "sequence_number": 2}}
    for kind, seed in product(legality.KINDS, range(40)):
        for body in legality.stream(Seeded(seed), kinds=(kind,), min_items=1):
            bodies.setdefault((body["type"], body.get("item", {}).get("type")), body)
    return bodies


SAMPLES = samples()


def field_findings(event, body):
    """Return the findings in the fields of an event."""
    return check_fields(event, body)[0]


def presence(kind, name):
    """Return in which way a field may be left out, and whether it is null then."""
    (field,) = [field for field in msgspec.structs.fields(kind) if field.encode_name == name]
    hint = get_type_hints(kind, include_extras=True)[field.name]
    extras = [meta.extra for meta in getattr(hint, "__metadata__", ()) if meta.extra]
    return (extras[0]["presence"] if extras else "", field.default is None)


def is_legal(event, body, kind, name, value):
    """Return whether a value is one that its type allows, as `msgspec` reads it, and a stream may say."""
    if name == "sequence_number" or (name == "logprobs" and isinstance(value, list)):
        return True  # judged by R2, and by R15
    try:
        read = msgspec.to_builtins(msgspec.convert(body, event))
    except msgspec.ValidationError:
        return False
    known = read["item"] if kind in ITEMS.values() else read
    return known[name] == value and (value is not None or presence(kind, name) not in {("optional", False), ("outbound", False)})


def test_the_samples_cover_every_event_and_item():
    assert {name for name, _ in SAMPLES} == EVENTS.keys() - UNSEEN
    assert {kind for _, kind in SAMPLES if kind} == ITEMS.keys()
    assert [field_findings(EVENTS[name], body) for (name, _), body in SAMPLES.items()] == [[]] * len(SAMPLES)


@pytest.mark.parametrize("name", sorted(EVENTS.keys() - UNSEEN))
def test_every_field_is_judged_as_its_type_says(name):
    event = EVENTS[name]
    for (_, kind), sample in [one for one in SAMPLES.items() if one[0][0] == name]:
        places = [(event, (), field.encode_name) for field in msgspec.structs.fields(event)]
        if kind:
            places += [(ITEMS[kind], ("item",), field.encode_name) for field in msgspec.structs.fields(ITEMS[kind])]
        for type_, way, field in places:
            for value in VALUES:
                changed = {field: value} if not way else {"item": {**sample["item"], field: value}}
                body = {**sample, **changed}
                is_accepted = field_findings(event, body) == []
                assert is_accepted == is_legal(event, body, type_, field, value), (name, kind, field, value)


@each("name", sorted(EVENTS.keys() - UNSEEN))
def test_a_missing_required_field_is_found(name):
    for (_, kind), sample in [one for one in SAMPLES.items() if one[0][0] == name]:
        for field in msgspec.structs.fields(ITEMS[kind] if kind else EVENTS[name]):
            holder = sample["item"] if kind else sample
            rest = {key: value for key, value in holder.items() if key != field.encode_name}
            wrongs = field_findings(EVENTS[name], {**sample, "item": rest} if kind else rest)
            if field.required:
                assert [wrong.message for wrong in wrongs] == [f"{kind or name}: {field.encode_name} is missing"]


@pytest.mark.parametrize(
    ("stdout", "wrong"),
    [
        (1, Finding("R14", "delta: stdout is a number")),
        ({}, Finding("R14", "delta: stdout is an object")),
        (None, Finding("R14", "delta: stdout is null", "null")),
    ],
)
def test_the_output_of_a_command_must_be_text(stdout, wrong):
    about = {"type": "shell_call_output", "id": "sho_0", "call_id": "call_s", "max_output_length": None, "output": []}
    printed = {"stdout": "hi", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    delta = ("shell_call_output_content.delta", {"command_index": 0, "delta": {"stdout": stdout, "stderr": ""}})
    done = ("shell_call_output_content.done", {"command_index": 0, "output": [{**printed, "stdout": ""}]})
    ended = {"status": "completed", "output": done[1]["output"]}
    bodies = numbered(stream(item(0, {**about, "status": "in_progress"}, ended, delta, done)))
    (finding,) = findings(bodies)
    assert (finding.rule, finding.message, finding.deviation) == ("R14", wrong.message, wrong.deviation)


def test_field_names_chosen_by_users_are_quoted():
    (name,) = (key for key in SAMPLES if key == ("response.output_item.done", "file_search_call"))
    sample = SAMPLES[name]
    results = [{"attributes": {"secret": []}}]
    (wrong,) = field_findings(EVENTS[name[0]], {**sample, "item": {**sample["item"], "results": results}})
    assert wrong.message == "attributes: 'secret' is an array"


def test_an_event_may_be_any_mapping():
    body = msgspec.structs.asdict(EVENTS["error"]("it broke"))
    assert field_findings(EVENTS["error"], {**body, "type": wire_name(EVENTS["error"]), "stream_id": "", "agent": None}) == []


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def test_a_finding_truncates_a_long_value():
    assert [quote(value) for value in ("it's", "y" * 300, 1, [1] * 300, {"a": "y" * 300}, nested(5000), 10**5000)] == [
        '"it\'s"',
        f"'{'y' * 200}'…",
        "1",
        "an array",
        "an object",
        "an array",
        "a number",
    ]


def test_values_nested_too_deeply_count_as_equal():
    deep = {"a": nested(5000), "b": 1}
    assert loose_digests(deep) == digests({"a": nested(6000), "b": 1})


def test_a_command_without_an_added_event_is_not_compared():
    about = {"type": "shell_call", "id": "sh_0", "call_id": "call_s", "action": {"commands": []}, "status": "in_progress"}
    delta = ("shell_call_command.delta", {"command_index": 0, "delta": "ls"})
    bodies = numbered(stream(item(0, about, {"status": "completed"}, delta)))
    assert [finding.rule for finding in findings(bodies)] == ["R14", "R8"]  # the helper gives it an `item_id`
