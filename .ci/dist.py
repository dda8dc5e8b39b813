"""`make dist`: build the source distribution and the wheel, and show that both work where the repository is not.

    python .ci/dist.py [--quick]

The wheel is installed into a fresh environment: alone, with the extra `cli`, and with what the tests need. Then the tests of the
unpacked source distribution run against it, the README's examples among them. `--quick` leaves these tests out.
"""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PACKAGE = ROOT / "src" / "interlock"
LINKS = {"events", "fsm", "parsers"}
NOT_SHIPPED = (".ci/", ".devcontainer/", ".github/", ".gitignore")
TESTS = (
    *("tests/events", "tests/fsm", "tests/parsers", "tests/serving/cli", "tests/testing"),
    *("tests/repository/test_readme.py", "tests/repository/test_face.py"),
)


def main() -> None:
    """Build and check; the first thing that is wrong ends it."""
    parser = ArgumentParser(description=__doc__, usage="dist.py [--quick]")
    parser.add_argument("--quick", action="store_true", help="leave the tests of the source distribution out")
    quick = parser.parse_args().quick
    shutil.rmtree(DIST, ignore_errors=True)
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    run("build", sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    (wheel,), (source,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    run("twine", sys.executable, "-m", "twine", "check", "--strict", wheel, source)
    check("the wheel has", files_of(wheel), {*expected_in(wheel)})
    with TemporaryDirectory() as folder:
        with tarfile.open(source) as archive:
            archive.extractall(folder, filter="data")
        (unpacked,) = Path(folder).iterdir()
        check_source(unpacked)
        try_out(wheel, unpacked, Path(folder, "env"), quick=quick)
    print(f"dist: {wheel.name} and {source.name} are as they should be")


def run(what: str, *command: object, cwd: Path = ROOT) -> str:
    """Run a command and return what it printed; show that if it fails.

    Raises:
        SystemExit: It failed.
    """
    print(f"dist: {what}", flush=True)
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # noqa: S603 - our own
    if done.returncode:
        sys.exit(f"{done.stdout}\ndist: {what} failed: {' '.join(words)}")
    return done.stdout


def check(what: str, found: set[str], expected: set[str]) -> None:
    """Compare two sets of files.

    Raises:
        SystemExit: They differ.
    """
    if found != expected:
        sys.exit(f"dist: {what} too much: {sorted(found - expected)}, too little: {sorted(expected - found)}")


def files_of(wheel: Path) -> set[str]:
    """Return the files of a wheel, without its own records."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def expected_in(wheel: Path) -> set[str]:
    """Return the files that the wheel should have: every file of the packages; and check its description.

    Raises:
        SystemExit: A link of the description is relative.
    """
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        described = email.message_from_bytes(archive.read(metadata)).get_payload()
    if relative := re.findall(r"\]\((?!https?:|#)([^)]*)\)", str(described)):
        sys.exit(f"dist: links of the description that lead nowhere: {relative}")
    shipped = (path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {str(path.relative_to(PACKAGE.parent)) for path in shipped}


def check_source(unpacked: Path) -> None:
    """Check that a source distribution has every file of the repository."""
    tracked = run("the files of the repository", "git", "ls-files").splitlines()
    wanted = {name for name in tracked if not name.startswith(NOT_SHIPPED) and name not in LINKS}
    check("the source distribution has", {name for name in wanted if (unpacked / name).exists()}, wanted)


def try_out(wheel: Path, unpacked: Path, folder: Path, *, quick: bool) -> None:
    """Install the wheel into a fresh environment, more and more of it, and use it from outside of the repository."""
    venv.create(folder, with_pip=True)
    python, interlock = folder / "bin" / "python", folder / "bin" / "interlock"
    install = python, "-m", "pip", "install", "--quiet"
    recording = unpacked / "examples" / "recordings" / "web-search.jsonl"
    program = "from interlock import Start, driver_for; driver_for({}).feed([Start()])"
    run("the wheel alone: import", *install, wheel)
    run("the wheel alone: interlock --version", interlock, "--version", cwd=folder)
    run("the wheel alone: a driver", python, "-c", program, cwd=folder)
    run("the extra cli", *install, f"{wheel}[cli]")
    run("interlock verify", interlock, "verify", cwd=folder)
    run("interlock diagram", interlock, "diagram", "message", "--format", "table", cwd=folder)
    (folder / "stream.sse").write_text(run("interlock replay", interlock, "replay", recording, cwd=folder))
    run("interlock check", interlock, "check", "stream.sse", cwd=folder)
    if not quick:
        run("what the tests need", *install, f"{wheel}[test]")
        pytest = python, "-m", "pytest", "-q", "-n", "2", "-m", "not long"
        run("the tests of the source distribution", *pytest, *TESTS, cwd=unpacked)


if __name__ == "__main__":
    main()
