"""What `pyproject.toml` cannot say: the package's description is README.md with links that work outside of the repository."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
REPOSITORY = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]["urls"]["Repository"]


def described(readme: str, repository: str) -> str:
    """Return a page of the repository with absolute links and pictures.

    Args:
        readme: Its text, in Markdown.
        repository: The address of the repository, without a slash at the end.
    """
    pictures = re.sub(r"(!\[[^]]*\]\()(?!https?:|#)", rf"\1{repository}/raw/main/", readme)
    return re.sub(r"(?<!!)(\[[^]]*\]\()(?!https?:|#)", rf"\1{repository}/blob/main/", pictures)


setup(
    long_description=described((HERE / "README.md").read_text("utf-8"), REPOSITORY),
    long_description_content_type="text/markdown",
)
