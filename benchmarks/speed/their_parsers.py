"""vLLM's own tool parsers as contenders, on a vocabulary of single bytes and the marks of all families."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import tokenizers
import transformers
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager
from vllm.reasoning import _REASONING_PARSERS_TO_REGISTER
from vllm.tool_parsers import _TOOL_PARSERS_TO_REGISTER, ToolParserManager

from interlock.parsers.families import REASONINGS, SYNTAXES
from interlock.parsers.families.patterns import example
from speed.outputs import REQUEST, Stream
from speed.timing import Stopwatch

__all__ = ["has_parsers", "names", "parse_pieces", "pieces_of", "read_calls", "read_text"]

_PARAMETERS: Final = {"properties": {"city": {"type": "string"}}}
_TOOLS: Final = [{"type": "function", "function": {"name": tool["name"], "parameters": _PARAMETERS}} for tool in REQUEST["tools"]]
_REQUEST: Final = ChatCompletionRequest.model_validate({"model": "m", "messages": [], "tools": _TOOLS})
"""A request for chat, because some of vLLM's parsers read no other tools."""
_THINKING: Final = {"thinking": True, "enable_thinking": True, "reasoning_effort": "high"}
_ROLES: Final = ("<assistant>",)
"""A token that one of vLLM's parsers looks for in the vocabulary."""
_PIECES: Final = ("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>")
"""Marks that are parts of our markers."""
_SPLIT: Final = ("Ġ</", "</", "think")
"""Tokens of the end of reasoning, which another one looks for; no text is encoded with them."""
_UNREAD: Final = ("mistral",)
"""The reasoning that vLLM reads with Mistral's own tokenizer alone."""
_LETTERS: Final = 4
"""Letters in a token of plain text."""


@cache
def _tokenizer() -> Any:  # noqa: ANN401 - transformers has no types
    letters = [*sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), *_SPLIT]
    bare = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={letter: at for at, letter in enumerate(letters)}, merges=[]))
    bare.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = tokenizers.decoders.ByteLevel()
    texts = [example(text) for syntax in SYNTAXES.values() for texts in syntax.markers.values() for text in texts]
    thoughts = [text for each in REASONINGS.values() for text in (*each.begins, *each.ends) if text[0] == "<" and text[-1] == ">"]
    marks = [*_PIECES, *(text for text in dict.fromkeys(texts) if text[-1] in ">]" and text[0] in "<[" and "name" not in text)]
    marks = [mark for mark in marks if mark in _PIECES or not any(piece in mark for piece in _PIECES)]
    marks = [mark for mark in dict.fromkeys([*marks, *map(example, thoughts), *_ROLES]) if ":calls>" not in mark]
    bare.add_special_tokens([tokenizers.AddedToken(mark, special=True) for mark in marks])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=bare)


def names() -> list[str]:
    """Return the families that this release of vLLM has too, with one name for each of its parsers."""
    parsers: dict[object, str] = {}
    for name in SYNTAXES:
        if name in _TOOL_PARSERS_TO_REGISTER:
            parsers.setdefault(ToolParserManager.get_tool_parser(name), name)
    return [*parsers.values()]


def has_parsers(stream: Stream) -> bool:
    """Return whether this release of vLLM can read a stream with the tokenizer of this bench."""
    reasoning = stream.reasoning is None or stream.reasoning in _REASONING_PARSERS_TO_REGISTER
    return stream.calls in _TOOL_PARSERS_TO_REGISTER and reasoning and stream.reasoning not in _UNREAD


def parse_pieces(stream: Stream, pieces: Sequence[str]) -> float:
    """Measure vLLM's parser.

    Args:
        stream: What came before.
        pieces: What is measured.

    Returns:
        Microseconds for a piece.
    """
    tokenizer, parse = _tokenizer(), _parser(stream)
    ids = tokenizer.encode(stream.before, add_special_tokens=False)
    first = _marked(tokenizer, ids)
    for token in ids[:first]:
        parse(tokenizer.decode([token]), [token], _REQUEST, [1], finished=False)
    parse(tokenizer.decode(ids[first:]), ids[first:], _REQUEST, [1], finished=False)
    told = [(piece, tokenizer.encode(piece, add_special_tokens=False)[:1]) for piece in pieces]
    watch = Stopwatch()
    for text, token in watch.steps([], told):
        parse(text, token, _REQUEST, [1], finished=False)
    return watch.microseconds / len(pieces)


def _parser(stream: Stream) -> Callable[..., Any]:
    """Return the function that parses the deltas of a stream."""
    kind = ParserManager.get_parser(
        tool_parser_name=stream.calls, reasoning_parser_name=stream.reasoning or "", enable_auto_tools=True
    )
    return kind(_tokenizer(), _REQUEST.tools, chat_template_kwargs=_THINKING).parse_delta


def pieces_of(text: str) -> list[str]:
    """Return a text as tokens: the marks of all families, and else four letters at a time."""
    marks = sorted(_tokenizer().get_added_vocab(), key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, marks))})", text)
    return [
        piece
        for part in parts
        for piece in ([part] if part in marks else [part[at : at + _LETTERS] for at in range(0, len(part), _LETTERS)])
        if piece
    ]


def read_calls(stream: Stream, pieces: Sequence[str], tools: Sequence[Any]) -> tuple[str, list[tuple[str, str]]]:
    """Return the result of vLLM's parser for a stream: all text, and the name and arguments of each call.

    Args:
        stream: Which parsers; what came before is not looked at.
        pieces: The text, delta by delta.
        tools: The tools that may be called, as Chat Completions has them.
    """
    request = ChatCompletionRequest.model_validate({"model": "m", "messages": [], "tools": tools})
    tokenizer, text, calls = _tokenizer(), "", dict[int, tuple[str, str]]()
    kind = ParserManager.get_parser(
        tool_parser_name=stream.calls, reasoning_parser_name=stream.reasoning or "", enable_auto_tools=True
    )
    parse = kind(tokenizer, request.tools, chat_template_kwargs=_THINKING).parse_delta
    for at, piece in enumerate(pieces):
        ids = tokenizer.encode(piece, add_special_tokens=False)
        delta = parse(piece, ids, request, [1], finished=at + 1 == len(pieces))
        if delta is not None:
            text += f"{delta.reasoning or ''}{delta.content or ''}"
            for call in delta.tool_calls or ():
                name, arguments = calls.get(call.index, ("", ""))
                if call.function:
                    name, arguments = name + (call.function.name or ""), arguments + (call.function.arguments or "")
                calls[call.index] = name, arguments
    return text, list(calls.values())


def read_text(stream: Stream, pieces: Sequence[str]) -> tuple[str, list[str]]:
    """Return the result of vLLM's parser for a stream: all text and names, and the arguments of each call.

    Args:
        stream: Which parsers; what came before is not looked at.
        pieces: The text, delta by delta.
    """
    tokenizer, parse = _tokenizer(), _parser(stream)
    said, calls = "", dict[int, str]()
    for at, piece in enumerate(pieces):
        ids = tokenizer.encode(piece, add_special_tokens=False)
        delta = parse(piece, ids, _REQUEST, [1], finished=at + 1 == len(pieces))
        if delta is None:
            continue
        said += f"{delta.reasoning or ''}{delta.content or ''}"
        for call in delta.tool_calls or ():
            said += call.function.name or "" if call.function else ""
            calls[call.index] = calls.get(call.index, "") + ((call.function.arguments or "") if call.function else "")
    return said, list(calls.values())


def _marked(tokenizer: Any, ids: Sequence[int]) -> int:  # noqa: ANN401 - see above
    """Return the position some letters after the last mark, up to which vLLM's parsers need one token at a time."""
    marks = {*tokenizer.get_added_vocab().values()}
    return min(len(ids), max((at for at, token in enumerate(ids) if token in marks), default=0) + 80)
