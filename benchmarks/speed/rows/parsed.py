"""A stream of a model like qwen3: outputs of which a parser of vLLM's says reasoning, content and a call, in that order."""

from __future__ import annotations

from types import ModuleType

from speed import ours
from speed.outputs import output, said, words
from speed.size import Size
from speed.timing import INTERLOCK, VLLM, Row, each


def rows(size: Size, peer: ModuleType | None) -> list[Row]:
    """Return one row; what the parser itself costs is the same for both, and left out."""
    texts = words(size.tokens)
    messages = [
        *(said(reasoning=text) for text in texts),
        *(said(content=text) for text in texts),
        said(name="get_weather", arguments=""),
        *(said(arguments=text) for text in texts),
    ]
    told = [*texts, *texts, "", *texts]
    steps = [output([1], text) for text in told]
    rounds = {INTERLOCK: each(ours.drain_parsed(messages, told), [], steps)}
    if peer is not None:
        rounds[VLLM] = each(peer.drain_parsed(messages), [], steps)
    return [Row("parse_delta", "reasoning, content, one call", "µs per token", rounds, size.repeats)]
