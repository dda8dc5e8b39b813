"""The records of the responses that vLLM makes in the background."""

from __future__ import annotations

from typing import TypeAlias

from interlock.serving import background
from interlock.serving.vllm.run import VllmRun

__all__ = ["Record", "Records"]

Record: TypeAlias = background.Record[VllmRun[bytes]]
Records: TypeAlias = background.Records[VllmRun[bytes]]
