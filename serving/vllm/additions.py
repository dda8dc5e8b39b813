"""What vLLM adds to the object of a response that has ended, beyond the fields of the API.

Each is there where vLLM's own response has a value for it: what a transfer of the KV cache or of an encoder's needs, the
messages in the model's own form for requests that ask for them, and timings on a server that was started to give them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

from attrs import frozen

from interlock.serving.faults import is_fault
from interlock.serving.vllm import seams
from interlock.serving.vllm.rounds import Rounds
from interlock.serving.vllm.shapes import Context, Dumpable, Request, Serving

__all__ = ["Additions"]

logger = logging.getLogger(__name__)


@frozen(eq=False)
class Additions:
    """Gives the additions to one response.

    Args:
        serving: vLLM's.
        request: vLLM's.
        context: vLLM's.
        rounds: Know the last output, and how many tokens were generated.
    """

    _serving: Serving
    _request: Request
    _context: Context
    _rounds: Rounds

    def __call__(self) -> dict[str, object]:
        """Return the fields; none if one cannot be had, because a response ends whatever happens (rule R4)."""
        try:
            return dict(self._fields())
        except BaseException as error:
            if not is_fault(error):
                raise
            logger.exception("%s: the response goes without vLLM's own fields", self._request.request_id)
            return {}

    def _fields(self) -> Iterator[tuple[str, object]]:
        for name in ("kv_transfer_params", "ec_transfer_params"):
            value: object = getattr(self._rounds.output, name, None)
            if value is not None:
                yield name, value
        if self._request.enable_response_messages:
            before, after = self._messages()
            yield "input_messages", [_plain(message) for message in before]
            yield "output_messages", [_plain(message) for message in after]
        if getattr(self._serving, "enable_per_request_metrics", False) and getattr(self._context, seams.TIMED, False):
            timings = seams.timings()(getattr(self._context, "request_metrics", None), self._rounds.spent)
            yield "metrics", timings.model_dump(mode="json")

    def _messages(self) -> tuple[Sequence[object], Sequence[object]]:
        """Return what the model was given, and what came of it."""
        if not self._serving.use_harmony:
            return getattr(self._context, "input_messages", ()), getattr(self._context, "output_messages", ())
        messages: Sequence[object] = getattr(self._context, "messages", ())
        given: int = getattr(self._context, "num_init_messages", 0)
        return messages[:given], messages[given:]


def _plain(message: object) -> object:
    """Return a message, of harmony or of vLLM's, as JSON values."""
    to_dict = cast("Callable[[], Mapping[str, object]] | None", getattr(message, "to_dict", None))
    return to_dict() if to_dict is not None else cast("Dumpable", message).model_dump(mode="json")
