"""The lines of a page for a recording of a model's output: its stream, and what each event was made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import define, field

from interlock.events.dialects import OPENAI, Dialect
from interlock.events.json import dumps
from interlock.events.sse import DONE_FRAME, SseWriter
from interlock.fsm.deltas import Delta, Usage
from interlock.parsers import Chunk, HarmonyParser, Routing
from interlock.parsers.harmony import HarmonyTrigger, vocabulary
from interlock.serving.engines.recordings import Recording, ReplayStep, replay_steps
from interlock.serving.view.trace import Line, Trace


def recording_lines(recording: Recording, trace: Trace, dialect: Dialect = OPENAI) -> Iterator[Sequence[Line]]:
    """Yield the lines of a replayed recording: one list for each `ReplayStep`, and one for `[DONE]` and the stream's end."""
    origin = _Origin(HarmonyParser(Routing.from_request(recording.request)) if recording.format == "harmony" else None)
    for step, frames in replay_steps(recording, SseWriter(dialect)):
        origin.take(step)
        lines: list[Line] = []
        if frames:
            lines.append(("origin", trace.events, origin.clear()))
        for frame in frames:
            lines += trace.feed(frame)
        yield lines
    yield [*trace.feed(DONE_FRAME), *trace.end()]


@define(eq=False)
class _Origin:
    parser: HarmonyParser | None
    """A second parser, fed token by token to see how each moves harmony's framing; None for other formats."""
    tokens: list[tuple[int, str]] = field(factory=list[tuple[int, str]], init=False)
    framing: list[tuple[str, str, str]] = field(factory=list[tuple[str, str, str]], init=False)
    """The edges of the framing that fired: source, trigger, dest."""
    texts: list[str] = field(factory=list[str], init=False)
    deltas: list[Delta] = field(factory=list[Delta], init=False)

    def take(self, step: ReplayStep) -> None:
        self.deltas += step.deltas
        if step.output is not None:
            chunk = step.output.chunk
            if self.parser is not None:
                for token in chunk.token_ids:
                    before = self.parser.framing
                    self.parser.feed(Chunk((token,)))
                    meaning = vocabulary().read(token)
                    self.tokens.append((token, _token_text(token, meaning)))
                    self.framing.append((before, _trigger(meaning, before, self.parser.framing), self.parser.framing))
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

    def clear(self) -> dict[str, object]:
        origin: dict[str, object] = {"deltas": [*map(repr, self.deltas)]}
        if self.tokens:
            origin["tokens"] = self.tokens
        if self.framing:
            origin["framing"] = self.framing
        if self.texts:
            origin["text"] = "\n".join(self.texts)
        self.tokens, self.framing, self.texts, self.deltas = [], [], [], []
        return origin


def _token_text(token: int, meaning: str | bytes | HarmonyTrigger) -> str:
    match meaning:
        case HarmonyTrigger():
            try:
                return vocabulary().encoding.decode([token], errors="replace")
            except (OverflowError, RuntimeError):
                return f"<|{token}|>"
        case bytes():
            return meaning.decode(errors="backslashreplace")
        case _:
            return meaning


def _trigger(meaning: str | bytes | HarmonyTrigger, before: str, after: str) -> str:
    """Return the trigger of a token. Text outside of content is a word of a header, or prose that begins content."""
    if isinstance(meaning, HarmonyTrigger):
        return meaning.value
    if before == "content":
        return HarmonyTrigger.TEXT.value
    return (HarmonyTrigger.PROSE if after == "content" else HarmonyTrigger.WORD).value
