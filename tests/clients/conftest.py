"""The clients are collected where they were installed, which `make test-clients` does."""

from pathlib import Path

if not (Path(__file__).parent / "node_modules").exists():
    collect_ignore_glob = ["test_*.py"]
