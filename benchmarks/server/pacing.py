"""A logits processor: an engine on the CPU keeps the pace of one on a GPU, and writes the tokens of a script.

Steps of a tiny model are shorter than what the server needs for their tokens; the queue would then merge outputs as it
happens, and the process would be measured at work that nobody has. A request says in its `vllm_xargs` how long a step takes,
`pace`; the rest of it is spent asleep, so that the processor is left to the server. The step behind its leap (`leap_after`, see
`server.leaps`) takes `pause` more, in which the leap is read.
"""

from __future__ import annotations

from time import monotonic, sleep

import torch
from scripted_tokens import ScriptedTokens
from vllm.v1.sample.logits_processor import BatchUpdate


class PacedTokens(ScriptedTokens):
    """Forces each next token, and waits until the step has had its planned time."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self._pace = self._before = self._pause = 0.0
        self._leaps = 0

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow the requests; the pace is that of the last one that joined."""
        super().update_state(batch_update)
        for _, params, _, _ in batch_update.added if batch_update is not None else ():
            extra = params.extra_args or {}
            self._pace, self._pause = float(extra.get("pace", 0)), float(extra.get("pause", 0))
            self._leaps = int(extra.get("leap_after", -1))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Allow only one token, after the planned time of the step."""
        logits = super().apply(logits)
        leapt = any(len(output) == self._leaps for _, output in self._scripts.values())
        sleep(max(0.0, self._before + self._pace - monotonic()) + (self._pause if leapt else 0))
        self._before = monotonic()
        return logits
