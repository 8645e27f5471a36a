"""Candidates that are evaluated several times, since chance has a part in what they are worth."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import SearchDiffers, SearchError
from tenuto.search import Evolution, GridSearch, Integer, Median, Repository
from tests.search.tasks_for_search import Noisy, Seeded


def searched(tmp_path: Path, task: Any, name: str = "noisy", **options: Any) -> Evolution:
    given = {"space": {"n": Integer(1, 4)}, "sampler": GridSearch(), "workdir": tmp_path, **options}
    evolution = Evolution(name, task, **given)
    evolution.run(3)
    return evolution


def test_a_candidate_is_worth_the_mean_of_its_repeats(tmp_path: Path) -> None:
    evolution = searched(tmp_path, Noisy, repeats=3)
    rows = evolution.result().rows()
    assert len(rows) == 4
    for row in rows:
        values = row["repeats"]
        assert len(set(values)) == 3  # each with a seed of its own
        assert row["objective"] == pytest.approx(statistics.fmean(values))
        assert row["spread"] == pytest.approx(statistics.stdev(values))
        assert row["measures"] == [pytest.approx(row["objective"] - row["n"])]
        assert row["noise"] == pytest.approx(row["measures"][0])
        assert (row["cost"], row["kind"]) == (3.0, "a")
    opened = evolution.open().workspace
    assert len(list((opened / "jobs").glob("*/*"))) == 12
    evolution.close()
    again = searched(tmp_path, Noisy, "again", repeats=3)
    assert again.result().reused == 4  # the same repeats are the same candidate
    again.close()
    single = searched(tmp_path, Noisy, "single")
    assert single.result().reused == 0
    single.close()
    with pytest.raises(SearchDiffers, match="repeats was 3"):
        searched(tmp_path, Noisy, repeats=2)


def test_a_declared_seed_is_what_differs(tmp_path: Path) -> None:
    log = tmp_path / "log"
    evolution = searched(tmp_path, Seeded.C(log=str(log)), repeats=3)
    rows = evolution.result().rows()
    assert rows[0]["repeats"] == [140.0, 141.0, 142.0]
    assert rows[2]["status"] == "FAILED"  # one of its repeats did
    assert "unlucky" in rows[2]["message"]
    assert Counter(log.read_text().split("\n"))["1 40"] == 1
    evolution.close()


def test_what_would_be_the_best_is_evaluated_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    evolution = searched(
        tmp_path, Seeded.C(log=str(log)), repeat_best=2, direction="min", max_unfinished_jobs=1
    )
    rows = evolution.result().rows()
    assert [len(row["repeats"]) for row in rows] == [3, 1, 1, 1]
    best = evolution.result().best
    assert best is not None
    assert best.objective == 141.0
    assert json.loads(json.dumps(rows[1]["repeats"])) == [240.0]
    evolution.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"repeats": 0}, "at least 1"),
        ({"repeat_best": -1}, "at least 0"),
        ({"repeats": 2, "pruner": Median()}, "no pruner"),
        ({"repeat_best": 1, "reproducible": True}, "reproducible"),
    ],
)
def test_repeats_that_have_no_use_are_refused(options: Any, words: str) -> None:
    with pytest.raises(SearchError, match=words):
        Evolution("no", Noisy, space={"n": Integer(1, 2)}, **options)


def test_programs_are_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(SearchError, match="need a task"):
        Evolution("no", Repository(tmp_path, agent="a", evaluate="b"), repeats=2)
