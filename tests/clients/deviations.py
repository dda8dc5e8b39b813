"""Streams with one deviation each, as two turns for a client: a call of a tool, and the answer.

They are the legal streams of the corpus with an edit. `LEGAL` has turns without a deviation, `DEVIATIONS` some with each
deviation that can be sent to a client, under its name, `BREAKING` those that look alike and break a client, and `TOLERATED` those
with an error that breaks none.
"""

import json
import re

from attrs import evolve, field, frozen
from corpus_streams.broken import numbered
from corpus_streams.legal import (
    CUT,
    FAILED,
    custom_tool_call,
    framed,
    item,
    mcp_call,
    mcp_list_tools,
    message,
    reasoning,
    reasoning_part,
    stream,
    text_part,
    web_search_call,
)

TEXT = ("It is ", "warm.")
ARGUMENTS = '{"city": "Berlin"}'
LOGPROBS = [[{"token": piece, "logprob": -0.5, "bytes": [*piece.encode()], "top_logprobs": []}] for piece in TEXT]
GENERIC, UNTYPED = "'GenericEvent' object has no attribute 'response'", "'dict' object has no attribute 'type'"
NODE, LITELLM, PYDANTIC = "openai-node", "LiteLLM", "Pydantic AI"
OPENAI, OPEN_RESPONSES = "the AI SDK, @ai-sdk/openai", "the AI SDK, @ai-sdk/open-responses"
ERROR = {"type": "error", "code": "server_error", "message": "it broke", "param": None}
PRINTED = {"stdout": "hi", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}


@frozen
class Turns:
    """The streams for a client.

    Args:
        bodies: The events of the turn that calls a tool, and of the turn that answers.
        like: The legal turns that a tolerant client reads in the same way.
        breaks: The clients that do not tolerate them, each with a part of its error, which is empty if it has none that helps.
        rewrite: Changes the bytes of a turn.
    """

    bodies: tuple
    like: str = "answered"
    breaks: dict = field(factory=dict)
    rewrite: object = bytes

    @property
    def streams(self):
        """The bytes of each turn, which are of two responses."""
        first, second = (self.rewrite(framed(bodies)) for bodies in self.bodies)
        return first, second.replace(b'"resp_1', b'"resp_2')


def call(index):
    """The call of the tool, which the server renames for a client with another tool."""
    about = {"id": f"fc_{index}", "type": "function_call", "call_id": f"call_{index}", "name": "get_weather", "arguments": ""}
    return item(
        index,
        {**about, "status": "in_progress"},
        {"arguments": ARGUMENTS, "status": "completed"},
        ("function_call_arguments.delta", {"delta": ARGUMENTS}),
        ("function_call_arguments.done", {"arguments": ARGUMENTS}),
    )


def answer(index, *, logprobs=None, **settings):
    """The message that ends the conversation."""
    return message(index, *text_part(0, *TEXT, logprobs=logprobs), **settings)


def thought(index):
    """A reasoning item."""
    return reasoning(index, *reasoning_part(0, "I look."))


def sealed(index):
    """Reasoning whose content is encrypted."""
    return item(index, {"type": "reasoning", "id": f"rs_{index}", "summary": [], "encrypted_content": "one"}, {})


def searched(index, action=("search", "q")):
    """A search of the web."""
    return web_search_call(index, dict(zip(("type", "query"), action, strict=False)))


def printed(index, *, whole=False):
    """The output of a hosted shell."""
    about = {"type": "shell_call_output", "id": f"sho_{index}", "call_id": "call_s", "max_output_length": None}
    done = ("shell_call_output_content.done", {"command_index": 0, "output": [PRINTED]})
    opening = {**about, "status": "in_progress", "output": [PRINTED] if whole else []}
    return item(index, opening, {"status": "completed", "output": [PRINTED]}, *([] if whole else [done]))


def tools_searched(index, call_id="call_t"):
    """A hosted search of tools."""
    about = {"type": "tool_search_call", "id": f"tsc_{index}", "execution": "server", "arguments": {}, "call_id": "call_t"}
    return item(index, {**about, "status": "in_progress"}, {"status": "completed", "call_id": call_id})


def calling(*before):
    """Return turns whose call follows other items; each item gets its index."""
    items = [body for index, one in enumerate(before) for body in one(index)]
    return Turns((stream([*items, *call(len(before))]), stream(answer(0))))


def answering(*events, like="answered", **settings):
    """Return turns whose answer has these events."""
    return Turns((stream([*thought(0), *call(1)]), stream([*events], **settings)), like)


def edited(turns, change):
    """Change a copy of every body."""
    bodies = tuple(json.loads(json.dumps(turns.bodies)))
    for body in (*bodies[0], *bodies[1]):
        change(body)
    return evolve(turns, bodies=bodies)


def without(turns, *endings):
    """Leave events out."""
    kept = [numbered([body for body in bodies if not body["type"].endswith(endings)]) for bodies in turns.bodies]
    return evolve(turns, bodies=tuple(kept))


def with_event(turns, place, event):
    """Insert an event without a sequence number into each turn."""
    return evolve(turns, bodies=tuple([*bodies[:place], event, *bodies[place:]] for bodies in turns.bodies))


def without_fields(*names, inside=None):
    """Remove fields from each event, or from an object in it."""
    return lambda body: [(body.get(inside, {}) if inside else body).pop(name, None) for name in names]


def added(**fields):
    """Change fields of an item when it is added, if it has them."""
    return lambda body: body["type"].endswith("item.added") and _overwrite(body["item"], fields)


def everywhere(**fields):
    """Change fields of an item in every event that has it."""
    return lambda body: [_overwrite(one, fields) for one in _shown(body)]


def ended(**fields):
    """Change fields of an item, or of a part of it, in the terminal response."""
    return lambda body: (
        body["type"] == "response.completed"
        and [_overwrite(one, fields) for item in _shown(body) for one in (item, *item.get("content", ()))]
    )


def terminal(event="completed", **fields):
    """Change fields of a terminal response, or of its usage."""

    def change(body):
        if body["type"] == f"response.{event}":
            _overwrite(body["response"]["usage"], fields)
            _overwrite(body["response"], fields)

    return change


def _shown(body):
    return [body["item"]] if "item" in body else body.get("response", {}).get("output", [])


def _overwrite(target, fields):
    target.update((name, value) for name, value in fields.items() if name in target)


def _with_vendor_fields(body):
    for one in (body, *_shown(body)):
        one["acme"] = {"a": 1}


def _with_fields_of_its_event(body):
    if body["type"].endswith("item.done") and body["item"]["type"] == "function_call":
        body["item"].update(output_index=body["output_index"], sequence_number=-1)


def _with_nulls(body):
    for one in _shown(body):
        one.update({"function_call": {"namespace": None}, "message": {"phase": None}}.get(one["type"], {}))


def _with_part_at_added(body):
    if body["type"].endswith("item.added") and body["item"]["type"] == "message":
        body["item"]["content"] = [{"type": "output_text", "text": "", "annotations": [], "logprobs": []}]


def _with_failed_search(body):
    for one in _shown(body):
        if one["type"] == "web_search_call" and one["status"] == "completed":
            one["status"] = "failed"


def _rotating(*names):
    """Replace the ids in these fields by another one in each event."""

    def change(body):
        for name in {*names} & body.keys():
            holder, field = (body, name) if name == "item_id" else (body[name], "id")
            holder[field] += f"-{body['sequence_number']}"

    return edited(ANSWERED, change)


def _with_framing(data):
    return re.sub(rb'^(data: \{"type": "[^"]*",)', rb"id: 1\n\1\ndata: ", data, flags=re.MULTILINE).replace(b"\n", b"\r\n")


def _first(bodies, turns):
    return evolve(turns, bodies=(bodies, turns.bodies[1]))


def _second(bodies, like="answered"):
    return Turns((ANSWERED.bodies[0], bodies), like)


def _breaking(turns, breaks):
    return evolve(turns, breaks=breaks)


ANSWERED = answering(*thought(0), *answer(1))
WITH_LOGPROBS = answering(*answer(0, logprobs=LOGPROBS))
LEGAL = {
    "answered": ANSWERED,
    "cut": answering(*answer(0, status="incomplete"), **CUT),
    "failed": answering(*thought(0), **FAILED),
    "failed after an error event": answering(*thought(0), ERROR, **FAILED),
    "with other items": calling(sealed, searched, mcp_list_tools, lambda at: mcp_call(at, "{}"), printed, tools_searched),
    "with a custom call": calling(lambda at: custom_tool_call(at, "any")),
    "with log probabilities": WITH_LOGPROBS,
}
_LISTED = calling(mcp_list_tools)
_TWO = [*thought(0)[:-1], *call(1)[:1], thought(0)[-1], *call(1)[1:]]

DEVIATIONS = {
    "unnumbered": edited(ANSWERED, without_fields("sequence_number")),
    "no-done-marker": evolve(ANSWERED, rewrite=lambda data: data.removesuffix(b"data: [DONE]\n\n")),
    "error-is-last": _second(numbered([*ANSWERED.bodies[1][:2], ERROR]), "failed after an error event"),
    "late-rate-limits": _breaking(
        with_event(ANSWERED, 99, {"type": "response.rate_limits.updated", "rate_limits": []}),
        {NODE: "Unhandled response stream event", LITELLM: GENERIC},
    ),
    "no-event-line": evolve(ANSWERED, rewrite=lambda data: re.sub(rb"event: .*\n", b"", data)),
    "framing": evolve(ANSWERED, rewrite=_with_framing),
    "foreign-id": evolve(ANSWERED, rewrite=lambda data: re.sub(rb': "(rs|fc|msg|call)_', rb': "acme-\1-', data)),
    "unread-at-added": calling(lambda at: tools_searched(at, "call_other")),
    "never-done": _first(numbered([*_LISTED.bodies[0][:5], *_LISTED.bodies[0][6:]]), _LISTED),
    "text-at-once": without(calling(lambda at: mcp_call(at, "{}")), "mcp_call_arguments.delta"),
    "begins-whole": without(edited(ANSWERED, added(arguments=ARGUMENTS)), "arguments.delta"),
    "part-at-added": _breaking(edited(ANSWERED, _with_part_at_added), {NODE: "missing content at index 0"}),
    "logprobs-elsewhere": edited(WITH_LOGPROBS, lambda body: "part" in body and _overwrite(body["part"], {"logprobs": []})),
    "status-at-added": edited(ANSWERED, added(status="completed")),
    "status-behind": edited(ANSWERED, everywhere(status="in_progress")),
    "status-of-tool": edited(calling(searched), _with_failed_search),
    "no-middle": without(calling(searched), "call.in_progress", "call.searching", "call.completed"),
    "no-middle, of a custom call": without(evolve(LEGAL["with a custom call"], like="with a custom call"), "input.done"),
    "late-done": _first(stream(_TWO), ANSWERED),
    "result-at-added": calling(lambda at: printed(at, whole=True)),
    "encrypted-content": edited(calling(sealed), ended(encrypted_content="other")),
    "null-or-absent": edited(ANSWERED, lambda body: body["type"] == "response.completed" and _with_nulls(body)),
    "other-in-final": edited(WITH_LOGPROBS, ended(logprobs=[])),
    "without-output": _breaking(
        edited(ANSWERED, terminal(output=[])), {NODE: "", "the Agents SDK for JavaScript": "Max turns (10) exceeded", LITELLM: ""}
    ),
    "failed-without-output": edited(evolve(LEGAL["failed"], like="failed"), terminal("failed", output=[])),
    "usage": edited(ANSWERED, terminal(total_tokens=1)),
    "vendor-field": edited(ANSWERED, _with_vendor_fields),
    "null": edited(ANSWERED, _with_nulls),
    "field-of-newer": edited(ANSWERED, without_fields("parallel_tool_calls", "tool_choice", "tools", inside="response")),
    "nested-error": answering(*thought(0), {"type": "error", "error": ERROR}, like="failed after an error event", **FAILED),
    "no-logprobs": edited(ANSWERED, without_fields("logprobs")),
    "tokens-differ": answering(*answer(0, logprobs=LOGPROBS[::-1])),
    "blank": answering(*message(0), *answer(1)),
}
"""The streams of each deviation, by its name before a comma. One that breaks a client is here because a service sends it."""

BREAKING = {
    "the response is not created": _breaking(without(ANSWERED, "response.created"), {NODE: "When snapshot hasn't been set yet"}),
    "an item is not added": _breaking(
        without(ANSWERED, "output_item.added"),
        {NODE: "missing output at index 0", OPENAI: "", OPEN_RESPONSES: "", "LangChain": "1 validation error for ToolMessage"},
    ),
    "the ids of items rotate": _breaking(
        _rotating("item", "item_id"),
        {NODE: "expected item_id", OPEN_RESPONSES: "", PYDANTIC: "Function tool calls must have unique"},
    ),
    "the ids of responses rotate": _breaking(_rotating("response"), {NODE: "Lifecycle response identity changed"}),
    "a call id changes": _breaking(
        edited(ANSWERED, added(call_id="call_x")),
        {NODE: "expected output item call_id", OPEN_RESPONSES: "", "LangChain": "", PYDANTIC: ""},
    ),
    "an id comes twice": _breaking(
        answering(*thought(0), *json.loads(json.dumps(thought(1)).replace("rs_1", "rs_0")), *answer(2)),
        {NODE: "duplicate output item identity"},
    ),
    "a part is not added": _breaking(without(ANSWERED, "_part.added", "_part.done"), {NODE: "missing content at index 0"}),
    "an answer without deltas": _breaking(
        without(ANSWERED, "output_text.delta"),
        {OPENAI: "", OPEN_RESPONSES: "", "LangChain": "", PYDANTIC: "Exceeded maximum output retries"},
    ),
    "arguments without deltas": _breaking(without(ANSWERED, "arguments.delta"), {"LangChain": ""}),
    "an event after the end": _breaking(
        with_event(ANSWERED, 99, {"type": "acme:done"}), {NODE: "Unhandled response stream event", LITELLM: GENERIC}
    ),
    "a reason that nobody knows": _breaking(
        answering(*answer(0, status="incomplete"), like="cut", status="incomplete", incomplete_details={"reason": "tired"}),
        {LITELLM: UNTYPED},
    ),
    "details of usage without counts": _breaking(
        edited(ANSWERED, terminal(output_tokens_details={}, input_tokens_details={})), {"Codex": ""}
    ),
    "no created_at": _breaking(
        edited(ANSWERED, without_fields("created_at", inside="response")), {OPENAI: "Type validation failed", LITELLM: UNTYPED}
    ),
    "no model": _breaking(edited(ANSWERED, without_fields("model", inside="response")), {OPENAI: "Type validation failed"}),
    "no action": _breaking(
        edited(calling(searched), lambda body: [one.pop("action", None) for one in _shown(body)]),
        {PYDANTIC: "'NoneType' object has no attribute 'type'", LITELLM: UNTYPED},
    ),
}
"""Streams that look like deviations but break clients, each with these clients."""

TOLERATED = {"a call has fields of its event": edited(ANSWERED, _with_fields_of_its_event)}
"""Streams with errors that break no client, as vLLM sends them."""
