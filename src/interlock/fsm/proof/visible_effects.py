"""What a stretch of events shows to a reader, put so that it can be compared with what was due.

It knows which events say what. It judges nothing, and keeps of the order of events only that of texts and items.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from attrs import define, field

from interlock.fsm.oracle import grammar
from interlock.fsm.oracle.grammar import spelled

Body: TypeAlias = Mapping[str, Any]
"""The JSON object of an event."""

RUNNING: Final = {
    **{kind: f"response.{spelled(running)}" for kind, (running, _) in grammar.RUNNING.items()},
    "compaction": "response.compaction.compacting",
}
"""The hosted calls, and how it is said that one runs (rule R11), as the oracle has it."""
_RUNNING: Final = frozenset(RUNNING.values())


@define
class Effects:
    """What one delta did, as far as a reader of the stream can see.

    Args:
        opening: The events that opened the response.
        added: The kinds of the items that were added.
        said: The wire name and the delta of each piece of text.
        parts: How many parts came to their end.
        shown: The annotations and partial images.
        ran: The ids of the calls that were said to run.
        ended: The ids of the items that ended, and how; for one that ends as it begins, its kind.
        over: How the response ended: its status, the reason that it gives, and the tokens that it cost.
    """

    opening: list[str] = field(factory=list[str])
    added: list[str] = field(factory=list[str])
    said: list[tuple[str, object]] = field(factory=list[tuple[str, object]])
    parts: int = 0
    shown: list[Body] = field(factory=list[Body])
    ran: set[str] = field(factory=set[str])
    ended: dict[str, str] = field(factory=dict[str, str])
    over: tuple[str, str | None, int] | None = None

    @classmethod
    def of(cls, events: Iterable[Body]) -> Effects:
        """Return what events show."""
        seen = cls()
        for body in events:
            seen._note(body["type"], body)
        return seen

    def _note(self, name: str, body: Body) -> None:
        match name:
            case "response.created" | "response.queued" | "response.in_progress":
                self.opening.append(name)
            case "response.completed" | "response.incomplete" | "response.failed":
                self.over = _over(body["response"])
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
                self.shown.append(body["annotation"])
            case "response.image_generation_call.partial_image":
                self.shown.append({"partial_image_b64": body.get("partial_image_b64")})
            case _ if "delta" in body:
                self.said.append((name, body["delta"]))
            case _ if name in _RUNNING:
                self.ran.add(body["item_id"])
            case _:
                pass


def _status(item: Body) -> str:
    """Return an item's status; one of a type that has none says by its error that it failed."""
    status: str | None = item.get("status")
    return status or ("failed" if item.get("error") else "completed")


def _over(response: Body) -> tuple[str, str | None, int]:
    error: Body = response["error"] or {}
    details: Body = response["incomplete_details"] or {}
    usage: Body = response["usage"] or {"total_tokens": -1}  # a wrong lifecycle may end without having counted
    return response["status"], error.get("code") or details.get("reason"), usage["total_tokens"]
