"""The first view: what it shows when there is more than fits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from threading import Event

from tenuto.jobs.row import Group, Row, plain_group
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobState
from tenuto.monitor.model_keeper import RATE_S, Rates
from tenuto.monitor.provider import MOST_RUNNING, LocalProvider
from tenuto.testing.fake_source import FakeSource, fake_row

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_running_jobs_of_every_group_are_shown_in_turn() -> None:
    source = FakeSource()
    for name, count in (("many", 50), ("few", 2)):
        group = f"experiments:{name}/1"
        source.put_group(Group(group, Door.EXPERIMENTS, name, "1", "running", live=True))
        for number in range(count):
            source.put(fake_row(group, "my.Train", f"{name}{number}", JobState.RUNNING, attempt=1))
    provider = LocalProvider([source])
    try:
        assert provider.wait_until_loaded(30)
        shown = [job["id"] for job in provider.overview()["running"]]
    finally:
        provider.close()
    assert set(shown[:4]) == {"many0", "few0", "many1", "few1"}
    assert len(shown) == MOST_RUNNING


def ended(second: float) -> Row:
    at = datetime.fromtimestamp(NOW.timestamp() + second, UTC)
    return fake_row("experiments:a/1", "my.Train", "x", JobState.DONE, attempt=1, started=at, ended=at)


def test_a_rate_is_that_of_the_last_minute_and_a_flood_costs_no_memory() -> None:
    rates = Rates()
    for second in range(-600, 0):
        for _ in range(3):
            rates.add(None, ended(second + 0.5))
    assert rates.ended_per_s(NOW) == 3 * (RATE_S - 1) / RATE_S  # the second that has just begun is empty
    assert len(rates._ends) <= 2 * RATE_S
    rates.add(ended(0), ended(0))  # the same end, told again
    assert rates.ended_per_s(NOW) == 3 * (RATE_S - 1) / RATE_S
    assert rates.ended_per_s(datetime.fromtimestamp(NOW.timestamp() + 3600, UTC)) == 0


def test_a_run_without_a_driver_asks_for_attention_if_jobs_are_left() -> None:
    source = FakeSource()
    for run, left in (("1", JobState.UNSCHEDULED), ("2", JobState.UNSCHEDULED), ("3", JobState.DONE)):
        name = "sweep" if run != "3" else "other"
        group = f"experiments:{name}/{run}"
        known = Group(group, Door.EXPERIMENTS, name, run, "interrupted", live=False, started=NOW)
        source.put_group(known._replace(take_up="tenuto run sweep.py", started=NOW.replace(day=int(run))))
        source.put(fake_row(group, "my.Train", f"job{run}", left))
    provider = LocalProvider([source])
    try:
        assert provider.wait_until_loaded(30)
        provider.jobs("experiments:sweep/1")
        alarms = [alarm["text"] for alarm in provider.overview()["alarms"]]
    finally:
        provider.close()
    group = Group("search:a", Door.SEARCH, "a", state="RUNNING", live=True, take_up="tenuto evolve")
    plain = plain_group(group, {JobState.RUNNING: 1}, 1, None, is_loaded=True)
    assert (plain["live"], plain["take_up"]) == (False, "tenuto evolve")
    assert alarms == ["sweep/2: its driver is gone, and jobs are left: tenuto run sweep.py"]


def test_what_stays_open_has_no_end_to_foretell() -> None:
    sources, rows = [], []
    for door, name in ((Door.EXPERIMENTS, "experiments:sweep/1"), (Door.SEARCH, "search:a")):
        source = FakeSource(door)
        source.put_group(Group(name, door, "a", "1", "running", live=True, started=NOW))
        for number in ("1", "2"):
            row = fake_row(name, "my.Train", number, JobState.RUNNING, attempt=1)._replace(started=NOW)
            source.put(row)
        sources.append(source)
        rows.append(row)
    provider = LocalProvider(sources)
    try:
        assert provider.wait_until_loaded(30)
        for source, row in zip(sources, rows, strict=True):
            source.put(row._replace(state=JobState.DONE, ended=NOW + timedelta(seconds=5)))
        groups = provider.groups()["groups"]
        while not all(group["counts"]["done"] for group in groups):
            groups = provider.groups()["groups"]
    finally:
        provider.close()
    foretold = {group["group"]: group["eta_s"] is not None for group in groups}
    assert foretold == {"experiments:sweep/1": True, "search:a": False}


class LongList(FakeSource):
    """A run that ended, whose rows come until a person has seen those of another run."""

    def __init__(self) -> None:
        super().__init__()
        self.is_loading, self.is_seen = Event(), Event()

    def rows(self, group: str) -> Iterator[Sequence[Row]]:
        for chunk in super().rows(group):
            yield chunk
            while group == "experiments:old/1" and not self.is_seen.wait(0.01):
                self.is_loading.set()
                yield chunk


def test_a_run_that_begins_is_shown_before_the_rest_of_one_that_ended() -> None:
    source = LongList()
    for name, live in (("old", False), ("new", True)):
        group = f"experiments:{name}/1"
        if live:
            provider = LocalProvider([source])
            assert source.is_loading.wait(30)
        source.put_group(Group(group, Door.EXPERIMENTS, name, "1", "running" if live else "done", live=live))
        source.put(fake_row(group, "my.Train", name, JobState.RUNNING if live else JobState.DONE, attempt=1))
    try:
        end = time.monotonic() + 30
        while not (shown := [job["id"] for job in provider.overview()["running"]]):
            assert time.monotonic() < end
            time.sleep(0.01)
        assert shown == ["new"]
    finally:
        source.is_seen.set()
        provider.close()
