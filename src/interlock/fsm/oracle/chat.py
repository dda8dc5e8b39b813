"""The rules C1 to C8 of docs/dialects.md for a whole stream of Chat Completions, written from the rules alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from interlock.fsm.oracle.stream_view import Violation, as_list, as_object

_REASONS: Final = frozenset({"stop", "length", "tool_calls", "content_filter"})


def check_chat(chunks: Sequence[Mapping[str, object]], *, usage: bool = False) -> list[Violation]:
    """Validate all chunks of one completion, without `[DONE]`; `usage` is whether the client requested it."""
    violations = [*_shapes(chunks), *_ends(chunks, usage=usage)]
    return violations or [*_calls(chunks)]


def _choices(chunks: Sequence[Mapping[str, object]]) -> Iterator[tuple[int, Mapping[str, object]]]:
    for index, chunk in enumerate(chunks):
        yield from ((index, as_object(choice)) for choice in as_list(chunk.get("choices")))


def _deltas(chunks: Sequence[Mapping[str, object]]) -> Iterator[tuple[int, Mapping[str, object]]]:
    return ((index, as_object(choice.get("delta"))) for index, choice in _choices(chunks))


def _shapes(chunks: Sequence[Mapping[str, object]]) -> Iterator[Violation]:
    first: Mapping[str, object] = chunks[0] if chunks else {}
    for index, chunk in enumerate(chunks):
        if "error" in chunk:
            error = as_object(chunk["error"])
            if not isinstance(error.get("message"), str) or index < len(chunks) - 1:
                yield Violation("C8", index, "an error is the last chunk, with a message")
            continue
        if any(chunk.get(name) is None or chunk.get(name) != first.get(name) for name in ("id", "created", "model")):
            yield Violation("C6", index, "the id, the time or the model differs")
        choices = as_list(chunk.get("choices"))
        if chunk.get("object") != "chat.completion.chunk" or len(choices) > 1:
            yield Violation("C6", index, "the chunk is not one of a single choice")
        if any("finish_reason" not in as_object(choice) for choice in choices):
            yield Violation("C2", index, "a choice has no finish_reason")
    for index, delta in _deltas(chunks):
        if delta.get("reasoning") != delta.get("reasoning_content"):
            yield Violation("C7", index, "the reasoning differs between its two fields")
        if ("role" in delta) != (index == 0):
            yield Violation("C1", index, "the role is in the first chunk and no other")


def _ends(chunks: Sequence[Mapping[str, object]], *, usage: bool) -> Iterator[Violation]:
    if chunks and "error" in chunks[-1]:
        return
    reasons = [
        (index, as_object(choice).get("finish_reason"))
        for index, chunk in enumerate(chunks)
        for choice in as_list(chunk.get("choices"))
    ]
    ended = [(index, reason) for index, reason in reasons if reason is not None]
    if len(ended) != 1 or ended[0] != reasons[-1] or ended[0][1] not in _REASONS:
        yield Violation("C2", len(chunks), f"the reasons are {[reason for _, reason in ended]}")
    elif [*_deltas(chunks)][-1][1]:
        yield Violation("C2", ended[0][0], "the last delta is not empty")
    with_usage = [index for index, chunk in enumerate(chunks) if chunk.get("usage") is not None]
    if with_usage != ([len(chunks) - 1] if usage else []) and not (usage and not with_usage and chunks[-1].get("choices") == []):
        yield Violation("C5", len(chunks), f"the usage is in the chunks {with_usage}")


def _calls(chunks: Sequence[Mapping[str, object]]) -> Iterator[Violation]:
    """C3 and C4: calls one after another, and the reason for them."""
    count = 0
    for index, delta in _deltas(chunks):
        for call in map(as_object, as_list(delta.get("tool_calls"))):
            function = as_object(call.get("function"))
            is_new = "id" in call
            count += is_new
            if call.get("index") != count - 1:
                yield Violation("C4", index, f"the index is {call.get('index')}, not {count - 1}")
            if is_new != isinstance(function.get("name"), str) or is_new != (call.get("type") == "function"):
                yield Violation("C4", index, "the id, the type and the name come together, once")
            if not isinstance(function.get("arguments"), str):
                yield Violation("C4", index, "the arguments are not a string")
    reasons = [choice.get("finish_reason") for _, choice in _choices(chunks)]
    if "tool_calls" in reasons and not count:
        yield Violation("C3", len(chunks), "the reason is tool_calls, without a call")
