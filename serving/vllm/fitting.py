"""`truncation: auto` inside vLLM, whose own way is to cut tokens off the front of a prompt, the instructions first.

What fits is found by having vLLM render the prompt without generating. It knows nothing of how long prompts are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import cast

from interlock.serving.requests.conversation import Item
from interlock.serving.requests.truncation import truncated
from interlock.serving.vllm.rendered import RenderedRun
from interlock.serving.vllm.run import REFUSALS, is_any_of
from interlock.serving.vllm.shapes import Dumpable, Request

__all__ = ["fitted"]


async def fitted(request: Request, begin: Callable[[Request], Awaitable[object]]) -> Request:
    """Return a request without the oldest turns of its input, as far as it is too long; vLLM cuts nothing of what is left.

    Args:
        request: vLLM's, with the whole conversation as its input.
        begin: Has vLLM render a request, and returns the run that generates nothing, or vLLM's refusal.
    """
    whole = request.model_copy(update={"truncation": "disabled"})
    given = request.input
    if isinstance(given, str):
        return whole
    entries = given

    async def fits(items: Sequence[Item]) -> bool:
        probe = {"input": _entries(entries, items), "background": False, "store": False}
        try:
            begun = await begin(whole.model_copy(update=probe))
        except Exception as error:
            if is_any_of(error, REFUSALS):
                return False
            raise
        if not isinstance(begun, RenderedRun):
            return False
        await cast("RenderedRun[bytes]", begun).abandon()
        return True

    items = [{**_item(entry), "place": place} for place, entry in enumerate(entries)]
    return whole.model_copy(update={"input": _entries(entries, await truncated(items, fits))})


def _item(entry: object) -> Item:
    """Return what vLLM has made of an item as a mapping."""
    return cast("Item", entry) if isinstance(entry, Mapping) else cast("Dumpable", entry).model_dump()


def _entries(entries: Sequence[object], items: Sequence[Item]) -> list[object]:
    """Return the entries that items stand for."""
    return [entries[cast("int", item["place"])] for item in items]
