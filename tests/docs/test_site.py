"""Owns the promise that the site builds without a warning, and that its reference has every public name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tenuto
import tenuto.search

ROOT = Path(__file__).parents[2]


PAGES = 25
"""Pages of `docs/`: one for each task of a user; a new topic is a section of one of them."""


def test_the_readme_takes_a_minute_and_the_pages_stay_few() -> None:
    text = re.sub(
        r"^```.*?^```$", "", (ROOT / "README.md").read_text("utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    lines = [line for line in text.splitlines() if line]
    assert len(lines) <= 60
    assert len([line for line in lines if line.startswith("- ")]) == 8
    pages = [path.stem for path in (ROOT / "docs").glob("*.md") if path.stem != "README"]
    assert len(pages) <= PAGES, "a section of a page is found sooner than one more page"


def test_a_page_installs_from_the_checkout_until_there_is_a_release() -> None:
    pages = {path.name: path.read_text("utf-8") for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")]}
    first = r"^(?:\$ )?pip install [^.\n]*\btenuto\b.*$|`pip install tenuto`"
    assert {
        name: found for name, text in pages.items() if (found := re.findall(first, text, re.MULTILINE))
    } == {}


@pytest.fixture(scope="module")
def site(require: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("mkdocs")
    built: Path = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(built)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    ended = subprocess.run(
        command, cwd=ROOT, env=quiet, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return built


@pytest.mark.slow
@pytest.mark.watchdog(400)
def test_the_site_builds_and_has_every_page_and_public_name(site: Path) -> None:
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"README"}
    assert [page for page in pages if not (site / page / "index.html").is_file()] == []
    for package, page in ((tenuto, "tenuto"), (tenuto.search, "search")):
        text = (site / "api" / page / "index.html").read_text("utf-8")
        names = set(package.__all__) - {"__version__"}
        assert [name for name in names if not re.search(rf'id="tenuto[\w.]*\.{name}"', text)] == []
    listed = re.findall(
        r"^- \[[^\]]+\]\(([^)]+)\): \S.*\.$", (site / "llms.txt").read_text("utf-8"), re.MULTILINE
    )
    assert {f"{page}.md" for page in pages} <= set(listed)
    assert [page for page in listed if not (site / page).is_file()] == []
    assert (site / "search" / "search_index.json").stat().st_size > 100_000


@pytest.mark.slow
def test_a_page_of_the_site_asks_no_other_server_for_anything(site: Path) -> None:
    assert [found for path in site.rglob("*.html") for found in loaded_from_elsewhere(path)] == []


def loaded_from_elsewhere(path: Path) -> Iterator[str]:
    for tag in re.findall(r"<(?:script|img|link|iframe)\b[^>]*>", path.read_text("utf-8")):
        if "canonical" not in tag and re.search(r'(?:src|href)="(?:https?:)?//', tag):
            yield f"{path.name}: {tag}"
