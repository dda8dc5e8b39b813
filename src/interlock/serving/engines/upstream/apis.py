"""The APIs that an upstream may have. A new one is a module with a `Translator`, and a row here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

TRANSLATORS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "chat": ("interlock.serving.engines.upstream.chat_upstream", "ChatTranslator"),
        "responses": ("interlock.serving.engines.upstream.responses_upstream", "ResponsesTranslator"),
        "vllm": ("interlock.serving.engines.upstream.vllm_upstream", "VllmTranslator"),
    }
)
"""The module and the translator of each API; a module is imported when its API is first used."""
