"""Fixes of vLLM's own Responses API, to measure what each would give: `benchmarks/turns/vllm_turns.py fixes`.

    PYTHONPATH=tests/real_vllm vllm serve MODEL --middleware fixes.Fixes

Each function of `FIXES` fixes one of the faults in benchmarks/turns/faults.py. It wraps functions of vLLM, so that vLLM's code is
not copied here; its docstring has their lines in the tags v0.32.0 and v0.33.0. A request chooses how many fixes apply to it, in
that order, by its header `fixes`; without the header, all do.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, Literal

_CHOSEN: Final = ContextVar[int]("_CHOSEN")
"""How many fixes apply to the current request."""
_CUT: Final = ContextVar[Any]("_CUT", default=None)
"""The harmony message that the end of the current response has cut."""


def white_space(replace: Callable[..., None]) -> None:
    """A text has no white space around it, streamed and not.

    serving.py:1033 and 1236 (0.33: 1050 and 1259), where a parser is called.
    """
    from vllm.entrypoints.openai.responses import serving  # noqa: PLC0415 - the benchmark reads `FIXES` without vLLM

    def make(original: Any, *args: Any, **options: Any) -> Any:
        parser = original(*args, **options)
        if parser is not None:
            parser.parse_delta, parser.parse = _bare_deltas(parser.parse_delta), _bare_text(parser.parse)
        return parser

    replace(serving.OpenAIServingResponses, "_make_response_parser", make)


def _bare_text(parse: Any) -> Any:
    def bare(*args: Any, **options: Any) -> Any:
        reasoning, content, calls = parse(*args, **options)
        return reasoning, (content or "").strip() or None, calls

    return bare


def _bare_deltas(parse_delta: Any) -> Any:
    before = held = ""  # the text of the current message, and the white space that waits for more of it

    def bare(*args: Any, **options: Any) -> Any:
        nonlocal before, held
        delta = parse_delta(*args, **options)
        if delta is None:
            return None
        if delta.reasoning:
            before = held = ""
        if delta.content:
            text = held + delta.content if before else delta.content.lstrip()
            content = text.rstrip()
            before, held = before or content, text[len(content) :]
            delta.content = content or None
        if delta.tool_calls:
            before = held = ""
        return delta if delta.content or delta.reasoning or delta.tool_calls else None

    return bare


def last_event(replace: Callable[..., None]) -> None:
    """The last event of an incomplete response is `response.incomplete`.

    serving.py:1419 (0.33 does so itself: 1446).
    """
    from vllm.entrypoints.openai.responses import protocol, serving  # noqa: PLC0415 - likewise

    class Incomplete(protocol.ResponseCompletedEvent):
        type: Literal["response.incomplete"]

    def end(original: Any, *, response: Any, **fields: Any) -> Any:
        if response.status == "incomplete":
            return Incomplete(**{**fields, "type": "response.incomplete"}, response=response)
        return original(response=response, **fields)

    replace(serving, "ResponseCompletedEvent", end)


def fields_of_events(replace: Callable[..., None]) -> None:
    """When a call of a function is done, it lacks `output_index` and `sequence_number`.

    streaming_events.py:503-504 (0.33: likewise), two arguments.
    """
    from vllm.entrypoints.openai.responses import streaming_events  # noqa: PLC0415 - likewise

    def done(original: Any, *args: Any) -> Any:
        events = original(*args)
        for name in ("output_index", "sequence_number"):
            events[-1].item.model_extra.pop(name, None)
        return events

    replace(streaming_events, "emit_function_call_done_events", done)


def empty_items(replace: Callable[..., None]) -> None:
    """An item without text is in the stream too.

    streaming_events.py:616 (0.33: likewise), where vLLM's comment calls it a bug.
    """
    from vllm.entrypoints.openai.responses import serving  # noqa: PLC0415 - likewise
    from vllm.parser.harmony import Segment  # noqa: PLC0415 - likewise

    class Nothing(str):
        """A delta without text, which vLLM does not skip."""

        __slots__ = ()

        def __bool__(self) -> bool:
            return True

    def done(original: Any, message: Any, state: Any, names: Any = None) -> Any:
        events: list[Any] = []
        if not (state.sent_output_item_added or state.is_first_function_call_delta):
            segment = Segment(message.channel, message.recipient, Nothing())
            events = [event for event in serving.emit_content_delta_events(segment, state, names) if ".delta" not in event.type]
        return [*events, *original(message, state, names)]

    replace(serving, "emit_previous_item_done_events", done)


def code_calls(replace: Callable[..., None]) -> None:
    """A call of the code interpreter is one in the last event and not streamed, as it is in the stream.

    harmony.py:476 (0.33: likewise), which makes it reasoning.
    """
    from openai.types.responses import ResponseCodeInterpreterToolCall  # noqa: PLC0415 - likewise
    from vllm.entrypoints.openai.responses import serving  # noqa: PLC0415 - likewise

    def items(original: Any, message: Any, *args: Any, incomplete: bool = False) -> Any:
        if message.author.role != "assistant" or message.recipient != "python":
            return original(message, *args, incomplete=incomplete)
        call = ResponseCodeInterpreterToolCall(
            type="code_interpreter_call",
            id=f"tool_{serving.random_uuid()}",
            code=message.content[0].text,
            container_id="auto",
            outputs=[],
            status="incomplete" if incomplete else "completed",
        )
        return [call]

    replace(serving, "harmony_to_response_output", items)


def status_of_items(replace: Callable[..., None]) -> None:
    """An item of gpt-oss is `incomplete`, when it is done and not streamed, if it is the last of an incomplete response.

    context.py:699 (0.33: 701) takes a message without its end for one; streaming_events.py:426 and its like write `completed`.
    """
    from vllm.entrypoints.openai.responses import context, serving  # noqa: PLC0415 - likewise

    def append(original: Any, self: Any, output: Any) -> None:
        original(self, output)
        is_last = self.last_append_flush_status and self.finish_reason == "length" and not self.need_builtin_tool_call()
        _CUT.set(self.last_append_segments[-1].completed_message if is_last else None)

    def done(original: Any, message: Any, *args: Any) -> Any:
        events = original(message, *args)
        if events and message is _CUT.get():
            events[-1].item.status = "incomplete"
        return events

    def items(original: Any, message: Any, names: Any, **_: Any) -> Any:
        return original(message, names, incomplete=message is _CUT.get())

    replace(context.HarmonyContext, "append_output", append)
    replace(serving, "emit_previous_item_done_events", done)
    replace(serving, "harmony_to_response_output", items)


FIXES: Final = (white_space, last_event, fields_of_events, empty_items, code_calls, status_of_items)
"""In the order in which they apply."""


class Fixes:
    """Applies as many fixes to a request as its header `fixes` says."""

    def __init__(self, app: Any) -> None:
        self._app = app
        for number, fix in enumerate(FIXES, 1):
            fix(_replacing(number))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        _CHOSEN.set(int(dict(scope.get("headers", ())).get(b"fixes", len(FIXES))))
        await self._app(scope, receive, send)


def _replacing(number: int) -> Callable[..., None]:
    """Return a function that wraps one of an owner, by its name; the wrapper gets it, and is called if this fix applies."""

    def replace(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        def chosen(*args: Any, **options: Any) -> Any:
            if _CHOSEN.get(0) >= number:
                return wrapper(original, *args, **options)
            return original(*args, **options)

        setattr(owner, name, chosen)

    return replace
