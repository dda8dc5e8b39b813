"""Compaction while a response is made: a run of its own writes the summary, whose item is then sealed.

It knows runs and drivers. How a summary is asked for, and what it takes the place of, the hosts say.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, Protocol, cast

from attrs import frozen

from interlock.fsm.deltas import Delta, EndTurn, Open, Run, Start, Succeed, Usage
from interlock.fsm.driver import ResponseDriver
from interlock.serving.requests.api_errors import EngineError, PromptError
from interlock.serving.requests.json_values import elements, members

__all__ = ["FAILED", "Compaction", "CompactionError", "Summary", "compacting", "summary", "summary_of"]

FAILED: Final = "The conversation could not be compacted: "
"""What the message of an error begins with that says why there is no summary."""


class Writing(Protocol):
    """A run that writes a summary."""

    @property
    def driver(self) -> ResponseDriver[Any]:
        """Makes its events."""
        ...

    def events(self) -> AsyncGenerator[Any, None]:
        """Make the response."""
        ...


class CompactionError(EngineError):
    """A conversation was not compacted, and so the response fails: nothing of the conversation may be lost."""


@frozen
class Summary:
    """What came of a run that was to write a summary.

    Args:
        text: The summary.
        usage: What the run cost.
        fault: Why there is none; None if there is one.
    """

    text: str
    usage: Usage
    fault: EngineError | None = None


@frozen(eq=False)
class Compaction:
    """How the conversation of one response is compacted.

    Args:
        is_due: Returns whether it is to be, by the length of the prompt.
        begin: Returns the run that writes the summary.
        seal: Returns a summary sealed.
        take: Puts a summary into the place of the conversation.
        alone: Whether nothing else is wanted of the response.
    """

    is_due: Callable[[], Awaitable[bool]]
    begin: Callable[[], Awaitable[Writing]]
    seal: Callable[[str], str]
    take: Callable[[str], Awaitable[None]]
    alone: bool = False


async def compacting(driver: ResponseDriver[Any], compaction: Compaction) -> AsyncGenerator[Sequence[Delta], None]:
    """Compact the conversation of a response.

    Args:
        driver: The response's.
        compaction: How.

    Yields:
        The deltas of the item and of what it cost.

    Raises:
        EngineError: There is no summary, or it is not whole; the cost was told before.
    """
    yield [Start(), Open("compaction")]
    item = next(call for call in driver.ready if call.kind == "compaction")
    yield [Run(item.id)]
    summary = await summary_of(await compaction.begin())
    yield [EndTurn("stop", summary.usage)]
    if summary.fault is not None:
        raise summary.fault
    await compaction.take(summary.text)
    yield [Succeed(item.id, {"encrypted_content": compaction.seal(summary.text)})]


async def summary_of(writing: Writing) -> Summary:
    """Return what comes of a run that writes a summary.

    Args:
        writing: The run, not begun.
    """
    async with aclosing(writing.events()) as events:
        async for _ in events:
            pass
    return summary(writing.driver)


def summary(driver: ResponseDriver[Any]) -> Summary:
    """Return the summary that a response is; one that was cut, that failed or that says nothing is none.

    Args:
        driver: The driver of a response that has ended.
    """
    response = driver.response
    text = "".join(_texts(cast("Sequence[Mapping[str, object]]", response["output"]))).strip()
    match response["status"]:
        case "completed" if text:
            return Summary(text, driver.usage)
        case "completed":
            fault: EngineError = CompactionError(f"{FAILED}the model wrote no summary.")
        case "failed" if members(response["error"]).get("code") == PromptError.code:
            fault = PromptError(str(members(response["error"]).get("message")))
        case "failed":
            fault = CompactionError(f"{FAILED}{members(response['error']).get('message')}")
        case status:
            fault = CompactionError(f"{FAILED}the summary is {status}, because it was cut before its end.")
    return Summary("", driver.usage, fault)


def _texts(output: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the texts of the messages among some items."""
    parts = [members(part) for item in output if item["type"] == "message" for part in elements(item["content"])]
    return [str(part["text"]) for part in parts if part["type"] == "output_text"]
