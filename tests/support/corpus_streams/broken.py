"""Broken streams: legal ones with one fault each, named after the broken rule and the fault.

`BROKEN` maps a name to the bodies of a stream, `BROKEN_FRAMES` to the bytes of one whose bodies are legal and whose framing
(R5) is not. A stream breaks the rule of its name, and may break others as a consequence.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from corpus_streams.legal import (
    CUT,
    FAILED,
    LEGAL,
    USAGE,
    framed,
    function_call,
    item,
    message,
    reasoning,
    reasoning_part,
    stream,
    summary_part,
    text_part,
    web_search_call,
)

if TYPE_CHECKING:
    from corpus_streams.legal import Body


def numbered(bodies: list[Body]) -> list[Body]:
    """Number the events again, so that the stream has no other fault."""
    return [{**body, "sequence_number": number} for number, body in enumerate(bodies)]


def dropped(name: str, *places: int) -> list[Body]:
    """Leave events out of a legal stream; a negative place counts from the end."""
    places_to_drop = {place % len(LEGAL[name]) for place in places}
    return numbered([body for place, body in enumerate(LEGAL[name]) if place not in places_to_drop])


def doubled(name: str, place: int) -> list[Body]:
    """Send an event twice."""
    bodies = list(LEGAL[name])
    return numbered([*bodies[: place + 1], *bodies[place:]])


def moved(name: str, place: int, to: int) -> list[Body]:
    """Send an event at another place."""
    bodies = list(LEGAL[name])
    bodies.insert(to, bodies.pop(place))
    return numbered(bodies)


def edited(name: str, place: int, path: str, value: Any) -> list[Body]:
    """Change a value; where the same object is sent again later (a part, an item), it is changed there too.

    Args:
        name: A legal stream.
        place: An event of it.
        path: The way to the value, with dots.
        value: The value, or `...` to take the field away.
    """
    bodies = copy.deepcopy(LEGAL[name])
    *way, last = path.split(".")
    target: Any = bodies[place]
    for step in way:
        target = target[int(step) if step.isdigit() else step]
    if value is ...:
        del target[last]
    else:
        target[int(last) if last.isdigit() else last] = value
    return bodies


def ended(name: str, **fields: Any) -> list[Body]:
    """Change the final response alone; a field that becomes `...` is removed."""
    bodies = list(LEGAL[name])
    response = {**bodies[-1]["response"], **fields}
    bodies[-1] = {**bodies[-1], "response": {name: value for name, value in response.items() if value is not ...}}
    return bodies


def with_item(kind: str, **fields: Any) -> list[Body]:
    """Return a stream whose only item has no events between `added` and `done`."""
    return stream(item(0, {"type": kind, **fields}, {}))


_TEXT = text_part(0, "hi")
_FIRST_CUT = [*function_call(0, "{", status="incomplete"), *message(1, *_TEXT)]
_TWO = [*message(0, *_TEXT), *message(1, *_TEXT)]
_ERROR = {"type": "error", "code": "server_error", "message": "it broke", "param": None}
_BLANK = [*message(0, *text_part(0, " \n")), *message(1, *_TEXT)]

BROKEN: dict[str, list[Body]] = {
    "R1-no-created": dropped("message", 0),
    "R1-no-in-progress": dropped("message", 1),
    "R1-opening-twice": doubled("message", 1),
    "R1-opening-late": moved("message", 1, 3),
    "R1-queued-after-in-progress": moved("queued", 1, 2),
    "R1-created-is-completed": edited("message", 0, "response.status", "completed"),
    "R2-skips": edited("message", 4, "sequence_number", 99),
    "R2-starts-at-one": [{**body, "sequence_number": place + 1} for place, body in enumerate(LEGAL["message"])],
    "R2-missing": edited("message", 4, "sequence_number", ...),
    "R2-on-error-missing": edited("fault-said", 9, "sequence_number", ...),
    "R3-no-end": dropped("message", -1),
    "R3-two-ends": doubled("message", len(LEGAL["message"]) - 1),
    "R3-something-after-the-end": moved("message", 4, len(LEGAL["message"]) - 1),
    "R3-name-disagrees-with-status": edited("message", -1, "type", "response.incomplete"),
    "R4-no-error-code": ended("fault", error={"code": "", "message": "it broke"}),
    "R4-no-error": ended("fault", error=None),
    "R4-item-left-open": dropped("fault", -2),
    "R4-error-but-completed": ended("message", error={"code": "server_error", "message": "it broke"}),
    "R4-error-event-but-completed": numbered([*LEGAL["message"][:-1], _ERROR, LEGAL["message"][-1]]),
    "R4-item-after-error-event": stream([_ERROR, *message(0, *_TEXT)], **FAILED),
    "R4a-before-created": numbered([{"type": "keepalive"}, *LEGAL["message"]]),
    "R6-starts-at-one": stream(message(1, *_TEXT)),
    "R6-skips": stream([*message(0, *_TEXT), *message(2, *_TEXT)]),
    "R7-another-output-index": edited("reasoning", -3, "output_index", 0),
    "R7-no-added": dropped("message", 2),
    "R7-no-done": dropped("message", -2),
    "R7-added-twice": doubled("message", 2),
    "R7-done-twice": doubled("message", len(LEGAL["message"]) - 2),
    "R7-delta-before-added": moved("message", 4, 2),
    "R7-delta-after-done": moved("message", 4, len(LEGAL["message"]) - 2),
    "R7-another-item-id": edited("message", 4, "item_id", "msg_x"),
    "R7-another-id-in-done": edited("message", -2, "item.id", "msg_x"),
    "R7-another-call-id-in-done": edited("function-call", 6, "item.call_id", "call_x"),
    "R7-another-name-in-done": edited("function-call", 6, "item.name", "g"),
    "R7-another-name-in-arguments-done": edited("function-call", 5, "name", "g"),
    "R7-another-response-id": ended("message", id="resp_2"),
    "R7-prefix-of-another-kind": stream(item(0, {**message(0)[0]["item"], "id": "rs_0"}, {}, *_TEXT)),
    "R7-call-id-without-prefix": edited("function-call", 2, "item.call_id", "x"),
    "R7-id-used-twice": stream([*message(0, *_TEXT), *({**b, "output_index": 1} for b in message(0, *_TEXT))]),
    "R8-content-index-skips": stream(message(0, *_TEXT, *text_part(2, "!"))),
    "R8-content-index-of-delta": edited("message", 4, "content_index", 1),
    "R8-summary-index-skips": stream(reasoning(0, *reasoning_part(0, "t"), *summary_part(1, "s"))),
    "R8-annotation-index": edited("message-annotated", 5, "annotation_index", 1),
    "R8-part-not-added": dropped("message", 3),
    "R8-part-not-done": dropped("message", -3),
    "R8-text-not-done": dropped("message", -4),
    "R8-two-parts-at-once": moved("message-parts", 7, 5),
    "R9-done-lacks-a-delta": edited("message", -4, "text", "Hello"),
    "R9-delta-lost": dropped("message", 5),
    "R9-part-differs": edited("message", -3, "part.text", "Hello"),
    "R9-item-differs": edited("message", -2, "item.content", [{"type": "output_text", "text": "", "annotations": []}]),
    "R9-part-begins-with-text": edited("message", 3, "part.text", "Hello"),
    "R9-part-changes-its-type": edited("message", 3, "part", {"type": "refusal", "refusal": ""}),
    "R9-item-begins-with-content": edited("message", 2, "item.content", [{"type": "refusal", "refusal": "no"}]),
    "R9-annotation-lost": edited("message-annotated", 5, "annotation", {"type": "file_path", "file_id": "f", "index": 0}),
    "R9-arguments-begin-with-text": edited("function-call", 2, "item.arguments", "{"),
    "R9-arguments-done-differ": edited("function-call", 5, "arguments", "{}"),
    "R9-arguments-of-item-differ": edited("function-call", 6, "item.arguments", "{}"),
    "R9-input-differs": edited("custom-tool-call", -2, "item.input", "any"),
    "R9-code-differs": edited("code", -2, "item.code", "1"),
    "R9-refusal-differs": edited("message-parts", 10, "refusal", "yes"),
    "R9-reasoning-differs": edited("reasoning", 6, "text", "think"),
    "R9-summary-differs": edited("reasoning-summaries", 9, "text", "t"),
    "R10-event-of-another-kind": edited("function-call", 3, "type", "response.mcp_call_arguments.delta"),
    "R10-no-arguments-done": dropped("function-call", 5),
    "R10-no-in-progress": dropped("code", 3),
    "R10-begins-completed": edited("function-call", 2, "item.status", "completed"),
    "R10-ends-in-progress": edited("function-call", 6, "item.status", "in_progress"),
    "R10-failed-but-completed": edited("code", -2, "item.status", "failed"),
    "R10-incomplete-but-ran": edited("web-search-failed", -2, "item.status", "incomplete"),
    "R10-two-items-at-once": stream([*_TWO[:4], *_TWO[6:], *_TWO[4:6]]),
    "R10-image-before-generating": moved("image", 5, 4),
    "R11-code-never-interpreted": dropped("code", 7),
    "R11-never-searched": dropped("web-search", 4),
    "R11-completed-before-searched": moved("file-search", 5, 4),
    "R11-arguments-end-after-the-call": moved("mcp-call", 6, 7),
    "R11-no-output": edited("mcp-call", -2, "item.output", None),
    "R11-no-error": edited("mcp-call-failed", -2, "item.error", None),
    "R11-cut-call-with-output": edited("mcp-call-cut", -2, "item.output", "r"),
    "R11-tools-of-a-failed-listing": edited("mcp-list-tools-failed", -2, "item.error", None),
    "R11-output-before-it-ran": edited("mcp-call", 2, "item.output", "r"),
    "R11-mcp-call-without-status-or-output": edited("mcp-call-without-status", -2, "item.output", ...),
    "R11-mcp-call-without-status-or-error": edited("mcp-call-failed-without-status", -2, "item.error", ...),
    "R12-response-completed": stream(message(0, *_TEXT, status="incomplete")),
    "R12-not-the-last-item": stream(_FIRST_CUT, **CUT),
    "R12-no-reason": ended("message-cut", incomplete_details=None),
    "R12-no-reason-after-a-whole-call": stream(function_call(0, "{}"), status="incomplete"),
    "R12-unknown-reason": ended("message-cut", incomplete_details={"reason": "tired"}),
    "R12-reason-but-completed": ended("message", incomplete_details={"reason": "max_output_tokens"}),
    "R13-output-lacks-an-item": ended("reasoning", output=LEGAL["reasoning"][-1]["response"]["output"][:1]),
    "R13-output-in-another-order": ended("reasoning", output=LEGAL["reasoning"][-1]["response"]["output"][::-1]),
    "R13-item-differs": ended("nothing", output=[function_call(0)[-1]["item"]]),
    "R13-no-usage": ended("message", usage=...),
    "R13-no-usage-details": ended("message", usage={**USAGE, "output_tokens_details": {}}),
    "R13-no-cached-tokens": ended("message", usage={**USAGE, "input_tokens_details": {}}),
    "R13-usage-does-not-add-up": ended("message", usage={**USAGE, "total_tokens": 19}),
    "R13-output-at-the-beginning": edited("message", 1, "response.output", [function_call(0)[-1]["item"]]),
    "R14-unknown-event": edited("message", 4, "type", "response.output_text.deltas"),
    "R14-event-without-type": edited("message", 4, "type", ...),
    "R14-event-field-missing": edited("message", 4, "delta", ...),
    "R14-event-field-of-wrong-type": edited("message", 4, "content_index", "0"),
    "R14-event-with-a-stray-field": edited("message", 4, "text", "Hello"),
    "R14-item-with-sequence-number": edited("function-call", 2, "item.sequence_number", -1),
    "R14-item-with-output-index": edited("function-call", 6, "item.output_index", 0),
    "R14-item-field-missing": edited("function-call", 2, "item.name", ...),
    "R14-item-is-null": edited("message", 2, "item", None),
    "R14-unknown-item": with_item("telepathy", id="t_0"),
    "R14-message-of-the-user": stream(item(0, {**message(0)[0]["item"], "role": "user"}, {}, *_TEXT)),
    "R14-null-where-the-schema-has-none": edited("function-call", 6, "item.namespace", None),
    "R14-unknown-part": edited("message", 3, "part", {"type": "poem", "text": ""}),
    "R14-part-with-a-stray-field": edited("message", 3, "part.content_index", 0),
    "R14-annotation-without-type": edited("message-annotated", 5, "annotation", {}),
    "R14-unknown-action": stream(web_search_call(0, {"type": "dance"})),
    "R14-response-with-sequence-number": ended("message", sequence_number=3),
    "R14-response-field-missing": edited("message", 0, "response.tools", ...),
    "R14-response-of-another-object": edited("message", 0, "response.object", "chat.completion"),
    "R14-response-of-unknown-status": edited("message", 0, "response.status", "dreaming"),
    "R14-usage-without-total": ended("message", usage={"input_tokens": 1}),
    "R15-no-logprobs-on-delta": edited("message", 4, "logprobs", ...),
    "R15-no-logprobs-on-done": edited("message", -4, "logprobs", ...),
    "R15-not-a-logprob": edited("message", 4, "logprobs", [{"token": "Hello"}]),
    "R15-tokens-are-not-the-text": edited("message-logprobs", 4, "logprobs.0.bytes", [120]),
    "R15-part-has-others": edited("message-logprobs", 7, "part.logprobs.0.logprob", -9.0),
    "R15-done-has-others": edited("message-logprobs", 6, "logprobs", []),
    "R18-blank-message": stream(_BLANK),
    "R18-empty-message": stream(message(0)),
    "R18-blank-reasoning": stream(reasoning(0, *reasoning_part(0, "\n"))),
    "R18-begins-with-white-space": stream(message(0, *text_part(0, "\n", "hi"))),
}

_GOOD = framed(LEGAL["message"])
BROKEN_FRAMES: dict[str, bytes] = {
    "R5-no-event-line": _GOOD.replace(b"event: response.output_text.done\n", b"", 1),
    "R5-event-is-another": _GOOD.replace(b"event: response.output_text.done", b"event: response.output_text.delta", 1),
    "R5-two-data-lines": _GOOD.replace(b'"response.created",', b'"response.created",\ndata: ', 1),
    "R5-crlf": _GOOD.replace(b"\n", b"\r\n"),
    "R5-id": _GOOD.replace(b"event: response.created\n", b"id: 0\nevent: response.created\n", 1),
    "R5-not-json": _GOOD.replace(b'"response.created",', b'"response.created";', 1),
    "R5-cut-inside-a-frame": _GOOD[: _GOOD.index(b"Hello")],
    "R5-not-utf-8": _GOOD.replace(b"Hello", b"Hell\xf6", 1),
    "R3-no-done-marker": _GOOD.removesuffix(b"data: [DONE]\n\n"),
    "R3-frame-after-the-done-marker": _GOOD + _GOOD[_GOOD.rindex(b"event:") : _GOOD.rindex(b"data: [DONE]")],
}
