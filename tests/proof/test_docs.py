"""Owns the promise that docs/reliability.md shows the figures of a kept run that held, as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from bench import age
from bench.docs import kept
from proof import docs
from proof.__main__ import PROOFS
from proof.report import RESULTS, Options, circumstances

PAGE = docs.PAGE.read_text(encoding="utf-8")

APART = {"service", "fleet", "clusters"}
"""They need servers and batch systems: a kept run of the heart need not have them."""


def test_the_page_shows_the_result_that_it_names() -> None:
    path = docs.named(PAGE)
    assert path is not None
    assert docs.fresh(PAGE, path) == PAGE, "docs/reliability.md is stale; run: python -m proof.docs"


def test_the_page_shows_the_newest_kept_result(require: Callable[[str], None]) -> None:
    require("git")
    if not (RESULTS.parents[1] / ".git").exists():
        pytest.skip("not a checkout, so nobody can tell which results are kept")
    assert docs.named(PAGE) == kept(RESULTS)[-1]


def test_the_page_shows_a_whole_run() -> None:
    path = docs.named(PAGE)
    assert path is not None
    raw = json.loads(path.read_text(encoding="utf-8"))
    shown = [report["name"] for report in raw["reports"]]
    assert shown == list(PROOFS)[: len(shown)]
    assert set(shown) >= set(PROOFS) - APART
    assert not raw["circumstances"]["options"]["small"]
    assert "FAILS" not in docs.figures(path)


def test_the_figures_begin_with_their_commit_and_what_changed_since() -> None:
    path = docs.named(PAGE)
    assert path is not None
    around = json.loads(path.read_text(encoding="utf-8"))["circumstances"]
    first = docs.figures(path).splitlines()[0]
    assert around["commit"][:12] in first
    assert f"{around['changed_lines']:,} lines" in first
    assert not age.is_outdated(around, age.HEART), "much has changed since; run: python -m proof.docs"


def test_a_result_names_the_commit_that_it_was_taken_at() -> None:
    said = circumstances(Options())["commit"]
    assert said is None or re.fullmatch(r"[0-9a-f]{40}\+?", str(said))
    assert "not known" in age.sentence({}, age.HEART)
    assert age.changed_lines("0" * 40, age.HEART) is None
