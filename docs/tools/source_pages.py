"""Pages for files of the checkout that the documentation links to: a hook of MkDocs.

A page may link to any file or folder of the checkout, as it is read there, such as ``../configs/devices``.
On the site such a target becomes a page of its own below ``source/``: a file with its text, a folder with
its list, a page of Markdown as a page. A link that leads to nothing stays as it is, and the strict build
refuses it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT = ("CHANGELOG.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md")
"""Pages of the project that the navigation names."""

LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)\s]+)(\))")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".yml": "yaml"}
WIDE = ("acl_calls.md", "glossary.md")
"""Pages of wide tables, which have the place of the table of contents."""

SHOWN = (*LANGUAGES, ".ipynb", ".md")
SECRET = (".git", ".venv")


def target_of(link: str, folder: str) -> tuple[str, str] | None:
    """What a link on a page means, as a path in the checkout, and its anchor.

    Args:
        link: As it is written.
        folder: Of the page, in the checkout, with ``/`` between parts.

    Returns:
        None for an address, an anchor of the page itself, and a path that leads out of the checkout.
    """
    path, _, anchor = link.partition("#")
    if not path or re.match(r"[a-z]+:", path):
        return None
    target = posixpath.normpath(posixpath.join(folder, path))
    return None if target.startswith(("..", "/")) else (target, anchor)


def address_of(target: str) -> str:
    """The page, relative to the documentation, that shows a path of the checkout."""
    if (ROOT / target).is_dir():
        return f"source/{target}/index.md"
    return f"source/{target}" if target.endswith(".md") else f"source/{target}.md"


def is_shown(target: str) -> bool:
    """Whether a path of the checkout is there and may have a page of its own."""
    return (ROOT / target).exists() and not target.startswith(SECRET)


def rewrite(text: str, folder: str, page: str, known: set[str]) -> tuple[str, set[str]]:
    """Lead links of a page to pages of the site.

    Args:
        text: Markdown.
        folder: Where the text lies in the checkout.
        page: Where it lies on the site.
        known: Pages and other files of the documentation.

    Returns:
        The text, and paths of the checkout that have to have a page.
    """
    wanted: set[str] = set()

    def lead(match: re.Match[str]) -> str:
        found = target_of(match[2], folder)
        if found is None:
            return match[0]
        target, anchor = found
        inside = posixpath.relpath(target, "docs")
        if inside not in known:
            if not is_shown(target):
                return match[0]
            wanted.add(target)
            inside = address_of(target)
        path = posixpath.relpath(inside, posixpath.dirname(page) or ".")
        return f"{match[1]}{path}{'#' if anchor else ''}{anchor}{match[3]}"

    parts = FENCE.split(text)
    return "".join(part if part.startswith("```") else LINK.sub(lead, part) for part in parts), wanted


def source_page(target: str, known: set[str]) -> tuple[str, set[str]]:
    """The page that shows a path of the checkout, and further paths that it links to."""
    path, page = ROOT / target, address_of(target)
    if path.is_dir():
        names = sorted(p.name for p in path.iterdir() if p.is_dir() or p.suffix in SHOWN)
        names = [name for name in names if not name.startswith((".", "_"))]
        links = [f"* [`{name}`]({posixpath.join(posixpath.relpath(target, 'docs'), name)})" for name in names]
        return rewrite("\n".join([f"# `{target}/`", "", *links]), "docs", page, known)
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return rewrite(text, posixpath.dirname(target), page, known)
    if path.suffix == ".ipynb":
        return f"# `{target}`\n\nA notebook; open it with Jupyter.\n", set()
    return f"# `{target}`\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{text}````\n", set()


def _known(files: Files) -> set[str]:
    """What is on the site by itself: pages and pictures, not scripts."""
    return {f.src_uri for f in files if f.inclusion.is_included() and not f.src_uri.startswith("source/")}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each path that some page links to, and those of the project."""
    known = _known(files)
    wanted = {name for name in PROJECT if (ROOT / name).exists()}
    for file in list(files.documentation_pages()):
        folder = posixpath.join("docs", posixpath.dirname(file.src_uri))
        wanted |= rewrite(file.content_string, folder, file.src_uri, known)[1]
    made: set[str] = set()
    while wanted - made:
        for target in sorted(wanted - made):
            made.add(target)
            text, more = source_page(target, known)
            shown = InclusionLevel.INCLUDED if target in PROJECT else InclusionLevel.NOT_IN_NAV
            address = address_of(target)
            files.append(File.generated(config, address, content=text, inclusion=shown))
            wanted |= more
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links of pages that lie in the documentation to what was made for them."""
    if page.file.src_uri.startswith("source/"):
        return markdown
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["toc"]
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))
    return rewrite(markdown, folder, page.file.src_uri, _known(files))[0]
