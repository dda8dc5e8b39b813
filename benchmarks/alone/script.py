"""The output of the servers of this benchmark: prose, one token of harmony for each step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from speed.outputs import ANSWER, encode, prose

__all__ = ["FRAME", "MODEL", "written"]

MODEL: Final = "tiny"
FRAME: Final = b"event: response.output_text.delta\ndata: " + b"x" * 211 + b"\n\n"
"""An event of 254 bytes, as a token of text is."""


def written(path: Path, tokens: int) -> Path:
    """Write the recording of an answer, and return its path.

    Args:
        path: Where to.
        tokens: How many tokens of text it has.
    """
    head = {"interlock_recording": 1, "format": "harmony", "request": {"model": MODEL, "input": "Hi."}}
    steps = [encode(ANSWER), *([token] for token in prose(tokens)), encode("<|return|>")]
    lines = [head, *({"token_ids": [*step]} for step in steps)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path
