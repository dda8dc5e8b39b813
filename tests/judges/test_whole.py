"""The answer that is not streamed must be the last response of the stream (R19)."""

import json
from pathlib import Path

import pytest

from interlock.judges import AnyJudge
from interlock.judges.judging import judge
from interlock.judges.whole import compare_whole

CALLS = (Path(__file__).parents[1] / "corpus" / "legal" / "function-call.sse").read_bytes()


def response(*output, **fields):
    return {"object": "response", "status": "completed", "output": [*output], **fields}


def message(text, **fields):
    return {"type": "message", "content": [{"type": "output_text", "text": text}], **fields}


def call(arguments):
    return {"type": "function_call", "name": "f", "arguments": arguments}


@pytest.mark.parametrize(
    ("streamed", "whole"),
    [
        (response(), response()),
        (response(message("Hi", id="msg_1")), response(message("Hi", id="msg_2"))),
        (response(message("Hi", phase=None)), response(message("Hi", phase="final_answer"))),
        (response(message("Hi")), response(message("Hi", status="completed"))),
        (response(call('{"a":1}')), response(call('{"a": 1}'))),
        (response(call("no JSON")), response(call("no JSON"))),
        (response(model="a"), response(model="b")),
    ],
)
def test_what_differs_between_two_equal_answers_does_not_count(streamed, whole) -> None:
    assert (compare_whole(streamed, whole), compare_whole(whole, streamed)) == ("", "")


@pytest.mark.parametrize(
    ("streamed", "whole", "difference"),
    [
        (response(), {"error": {"message": "no"}}, "the whole answer is an error"),
        (
            response(message("\n"), call("{}")),
            response(call("{}")),
            '`output` is `["message", "function_call"]`, but `["function_call"]` in the whole answer',
        ),
        (
            response(message("Hi")),
            response(message("Ho")),
            '`output[0].content[0].text` is `"Hi"`, but `"Ho"` in the whole answer',
        ),
        (
            response(call('{"a":1}')),
            response(call('{"a":2}')),
            r'`output[0].arguments` is `"{\"a\":1}"`, but `"{\"a\":2}"` in the whole answer',
        ),
        (
            response(call("a ")),
            response(call("a")),
            '`output[0].arguments` is `"a "`, but `"a"` in the whole answer',
        ),
        (
            response(incomplete_details={"reason": "max_output_tokens"}),
            response(incomplete_details={"reason": "content_filter"}),
            '`incomplete_details.reason` is `"max_output_tokens"`, but `"content_filter"` in the whole answer',
        ),
        (
            response(message("a" * 100)),
            response(message("")),
            f'`output[0].content[0].text` is `"{"a" * 79} …`, but `""` in the whole answer',
        ),
        (
            response(status="incomplete"),
            response(),
            '`status` is `"incomplete"`, but `"completed"` in the whole answer',
        ),
        (
            response(message("", logprobs=[{"token": "a"}])),
            response(message("", logprobs=[{"token": "a"}, {"token": "b"}])),
            "`output[0].logprobs` is a list of 1, but a list of 2 in the whole answer",
        ),
        (
            response(message("", refusal=[1])),
            response(message("", refusal=["1", None])),
            '`output[0].refusal` is `[1]`, but `["1", null]` in the whole answer',
        ),
    ],
)
def test_the_first_difference_of_two_answers_is_found(streamed, whole, difference) -> None:
    assert compare_whole(streamed, whole) == difference


def test_a_judge_compares_the_last_response_of_the_stream_with_the_whole_answer() -> None:
    last = json.loads(CALLS.partition(b"event: response.completed\ndata: ")[2].partition(b"\n")[0])["response"]
    assert judge(CALLS, whole=last).is_clean
    verdict = judge(CALLS, whole={**last, "output": []})
    assert [(one.rule, one.severity, one.event, one.received) for one in verdict.findings] == [
        ("R19", "error", verdict.events, "")
    ]
    assert (verdict.rules, verdict.end_findings) == ({"R19": 1}, (*verdict.findings,))
    cut = AnyJudge(whole=last)
    cut.feed(CALLS.partition(b"event: response.completed")[0])
    assert cut.end().rules == {"R3": 2}
