"""Legal streams, written by hand, one for each kind of item and each way in which it can end.

It knows the API's events and nothing of the code under test. `LEGAL` maps a name to the bodies of a whole stream.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corpus_streams.legal import Body


DONE = b"data: [DONE]\n\n"


def framed(bodies: list[Body]) -> bytes:
    """Write a whole stream as server-sent events, with the end marker."""
    frames = [f"event: {body.get('type')}\ndata: {json.dumps(body, ensure_ascii=False)}\n\n" for body in bodies]
    return "".join(frames).encode() + DONE


Body = dict[str, Any]

USAGE = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 18,
}


def response(status: str, output: list[Body], **more: Any) -> Body:
    """Return a response object."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "model": "m",
        "status": status,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "usage": None,
        **more,
    }


def item(index: int, first: Body, changes: Body, *events: tuple[str, Body]) -> list[Body]:
    """Return the events of an item: added, those between (named without `response.`), and done.

    Args:
        index: Its output index.
        first: The item when it is added.
        changes: The fields that differ when it is done.
        events: The name of each event between, and its own fields.
    """
    about = {"item_id": first["id"], "output_index": index}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": first},
        *({"type": f"response.{name}", **about, **fields} for name, fields in events),
        {"type": "response.output_item.done", "output_index": index, "item": {**first, **changes}},
    ]


def stream(events: list[Body], status: str = "completed", *, queued: bool = False, **more: Any) -> list[Body]:
    """Put the opening and the end around the events of the items, and number everything."""
    end = {"cancelled": "incomplete"}.get(status, status)
    output = [body for body in events if body["type"] == "response.output_item.done"]
    output = [body["item"] for body in sorted(output, key=lambda body: body["output_index"])]
    bodies = [
        {"type": "response.created", "response": response("in_progress", [])},
        *([{"type": "response.queued", "response": response("queued", [])}] if queued else []),
        {"type": "response.in_progress", "response": response("in_progress", [])},
        *events,
        {"type": f"response.{end}", "response": response(status, output, usage=USAGE, **more)},
    ]
    return [{**body, "sequence_number": number} for number, body in enumerate(bodies)]


def text_part(index: int, *pieces: str, logprobs: list[list[Body]] | None = None) -> list[tuple[str, Body]]:
    """Return the events of an output text."""
    at, text = {"content_index": index}, "".join(pieces)
    of = logprobs or [[] for _ in pieces]
    whole = [entry for entries in of for entry in entries]
    in_part = [{"bytes": [*entry["token"].encode()], "top_logprobs": [], **entry} for entry in whole]
    return [
        ("content_part.added", {**at, "part": {"type": "output_text", "text": "", "annotations": [], "logprobs": []}}),
        *(("output_text.delta", {**at, "delta": p, "logprobs": lp}) for p, lp in zip(pieces, of, strict=True)),
        ("output_text.done", {**at, "text": text, "logprobs": whole}),
        (
            "content_part.done",
            {**at, "part": {"type": "output_text", "text": text, "annotations": [], "logprobs": in_part}},
        ),
    ]


def refusal_part(index: int, *pieces: str) -> list[tuple[str, Body]]:
    """Return the events of a refusal."""
    at, text = {"content_index": index}, "".join(pieces)
    return [
        ("content_part.added", {**at, "part": {"type": "refusal", "refusal": ""}}),
        *(("refusal.delta", {**at, "delta": piece}) for piece in pieces),
        ("refusal.done", {**at, "refusal": text}),
        ("content_part.done", {**at, "part": {"type": "refusal", "refusal": text}}),
    ]


def reasoning_part(index: int, *pieces: str) -> list[tuple[str, Body]]:
    """Return the events of a reasoning text."""
    at, text = {"content_index": index}, "".join(pieces)
    return [
        ("content_part.added", {**at, "part": {"type": "reasoning_text", "text": ""}}),
        *(("reasoning_text.delta", {**at, "delta": piece}) for piece in pieces),
        ("reasoning_text.done", {**at, "text": text}),
        ("content_part.done", {**at, "part": {"type": "reasoning_text", "text": text}}),
    ]


def summary_part(index: int, *pieces: str) -> list[tuple[str, Body]]:
    """Return the events of a reasoning summary."""
    at, text = {"summary_index": index}, "".join(pieces)
    return [
        ("reasoning_summary_part.added", {**at, "part": {"type": "summary_text", "text": ""}}),
        *(("reasoning_summary_text.delta", {**at, "delta": piece}) for piece in pieces),
        ("reasoning_summary_text.done", {**at, "text": text}),
        ("reasoning_summary_part.done", {**at, "part": {"type": "summary_text", "text": text}}),
    ]


def _parts(events: list[tuple[str, Body]], name: str) -> list[Body]:
    return [fields["part"] for event, fields in events if event == f"{name}.done"]


def message(index: int, *events: tuple[str, Body], status: str = "completed", **more: str) -> list[Body]:
    """Return the events of a message, given those of its parts."""
    first = {
        "id": f"msg_{index}",
        "type": "message",
        "role": "assistant",
        "status": "in_progress",
        "content": [],
        **more,
    }
    return item(index, first, {"status": status, "content": _parts([*events], "content_part")}, *events)


def reasoning(index: int, *events: tuple[str, Body], status: str = "completed") -> list[Body]:
    """Return the events of a reasoning item, given those of its parts."""
    first = {"id": f"rs_{index}", "type": "reasoning", "status": "in_progress", "summary": [], "content": []}
    content, summary = _parts([*events], "content_part"), _parts([*events], "reasoning_summary_part")
    return item(index, first, {"status": status, "content": content, "summary": summary}, *events)


def function_call(index: int, *pieces: str, status: str = "completed") -> list[Body]:
    """Return the events of a function call, with its arguments in chunks."""
    first = {"id": f"fc_{index}", "type": "function_call", "call_id": f"call_{index}", "name": "f", "arguments": ""}
    return item(
        index,
        {**first, "status": "in_progress"},
        {"arguments": "".join(pieces), "status": status},
        *(("function_call_arguments.delta", {"delta": piece}) for piece in pieces),
        ("function_call_arguments.done", {"arguments": "".join(pieces)}),
    )


def custom_tool_call(index: int, *pieces: str) -> list[Body]:
    """Return the events of a custom tool call, with its input in chunks."""
    first = {"id": f"ctc_{index}", "type": "custom_tool_call", "call_id": f"call_{index}", "name": "c", "input": ""}
    return item(
        index,
        first,
        {"input": "".join(pieces)},
        *(("custom_tool_call_input.delta", {"delta": piece}) for piece in pieces),
        ("custom_tool_call_input.done", {"input": "".join(pieces)}),
    )


def mcp_call(index: int, *pieces: str, status: str = "completed") -> list[Body]:
    """Return the events of an MCP call, with its arguments in chunks."""
    first = {"id": f"mcp_{index}", "type": "mcp_call", "name": "t", "server_label": "s", "arguments": ""}
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "it broke"}]}
    result = {"completed": {"output": "r"}, "failed": {"error": error}, "incomplete": {}}[status]
    return item(
        index,
        {**first, "status": "in_progress"},
        {"arguments": "".join(pieces), "status": status, **result},
        ("mcp_call.in_progress", {}),
        *(("mcp_call_arguments.delta", {"delta": piece}) for piece in pieces),
        ("mcp_call_arguments.done", {"arguments": "".join(pieces)}),
        *([] if status == "incomplete" else [(f"mcp_call.{status}", {})]),
    )


def without_status(body: Body) -> Body:
    """Leave out the status of the items in an event."""

    def without(one: Body) -> Body:
        return {name: value for name, value in one.items() if name != "status"}

    if "item" in body:
        return {**body, "item": without(body["item"])}
    if "response" in body:
        return {**body, "response": {**body["response"], "output": [without(one) for one in body["response"]["output"]]}}
    return body


def mcp_list_tools(index: int, end: str = "completed") -> list[Body]:
    """Return the events of a list of a server's tools."""
    first = {"id": f"mcpl_{index}", "type": "mcp_list_tools", "server_label": "s", "tools": []}
    tools = [{"name": "t", "input_schema": {"type": "object"}}]
    result = {"tools": tools} if end == "completed" else {"error": "no"}
    return item(index, first, result, ("mcp_list_tools.in_progress", {}), (f"mcp_list_tools.{end}", {}))


def mcp_approval_request(index: int) -> list[Body]:
    """Return the events of an approval request, which is complete when it is added."""
    request = {"id": f"mcpr_{index}", "type": "mcp_approval_request", "server_label": "s", "name": "t", "arguments": "{}"}
    return item(index, request, {})


def code_interpreter_call(index: int, *pieces: str, status: str = "completed", ran: bool = True) -> list[Body]:
    """Return the events of a code interpreter call, with its code in chunks."""
    first = {
        "id": f"ci_{index}",
        "type": "code_interpreter_call",
        "container_id": "cntr_1",
        "code": "",
        "outputs": None,
    }
    changes = {"code": "".join(pieces), "status": status}
    if status == "completed":
        changes["outputs"] = [{"type": "logs", "logs": "2"}]
    return item(
        index,
        {**first, "status": "in_progress"},
        changes,
        ("code_interpreter_call.in_progress", {}),
        *(("code_interpreter_call_code.delta", {"delta": piece}) for piece in pieces),
        ("code_interpreter_call_code.done", {"code": "".join(pieces)}),
        *([("code_interpreter_call.interpreting", {})] if ran else []),
        *([("code_interpreter_call.completed", {})] if status == "completed" else []),
    )


def search_call(index: int, first: Body, *, status: str = "completed", ran: bool = True, **result: Any) -> list[Body]:
    """Return the events of a hosted search."""
    call = first["type"]
    return item(
        index,
        {**first, "status": "in_progress"},
        {"status": status, **result},
        (f"{call}.in_progress", {}),
        *([(f"{call}.searching", {})] if ran else []),
        *([(f"{call}.completed", {})] if status == "completed" else []),
    )


def web_search_call(index: int, action: Body, *, status: str = "completed", ran: bool = True) -> list[Body]:
    """Return the events of a web search."""
    first = {"id": f"ws_{index}", "type": "web_search_call", "action": action}
    return search_call(index, first, status=status, ran=ran)


def image_generation_call(index: int, *images: str, status: str = "completed", ran: bool = True) -> list[Body]:
    """Return the events of an image generation, with its partial images."""
    first = {"id": f"ig_{index}", "type": "image_generation_call", "status": "in_progress", "result": None}
    fields = [{"partial_image_index": number, "partial_image_b64": image} for number, image in enumerate(images)]
    return item(
        index,
        first,
        {"status": status, "result": "aW1n" if status == "completed" else None},
        ("image_generation_call.in_progress", {}),
        *([("image_generation_call.generating", {})] if ran else []),
        *(("image_generation_call.partial_image", partial) for partial in fields),
        *([("image_generation_call.completed", {})] if status == "completed" else []),
    )


def _annotated() -> list[Body]:
    citation = {"type": "url_citation", "url": "http://x", "title": "x", "start_index": 0, "end_index": 2}
    added, delta, done, changes = text_part(0, "hi")
    note = ("output_text.annotation.added", {"content_index": 0, "annotation_index": 0, "annotation": citation})
    changes[1]["part"]["annotations"].append(citation)
    return message(0, added, delta, note, done, changes)


def _logprobs() -> list[Body]:
    tokens = [
        [{"token": "caf", "logprob": -0.5, "bytes": [99, 97, 102], "top_logprobs": []}],
        [
            {"token": "\ufffd", "logprob": -1.5, "bytes": [195], "top_logprobs": []},
            {"token": "\ufffd", "logprob": -2.0, "bytes": [169], "top_logprobs": []},
        ],
    ]
    return message(0, *text_part(0, "caf", "é", logprobs=tokens))


def _fault(*, sent: bool) -> list[Body]:
    waiting = code_interpreter_call(0, "1+1", status="failed", ran=False)
    open_ = message(1, *text_part(0, "so"), status="incomplete")
    error = [{"type": "error", "code": "server_error", "message": "it broke", "param": None}] if sent else []
    return [*waiting[:-1], *open_[:-3], *error, *open_[-3:], waiting[-1]]


CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
FAILED = {"status": "failed", "error": {"code": "server_error", "message": "it broke"}}
SEARCH = {"type": "search", "query": "q"}
_FILES = {"id": "fs_0", "type": "file_search_call", "queries": ["q"], "results": None}
_CALLS = code_interpreter_call(0, "1+1"), mcp_call(1, "{}")

LEGAL: dict[str, list[Body]] = {
    "nothing": stream([]),
    "queued": stream(message(0, *text_part(0, "hi")), queued=True),
    "message": stream(message(0, *text_part(0, "Hello", ", ", "world.\n"), phase="final_answer")),
    "message-parts": stream(message(0, *text_part(0, "a"), *refusal_part(1, "n", "o"), *text_part(2, " b"))),
    "message-annotated": stream(_annotated()),
    "message-logprobs": stream(_logprobs()),
    "message-cut": stream(message(0, *text_part(0, "Hel"), status="incomplete"), **CUT),
    "reasoning": stream([*reasoning(0, *reasoning_part(0, "think", "ing")), *message(1, *text_part(0, "hi"))]),
    "reasoning-summaries": stream(reasoning(0, *reasoning_part(0, "t"), *summary_part(0, "s"), *summary_part(1, "s2"))),
    "reasoning-cut": stream(reasoning(0, *reasoning_part(0, "think"), status="incomplete"), **CUT),
    "function-call": stream([*function_call(0, '{"a"', ": 1}"), *function_call(1)]),
    "function-call-cut": stream(function_call(0, '{"a"', status="incomplete"), **CUT),
    "function-call-left": stream(function_call(0, '{"a"', status="incomplete"), status="incomplete"),
    "custom-tool-call": stream(custom_tool_call(0, "any", " text")),
    "mcp-call": stream(mcp_call(0, "{", "}")),
    "mcp-call-failed": stream(mcp_call(0, "{", "}", status="failed")),
    "mcp-call-cut": stream(mcp_call(0, "{", status="incomplete"), **CUT),
    **{
        f"mcp-call-{name}": [without_status(body) for body in stream(mcp_call(0, "{", "}", status=status), **more)]
        for name, status, more in (
            ("without-status", "completed", {}),
            ("failed-without-status", "failed", {}),
            ("cut-without-status", "incomplete", CUT),
        )
    },
    "mcp-list-tools": stream(mcp_list_tools(0)),
    "mcp-list-tools-failed": stream(mcp_list_tools(0, "failed")),
    "mcp-approval-request": stream(mcp_approval_request(0)),
    "code": stream(code_interpreter_call(0, "1", "+1")),
    "code-failed": stream(code_interpreter_call(0, "1/0", status="failed")),
    "code-never-ran": stream(code_interpreter_call(0, "1/0", status="failed", ran=False)),
    "code-cut": stream(code_interpreter_call(0, "1", status="incomplete", ran=False), **CUT),
    "web-search": stream(web_search_call(0, SEARCH)),
    "web-open-page": stream(web_search_call(0, {"type": "open_page", "url": "http://x"})),
    "web-find-in-page": stream(web_search_call(0, {"type": "find_in_page", "url": "http://x", "pattern": "p"})),
    "web-search-failed": stream(web_search_call(0, SEARCH, status="failed")),
    "web-search-never-ran": stream(web_search_call(0, SEARCH, status="failed", ran=False)),
    "web-search-cut": stream(web_search_call(0, SEARCH, status="incomplete", ran=False), **CUT),
    "file-search": stream(search_call(0, _FILES, results=[{"file_id": "f", "text": "t"}])),
    "image": stream(image_generation_call(0, "YQ==", "Yg==")),
    "image-failed": stream(image_generation_call(0, "YQ==", status="failed")),
    "image-never-ran": stream(image_generation_call(0, status="failed", ran=False)),
    "calls-overlap": stream([*_CALLS[0][:4], *_CALLS[1][:3], *_CALLS[0][4:], *_CALLS[1][3:]]),
    "fault": stream(_fault(sent=False), **FAILED),
    "fault-said": stream(_fault(sent=True), **FAILED),
    "cancelled": stream(message(0, *text_part(0, "Hel"), status="incomplete"), "cancelled"),
}
