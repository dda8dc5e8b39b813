"""Compaction inside vLLM: vLLM begins a response that is the summary, and then the response again, from what is left.

Both take the way of any other request: they are read, validated and rendered, and vLLM's loop over rounds becomes a run of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, cast

from attrs import evolve

from interlock.serving.requests.compaction import compacted, summary_message, summary_request, window
from interlock.serving.requests.conversation import read_input
from interlock.serving.requests.values import members
from interlock.serving.runs.compacting import FAILED, Compaction, CompactionError
from interlock.serving.vllm import seams
from interlock.serving.vllm.asking import Asked
from interlock.serving.vllm.run import VllmRun
from interlock.serving.vllm.shapes import Dumpable, Request

if TYPE_CHECKING:
    from interlock.events.dialects import Dialect

__all__ = ["begin_summary", "compaction_of"]


class Beginner(Protocol):
    """What reads requests and has vLLM begin them: the hooks."""

    async def read(self, body: Mapping[str, object], dialect: Dialect, tenant: str = "") -> tuple[dict[str, object], Asked]:
        """Return the body that vLLM is to validate, and what was asked."""
        ...

    async def begin(self, asked: Asked, request: Request, raw_request: None) -> object:
        """Return the run, or vLLM's refusal."""
        ...


def compaction_of(beginner: Beginner, asked: Asked, run: VllmRun[bytes], request_id: str) -> Compaction | None:
    """Return how the conversation of a response is compacted; None if it is not to be.

    Args:
        beginner: Has vLLM begin what is to be generated.
        asked: The request; vLLM has rendered its prompt.
        run: The response.
        request_id: Its id.
    """
    threshold = asked.compact_threshold
    if not asked.compacts_only and (threshold is None or asked.prompts[-1] <= threshold):
        return None

    async def is_due() -> bool:
        return True  # or else nobody would have been given this

    async def begin() -> VllmRun[bytes]:
        return _begun(await begin_summary(beginner, asked))

    async def take(text: str) -> None:
        said = [*compacted(window(asked.items)), summary_message(text)]
        body = {**asked.body, "input": said, "previous_response_id": None, "background": False}
        again = await _begin(beginner, asked, body, run, request_id)
        await run.take_over(_begun(again))

    return Compaction(is_due, begin, asked.seals.seal_summary, take, asked.compacts_only)


async def begin_summary(beginner: Beginner, asked: Asked) -> object:
    """Have vLLM begin the response that is the summary of a conversation.

    Args:
        beginner: Has vLLM begin it.
        asked: A request that goes on from the conversation.

    Returns:
        The run, or vLLM's refusal.
    """
    body = summary_request(asked.body)
    return await _begin(beginner, asked, {**body, "input": [*window(asked.items), *read_input(body["input"])]})


async def _begin(
    beginner: Beginner,
    asked: Asked,
    body: Mapping[str, object],
    run: VllmRun[bytes] | None = None,
    request_id: str | None = None,
) -> object:
    theirs, read = await beginner.read(body, asked.dialect, asked.seals.tenant)
    request = seams.valid_request(seams.router(), {**theirs, "stream": True})
    if request_id is not None:
        request.request_id = request_id
    return await beginner.begin(evolve(read, driver=None if run is None else run.driver), request, None)


def _begun(begun: object) -> VllmRun[bytes]:
    """Return a run that vLLM has begun.

    Raises:
        CompactionError: vLLM has refused it.
    """
    if isinstance(begun, VllmRun):
        return cast("VllmRun[bytes]", begun)
    error = members(cast("Dumpable", begun).model_dump(mode="json", by_alias=True).get("error"))
    raise CompactionError(f"{FAILED}{error.get('message')}")
