"""The second judge of the proof: compares the events with the visible effects that each delta must have.

The first judge, `interlock.verify.oracle`, sees only the stream, and a legal stream can still be false: it can lose text, or show
a failed call as completed. The expectation reads the same deltas as the driver and derives their effects (items, texts, running
calls, ends) from rules R4, R11, R12, R15, R17 and R18 (docs/evidence/rules.md) and the definitions of the deltas. It uses no
lifecycle and no driver. It does not compare the order of the effects of one delta, which the oracle checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Final, TypeAlias, assert_never

import orjson
from attrs import define, field

from interlock.fsm import deltas
from interlock.verify.oracle import LETTERS, ORDERS, RUNNING, SERVER_MADE, TEXT_FIELDS, WHOLE, JsonObject, spell

MARK: Final = "é"
"""The text that the annotations of the proof refer to."""

_RUNNING: Final = {kind: f"response.{spell(letters[0])}" for kind, letters in RUNNING.items()}
"""The event that reports a running tool (rule R11), by kind of item."""
_RUNNING_EVENTS: Final = frozenset(_RUNNING.values())
_TEXT: Final = {
    **{
        kind: name
        for kind, orders in ORDERS.items()
        for name, letter in LETTERS.items()
        if name.endswith(".delta") and any(letter in order.pattern for order in orders.values())
    },
    "message": "response.output_text.delta",
    "reasoning": "response.reasoning_text.delta",
}
"""The event that carries text, by kind of item."""
WITH_ARGUMENTS: Final = frozenset(kind for kind, name in TEXT_FIELDS.items() if name == "arguments")
"""The kinds whose text is the arguments of a call; blank or null ones become `{}` (rule R18)."""
_REFUSAL: Final = {"message": "response.refusal.delta"}
_SUMMARY: Final = {"reasoning": "response.reasoning_summary_text.delta"}

_CUT: Final = {
    kind: next((status for status in ("incomplete", "failed", "in_progress") if status in orders), "completed")
    for kind, orders in ORDERS.items()
}
"""The status of a truncated item, by kind; an item without any status counts as `completed`."""
_FAILED: Final = {
    kind: "failed" if "failed" in orders or f"response.{kind}.failed" in LETTERS else "completed"
    for kind, orders in ORDERS.items()
}
"""The status of a failed item, by kind."""


@define
class VisibleEffects:
    """The visible effects of one delta."""

    opening: list[str] = field(factory=list[str])
    """The events that open the response, and the events that only keep it alive."""
    added: list[str] = field(factory=list[str])
    """The kinds of the added items."""
    texts: list[tuple[str, object]] = field(factory=list[tuple[str, object]])
    """The event name and the delta of each chunk of text."""
    parts: int = 0
    """How many parts end."""
    attachments: list[JsonObject] = field(factory=list[JsonObject])
    """The annotations and partial images."""
    running: set[str] = field(factory=set[str])
    """The ids of the items whose tool is reported to run."""
    ended: dict[str, str] = field(factory=dict[str, str])
    """The status of each item that ends, by its id."""
    outcome: tuple[str, str | None, int] | None = None
    """The final status of the response, the reason for it, and the total tokens."""

    @classmethod
    def of(cls, events: Iterable[JsonObject]) -> VisibleEffects:
        """Return the effects that the events show."""
        effects = cls()
        for body in events:
            effects._add(body["type"], body)
        return effects

    def _add(self, name: str, body: JsonObject) -> None:
        match name:
            case "response.created" | "response.queued" | "response.in_progress" | "keepalive":
                self.opening.append(name)
            case "response.completed" | "response.incomplete" | "response.failed":
                self.outcome = _outcome(body["response"])
            case "response.output_item.added":
                self.added.append(body["item"]["type"])
            case "response.output_item.done":
                self.ended[body["item"]["id"]] = _status(body["item"])
            case (
                "response.content_part.done"
                | "response.reasoning_summary_part.done"
                | "response.shell_call_command.done"
                | "response.shell_call_output_content.done"
            ):
                self.parts += 1
            case "response.output_text.annotation.added":
                self.attachments.append(body["annotation"])
            case "response.image_generation_call.partial_image":
                self.attachments.append({"partial_image_b64": body.get("partial_image_b64")})
            case _ if "delta" in body:
                self.texts.append((name, body["delta"]))
            case _ if name in _RUNNING_EVENTS:
                self.running.add(body["item_id"])
            case _:
                pass


def decode(frame: bytes) -> JsonObject:
    """Return the JSON object of an event's frame."""
    body: JsonObject = orjson.loads(frame.partition(b"data: ")[2])
    return body


def _status(item: JsonObject) -> str:
    """Return an item's status; an item without one failed if it has an error, and else completed."""
    status: str | None = item.get("status")
    return status or ("failed" if item.get("error") else "completed")


def _outcome(response: JsonObject) -> tuple[str, str | None, int]:
    error: JsonObject = response["error"] or {}
    details: JsonObject = response["incomplete_details"] or {}
    usage: JsonObject = response["usage"] or {"total_tokens": -1}  # a wrong lifecycle may end without usage
    return response["status"], error.get("code") or details.get("reason"), usage["total_tokens"]


_ItemKey: TypeAlias = tuple[str, tuple[bool, bool, bool], str | None, bool, str, bool, bool]
StateKey: TypeAlias = tuple[str, _ItemKey | None, tuple[tuple[str, bool], ...]]
"""The state of an expectation without ids and texts."""


@define
class _ExpectedItem:
    """The item that is being written."""

    kind: str
    id: str | None = None
    """None until the item is added."""
    part: str | None = None
    """The name of the event that carries the text of the open part."""
    has_logprobs: bool = False
    """Whether all text of the open part has log probabilities (rule R15)."""
    pending: str = ""
    """Text that waits for other text: white space, or `null` where arguments begin (rule R18)."""
    pending_has_logprobs: bool = False
    """Whether all pending text has log probabilities, which may come before their text."""
    text: str = ""
    """The text of the open part."""
    annotated_until: int = 0
    """Where the last annotated passage ends in that text."""
    only_encrypted: bool = False
    """Whether the item has encrypted content and no text so far."""
    ends_at_once: bool = False
    """Whether the item ends as soon as it is added."""
    has_arguments: bool = False
    """Whether a delta has had arguments."""

    @property
    def state_key(self) -> _ItemKey:
        marked = MARK in self.text[self.annotated_until :]
        presence = self.id is not None, self.only_encrypted, self.has_arguments
        return (
            self.kind,
            presence,
            self.part,
            self.has_logprobs,
            self.pending.strip() or self.pending[:1],
            self.pending_has_logprobs,
            marked,
        )

    def find(self, mark: str) -> JsonObject | None:
        """Return the position of the next match of `mark` and move past it, or return None if there is no match."""
        start = self.text.find(mark, self.annotated_until)
        if start < 0:
            return None
        self.annotated_until = start + len(mark)
        return {"start_index": start, "end_index": self.annotated_until}


@define
class Expectation:
    """Follows the deltas of a driver, and compares its events with the expected effects."""

    _status: str = "absent"
    _active: _ExpectedItem | None = None
    _waiting: dict[str, str] = field(factory=dict[str, str])
    _running: set[str] = field(factory=set[str])
    _results: dict[str, JsonObject] = field(factory=dict[str, JsonObject])
    _tokens: int = 0
    _expected: VisibleEffects = field(factory=VisibleEffects, init=False)
    """The effects that the current delta must have."""

    def fork(self) -> Expectation:
        """Return a copy that can follow another path."""
        active = None if self._active is None else copy(self._active)
        return Expectation(self._status, active, {**self._waiting}, {*self._running}, {**self._results}, self._tokens)

    def compare(self, delta: deltas.Delta, events: Sequence[JsonObject]) -> str | None:
        """Follow a delta, and return how the driver's events differ from its expected effects, or None."""
        self._expected = VisibleEffects()
        if self._status in {"absent", "queued", "in_progress"}:
            self._expect(delta)
        for body in events:
            if body["type"] == "response.output_item.added":
                self._set_id(body["item"]["id"])
        effects = VisibleEffects.of(events)
        if effects != self._expected:
            return f"{delta!r} had {effects!r} instead of {self._expected!r}"
        for body in events:
            if body["type"] == "response.output_item.done" and not self._carries_result(body["item"]):
                return f"{body['item']!r} lacks the result of its tool"
        return None

    @property
    def state_key(self) -> StateKey:
        """The state of the expectation without ids and texts, for the abstract state of the exploration."""
        active = self._active
        state_key = None if active is None else active.state_key
        waiting = sorted((kind, item_id in self._running) for item_id, kind in self._waiting.items())
        return self._status, state_key, tuple(waiting)

    def _carries_result(self, item: JsonObject) -> bool:
        return all(item.get(name) == value for name, value in self._results.get(item["id"], {}).items())

    def _expect(self, delta: deltas.Delta) -> None:  # noqa: C901, PLR0912 - one case for each delta
        match delta:
            case str(text):
                self._write(_TEXT, "message", text)
            case deltas.Text(text, logprobs):
                self._write(_TEXT, "message", text, has_logprobs=bool(logprobs))
            case deltas.Refusal(text):
                self._write(_REFUSAL, "message", text)
            case deltas.Summary(text):
                self._write(_SUMMARY, "reasoning", text)
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
                self._expect_of_tool(delta)
            case deltas.Start():
                self._begin()
            case deltas.Enqueue():
                if self._status == "absent":
                    self._status = "queued"
                    self._expected.opening += ["response.created", "response.queued"]
            case deltas.Silence():
                self._expected.opening += [] if self._status == "absent" else ["keepalive"]
            case deltas.EndTurn(reason, usage):
                self._tokens += 0 if usage is None else usage.input_tokens + usage.output_tokens
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

    def _expect_of_tool(self, delta: deltas.Run | deltas.Progress | deltas.EndOutput | deltas.Succeed | deltas.Fail) -> None:
        match delta:
            case deltas.Run(item_id):
                self._run(item_id)
            case deltas.Progress(item_id, fields):
                self._progress(item_id, fields)
            case deltas.EndOutput(item_id):
                if self._kind_of(item_id) == "shell_call_output":
                    self._running.discard(item_id)
                    self._expected.parts += 1
            case deltas.Succeed(item_id, fields):
                self._run(item_id)
                self._stop_printing(item_id)
                if self._waiting.pop(item_id, None) is not None:
                    self._expected.ended[item_id] = "completed"
                    self._results[item_id] = fields
            case deltas.Fail(item_id):
                if self._kind_of(item_id) is not None:
                    self._close_call(item_id)
                    self._fail(item_id)
            case _:
                assert_never(delta)

    def _progress(self, item_id: str, fields: JsonObject) -> None:
        """Expect the output of a running tool."""
        match self._kind_of(item_id):
            case "image_generation_call":
                self._run(item_id)
                self._expected.attachments.append(fields)
            case "shell_call_output":
                self._running.add(item_id)
                delta_fields = {name: fields.get(name, "") for name in ("stdout", "stderr")}
                self._expected.texts.append(("response.shell_call_output_content.delta", delta_fields))
            case _:
                pass

    def _annotate(self, annotation: JsonObject, mark: str) -> None:
        """Expect an annotation of output text; with `mark`, also the position of that passage, as in a `url_citation`."""
        active = self._active
        if active is None or active.part != _TEXT["message"]:
            return
        place: JsonObject | None = active.find(mark) if mark else {}
        if place is not None:
            self._expected.attachments.append({**annotation, **place})

    def _end_turn(self, reason: deltas.FinishReason) -> None:
        match reason:
            case "stop":
                self._begin()
                self._close()
            case "cut" if self._active is None or self._active.kind in {"message", "reasoning"}:
                self._end_turn("stop")
            case "cut":
                self._end("incomplete", None)
            case "length":
                self._end("incomplete", "max_output_tokens")
            case "content_filter":
                self._end("incomplete", "content_filter")
            case "steered":
                self._end("incomplete", "steered")
            case "abort":
                self._end("cancelled", None)
            case "error":
                self._end("failed", "server_error")
            case _:
                assert_never(reason)

    def _begin(self) -> None:
        if self._status == "absent":
            self._expected.opening.append("response.created")
        if self._status in {"absent", "queued"}:
            self._expected.opening.append("response.in_progress")
            self._status = "in_progress"

    def _open(self, kind: str, *, sealed: bool = False) -> None:
        self._begin()
        self._close()
        self._active = _ExpectedItem(kind, only_encrypted=sealed)
        if sealed or kind not in {"message", "reasoning"}:  # these are added with their first text (rule R18)
            self._expected.added.append(kind)

    def _set_id(self, item_id: str) -> None:
        """Record the id of the active item from its `added` event; an item that the model does not write becomes inactive."""
        match self._active:
            case _ExpectedItem(kind) if kind in SERVER_MADE:
                self._waiting[item_id], self._active = kind, None
            case _ExpectedItem(kind, ends_at_once=ends) if ends or kind == "mcp_approval_request" or kind in WHOLE:
                self._expected.ended[item_id], self._active = "completed", None
            case _ExpectedItem() as active:
                active.id = item_id
            case _:
                pass

    def _write(  # noqa: C901 - one case for each kind, in one place
        self, names: Mapping[str, str], kind: str, text: str, *, has_logprobs: bool = False
    ) -> None:
        """Expect a chunk of text; an empty one does nothing unless it has log probabilities."""
        if not text and not has_logprobs:
            return
        if self._active is None or self._active.kind not in names:
            self._open(kind)
        active = self._active
        assert active is not None  # noqa: S101 - for the type checkers: one was opened
        name = names[active.kind]
        active.pending_has_logprobs = (
            has_logprobs and active.kind == "message" and (active.pending_has_logprobs or not active.pending)
        )
        if not text:
            return
        active.pending += text
        if active.kind in {"message", "reasoning"}:
            if (active.id is None or active.only_encrypted) and not active.pending.strip():
                return
            active.only_encrypted = False
            if active.id is None:
                self._expected.added.append(active.kind)
            if active.part != name or active.has_logprobs is not active.pending_has_logprobs:
                self._end_part()
            active.part, active.has_logprobs = name, active.pending_has_logprobs
            active.text += active.pending
        elif active.kind == "shell_call":
            active.part = name
        elif active.kind in WITH_ARGUMENTS:
            active.has_arguments = active.has_arguments or active.pending.strip() not in {"", "null"}
            if not active.has_arguments:
                return
        self._expected.texts.append((name, active.pending))
        active.pending, active.pending_has_logprobs = "", False

    def _end_part(self) -> None:
        if self._active is not None and self._active.part is not None:
            self._expected.parts += 1
            self._active.part, self._active.has_logprobs = None, False
            self._active.text, self._active.annotated_until = "", 0

    def _close(self, *, sealed: bool = False) -> None:
        """Close the active item: a hosted call waits for its tool, any other item is completed."""
        self._end_part()
        active, self._active = self._active, None
        if active is not None and active.kind in WITH_ARGUMENTS and not active.has_arguments:
            self._expected.texts.append((_TEXT[active.kind], "{}"))
        if sealed and active is not None and active.kind == "reasoning" and active.id is None:
            self._expected.added.append("reasoning")
            active.ends_at_once, self._active = True, active
        if active is not None and active.id is not None:
            if active.kind in _RUNNING:
                self._waiting[active.id] = active.kind
            else:
                self._expected.ended[active.id] = "completed"

    def _kind_of(self, item_id: str) -> str | None:
        """Return the kind of an open hosted call, or None."""
        active = self._active
        if active is not None and active.id == item_id and active.kind in _RUNNING:
            return active.kind
        return self._waiting.get(item_id)

    def _close_call(self, item_id: str) -> None:
        if self._active is not None and self._active.id == item_id:
            self._close()

    def _run(self, item_id: str) -> None:
        """Expect one report that a call runs."""
        if self._kind_of(item_id) is not None:
            self._close_call(item_id)
            if self._waiting[item_id] in _RUNNING and item_id not in self._running:
                self._running.add(item_id)
                self._expected.running.add(item_id)

    def _stop_printing(self, item_id: str) -> None:
        """Expect the end of a command's output if the command has printed something."""
        if self._kind_of(item_id) == "shell_call_output" and item_id in self._running:
            self._running.discard(item_id)
            self._expected.parts += 1

    def _fail(self, item_id: str | None) -> None:
        kind = self._waiting.get(item_id) if item_id is not None else None
        if item_id is not None and kind is not None:
            self._stop(item_id, kind, _FAILED[kind])
            del self._waiting[item_id]

    def _stop(self, item_id: str, kind: str, status: str) -> None:
        """Expect an item to end without a result; a call whose arguments end when it runs also ends them."""
        self._expected.ended[item_id] = status
        if kind == "shell_call_output":
            self._stop_printing(item_id)
        if _RUNNING.get(kind, "").endswith(".done") and item_id not in self._running:
            self._expected.running.add(item_id)

    def _end(self, status: str, reason: str | None) -> None:
        """Expect the end of the response: the active item is truncated, and waiting calls fail (rules R4 and R12)."""
        self._begin()
        self._end_part()
        active, self._active = self._active, None
        if active is not None and active.id is not None:
            self._stop(active.id, active.kind, _CUT[active.kind])
        for item_id in [*self._waiting]:
            self._fail(item_id)
        self._status = status
        self._expected.outcome = (status, reason, self._tokens)
