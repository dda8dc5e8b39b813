"""Writers turn the text of one item, as a model writes it, into the deltas of that item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING

from attrs import define, field

from interlock.fsm.deltas import Close, Delta, Open, Reject, Text
from interlock.fsm.lifecycle import NO_FIELDS
from interlock.parsers.chunk import Entry
from interlock.parsers.client_tools import read_call
from interlock.parsers.routing import Payload, Route, function_route

if TYPE_CHECKING:
    from interlock.parsers.input_decoder import InputDecoder


@define(eq=False)
class ItemWriter:
    """Writes the deltas of one item; `fields` extends the fields of its route."""

    route: Route
    _fields: Mapping[str, object] = NO_FIELDS

    def open(self) -> list[Delta]:
        """Return the delta that opens the item, unless that depends on its text."""
        return [Open(self.route.kind, {**self.route.fields, **self._fields} if self._fields else self.route.fields)]

    def write(self, text: str) -> list[Delta]:  # noqa: ARG002 - for subclasses
        """Return the deltas that are certain after this text."""
        return []

    def close(self) -> list[Delta]:
        """Return the deltas that end the item."""
        return []

    def leave(self) -> list[Delta]:
        """Return the pending deltas of a truncated item, which the driver then ends."""
        return []


@define(eq=False)
class NullItemWriter(ItemWriter):
    """Writes nothing, for an item that the client does not receive."""

    def open(self) -> list[Delta]:
        """Return nothing."""
        return []


@define(eq=False)
class StreamWriter(ItemWriter):
    """Writes an item whose text passes through unchanged."""

    def write(self, text: str) -> list[Delta]:
        """Return the text."""
        return _text_delta(text)

    def close(self) -> list[Delta]:
        """Close the item."""
        return [Close()]


@define(eq=False)
class InputWriter(ItemWriter):
    """Writes a custom tool call or a Python call, whose text the model may have wrapped in JSON."""

    _decoder: InputDecoder = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Create the decoder for the key of this payload."""
        from interlock.parsers.input_decoder import InputDecoder  # noqa: PLC0415 - few models write such calls

        self._decoder = InputDecoder(self.route.payload)

    def write(self, text: str) -> list[Delta]:
        """Return the decoded text."""
        return _text_delta(self._decoder.feed(text))

    def close(self) -> list[Delta]:
        """Return the rest of the text and close the item."""
        return [*self.leave(), Close()]

    def leave(self) -> list[Delta]:
        """Return the rest of the text."""
        return _text_delta(self._decoder.end())


@define(eq=False)
class BufferedWriter(ItemWriter):
    """Buffers all arguments, which the item needs before it can open."""

    _arguments: list[str] = field(factory=list[str])

    def open(self) -> list[Delta]:
        """Return nothing yet."""
        return []

    def write(self, text: str) -> list[Delta]:
        """Buffer the arguments."""
        self._arguments.append(text)
        return []


@define(eq=False)
class BrowserCallWriter(BufferedWriter):
    """Writes a `web_search_call`, whose `action` is an object."""

    def close(self) -> list[Delta]:
        """Open the item with its action, and close it, or reject it if the arguments are invalid."""
        from interlock.parsers.browser import read_action  # noqa: PLC0415 - only harmony has such calls

        arguments = "".join(self._arguments)
        action = read_action(self.route.function, arguments)
        end = Close() if action.fault is None else Reject(action.fault)
        return [Open(self.route.kind, {**self._fields, "action": action.fields}, arguments), end]

    def leave(self) -> list[Delta]:
        """Open the item with the action so far."""
        return self.close()[:1]


@define(eq=False)
class FieldsWriter(BufferedWriter):
    """Writes a call whose arguments are fields of its item; a call with invalid arguments becomes a function call."""

    def close(self) -> list[Delta]:
        """Return the complete item."""
        deltas = read_call(self.route.kind, "".join(self._arguments), self._fields)
        return [*self.leave(), Close()] if deltas is None else deltas

    def leave(self) -> list[Delta]:
        """Return the truncated call as a function call."""
        route = function_route(str(self.route.fields["name"]), self._fields)
        return [Open(route.kind, route.fields), *_text_delta("".join(self._arguments))]


def _text_delta(text: str) -> list[Delta]:
    return [text] if text else []


_WRITERS: dict[Payload, type[StreamWriter | InputWriter | BrowserCallWriter | FieldsWriter]] = {
    "text": StreamWriter,
    "input": InputWriter,
    "code": InputWriter,
    "browser": BrowserCallWriter,
    "fields": FieldsWriter,
}


def writer_for(route: Route, call_id: str = "") -> ItemWriter:
    """Return the writer for a route; only calls that the client answers get the `call_id`."""
    return _WRITERS[route.payload](route, {"call_id": call_id} if call_id and route.has_call_id else NO_FIELDS)


def text_deltas(writer: ItemWriter, text: str, entries: Sequence[Entry]) -> list[Delta]:
    """Write a text, with the log probabilities of its tokens if the item is a message: in the API, no other item has them."""
    return [Text(text, entries)] if entries and writer.route.kind == "message" else writer.write(text)


def join_text(deltas: list[Delta]) -> list[Delta]:
    """Join consecutive texts, and their log probabilities."""
    merged: list[Delta] = []
    for has_logprobs, run in groupby(deltas, key=_has_logprobs):
        match has_logprobs:
            case None:
                merged.extend(run)
            case False:
                merged.append("".join(text for text in run if isinstance(text, str)))
            case _:
                texts = [text for text in run if isinstance(text, Text)]
                merged.append(Text("".join(text.text for text in texts), list(chain(*(text.logprobs for text in texts)))))
    return merged


def _has_logprobs(delta: Delta) -> bool | None:
    """Return whether a text has log probabilities; None for any other delta."""
    return None if not isinstance(delta, str | Text) else isinstance(delta, Text)
