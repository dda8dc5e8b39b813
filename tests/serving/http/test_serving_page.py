"""What the server's page of the documentation shows is what happens."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs" / "serving.md").read_text()


def block(language: str) -> str:
    return re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[1]


def test_the_example_prints_what_the_page_says(capsys) -> None:
    exec(block("python"), {})  # noqa: S102 - our own text
    assert capsys.readouterr().out == block("text")
