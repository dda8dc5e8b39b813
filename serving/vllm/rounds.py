"""The hooks in vLLM's loop over rounds of generation.

vLLM's loop tells a context of each output, asks it after each round whether a tool of the server's was called, has it run the
tool, and generates on. `Rounds` takes the place of those three methods on the context of one request: it keeps the outputs
instead of parsing them token by token, and tells when a tool starts and how it ended (rule R11). What vLLM needs for the next
round, the messages of the one that ended, is parsed once, when it has ended.

It knows vLLM's loop and its contexts. What the model wrote as events, it does not know; that is the reader's and the driver's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from typing import Final, Protocol, cast

from attrs import define, field

from interlock.events.items import NOT_RUN, NOT_UNDERSTOOD, result_fields
from interlock.fsm.deltas import Delta, Fail, Run, Succeed
from interlock.fsm.driver import ReadyCall
from interlock.serving.faults import is_fault
from interlock.serving.vllm.shapes import Completion, Context, Output, Request

__all__ = ["Dialogue", "Rounds"]

logger = logging.getLogger(__name__)

NO_RESULT: Final = "The tool gave no text."


class Dialogue(Protocol):
    """The messages of one request as vLLM goes on from them, in the form that the model's path has."""

    def take(self, output: Output) -> None:
        """Record an output of a round."""
        ...

    def end_round(self, last: Output) -> bool:
        """End the round whose last output this was, and say whether the model wrote any message in it."""
        ...

    def reply(self, text: str) -> Sequence[object]:
        """Return the messages that tell the model what became of its last call."""
        ...


@define(eq=False)
class Rounds:
    """The rounds of one response.

    Args:
        context: vLLM's; three of its methods are replaced.
        request: vLLM's.
        dialogue: Takes the rounds.
        ready: Returns the calls that wait for their tool.
        timeout: Seconds that a tool may take.
    """

    _context: Context
    _request: Request
    _dialogue: Dialogue
    _ready: Callable[[], Sequence[ReadyCall]]
    _timeout: float
    output: Output | None = field(default=None, init=False)
    """The output that vLLM's loop told of last."""
    told: asyncio.Queue[Sequence[Delta]] = field(factory=asyncio.Queue[Sequence[Delta]], init=False)
    """What happened to tools and was not passed on yet."""
    spent: int = field(default=0, init=False)
    """Tokens generated in all rounds."""
    exhausted: bool = field(default=False, init=False)
    """Whether the tokens of the request are spent."""
    _limit: float = field(init=False)
    """How many there may be."""
    _called: int = field(default=0, init=False)
    _asks: Callable[[], bool] = field(init=False)
    _run_tool: Callable[[], Awaitable[Sequence[object]]] = field(init=False)
    _wrote: bool = field(default=False, init=False)
    _refused: str = field(default="", init=False)
    """What the tool that runs said went wrong."""

    def __attrs_post_init__(self) -> None:
        """Replace the methods of the context."""
        limit = self._request.max_output_tokens
        self._limit = inf if limit is None else limit
        self._asks, self._run_tool = self._context.need_builtin_tool_call, self._context.call_tool
        self._context.append_output = self._append_output
        self._context.need_builtin_tool_call = self._goes_on
        self._context.call_tool = self._call_tool

    def watch(self, sessions: Mapping[str, object]) -> None:
        """Look at what the sessions with tool servers answer: vLLM takes a tool's error for its result.

        Args:
            sessions: By tool; those that are no MCP sessions are left alone.
        """
        for session in sessions.values():
            if callable(getattr(session, "call_tool", None)):
                _watch(cast("Session", session), self._note)

    def _append_output(self, output: Output) -> None:
        self.output = output
        self.spent += len(output.outputs[0].token_ids)
        if self.spent >= self._limit:
            self._exhaust(output.outputs[0])
        self._dialogue.take(output)
        if output.finished:
            self._wrote = self._dialogue.end_round(output)

    def _exhaust(self, new: Completion) -> None:
        """Drop new tokens that are over the limit: up to 0.30, vLLM limits only the first round of gpt-oss."""
        self.exhausted = True
        over = self.spent - int(self._limit)
        if over:
            new.token_ids = new.token_ids[:-over]
            new.finish_reason, self.spent = "length", self.spent - over

    def _goes_on(self) -> bool:
        """Return whether vLLM shall run a tool and generate on."""
        if not (self._wrote and self._asks()):
            return False
        calls = self._request.max_tool_calls
        if self.exhausted or (calls is not None and self._called >= calls):
            return False
        if (tokens := self._request.max_output_tokens) is not None:
            # vLLM gives each round as many tokens as the request has; the limit is of the whole response.
            self._context.request = self._request.model_copy(update={"max_output_tokens": tokens - self.spent})
        return True

    async def _call_tool(self) -> Sequence[object]:
        """Run the tool of the last call, whatever comes of it; the model is told in any case."""
        self._called += 1
        calls = self._ready()
        if not calls:
            return self._dialogue.reply(NOT_UNDERSTOOD)
        *others, call = calls
        self.told.put_nowait([*(Fail(other.id, NOT_RUN) for other in others), Run(call.id)])
        self._refused = ""
        try:
            async with asyncio.timeout(self._timeout):
                messages = await self._run_tool()
            text = _text(messages)
        except TimeoutError:
            return self._failed(call, f"The tool gave no answer within {self._timeout:g} seconds.")
        except BaseException as error:
            if not is_fault(error):
                raise
            return self._failed(call, self._refused or _said(error))
        if self._refused or text is None:
            return self._failed(call, self._refused or NO_RESULT)
        self.told.put_nowait([Succeed(call.id, result_fields(call.kind, text))])
        return messages

    def _failed(self, call: ReadyCall, message: str) -> Sequence[object]:
        logger.warning("%s: a tool failed: %s", self._request.request_id, message)
        self.told.put_nowait([Fail(call.id, message)])
        return self._dialogue.reply(message)

    def _note(self, result: object) -> None:
        """Remember what a tool's result says went wrong."""
        if getattr(result, "is_error", False) or getattr(result, "isError", False):
            self._refused = _content_text(result) or "The tool failed."


class Session(Protocol):
    """A session with an MCP server, of the package `mcp`."""

    call_tool: Callable[..., Awaitable[object]]


def _watch(session: Session, note: Callable[[object], None]) -> None:
    asked = session.call_tool

    async def call_tool(*args: object, **options: object) -> object:
        result = await asked(*args, **options)
        note(result)
        return result

    session.call_tool = call_tool


def _said(error: BaseException) -> str:
    """Return what a tool raised, in words for the reader of the stream and for the model."""
    if isinstance(error, KeyError):
        return f"The tool is not available: {error}."
    if isinstance(error, IndexError | AttributeError):
        return NO_RESULT  # vLLM takes the first text of a result that has none
    return f"The tool failed: {str(error) or type(error).__name__}"


def _text(messages: Sequence[object]) -> str | None:
    """Return the text of what a tool gave: messages of harmony, or outputs of function calls."""
    for message in messages:
        output = getattr(message, "output", None)
        text = output if isinstance(output, str) else _content_text(message)
        if text is not None:
            return text
    return None


def _content_text(holder: object) -> str | None:
    """Return the first text in the `content` of a message or of an MCP result."""
    for part in cast("Sequence[object]", getattr(holder, "content", None) or ()):
        text = getattr(part, "text", None)
        if isinstance(text, str):
            return text
    return None
