"""Write the corpus: one file for each legal stream under `legal/`, one for each broken stream under `broken/`.

Run it from anywhere with `python tests/corpus/make_corpus.py`. A test fails if a file differs from what this writes.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from corpus.broken import BROKEN, BROKEN_FRAMES  # noqa: E402 (the corpus is no package of its own and must be found first)
from corpus.frames import framed  # noqa: E402 (likewise)
from corpus.legal import LEGAL  # noqa: E402 (likewise)


def corpus() -> dict[Path, bytes]:
    """Give what every file of the corpus holds."""
    return {
        **{HERE / "legal" / f"{name}.sse": framed(bodies) for name, bodies in LEGAL.items()},
        **{HERE / "broken" / f"{name}.sse": framed(bodies) for name, bodies in BROKEN.items()},
        **{HERE / "broken" / f"{name}.sse": frames for name, frames in BROKEN_FRAMES.items()},
    }


def main() -> None:
    """Write every file, and take away those that are no longer part of the corpus."""
    files = corpus()
    for old in {*(HERE / "legal").glob("*.sse"), *(HERE / "broken").glob("*.sse")} - files.keys():
        old.unlink()
    for path, data in files.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
