"""What `GET /v1/models` says to Codex."""

import httpx
import pytest
from live.engines import StagedEngine

from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.http.codex_models import INSTRUCTIONS, codex_model
from interlock.serving.settings import ModelFacts

UNKNOWN = {
    "slug": "m",
    "display_name": "m",
    "description": None,
    "default_reasoning_level": None,
    "supported_reasoning_levels": [
        {"effort": "low", "description": "Fast answers with little reasoning"},
        {"effort": "medium", "description": "A balance of speed and reasoning"},
        {"effort": "high", "description": "Much reasoning for hard problems"},
    ],
    "shell_type": "default",
    "visibility": "list",
    "supported_in_api": True,
    "priority": 0,
    "availability_nux": None,
    "upgrade": None,
    "base_instructions": INSTRUCTIONS,
    "supports_reasoning_summaries": True,
    "default_reasoning_summary": "auto",
    "support_verbosity": False,
    "default_verbosity": None,
    "apply_patch_tool_type": "freeform",
    "truncation_policy": {"mode": "tokens", "limit": 10_000},
    "supports_parallel_tool_calls": True,
    "context_window": None,
    "max_context_window": None,
    "auto_compact_token_limit": None,
    "experimental_supported_tools": [],
}
KNOWN = {
    **UNKNOWN,
    "supported_reasoning_levels": [{"effort": "mild", "description": "mild"}],
    "truncation_policy": {"mode": "tokens", "limit": 2500},
    "context_window": 40_000,
    "max_context_window": 40_000,
    "auto_compact_token_limit": 30_000,
    "input_modalities": ["text"],
}


@pytest.mark.parametrize(
    ("facts", "entry"),
    [
        (ModelFacts(), UNKNOWN),
        (ModelFacts(window=40_000, efforts=["mild"], modalities=["text"]), KNOWN),
        (ModelFacts(efforts=[]), {**UNKNOWN, "supported_reasoning_levels": [], "supports_reasoning_summaries": False}),
    ],
)
def test_an_entry_has_the_facts_of_the_model(facts, entry):
    assert codex_model("m", facts, 0) == entry


@pytest.mark.parametrize(
    ("facts", "other", "both"),
    [
        (ModelFacts(window=1), ModelFacts(window=2, efforts=[]), ModelFacts(window=1, efforts=[])),
        (ModelFacts(efforts=[]), ModelFacts(efforts=["low"]), ModelFacts(efforts=[])),
        (ModelFacts(), ModelFacts(modalities=["text"]), ModelFacts(modalities=["text"])),
    ],
)
def test_facts_of_another_source_fill_the_gaps(facts, other, both):
    assert facts.fill_from(other) == both


def test_the_list_has_the_catalogue_beside_the_models(serve):
    with serve(StagedEngine()) as url:
        listed = httpx.get(f"{url}/v1/models?client_version=0.169.0").json()
        messages = httpx.get(f"{url}/v1/models", headers={"anthropic-version": "2023-06-01"}).json()
    assert listed["models"] == [codex_model(name, ModelFacts(), index) for index, name in enumerate(StagedEngine.models)]
    assert list(listed) == ["object", "data", "models"]
    assert list(messages) == ["data", "has_more", "first_id", "last_id"]


def test_an_engine_may_state_facts_of_its_model(serve):
    with serve(EmbeddedEngine()) as url:
        listed = httpx.get(f"{url}/v1/models").json()
    assert listed["data"][0]["max_model_len"] == EmbeddedEngine().facts("").window == 131_072
    assert listed["models"] == [codex_model("interlock-embedded", EmbeddedEngine().facts(""), 0)]
