"""Limits of requests: checked fields, JSON schemas, values of a body, truncation of a conversation, and API keys."""

import asyncio
import json
import logging

import orjson
import pytest
from for_each import for_each
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from interlock.serving.requests import limits
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.api_keys import Keys
from interlock.serving.requests.body import JsonBudget, read_object
from interlock.serving.requests.create import read_request
from interlock.serving.requests.input_items import truncate
from interlock.serving.requests.limits import require_json_schema
from interlock.serving.requests.runtime import Yielder

TEXT = {"type": "message", "role": "user", "content": "Hi"}


def names(kind):
    return {field.encode_name for field in structs.fields(kind)}


@for_each("kind", limits.READ, ids=lambda kind: kind.__name__)
def test_the_table_has_only_fields_of_its_types(kind):
    assert limits.READ[kind].keys() - names(kind) == set()


def test_the_shapes_of_items_have_the_fields_that_are_read():
    read = {name: limits.shape_of(kind).__struct_fields__ for name, kind in limits.ITEMS.items()}
    assert read["function_call"] == ("id", "status", "call_id", "name", "namespace", "async", "arguments")
    assert read["mcp_call"] == ("id", "status", "server_label", "name")
    assert read["compaction_trigger"] == ("id",)


@pytest.mark.parametrize(
    "item",
    [
        {"type": "web_search_call", "status": "dreaming", "action": {"type": "teleport"}, "queries": 5},
        {"type": "message", "role": "assistant", "phase": "encore", "content": [], "agent": 7},
        {"type": "reasoning", "summary": [{"type": "text", "text": "a"}], "content": None},
        {"type": "image_generation_call", "action": "generate", "result": None},
        {"type": "mcp_list_tools", "tools": [{"name": "a", "input_schema": {}}]},
    ],
)
def test_unchecked_fields_of_items_are_passed_through(item):
    assert read_request({"model": "m", "input": [item]}).input == (item,)


@for_each(
    ("members", "message"),
    [
        (
            {"input": [{**TEXT, "role": "tool"}]},
            "Invalid value: 'tool'. Supported values are: 'user', 'assistant', 'system', and 'developer'.",
        ),
        ({"input": [{**TEXT, "content": [{"type": None}]}]}, "Missing required parameter: 'input[0].content[0].type'."),
        (
            {"tools": [{"type": "function", "name": "a b"}]},
            (
                "Invalid 'tools[0].name': string does not match pattern. "
                "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
            ),
        ),
        (
            {"user": "u" * 4097},
            (
                "Invalid 'user': string too long. "
                "Expected a string with maximum length 4096, but got a string with length 4097 instead."
            ),
        ),
        (
            {"include": ["a"] * 1001},
            (
                "Invalid 'include': array too long. "
                "Expected an array with maximum length 1000, but got an array with length 1001 instead."
            ),
        ),
        (
            {"metadata": {str(index): "" for index in range(17)}},
            "Invalid 'metadata': too many properties. Expected an object with at most 16 properties, but got 17.",
        ),
        (
            {"temperature": 10**400},
            "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got a longer number instead.",
        ),
        ({"top_logprobs": -1}, "Invalid 'top_logprobs': integer below minimum value. Expected a value >= 0, but got -1 instead."),
        ({"truncation": 1}, "Invalid type for 'truncation': expected a string, but got an integer instead."),
        ({"moderation": {"model": 5}}, "Invalid type for 'moderation.model': expected a string, but got an integer instead."),
        (
            {"tools": [{"type": "namespace", "name": "n", "tools": ["f"]}]},
            "Invalid type for 'tools[0].tools[0]': expected an object, but got a string instead.",
        ),
    ],
)
def test_error_messages_have_the_wording_of_the_api(members, message):
    with pytest.raises(ApiError) as refused:
        read_request({"model": "m", "input": "Hi", **members})
    assert refused.value.message == message


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"properties": {"a": {"type": ["string", "null"], "exclusiveMinimum": True}}, "items": [{}, False], "x-more": 1},
    ],
)
def test_a_schema_of_any_draft_is_valid(schema):
    require_json_schema("schema", schema)


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        (5, "$ must be a boolean or an object"),
        ({"properties": {"a": {"minLength": -1}}}, "$.properties.a.minLength must be at least 0"),
        ({"anyOf": [{"multipleOf": 0}]}, "$.anyOf[0].multipleOf must be above 0"),
        ({"not": {"required": [1]}}, "$.not.required[0] must be a string"),
        ({"x-more": 1, "minimum": None}, "$.minimum must be a number"),
    ],
)
def test_an_error_about_a_schema_names_its_invalid_keyword(schema, error):
    with pytest.raises(ApiError) as refused:
        require_json_schema("schema", schema)
    assert refused.value.message == f"Invalid schema for 'schema': {error}."


# The bytes of a body: their values are counted before they are parsed, and lone surrogates are replaced


TEXTS = st.text(alphabet='a"\\,[{]:é', max_size=6)
JSON = st.recursive(
    TEXTS | st.integers(0, 9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def values_of(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(values_of, inner))


def empties_of(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else (not inner) + sum(map(empties_of, inner))


@given(JSON, st.integers(1, 9))
def test_the_values_of_a_body_are_counted_for_any_chunk_size(value, size) -> None:
    body, budget = orjson.dumps(value), JsonBudget()
    for start in range(0, len(body), size):
        budget.count(body[start : start + size])
    # The bracket that opens an empty array or object counts as the value that is not in it.
    assert budget.values == values_of(value) + empties_of(value)


class Turns(Yielder):
    """Counts its checkpoints, at which other tasks run."""

    count = 0

    async def checkpoint(self):
        self.count += 1


ESCAPES = [r"\ud800", r"\udc00", r"\uD83D\uDe00", r"\\ud800", r"\\\ud800", r"\n", r"\"", r"\u00e9", "é", "x", "€"]


def read(body):
    return asyncio.run(read_object(body, Yielder()))


def decode_with_python(body):
    text = json.loads(body.decode())["a"]
    return {"a": text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")}


@given(st.lists(st.sampled_from(ESCAPES)), st.integers(0, 40))
def test_lone_surrogates_are_replaced_at_any_chunk_boundary(texts, before):
    text = "x" * (2**14 - before) + "".join(texts) + r"\ud800"
    body = b'{"a":"' + text.encode() + b'"}'
    assert read(body) == decode_with_python(body)


def test_lone_surrogates_in_names_are_replaced():
    assert read(rb'{"\ud800": [{"\udc00b": null}]}') == {"\ufffd": [{"\ufffdb": None}]}


@pytest.mark.parametrize("escape", [rb"\ud800", rb"\udc00", rb"\ud83d\ude00", rb"\n", "é".encode()])
def test_other_tasks_run_while_surrogates_are_replaced(escape):
    turns, repeated = Turns(), 2**18
    body = asyncio.run(read_object(b'{"a":"' + escape * repeated + rb'\ud800"}', turns))
    assert body == decode_with_python(b'{"a":"' + escape * repeated + rb'\ud800"}')
    assert turns.count > len(escape) * repeated // (12 * 2**14)


@pytest.mark.parametrize("body", [rb'{"a":"\ud8zz"}', rb'{"a":"\ud8"}', b'{"a":"\\', rb'{"a":"\x\ud800"}', rb'{"a":"\ud800\u"}'])
def test_an_invalid_escape_is_not_replaced(body):
    with pytest.raises(ApiError, match=r"could not be read as JSON: .* \(line 1, column \d+\)"):
        read(body)


def test_a_large_body_with_lone_surrogates_is_refused():
    with pytest.raises(ApiError, match="may have at most 4194304 bytes"):
        read(b'{"a":"' + rb"\ud800" * 2**20 + b'"}')


def test_a_byte_order_mark_is_skipped():
    assert read(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


# Truncation drops whole turns, the oldest first, and never a call without its output


def user(text):
    return {"type": "message", "role": "user", "content": text}


def assistant(text):
    return {"type": "message", "role": "assistant", "content": text}


def call(name):
    return {"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"}


def output(name):
    return {"type": "function_call_output", "call_id": name, "output": "1"}


BRIEF = {"type": "message", "role": "developer", "content": "Be brief."}
FIRST = [user("one"), assistant("1")]
SECOND = [user("two"), call("a"), output("a"), assistant("2")]
LAST = [user("three")]


def fitted(items, room):
    """Truncate items to those that have room; return the rest and the number of checks."""
    lengths = []

    async def fits(some):
        lengths.append(len(some))
        return len(some) <= room

    return list(asyncio.run(truncate(items, fits))), len(lengths)


def test_a_conversation_that_fits_is_not_truncated() -> None:
    assert fitted([*FIRST, *LAST], 3) == ([*FIRST, *LAST], 1)


def test_the_oldest_turns_are_dropped_first_and_instructions_are_kept() -> None:
    items = [BRIEF, *FIRST, *SECOND, *LAST]
    assert fitted(items, 7)[0] == [BRIEF, *SECOND, *LAST]
    assert fitted(items, 5)[0] == [BRIEF, *LAST]


def test_nothing_is_dropped_if_the_last_turn_does_not_fit() -> None:
    assert fitted([*FIRST, *LAST], 0)[0] == [*FIRST, *LAST]
    assert fitted([assistant("alone"), assistant("twice")], 1)[0] == [assistant("alone"), assistant("twice")]


def test_an_output_keeps_the_turn_of_its_call() -> None:
    across = [*FIRST, user("two"), call("a"), user("wait"), output("a"), *LAST]
    assert fitted(across, 4)[0] == LAST
    assert fitted(across, 5)[0] == [user("two"), call("a"), user("wait"), output("a"), *LAST]


def test_an_unanswered_call_is_dropped_with_its_turn() -> None:
    assert fitted([user("one"), call("a"), user("two"), *LAST], 2)[0] == [user("two"), *LAST]


def test_an_approval_keeps_the_turn_of_its_request() -> None:
    question = {"type": "mcp_approval_request", "id": "mcpr_1"}
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    items = [user("one"), question, user("two"), answer, *LAST]
    assert fitted(items, 4)[0] == LAST


def test_truncation_of_many_turns_needs_few_checks() -> None:
    items = [user(str(number)) for number in range(1000)]
    remaining, calls = fitted(items, 17)
    assert remaining == items[-17:]
    assert calls < 13


ITEMS = st.one_of(st.builds(user, st.text(max_size=3)), *(st.builds(make, st.sampled_from("abc")) for make in (call, output)))


@given(st.lists(ITEMS, max_size=12), st.integers(0, 12))
def test_truncation_keeps_a_suffix_and_every_call_of_its_outputs(items, room) -> None:
    remaining, _ = fitted(items, room)
    assert items[len(items) - len(remaining) :] == remaining
    for place, item in enumerate(remaining):
        if item["type"] == "function_call_output":
            gone = items[: len(items) - len(remaining)]
            here = call(item["call_id"]) in remaining[:place]
            assert here or call(item["call_id"]) not in gone


# API keys are held as digests; each of several keys has its own tenant


def test_with_one_key_or_none_there_is_one_tenant() -> None:
    assert [Keys().tenant(""), Keys().tenant("Bearer anything")] == ["", ""]
    assert [
        Keys.of(["k", "k"]).tenant(header) for header in ("Bearer k", "bearer \tk ", "Bearer \xa0k", "Bearer j", "Basic k", "")
    ] == [*("", "", None, None, None, None)]


def test_each_of_several_keys_has_a_tenant_that_is_the_same_in_every_process() -> None:
    keys = Keys.of(["one", "two"])
    tenants = [keys.tenant(f"Bearer {key}") for key in ("one", "two", "three")]
    assert tenants == ["c6f5e8c596d8e304", "031f42d81e585431", None]
    assert Keys.of(["three", "two"]).tenant("Bearer two") == tenants[1]


def test_keys_may_share_one_tenant() -> None:
    assert [Keys.of(["one", "two"], shared=True).tenant(f"Bearer {key}") for key in ("one", "two", "three")] == ["", "", None]


def test_the_encoding_of_a_key_does_not_change_its_tenant() -> None:
    keys = Keys.of(["s\xe9same", "other"])
    sent = "s\xe9same".encode().decode("latin-1")
    assert keys.tenant("Bearer s\xe9same") == keys.tenant(f"Bearer {sent}") != keys.tenant("Bearer other")


def test_each_passed_key_has_its_own_tenant() -> None:
    keys = Keys.of([], passed=True)
    tenants = [keys.tenant(header) for header in ("Bearer one", "bearer  one ", "Bearer two", "Basic one", "Bearer ", "")]
    assert tenants == ["c6f5e8c596d8e304", "c6f5e8c596d8e304", "031f42d81e585431", keys.tenant_of_key("Basic one"), "", ""]
    assert len({*tenants}) == 4


def test_passed_keys_have_one_tenant_if_shared_or_if_the_server_has_a_key() -> None:
    assert [Keys.of([], passed=True, shared=True), Keys.of(["k"], passed=True)] == [Keys(), Keys.of(["k"])]


def test_keys_are_held_as_digests_and_not_shown() -> None:
    assert "secret" not in repr(Keys.of(["secret", "another"]))
    assert b"secret" not in b"".join(digest for digest, _ in Keys.of(["secret"]).tenants)


def test_a_key_with_surrounding_white_space_is_refused() -> None:
    with pytest.raises(ValueError, match="begins or ends with white space"):
        Keys.of(["right", " wrong"])


def tenants(keys, *names):
    return [keys.tenant(f"Bearer {name}") for name in names]


def test_a_key_file_has_keys_and_tenants_and_can_be_reloaded(tmp_path, caplog) -> None:
    file = tmp_path / "keys"
    file.write_text("# one key for all\n\nold\n")
    keys = Keys.of_file(file)
    assert (keys.count, tenants(keys, "old", "new", "a")) == (1, ["", None, None])
    file.write_text("old\nnew\nacme a\nacme  b\nother\tc\n")
    with caplog.at_level(logging.INFO, "interlock"):
        assert keys.reload()
        assert keys.reload(logging.DEBUG)
    assert (keys.count, tenants(keys, "old", "new", "a", "b", "c")) == (5, ["", "", "acme", "acme", "other"])
    assert caplog.messages == [f"{file}: API keys: 5, tenants: 3"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("# none\n", "the file has no key"),
        ("acme sesame open\n", "line 1 is not a key, or the name of a tenant and its key"),
        ("a\nac/me sesame\n", "line 2 is not a key, or the name of a tenant and its key"),
        ("sesa\x01me\n", "line 1: the key has control characters, which a header cannot contain"),
        ("acme sesame\nother sesame\n", "line 2 has the key of another tenant"),
    ],
)
def test_an_invalid_key_file_changes_no_keys(text, error, tmp_path, caplog) -> None:
    file = tmp_path / "keys"
    file.write_text("acme a\n")
    keys = Keys.of_file(file)
    file.write_text(text)
    assert not keys.reload()
    assert (tenants(keys, "a"), caplog.messages) == (["acme"], [f"the API keys stay as they are: {file}: {error}"])
    assert "sesame" not in caplog.text
    with pytest.raises(ValueError, match=error):
        Keys.of_file(file)
