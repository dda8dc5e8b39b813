"""The table of the APIs that an upstream may have. docs/design/adding-an-upstream.md adds one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from attrs import frozen


@frozen
class UpstreamApi:
    """An API that an upstream may have.

    Args:
        module: The module in this package with its translator, which is imported when the API is first used.
        translator: The name of the class.
        provider: The `gen_ai.provider.name` of metrics and traces.
        modalities: The modalities of every model; None if they depend on the model.
        passes_tools: Whether the upstream receives tools that the gateway does not run.
    """

    module: str
    translator: str
    provider: str = "openai"
    modalities: list[Literal["text", "image", "audio"]] | None = None
    passes_tools: bool = False


UPSTREAM_APIS: Final[Mapping[str, UpstreamApi]] = MappingProxyType(
    {
        "chat": UpstreamApi("chat_upstream", "ChatTranslator"),
        "responses": UpstreamApi("responses_upstream", "ResponsesTranslator", passes_tools=True),
        "vllm": UpstreamApi("vllm_upstream", "VllmTranslator", provider="vllm", modalities=["text"]),
    }
)
"""The APIs by the values of `--upstream-api`."""
