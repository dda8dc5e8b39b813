"""What the driver is fed in the proof: every delta, with every kind of content that could make a difference.

It knows the vocabulary of `interlock.fsm.deltas` and nothing of the lifecycles. Texts stand for all texts by what a
driver can tell apart: none, white space, text that an annotation is about, other text; with log probabilities or without.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from interlock.events.items import ITEMS, ItemKind, example, result_fields
from interlock.fsm import deltas

NOBODY: Final[tuple[str, ItemKind]] = ("mcp_0", "mcp_call")
"""A call that nobody made, for as long as none has ended; to a driver the two are the same."""

MARK: Final = "é"
"""The text that an annotation is about; some texts have it, others do not."""

_SPECIAL: Final[Mapping[ItemKind, Mapping[str, object]]] = {
    "message": {"phase": "commentary"},
    # The same call id each time, so that every later call repeats one.
    **{kind: {"call_id": "call_of_the_model"} for kind in ("function_call", "custom_tool_call", "multi_agent_call")},
}
FIELDS: Final[Mapping[ItemKind, Mapping[str, object]]] = {kind: {**example(kind), **_SPECIAL.get(kind, {})} for kind in ITEMS}
"""What an item of each kind is opened with."""
_ANNOTATION: Final = {"type": "url_citation", "url": "https://example.org", "title": "E", "start_index": 0, "end_index": 1}
_CITATION: Final = {"type": "url_citation", "url": "https://example.org", "title": "E"}
_USAGE: Final = deltas.Usage(input_tokens=5, cached_tokens=1, output_tokens=3, reasoning_tokens=2, cache_write_tokens=4)
_REASONS: Final[Sequence[deltas.FinishReason]] = ("stop", "length", "content_filter", "abort", "error", "cut")

_ANYWHERE: Final[Sequence[deltas.Delta]] = (
    deltas.Start(),
    deltas.Enqueue(),
    *(wrap(text) for wrap in (deltas.Refusal, deltas.Summary) for text in ("no", " ", "")),
    deltas.Annotate(_ANNOTATION),
    deltas.Annotate(_CITATION, MARK),
    deltas.EndPart(),
    deltas.Close(),
    deltas.Close({"encrypted_content": "sealed"}),
    deltas.Reject("The arguments make no sense."),
    *(deltas.EndTurn(reason, _USAGE) for reason in _REASONS),
    deltas.Fault("server_error", "It broke."),
    deltas.Cancel(),
    deltas.Finish(),
)

PLAIN: Final[Sequence[deltas.Delta]] = (MARK, " ", "", deltas.Text("a", ()))
"""Text whose log probabilities nobody asked for."""


def _with_logprobs(text: str) -> deltas.Text:
    return deltas.Text(text, [{"token": text, "bytes": [*text.encode()], "logprob": -0.5, "top_logprobs": []}])


MEASURED: Final[Sequence[deltas.Delta]] = tuple(_with_logprobs(text) for text in ("a", " ", ""))
"""Text with its log probabilities."""


def everywhere(kinds: Collection[ItemKind]) -> list[deltas.Delta]:
    """Return the deltas that are about no item in particular and carry no output text.

    Args:
        kinds: The kinds of items to open.
    """
    sealed = [deltas.Open("reasoning", {"encrypted_content": "sealed"})] if "reasoning" in kinds else []
    return [*_ANYWHERE, *sealed, *(deltas.Open(kind, FIELDS[kind]) for kind in kinds)]


def about(item_id: str, kind: ItemKind) -> Iterator[deltas.Delta]:
    """Yield what a tool can say about a call.

    Args:
        item_id: The call's id.
        kind: What it is, or is taken for.
    """
    yield deltas.Run(item_id)
    yield deltas.Progress(item_id, _PROGRESS.get(kind, {"partial_image_b64": "aW1hZ2U="}))
    yield deltas.EndOutput(item_id, {"type": "exit", "exit_code": 1})
    yield deltas.Succeed(item_id)
    yield deltas.Succeed(item_id, {**result_fields(kind, "found"), **_RESULTS.get(kind, {})})
    yield deltas.Fail(item_id, "It broke.")


_PROGRESS: Final[Mapping[ItemKind, Mapping[str, object]]] = {
    "shell_call_output": {"stdout": "signals\n", "stderr": ""},
}
_RESULTS: Final[Mapping[ItemKind, Mapping[str, object]]] = {
    "mcp_list_tools": {"tools": [{"name": "search", "input_schema": {"type": "object"}}]},
    "compaction": {"encrypted_content": "sealed"},
    "file_search_call": {"results": [{"file_id": "file_1", "filename": "a.txt", "score": 0.5, "text": "found"}]},
}
