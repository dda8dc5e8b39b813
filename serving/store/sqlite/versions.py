"""Which versions of SQLite several processes can share a file with."""

from __future__ import annotations

from typing import Final

__all__ = ["loses_commits"]

FIRST: Final = (3, 7, 0)
LAST: Final = (3, 51, 2)
MENDED: Final = {(3, 50): 7, (3, 44): 6}
"""Older releases that were mended later: from which patch on."""


def loses_commits(version: str) -> bool:
    """Return whether a version of SQLite can lose a commit where several connections write to one file with a write-ahead log.

    Two of them that reset the log at the same moment may take it for empty. See "The WAL-reset bug" in SQLite's documentation of
    write-ahead logging.

    Args:
        version: Such as `3.51.3`.
    """
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    mended = MENDED.get((major, minor))
    return FIRST <= (major, minor, patch) <= LAST and (mended is None or patch < mended)
