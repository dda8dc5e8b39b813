"""The deltas that the proof feeds: each kind of delta, with each content that the driver may treat differently.

One text stands for all texts that the driver treats alike: empty text, white space, text that an annotation refers to, and other
text. All but the annotated text also come with log probabilities.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from interlock.events.items import ITEMS, ItemKind, example, examples, result_fields
from interlock.fsm import deltas

SETTINGS: Final[Mapping[str, object]] = {"model": "any", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
"""The settings of every response."""

UNKNOWN_CALL: Final = next((f"{item.prefix}_0", kind) for kind, item in ITEMS.items() if item.tool_result is not None)
"""A call that does not exist; the driver treats it like a call that has ended."""

MARK: Final = "é"
"""The text that an annotation refers to."""

_NAMED: Final = [
    kind
    for kind, item in ITEMS.items()
    if "call_id" in item.generated_ids and item.as_function_call and not item.as_function_call[0]
]
"""The calls of tools that have names of their own."""
_SPECIAL: Final[Mapping[ItemKind, Mapping[str, object]]] = {
    "message": {"phase": "commentary"},
    # Always the same call id, so that later calls repeat it.
    **{kind: {"call_id": "call_of_the_model"} for kind in _NAMED},
}
FIELDS: Final[Mapping[ItemKind, Mapping[str, object]]] = {kind: {**example(kind), **_SPECIAL.get(kind, {})} for kind in ITEMS}
"""The fields that open an item, by kind."""
_ANNOTATION: Final = {"type": "url_citation", "url": "https://example.org", "title": "E", "start_index": 0, "end_index": 1}
_CITATION: Final = {"type": "url_citation", "url": "https://example.org", "title": "E"}
_USAGE: Final = deltas.Usage(input_tokens=5, cached_tokens=1, output_tokens=3, reasoning_tokens=2, cache_write_tokens=4)
_REASONS: Final[Sequence[deltas.FinishReason]] = ("stop", "length", "content_filter", "abort", "error", "cut", "steered")

_COMMON: Final[Sequence[deltas.Delta]] = (
    deltas.Start(),
    deltas.Enqueue(),
    deltas.Silence(),
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

TEXTS: Final[Sequence[deltas.Delta]] = (MARK, " ", "", deltas.Text("a", ()))
"""Text without log probabilities."""


def _add_logprobs(text: str) -> deltas.Text:
    return deltas.Text(text, [{"token": text, "bytes": [*text.encode()], "logprob": -0.5, "top_logprobs": []}])


TEXTS_WITH_LOGPROBS: Final[Sequence[deltas.Delta]] = tuple(_add_logprobs(text) for text in ("a", " ", ""))
"""Text with log probabilities."""


ARGUMENTS: Final[Sequence[deltas.Delta]] = ("{}", '{"a"', ":1}", "null", "[1]", "5", '"a"', "true")
"""The arguments of calls: JSON of every kind, complete and in two parts. Several of them joined are not valid JSON."""


def common_inputs(kinds: Collection[ItemKind]) -> list[deltas.Delta]:
    """Return the deltas that name no item and carry no output text; `kinds` are the kinds of items to open."""
    sealed = [deltas.Open("reasoning", {"encrypted_content": "sealed"})] if "reasoning" in kinds else []
    return [*_COMMON, *sealed, *(deltas.Open(kind, FIELDS[kind]) for kind in kinds)]


def tool_deltas(item_id: str, kind: ItemKind) -> Iterator[deltas.Delta]:
    """Yield the deltas that a tool makes for a call."""
    yield deltas.Run(item_id)
    yield deltas.Progress(item_id, _PROGRESS.get(kind, {"partial_image_b64": "aW1hZ2U="}))
    yield deltas.EndOutput(item_id, {"type": "exit", "exit_code": 1})
    yield deltas.Succeed(item_id)
    yield deltas.Succeed(item_id, result_fields(kind, "found") or examples(kind, ITEMS[kind].tool_result or ())[-1])
    yield deltas.Fail(item_id, "It broke.")


_PROGRESS: Final[Mapping[ItemKind, Mapping[str, object]]] = {"shell_call_output": {"stdout": "signals\n", "stderr": ""}}
