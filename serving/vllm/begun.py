"""What vLLM has made of a request when it begins to generate, and what a run of ours takes from that.

It knows vLLM's sampling parameters and detokenizer, as far as a response shows or a parser needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from types import SimpleNamespace
from typing import Any

from attrs import frozen

from interlock.events.resource import response_settings
from interlock.events.sse import SseWriter
from interlock.fsm.driver import ResponseDriver
from interlock.serving.identity import now, random_id
from interlock.serving.requests.values import elements
from interlock.serving.sealing import REASONING_WANTED
from interlock.serving.vllm import seams
from interlock.serving.vllm.asking import Asked
from interlock.serving.vllm.pairing import Pairing
from interlock.serving.vllm.shapes import Context, Request, Sampling, Steps, Tokenizer

__all__ = ["Begun", "driver_of", "leave_text_out", "pairing", "stops"]


@frozen(eq=False)
class Begun:
    """What vLLM has made of a request when it calls one of the replaced functions; the arguments are theirs, in their order."""

    request: Request
    sampling: Sampling
    steps: Steps
    context: Context
    model: str
    tokenizer: Tokenizer
    metadata: object = None
    created_time: int | None = None


def driver_of(asked: Asked, begun: Begun, **more: Any) -> ResponseDriver[bytes]:  # noqa: ANN401 - the driver's own arguments
    """Return what makes the events of a response."""
    settings = response_settings(asked.body) | _resolved(begun)
    more |= {"ids": random_id, "clock": now, "response_id": begun.request.request_id}
    if REASONING_WANTED in elements(asked.body.get("include")):
        more["late"] = asked.seals.late_fields
    return ResponseDriver(settings, writer=SseWriter(asked.dialect), **more)


def _resolved(begun: Begun) -> dict[str, object]:
    """Return the settings that vLLM resolved, as they are used."""
    sampling = begun.sampling
    return {
        "model": begun.model,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "max_output_tokens": sampling.max_tokens,
        "store": bool(begun.request.store),
    }


def pairing(begun: Begun, prompt: Sequence[int]) -> Pairing:
    """Return what pairs the tokens of a round with the text that vLLM makes of them."""
    sampling, tokenizer = begun.sampling, begun.tokenizer
    asked = SimpleNamespace(
        stop=None,
        min_tokens=0,
        include_stop_str_in_output=True,
        skip_special_tokens=sampling.skip_special_tokens,
        spaces_between_special_tokens=sampling.spaces_between_special_tokens,
    )
    request_id = begun.request.request_id
    request = SimpleNamespace(request_id=request_id, sampling_params=asked, prompt_token_ids=list(prompt), prompt_embeds=None)
    detokenizer = seams.detokenizer()(tokenizer, request)

    def decode(token: int) -> str:
        detokenizer.token_ids.append(token)
        return detokenizer.decode_next(token)

    return Pairing(decode, stops(begun))


def leave_text_out(sampling: Sampling) -> None:
    """Have the engine's client make no text of tokens, unless it has to look for texts that stop, or to name log probabilities.

    Harmony is read by its tokens, and so its text would be made twice.

    Args:
        sampling: Of a model that writes harmony; nothing was generated with it yet.
    """
    if not sampling.stop and sampling.logprobs is None:
        sampling.detokenize = False


def stops(begun: Begun) -> AbstractSet[int]:
    """Return the special tokens that end a round."""
    return begun.sampling.all_stop_token_ids & {*begun.tokenizer.all_special_ids}
