"""Write one recording for each case of docs/recovery.md, and the table that lists them; the same bytes every time.

    PYTHONPATH=tests python recordings/recovery/make.py [FOLDER]

The cases, with what a reader of the stream sees, are in tests/recovery/cases.py.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from recovery.cases import CASES, REQUEST, Case

from interlock.parsers.chunk import Chunk
from interlock.serving.engines.engine import EngineOutput
from interlock.serving.engines.recordings import RecordedTurn, Recording, write

README = """\
# Recordings of malformed output

One for each case of [docs/recovery.md](../../docs/recovery.md), which says what becomes of it and why: `interlock replay`
shows it. `make.py` writes these files and this table from the cases of the tests.

| recording | the case |
|---|---|
"""


def recording_of(case: Case) -> Recording:
    """Record a case as one turn, in chunks of three tokens."""
    chunks = [Chunk(tuple(case.ids[start : start + 3])) for start in range(0, len(case.ids), 3)] or [Chunk()]
    *before, last = (EngineOutput(chunk) for chunk in chunks)
    ended = EngineOutput(last.chunk, finish_reason=case.reason, input_tokens=12)
    return Recording("harmony", REQUEST, (RecordedTurn((*before, ended)),))


def name_of(case: Case) -> str:
    """Give the name of a case's file, without its ending."""
    return re.sub(r"[^a-z0-9]+", "-", case.name.lower()).strip("-")


def main(folder: Path) -> None:
    """Write the recordings and the table into a folder."""
    rows: list[str] = []
    for case in CASES:
        name = name_of(case)
        (folder / f"{name}.jsonl").write_text("".join(write(recording_of(case))))
        rows.append(f"| [{name}]({name}.jsonl) | {case.name} |\n")
    (folder / "README.md").write_text(README + "".join(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent)
