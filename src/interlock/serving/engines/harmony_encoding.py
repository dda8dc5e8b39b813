"""The vocabulary of gpt-oss, and text as its tokens.

The tokenizer takes a time that grows with the square of the length of a word, and lets nothing else run meanwhile. So a text is
encoded in slices: where two meet, a word may become one token more than it would be otherwise.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import lru_cache
from typing import Final, cast

from openai_harmony import HarmonyEncoding  # pyright: ignore[reportMissingTypeStubs] - its types are inline, without a py.typed

from interlock.events.json import clean
from interlock.parsers.harmony_vocabulary import vocabulary
from interlock.serving.requests.yielder import Yielder

__all__ = ["control", "encoded", "encoding"]

SLICE: Final = 1_024
"""Characters that are encoded in one piece; the slowest of them take three milliseconds."""


def encoding() -> HarmonyEncoding:
    """Return the vocabulary of gpt-oss, the same 50 MB that the parser reads; the first call takes a fifth of a second."""
    return cast("HarmonyEncoding", vocabulary().encoding)


async def encoded(text: str, yielder: Yielder) -> AsyncGenerator[list[int], None]:
    """Yield the tokens of a text, slice by slice; control tokens in it are text.

    Args:
        text: Any text; what UTF-8 cannot carry becomes U+FFFD.
        yielder: Of the work that this is a part of.
    """
    for start in range(0, len(text), SLICE):
        yield encoding().encode(clean(text[start : start + SLICE]), disallowed_special=())
        await yielder.checkpoint()


@lru_cache(maxsize=256)
def control(name: str) -> tuple[int, ...]:
    """Return the tokens of framing, in which control tokens are what they are.

    Args:
        name: A few words, as `<|start|>assistant`.
    """
    return tuple(encoding().encode(name, allowed_special="all"))
