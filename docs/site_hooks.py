"""What MkDocs cannot know of the site: pages made of the code, files outside of `docs/`, and `llms.txt`.
Changes no page: what a reader sees in the repository is what the site shows.
"""

from __future__ import annotations

import inspect
import posixpath
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = "repository"
"""The folder of the site that has files from outside of `docs/`."""
LINK = re.compile(r"(\]\(|^\[[^\]]+\]:\s*)([^)\s#]+)", re.MULTILINE)
FENCED = re.compile(r"^( *)(`{3,}).*?^\1\2`*\s*$", re.MULTILINE | re.DOTALL)

ROOMS = {
    "tenuto.tasks": "Tasks and configs",
    "tenuto.experiments": "Experiments",
    "tenuto.launchers": "Launchers and requirements",
    "tenuto.errors": "Errors",
    "tenuto": "Jobs, events and more",
}
"""Where a public name is declared -> the heading it stands under; the first that fits."""


def reference(package: str, title: str, rooms: dict[str, str]) -> str:
    """A page with every public name of a package, under headings by the room that declares it."""
    module = import_module(package)
    found: dict[str, list[str]] = {heading: [] for heading in rooms.values()}
    for name in sorted(set(module.__all__) - {"__version__"}, key=str.lower):
        value = getattr(module, name)
        is_declared = inspect.isclass(value) or inspect.isfunction(value)
        declared = value.__module__ if is_declared else package
        room = next((one for one in rooms if f"{declared}.".startswith(f"{one}.")), list(rooms)[-1])
        found[rooms[room]].append(f"::: {declared}.{value.__qualname__ if is_declared else name}\n")
    sections = [f"## {heading}\n\n" + "\n".join(names) for heading, names in found.items() if names]
    first = (inspect.getdoc(module) or "").partition("\n\n")[0]
    return f"# {title}\n\n{first}\n\n" + "\n\n".join(sections)


def references() -> Iterator[tuple[str, str]]:
    """The reference's pages and their text."""
    yield "api/tenuto.md", reference("tenuto", "tenuto", ROOMS)
    yield "api/search.md", reference("tenuto.search", "tenuto.search", {"tenuto": "Names"})
    client = (
        "# tenuto.client\n\n::: tenuto.client\n    options: {heading_level: 2, show_root_heading: false}\n"
    )
    yield "api/client.md", client


def outside(uri: str, target: str) -> str | None:
    """The path in the repository of a link that leads out of `docs/`; None for any other."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(uri), target))
    is_other = "://" in target or target.startswith(("#", "/", "mailto:"))
    return None if is_other or path == "docs" or path.startswith("docs/") else path


def placed(path: str) -> str:
    """The path in the site of a file from outside of `docs/`. A result is shown as it is, not as a page."""
    return f"{OUTSIDE}/{path}" + (".txt" if path.endswith(".md") and "/results/" in path else "")


def links(text: str) -> Iterator[str]:
    """The targets of a page's links, those in code left out."""
    prose = re.sub(r"`[^`\n]*`", "", FENCED.sub("", text))
    yield from (match[2] for match in LINK.finditer(prose))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference, the change log, how to contribute, and what pages link to outside of `docs/`."""
    sys.path[:0] = [str(ROOT / "src")]
    for uri, text in references():
        files.append(File.generated(config, uri, content=text))
    waiting = [(page.src_uri, page.content_string) for page in files.documentation_pages()]
    known: set[str] = set()
    while waiting:
        uri, text = waiting.pop()
        for path in filter(None, (outside(uri, target) for target in links(text))):
            if path in known or not (ROOT / path).is_file():
                continue
            known.add(path)
            files.append(File.generated(config, placed(path), abs_src_path=str(ROOT / path)))
            if placed(path).endswith(".md"):
                waiting.append((f"../{path}", (ROOT / path).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links out of `docs/` to the copies of the site, and links of copies back into it."""
    uri = page.file.src_uri
    at = f"../{uri.removeprefix(OUTSIDE + '/')}" if uri.startswith(f"{OUTSIDE}/") else uri

    def led(match: re.Match[str]) -> str:
        target = match[2]
        if "://" in target or target.startswith(("#", "/", "mailto:")):
            return match[0]
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(at), target))
        there = path.removeprefix("docs/") if path.startswith("docs/") else placed(path)
        return match[1] + posixpath.relpath(there, posixpath.dirname(uri) or ".")

    parts = re.split(r"(^ *`{3,}.*?^ *`{3,}\s*$|`[^`\n]*`)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if number % 2 else LINK.sub(led, part) for number, part in enumerate(parts))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show the `::` before an example in a docstring as the colon that it stands for."""
    return re.sub(r"<p>\s*::\s*</p>", "", html).replace("::</p>", ":</p>")


_PAGES: list[tuple[str, list[Page]]] = []


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Keep what `llms.txt` lists."""
    _PAGES[:] = [(item.title, list(_pages(item))) for item in nav.items if isinstance(item, Section)]
    return nav


def _pages(item: Any) -> Iterator[Page]:
    for child in item.children or ():
        if isinstance(child, Page):
            yield child
        else:
            yield from _pages(child)


def on_post_build(config: MkDocsConfig) -> None:
    """Write `llms.txt`, what there is to read for a program, and the text of each page it names."""
    site = Path(config.site_dir)
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    for title, pages in _PAGES:
        lines += ["", f"## {title}", ""]
        for page in pages:
            text = page.markdown or ""
            target = site / page.file.src_uri
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            lines.append(f"- [{page.title}]({page.file.src_uri}): {_first_sentence(text)}")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _first_sentence(text: str) -> str:
    prose = FENCED.sub("", text)
    paragraphs = [one.strip() for one in prose.split("\n\n")]
    plain = next(
        (one for one in paragraphs if one and not one.startswith(("#", "|", "<", "!", ":::", "-"))), ""
    )
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(plain.split()))
    return re.split(r"(?<=[.:])\s", plain)[0].rstrip(":.") + "."
