"""Interlock as a contender: a parser or the vLLM plugin's reader, the driver, its writer of frames; one write for each step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from json.encoder import encode_basestring_ascii
from types import SimpleNamespace
from typing import Any, Final, TypeVar

from interlock.dialects.transducer import EntryWriter, Transducer
from interlock.embedding import now, random_id
from interlock.events.settings_echo import response_settings
from interlock.events.sse import DONE_FRAME, SseWriter, Writer
from interlock.fsm.deltas import Delta, EndTurn, Finish, Start, Usage
from interlock.fsm.driver import ResponseDriver
from interlock.parsers import ChatParser, Chunk, HarmonyParser, Parser, Routing
from interlock.serving.engines.vllm.compat import Output
from interlock.serving.engines.vllm.readers import DeltaReader, Pairing
from speed.outputs import REQUEST, Replay, begun
from speed.timing import Drain, Feed, Write

T = TypeVar("T")
"""The type of a written event."""

_join: Final = b"".join


def begin() -> ResponseDriver[bytes]:
    """Return a driver of a response that has not begun."""
    return _driver(SseWriter())


def _driver(writer: Writer[T]) -> ResponseDriver[T]:
    return ResponseDriver(response_settings(REQUEST), writer=writer, ids=random_id, clock=now)


def drain_deltas(steps: Iterable[Sequence[Delta]], write: Write) -> None:
    """Create a response from the deltas of a parser."""
    feed = begin().feed
    write(_join(feed([Start()])))
    for told in steps:
        write(_join(feed(told)))
    write(_join([*feed([EndTurn("stop"), Finish()]), DONE_FRAME]))


def drain_transduced(transducer: Callable[[], Transducer[Any, Any]], steps: Iterable[Sequence[Delta]], write: Write) -> None:
    """Create a response from the deltas of a parser, as the stream of another API."""
    encode, feed = transducer().encode, _driver(EntryWriter()).feed
    write(encode(feed([Start()])))
    for told in steps:
        write(encode(feed(told)))
    write(encode(feed([EndTurn("stop"), Finish()])))


def drain_chunks(steps: Iterable[Chunk], write: Write) -> None:
    """Create a response from chunks of harmony, as the standalone server and embedders do."""
    parser, feed = HarmonyParser(Routing.from_request(REQUEST)), begin().feed
    parse = parser.feed
    write(_join(feed([Start()])))
    for chunk in steps:
        write(_join(feed(parse(chunk))))
    write(_join([*feed([*parser.end("stop", Usage()), Finish()]), DONE_FRAME]))


def drain_outputs(reader: Callable[[], Parser], steps: Iterable[Any], write: Write) -> None:
    """Create a response from the outputs of vLLM's engine, as the plugin does."""
    reading, feed = reader(), begin().feed
    parse = reading.feed
    write(_join(feed([Start()])))
    for output in steps:
        write(_join(feed(parse(chunk_of(output)))))
    write(_join([*feed([*reading.end("stop", Usage()), Finish()]), DONE_FRAME]))


def chunk_of(output: Output) -> Chunk:
    """Return the chunk of an output, as the plugin makes it."""
    new = output.outputs[0]
    return Chunk(new.token_ids, new.text, None, output)


def harmony() -> Parser:
    """Return the parser of a model that writes harmony."""
    return HarmonyParser(Routing.from_request(REQUEST))


def open_harmony() -> Feed:
    """Open a stream of a model that writes harmony, with an answer begun."""
    feed, parse = begin().feed, harmony().feed
    feed([Start(), *parse(chunk_of(begun()))])
    return lambda output: _join(feed(parse(chunk_of(output))))


drain_harmony: Final[Drain] = partial(drain_outputs, harmony)


def drain_parsed(messages: Sequence[object], texts: Sequence[str]) -> Drain:
    """Create a response from outputs, one for each text, for which a parser of vLLM returns prepared messages."""
    request = SimpleNamespace(include_reasoning=True, parallel_tool_calls=True)

    class Prepared(DeltaReader):
        """A reader whose turn has begun."""

        def __init__(self) -> None:
            super().__init__(ChatParser(Routing.from_request(REQUEST)), one=False)
            given = iter(texts)
            self._call: Any = SimpleNamespace(request=request, prompt=())
            self._parse, self._pairing = Replay(iter(messages)).parse_delta, Pairing(lambda _token: next(given))

    def reader() -> Parser:
        return Prepared()

    return partial(drain_outputs, reader)


def floor(texts: Iterable[str], write: Write) -> None:
    """Do the work that cannot be avoided: escape each text, and join the bytes around it."""
    head = 'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","item_id":"msg_1","output_index":0,'
    head += '"content_index":0,"logprobs":[],"sequence_number":7,"delta":'
    for text in texts:
        write(f"{head}{encode_basestring_ascii(text)}}}\n\n".encode())
