"""What the engine's client is made to do in a server that is measured, so that long responses need not be waited for.

A request says in its `vllm_xargs` that its model leaps: after `leap_after` tokens, `leap_tokens` come at once, of which
`leap_text` is the text, as if they had been generated and had waited in the queue. And it says how many tokens make an output,
`interval`, which is otherwise a flag of the server; requests with different ones must not be sent at once. All the rest, the
engine included, is real.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final

LEAP: Final = 1_000
"""The tokens of a leap at least: more than outputs ever merge."""


def hook(client: Any) -> None:  # noqa: ANN401 - vLLM's
    """Replace the one function of the engine's client that generates."""
    theirs = client.generate

    def generate(prompt: Any, sampling: Any, request_id: str, **others: Any) -> AsyncGenerator[Any]:  # noqa: ANN401 - vLLM's
        extra = sampling.extra_args or {}
        client.output_processor.stream_interval = int(extra.get("interval", 1))
        outputs = theirs(prompt, sampling, request_id, **others)
        return _leaping(outputs, extra) if "leap_tokens" in extra else outputs

    client.generate = generate


async def _leaping(outputs: AsyncGenerator[Any], extra: dict[str, Any]) -> AsyncGenerator[Any]:
    seen = 0
    async for output in outputs:
        new = output.outputs[0]
        before, seen = seen, seen + len(new.token_ids)
        if before < extra["leap_after"] <= seen:
            new.token_ids = [*new.token_ids, *extra["leap_tokens"]]
            new.text += extra["leap_text"]
        yield output
