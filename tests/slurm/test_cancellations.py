"""Owns that Slurm is told to drop a needless task only once the claim that says so outlives a power loss."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from tenuto.launchers.cluster.cancellations import AGAIN_S, Cancellations
from tenuto.launchers.cluster.dialect import CommandThreads
from tenuto.launchers.cluster.dialects.slurm import SlurmDialect
from tenuto.launchers.cluster.tracked import Tracked, TrackedAttempt
from tenuto.launchers.instructions import Instructions
from tenuto.settings.clusters import ClusterSettings
from tenuto.testing import FakeHost
from tenuto.workspace.claims import Claimer, claim, is_claimed
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.markers import Durability
from tenuto.workspace.records import LaunchRecord

JOB = Layout("/ws").job("a.Task", "ab12")
LAUNCH = LaunchRecord(1, "n1", "slurm", "job", "host", datetime(2030, 1, 1, tzinfo=UTC), external=True)


SLURM = SlurmDialect("slurm", ClusterSettings())


class CallsAtOnce:
    """Calls a function in this thread."""

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function())
        except OSError as error:
            future.set_exception(error)
        return future


class OneWish:
    """A wish to drop the task of an attempt that another task has claimed."""

    def __init__(self, launch: LaunchRecord = LAUNCH) -> None:
        self.host = FakeHost()
        self.machine = self.host.machine(self.host.start())
        self.dropped: list[str] = []
        self.was_durable: list[bool] = []
        self._tracked = Tracked(self.machine, SLURM)
        self.wishes = Cancellations(
            self._tracked, SLURM, cast(CommandThreads, CallsAtOnce()), self.machine.clock, lambda: None
        )
        self.attempt = self.add(JOB, launch, "7_4")

    def add(self, paths: JobPaths, launch: LaunchRecord, needless: str) -> TrackedAttempt:
        """Another such wish."""
        self.host.disk.make_directory(paths.private)
        attempt = self._tracked.known(paths, launch, 30.0)
        attempt.job, attempt.needless = "7_1", needless
        assert claim(self.machine, paths, launch.nonce, Claimer.RUNNER, "7_1")
        self.wishes.drop_needless(attempt)
        return attempt

    def cancel_tasks(self, tasks: Iterable[str]) -> None:
        self.dropped.extend(tasks)
        self.host.disk.power_loss()
        self.was_durable.append(is_claimed(self.machine, JOB, LAUNCH.nonce))


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> OneWish:
    one = OneWish()
    monkeypatch.setattr(SLURM, "cancel_tasks", one.cancel_tasks)
    return one


def test_the_claim_is_durable_when_slurm_is_told(one: OneWish) -> None:
    one.wishes.tell()
    assert (one.dropped, one.was_durable) == (["7_4"], [True])
    assert not one.wishes.are_open


@pytest.mark.parametrize("durability", Durability)
def test_the_claim_of_a_job_that_is_done_is_synced_only_if_its_marker_is_not(
    monkeypatch: pytest.MonkeyPatch, durability: Durability
) -> None:
    instructions = Instructions("a.Task", "ab12", durability=durability).encode()
    one = OneWish(LAUNCH._replace(instructions=instructions))
    monkeypatch.setattr(SLURM, "cancel_tasks", one.cancel_tasks)
    one.attempt.is_marked = True
    one.wishes.tell()
    assert one.dropped == ["7_4"]
    assert one.was_durable == [durability is Durability.NONE]


def test_slurm_is_told_later_if_the_disk_cannot_keep_the_claim(one: OneWish) -> None:
    one.host.disk.fail_after(1, errno.EIO)
    one.wishes.tell()
    assert one.dropped == []
    one.host.clock.advance(AGAIN_S)
    one.wishes.tell()
    assert (one.dropped, one.was_durable) == (["7_4"], [True])


def test_a_claim_that_the_disk_cannot_keep_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, one: OneWish
) -> None:
    dropped: list[str] = []
    monkeypatch.setattr(SLURM, "cancel_tasks", dropped.extend)
    one.add(Layout("/ws").job("a.Task", "cd34"), LAUNCH._replace(nonce="n2"), "7_5")
    one.host.disk.fail_after(1, errno.EIO)
    one.wishes.tell()
    assert len(dropped) == 1
    assert one.wishes.are_open
    one.host.clock.advance(AGAIN_S)
    one.wishes.tell()
    assert sorted(dropped) == ["7_4", "7_5"]
    assert not one.wishes.are_open


def test_the_task_of_a_job_whose_directory_is_gone_is_dropped(one: OneWish) -> None:
    one.machine.files.remove_tree(JOB.directory)
    one.wishes.tell()
    assert one.dropped == ["7_4"]
