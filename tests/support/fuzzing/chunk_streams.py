"""Strategies for streams of Chat Completions as hostile services send them, with words that must reach the client.

A stream is a list of pieces. Some are well-formed chunks, each with a word of its own; the others are chunks and bytes of any
form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from attrs import frozen
from fuzzing.bodies import KEYS, deep
from hypothesis import strategies as st

Kind: TypeAlias = Literal["message", "reasoning", "function_call"]

FIRST: Final = 1_000
"""The first index of a well-formed call; odd calls have smaller ones."""


@frozen
class Piece:
    """The data of an event, or other bytes of a stream; `kind` is the kind of item that a well-formed chunk adds a word to."""

    data: bytes
    kind: Kind | None = None
    word: str = ""
    is_event: bool = True


@frozen
class ChunkStream:
    """The pieces of a stream, with the line end and the number of bytes of each read; it is whole, or breaks off."""

    pieces: Sequence[Piece]
    line_end: bytes = b"\n"
    size: int = 2**20
    is_whole: bool = True
    family: str | None = None

    @property
    def reads(self) -> Sequence[bytes]:
        """The bytes of each read."""
        blank = self.line_end * 2
        data = b"".join(b"data: " + piece.data + blank if piece.is_event else piece.data + blank for piece in self.pieces)
        return [data[at : at + self.size] for at in range(0, len(data), self.size)]

    def words(self, kind: Kind) -> Sequence[str]:
        """The words that items of a kind must have, in order."""
        return [piece.word for piece in self.pieces if piece.kind == kind]

    @property
    def certain(self) -> Sequence[Piece]:
        """The well-formed pieces before the first odd one."""
        odd = next((index for index, piece in enumerate(self.pieces) if piece.kind is None), len(self.pieces))
        return self.pieces[:odd]


def to_json(stream: ChunkStream) -> Mapping[str, object]:
    """Return a stream as JSON values."""
    pieces = [[piece.data.decode("latin-1"), piece.kind, piece.word, piece.is_event] for piece in stream.pieces]
    rest = [stream.line_end.decode(), stream.size, stream.is_whole, stream.family]
    return {"pieces": pieces, "rest": rest}


def from_json(value: Mapping[str, Sequence[object]]) -> ChunkStream:
    """Return the stream that `to_json` returned as JSON values."""
    pieces = [Piece(data.encode("latin-1"), *others) for data, *others in value["pieces"]]
    line_end, *rest = value["rest"]
    return ChunkStream(pieces, line_end.encode(), *rest)


def well_formed(kind: Kind, number: int) -> Sequence[Piece]:
    """Return the chunks of a service that keeps to the API; their word has the number."""
    word = f"w{number}w"
    if kind == "function_call":
        index, function = FIRST + number, {"name": "f", "arguments": ""}
        begin = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
        arguments = {"index": index, "function": {"arguments": json.dumps({"word": word})}}
        return [Piece(_chunk({"tool_calls": [begin]}), kind), Piece(_chunk({"tool_calls": [arguments]}), kind, word)]
    name = "content" if kind == "message" else "reasoning_content"
    return [Piece(_chunk({name: f"{word} "}), kind, word)]


def _chunk(delta: object) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}).encode()


HALVES = st.sampled_from(["\ud83d", "\ude00", "a\ud83d", "\ude00b", "\ud83d\ude00"])
TEXTS = st.one_of(
    st.sampled_from(["", " ", "\n", "a", "<reasoning>", "</reasoning>", "<", "data: x\n\n", "\u2028", "\x00", "\ufeff", "é😀"]),
    HALVES,
    st.text(max_size=6),
)
NUMBERS = st.sampled_from([0, 1, -1, 10**30, -(10**30), 0.5, 1e308, float("inf"), float("-inf"), float("nan"), 2**53, 9])
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
ODD = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)), max_leaves=4
)


def fields(**values: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    """Return a strategy for objects that have any of these fields, one in twenty with a value of any type."""
    return st.fixed_dictionaries({}, optional={name: _mostly(value) for name, value in values.items()})


def _mostly(good: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.integers(0, 19).flatmap(lambda drawn: ODD if drawn == 19 else good)


PARTS = st.lists(
    st.one_of(
        fields(type=st.just("text"), text=TEXTS),
        fields(
            type=st.just("thinking"), thinking=st.one_of(TEXTS, st.lists(fields(type=st.just("text"), text=TEXTS), max_size=2))
        ),
        fields(type=st.sampled_from(["reasoning.text", "reasoning.summary", "x"]), text=TEXTS, summary=TEXTS, signature=TEXTS),
    ),
    max_size=3,
)
ARGUMENTS = st.one_of(
    st.sampled_from(["", "{", '{"a":', "1}", "{}", '{"a":1}', "}", "[]", "[1", " ", '"\ud83d', "null", "nul", "7", "not json"]),
    HALVES,
    st.just({"a": 1}),
    TEXTS,
)
FUNCTIONS = fields(name=st.sampled_from(["f", "g", "", "get", "_weather", "functions.f", "mcp.x", "a b"]), arguments=ARGUMENTS)
CALL_IDS = st.one_of(st.sampled_from(["call_1", "", "g6fVbXS8K", "functions.f:0", "x" * 2_000, "\ud83d"]), TEXTS)
CALLS = st.lists(
    fields(index=st.sampled_from([0, 0, 1, 2, -1]), id=CALL_IDS, type=st.just("function"), function=FUNCTIONS), max_size=3
)
DELTAS = fields(
    role=st.sampled_from(["assistant", "", "tool"]),
    content=st.one_of(TEXTS, PARTS),
    reasoning=TEXTS,
    reasoning_content=st.one_of(TEXTS, PARTS),
    reasoning_details=PARTS,
    refusal=TEXTS,
    tool_calls=CALLS,
    function_call=FUNCTIONS,
    audio=ODD,
)
TOKENS = st.lists(fields(token=TEXTS, bytes=st.lists(NUMBERS, max_size=2), logprob=NUMBERS, top_logprobs=ODD), max_size=2)
LOGPROBS = st.one_of(fields(content=TOKENS, refusal=TOKENS), ODD)
REASONS = st.sampled_from(
    [None, None, "", "stop", "STOP", "tool_calls", "length", "MAX_TOKENS", "content_filter", "error", 7, [], {}]
)
CHOICES = fields(
    index=st.sampled_from([0, 0, 0, 1, -1, None, "0"]), delta=DELTAS, finish_reason=REASONS, logprobs=LOGPROBS, message=DELTAS
)
COUNTS = st.one_of(NUMBERS, ODD)
USAGES = fields(
    prompt_tokens=COUNTS,
    completion_tokens=COUNTS,
    prompt_tokens_details=fields(cached_tokens=COUNTS),
    completion_tokens_details=fields(reasoning_tokens=COUNTS),
    input_tokens_details=ODD,
)
CHUNKS = st.one_of(
    st.lists(CHOICES, min_size=1, max_size=2).map(lambda choices: {"choices": choices}),
    st.fixed_dictionaries(
        {"choices": _mostly(st.lists(CHOICES, max_size=2))},
        optional={"usage": USAGES, "error": _mostly(st.none()), "object": ODD, "id": ODD, "model": ODD},
    ),
    fields(usage=USAGES, choices=st.just([])),
)
ODD_CHUNKS = st.builds(
    lambda chunk, escapes: Piece(json.dumps(chunk, ensure_ascii=escapes).encode("utf-8", "surrogatepass")), CHUNKS, st.booleans()
)
ODD_DATA = st.builds(
    Piece,
    st.one_of(
        st.binary(max_size=8).filter(lambda data: not {*b"\n\r"} & {*data} and data.strip() != b"[DONE]"),
        st.sampled_from([b"", b"{", b"null", b"[]", b"{}", b"NaN", b'{"choices": [{"delta": {"content": "\xff"}}]}', b"[done]"]),
        st.sampled_from([100, 2_000]).map(lambda levels: json.dumps({"choices": [{"delta": deep_as_text(levels)}]}).encode()),
    ),
)
ODD_BYTES = st.builds(
    lambda data: Piece(data, is_event=False),
    st.sampled_from(
        [b": comment", b"event: error", b"id: 1", b"retry: 9", b"\xef\xbb\xbf", b"data", b"data:", b"\xff\xfe", b":"]
    ),
)


def deep_as_text(levels: int) -> object:
    """Return a delta with arrays in arrays, of which JSON can be written."""
    return {"content": deep(min(levels, 900))}


@st.composite
def chunk_streams(draw: st.DrawFn) -> ChunkStream:
    """Draw a stream of well-formed and odd pieces in any order."""
    kinds: st.SearchStrategy[Kind] = st.sampled_from(["message", "message", "message", "reasoning", "function_call"])
    odd = st.one_of(*[ODD_CHUNKS] * 8, *[ODD_BYTES] * 2, ODD_DATA)
    drawn = draw(st.lists(st.one_of(kinds, kinds, odd), max_size=12))
    pieces: list[Piece] = []
    for number, each in enumerate(drawn):
        pieces += [each] if isinstance(each, Piece) else well_formed(each, number)
    reason = draw(st.sampled_from(["stop", "stop", "stop", "tool_calls", "length", None]))
    if reason is not None:
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
        pieces.append(Piece(json.dumps(end).encode(), "message"))
    if draw(st.booleans()):
        pieces.append(Piece(b"[DONE]"))
        pieces += draw(st.lists(odd, max_size=1))
    return ChunkStream(
        pieces,
        draw(st.sampled_from([b"\n", b"\r\n", b"\r"])),
        draw(st.sampled_from([1, 7, 100, 2**20])),
        draw(st.sampled_from([True, True, True, False])),
        draw(st.sampled_from([None, None, None, "bedrock_gpt_oss"])),
    )
