"""A study whose log lies in a database: asked and told by several processes, and gone on with."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import SearchDiffers, SearchError
from tenuto.search import (
    Choice,
    GridSearch,
    Integer,
    MapElites,
    OptunaSampler,
    Outcome,
    RandomSearch,
    Real,
    Study,
    Sub,
    Verdict,
)
from tenuto.search.store import Store
from tests.search.tasks_for_search import Svm

SPACE = {"x": Real(-1, 1), "k": Integer(1, 5)}


def worth(values: dict[str, Any]) -> Outcome:
    return Outcome(math.cos(values["x"]) * values["k"], [values["x"]])


SAMPLERS = [MapElites([8], [(-1, 1)], start=6), OptunaSampler("tpe"), RandomSearch()]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda one: type(one).__name__)
def test_a_stored_study_proposes_as_one_in_memory(database_url: str, sampler: Any) -> None:
    memory = Study(SPACE, sampler, seed=4)
    stored = Study(SPACE, sampler, seed=4, database=database_url, name="one")
    for number in range(1, 22):
        if number % 10 == 0:  # another process goes on
            stored.close()
            stored = Study(SPACE, sampler, seed=4, database=database_url, name="one")
        mine, theirs = memory.ask(), stored.ask()
        assert mine is not None
        assert mine == theirs
        if number % 7 == 0:
            assert stored.tell(number, None) is memory.tell(number, None) is Verdict.FAILED
        else:
            assert stored.tell(number, worth(mine.values)) is memory.tell(number, worth(mine.values))
    assert stored.archive is not None
    assert memory.archive is not None
    assert stored.archive.elites() == memory.archive.elites()
    assert stored.best is not None
    assert memory.best is not None
    assert stored.best.objective == memory.best.objective
    stored.close()


def test_what_one_process_tells_the_other_knows(tmp_path: Path) -> None:
    made = {"seed": 1, "database": tmp_path / "study.db", "name": "two"}
    first, second = Study(SPACE, RandomSearch(), **made), Study(SPACE, RandomSearch(), **made)
    one, other = first.ask(), second.ask()
    assert one is not None
    assert other is not None
    assert (one.number, other.number) == (1, 2)
    assert second.tell(1, 5.0) is Verdict.NEW
    assert first.tell(2, 7.0) is Verdict.BETTER
    assert first.best == second.best
    for number in (1, 2, 3):
        with pytest.raises(SearchError, match="was not asked for, or was told already"):
            first.tell(number, 1.0)
    with pytest.raises(SearchError, match="give None if it failed"):
        first.tell(1, "good")
    with pytest.raises(SearchDiffers, match="space"):
        Study({"x": Real(0, 9)}, RandomSearch(), **made)
    first.close()
    second.close()


SCRIPT = """
import sys
from tenuto.search import GridSearch, Integer, Study
study = Study({"n": Integer(1, 40)}, GridSearch(), database=sys.argv[1], name="many", direction="min")
while (one := study.ask()) is not None:
    study.tell(one.number, abs(one.values["n"] - 17))
    print(one.values["n"])
"""


def test_processes_share_the_points_of_a_grid(database_url: str, tmp_path: Path) -> None:
    url = database_url
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = [sys.executable, str(script), url]
    processes = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=100)[0].split() for process in processes]
    assert sorted(int(word) for words in said for word in words) == list(range(1, 41))
    study = Study({"n": Integer(1, 40)}, GridSearch(), database=url, name="many", direction="min")
    assert study.ask() is None
    assert study.best is not None
    assert (study.best.objective, study.best.values) == (0.0, {"n": 17})
    study.close()


def test_a_candidate_that_nobody_tells_can_be_cancelled(store: Store, database_url: str) -> None:
    study = Study(SPACE, RandomSearch(), database=database_url, name="left")
    assert study.ask() is not None
    assert store.cancel("left", [1]) == 1
    with pytest.raises(SearchError, match="told already"):
        study.tell(1, 1.0)
    following = study.ask()
    assert following is not None
    assert following.number == 2
    study.close()


def test_objectives_and_sub_spaces_are_stored(tmp_path: Path) -> None:
    space = {"model": Choice([Sub(Svm, C=Real(0.1, 10)), None])}
    made = {"direction": ["max", "min"], "database": tmp_path / "s.db", "name": "front"}
    study = Study(space, RandomSearch(), **made)
    for _ in range(6):
        one = study.ask()
        assert one is not None
        C = one.values["model"].C if one.values["model"] is not None else 1.0
        study.tell(one.number, Outcome(objectives=[C, C]))
    assert study.best is None
    assert len(study.front) >= 3
    front = study.front
    study.close()
    again = Study(space, RandomSearch(), **made)
    assert again.front == front
    again.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"database": "x.db"}, "has both"),
        ({"name": "a"}, "has both"),
        ({"database": "x.db", "name": "a/b"}, "cannot name"),
        ({"database": "x.db", "name": "a", "seed": 1 << 70}, "64 bits"),
    ],
)
def test_a_study_that_cannot_be_stored_is_refused(options: Any, words: str, tmp_path: Path) -> None:
    if "database" in options:
        options = {**options, "database": tmp_path / options["database"]}
    with pytest.raises(SearchError, match=words):
        Study(SPACE, RandomSearch(), **options)
    assert not list(tmp_path.iterdir())


def test_an_outcome_that_no_database_keeps_is_refused_and_may_be_told_anew(tmp_path: Path) -> None:
    study = Study(SPACE, RandomSearch(), database=tmp_path / "s.db", name="odd")
    assert study.ask() is not None
    with pytest.raises(SearchError, match=r"metrics\.o is <object"):
        study.tell(1, {"objective": 1, "o": object()})
    assert study.tell(1, 2.0) is Verdict.NEW
    study.close()


def test_values_that_no_database_keeps_are_refused(tmp_path: Path) -> None:
    study = Study(
        sampler=RandomSearch(),
        start=lambda rng: object(),
        vary=lambda parent, inspirations, rng: parent,
        database=tmp_path / "s.db",
        name="odd",
    )
    with pytest.raises(SearchError, match="such as JSON has"):
        study.ask()
    study.close()


def test_objects_are_stored_as_json(tmp_path: Path) -> None:
    made: Any = {
        "sampler": MapElites([3], [(0, 9)], start=3),
        "start": lambda rng: [rng.randrange(9) for _ in range(4)],
        "vary": lambda parent, inspirations, rng: [*parent[1:], rng.randrange(9)],
        "database": tmp_path / "s.db",
        "name": "lists",
    }
    study = Study(**made)
    for _ in range(12):
        one = study.ask()
        assert one is not None
        study.tell(one.number, Outcome(sum(one.values), [one.values[0]]))
    best = study.best
    study.close()
    again = Study(**made)
    assert again.best == best
    again.close()


def test_more_cells_than_a_database_counts_are_refused() -> None:
    with pytest.raises(SearchError, match=r"2\^31"):
        MapElites([40] * 7, [(0, 1)] * 7)
    assert GridSearch().has_front
