"""What `interlock check` was told to judge: files, the files of folders, standard input and URLs, in order.

It knows names and reads nothing but folders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

SUFFIXES: Final = frozenset({".sse", ".jsonl", ".ndjson", ".txt", ".log"})
"""The endings of the files of a folder that are taken for streams."""


def is_url(source: str) -> bool:
    """Return whether a source is a URL.

    Args:
        source: As it was given.
    """
    return source.startswith(("http://", "https://"))


def expanded(sources: Iterable[str]) -> Iterator[str]:
    """Yield every source; in place of a folder, its files, those of its folders included, by name.

    Args:
        sources: As they were given.
    """
    for source in sources:
        if source != "-" and not is_url(source) and _is_folder(folder := Path(source)):
            files = [path for path in sorted(folder.rglob("*")) if path.suffix in SUFFIXES and path.is_file()]
            yield from map(str, files or [folder])
        else:
            yield source


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # its name is too long, or a folder above it may not be entered: to open it says why
        return False
