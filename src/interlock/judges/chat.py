"""The judge of OpenAI's Chat Completions: the rules C1 to C9 of docs/guides/dialects.md.

The fields of a chunk may be of any type. An error does not end the judging: each rule reads the chunks as if the others were
kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from interlock.dialects.chat import CHAT, ChatEffect, ChatTransducer
from interlock.events.chat import OLD_CALL
from interlock.events.json import EMPTY, as_text, elements, is_array, is_object, members
from interlock.events.rulebook import Finding, Rule, read_rows
from interlock.judges.digests import quote
from interlock.judges.judging import Body, DialectJudge, Indexed, transducer_automaton

_RULES: Final = """
C1|role|order|The first chunk of a choice has the role, and no other does.|Clients begin the message twice, or never.
C2|finish|order|The last chunk of a choice has an empty delta and the reason, null in all others.|Clients stop early, or never.
C3|reason|content
|The reason is the first that applies of: `length`, `content_filter`, `tool_calls`, `stop`.
  With a named `tool_choice` it is `stop`.
|Agents wait.
C4|calls|order|Calls come one after another; id, type and name come once; arguments are text.|Clients mix up or lose calls.
C5|usage|order|If requested, the usage is in one chunk without choices at the end.|Clients count tokens twice.
C6|chunks|content|All chunks have one id, time and model; a choice has an index and a delta.|Clients mix up answers.
C7|reasoning|content|Reasoning is in `reasoning_content` and in `reasoning`.|Clients that read the other one lose it.
C8|ending|order|`[DONE]` comes last; an error is the last chunk.|A client waits, or takes a failure for an end.
C9|whole|content|A whole message equals what the stream adds up to, with `refusal` and `annotations`; its choice has `logprobs`.|
"""

_FINISH_REASONS: Final = frozenset({"stop", "length", "tool_calls", "content_filter", OLD_CALL})
_CALL_TYPES: Final = ("function", "custom")
_LATE: Final = "comes after the end marker [DONE]"
CHUNK: Final = "chat.completion.chunk"
"""The `object` of a chunk."""


def check_chat(
    chunks: Sequence[Mapping[str, object]], *, usage: bool = False, names_function: bool | None = None
) -> list[Finding]:
    """Validate all chunks of one completion, without `[DONE]`.

    Args:
        chunks: The chunks.
        usage: Whether the client requested the usage.
        names_function: Whether the client named the function to call; None if that is unknown.
    """
    failed = any(chunk.get("error") is not None for chunk in chunks)
    findings = [*_check_chunks(chunks), *_check_usage(chunks, requested=usage, failed=failed)]
    choices: dict[int, list[tuple[int, Mapping[str, object]]]] = {}
    for index, chunk in enumerate(chunks):
        for choice in map(members, elements(chunk.get("choices"))):
            number = choice.get("index")
            choices.setdefault(number if isinstance(number, int) else 0, []).append((index, choice))
    if not choices and not failed:
        findings.append(Finding("C2", "the stream has no choice", event=len(chunks)))
    for parts in choices.values():
        findings += [
            *_check_roles(parts),
            *_check_finish(parts, len(chunks), failed=failed),
            *_check_calls(parts),
            *_check_reason(parts, names_function=names_function),
        ]
    return findings


def _check_chunks(chunks: Sequence[Mapping[str, object]]) -> Iterator[Finding]:
    """C6, C7 and C8: the fields of each chunk."""
    first = next((chunk for chunk in chunks if elements(chunk.get("choices"))), EMPTY)
    for index, chunk in enumerate(chunks):
        choices = [*map(members, elements(chunk.get("choices")))]
        error = chunk.get("error")
        if error is not None:
            if not isinstance(members(error).get("message"), str) or index < len(chunks) - 1:
                yield Finding("C8", "an error is the last chunk, with a message", event=index)
            if not choices:
                continue
        yield from _check_identity(index, chunk, first)
        if not is_array(chunk.get("choices")):
            yield Finding("C6", "the chunk has no list of choices", event=index)
        for choice in choices:
            delta = choice.get("delta")
            if type(choice.get("index")) is not int:
                yield Finding("C6", "a choice has no index", event=index)
            if not is_object(delta):
                has_text = delta is not None or "text" in choice
                yield Finding("C6", "a choice has no delta", "" if has_text else "no-delta", index)
            reasoning = members(delta).get("reasoning"), members(delta).get("reasoning_content")
            if reasoning[0] != reasoning[1]:
                deviation = "one-reasoning" if None in reasoning else ""
                yield Finding("C7", "the reasoning differs between its two fields", deviation, index)


def _check_identity(index: int, chunk: Mapping[str, object], first: Mapping[str, object]) -> Iterator[Finding]:
    """C6: one id, time and model in all chunks, of which `first` is the first that has a choice."""
    names = ("id", "created", "model")
    kind = chunk.get("object")
    if not kind or any(chunk.get(name) in (None, "") for name in names):
        yield Finding("C6", "the chunk has no id, created, model or object", "chunk-fields", index)
    differ = [name for name in names if chunk.get(name) and first.get(name) and chunk[name] != first[name]]
    if differ == ["created"]:
        yield Finding("C6", "the time differs", "time-passes", index)
    elif differ:
        deviation = "" if elements(chunk.get("choices")) else "differs-without-choices"
        yield Finding("C6", f"the {' and the '.join(differ)} differs", deviation, index)
    if kind and kind != CHUNK:
        yield Finding("C6", f"the object is {quote(kind)}", "other-object" if isinstance(kind, str) else "", index)


def _check_usage(chunks: Sequence[Mapping[str, object]], *, requested: bool, failed: bool) -> Iterator[Finding]:
    """C5: one chunk at the end has the usage, without choices."""
    counted = [index for index, chunk in enumerate(chunks) if chunk.get("usage") is not None]
    if counted and not requested:
        yield Finding("C5", "nobody requested the usage", event=counted[0])
    if requested and not counted and not failed and not (chunks and chunks[-1].get("choices") == []):
        yield Finding("C5", "the usage is missing", event=len(chunks))
    for index, chunk in enumerate(chunks):
        choices = elements(chunk.get("choices"))
        if any(members(choice).get("usage") is not None for choice in choices) or (index in counted and choices):
            yield Finding("C5", "the usage is beside a choice", "usage-beside-choice", index)
    if len(counted) > 1:
        yield Finding("C5", "another chunk has the usage, too", "usage-again", counted[1])
    elif counted and any(
        _adds_content_or_reason(choice) for chunk in chunks[counted[0] + 1 :] for choice in elements(chunk.get("choices"))
    ):
        yield Finding("C5", "the usage comes before the end", event=counted[0])


def _adds_content_or_reason(choice: object) -> bool:
    """Return whether a choice adds anything to its message, or ends it."""
    return bool(_added_content(choice)) or bool(members(choice).get("finish_reason"))


def _added_content(choice: object) -> Mapping[str, object]:
    return {name: value for name, value in members(members(choice).get("delta")).items() if value and name != "role"}


def _check_roles(parts: Indexed) -> Iterator[Finding]:
    """C1: the first chunk of a choice has the role."""
    roles = [(index, members(choice.get("delta")).get("role")) for index, choice in parts]
    for place, (index, role) in enumerate(roles):
        if role is not None and role != "assistant":
            yield Finding("C1", f"the role is {quote(role)}", event=index)
        elif role is None and place == 0:
            yield Finding("C1", "the first chunk of the choice has no role", "no-role", index)
        elif role is not None and place > 0:
            is_late = roles[0][1] is None and all(before is None for _, before in roles[:place])
            yield Finding("C1", "comes late" if is_late else "the role is repeated", "" if is_late else "role-again", index)


def _check_finish(parts: Indexed, end: int, *, failed: bool) -> Iterator[Finding]:
    """C2: the last chunk of a choice has the reason, and an empty delta; all others have null."""
    ended: str | None = None
    for index, choice in parts:
        reason = choice.get("finish_reason")
        if "finish_reason" not in choice or reason == "":
            yield Finding("C2", "a choice has no finish_reason", "no-reason-key", index)
        elif reason is not None and not isinstance(reason, str):
            yield Finding("C2", f"the reason is {quote(reason)}", event=index)
        elif isinstance(reason, str) and reason not in _FINISH_REASONS:
            yield Finding("C2", f"the reason is {quote(reason)}", "other-reason", index)
        if ended is not None:
            if _added_content(choice) or (reason and reason != ended):
                yield Finding("C2", f"comes after the reason {quote(ended)}", event=index)
            else:
                yield Finding("C2", f"repeats or follows the reason {quote(ended)}", "after-reason", index)
        elif reason:
            ended = as_text(reason)
            if choice.get("delta"):
                yield Finding("C2", "the last delta is not empty", "text-at-finish", index)
    if ended is None and not failed:
        yield Finding("C2", "the choice has no finish reason", event=end)


def _check_calls(parts: Indexed) -> Iterator[Finding]:
    """C4: calls one after another."""
    ids: list[object] = []
    for index, choice in parts:
        for call in map(members, elements(members(choice.get("delta")).get("tool_calls"))):
            if not ids or (call.get("id") and call.get("id") != ids[-1]):
                ids.append(call.get("id"))
                yield from _check_call_start(index, call)
            elif any(call.get(name) is not None for name in ("id", "type")) or _function_of(call).get("name") is not None:
                yield Finding("C4", "the id, the type or the name comes again", "call-fields-again", index)
            if call.get("index") != len(ids) - 1:
                yield Finding("C4", f"the index is {quote(call.get('index'))}, not {len(ids) - 1}", event=index)
            arguments = _function_of(call).get("arguments", "")
            if arguments is None:
                yield Finding("C4", "the arguments are null", "null-arguments", index)
            elif not isinstance(arguments, str):
                yield Finding("C4", "the arguments are not a string", event=index)


def _check_reason(parts: Indexed, *, names_function: bool | None) -> Iterator[Finding]:
    """C3: the reason, which depends on the calls; and, after one, on the request."""
    reasons = [choice.get("finish_reason") for _, choice in parts]
    deltas = [members(choice.get("delta")) for _, choice in parts]
    has_call = any(elements(delta.get("tool_calls")) for delta in deltas)
    if "tool_calls" in reasons and not has_call:
        yield Finding("C3", "the reason is tool_calls, without a call", event=parts[-1][0])
    if OLD_CALL in reasons and not any(delta.get(OLD_CALL) for delta in deltas):
        yield Finding("C3", "the reason is function_call, without a call", event=parts[-1][0])
    if has_call and names_function is False and "stop" in reasons:
        yield Finding("C3", "the reason is stop, although there is a call", event=parts[reasons.index("stop")][0])
    if has_call and names_function and "tool_calls" in reasons:
        place = parts[reasons.index("tool_calls")][0]
        yield Finding("C3", "the reason is tool_calls, although the request names the function", "reason-of-named", place)


def _function_of(call: Mapping[str, object]) -> Mapping[str, object]:
    return members(call.get("function") or call.get("custom"))


def _check_call_start(index: int, call: Mapping[str, object]) -> Iterator[Finding]:
    has_names = all(isinstance(name, str) and name for name in (call.get("id"), _function_of(call).get("name")))
    if not has_names or call.get("type") not in _CALL_TYPES:
        yield Finding("C4", "the id, the type and the name come together, once", event=index)


def _names_function(request: Body) -> bool:
    """Return whether a request names the tool to call."""
    choice = members(request.get("tool_choice") or request.get(OLD_CALL))
    return bool(members(choice.get(as_text(choice.get("type")), choice)).get("name"))


_E = ChatEffect

_EMITTED: Final[Mapping[str, Sequence[str]]] = {
    _E.ROLE: ["delta.role"],
    _E.NULL_ROLE: ["delta.role"],
    _E.CONTENT: ["delta.content"],
    _E.REFUSAL: ["delta.refusal"],
    _E.REASONING: ["delta.reasoning"],
    _E.CALL: ["start call"],
    _E.ARGUMENTS: ["delta.tool_calls"],
    _E.FINISH: ["finish_reason"],
    _E.ERROR: ["error"],
}
_DELTAS: Final = {"delta.content", "delta.refusal", "delta.reasoning", "delta.tool_calls"}


class ChatJudge(DialectJudge):
    """Validates a stream of Chat Completions."""

    api = "chat"
    framing_rule = "C8"
    rules = read_rows(_RULES, Rule)
    emitted = _EMITTED
    automaton = transducer_automaton(CHAT, _EMITTED, _DELTAS)
    stateless = frozenset({"", "usage"})

    @staticmethod
    def recognizes(body: Body) -> bool:
        """Return whether a body has the shape of this API."""
        if body.get("type") or body.get("object") == "response":
            return False
        is_chat = as_text(body.get("object")).startswith("chat.completion")
        return is_chat or "choices" in body or body.get("error") is not None

    @staticmethod
    def name_event(body: Body) -> str:
        """Name a chunk by the first thing that it has."""
        choice = members(next(iter(elements(body.get("choices"))), None))
        delta = members(choice.get("delta"))
        if "error" in body:
            return "error"
        if "role" in delta:
            return "delta.role"
        if calls := elements(delta.get("tool_calls")):
            return "start call" if "id" in members(calls[0]) else "delta.tool_calls"
        for name in ("content", "refusal", "reasoning_content", "reasoning"):
            if isinstance(delta.get(name), str):
                return "delta.reasoning" if name.startswith("reasoning") else f"delta.{name}"
        if choice.get("finish_reason") is not None:
            return "finish_reason"
        return "usage" if body.get("usage") is not None else ""

    @staticmethod
    def make_transducer() -> ChatTransducer:
        """Return a transducer that also sends the usage."""
        return ChatTransducer(usage=True)

    @staticmethod
    def check_emitted(events: Sequence[Body]) -> list[Finding]:
        """Validate the chunks of a transducer."""
        return check_chat(events, usage=True, names_function=False)

    def _check(self) -> Iterator[Finding]:
        bodies = self._bodies[: self._markers[0][0]] if self._markers else self._bodies
        requested = members(self.request.get("stream_options")).get("include_usage") is True
        usage = requested or any(body.get("usage") is not None for body in bodies)
        yield from check_chat(bodies, usage=usage, names_function=_names_function(self.request) if self.request else None)
        if not self._markers:
            deviation = "no-marker" if any(self._reasons()) else ""
            yield Finding("C8", "the stream has no end marker [DONE]", deviation, len(bodies))
        for index, late in enumerate(self._bodies[len(bodies) :], len(bodies)):
            deviation = "after-marker" if late.get("choices") == [] and late.get("error") is None else ""
            yield Finding("C8", _LATE, deviation, index)
        for index, marker in self._markers[1:]:
            yield Finding("C8", _LATE, event=index, received=marker.event, line=marker.line)

    def _reasons(self) -> Iterator[object]:
        for body in self._bodies:
            yield from (members(choice).get("finish_reason") for choice in elements(body.get("choices")))
            if body.get("error") is not None:
                yield "failed"


JUDGE: Final = ChatJudge
