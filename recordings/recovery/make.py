"""Write one recording for each case of malformed harmony, and the table that lists them; the same bytes every time.

    PYTHONPATH=tests/support python recordings/recovery/make.py [FOLDER]

The cases, with what a reader of the stream sees, are in tests/support/recovery/cases.py.
"""

from __future__ import annotations

import re
import sys
from itertools import groupby
from pathlib import Path

from recovery.cases import CASES, REQUEST, Case
from recovery.notation import Item, encoding

from interlock.parsers.chunk import Chunk
from interlock.serving.engines.engine import EngineOutput
from interlock.serving.engines.recordings import RecordedTurn, Recording, write

LAST_TOKEN = 201_087
"""The highest id of harmony's vocabulary."""

README = """\
# Recordings of malformed output

Each recording is one malformed turn of harmony, and `interlock replay FILE` shows its stream.
[docs/conformance/recovery.md](../../docs/conformance/recovery.md) has the rules.
`make.py` writes these files and this table from the cases of the tests.

Control tokens are written without their bars: `<channel>` is the token `<|channel|>`. `<-1>` is an id that no vocabulary has, and
`�` stands for bytes that are no character. The request declares the function `get_weather`, the code interpreter and web search.
An answer is a message of phase `final_answer`, a preamble one of phase `commentary`.

| case | the model writes | the client receives |
|---|---|---|
"""

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


def name_of(case: Case) -> str:
    """Give the name of a case's file, without its ending."""
    return re.sub(r"[^a-z0-9]+", "-", case.name.lower()).strip("-")


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


def main(folder: Path) -> None:
    """Write the recordings and the table into a folder."""
    rows: list[str] = []
    for case in CASES:
        name = name_of(case)
        (folder / f"{name}.jsonl").write_text("".join(write(recording_of(case))))
        items = "; ".join(map(received, case.items)) or "nothing"
        rows.append(f"| [{case.name}]({name}.jsonl) | {written(case)} | {items} |\n")
    (folder / "README.md").write_text(README + "".join(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent)
