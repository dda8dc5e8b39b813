"""The lines of a recording: those of its stream, and before each event what the parser read and which deltas it returned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import define, field

from interlock.events.dialects import OPENAI, Dialect
from interlock.events.json import dumps
from interlock.events.sse import DONE_FRAME
from interlock.fsm.deltas import Delta, Usage
from interlock.parsers import Chunk, HarmonyParser, Routing
from interlock.parsers.harmony_framing import Trigger
from interlock.parsers.harmony_vocabulary import vocabulary
from interlock.serving.engines.recordings import Recording, Step, replay_steps
from interlock.serving.view.event_lines import Line, Trace
from interlock.serving.view.redaction import HIDDEN


def recording_lines(recording: Recording, trace: Trace, dialect: Dialect = OPENAI) -> Iterator[Sequence[Line]]:
    """Yield the lines of each step of the replay."""
    origin = _Origin(HarmonyParser(Routing.from_request(recording.request)) if recording.format == "harmony" else None)
    for step, frames in replay_steps(recording, dialect):
        origin.take(step)
        lines: list[Line] = []
        if frames:
            lines.append(("made", trace.stream, trace.events, origin.clear(redact=trace.redact)))
        for frame in frames:
            lines += trace.feed(frame)
        yield lines
    yield [*trace.feed(DONE_FRAME), *trace.end()]


@define(eq=False)
class _Origin:
    parser: HarmonyParser | None
    """A second parser, fed token by token to see how each moves the framing; None for other formats."""
    tokens: list[tuple[int, str]] = field(factory=list[tuple[int, str]], init=False)
    framing: list[tuple[str, str, str]] = field(factory=list[tuple[str, str, str]], init=False)
    """The edges of the framing that fired: source, trigger, dest."""
    texts: list[str] = field(factory=list[str], init=False)
    deltas: list[Delta] = field(factory=list[Delta], init=False)

    def take(self, step: Step) -> None:
        self.deltas += step.deltas
        if step.output is not None:
            chunk = step.output.chunk
            if self.parser is not None:
                self._read(self.parser, chunk.token_ids)
            elif chunk.text:
                self.texts.append(chunk.text)
            elif chunk.delta is not None:
                self.texts.append(dumps(chunk.delta).decode())
        elif step.result is not None:
            self.texts.append(step.result.output if step.result.error is None else step.result.error)
        elif step.ends_turn is not None and self.parser is not None:
            before = self.parser.framing
            self.parser.end(step.ends_turn, Usage())
            self.framing.append((before, "finish" if step.ends_turn == "stop" else "cut", self.parser.framing))

    def _read(self, parser: HarmonyParser, tokens: Sequence[int]) -> None:
        for token in tokens:
            before = parser.framing
            parser.feed(Chunk((token,)))
            meaning = vocabulary().read(token)
            self.tokens.append((token, _written(token, meaning)))
            self.framing.append((before, _trigger(meaning, before, parser.framing), parser.framing))

    def clear(self, *, redact: bool) -> dict[str, object]:
        """Return what was read, and start anew."""
        made: dict[str, object] = {"deltas": [type(delta).__name__ if redact else repr(delta) for delta in self.deltas]}
        if self.tokens:
            made["tokens"] = [(0, HIDDEN * len(text)) for _, text in self.tokens] if redact else self.tokens
        if self.framing:
            made["framing"] = self.framing
        if self.texts:
            whole = "\n".join(self.texts)
            made["text"] = HIDDEN * len(whole) if redact else whole
        self.tokens, self.framing, self.texts, self.deltas = [], [], [], []
        return made


def _written(token: int, meaning: str | bytes | Trigger) -> str:
    match meaning:
        case Trigger():
            try:
                return vocabulary().encoding.decode([token], errors="replace")
            except (OverflowError, RuntimeError):
                return f"<|{token}|>"
        case bytes():
            return meaning.decode(errors="backslashreplace")
        case _:
            return meaning


def _trigger(meaning: str | bytes | Trigger, before: str, after: str) -> str:
    """Return the trigger of a token: text outside of content is a word of a header, or prose that ends it."""
    if isinstance(meaning, Trigger):
        return meaning.value
    if before == "content":
        return Trigger.TEXT.value
    return (Trigger.PROSE if after == "content" else Trigger.WORD).value
