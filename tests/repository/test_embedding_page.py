"""The page about a server of one's own: its pieces of code run, one after another, and make a legal stream."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "embedding.md").read_text("utf-8")


def test_the_pieces_of_code_run_one_after_another() -> None:
    known = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(code, known)  # noqa: S102 - our own text
    assert known["driver"].response["status"] == "completed"
    assert known["driver"].response["output"][0]["content"][0]["text"] == "It rains."
