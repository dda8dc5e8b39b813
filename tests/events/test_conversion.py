import runpy
import sys

import pytest
from corpus_streams.broken import BROKEN
from corpus_streams.legal import LEGAL, USAGE, message, response, text_part
from for_each import for_each
from openai.types.responses import ResponseTextDeltaEvent
from pydantic import ValidationError
from stray_fields import stray_fields

from interlock.events import conversion
from interlock.events.conversion import (
    EVENT_MODELS,
    Release,
    UnknownEventError,
    response_to_openai,
    to_openai,
)
from interlock.events.dialects import OPEN_RESPONSES

OLD = Release(mcp_error_is_text=True, web_search_can_be_incomplete=False)
NEW = Release(mcp_error_is_text=False, web_search_can_be_incomplete=True)
EVENTS = [pytest.param(body, id=f"{name}-{n}") for name, bodies in LEGAL.items() for n, body in enumerate(bodies)]


@for_each("body", EVENTS)
def test_a_legal_event_converts_to_a_model_without_stray_fields(body):
    assert to_openai(body).type == body["type"]
    assert stray_fields(body) == []


@for_each("body", EVENTS)
def test_an_event_of_open_responses_converts_to_the_same_model(body):
    model, other = to_openai(body), to_openai(OPEN_RESPONSES.convert(body))
    if "response" in body:  # which the other dialect gives more fields
        assert other.response.output == model.response.output
    else:
        assert other == model


def test_the_model_has_the_values_of_the_event():
    delta = LEGAL["message"][4]
    assert to_openai(delta) == ResponseTextDeltaEvent(**delta)


def test_event_models_has_every_member_of_the_union():
    assert EVENT_MODELS["response.output_text.delta"] is ResponseTextDeltaEvent
    assert len(EVENT_MODELS) >= 53


def test_the_error_for_an_unknown_event_names_it():
    with pytest.raises(UnknownEventError, match=r"no event 'response\.poem'"):
        to_openai({"type": "response.poem"})


@pytest.mark.parametrize("value", ["0", None, 0.5, [0]])
def test_values_of_another_type_are_not_coerced(value):
    with pytest.raises(ValidationError):
        to_openai({**LEGAL["message"][4], "content_index": value})


@pytest.mark.parametrize(
    ("name", "strays"),
    [
        ("R14-event-with-a-stray-field", ["text"]),
        ("R14-item-with-sequence-number", ["item.sequence_number"]),
        ("R14-item-with-output-index", ["item.output_index", "response.output[0].output_index"]),
        ("R14-part-with-a-stray-field", ["part.content_index"]),
        ("R14-response-with-sequence-number", ["response.sequence_number"]),
    ],
)
def test_stray_fields_are_found_at_any_depth(name, strays):
    assert [stray for body in BROKEN[name] for stray in stray_fields(body)] == strays


def test_a_stray_field_in_a_part_of_an_item_is_found():
    done = message(0, *text_part(0, "hi"))[-1]
    done["item"]["content"][0]["index"] = 0
    assert stray_fields({**done, "sequence_number": 0}) == ["item.content[0].index"]


def test_a_response_converts_to_the_sdk_model():
    body = response("completed", [message(0, *text_part(0, "hi"))[-1]["item"]], usage=USAGE)
    model = response_to_openai(body)
    assert (model.status, model.output_text, model.usage.total_tokens) == ("completed", "hi", 18)


def test_an_invalid_response_is_refused():
    with pytest.raises(ValidationError):
        response_to_openai({"id": "resp_1"})


def test_the_error_of_an_mcp_call_is_text_for_old_sdk_releases():
    item = {"type": "mcp_call", "error": {"type": "x", "content": [{"type": "text", "text": "a"}, {}, {"text": "b"}]}}
    assert OLD.adapt({"item": item}) == {"item": {"type": "mcp_call", "error": "a\nb"}}
    assert NEW.adapt({"item": item}) == {"item": item}


@pytest.mark.parametrize(
    ("error", "text"),
    [({"type": "mcp_protocol_error", "message": "no"}, "no"), ({"type": "é"}, '{"type": "é"}'), (None, None), ("t", "t")],
)
def test_an_mcp_error_without_content_is_text_for_old_sdk_releases(error, text):
    item = {"type": "mcp_call", "error": error}
    assert OLD.adapt({"item": item}) == {"item": {"type": "mcp_call", "error": text}}


def test_an_incomplete_web_search_has_the_status_failed_for_old_sdk_releases():
    item = {"type": "web_search_call", "status": "incomplete"}
    final = {"object": "response", "output": [item]}
    assert OLD.adapt({"response": final})["response"]["output"] == [{**item, "status": "failed"}]
    assert NEW.adapt({"response": final})["response"]["output"] == [item]


def test_fields_that_old_sdk_releases_require_are_added():
    done = {"type": "response.function_call_arguments.done"}
    assert NEW.adapt(done) == {**done, "name": ""}
    assert NEW.adapt({**done, "name": "f"}) == {**done, "name": "f"}
    usage = {"input_tokens_details": {"cached_tokens": 1}}
    supplied = {"usage": {"input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0}}}
    assert NEW.adapt({"usage": usage}) == supplied
    assert NEW.adapt({"usage": {}}) == {"usage": {}}


def test_converting_does_not_change_the_argument():
    item = {"type": "web_search_call", "status": "incomplete"}
    OLD.adapt({"item": item})
    assert item == {"type": "web_search_call", "status": "incomplete"}


def test_the_import_error_without_the_sdk_names_the_package_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs the OpenAI SDK: pip install openai$"):
        runpy.run_path(conversion.__file__)
