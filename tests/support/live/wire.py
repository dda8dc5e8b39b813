"""Reads and judges the streams of each API; sends requests of Messages and Chat Completions."""

import json

import httpx
from open_responses_oracle import check_in

from interlock.dialects.chat import ChatTransducer
from interlock.dialects.messages import MessagesTransducer
from interlock.dialects.transducer import EntryWriter
from interlock.events.sse import SseDecoder
from interlock.fsm import SequentialIds, deltas
from interlock.fsm.driver import ResponseDriver
from interlock.judges.chat import check_chat
from interlock.judges.messages import check_messages


def bodies(data, dialect="openai"):
    """The events of a whole stream, which must be legal in its framing, its order and its content."""
    assert b"\r" not in data
    decoder = SseDecoder()
    messages = [*decoder.feed(data), *decoder.end()]
    assert all(message.complete and not message.invalid_utf8 for message in messages)
    *events, done = messages
    assert (done.data, done.fields) == ("[DONE]", ("data",))
    assert {message.fields for message in events} == {("event", "data")}
    read = [json.loads(message.data) for message in events]
    assert [message.event for message in events] == [body["type"] for body in read]
    assert check_in(dialect, read) == []
    return read


CHANCE = {
    *("id", "call_id", "created_at", "completed_at", "container_id"),
    *("created", "signature", "tool_use_id", "tool_call_id"),
}


def without_chance(value):
    """A value without ids, times and signatures, which differ from run to run."""
    match value:
        case dict():
            return {name: without_chance(inner) for name, inner in value.items() if name not in CHANCE}
        case list():
            return [without_chance(inner) for inner in value]
        case _:
            return value


VERSION = {"anthropic-version": "2023-06-01"}
PATIENCE = 60


def frames(data):
    """Return the frames of a stream except comments, each as its name and its data."""
    decoder = SseDecoder()
    return [(each.event, each.data) for each in (*decoder.feed(data), *decoder.end()) if "data" in each.fields]


def messages_of(data):
    """The events of a whole stream of Messages, which must be legal (rules M1 to M12)."""
    read = [(name, json.loads(text)) for name, text in frames(data)]
    assert [name for name, _ in read] == [event["type"] for _, event in read]
    events = [event for _, event in read]
    assert check_messages(events) == []
    return events


def chunks_of(data, *, usage=False):
    """The chunks of a whole stream of Chat Completions, which must be legal (rules C1 to C8)."""
    *read, done = [text for _, text in frames(data)]
    assert done == "[DONE]"
    chunks = [json.loads(text) for text in read]
    assert check_chat(chunks, usage=usage) == []
    return chunks


def post_message(url, path="/v1/messages", headers=VERSION, **body):
    """The answer to a request of Messages."""
    fields = {"model": "staged", "max_tokens": 500, "messages": [{"role": "user", "content": "Hi there"}], **body}
    return httpx.post(url + path, json=fields, headers=headers, timeout=PATIENCE)


def post_chat(url, **body):
    """The answer to a request of Chat Completions."""
    fields = {"model": "staged", "messages": [{"role": "user", "content": "Hi there"}], **body}
    return httpx.post(f"{url}/v1/chat/completions", json=fields, timeout=PATIENCE)


PIECES = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature", "input_json_delta": "partial_json"}


def folded_message(events):
    """The message that a client accumulates from the events of a stream."""
    message, inputs = {}, {}
    for event in events:
        match event["type"]:
            case "message_start":
                message = event["message"]
            case "content_block_start":
                message["content"].append(event["content_block"])
            case "content_block_delta":
                name = PIECES[event["delta"]["type"]]
                if name == "partial_json":
                    inputs[event["index"]] = inputs.get(event["index"], "") + event["delta"][name]
                else:
                    message["content"][event["index"]][name] += event["delta"][name]
            case "message_delta":
                message |= event["delta"]
                message["usage"] |= event["usage"]
            case _:
                pass
    for index, text in inputs.items():
        message["content"][index]["input"] = json.loads(text)
    return message


def folded_completion(chunks):
    """The message, the reason and the usage that a client accumulates from the chunks of a stream."""
    message, reason, usage = {}, None, None
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            reason = choice["finish_reason"] or reason
            for name, value in choice["delta"].items():
                if name == "tool_calls":
                    for call in value:
                        calls = message.setdefault("tool_calls", [])
                        if "id" in call:
                            calls.append({**call, "function": {**call["function"]}})
                        else:
                            calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
                elif value is None:
                    message.setdefault(name)
                else:
                    message[name] = (message.get(name) or type(value)()) + value
    for call in message.get("tool_calls", []):
        del call["index"]
    return message, reason, usage


# Streams of Messages and Chat Completions, made by the driver and the transducers from the same deltas


RESULT = deltas.Succeed("mcp_1", {"output": "three"})
CALLS = deltas.Open("mcp_call", {"server_label": "s", "name": "t"})
CLIENT_CALL = deltas.Open("function_call", {"name": "f", "call_id": "call_a"})


def entries():
    """Return reasoning, a hosted call whose result comes while a text is open, and a call of the client."""
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
