"""Writers: from the text of one item, as a model writes it, to the deltas of that item.

There is one writer for each way in which a text is read. A writer knows its item and nothing of what comes before or after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from typing import Protocol

from attrs import define, field

from interlock.fsm.deltas import Close, Delta, Open, Reject, Text
from interlock.fsm.lifecycle import NO_FIELDS
from interlock.parsers.browser import read_action
from interlock.parsers.client_tools import read_call
from interlock.parsers.input_decoder import InputDecoder
from interlock.parsers.routing import Payload, Route
from interlock.parsers.harmony_vocabulary import Entry


class Writer(Protocol):
    """What each writer does."""

    route: Route

    def open(self) -> list[Delta]:
        """Return what opens the item, if that is known before its text is."""
        ...

    def write(self, text: str) -> list[Delta]:
        """Return what a piece of text makes certain."""
        ...

    def close(self) -> list[Delta]:
        """Return what ends the item."""
        ...

    def leave(self) -> list[Delta]:
        """Return what was held back of an item that was cut; the driver ends it."""
        ...


@define(eq=False)
class Streamed:
    """Writes an item whose text is passed on as it comes."""

    route: Route
    _fields: Mapping[str, object] = NO_FIELDS

    def open(self) -> list[Delta]:
        """Open the item."""
        return _opening(self.route, self._fields)

    def write(self, text: str) -> list[Delta]:
        """Pass the text on."""
        return _pieces(text)

    def close(self) -> list[Delta]:
        """Close the item."""
        return [Close()]

    def leave(self) -> list[Delta]:
        """Nothing was held back."""
        return []


@define(eq=False)
class Withheld:
    """Writes nothing: an item that the request does not want to see."""

    route: Route

    def open(self) -> list[Delta]:
        """Return nothing."""
        return []

    def write(self, text: str) -> list[Delta]:  # noqa: ARG002 - the signature is the protocol's
        """Return nothing."""
        return []

    def close(self) -> list[Delta]:
        """Return nothing."""
        return []

    def leave(self) -> list[Delta]:
        """Return nothing."""
        return []


@define(eq=False)
class Unwrapped:
    """Writes a call whose text a model may have wrapped into JSON: a `custom_tool_call`, a python call."""

    route: Route
    _fields: Mapping[str, object] = NO_FIELDS
    _decoder: InputDecoder = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Set the name of the string inside the JSON."""
        self._decoder = InputDecoder(self.route.payload)

    def open(self) -> list[Delta]:
        """Open the item."""
        return _opening(self.route, self._fields)

    def write(self, text: str) -> list[Delta]:
        """Return what is certain of the text."""
        return _pieces(self._decoder.feed(text))

    def close(self) -> list[Delta]:
        """Return the rest of the text and close the item."""
        return [*self.leave(), Close()]

    def leave(self) -> list[Delta]:
        """Return the rest of the text."""
        return _pieces(self._decoder.end())


@define(eq=False)
class Held:
    """Writes an item that needs all of its arguments before it can be opened."""

    route: Route
    _fields: Mapping[str, object] = NO_FIELDS
    _arguments: list[str] = field(factory=list[str])

    def open(self) -> list[Delta]:
        """Nothing is known yet."""
        return []

    def write(self, text: str) -> list[Delta]:
        """Hold the arguments."""
        self._arguments.append(text)
        return []


@define(eq=False)
class BrowserCall(Held):
    """Writes a `web_search_call`, whose action is an object of its own."""

    def close(self) -> list[Delta]:
        """Open the item with its action, and close it; one that makes no sense is rejected."""
        action = read_action(self.route.function, "".join(self._arguments))
        end = Close() if action.fault is None else Reject(action.fault)
        return [Open(self.route.kind, {**self._fields, "action": action.fields}), end]

    def leave(self) -> list[Delta]:
        """Open the item with what there is of its action."""
        return self.close()[:1]


@define(eq=False)
class ClientCall(Held):
    """Writes a call of a tool that a client runs, in the fields that the tool has for its arguments."""

    def close(self) -> list[Delta]:
        """Return the whole item; a call that makes no sense is one of a function."""
        read = read_call(self.route.kind, "".join(self._arguments), self._fields)
        return [*self.leave(), Close()] if read is None else read

    def leave(self) -> list[Delta]:
        """Return what there is of the call, as one of a function."""
        name = {"name": self.route.fields["name"]}
        return [Open("function_call", {**name, **self._fields}), *_pieces("".join(self._arguments))]


_WRITERS: dict[Payload, type[Streamed | Unwrapped | BrowserCall | ClientCall]] = {
    "text": Streamed,
    "input": Unwrapped,
    "code": Unwrapped,
    "browser": BrowserCall,
    "client": ClientCall,
}


def writer_for(route: Route, fields: Mapping[str, object] | None = None) -> Writer:
    """Return the writer of an item.

    Args:
        route: Where the text goes.
        fields: What else is known of the item: its `call_id`.
    """
    return _WRITERS[route.payload](route, fields or NO_FIELDS)


def _opening(route: Route, fields: Mapping[str, object]) -> list[Delta]:
    return [Open(route.kind, {**route.fields, **fields} if fields else route.fields)]


def _pieces(text: str) -> list[Delta]:
    return [text] if text else []


def written(writer: Writer, text: str, entries: Sequence[Entry]) -> list[Delta]:
    """Return a writer a piece of text, with the log probabilities of its tokens where the API shows them: in messages.

    Args:
        writer: The item's.
        text: The piece.
        entries: One for each of its tokens, or none if they were not asked for.
    """
    return [Text(text, entries)] if entries and writer.route.kind == "message" else writer.write(text)


def joined(deltas: list[Delta]) -> list[Delta]:
    """Join pieces of text that follow one another, and their log probabilities.

    Args:
        deltas: The deltas of one chunk.
    """
    whole: list[Delta] = []
    for scored, run in groupby(deltas, key=_scored):
        match scored:
            case None:
                whole.extend(run)
            case False:
                whole.append("".join(text for text in run if isinstance(text, str)))
            case _:
                texts = [text for text in run if isinstance(text, Text)]
                whole.append(Text("".join(text.text for text in texts), list(chain(*(text.logprobs for text in texts)))))
    return whole


def _scored(delta: Delta) -> bool | None:
    """Return plain text from text with log probabilities, and None from both."""
    return None if not isinstance(delta, str | Text) else isinstance(delta, Text)
