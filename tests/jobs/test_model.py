"""Owns the model of rows: counts, and differences that leave every client with the same picture."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.jobs import model as module
from tenuto.jobs.model import CountKind, Counts, Delta, Model, Reset, kind_of
from tenuto.jobs.row import Group, Row, RowId, group_key, row_key
from tenuto.lifecycle.owner_names import Door, OwnerName
from tenuto.lifecycle.states import JobFailureStatus, JobState

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
S = JobState


def a_row(
    name: str = "ab12", state: JobState = S.WAITING, group: str = "experiments:sweep/1", **fields: object
) -> Row:
    task = str(fields.pop("task", "my.Train"))
    key = row_key(Door.EXPERIMENTS, task, name)
    return Row(key, group, Door.EXPERIMENTS, task, name, state=state, **fields)  # type: ignore[arg-type]


class Client:
    """Keeps rows and groups as a page does, by asking for differences."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.since = 0
        self.rows: dict[RowId, Row] = {}
        self.groups: dict[str, Group] = {}
        self.load()

    def load(self) -> None:
        self.since = self.model.seq
        self.rows = {RowId(row.group, row.key): row for row in self.model.rows()}
        self.groups = {group.group: group for group in self.model.groups()}

    def ask(self) -> None:
        delta = self.model.changes(self.since)
        if isinstance(delta, Reset):
            self.load()
            return
        self.since = delta.seq
        for row in delta.rows:
            self.rows[RowId(row.group, row.key)] = row
        for gone in delta.gone:
            self.rows.pop(gone, None)
        for group in delta.groups:
            self.groups[group.group] = group


def test_keys_name_door_task_and_job() -> None:
    assert row_key(Door.EXPERIMENTS, "my.Train", "1f3a") == "experiments:my.Train/1f3a"
    assert (
        group_key(OwnerName.parse("experiments/my/sweep/20300101_120000"))
        == "experiments:my/sweep/20300101_120000"
    )
    assert group_key(OwnerName.parse("search/packing")) == "search:packing"


def test_a_row_that_is_as_it_was_is_no_change() -> None:
    model = Model()
    assert model.put(a_row())
    assert model.tick() == 1
    assert not model.put(a_row())
    assert model.tick() == 1
    assert model.changes(1) == Delta(1)


def test_a_difference_has_each_row_once_and_as_it_is_now() -> None:
    model = Model()
    for state in (S.WAITING, S.READY, S.SCHEDULED):
        for name in "abc":
            model.put(a_row(name, state))
        model.tick()
    model.put(a_row("b", S.RUNNING))
    model.tick()
    whole = model.changes(0)
    assert isinstance(whole, Delta)
    assert [(row.id, row.state) for row in whole.rows] == [
        ("a", S.SCHEDULED),
        ("c", S.SCHEDULED),
        ("b", S.RUNNING),
    ]
    assert model.changes(0) == whole, "a repetition does no harm"
    assert [row.id for row in model.changes(3).rows] == ["b"]  # type: ignore[union-attr]


def test_a_change_under_way_in_a_tick_is_shown_by_the_next() -> None:
    model = Model()
    model.put(a_row())
    assert model.changes(0) == Delta(0)
    model.tick()
    assert model.changes(0) == Delta(1, (a_row(),))


def test_a_client_from_another_time_begins_anew() -> None:
    assert Model().changes(7) == Reset(0)


def test_too_many_removals_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_GONE", 2)
    model = Model()
    for name in "abcd":
        model.put(a_row(name))
    model.tick()
    for name in "abc":
        model.remove("experiments:sweep/1", a_row(name).key)
        model.tick()
    assert isinstance(model.changes(1), Reset)
    delta = model.changes(2)
    assert isinstance(delta, Delta)
    assert [one.key for one in delta.gone] == [a_row(name).key for name in "bc"]
    assert not model.remove("experiments:sweep/1", "nothing")


def test_a_group_that_is_dropped_is_not_said_to_be_gone() -> None:
    model = Model()
    model.put(a_row())
    model.tick()
    model.drop("experiments:sweep/1")
    model.tick()
    assert model.changes(1) == Delta(1)
    assert model.counts() == Counts()
    model.put(a_row())
    model.tick()
    assert model.changes(1) == Delta(2, (a_row(),))


def test_counts_tell_reused_from_ran_and_failed_from_stranded() -> None:
    model = Model()
    later = NOW + timedelta(hours=1)
    model.put(a_row("found", S.DONE))
    model.put(a_row("before", S.DONE, submitted=later, started=NOW, ended=NOW))
    model.put(a_row("ran", S.DONE, submitted=NOW, started=NOW, ended=later))
    model.put(a_row("short", S.DONE, submitted=NOW, ended=later))
    model.put(a_row("failed", S.ERROR, reason=JobFailureStatus.MEMORY))
    model.put(a_row("stranded", S.ERROR, reason=JobFailureStatus.DEPENDENCY))
    model.put(a_row("asleep", S.UNSCHEDULED))
    model.put(a_row("ready", S.READY))
    model.put(a_row("runs", S.SCHEDULED, group="experiments:other/1", task="my.Other"))
    assert model.counts() == Counts(
        waiting=1, running=1, reused=2, ran=2, failed=1, stranded=1, unscheduled=1
    )
    assert (model.counts().known, model.counts().finished) == (8, 6)
    assert model.counts("experiments:other/1") == Counts(running=1)
    assert model.counts("experiments:none/1") == Counts()
    assert model.by_task(CountKind.RUNNING) == {"my.Other": 1}


changes = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.sampled_from(["g", "h"]),
            st.sampled_from("abcde"),
            st.sampled_from(JobState),
        ),
        st.tuples(st.just("remove"), st.sampled_from(["g", "h"]), st.sampled_from("abcde"), st.none()),
        st.tuples(st.just("group"), st.sampled_from(["g", "h"]), st.sampled_from("abcde"), st.none()),
        st.tuples(st.just("tick"), st.none(), st.none(), st.none()),
        st.tuples(st.just("ask"), st.none(), st.sampled_from([0, 1]), st.none()),
    ),
    max_size=60,
)


@given(changes, st.sampled_from([1, 3, 10_000]))
def test_every_client_ends_with_the_picture_of_one_that_loads_afresh(steps: list, most_gone: int) -> None:  # type: ignore[type-arg]
    before, module.MOST_GONE = module.MOST_GONE, most_gone
    try:
        model = Model()
        clients = [Client(model), Client(model)]
        for what, group, name, state in steps:
            if what == "put":
                reason = JobFailureStatus.FAILED if state is S.ERROR else None
                model.put(a_row(name, state, group, reason=reason))
            elif what == "remove":
                model.remove(group, a_row(name).key)
            elif what == "group":
                model.put_group(Group(group, Door.SEARCH, name))
            elif what == "tick":
                model.tick()
            else:
                clients[name].ask()
        model.tick()
        fresh = Client(model)
        for client in clients:
            client.ask()
            assert client.rows == fresh.rows
            assert client.groups == fresh.groups
        counted = Counter(kind_of(row).value for row in model.rows())
        assert model.counts() == Counts(**counted)
    finally:
        module.MOST_GONE = before


def test_to_ask_for_little_costs_little_however_much_there_is() -> None:
    """The walk begins at the young end: only what is newer is looked at."""
    model = Model()
    for number in range(2000):
        model.put(a_row(f"{number:04}"))
    model.tick()
    model.put(a_row("0007", S.DONE))
    model.tick()

    class Watched(dict):  # type: ignore[type-arg]
        looked = 0

        def __getitem__(self, key: object) -> object:
            Watched.looked += 1
            return super().__getitem__(key)

    model._rows = Watched(model._rows)
    delta = model.changes(1)
    assert isinstance(delta, Delta)
    assert [row.id for row in delta.rows] == ["0007"]
    assert Watched.looked == 1
