"""A change of the engine's client in a measured server: it skips the wait for long responses.

A request says in its `vllm_xargs` with how many others it begins, `together`: it is held back until all of them are there. After
`leap_after` tokens its model leaps: `leap_tokens` come at once, `leap_times` times, and then `mark_tokens`, as if they had been
generated and had waited in the queue; their text is `leap_text` and `mark_text`. And it says how many tokens make an output,
`interval`, which is otherwise a flag of the server; requests with different ones must not be sent at once. All the rest, the
engine included, is real.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

from attrs import define, field

LEAPT: Final = "leapt"
"""The attribute of an output that holds a leap."""


@define(eq=False)
class Gate:
    """Holds back requests until all of a group have arrived."""

    _waiting: int = 0
    _opened: asyncio.Event = field(factory=asyncio.Event)

    async def passed(self, together: int) -> None:
        """Wait until as many requests wait."""
        self._waiting += 1
        opened = self._opened
        if self._waiting >= together:
            self._waiting, self._opened = 0, asyncio.Event()
            opened.set()
        await opened.wait()


def hook(client: Any) -> None:  # noqa: ANN401 - vLLM's
    """Replace the function of the engine's client that generates."""
    theirs, gate = client.generate, Gate()

    async def generate(prompt: Any, sampling: Any, request_id: str, **others: Any) -> AsyncGenerator[Any]:  # noqa: ANN401 - vLLM's
        extra, seen = sampling.extra_args or {}, 0
        client.output_processor.stream_interval = int(extra.get("interval", 1))
        await gate.passed(int(extra.get("together", 1)))
        async for output in theirs(prompt, sampling, request_id, **others):
            if seen is not None:
                new = output.outputs[0]
                seen += len(new.token_ids)
                if seen >= extra.get("leap_after", seen + 1):
                    new.token_ids = [*new.token_ids, *extra["leap_tokens"] * extra["leap_times"], *extra["mark_tokens"]]
                    new.text += extra["leap_text"] * extra["leap_times"] + extra["mark_text"]
                    setattr(output, LEAPT, True)
                    seen = None
            yield output

    client.generate = generate
