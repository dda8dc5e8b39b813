"""The catalogue of models as Codex reads it: what `GET /v1/models` adds for Codex to OpenAI's list.

Codex discards a catalogue that lacks one of its fields, so an entry also has the fields that only some of its releases need.
"""

from __future__ import annotations

from typing import Final

from interlock.serving.settings import ModelFacts

EFFORTS: Final = {
    "none": "No reasoning",
    "minimal": "As little reasoning as possible",
    "low": "Fast answers with little reasoning",
    "medium": "A balance of speed and reasoning",
    "high": "Much reasoning for hard problems",
    "xhigh": "Still more reasoning",
}
"""What Codex shows beside the reasoning efforts."""
COMMON_EFFORTS: Final = ("low", "medium", "high")
"""The efforts of a model whose own are unknown. Codex names none in requests unless its user chooses one."""

MAX_TOOL_OUTPUT: Final = 10_000
"""The tokens that Codex itself keeps of a tool's output for large windows."""
OUTPUTS_PER_WINDOW: Final = 16
"""How many outputs of tools fill a small window."""
MAX_ANSWER_RESERVE: Final = 32_000
"""The most tokens of a window that are left for the next answer and outputs of tools; a small window leaves a quarter."""

INSTRUCTIONS: Final = """\
You are a coding agent in a terminal, and work in the user's workspace with the tools that you have. Work on the task until it \
is done, then report.

# Work
- Look before you change anything: read the files that matter, and search with `rg`, or `grep` where it is missing.
- Follow each `AGENTS.md` in the directories of the files that you change. The deepest one takes precedence, but the \
user's own words take precedence over all.
- For a task of several steps, first say in one or two sentences what you will do. Before a group of tool calls, say \
in a sentence what they are for.
- Edit files with `apply_patch`. Find the cause of a fault instead of hiding its effect. Change only what the task needs, in the \
style of the code around it, and leave changes that you did not make alone.
- Check your work: run the tests or the program. Start with the test that is closest to the change.
- A command that fails is information: read its output, and try another way. Ask the user only for what you cannot find out.
- Do not commit, push, delete data or install packages unless the user asks for it.

# Answers
- If the user asks a question or asks for a plan or a review, answer it and change no files. A review lists faults, the gravest \
first, each with its file and line.
- Your last message is short: what you did, where (`path:line`), how you checked it, and what remains. Say plainly what did not \
work. Do not repeat whole files.
"""
"""The base instructions of every entry, which replace Codex's own for models it does not know."""


def codex_model(name: str, facts: ModelFacts, priority: int) -> dict[str, object]:
    """Return a model's entry in Codex's catalogue; Codex lists the entries by `priority`.

    Codex compacts at `auto_compact_token_limit`, but at nine tenths of `context_window` if that is less; never if both are null.
    """
    efforts = COMMON_EFFORTS if facts.efforts is None else facts.efforts
    window = facts.window
    limit = MAX_TOOL_OUTPUT if window is None else min(MAX_TOOL_OUTPUT, window // OUTPUTS_PER_WINDOW)
    modalities = {} if facts.modalities is None else {"input_modalities": facts.modalities}
    return {
        "slug": name,
        "display_name": name,
        "description": None,
        "default_reasoning_level": None,
        "supported_reasoning_levels": [{"effort": each, "description": EFFORTS.get(each, each)} for each in efforts],
        "shell_type": "default",
        "visibility": "list",
        "supported_in_api": True,
        "priority": priority,
        "availability_nux": None,
        "upgrade": None,
        "base_instructions": INSTRUCTIONS,
        "supports_reasoning_summaries": bool(efforts),
        "default_reasoning_summary": "auto",
        "support_verbosity": False,
        "default_verbosity": None,
        "apply_patch_tool_type": "freeform",
        "truncation_policy": {"mode": "tokens", "limit": limit},
        "supports_parallel_tool_calls": True,
        "context_window": window,
        "max_context_window": window,
        "auto_compact_token_limit": None if window is None else window - min(MAX_ANSWER_RESERVE, window // 4),
        "experimental_supported_tools": [],
        **modalities,
    }
