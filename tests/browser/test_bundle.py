"""The bundle that is kept in the repository is the one that its sources make."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["viewer.js", "viewer.css"])
def test_a_fresh_build_gives_the_bundle_that_is_kept(tmp_path, name) -> None:
    subprocess.run(["node", "build.mjs", tmp_path], cwd=ROOT / "viewer", check=True)  # noqa: S603, S607 - make puts it on PATH
    bundle = ROOT / "src" / "interlock" / "serving" / "view" / "page" / name
    assert (tmp_path / name).read_bytes() == bundle.read_bytes(), "run `make viewer`"
