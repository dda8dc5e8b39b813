"""`make site`: build the documentation site in build/site/html, with warnings as errors and without the network.

The pages are those of docs/ and the README, and an API reference made of the docstrings of everything that the packages export.
A link to a file that the site does not have leads to the repository at its public address, which pyproject.toml names; it is
plain text until there is one.
"""

from __future__ import annotations

import html
import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BUILD = ROOT / "build" / "site"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
IS_PUBLIC = "//interlock.example/" not in REPOSITORY
PAGES = BUILD / "pages"

FACES = (
    *("interlock", "interlock.parsers", "interlock.fsm", "interlock.judges", "interlock.events", "interlock.testing"),
    "interlock.serve",
)
"""The packages whose exports make the API reference; `interlock` lists where each of its names is described."""
PUBLISHED = {".md", ".svg", ".png", ".html", ".json"}
"""The endings of the files that the site has."""
NAMED = {
    ROOT / "README.md": "index.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / ".github" / "SECURITY.md": "security-policy.md",
    DOCS / "README.md": "pages.md",
}
"""The pages with another place in the site than in docs/."""
LINK = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\((?!https?:|#)([^)#\s]*)(#[^)\s]*)?\)")
BAR = r"\|"
"""How a bar in the code of a table is written; GitHub's Markdown takes the backslash away, and the site's does not."""
STYLE = """\
.md-grid { max-width: 70rem }
.md-typeset table:not([class]) { font-size: .68rem }
.md-typeset table:not([class]) :is(td, th) { min-width: 0; padding: .6em .8em }
.md-typeset td:first-child code { white-space: nowrap }
.md-typeset td:not(:last-child) code { word-break: normal; overflow-wrap: normal }
.md-typeset td code:has(wbr) { white-space: normal; word-break: normal; overflow-wrap: normal }
.md-typeset p:has(> a > img) { overflow-x: auto }
.md-typeset p:has(> a > img)::after {
  content: "↔ scroll sideways, or open it to see all of it";
  display: none; position: sticky; left: 0; font-size: .6rem; opacity: .7;
}
.md-typeset p:has(> a > img[src*="families/"])::after { display: block }
.md-typeset a > img[src*="families/"] { max-width: 1100px }
@media (min-width: 60em) { .md-typeset pre > code { font-size: .6rem } }
@media (max-width: 60em) {
  .md-typeset pre > code { white-space: pre-wrap; overflow-wrap: anywhere }
  .md-typeset td code { word-break: normal; overflow-wrap: normal }
  .md-typeset p:has(> a > img)::after { display: block }
  .md-typeset a > img { max-width: 1100px }
}
"""

FEATURES = [
    *("navigation.tabs", "navigation.tabs.sticky", "navigation.sections", "navigation.footer", "navigation.top"),
    *("content.code.copy", "search.highlight"),
]

Nav: TypeAlias = Sequence["str | Mapping[str, Nav]"]
"""Places of pages, and sections with pages of their own; a page's title is its heading."""

NAV: Nav = [
    "index.md",
    {
        "Use it": [
            "guides/api.md",
            "guides/dialects.md",
            "guides/agents.md",
            "guides/upstreams.md",
            "guides/tools.md",
            "guides/state.md",
            "guides/websocket.md",
        ]
    },
    {
        "Operate it": [
            "guides/operating.md",
            "guides/serving.md",
            "guides/gateway.md",
            "guides/vllm.md",
            "guides/stores.md",
            "guides/metrics.md",
            "guides/security.md",
        ]
    },
    {
        "Embed it": [
            "library/embedding.md",
            "library/engine.md",
            "library/engines.md",
            "library/porting.md",
            "library/families.md",
        ]
    },
    {"Check streams": ["guides/check.md", "guides/viewer.md", "guides/testing.md", "guides/mock.md"]},
    {
        "Evidence": [
            "evidence/evidence.md",
            "evidence/rules.md",
            "evidence/proof.md",
            "evidence/servers.md",
            {
                "Conformance": [
                    "evidence/conformance.md",
                    "evidence/conformance/turns.md",
                    "evidence/conformance/gateway.md",
                    "evidence/conformance/clients.md",
                    "evidence/conformance/recovery.md",
                ]
            },
            {
                "Performance": [
                    "evidence/performance.md",
                    "evidence/performance/figures.md",
                    "evidence/performance/bounds.md",
                    "evidence/performance/stores.md",
                    "evidence/performance/hostile.md",
                ]
            },
        ]
    },
    {
        "Change it": [
            "pages.md",
            "contributing.md",
            "changelog.md",
            "security-policy.md",
            "design/design.md",
            "design/request.md",
            "design/store-design.md",
            "design/adding-a-kind.md",
            "design/adding-a-rule.md",
            "design/adding-an-api.md",
            "design/adding-an-upstream.md",
            {
                "Lifecycles": [
                    "design/lifecycles.md",
                    "design/lifecycles/items.md",
                    "design/lifecycles/calls.md",
                    "design/lifecycles/formats.md",
                    "design/lifecycles/processes.md",
                ]
            },
        ]
    },
]
"""The pages by reader."""


def main() -> None:
    """Write the pages, and have Zensical make the site of them."""
    shutil.rmtree(BUILD, ignore_errors=True)
    for path in sorted({*NAMED, *DOCS.rglob("*")}):
        if path.suffix in PUBLISHED:
            place = page_of(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".md":
                place.write_text(linked(path, place), "utf-8")
            else:
                shutil.copy(path, place)
    (PAGES / "site.css").write_text(STYLE, "utf-8")
    reference = [write_reference(face) for face in FACES]
    configuration = BUILD / "zensical.toml"
    configuration.write_text(configured([*NAV, {"API reference": reference}]), "utf-8")
    home = PAGES / "index.md"  # its heading is the site's name, which ends the title of every page
    home.write_text(f"---\ntitle: Legal streams for any agent and any model\n---\n\n{home.read_text('utf-8')}", "utf-8")
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
    specification = BUILD / "html" / "specification"
    subprocess.run([sys.executable, str(Path(__file__).with_name("specification.py")), str(specification)], check=True)  # noqa: S603 - likewise
    print(f"site: {BUILD / 'html' / 'index.html'}")


def page_of(path: Path) -> Path:
    """Return the place of a page or a file of docs/ in the site."""
    return PAGES / (NAMED.get(path) or path.relative_to(DOCS))


def title_of(page: str) -> str:
    """Return the heading of a page."""
    return page.partition("\n")[0].removeprefix("# ")


def linked(source: Path, page: Path) -> str:
    """Return a page as the site has it.

    Its links are relative to its place in the site; one that is named after the file of a page gets the page's title in italics,
    and one to a file that the site does not have becomes the file's path.

    Args:
        source: The page in the repository.
        page: Its place in the site.
    """

    def link(match: re.Match[str]) -> str:
        image, label, path, anchor = match[1], match[2], match[3], match[4] or ""
        target = (source.parent / path).resolve() if path else source
        if target in NAMED or (target.is_relative_to(DOCS) and target.suffix in PUBLISHED):
            aim = page_of(target)
            if label.endswith(".md"):
                label = f"*{title_of(target.read_text('utf-8'))}*"
            if image:  # a click shows it alone, in its full size
                place = os.path.relpath(aim, page.parent)
                return f"[![{label}]({place})]({place})"
        else:
            name = f"{target.relative_to(ROOT)}"
            if IS_PUBLIC:
                return f"{image}[{label}]({REPOSITORY}/blob/main/{name}{anchor})"
            shown = f"<code>{name.replace('/', '/<wbr>')}</code>"
            return shown if name.endswith(label.strip("`/")) or "/" in label else f"{label} ({shown})"
        return f"{image}[{label}]({os.path.relpath(aim, page.parent)}{anchor})"

    def code(match: re.Match[str]) -> str:
        return f"<code>{html.escape(match[1].replace(BAR, '|')).replace('|', '&#124;')}</code>" if BAR in match[1] else match[0]

    return re.sub(r"`([^`\n]+)`", code, LINK.sub(link, source.read_text("utf-8")))


def write_reference(face: str) -> str:
    """Write the page of a package in the API reference, and return its place."""
    module = importlib.import_module(face)
    place = PAGES / "api" / f"{face}.md"
    place.parent.mkdir(exist_ok=True)
    names = [name for name in module.__all__ if not name.startswith("__")]
    homes = {name: home_of(name) for name in names} if face == "interlock" else {}
    lines = [f"# {face}", (module.__doc__ or "").strip()]
    if homes:
        rows = (f"| [`{name}`]({home}.md#{home}.{name}) | `{home}` |" for name, home in homes.items() if home != face)
        lines += ["Import these names from `interlock`; the link leads to the description.", "| name | described in |\n|---|---|"]
        lines[-1] += "".join(f"\n{row}" for row in rows)
    lines += [f"::: {face}.{name}" for name in names if homes.get(name, face) == face]
    place.write_text("\n\n".join(lines) + "\n", "utf-8")
    return str(place.relative_to(PAGES))


def home_of(name: str) -> str:
    """Return the package whose page describes a name that `interlock` exports too."""
    homes = (face for face in FACES[1:] if name in importlib.import_module(face).__all__)
    return next(homes, "interlock")


def configured(nav: Nav) -> str:
    """Return the configuration of the site in TOML."""
    return "\n".join(
        [
            "[project]",
            'site_name = "Interlock"',
            f'site_description = "{PROJECT["description"]}"',
            *([f'repo_url = "{REPOSITORY}"'] if IS_PUBLIC else []),
            'docs_dir = "pages"',
            'site_dir = "html"',
            "use_directory_urls = false",
            f"nav = {inline(menu(nav))}",
            'extra_css = ["site.css"]',
            "[project.theme]",
            "font = false",
            'logo = "mark.svg"',
            'favicon = "mark.svg"',
            f"features = {inline(FEATURES)}",
            *palette("(prefers-color-scheme: light)", "default", "lucide/sun", "Switch to dark mode"),
            *palette("(prefers-color-scheme: dark)", "slate", "lucide/moon", "Switch to light mode"),
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
            f'extensions = ["{Path(__file__).with_name("attrs_classes.py")}"]',
            'filters = ["!^_[^_]", "!^__(add|attrs_.*|init|repr|str)__$"]',
            "merge_init_into_class = true",
        ]
    )


def palette(media: str, scheme: str, icon: str, name: str) -> list[str]:
    """Return the lines of one colour scheme, which the reader's system chooses and a button changes."""
    return [
        "[[project.theme.palette]]",
        f'media = "{media}"',
        f'scheme = "{scheme}"',
        f'toggle.icon = "{icon}"',
        f'toggle.name = "{name}"',
    ]


def menu(nav: Nav) -> list[object]:
    """Return a navigation with the titles of its pages."""
    return [
        {title_of((PAGES / entry).read_text("utf-8")): entry}
        if isinstance(entry, str)
        else {name: menu(pages) for name, pages in entry.items()}
        for entry in nav
    ]


def inline(value: object) -> str:
    """Return a value as TOML on one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(inline, value))}]"  # type: ignore[arg-type]
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{inline(key)} = {inline(inner)}' for key, inner in value.items())} }}"
    return f'"{value}"'


if __name__ == "__main__":
    main()
