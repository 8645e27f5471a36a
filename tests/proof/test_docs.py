"""Owns the promise that docs/reliability.md shows the figures of a kept run that held, as they are."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from bench.docs import kept
from proof import docs
from proof.__main__ import PROOFS
from proof.report import RESULTS

PAGE = docs.PAGE.read_text(encoding="utf-8")


def test_the_page_shows_the_result_that_it_names() -> None:
    path = docs.named(PAGE)
    assert path is not None
    assert docs.fresh(PAGE, path) == PAGE, "docs/reliability.md is stale; run: python -m proof.docs"


def test_the_page_shows_the_newest_kept_result(require: Callable[[str], None]) -> None:
    require("git")
    if not (RESULTS.parents[1] / ".git").exists():
        pytest.skip("not a checkout, so nobody can tell which results are kept")
    assert docs.named(PAGE) == kept(RESULTS)[-1]


def test_what_is_shown_is_a_whole_run() -> None:
    path = docs.named(PAGE)
    assert path is not None
    raw = json.loads(path.read_text(encoding="utf-8"))
    assert [report["name"] for report in raw["reports"]] == list(PROOFS)
    assert not raw["circumstances"]["options"]["small"]
    assert "FAILS" not in docs.figures(path)
