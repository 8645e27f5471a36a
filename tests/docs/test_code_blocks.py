"""Owns the promise that the documentation runs: every Python block of every page, in order, as a script.

The blocks of one page become one real file whose line numbers are those of the page, so that a traceback
points into the page and the classes a page declares can be imported by other processes.

A comment on the line before a block changes what is expected of it:

    <!-- raises: ErrorName -->   the block must raise that error (or a subclass); the page goes on after it
    <!-- no-run: reason -->      the block is shown, not run
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
LINKED = sorted({*RUN, *ROOT.glob("*.md")})

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`]*)$")
MARKER = re.compile(r"^\s*<!--\s*(?P<kind>raises|no-run)\s*:\s*(?P<value>.*?)\s*-->\s*$")
LINK = re.compile(r"\[[^\]]*\]\((?P<inline><[^>]*>|[^)\s]+)[^)]*\)|^\s*\[[^\]]+\]:\s*(?P<reference>\S+)")

RAISES = """\
class raises:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        pass

    def __exit__(self, kind, error, traceback):
        if kind is None:
            raise AssertionError(f"the page says this block raises {self.name}; it raised nothing")
        return self.name in [c.__name__ for c in kind.__mro__]
"""


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; ``start`` is the index of its opening fence."""

    language: str
    start: int
    lines: list[str]
    marker: tuple[str, str] | None


def blocks(text: str) -> list[Block]:
    found: list[Block] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        opening = FENCE.match(lines[at])
        if opening is None:
            at += 1
            continue
        start, at = at, at + 1
        while at < len(lines) and lines[at].strip() != opening["ticks"]:
            at += 1
        marker = MARKER.match(lines[start - 1]) if start else None
        found.append(
            Block(
                language=(opening["info"].split() or [""])[0].lower(),
                start=start,
                lines=[line.removeprefix(opening["indent"]) for line in lines[start + 1 : at]],
                marker=(marker["kind"], marker["value"]) if marker else None,
            )
        )
        at += 1
    return found


def python_blocks(text: str) -> list[Block]:
    return [b for b in blocks(text) if b.language in {"python", "python3", "py"}]


def script(text: str) -> str:
    """The page as a Python file: the same line numbers, all but the code left blank."""
    out = [""] * len(text.splitlines())
    for block in python_blocks(text):
        kind, value = block.marker or ("run", "")
        if kind == "no-run":
            continue
        body = block.lines
        if kind == "raises":
            out[block.start] = f"with __import__('doc_markers').raises({value!r}):"
            body = [f"    {line}" if line else "" for line in body]
        out[block.start + 1 : block.start + 1 + len(body)] = body
    return "\n".join(out) + "\n"


def run(text: str, directory: Path, name: str = "page") -> subprocess.CompletedProcess[str]:
    (directory / "doc_markers.py").write_text(RAISES, encoding="utf-8")
    page = directory / f"{name}.py"
    page.write_text(script(text), encoding="utf-8")
    command = [sys.executable, "-W", "error", page.name]
    home = {"HOME": str(directory), "TENUTO_TOKENS_PATH": str(directory / "tokens")}
    environment = {**os.environ, **home}
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_name(path: Path) -> str:
    return "page_" + re.sub(r"\W", "_", relative(path.with_suffix("")))


@pytest.mark.parametrize(
    "page", [p for p in RUN if python_blocks(p.read_text(encoding="utf-8"))], ids=relative
)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    result = run(page.read_text(encoding="utf-8"), tmp_path, module_name(page))
    assert not result.returncode, f"{relative(page)} (same line numbers):\n{result.stdout}{result.stderr}"


def test_a_scheduler_in_a_program_needs_imports_of_tenuto_alone() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    _, _, section = page.partition("## A scheduler in your own program")
    code = "".join(re.findall(r"```python\n(.*?)```", section.partition("\n## ")[0], re.DOTALL))
    assert "from tenuto import" in code
    assert "tenuto." not in code


@pytest.mark.parametrize("page", LINKED, ids=relative)
def test_relative_links_lead_somewhere(page: Path) -> None:
    assert missing_links(page) == []


@pytest.mark.parametrize("page", RUN, ids=relative)
def test_markers_stand_before_a_block_and_give_a_reason(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    inside = {n for b in blocks(text) for n in range(b.start, b.start + len(b.lines) + 2)}
    written = [m for n, line in enumerate(text.splitlines()) if n not in inside and (m := MARKER.match(line))]
    assert len(written) == len([b for b in python_blocks(text) if b.marker])
    assert all(marker["value"] for marker in written)


def missing_links(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    lines = text.splitlines()
    for block in blocks(text):
        lines[block.start : block.start + len(block.lines) + 1] = [""] * (len(block.lines) + 1)
    prose = [re.sub(r"`[^`]*`", "", line) for line in lines]
    targets = [(m["inline"] or m["reference"]).strip("<>") for line in prose for m in LINK.finditer(line)]
    return [
        target
        for target in targets
        if not re.match(r"[a-z][a-z0-9+.-]*:|#", target, re.IGNORECASE)
        and not (page.parent / target.partition("#")[0]).exists()
    ]


# -- the checks can fail ---------------------------------------------------------------------------

FENCED = "# Title\n\n```python\n{}\n```\n"


def test_blocks_share_a_namespace_and_a_real_file(tmp_path: Path) -> None:
    text = FENCED.format("class A: pass") + "text\n" + FENCED.format("import page; assert page.A and A")
    result = run(text, tmp_path)
    assert result.returncode == 0, result.stderr


def test_a_traceback_points_to_the_line_of_the_page(tmp_path: Path) -> None:
    result = run(FENCED.format("x = 1\nprint(y)"), tmp_path)
    assert result.returncode != 0
    assert 'page.py", line 5' in result.stderr


@pytest.mark.parametrize(
    ("code", "passes"),
    [("{}['a']", True), ("1 / 0", False), ("x = 1", False)],
    ids=["the error", "another error", "no error"],
)
def test_a_block_that_must_raise(tmp_path: Path, code: str, passes: bool) -> None:
    text = f"<!-- raises: LookupError -->\n```python\n{code}\n```\n"
    assert (run(text, tmp_path).returncode == 0) is passes


def test_a_block_marked_no_run_and_other_languages_do_not_run(tmp_path: Path) -> None:
    text = "<!-- no-run: needs a cluster -->\n```python\n1 / 0\n```\n```console\n$ x\n```\n"
    assert run(text, tmp_path).returncode == 0


def test_a_missing_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("[a](page.md#top) [b](gone.md) [c](https://x.org) `[d](no.md)`\n", encoding="utf-8")
    assert missing_links(page) == ["gone.md"]
