"""The faults behind the errors of recorded streams, and the turns in which the `openai` package raises because of each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import httpx
import openai
from attrs import field, frozen

from interlock.judges.dialects import AnyJudge


@frozen
class Fault:
    """What a server does wrong.

    Args:
        says: A sentence about it.
        pattern: Finds its symptoms, among those of `symptoms`.
    """

    says: str
    pattern: str


@frozen
class Counts:
    """How often a fault was seen.

    Args:
        errors: How many errors it makes, by rule.
        turns: How many turns have one.
        raises: In how many turns the `openai` package raises because of it.
    """

    errors: Counter[str] = field(factory=Counter[str])
    turns: int = 0
    raises: int = 0


OTHERS: Final = Fault("others", "")
FAULTS: Final = (
    Fault(
        "When a call of a function is done, it has two fields of the event, `output_index` and `sequence_number`; in the last "
        "event, it has neither.",
        r"function_call .*'(output_index|sequence_number)'",
    ),
    Fault(
        "White space beside a call or before a text is only in the stream, as an item or at the beginning of the text.",
        r'^R19: `output` is `\[.*"function_call"\]`, but|^R19: `output\[\d+\].* is `"(?:\\n)+(.*)"`, but `"\1"`',
    ),
    Fault("Text after a call is only in the stream.", r'^R19: `output` is `\[.*"message"\]`, but'),
    Fault("The whole answer has another outcome than the stream, which has another error too.", "^R19: another outcome$"),
    Fault(
        "The last event is `response.completed`, and its response is `incomplete`.",
        r"^R3: .* the response has the status 'incomplete'",
    ),
    Fault(
        "A tool's call is sent as an `mcp_call`, which completes without an output; then a web search takes its index.",
        r"^R11: mcp_call |^R7: web_search_call .* already belongs to mcp_|^openai: Duplicate response output index",
    ),
    Fault(
        "The stream ends without a terminal event, so it has no response that could equal the whole answer.",
        r"without a terminal event|^R19: no outcome$|^openai: Didn't receive a `response.completed` event",
    ),
    Fault(
        "The last event has an item that was never sent, or lacks one that was.",
        r"^R6: |^R13: .* the response has \d+ items?|^R13: message .*'id'",
    ),
    Fault("An item is `completed` when it is done, and `incomplete` in the last event.", r"^R13: .*: 'status'$"),
    Fault("A call of the code interpreter is reasoning in the last event.", r"^R13: code_interpreter_call .*'summary'"),
)
"""The first whose pattern is found in a symptom is its fault."""


def symptoms(stream: bytes, whole: str = "") -> Iterator[tuple[str, int]]:
    """Yield the errors of a stream, each with its number: the rule, the kind of item and the message, or what `openai` raises.

    `whole` is the sentence of R19, if the whole answer is another one.
    """
    judge = AnyJudge(api="responses")
    judge.content_type("text/event-stream")
    judge.feed(stream)
    for finding, times in judge.end().findings.items():
        if finding.severity == "error":
            yield f"{finding.rule}: {finding.kind} {finding.message}", times
    if whole:
        yield whole, 1
    if raised := _raised(stream):
        yield f"openai: {raised}", 1


def _raised(stream: bytes) -> str:
    """Return what the `openai` package raises as it reads a stream; empty if it does not."""
    answer = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream)
    with (
        httpx.Client(transport=httpx.MockTransport(lambda _: answer)) as http,
        openai.OpenAI(api_key="none", base_url="http://localhost/v1", http_client=http, max_retries=0) as client,
    ):
        try:
            with client.responses.stream(model="m", input="") as events:
                events.get_final_response()
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError, openai.OpenAIError) as error:
            return str(error) or type(error).__name__
    return ""


def count_faults(streams: Iterable[tuple[bytes, str]]) -> dict[Fault, Counts]:
    """Count the faults of streams, each with the sentence of R19 or an empty one; the fault of most turns first."""
    errors: dict[Fault, Counter[str]] = {}
    turns, raises = Counter[Fault](), Counter[Fault]()
    for stream, whole in streams:
        seen = set[Fault]()
        for symptom, times in symptoms(stream, whole):
            fault = next((each for each in FAULTS if re.search(each.pattern, symptom)), OTHERS)
            source = symptom.partition(":")[0]
            if source == "openai":
                raises[fault] += 1
            else:
                errors.setdefault(fault, Counter())[source] += times
                seen.add(fault)
        turns.update(seen)
    faults = sorted({*errors, *raises}, key=lambda fault: (fault is OTHERS, -turns[fault], fault.says))
    return {fault: Counts(errors.get(fault, Counter()), turns[fault], raises[fault]) for fault in faults}
