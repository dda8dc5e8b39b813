"""The formats of model output, and their parsers, which are imported on first use except that of plain text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from attrs import define, evolve, field, frozen

from interlock.events.json import members
from interlock.fsm.deltas import Delta, EndTurn, TokenLogprob, Usage
from interlock.parsers.chunk import Chunk, ChunkError, Parser
from interlock.parsers.item_writers import ItemWriter, text_deltas, writer_for
from interlock.parsers.routing import ANSWER, EndReason, Routing, finish_reason_of


@define(eq=False)
class PlainParser:
    """Parses plain text, all of which is the answer; see `Parser`. The message opens with its first text."""

    _tokens: int = field(default=0, init=False)
    _entries: list[TokenLogprob] = field(factory=list[TokenLogprob], init=False)
    _writer: ItemWriter | None = field(default=None, init=False)

    def feed(self, chunk: Chunk) -> list[Delta]:
        """Return the text unchanged; log probabilities of tokens without text wait for the next text."""
        self._tokens += len(chunk.token_ids)
        self._entries.extend(chunk.logprobs or ())
        if chunk.text:
            return self._write(chunk.text)
        if chunk.delta is not None or (chunk.text is None and chunk.token_ids):
            raise ChunkError(chunk, "text")
        return []

    def end(self, reason: EndReason, usage: Usage) -> list[Delta]:
        """End the turn; the engine decides what an incomplete character becomes."""
        reason = finish_reason_of(reason)
        deltas = self._write("") if self._entries else []
        if self._writer is not None and reason == "stop":
            deltas += self._writer.close()
        total = evolve(usage, output_tokens=usage.output_tokens or self._tokens)
        self._tokens, self._writer = 0, None
        return [*deltas, EndTurn(reason, total)]

    def _write(self, text: str) -> list[Delta]:
        deltas: list[Delta] = []
        if self._writer is None:
            self._writer = writer_for(ANSWER)
            deltas += self._writer.open()
        entries, self._entries = self._entries, []
        return deltas + text_deltas(self._writer, text, entries)


FormatName: TypeAlias = Literal["chat", "harmony", "responses", "tagged", "text", "vllm"]
"""The names of the formats: deltas of Chat Completions, token ids of harmony, events of a Responses service, text with a family's
markers, plain text.

`vllm` is another name of `chat`, for recordings of vLLM's own parsers."""


@frozen
class Tagged:
    """The format of text with the markers of a family.

    Args:
        tool_parser: The format of calls, by a name of vLLM's `--tool-call-parser`; None leaves calls in the text.
        reasoning_parser: The format of reasoning, by a name of `--reasoning-parser`; None leaves reasoning in the text.
        starts: How the prompt ends: inside reasoning (`thinking`), or after it or without any (`between`). By default, a request
            for no reasoning (`reasoning.effort` is `none`) starts a turn without, and another one as the family does.
        special: The special tokens of the model, as `tokenizer.get_added_vocab()` of `transformers` has them: the id of each by
            its text. Where chunks have `token_ids`, a marker that is one of them counts only as that token.
    """

    tool_parser: str | None = None
    reasoning_parser: str | None = None
    starts: Literal["thinking", "between"] | None = None
    special: Mapping[str, int] = field(factory=dict[str, int], kw_only=True, hash=False)

    def __str__(self) -> str:
        """Return the name of the format."""
        return "tagged"


def tagged(name: str) -> Tagged | None:
    """Return the format of `FAMILY`, which has its usual reasoning, or of `FAMILY/REASONING`; `none` is a model without it.

    None if either is unknown.
    """
    from interlock.parsers.families import DEFAULT_REASONING, REASONINGS  # noqa: PLC0415

    tool_parser, slash, reasoning = name.partition("/")
    if tool_parser not in DEFAULT_REASONING or (slash and reasoning != "none" and reasoning not in REASONINGS):
        return None
    if not slash:
        return Tagged(tool_parser, DEFAULT_REASONING[tool_parser])
    return Tagged(tool_parser, None if reasoning == "none" else reasoning)


Format: TypeAlias = Literal["chat", "harmony", "responses", "text", "vllm"] | Tagged
"""The name of a format, or text with a family's markers."""


def parser_for(format: Format, request: Mapping[str, object]) -> Parser:  # noqa: A002 - the word of the recordings
    """Return a parser for one response to a request body of `POST /v1/responses`; its `tools` decide the kinds of calls.

    Raises:
        ModuleNotFoundError: The format is `harmony`, and `openai_harmony` is not installed.
        ValueError: The format or family is unknown; the message lists the known ones or suggests one.
    """
    match format:
        case "harmony":
            from interlock.parsers.harmony import HarmonyParser  # noqa: PLC0415

            return HarmonyParser.from_request(request)
        case "chat" | "vllm":
            from interlock.parsers.chat_deltas import ChatParser  # noqa: PLC0415

            return ChatParser(Routing.from_request(request), request.get("include_reasoning") is not False)
        case "responses":
            from interlock.parsers.responses_events import ResponsesParser  # noqa: PLC0415

            return ResponsesParser.from_request(request)
        case "text":
            return PlainParser()
        case Tagged(tool_parser, reasoning_parser, starts, special=special):
            from interlock.parsers.families import FamilyParser, ParserSettings, family  # noqa: PLC0415

            if starts is None and members(request.get("reasoning")).get("effort") == "none":
                starts = "between"
            model_family, settings = family(tool_parser, reasoning_parser), ParserSettings.from_request(request)
            settings.special = model_family.special_markers(special)
            return FamilyParser(model_family, settings, starts)
        case _:
            raise ValueError(_unknown(str(format)))


def _unknown(name: str) -> str:
    from interlock.parsers.families import REASONINGS, SYNTAXES  # noqa: PLC0415

    if name in SYNTAXES:
        return f"{name!r} is a family, not a format: did you mean Tagged({name!r})?"
    if name in REASONINGS:
        return f"{name!r} is a family's reasoning, not a format: did you mean Tagged(reasoning_parser={name!r})?"
    names = "'chat', 'harmony', 'responses', 'text'"
    return f"unknown format {name!r}: give {names}, or Tagged(FAMILY) with one of {', '.join(SYNTAXES)}"
