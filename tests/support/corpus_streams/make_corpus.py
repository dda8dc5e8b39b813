"""Write the corpus: one file for each legal stream under `legal/`, one for each broken stream under `broken/`.

Every run of the tests writes it first; `python -m corpus_streams.make_corpus` in tests/support does so too.
"""

from __future__ import annotations

from pathlib import Path

from corpus_streams.broken import BROKEN, BROKEN_FRAMES
from corpus_streams.frames import framed
from corpus_streams.legal import LEGAL

CORPUS = Path(__file__).parents[2] / "corpus"


def corpus() -> dict[Path, bytes]:
    """Return what every file of the corpus holds."""
    return {
        **{CORPUS / "legal" / f"{name}.sse": framed(bodies) for name, bodies in LEGAL.items()},
        **{CORPUS / "broken" / f"{name}.sse": framed(bodies) for name, bodies in BROKEN.items()},
        **{CORPUS / "broken" / f"{name}.sse": frames for name, frames in BROKEN_FRAMES.items()},
    }


def main() -> None:
    """Write the files that are missing or differ, and remove those that are no longer part of the corpus."""
    files = corpus()
    for old in {*(CORPUS / "legal").glob("*.sse"), *(CORPUS / "broken").glob("*.sse")} - files.keys():
        old.unlink()
    for path, data in files.items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)


if __name__ == "__main__":
    main()
