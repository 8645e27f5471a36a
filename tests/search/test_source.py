"""The searches as a monitor sees them: the contract of sources, and what is a search's own."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, update

from tenuto import Config, Param
from tenuto.jobs.source import ActedAs, Action, Target
from tenuto.lifecycle.evolution import EvolutionStatus, SearchState
from tenuto.lifecycle.states import JobState
from tenuto.search.export import parameters_of, result_of, spread_values
from tenuto.search.map_elites import MapElites
from tenuto.search.rows import End
from tenuto.search.source import SearchSource
from tenuto.search.store import Store
from tenuto.search.tables import evolution_jobs, evolution_moves
from tenuto.tasks.serialization import state_dict
from tenuto.testing.contracts.sources import SourceContract, all_rows
from tests.search.builders import added, claimed, succeeded, tell_all


@pytest.fixture
def filled(store: Store) -> Store:
    """A search with a candidate of each kind."""
    sampler = MapElites(cells=[2, 3], ranges=[(0, 1), (0, 1)], measures=["a", "b"]).definition()
    store.open("s", {"task": "t", "sampler": sampler}, 1)
    added(store, 4)
    store.dispatch("s", 3)
    first, second = claimed(store, 2)
    failed = End(second.id, second.attempt, EvolutionStatus.FAILED, failure="TIMEOUT", message="too slow")
    store.finish([succeeded(first), failed], 3)
    tell_all(store)
    return store


@pytest.fixture
def source(filled: Store, tmp_path: Path) -> SearchSource:
    return SearchSource(filled.database, str(tmp_path))


@pytest.fixture
def group() -> str:
    return "search:s"


class TestSearchSource(SourceContract):
    """The contract, on both databases."""


def test_rows_have_the_states_of_jobs_and_the_words_of_the_door(source: SearchSource, group: str) -> None:
    rows = all_rows(source, group)
    assert [row.status for row in rows] == ["SUCCEEDED", "FAILED", "QUEUED", "PENDING"]
    assert [row.state for row in rows] == [
        JobState.DONE,
        JobState.ERROR,
        JobState.SCHEDULED,
        JobState.WAITING,
    ]
    assert rows[1].reason is not None
    assert rows[1].reason.name == "TIMEOUT"
    assert "too slow" in source.why(rows[1].key).because
    assert source.parameters(rows[2].key) == {"x": 3}


def test_metrics_called_as_what_a_search_counts_have_columns_of_their_own() -> None:
    row = {
        "objective": 7.0,
        "measures": [1.0, 2.0],
        "metrics": {"objective": 4, "cost": 5, "b": 6, "lr": 3},
        "cost": 0.5,
    }
    assert result_of(row, ["a", "b"]) == {
        "objective": 7.0,
        "a": 1.0,
        "b": 2.0,
        "metrics.objective": 4,
        "metrics.cost": 5,
        "lr": 3,
        "cost": 0.5,
    }
    assert result_of(row, ["cost", "objective"])["measures.objective"] == 2.0


def test_parameters_of_chosen_classes_and_of_configs_have_columns() -> None:
    model = {"is": "Svm", "C": 1.0, "kernel": {"is": "Rbf", "gamma": 2.0}}
    assert parameters_of({"model": model, "dims": [1, 2]}) == {
        "model": "Svm",
        "model.C": 1.0,
        "model.kernel": "Rbf",
        "model.kernel.gamma": 2.0,
        "dims": [1, 2],
    }
    made = state_dict(Nested.C(inner=Plain.C(n=3), order=[2, 1]))
    found = parameters_of(made)
    assert (found["order"], found["inner.n"], found["inner"].rpartition(".")[2]) == ([2, 1], 3, "Plain")
    assert spread_values({"values": made})["order[1]"] == 1
    assert parameters_of("no mapping") == {}


class Plain(Config):
    """A config inside of one that a function makes."""

    n: Param[int]


class Nested(Config):
    """What a function makes."""

    inner: Param[Plain]
    order: Param[list[int]]


def test_a_feed_tells_what_moved(filled: Store, source: SearchSource, group: str) -> None:
    feed = source.feed()
    assert not feed.read([group], 100)
    claimed(filled)
    changes = feed.read([group], 100)
    assert [(row.id, row.state) for row in changes.rows] == [("s#3", JobState.RUNNING)]
    assert not feed.read([group], 100)


def test_a_feed_keeps_what_moves_while_a_search_is_being_read(
    filled: Store, source: SearchSource, group: str
) -> None:
    feed = source.feed()
    chunks = source.rows(group)
    next(chunks)
    claimed(filled)  # the third, whose row was read before
    assert not feed.read(["search:another"], 100).rows
    list(chunks)
    assert [(row.id, row.state) for row in feed.read([group], 100).rows] == [("s#3", JobState.RUNNING)]
    assert not feed.read([group], 100)


def test_a_feed_tells_of_a_move_that_commits_after_a_later_one(
    filled: Store, source: SearchSource, group: str
) -> None:
    if filled.database.is_sqlite:
        return  # it has one writer: moves commit in their order
    feed = source.feed()

    def late(connection: Connection) -> None:
        values = {"search_id": "s", "number": 4, "status": "PENDING", "attempt": 0, "at": 0}
        connection.execute(insert(evolution_moves).values(values))
        claimed(filled)  # by another transaction, which commits before this one
        assert [row.id for row in feed.read([group], 100).rows] == ["s#3"]

    filled.database.write(late)
    assert [row.id for row in feed.read([group], 100).rows] == ["s#4"]
    assert not feed.read([group], 100)


def test_a_person_cancels_retries_and_pauses(filled: Store, source: SearchSource, group: str) -> None:
    rows = all_rows(source, group)
    (killed,) = source.act(Action.KILL, [Target(rows[2].key, rows[2].attempt)], dry_run=False, by="ann")
    (retried,) = source.act(Action.RETRY, [Target(rows[1].key, rows[1].attempt)], dry_run=False, by="ann")
    (paused,) = source.act(Action.PAUSE, [Target(group)], dry_run=False, by="ann")
    assert (killed.outcome, retried.outcome, paused.outcome) == (
        ActedAs.ASKED,
        ActedAs.RETRIED,
        ActedAs.ASKED,
    )
    after = all_rows(source, group)
    assert [row.status for row in after] == ["SUCCEEDED", "PENDING", "CANCELLED", "PENDING"]
    search = filled.search("s")
    assert search is not None
    assert search.state is SearchState.PAUSED


def test_the_archive_has_the_best_of_each_cell(source: SearchSource) -> None:
    archives = source.panels("archives").archives
    assert archives is not None
    [archive] = archives
    [cell] = archive["elites"]
    assert cell[-3:-1] == [1.0, "search:s/1"]
    assert len(cell) == len(archive["axes"]) + 3
    assert archive["total"] == math.prod(axis["cells"] for axis in archive["axes"])
    assert [point[1:] for point in archive["history"]] == [[1, 1.0]]
    json.dumps(archive)


def test_the_archive_has_what_is_being_evaluated(filled: Store, source: SearchSource) -> None:
    assert [row.number for row in claimed(filled)] == [3]
    parent = update(evolution_jobs).where(evolution_jobs.c.number == 3).values(parent=1)
    filled.database.write(lambda connection: connection.execute(parent))
    [archive] = source.panels("archives").archives or ()
    assert archive["in_flight"] == [[0, 0, "search:s/3"]]
