import pytest
from corpus_streams.legal import LEGAL, response
from for_each import for_each
from open_responses_oracle import check_open_responses

from interlock.events.dialects import DIALECTS, OPEN_RESPONSES, OPENAI, from_open_responses

ERROR = {"type": "error", "sequence_number": 3, "code": None, "message": "it broke", "param": None}


@for_each("name", LEGAL)
def test_a_legal_stream_is_legal_in_open_responses(name):
    assert check_open_responses([OPEN_RESPONSES.convert(body) for body in LEGAL[name]]) == []


@for_each("name", LEGAL)
def test_converting_to_open_responses_and_back_keeps_the_events(name):
    for body in LEGAL[name]:
        back = from_open_responses(OPEN_RESPONSES.convert(body))
        kept = dict(body)
        if "response" in body:
            assert kept.pop("response").items() <= back.pop("response").items()
        assert back == kept


@pytest.mark.parametrize("end", ["delta", "done"])
def test_reasoning_text_events_are_renamed_in_open_responses(end):
    body = {"type": f"response.reasoning_text.{end}", "item_id": "rs_1"}
    assert OPEN_RESPONSES.convert(body) == {"type": f"response.reasoning.{end}", "item_id": "rs_1"}
    assert from_open_responses(OPEN_RESPONSES.convert(body)) == body
    assert OPEN_RESPONSES.event_name(body["type"]) == f"response.reasoning.{end}"


def test_other_events_keep_their_names():
    assert OPEN_RESPONSES.event_name("response.output_text.delta") == "response.output_text.delta"
    assert OPENAI.event_name("response.reasoning_text.delta") == "response.reasoning_text.delta"


def test_open_responses_nests_the_fields_of_an_error():
    nested = {"type": "server_error", "code": None, "message": "it broke", "param": None}
    assert OPEN_RESPONSES.convert(ERROR) == {"type": "error", "sequence_number": 3, "error": nested}
    assert from_open_responses(OPEN_RESPONSES.convert(ERROR)) == ERROR
    assert OPEN_RESPONSES.convert({**ERROR, "code": "rate_limit_exceeded"})["error"]["type"] == "rate_limit_exceeded"


def test_an_event_in_openais_dialect_is_returned_unchanged():
    assert from_open_responses(ERROR) == ERROR
    assert from_open_responses(LEGAL["reasoning"][4]) == LEGAL["reasoning"][4]


def test_nulls_that_open_responses_refuses_are_left_out():
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": None}
    assert OPEN_RESPONSES.convert({"type": "response.output_item.added", "item": item}) == {
        "type": "response.output_item.added",
        "item": {"type": "reasoning", "id": "rs_1", "summary": []},
    }
    content = [{"type": "output_text", "text": "", "annotations": [], "logprobs": None}]
    assert OPEN_RESPONSES.convert({"item": {"type": "message", "phase": None, "content": content}, "type": "x"}) == {
        "type": "x",
        "item": {"type": "message", "content": [{"type": "output_text", "text": "", "annotations": []}]},
    }


def test_nulls_that_open_responses_allows_are_kept():
    item = {"type": "code_interpreter_call", "outputs": None}
    assert OPEN_RESPONSES.convert({"type": "x", "item": item}) == {"type": "x", "item": item}


def test_a_response_has_every_field_that_open_responses_requires():
    tool = {"type": "function", "name": "f"}
    body = response("queued", [], temperature=None, top_p=0.5, reasoning={"effort": "low"}, tools=[tool])
    body["text"] = {"verbosity": None}
    assert OPEN_RESPONSES.convert(body) == {
        **OPEN_RESPONSES.required[".response"],
        **response("queued", []),
        "temperature": 1.0,
        "top_p": 0.5,
        "reasoning": {"effort": "low", "summary": None},
        "tools": [{**tool, "description": None, "parameters": None, "strict": None}],
        "text": {"format": {"type": "text"}},
    }


def test_openais_dialect_changes_nothing():
    assert OPENAI.convert(ERROR) == ERROR
    assert OPENAI.convert(response("queued", [], temperature=None)) == response("queued", [], temperature=None)


def test_each_dialect_has_its_name():
    assert DIALECTS == {"openai": OPENAI, "open_responses": OPEN_RESPONSES}
