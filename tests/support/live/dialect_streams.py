"""Streams of Messages and Chat Completions, made by the driver and the transducers from the same deltas."""

import json

from interlock.dialects.chat import ChatTransducer
from interlock.dialects.messages import MessagesTransducer
from interlock.dialects.transducer import EntryWriter
from interlock.fsm import SequentialIds, deltas
from interlock.fsm.driver import ResponseDriver

RESULT = deltas.Succeed("mcp_1", {"output": "three"})
CALLS = deltas.Open("mcp_call", {"server_label": "s", "name": "t"})
CLIENT_CALL = deltas.Open("function_call", {"name": "f", "call_id": "call_a"})


def entries():
    """Reasoning, a call of the server whose result comes while a text is open, and a call of the client."""
    driver = ResponseDriver({"model": "m"}, writer=EntryWriter(), ids=SequentialIds(), clock=lambda: 7)
    frames = driver.feed([deltas.Start(), deltas.Open("reasoning"), "Hm.", deltas.Close(), CALLS, '{"q": 2}', deltas.Close()])
    frames += driver.feed([deltas.Run(call.id) for call in driver.ready])
    written = [deltas.Open("message"), "Mean", RESULT, "while.", deltas.Close(), CLIENT_CALL, '{"a": 1}', deltas.Close()]
    return [*frames, *driver.feed([*written, deltas.EndTurn("stop"), deltas.Finish()])]


def messages():
    """The stream in Messages."""
    return MessagesTransducer().encode(entries())


def chat():
    """The stream in Chat Completions."""
    return ChatTransducer(usage=True).encode(entries())


def broken_messages():
    """The stream in Messages with a delta that belongs to another block (rule M2)."""
    whole = messages()
    return whole.replace(b'"index":2,"delta"', b'"index":1,"delta"', 1)


MESSAGES = [json.loads(frame.partition(b"data: ")[2]) for frame in messages().split(b"\n\n") if frame]
