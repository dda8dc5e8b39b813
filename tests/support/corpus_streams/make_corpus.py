"""Write the corpus, a file for each stream: legal, broken and observed ones, and recordings.

Every run of the tests writes it first; `python -m corpus_streams.make_corpus` in tests/support does so too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from corpus_streams.broken import BROKEN, BROKEN_FRAMES
from corpus_streams.legal import DONE, LEGAL, framed

CORPUS = Path(__file__).parents[2] / "corpus"
ENCODERS = Path(__file__).parents[3] / "src" / "interlock" / "parsers" / "families"


def corpus() -> dict[Path, bytes]:
    """Return the content of every file with a stream."""
    observed = json.loads((CORPUS / "responses.json").read_text("utf-8"))
    return {
        **{CORPUS / "legal" / f"{name}.sse": framed(bodies) for name, bodies in LEGAL.items()},
        **{CORPUS / "broken" / f"{name}.sse": framed(bodies) for name, bodies in BROKEN.items()},
        **{CORPUS / "broken" / f"{name}.sse": frames for name, frames in BROKEN_FRAMES.items()},
        **{CORPUS / "observed" / f"{name}.sse": framed(bodies).removesuffix(DONE) for name, bodies in observed.items()},
    }


def recorded() -> dict[Path, bytes]:
    """Return the content of every recording."""
    from corpus_streams.recordings import RECORDINGS  # noqa: PLC0415 - most runs need neither

    from interlock.serving.engines.recordings import write  # noqa: PLC0415

    return {CORPUS / "recordings" / f"{name}.jsonl": "".join(write(recording)).encode() for name, recording in RECORDINGS.items()}


def _are_recordings_old() -> bool:
    """Return whether a source of the recordings is newer than one of them; writing them takes a second."""
    written = [path.stat().st_mtime for path in (CORPUS / "recordings").glob("*.jsonl")]
    sources = [Path(__file__).with_name("recordings.py"), *ENCODERS.glob("*.py")]
    return not written or min(written) < max(path.stat().st_mtime for path in sources)


def _outdated(files: dict[Path, bytes]) -> Iterator[Path]:
    """Yield the files in the folders of these that are not among them."""
    for folder in {path.parent for path in files}:
        yield from {*folder.glob("*")} - files.keys()


def main() -> None:
    """Write the files, and remove those that are no longer part of the corpus."""
    files = {**corpus(), **(recorded() if _are_recordings_old() else {})}
    for old in _outdated(files):
        old.unlink()
    for path, data in files.items():
        path.parent.mkdir(exist_ok=True)
        if path.suffix == ".jsonl" or not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)


if __name__ == "__main__":
    main()
