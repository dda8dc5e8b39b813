"""What a reader may expect of a stream, given what the driver was told: the second judge of the proof.

The oracle sees a stream and not what it is about: text that was swallowed, a call that failed and is shown as completed,
leave a legal stream. The account hears the same deltas as the driver and says what each must do, in terms of what can be
seen (who was added, what was said, which calls ran, which items ended how), from rules R4, R11, R12, R17 and R18 and the
definitions of the deltas. It knows no lifecycle, no driver and no order of events inside of what one delta does: order
is the oracle's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Final, TypeAlias, assert_never

from attrs import define, field

from interlock.fsm import deltas
from interlock.fsm.oracle.grammar import WHOLE
from interlock.fsm.proof.visible_effects import RUNNING, Body, Effects
from interlock.fsm.proof.inputs import MARK

_TEXT: Final = {
    "message": "response.output_text.delta",
    "reasoning": "response.reasoning_text.delta",
    "function_call": "response.function_call_arguments.delta",
    "custom_tool_call": "response.custom_tool_call_input.delta",
    "mcp_call": "response.mcp_call_arguments.delta",
    "code_interpreter_call": "response.code_interpreter_call_code.delta",
    "apply_patch_call": "response.apply_patch_call_operation_diff.delta",
    "shell_call": "response.shell_call_command.delta",
}
"""How the text of a kind is said."""
_REFUSAL: Final = {"message": "response.refusal.delta"}
_SUMMARY: Final = {"reasoning": "response.reasoning_summary_text.delta"}

_CUT: Final = {
    **dict.fromkeys(("image_generation_call", "mcp_list_tools"), "failed"),
    "apply_patch_call": "in_progress",
    "program": "completed",
}
"""How a kind whose type has no status `incomplete` ends when it is cut; a kind without status or error cannot say it."""
_FAILED: Final = {"shell_call_output": "completed", "compaction": "completed"}
"""How a kind whose type has no status `failed` ends when its tool failed."""
_WORKS_ALONE: Final = frozenset({"mcp_list_tools", "shell_call_output", "compaction"})
"""The items that the server makes and nobody writes."""


_WrittenStance: TypeAlias = tuple[str, tuple[bool, bool], str | None, bool, bool, bool, bool]
Stance: TypeAlias = tuple[str, _WrittenStance | None, tuple[tuple[str, bool], ...]]


@define
class _Written:
    """The item that is being written.

    Args:
        kind: Its kind.
        id: Its id; none as long as nothing of it was seen.
        part: How the text of its open part is said.
        measured: Whether that part has log probabilities, as it then has for all of its text (rule R15).
        pending_space: White space that waits for other text (rule R18).
        pending_measured: Whether all of what is held has log probabilities; they may have come before their text.
        said: The text of its open part.
        cited: Where in that text the mark of the last annotation ends.
        sealed_only: Whether it is there without any text so far, because its content is encrypted.
        ends: Whether it ends as soon as it is there.
    """

    kind: str
    id: str | None = None
    part: str | None = None
    measured: bool = False
    pending_space: str = ""
    pending_measured: bool = False
    said: str = ""
    cited: int = 0
    sealed_only: bool = False
    ends: bool = False

    @property
    def stance(self) -> _WrittenStance:
        """The same, without id and text."""
        marked = MARK in self.said[self.cited :]
        seen = self.id is not None, self.sealed_only
        return self.kind, seen, self.part, self.measured, bool(self.pending_space), self.pending_measured, marked

    def place(self, mark: str) -> Body | None:
        """Return where the next mark stands; None if there is none."""
        start = self.said.find(mark, self.cited)
        if start < 0:
            return None
        self.cited = start + len(mark)
        return {"start_index": start, "end_index": self.cited}


@define
class Expectation:
    """Follows the deltas that a driver is fed, and compares its events with what they should be."""

    _status: str = "absent"
    _active: _Written | None = None
    _waiting: dict[str, str] = field(factory=dict[str, str])
    _running: set[str] = field(factory=set[str])
    _results: dict[str, Body] = field(factory=dict[str, Body])
    _tokens: int = 0
    _due: Effects = field(factory=Effects, init=False)

    def fork(self) -> Expectation:
        """Return another that has heard the same."""
        active = None if self._active is None else copy(self._active)
        return Expectation(self._status, active, {**self._waiting}, {*self._running}, {**self._results}, self._tokens)

    def compare(self, delta: deltas.Delta, events: Sequence[Body]) -> str | None:
        """Compare the events of a delta with what the account expects.

        Args:
            delta: What the driver was told.
            events: The events that it gave in return.

        Returns:
            What is wrong, or None.
        """
        self._due = Effects()
        if self._status in {"absent", "queued", "in_progress"}:
            self._hear(delta)
        for body in events:
            if body["type"] == "response.output_item.added":
                self._learn(body["item"]["id"])
        seen = Effects.of(events)
        if seen != self._due:
            return f"{delta!r} did {seen!r} instead of {self._due!r}"
        for body in events:
            if body["type"] == "response.output_item.done" and not self._carries_result(body["item"]):
                return f"{body['item']!r} lacks the result of its tool"
        return None

    @property
    def stance(self) -> Stance:
        """What it expects from here on; without ids and texts, so that paths can be told apart by it."""
        active = self._active
        stance = None if active is None else active.stance
        waiting = sorted((kind, item_id in self._running) for item_id, kind in self._waiting.items())
        return self._status, stance, tuple(waiting)

    def _carries_result(self, item: Body) -> bool:
        return all(item.get(name) == value for name, value in self._results.get(item["id"], {}).items())

    def _hear(self, delta: deltas.Delta) -> None:  # noqa: C901, PLR0912 - one case for each delta
        """Note what is due."""
        match delta:
            case str(text):
                self._say(_TEXT, "message", text)
            case deltas.Text(text, logprobs):
                self._say(_TEXT, "message", text, measured=bool(logprobs))
            case deltas.Refusal(text):
                self._say(_REFUSAL, "message", text)
            case deltas.Summary(text):
                self._say(_SUMMARY, "reasoning", text)
            case deltas.Open(kind, fields):
                self._open(kind, sealed=bool(fields.get("encrypted_content")))
            case deltas.Close(fields):
                self._close(sealed=bool(fields.get("encrypted_content")))
            case deltas.EndPart():
                self._end_part()
            case deltas.Annotate(annotation, mark):
                self._annotate(annotation, mark)
            case deltas.Reject():
                item_id = self._active.id if self._active is not None else None
                self._close()
                self._fail(item_id)
            case deltas.Run() | deltas.Progress() | deltas.EndOutput() | deltas.Succeed() | deltas.Fail():
                self._hear_of_tool(delta)
            case deltas.Start():
                self._begin()
            case deltas.Enqueue():
                if self._status == "absent":
                    self._status = "queued"
                    self._due.opening += ["response.created", "response.queued"]
            case deltas.EndTurn(reason, usage):
                self._tokens += usage.input_tokens + usage.output_tokens
                self._end_turn(reason)
            case deltas.Finish():
                self._close()
                self._end("completed", None)
            case deltas.Fault(code):
                self._end("failed", code)
            case deltas.Cancel():
                self._end("cancelled", None)
            case _:
                assert_never(delta)

    def _hear_of_tool(self, delta: deltas.Run | deltas.Progress | deltas.EndOutput | deltas.Succeed | deltas.Fail) -> None:
        match delta:
            case deltas.Run(item_id):
                self._run(item_id)
            case deltas.Progress(item_id, fields):
                self._show(item_id, fields)
            case deltas.EndOutput(item_id):
                if self._kind_of(item_id) == "shell_call_output":
                    self._running.discard(item_id)
                    self._due.parts += 1
            case deltas.Succeed(item_id, fields):
                self._run(item_id)
                self._stop_printing(item_id)
                if self._waiting.pop(item_id, None) is not None:
                    self._due.ended[item_id] = "completed"
                    self._results[item_id] = fields
            case deltas.Fail(item_id):
                if self._kind_of(item_id) is not None:
                    self._put_down(item_id)
                    self._fail(item_id)
            case _:
                assert_never(delta)

    def _show(self, item_id: str, fields: Body) -> None:
        """Note what a running tool has to show."""
        match self._kind_of(item_id):
            case "image_generation_call":
                self._run(item_id)
                self._due.shown.append(fields)
            case "shell_call_output":
                self._running.add(item_id)
                printed = {name: fields.get(name, "") for name in ("stdout", "stderr")}
                self._due.said.append(("response.shell_call_output_content.delta", printed))
            case _:
                pass

    def _annotate(self, annotation: Body, mark: str) -> None:
        """Note an annotation of output text; one with a mark is a `url_citation`, as far as the proof goes."""
        active = self._active
        if active is None or active.part != _TEXT["message"]:
            return
        place: Body | None = active.place(mark) if mark else {}
        if place is not None:
            self._due.shown.append({**annotation, **place})

    def _end_turn(self, reason: deltas.FinishReason) -> None:
        match reason:
            case "stop":
                self._begin()
                self._close()
            case "cut" if self._active is None or not self._active.kind.endswith("_call"):
                self._end_turn("stop")
            case "cut":
                self._end("incomplete", None)
            case "length":
                self._end("incomplete", "max_output_tokens")
            case "content_filter":
                self._end("incomplete", "content_filter")
            case "abort":
                self._end("cancelled", None)
            case "error":
                self._end("failed", "server_error")
            case _:
                assert_never(reason)

    def _begin(self) -> None:
        if self._status == "absent":
            self._due.opening.append("response.created")
        if self._status in {"absent", "queued"}:
            self._due.opening.append("response.in_progress")
            self._status = "in_progress"

    def _open(self, kind: str, *, sealed: bool = False) -> None:
        self._begin()
        self._close()
        self._active = _Written(kind, sealed_only=sealed)
        if sealed or kind not in {"message", "reasoning"}:  # those are not seen before their text (rule R18)
            self._due.added.append(kind)

    def _learn(self, item_id: str) -> None:
        """Record the id of the item that was opened, from its `added` event; some are never written."""
        match self._active:
            case _Written(kind) if kind in _WORKS_ALONE:
                self._waiting[item_id], self._active = kind, None
            case _Written(kind, ends=ends) if ends or kind == "mcp_approval_request" or kind in WHOLE:
                self._due.ended[item_id], self._active = "completed", None
            case _Written() as active:
                active.id = item_id
            case _:
                pass

    def _say(self, names: Mapping[str, str], kind: str, text: str, *, measured: bool = False) -> None:
        """Note a piece of text; one that is empty says nothing at all, unless it has log probabilities."""
        if not text and not measured:
            return
        if self._active is None or self._active.kind not in names:
            self._open(kind)
        active = self._active
        assert active is not None  # noqa: S101 - for the type checkers: one was opened
        name = names[active.kind]
        active.pending_measured = measured and active.kind == "message" and (active.pending_measured or not active.pending_space)
        if not text:
            return
        active.pending_space += text
        if active.kind in {"message", "reasoning"}:
            if (active.id is None or active.sealed_only) and not active.pending_space.strip():
                return
            active.sealed_only = False
            if active.id is None:
                self._due.added.append(active.kind)
            if active.part != name or active.measured is not active.pending_measured:
                self._end_part()
            active.part, active.measured = name, active.pending_measured
            active.said += active.pending_space
        elif active.kind == "shell_call":
            active.part = name
        self._due.said.append((name, active.pending_space))
        active.pending_space, active.pending_measured = "", False

    def _end_part(self) -> None:
        if self._active is not None and self._active.part is not None:
            self._due.parts += 1
            self._active.part, self._active.measured = None, False
            self._active.said, self._active.cited = "", 0

    def _close(self, *, sealed: bool = False) -> None:
        """Close the active item: a hosted call waits for its tool, what else was seen is completed."""
        self._end_part()
        active, self._active = self._active, None
        if sealed and active is not None and active.kind == "reasoning" and active.id is None:
            self._due.added.append("reasoning")
            active.ends, self._active = True, active
        if active is not None and active.id is not None:
            if active.kind in RUNNING:
                self._waiting[active.id] = active.kind
            else:
                self._due.ended[active.id] = "completed"

    def _kind_of(self, item_id: str) -> str | None:
        """Return the kind of a hosted call that has not ended."""
        active = self._active
        if active is not None and active.id == item_id and active.kind in RUNNING:
            return active.kind
        return self._waiting.get(item_id)

    def _put_down(self, item_id: str) -> None:
        if self._active is not None and self._active.id == item_id:
            self._close()

    def _run(self, item_id: str) -> None:
        if self._kind_of(item_id) is not None:
            self._put_down(item_id)
            self._mark(item_id)

    def _mark(self, item_id: str) -> None:
        """Note that a call is said to run, which is said once."""
        if self._waiting[item_id] in RUNNING and item_id not in self._running:
            self._running.add(item_id)
            self._due.ran.add(item_id)

    def _stop_printing(self, item_id: str) -> None:
        """Note that the output of a command ends that has printed and has not ended."""
        if self._kind_of(item_id) == "shell_call_output" and item_id in self._running:
            self._running.discard(item_id)
            self._due.parts += 1

    def _fail(self, item_id: str | None) -> None:
        kind = self._waiting.get(item_id) if item_id is not None else None
        if item_id is not None and kind is not None:
            self._stop(item_id, kind, _FAILED.get(kind, "failed"))
            del self._waiting[item_id]

    def _stop(self, item_id: str, kind: str, status: str) -> None:
        """Note an end without a result; the arguments of an MCP call are whole then, even if it never ran."""
        self._due.ended[item_id] = status
        if kind == "shell_call_output":
            self._stop_printing(item_id)
        if kind == "mcp_call" and item_id not in self._running:
            self._due.ran.add(item_id)

    def _end(self, status: str, reason: str | None) -> None:
        """Note the end: what is being written is cut, what waits has failed (rules R4 and R12)."""
        self._begin()
        self._end_part()
        active, self._active = self._active, None
        if active is not None and active.id is not None:
            self._stop(active.id, active.kind, _CUT.get(active.kind, "incomplete"))
        for item_id in [*self._waiting]:
            self._fail(item_id)
        self._status = status
        self._due.over = (status, reason, self._tokens)
