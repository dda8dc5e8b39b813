"""The outputs of an engine, equal for both contenders: vLLM's own objects if it is installed, or else objects of their shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import cycle, islice
from typing import Any, Final

from attrs import frozen
from openai_harmony import HarmonyEncoding, load_harmony_encoding

_VLLM: Final = find_spec("vllm")
HAS_VLLM: Final = _VLLM is not None and _VLLM.origin is not None  # a folder of that name has no origin

PROSE: Final = (
    "An interlocking lets a signal show clear only when every point on the route lies right, is locked, and no other route "
    "that crosses it is set; the levers themselves refuse what would be wrong, so that nobody has to remember the rule. "
)

ANALYSIS: Final = "<|channel|>analysis<|message|>"
ANSWER: Final = "<|channel|>final<|message|>"
CALL: Final = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
NEXT: Final = "<|end|><|start|>assistant"


@frozen
class Completion:
    """The shape of vLLM's `CompletionOutput`."""

    token_ids: Sequence[int]
    text: str
    finish_reason: str | None = None
    logprobs: None = None


@frozen
class Output:
    """The shape of vLLM's `RequestOutput`."""

    outputs: Sequence[Completion]
    prompt_token_ids: Sequence[int] = (1, 2, 3)
    num_cached_tokens: int = 0
    num_cache_creation_tokens: int = 0
    finished: bool = False


@frozen
class Stream:
    """The output of a model of a family, before the measured part.

    Args:
        calls: As in `--tool-call-parser`.
        reasoning: As in `--reasoning-parser`; None if no such parser is used.
        before: The text.
    """

    calls: str
    reasoning: str | None
    before: str


@cache
def encoding() -> HarmonyEncoding:
    """Return the vocabulary of gpt-oss."""
    return load_harmony_encoding("HarmonyGptOss")


def encode(text: str) -> list[int]:
    """Return the tokens of text in which control tokens are written out."""
    return encoding().encode(text, allowed_special="all")


def prose(count: int) -> list[int]:
    """Return some tokens of prose."""
    return list(islice(cycle(encode(PROSE)), count))


def words(count: int) -> list[str]:
    """Return the text of some tokens of prose, one by one."""
    return list(islice(cycle([encoding().decode([token]) for token in encode(PROSE)]), count))


@cache
def _maker() -> Callable[[Sequence[int], str], Any]:
    if not HAS_VLLM:
        return lambda token_ids, text: Output([Completion(token_ids, text)])
    from vllm.outputs import CompletionOutput, RequestOutput  # noqa: PLC0415 - seconds, where it is installed at all

    def make(token_ids: Sequence[int], text: str) -> object:
        completion = CompletionOutput(0, text, token_ids, None, None)
        return RequestOutput("request", "prompt", [1, 2, 3], None, [completion], finished=False)

    return make


def output(token_ids: Sequence[int], text: str = "") -> Any:  # noqa: ANN401 - vLLM's class or its shape
    """Return the output of one step of an engine for one request."""
    return _maker()(token_ids, text)


def outputs(token_ids: Iterable[int]) -> list[Any]:
    """Return one output for each token."""
    return [output([token]) for token in token_ids]


def begun() -> Any:  # noqa: ANN401 - vLLM's class or its shape
    """Return the header and the first token of an answer, at once."""
    return output([*encode(ANSWER), *prose(1)])


def said(**fields: object) -> Any:  # noqa: ANN401 - vLLM's class or its shape
    """Return a delta of vLLM's parsers: `reasoning`, `content`, or a chunk of the `arguments` of a call of a `name`."""
    if "arguments" in fields:
        function = {name: fields[name] for name in ("name", "arguments") if name in fields}
        named = {"id": "call_1", "type": "function"} if "name" in fields else {}
        fields = {"tool_calls": [{"index": 0, "function": function, **named}]}
    return _message()(**fields)


@cache
def _message() -> Callable[..., Any]:
    if not HAS_VLLM:
        return dict
    from vllm.entrypoints.generate.base.protocol import DeltaMessage  # noqa: PLC0415 - see above

    return DeltaMessage


@frozen
class Replay:
    """A parser in vLLM's shape that returns prepared deltas, so that only the further work of both contenders is measured."""

    said: Iterator[object]

    def parse_delta(self, *_arguments: object, **_more: object) -> object:
        """Return the next delta message."""
        return next(self.said)

    def count_reasoning_tokens(self, _token_ids: Sequence[int]) -> int:
        """Count nothing."""
        return 0


REQUEST: Final[Mapping[str, object]] = {
    "model": "m",
    "input": "How does an interlocking work?",
    "stream": True,
    "store": False,
    "tools": [{"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}],
}
"""The request."""
