"""A sampler that raises: told, tried again, and at last the search pauses."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tenuto.search import Archive, Evolution, Proposal, Real, Verdict
from tenuto.settings import load_settings
from tests.search.tasks_for_search import Square


class Broken:
    """Raises at the first so many asks."""

    def __init__(self, failures: int) -> None:
        self.left = failures

    def ask(self, number: int, rng: Any, in_flight: Any) -> Proposal | None:
        if self.left:
            self.left -= 1
            raise ValueError("no idea")
        return Proposal({"x": rng.random()})

    def tell(self, number: int, proposal: Proposal, outcome: Any) -> tuple[Verdict, int | None]:
        return Verdict.NEW, 0


def run(tmp_path: Path, failures: int) -> Any:
    settings = load_settings()
    quick = dataclasses.replace(settings, search=dataclasses.replace(settings.search, poll_interval_s=0.02))
    evolution = Evolution(
        "broken",
        Square,
        space={"x": Real(0, 1)},
        sampler=Broken(failures),
        workdir=tmp_path,
        max_total_jobs=2,
        settings=quick,
    )
    result = evolution.run(2)
    evolution.close()
    return result


def test_a_search_whose_sampler_always_raises_pauses_and_says_so(tmp_path: Path) -> None:
    result = run(tmp_path, 1_000)
    assert result.is_paused_by_itself
    assert result.message.startswith("the sampler failed 5 times in a row: ValueError: no idea; fix it")


def test_a_search_goes_on_when_its_sampler_recovers(tmp_path: Path) -> None:
    assert run(tmp_path, 3).reason == "TOTAL"


def test_an_offset_is_what_counts_as_nothing_in_both_directions() -> None:
    least = Archive([4], [(0, 1)], maximize=False, offset=10.0)
    least.add(1, None, 3.0, [0.1])
    least.add(2, None, 8.0, [0.9])
    assert least.qd_score == least.running_qd_score == pytest.approx(9.0)  # by which both are below 10
    most = Archive([4], [(0, 1)], offset=10.0)
    most.add(1, None, 13.0, [0.1])
    assert most.qd_score == pytest.approx(3.0)
    assert least.to_ribs().stats.qd_score == pytest.approx(9.0)
