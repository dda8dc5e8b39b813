"""`make site`: build the documentation site in build/site/html, with warnings as errors and without the network.

The pages are those of docs/ and the README, whose links into the rest of the repository are made absolute, and an API reference
made of the docstrings of everything that the packages export.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BUILD = ROOT / "build" / "site"
PAGES = BUILD / "pages"

FACES = ("interlock", "interlock.parsers", "interlock.fsm", "interlock.fsm.acceptor", "interlock.events", "interlock.testing")
"""The packages whose exports make the API reference; what `interlock` exports too is shown where it is defined."""
LINK = re.compile(r"(!?\[[^]]*\]\()(?!https?:|#)([^)#\s]*)")

Nav = list[dict[str, object]]

NAV: Nav = [
    {"Interlock": "index.md"},
    {
        "Use it": [
            {"API coverage": "api.md"},
            {"Codex and other clients": "clients.md"},
            {"Hosted tools": "tools.md"},
            {"Conversations and state": "state.md"},
            {"WebSocket mode": "websocket.md"},
        ]
    },
    {
        "Operate it": [
            {"The server": "serving.md"},
            {"In vLLM": "vllm.md"},
            {"Stores": "stores.md"},
            {"Security": "security.md"},
            {"Performance": "performance.md"},
        ]
    },
    {
        "Embed it": [
            {"The library": "embedding.md"},
            {"Families of models": "families.md"},
        ]
    },
    {
        "Check streams": [
            {"interlock check": "check.md"},
            {"The viewer": "viewer.md"},
            {"Rules": "rules.md"},
            {"Conformance": "conformance.md"},
            {"Testing a client": "testing.md"},
        ]
    },
    {
        "Change it": [
            {"Design": "design.md"},
            {"The life of a request": "request.md"},
            {"Lifecycles": "lifecycles.md"},
            {"Malformed output": "recovery.md"},
            {"Adding an item kind": "adding-a-kind.md"},
            {"Proof": "proof.md"},
        ]
    },
    {
        "Figures": [
            {"Performance": "performance/figures.md"},
            {"Stores": "performance/stores.md"},
            {"Hostile requests": "performance/hostile.md"},
        ]
    },
]
"""The pages by group; what is not named here is added under `More`."""


def main() -> None:
    """Write the pages, and have Zensical make the site of them."""
    shutil.rmtree(BUILD, ignore_errors=True)
    repository = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Repository"]
    for path in sorted(DOCS.rglob("*")):
        if path.suffix in {".md", ".svg", ".png", ".html"} and path != DOCS / "README.md":
            place = PAGES / path.relative_to(DOCS)
            place.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".md":
                place.write_text(linked(path, path.relative_to(DOCS), repository), "utf-8")
            else:
                shutil.copy(path, place)
    (PAGES / "index.md").write_text(linked(ROOT / "README.md", Path("index.md"), repository), "utf-8")
    reference = [{face: write_reference(face)} for face in FACES]
    configuration = BUILD / "zensical.toml"
    configuration.write_text(configured([*NAV, *more(), {"API reference": reference}]), "utf-8")
    command = [
        str(Path(sys.executable).with_name("zensical")),
        "build",
        "--strict",
        "--clean",
        "--config-file",
        str(configuration),
    ]
    done = subprocess.run(command, cwd=BUILD, check=False)  # noqa: S603 - our own command
    if done.returncode:
        sys.exit(f"site: {' '.join(command)} failed")
    print(f"site: {BUILD / 'html' / 'index.html'}")


def linked(source: Path, page: Path, repository: str) -> str:
    """Return a page with its links as the site needs them: relative among pages, absolute to what the site has not.

    Args:
        source: The page in the repository.
        page: The same page in the site.
        repository: The address of the repository.
    """

    def link(found: re.Match[str]) -> str:
        target = (source.parent / found[2]).resolve() if found[2] else source
        if target in {ROOT / "README.md", DOCS / "README.md"}:
            aim = PAGES / "index.md"
        elif target.is_relative_to(DOCS) and target.suffix in {".md", ".svg", ".png", ".html"}:
            aim = PAGES / target.relative_to(DOCS)
        else:
            kind = "tree" if target.is_dir() else "blob"
            return f"{found[1]}{repository}/{kind}/main/{target.relative_to(ROOT)}"
        return f"{found[1]}{os.path.relpath(aim, (PAGES / page).parent)}"

    return LINK.sub(link, source.read_text("utf-8"))


def more() -> Nav:
    """Return the pages that no group names: those of the lifecycles and rules, and any that are new."""
    named = set(re.findall(r"[\w/-]+\.md", str(NAV)))
    others = sorted(str(path.relative_to(PAGES)) for path in PAGES.rglob("*.md") if str(path.relative_to(PAGES)) not in named)
    titles = {"lifecycles": "Lifecycle by lifecycle", "rules": "Rule by rule", ".": "More"}
    groups: dict[str, list[dict[str, str]]] = {}
    for name in others:
        folder = str(Path(name).parent)
        groups.setdefault(titles.get(folder, folder), []).append({Path(name).stem: name})
    return [{title: pages} for title, pages in groups.items()]


def write_reference(face: str) -> str:
    """Write the page of a package in the API reference, and return its place."""
    module = importlib.import_module(face)
    names = [name for name in module.__all__ if face != "interlock" or name in {"driver_for", "now", "random_id"}]
    place = PAGES / "api" / f"{face}.md"
    place.parent.mkdir(exist_ok=True)
    about = (module.__doc__ or "").strip()
    body = "\n\n".join(f"::: {face}.{name}" for name in names)
    place.write_text(f"# {face}\n\n{about}\n\n{body}\n", "utf-8")
    return str(place.relative_to(PAGES))


def configured(nav: Nav) -> str:
    """Return the configuration of the site in TOML."""
    return "\n".join(
        [
            "[project]",
            'site_name = "Interlock"',
            'site_description = "A finite-state-machine streaming engine for the Responses API"',
            'docs_dir = "pages"',
            'site_dir = "html"',
            "use_directory_urls = false",
            f"nav = {inline(nav)}",
            "[project.theme]",
            "font = false",
            'features = ["navigation.sections", "navigation.top", "content.code.copy"]',
            "[project.markdown_extensions.admonition]",
            "[project.markdown_extensions.attr_list]",
            "[project.markdown_extensions.tables]",
            "[project.markdown_extensions.toc]",
            "permalink = true",
            '[project.markdown_extensions."pymdownx.highlight"]',
            '[project.markdown_extensions."pymdownx.superfences"]',
            "[project.plugins.mkdocstrings.handlers.python]",
            f'paths = ["{ROOT / "src"}"]',
            "[project.plugins.mkdocstrings.handlers.python.options]",
            'docstring_style = "google"',
            "show_source = false",
            "show_root_heading = true",
            "heading_level = 2",
            "separate_signature = true",
            "show_signature_annotations = true",
            f'extensions = ["{ROOT / "release" / "attrs_classes.py"}"]',
            'filters = ["!^_[^_]", "!^__(add|attrs_.*|init|str)__$"]',
            "merge_init_into_class = true",
        ]
    )


def inline(value: object) -> str:
    """Return a value as TOML on one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(inline, value))}]"  # type: ignore[arg-type]
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{inline(key)} = {inline(inner)}' for key, inner in value.items())} }}"
    return f'"{value}"'


if __name__ == "__main__":
    main()
