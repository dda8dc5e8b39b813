"""A gateway that records the answers of its upstreams as a script: the engine of `interlock record`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from attrs import define, field, frozen

from interlock.events.json import as_text, elements, is_object, members, parse
from interlock.serving.engines.engine import Turn
from interlock.serving.engines.prompt import NAMED_CALLS, call_text
from interlock.serving.engines.script import Call, Conversation, Ending, Failure, Script, ScriptRule, ScriptStep, When
from interlock.serving.engines.upstream.gateway import Gateway, UpstreamGeneration
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.create import ResponseRequest
from interlock.serving.requests.input_items import JsonItem, text_of

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

logger = logging.getLogger(__name__)

ENDINGS: Final[Mapping[object, Ending]] = {"max_output_tokens": "length", "content_filter": "content_filter"}


@frozen
class _Start:
    """The user's message at which a rule starts, the number of the model's turn after it, and the model."""

    text: str
    turn: int
    model: str


@define(eq=False)
class ScriptRecorder:
    """Writes a script in a thread after each answer, with all answers so far. Equal requests are recorded once."""

    path: Path
    _starts: dict[_Start, list[list[ScriptStep]]] = field(factory=dict[_Start, list[list[ScriptStep]]], init=False)
    _saving: asyncio.Task[None] | None = field(default=None, init=False)

    def note(self, conversation: Conversation, step: ScriptStep) -> None:
        """Record the answer to a request, or the error in its place."""
        index = max((index for index, text in enumerate(conversation.texts) if text is not None), default=0)
        start = _Start(conversation.text, index + 1, conversation.model)
        turns, position = self._starts.setdefault(start, []), conversation.turn - 1 - index
        if position > len(turns):
            logger.warning("the conversation began before the recording; its turn %d is not recorded", conversation.turn)
            return
        if position == len(turns):
            turns.append([])
        if not turns[position] or not turns[position][-1].has_answer:
            turns[position].append(step)
        elif turns[position][-1] != step:
            logger.warning("the same request had another answer before; only the first is recorded: %s", conversation.describe())
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._save())

    async def _save(self) -> None:
        """Write the script, and write it again if it has changed meanwhile."""
        saved = None
        while (script := self.script) != saved:
            try:
                await asyncio.to_thread(_write, self.path, script)
            except OSError:
                logger.exception("%s cannot be written", self.path)
            saved = script

    async def close(self) -> None:
        if self._saving is not None:
            await self._saving

    @property
    def script(self) -> Script:
        """The script so far. Rules for later turns come first, because rules for the first one match later turns too."""
        rules: list[ScriptRule] = []
        for start in sorted(self._starts, key=lambda start: start.turn == 1):
            models = {each.model for each in self._starts if each.text == start.text}
            when = When(
                text=start.text or None,
                turn=start.turn if start.turn > 1 else None,
                model=start.model if len(models) > 1 else None,
            )
            rules.append(ScriptRule(when=when, steps=[step for steps in self._starts[start] for step in steps]))
        return Script(rules)


@define(eq=False)
class RecordingGateway(Gateway):
    """A gateway that records."""

    recorder: ScriptRecorder = field(kw_only=True)

    async def close(self) -> None:
        await super().close()
        await self.recorder.close()

    async def begin(
        self, request: ResponseRequest, items: Sequence[JsonItem], tenant: str = "", connection: HTTPConnection | None = None
    ) -> UpstreamGeneration:
        begun = await super().begin(request, items, tenant, connection)
        return _RecordedGeneration(
            begun.parser, engine=self, model=request.model, translator=begun.translator, recorder=self.recorder
        )


@define(eq=False)
class _RecordedGeneration(UpstreamGeneration):
    recorder: ScriptRecorder = field(kw_only=True)
    _conversation: Conversation = field(init=False)

    async def prepare(self, turn: Turn) -> Mapping[str, object]:
        self._conversation = Conversation.of(turn.request, turn.items, {})
        return await super().prepare(turn)

    async def admit(self, turn: Turn) -> None:
        try:
            await super().admit(turn)
        except ApiError as error:
            self.recorder.note(self._conversation, ScriptStep(fails=Failure(error.status, error.message, error.retry_after)))
            raise

    def log(self, response: Mapping[str, object]) -> None:
        if response.get("status") != "cancelled":
            self.recorder.note(self._conversation, recorded_step(response))


def _write(path: Path, script: Script) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(script), indent=2) + b"\n")


def recorded_step(response: Mapping[str, object]) -> ScriptStep:
    """Return the step that writes the output of a response, without the calls that a server has run."""
    thoughts: list[str] = []
    texts: list[str] = []
    refusals: list[str] = []
    calls: list[Call] = []
    for item in map(members, elements(response.get("output"))):
        match item.get("type"):
            case "reasoning":
                thoughts.append(text_of(item.get("content")) or text_of(item.get("summary")))
            case "message":
                parts = [*map(members, elements(item.get("content")))]
                texts.append(text_of([part for part in parts if "refusal" not in part]))
                refusals.append(text_of([part for part in parts if "refusal" in part]))
            case kind if kind in NAMED_CALLS:
                text = call_text(item)
                calls.append(Call(as_text(item.get("name")), {"input": text} if "input" in item else _arguments(text)))
            case kind:
                logger.warning("a script cannot record an item of the type %s", kind)
    reason = members(response.get("incomplete_details")).get("reason")
    ends: Ending = "error" if response.get("status") == "failed" else ENDINGS.get(reason, "stop")
    thinks, says, refuses = ("\n\n".join(filter(None, each)) or None for each in (thoughts, texts, refusals))
    return ScriptStep(thinks=thinks, says=says, refuses=refuses, calls=calls, ends=ends)


def _arguments(text: str) -> dict[str, object] | str:
    value = parse(text)
    return dict(value) if is_object(value) else text
