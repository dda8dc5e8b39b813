"""Writers turn the text of one item, as a model writes it, into its deltas; `Alignment` finds the tokens of a text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from typing import Final, Literal, TypeAlias, assert_never

import orjson
from attrs import define, field

from interlock.events.items import ITEMS
from interlock.events.json import elements, is_array, is_object, members, parse
from interlock.fsm.deltas import Close, Delta, Open, Reject, Text, TokenLogprob
from interlock.fsm.lifecycle import NO_FIELDS
from interlock.parsers.client_tools import read_call
from interlock.parsers.routing import Payload, Route, function_route

TokenizedText: TypeAlias = tuple[str, Sequence[TokenLogprob]]
"""A text and the log probabilities of all its tokens, or none if they are unknown."""

_MAX_UNMATCHED: Final = 8192
"""The maximum number of bytes of tokens that match no text."""

_CONTINUATION: Final = range(0x80, 0xC0)
"""The bytes of UTF-8 that continue a character."""


@define(eq=False)
class Alignment:
    """The tokens of a turn whose text was not found yet, and the text that ends inside one of them.

    Parsers that read text, such as vLLM's, do not know which tokens a text came from. Each text is found in the joined bytes of
    the tokens, after the previous text; the markup between them is skipped. A token is an object of the API's `logprobs`: its
    `token` and `bytes`, with probabilities.
    """

    _bytes: bytearray = field(factory=bytearray)
    _tokens: list[tuple[int, int, TokenLogprob]] = field(factory=list[tuple[int, int, TokenLogprob]])
    """Start, end and entry of each token; the start is negative if its first bytes are already used."""
    _pending: bytes = b""

    @property
    def idle(self) -> bool:
        """Whether no token waits for its text."""
        return not self._tokens

    def add(self, entry: TokenLogprob) -> None:
        """Add the next token."""
        content = _content(entry)
        if content:
            begin = len(self._bytes)
            self._bytes += content
            self._tokens.append((begin, len(self._bytes), entry))

    def find(self, text: str) -> TokenizedText:
        """Return the part of a text whose tokens are complete, with these tokens, and drop all tokens up to its end.

        Text that ends inside a token waits for the rest of that token, because a text has the log probabilities of all its
        tokens or of none (rule R15). Text that is not in the tokens is returned at once, without tokens.
        """
        if not self._tokens:
            return text, ()
        needle = self._pending + text.encode(errors="replace")
        start = self._bytes.find(needle)
        if start < 0:
            self._pending = b""
            self._forget(len(self._bytes) - _MAX_UNMATCHED)
            return needle.decode(), ()
        stop = start + len(needle)
        ends = [end for _, end, _ in self._tokens if start < end <= stop and not self._is_inside_character(end)]
        result = self._take(start, ends[-1] if ends else start)
        self._pending = needle[len(result[0].encode()) :]
        return result

    def flush(self) -> TokenizedText:
        """Return the pending text, at the end of an item."""
        pending, self._pending = self._pending, b""
        return self._take(0, len(pending)) if pending else ("", [])

    def _is_inside_character(self, end: int) -> bool:
        return end < len(self._bytes) and self._bytes[end] in _CONTINUATION

    def _take(self, start: int, stop: int) -> TokenizedText:
        """Return a text and its tokens, and drop all tokens up to its end; a token is cut to its part in the text."""
        text = bytes(self._bytes[start:stop])
        entries = [
            entry if start <= begin and end <= stop else _part(entry, self._bytes[max(begin, start) : min(end, stop)])
            for begin, end, entry in self._tokens
            if begin < stop and start < end
        ]
        self._drop(stop)
        return text.decode(), entries

    def _forget(self, excess: int) -> None:
        """Drop many unmatched tokens at once, so that the cost of a text does not depend on their number."""
        if excess > _MAX_UNMATCHED:
            self._drop(excess)

    def _drop(self, stop: int) -> None:
        """Drop all tokens up to a place."""
        del self._bytes[:stop]
        self._tokens = [(begin - stop, end - stop, entry) for begin, end, entry in self._tokens if end > stop]


def _part(entry: TokenLogprob, fragment: bytes | bytearray) -> TokenLogprob:
    """Return the entry for a part of a token, without alternatives, because those are for the whole token."""
    return {**entry, "token": fragment.decode(errors="replace"), "bytes": [*fragment], "top_logprobs": []}


def _content(entry: Mapping[str, object]) -> bytes:
    """Return the text of a token: its `bytes` if they are valid, or else its `token`."""
    content, token = entry.get("bytes"), entry.get("token")
    numbers = [number for number in elements(content) if isinstance(number, int) and number in range(256)]
    if is_array(content) and len(numbers) == len(content):
        return bytes(numbers)
    return token.encode(errors="replace") if isinstance(token, str) else b""


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


Phase: TypeAlias = Literal["before", "inside", "after", "object", "bare"]
"""Before the opening quote, inside the string, after the closing quote, in an object with another first key, or in bare text."""

_ESCAPE: Final = r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
_UNFINISHED: Final = r"\\(?:u[0-9a-fA-F]{0,3}|u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?)?\Z"
_STRING: Final = re.compile(rf'(?:[^"\\]++|(?!{_UNFINISHED})\\.)*+', re.DOTALL)
"""Matches the inside of a JSON string up to its quote or to an incomplete escape."""
_VALID: Final = re.compile(rf"(?:[^\\]++|{_ESCAPE})++|\\")
"""Matches text whose escapes are valid, or a backslash that begins no escape."""
_LONE: Final = re.compile("[\ud800-\udfff]")


@define(eq=False)
class InputDecoder:
    """Decodes free text that a model may write inside JSON; `key` names the string.

    A model sees a custom tool as a function of one string, so its call reads `{"input": "…"}`; some models write the bare text.
    Text that begins as an object with the string is decoded; white space may differ. Text that begins as an object with another
    key waits for its end, because the string may follow. Other text passes unchanged. Invalid escapes stay as they are. Text
    after the closing quote stays too, unless it is the rest of the object.
    """

    key: str = "input"
    _phase: Phase = "before"
    _read: list[str] = field(factory=list[str])
    """The text before the string, which is the input if it turns out to be no JSON, or the text after it."""
    _next: int = 0
    """Which token comes next before the string."""
    _pending: str = ""
    """An incomplete token or escape."""

    def feed(self, text: str) -> str:
        """Return the decoded text that is certain."""
        match self._phase:
            case "bare":
                return text
            case "after" | "object":
                self._read.append(text)
                return ""
            case "inside":
                return self._decode(self._pending + text)
            case "before":
                return self._begin(text)
            case _:
                assert_never(self._phase)

    def end(self) -> str:
        """Return the pending text, unless it is only the rest of the object after the string, or nothing but white space."""
        rest = self._pending if self._phase == "inside" else "".join(self._read)
        self._read, self._pending = [], ""
        match self._phase:
            case "after":
                return "" if not rest.strip() or is_object(parse(f'{{"{self.key}":""{rest}')) else rest
            case "object":
                text = members(parse(rest)).get(self.key)
                return text if isinstance(text, str) else rest
            case _:
                return rest

    def cut(self) -> str:
        """Return the pending text of a truncated call: only that of the string, if the text is the beginning of an object."""
        match self._phase:
            case "before":
                return "" if self._next else self.end()
            case "object":
                rest = self.end()
                text = read_truncated(rest).get(self.key)
                return text if isinstance(text, str) else rest
            case _:
                return self.end()

    def _begin(self, text: str) -> str:
        """Decide whether the text is JSON."""
        self._read.append(text)
        rest = (self._pending + text).lstrip()
        tokens = ("{", f'"{self.key}"', ":", '"')
        while self._next < len(tokens):
            token = tokens[self._next]
            if not rest.startswith(token):
                if token.startswith(rest):
                    self._pending = rest
                    return ""
                begins_member = self._next > 1 or (self._next == 1 and rest.startswith('"'))
                if begins_member:
                    self._phase = "object"
                    return ""
                text, self._read = "".join(self._read), []
                self._phase = "bare"
                return text
            rest = rest[len(token) :]
            self._next += 1
            if self._next < len(tokens):
                rest = rest.lstrip()
        self._phase, self._read = "inside", []
        return self._decode(rest)

    def _decode(self, text: str) -> str:
        """Decode up to the closing quote, or up to an incomplete escape, which waits for more text."""
        decoded, position = decode_string(text)
        if text[position : position + 1] == '"':
            self._phase, self._read = "after", [text[position + 1 :]]
        else:
            self._pending = text[position:]
        return decoded


def decode_string(text: str) -> tuple[str, int]:
    """Decode the inside of a JSON string up to its quote or to an incomplete escape; return the text, and where decoding ended.

    Invalid escapes stay as they are.
    """
    inside = next(_STRING.finditer(text)).group()
    try:
        decoded: str = orjson.loads(f'"{inside}"')
    except orjson.JSONDecodeError:
        escaped = "".join("\\\\" if piece == "\\" else piece for piece in _VALID.findall(inside))
        decoded = _LONE.sub("\ufffd", json.loads(f'"{escaped}"', strict=False))
    return decoded, len(inside)


_MARKUP: Final = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*+)(?P<quote>"?)|[{}\[\],]', re.DOTALL)
"""Matches a string, even if it has no end, or a sign that structures JSON."""


def read_truncated(text: str) -> Mapping[str, object]:
    """Return the members that the beginning of a JSON object has, a string as far as it goes; none if it is no object."""
    ended, separator = _end_json(text)
    value = parse(ended)
    return members(parse(_end_json(text[:separator])[0]) if value is None else value)


def _end_json(text: str) -> tuple[str, int]:
    """Return the beginning of a JSON value with its ends, and where the last member in it begins or may follow."""
    ends: list[str] = []
    separator = 0
    for token in _MARKUP.finditer(text):
        match token[0]:
            case "{" | "[" as sign:
                ends.append("}" if sign == "{" else "]")
                separator = token.end()
            case "}" | "]":
                del ends[-1:]
            case ",":
                separator = token.start()
            case _ if not token["quote"]:
                start = token.start("text")
                text = f'{text[:start]}{text[start : start + decode_string(text[start:])[1]]}"'
            case _:
                pass
    return text + "".join(reversed(ends)), separator


@define(eq=False)
class _InputWriter(ItemWriter):
    """Writes a call whose text the model may have wrapped in JSON, as the field of the item."""

    _decoder: InputDecoder = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._decoder = InputDecoder(ITEMS[self.route.kind].text_path[-1])

    def write(self, text: str) -> list[Delta]:
        return _text_delta(self._decoder.feed(text))

    def close(self) -> list[Delta]:
        return [*_text_delta(self._decoder.end()), Close()]

    def leave(self) -> list[Delta]:
        return _text_delta(self._decoder.cut())


@define(eq=False)
class _BufferedWriter(ItemWriter):
    """Buffers all arguments, which the item needs before it can open."""

    _arguments: list[str] = field(factory=list[str])

    def open(self) -> list[Delta]:
        return []

    def write(self, text: str) -> list[Delta]:
        self._arguments.append(text)
        return []


_BROWSER_FUNCTIONS: Final = ("search", "open", "find")
_LATEST: Final = -1
"""The cursor of the latest page, the tool's default."""
PAGE_BY_NUMBER: Final = "cursor:"
"""What the URL of a page begins with that the model names by its number."""


def _read_action(function: str, arguments: str) -> tuple[Mapping[str, object], str | None]:
    """Return the action of a call of `browser.<function>`, in the API's shape, and why the call cannot run (None if it can).

    The model refers to pages by cursor and to links by number, but the API uses URLs, which only the tool knows. Until it has
    run, the page at cursor 3 is `cursor:3`, and link 7 on it is `cursor:3#7`. Invalid arguments become the query of a search, so
    they are not lost.
    """
    query = {"type": "search", "query": arguments}
    if function not in _BROWSER_FUNCTIONS:
        return query, f"the browser has no function {function!r}"
    try:
        value: object = orjson.loads(arguments)
    except ValueError:
        return query, "the arguments are not JSON"
    if not is_object(value):
        return query, "the arguments are not an object"
    fields = _fields(function, value)
    return (query, f"the arguments of browser.{function} are incomplete") if fields is None else (fields, None)


def _read_truncated_action(function: str, arguments: str) -> Mapping[str, object]:
    """Return the action of a call of `browser.<function>` as far as it goes."""
    action = _fields(function, {"query": "", "pattern": "", **read_truncated(arguments)})
    return action if action is not None and arguments.lstrip()[:1] in ("", "{") else _read_action(function, arguments)[0]


def _fields(function: str, arguments: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return the action, or None if an argument is missing or has the wrong type."""
    query, pattern = arguments.get("query"), arguments.get("pattern")
    match function:
        case "search" if isinstance(query, str):
            return {"type": "search", "query": query}
        case "open":
            return {"type": "open_page", "url": _page(arguments)}
        case "find" if isinstance(pattern, str):
            return {"type": "find_in_page", "pattern": pattern, "url": _page(arguments)}
        case _:
            return None


def _page(arguments: Mapping[str, object]) -> str:
    for name in ("url", "id"):
        url = arguments.get(name)
        if isinstance(url, str):
            return url
    cursor, link = arguments.get("cursor", _LATEST), arguments.get("id")
    page = f"{PAGE_BY_NUMBER}{cursor}"
    return f"{page}#{link}" if isinstance(link, int) and link >= 0 else page


@define(eq=False)
class _BrowserCallWriter(_BufferedWriter):
    """Writes a `web_search_call`, whose `action` is an object."""

    def close(self) -> list[Delta]:
        arguments = "".join(self._arguments)
        action, fault = _read_action(self.route.function, arguments)
        end = Close() if fault is None else Reject(fault)
        return [Open(self.route.kind, {**self._fields, "action": action}, arguments), end]

    def leave(self) -> list[Delta]:
        arguments = "".join(self._arguments)
        return [
            Open(self.route.kind, {**self._fields, "action": _read_truncated_action(self.route.function, arguments)}, arguments)
        ]


@define(eq=False)
class _FieldsWriter(_BufferedWriter):
    """Writes a call whose arguments are fields of its item; a call with invalid arguments becomes a function call."""

    def close(self) -> list[Delta]:
        deltas = read_call(self.route.kind, "".join(self._arguments), self._fields)
        return [*self.leave(), Close()] if deltas is None else deltas

    def leave(self) -> list[Delta]:
        route = function_route(str(self.route.fields["name"]), self._fields)
        return [Open(route.kind, route.fields), *_text_delta("".join(self._arguments))]


def _text_delta(text: str) -> list[Delta]:
    return [text] if text else []


_WRITERS: dict[Payload, type[StreamWriter | _InputWriter | _BrowserCallWriter | _FieldsWriter]] = {
    "text": StreamWriter,
    "input": _InputWriter,
    "browser": _BrowserCallWriter,
    "fields": _FieldsWriter,
}


def writer_for(route: Route, call_id: str = "") -> ItemWriter:
    """Return the writer for a route; only calls that the client answers get the `call_id`."""
    return _WRITERS[route.payload](route, {"call_id": call_id} if call_id and route.has_call_id else NO_FIELDS)


def text_deltas(writer: ItemWriter, text: str, entries: Sequence[TokenLogprob]) -> list[Delta]:
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
