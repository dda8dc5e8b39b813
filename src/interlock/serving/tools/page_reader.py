"""A program that reads a web page as bytes from standard input, and writes its title and text as JSON.

Its argument is the character encoding that the server of the page names, or empty.

It runs in a process of its own, because no parser of HTML is fast for every input: the server ends one that takes too long.
"""

from __future__ import annotations

import json
import sys
from resource import RLIMIT_AS, RLIMIT_CPU, setrlimit
from typing import Final

from resiliparse.extract.html2text import extract_plain_text  # pyright: ignore[reportMissingModuleSource] - compiled
from resiliparse.parse.encoding import detect_encoding  # pyright: ignore[reportMissingModuleSource] - compiled
from resiliparse.parse.html import HTMLTree

SECONDS: Final = 10
"""The most seconds of CPU time for a page."""
MEMORY: Final = 2**30
"""The most bytes of memory for a page."""


def main() -> None:
    """Read one page."""
    setrlimit(RLIMIT_CPU, (SECONDS, SECONDS))
    if sys.platform == "linux":
        setrlimit(RLIMIT_AS, (MEMORY, MEMORY))
    raw = sys.stdin.buffer.read()
    tree = HTMLTree.parse_from_bytes(raw, sys.argv[1] or detect_encoding(raw) or "utf-8")
    text = extract_plain_text(tree, main_content=True) or extract_plain_text(tree)
    json.dump({"title": tree.title or "", "text": text}, sys.stdout)


if __name__ == "__main__":
    main()
