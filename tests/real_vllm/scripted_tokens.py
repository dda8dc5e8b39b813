"""A logits processor that makes a real engine write exactly the tokens that a test chooses.

vLLM's engine process imports it (`--logits-processors scripted_tokens:ScriptedTokens`), so it imports nothing of this project.
The script of a request is in its `vllm_xargs`: `round_0`, `round_1`, … are the token ids of each round of generation. The
processor counts the earlier rounds by the occurrences of `round_token` in the prompt. After the last token of a round, that token
is repeated. A request without a script is not changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality


class ScriptedTokens(LogitsProcessor):
    """Forces each next token of the requests that have a script."""

    def __init__(self, *_: object) -> None:
        self._scripts: dict[int, tuple[Sequence[int], list[int]]] = {}

    def is_argmax_invariant(self) -> bool:
        """Return False: the processor changes the token that greedy sampling chooses."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow the requests as they join, leave and move in the batch."""
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._scripts.pop(index, None)
        for index, params, prompt, output in batch_update.added:
            self._scripts.pop(index, None)
            script = _script(params.extra_args or {}, prompt or [])
            if script:
                self._scripts[index] = (script, output)
        for source, target, direction in batch_update.moved:
            moved, replaced = self._scripts.pop(source, None), self._scripts.pop(target, None)
            if moved is not None:
                self._scripts[target] = moved
            if replaced is not None and direction is MoveDirectionality.SWAP:
                self._scripts[source] = replaced

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Allow only the scripted token in the rows of scripted requests."""
        for index, (script, output) in self._scripts.items():
            token = script[min(len(output), len(script) - 1)]
            logit = logits[index, token].clone()
            logits[index] = float("-inf")
            logits[index, token] = logit
        return logits


def _script(extra: dict[str, object], prompt: Sequence[int]) -> Sequence[int]:
    """Return the tokens of the round that a prompt begins."""
    before = sum(token == extra.get("round_token") for token in prompt)
    script = extra.get(f"round_{before}") or ()
    return [int(token) for token in script]  # type: ignore[attr-defined]  # vLLM has checked that these are lists of numbers
