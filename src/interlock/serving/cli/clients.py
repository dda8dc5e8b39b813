"""How `interlock run` configures Codex and Claude Code: a table of clients, by the names of their programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

KEY_NAME: Final = "OPENAI_API_KEY"

ACCOUNTS: Final = ("ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
"""The variables that lead Claude Code to another service, or make it ask which key to use."""
TIERS: Final = ("FABLE", "OPUS", "SONNET", "HAIKU")
"""The models that Claude Code and its agents ask for by name."""
MOST_OUTPUT: Final = 32_000
"""The output tokens that Claude Code asks for by default."""


@frozen
class ServedModel:
    """A gateway and the model that a client uses there.

    Args:
        window: The model's context window in tokens, if known.
        catalog: The file with Codex's catalogue of models.
    """

    url: str
    key: str
    model: str
    window: int | None = None
    catalog: Path | None = None


@frozen
class ClientSettings:
    """The settings of a client: arguments, which precede the user's, and variables of its environment."""

    arguments: Sequence[str] = ()
    variables: Mapping[str, str] = {}


def configure_codex(served: ServedModel) -> ClientSettings:
    """Return the settings of Codex, which calls `/compact` only for a provider of this name."""
    provider = {"name": "OpenAI", "base_url": f"{served.url}/v1", "wire_api": "responses", "env_key": KEY_NAME}
    values: dict[str, object] = {"model": served.model, "model_provider": "interlock"}
    values |= {f"model_providers.interlock.{name}": value for name, value in provider.items()}
    if served.catalog is not None:
        values["model_catalog_json"] = str(served.catalog)
    return ClientSettings([argument for name, value in values.items() for argument in ("-c", f"{name}={json.dumps(value)}")])


def configure_claude(served: ServedModel) -> ClientSettings:
    """Return the settings of Claude Code, which assumes a window of 200,000 tokens or more unless a variable has another."""
    models = ("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", *(f"ANTHROPIC_DEFAULT_{tier}_MODEL" for tier in TIERS))
    variables = {
        **dict.fromkeys(ACCOUNTS, ""),
        **dict.fromkeys(models, served.model),
        "ANTHROPIC_BASE_URL": served.url,
        "ANTHROPIC_AUTH_TOKEN": served.key,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    if served.window is not None:
        variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(served.window)
        # A quarter, because a server may refuse a limit that does not fit into the window beside the prompt.
        variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(min(MOST_OUTPUT, served.window // 4))
    return ClientSettings(variables=variables)


CLIENTS: Final[Mapping[str, Callable[[ServedModel], ClientSettings]]] = {"codex": configure_codex, "claude": configure_claude}
"""The clients that need more than a URL and a key."""
