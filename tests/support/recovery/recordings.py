"""A recording of each case of malformed harmony, and the table of all for docs/evidence/conformance/recovery.md."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from recovery.cases import CASES, REQUEST, Case
from recovery.notation import Item, encoding

from interlock.parsers.chunk import Chunk
from interlock.serving.engines.engine import EngineOutput
from interlock.serving.engines.recordings import RecordedTurn, Recording

LAST_TOKEN = 201_087
"""The highest id of harmony's vocabulary."""

WORDS = {
    "reasoning": "reasoning",
    "function_call": "call of {name}",
    "mcp_call": "call of {name} on the MCP server {server_label}",
    "code_interpreter_call": "code",
    "web_search_call": "web search",
}
"""What the table calls an item, by its kind."""

ENDINGS = {"Close": "", "Reject": ", failed", "": ", incomplete"}
"""What the table adds to an item, by how the parser ended it."""


def recording_of(case: Case) -> Recording:
    """Record a case as one turn, in chunks of three tokens."""
    chunks = [Chunk(tuple(case.ids[start : start + 3])) for start in range(0, len(case.ids), 3)] or [Chunk()]
    *before, last = (EngineOutput(chunk) for chunk in chunks)
    ended = EngineOutput(last.chunk, finish_reason=case.reason, input_tokens=12)
    return Recording("harmony", REQUEST, (RecordedTurn((*before, ended)),))


def written(case: Case) -> str:
    """Return what the model writes, as the table has it."""
    groups = groupby(case.ids, key=lambda token: 0 <= token <= LAST_TOKEN)
    text = "".join(encoding().decode([*ids]) if valid else "".join(f"<{token}>" for token in ids) for valid, ids in groups)
    return f"`{text.replace('<|', '<').replace('|>', '>')}`" + (" (the budget ends)" if case.reason == "length" else "")


def received(item: Item) -> str:
    """Return what the client receives of an item, as the table has it."""
    if item.kind == "message":
        name = "answer" if item.fields["phase"] == "final_answer" else "preamble"
    else:
        name = WORDS[item.kind].format(**item.fields)
    text = item.fields["action"]["query"] if item.kind == "web_search_call" else item.text
    return name + (f" `{text}`" if text else ", empty") + ENDINGS[item.ending]


def recordings() -> dict[str, Recording]:
    """Return the recording of each case, by the name of the case."""
    return {case.name: recording_of(case) for case in CASES}


def rows() -> Iterator[str]:
    """Yield the rows of the table."""
    for case in CASES:
        yield f"| {case.name} | {written(case)} | {'; '.join(map(received, case.items)) or 'nothing'} |"
