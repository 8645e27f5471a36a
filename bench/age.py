"""Owns what a result of a proof or a benchmark says of its age: the commit, and what changed since.
Measures nothing but lines.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

SOURCES = "src/tenuto"
HEART = ("lifecycle", "workspace", "launchers", "scheduler", "jobs")
"""The rooms that proofs speak of."""
MEASURED = (*HEART, "tasks", "experiments")
"""The rooms that benchmarks speak of."""
MOST_LINES = 20_000
"""How many more lines than a page says may have changed before it has to say so."""
_ROOT = Path(__file__).parents[1]


def commit() -> str | None:
    """The commit of the working tree, with a + if files differ from it; None where git does not know."""
    found = _git("rev-parse", "HEAD")
    if found is None:
        return None
    return found.strip() + ("+" if _git("status", "--porcelain", "--", SOURCES) else "")


def changed_lines(since: str, rooms: Iterable[str]) -> int | None:
    """The lines of some rooms that were added or removed since a commit; None where git does not know it."""
    places = [f"{SOURCES}/{room}" for room in rooms]
    found = _git("diff", "--numstat", since.rstrip("+"), "--", *places)
    if found is None:
        return None
    counts = [line.split("\t")[:2] for line in found.splitlines()]
    return sum(int(count) for pair in counts for count in pair if count.isdigit())


def sentence(around: Mapping[str, Any], rooms: Iterable[str]) -> str:
    """The first line of a page's figures."""
    if "commit" not in around:
        return "**It is not known at which commit these figures were taken.**"
    places = ", ".join(rooms)
    since = around.get("changed_lines")
    changed = f"{since:,} lines" if since is not None else "an unknown number of lines"
    return (
        f"**Taken at commit {around['commit'][:12]}. When this was drawn, {changed} of {places} had changed "
        f"since.**"
    )


def noted(around: dict[str, Any], rooms: Iterable[str]) -> dict[str, Any]:
    """The circumstances of a result with what changed since, as far as git knows."""
    if "commit" in around:
        around = {**around, "changed_lines": changed_lines(around["commit"], rooms)}
    return around


def is_outdated(around: Mapping[str, Any], rooms: Iterable[str]) -> bool:
    """True if much more has changed since a commit than the page says."""
    now = changed_lines(around["commit"], rooms)
    return now is not None and now > (around.get("changed_lines") or 0) + MOST_LINES


def _git(*words: str) -> str | None:
    try:
        said = subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return said.stdout if said.returncode == 0 else None
