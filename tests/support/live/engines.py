"""A scripted engine that writes real harmony tokens, and records its use."""

import asyncio
import threading

from attrs import define, evolve, field
from openai_harmony import HarmonyEncodingName, load_harmony_encoding

from interlock.events.json import dumps
from interlock.parsers.chunk import Chunk
from interlock.serving.engines.engine import Engine, EngineOutput
from interlock.serving.engines.harmony_tokens import token_entry
from interlock.serving.engines.prompt import estimate_prompt, output_text
from interlock.serving.requests.input_items import text_of
from interlock.serving.tools.hosting import NullTools

ENCODING = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)


def prompt_text(turn):
    """Return the prompt of a turn, roughly as gpt-oss's template writes it."""
    texts = [turn.request.instructions or "", *(dumps(tool).decode() for tool in turn.request.tools)]
    for item in turn.items:
        match item["type"]:
            case "message":
                texts.append(text_of(item["content"]))
            case "reasoning":
                texts.append(text_of(item.get("content")) or text_of(item["summary"]))
            case kind if kind.endswith("call_output"):
                texts.append(output_text(item))
            case _:
                texts.append(dumps(item).decode())
    return "<|end|>".join([*texts, "<|start|>assistant"])


REASONING = "<|channel|>analysis<|message|>Let me think.<|end|><|start|>assistant"
ANSWER = "<|channel|>final<|message|>Hello there, world."
CALL = '<|channel|>commentary to=functions.look_up <|constrain|>json<|message|>{"word": "a"}'
HOSTED_CALL = '<|channel|>commentary to=mcp.deep.ask <|constrain|>json<|message|>{"q": "a"}'


def step(text, finish_reason=None, **counts):
    """One step of an engine that writes this text."""
    return EngineOutput(Chunk(ENCODING.encode(text, allowed_special="all")), finish_reason, **counts)


def steps(text, finish_reason="stop"):
    """The same text token by token, and the end of the turn."""
    tokens = ENCODING.encode(text, allowed_special="all")
    return [*(EngineOutput(Chunk([token])) for token in tokens), EngineOutput(Chunk(), finish_reason)]


def scored_steps(text):
    """The steps of a text whose tokens all have the same log probability, and two alternatives."""
    entries = [token_entry(token, -0.5) for token in ENCODING.encode(text, allowed_special="all")]
    scored = [{**entry, "top_logprobs": [entry, {**entry, "logprob": -1.5}]} for entry in entries]
    *outputs, last = steps(text)
    return [
        *(
            evolve(output, chunk=Chunk(output.chunk.token_ids, logprobs=[entry]))
            for output, entry in zip(outputs, scored, strict=True)
        ),
        last,
    ]


@define(eq=False)
class Gate:
    """A gate at which the engine waits until the test opens it, from any thread, or forever."""

    reached: threading.Event = field(factory=threading.Event)
    _opened: asyncio.Event = field(factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop | None = None

    async def wait(self):
        self._loop = asyncio.get_running_loop()
        self.reached.set()
        await self._opened.wait()

    def open(self):
        self._loop.call_soon_threadsafe(self._opened.set)


class StagedEngine(Engine):
    """An engine that follows a script: it yields outputs, waits at gates, and raises exceptions.

    Args:
        scripts: One for each turn; the last is repeated.
    """

    models = ("staged", "org/staged-2")
    format = "harmony"

    def __init__(self, *scripts):
        self.scripts = scripts
        self.turns = []
        self.yielded = 0
        self.closed = threading.Event()

    async def count(self, turn):
        return estimate_prompt(turn)

    async def generate(self, turn):
        script = self.scripts[min(len(self.turns), len(self.scripts) - 1)]
        self.turns.append(turn)
        try:
            for each in script:
                if isinstance(each, Gate):
                    await each.wait()
                elif isinstance(each, BaseException):
                    raise each
                else:
                    self.yielded += 1
                    yield each
                    await asyncio.sleep(0)
        finally:
            self.closed.set()


@define
class ScriptedTools(NullTools):
    """Tools with scripted results, which record their calls."""

    say: object
    calls: list = field(factory=list)

    async def run(self, calls, rejected=()):
        del rejected
        if calls:
            self.calls.append(calls)
        for call in calls:
            for delta in self.say(call):
                if isinstance(delta, BaseException):
                    raise delta
                yield delta
