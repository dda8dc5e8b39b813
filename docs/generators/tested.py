"""The clients of the tests with their versions, read from the files that pin them, so that no page names an old one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

CLIENTS: Final = Path(__file__).parents[2] / "tests" / "clients"

TESTED: Final[dict[str, tuple[str, str, str] | None]] = {
    "npm @openai/codex": (
        "Codex",
        "Responses",
        "calls tools, reads, patches and runs files, continues and compacts a session",
    ),
    "npm @anthropic-ai/claude-code": (
        "Claude Code",
        "Messages",
        "reads, edits and runs files, survives a tool's error, searches its tools, compacts and continues sessions",
    ),
    "npm opencode-linux-x64": ("opencode", "Responses, Chat Completions", "reads a file with its own tool"),
    "npm @continuedev/cli": ("Continue", "Chat Completions", "reads a file with its own tool"),
    "npm @qwen-code/qwen-code": ("Qwen Code", "Chat Completions", "reads a file with its own tool"),
    "npm @earendil-works/pi-coding-agent": ("pi", "Responses, Chat Completions, Messages", "reads a file with its own tool"),
    "pip aider-chat": ("aider", "Chat Completions, Messages", "edits a file"),
    "pip openai": ("`openai` for Python", "Responses, Chat Completions", "calls a tool; its streams add up to the whole answers"),
    "npm openai": (
        "`openai` for Node",
        "Responses, Chat Completions",
        "the same; of the reasoning in Chat Completions, its helper keeps and sends back only the last delta",
    ),
    "pip anthropic": (
        "`anthropic` for Python",
        "Messages",
        "calls a tool, also by its tool runner; its streams add up to the whole answers",
    ),
    "npm @anthropic-ai/sdk": ("`@anthropic-ai/sdk`", "Messages", "the same"),
    "pip openai-agents": ("OpenAI Agents SDK for Python", "Responses", "calls a tool"),
    "npm @openai/agents": ("OpenAI Agents SDK for JavaScript", "Responses", "calls a tool"),
    "npm @ai-sdk/openai": ("AI SDK, `@ai-sdk/openai`", "Responses", "calls a tool"),
    "npm @ai-sdk/open-responses": ("AI SDK, `@ai-sdk/open-responses`", "Responses", "calls a tool"),
    "npm @ai-sdk/anthropic": ("AI SDK, `@ai-sdk/anthropic`", "Messages", "calls a tool"),
    "npm ai-6": ("AI SDK 6 with its providers", "Responses, Chat Completions, Messages", "calls a tool"),
    "npm ai-5": ("AI SDK 5 with its providers", "Responses, Chat Completions, Messages", "calls a tool"),
    "pip langchain-openai": ("LangChain, `langchain-openai`", "Responses, Chat Completions", "calls a tool"),
    "pip langchain-anthropic": ("LangChain, `langchain-anthropic`", "Messages", "calls a tool"),
    "pip pydantic-ai-slim": ("Pydantic AI", "Responses", "calls a tool"),
    "pip instructor": ("instructor", "Chat Completions", "fills in an object"),
    "pip llama-index-llms-openai-like": ("LlamaIndex, `llama-index-llms-openai-like`", "Chat Completions", "calls a tool"),
    "pip crewai": ("CrewAI", "Chat Completions", "calls a tool"),
    "pip openhands-sdk": ("OpenHands, its SDK", "Chat Completions", "calls a tool"),
    "pip smolagents": ("smolagents", "Chat Completions", "calls a tool"),
    "pip google-adk": ("Google's ADK", "Chat Completions", "calls a tool"),
    "pip strands-agents": ("Strands Agents", "Chat Completions, Messages", "calls a tool"),
    "pip litellm": ("LiteLLM", "Responses, Messages", "calls a tool"),
    "pip llm-comply": (
        "llm-comply",
        "Responses, Chat Completions, Messages",
        "passes 13, 9 and 4 tests; five of Messages want `citations: null`, which AI SDK 5 and 6 refuse",
    ),
    "npm ai": None,
    "npm ai-sdk-anthropic-2": None,
    "npm ai-sdk-anthropic-3": None,
    "npm ai-sdk-openai-2": None,
    "npm ai-sdk-openai-3": None,
    "npm zod": None,
    "pip langchain": None,
    "pip llama-index-core": None,
    "pip mcp": None,
}
"""The name of each pinned client, its APIs and what it does in the tests; None for packages that another client needs."""


def table() -> Iterator[str]:
    """Yield the lines of the table. A pin that has no entry in `TESTED` raises `KeyError`, and so does an entry without a pin."""
    pins = dict(_pins())
    if gone := TESTED.keys() - pins:
        raise KeyError(*gone)
    yield "| client | version | API | in the tests, it |"
    yield "|---|---|---|---|"
    rows = [(TESTED[name], version) for name, version in sorted(pins.items(), key=lambda pin: [*TESTED].index(pin[0]))]
    yield from (f"| {row[0]} | {version} | {row[1]} | {row[2]} |" for row, version in rows if row is not None)


def _pins() -> Iterator[tuple[str, str]]:
    packages = json.loads((CLIENTS / "package.json").read_text("utf-8"))
    for name, version in {**packages["dependencies"], **packages["optionalDependencies"]}.items():
        yield f"npm {name}", version.rpartition("@")[2]  # of an alias, such as `npm:ai@5.0.277`
    for file in sorted(CLIENTS.glob("*.txt")):
        for name, version in re.findall(r"^([\w-]+)(?:\[.*\])?==(\S+)$", file.read_text("utf-8"), re.MULTILINE):
            yield f"pip {name}", version
