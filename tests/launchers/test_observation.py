"""Owns how far the word of a cluster reaches: not beyond the beats of a runner."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tenuto.launchers.observation import FENCE_BEATS, PATIENCE_S, TOLD_BEATS, ClusterEntry, Observer, Seen
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.testing import FakeHost
from tenuto.workspace.attempt_files import request_stop
from tenuto.workspace.claims import Claimer, claim
from tenuto.workspace.derive import ClusterReport
from tenuto.workspace.derive_table import ClusterSays
from tenuto.workspace.layout import Layout
from tenuto.workspace.records import LaunchRecord, StopRecord

JOB = Layout("/ws").job("a.Task", "ab12")
LAUNCH = LaunchRecord(1, "n1", "slurm", "job", "host", datetime(2030, 1, 1, tzinfo=UTC), external=True)
BEAT_S = 30.0


class Watched:
    """An attempt that an observer looks at."""

    def __init__(self, *, has_begun: bool = True) -> None:
        self.host = FakeHost()
        self.machine = self.host.machine(self.host.start())
        self.host.disk.make_directory(JOB.private)
        self.observer = Observer(self.machine, BEAT_S)
        if has_begun:
            self.host.disk.write(JOB.pid, b"{}")
            assert claim(self.machine, JOB, LAUNCH.nonce, Claimer.RUNNER, "7")

    def report(self, seen: Seen) -> ClusterReport:
        return self.observer.report(JOB, LAUNCH, lambda _: ClusterEntry(seen, message="as its list says"))

    def pass_time(self, seconds: float, seen: Seen) -> ClusterReport:
        report = self.report(seen)
        for _ in range(int(seconds // BEAT_S) + 1):
            self.host.clock.advance(BEAT_S)
            report = self.report(seen)
        return report


def test_an_attempt_that_began_and_waits_again_is_over_after_the_fence() -> None:
    """It could only find its own claim, and would be awaited for ever."""
    watched = Watched()
    assert watched.report(Seen.PENDING).says is ClusterSays.RUNNING, "the list may be a moment old"
    watched.host.clock.advance(PATIENCE_S)
    unsure = watched.report(Seen.PENDING)
    assert unsure.unsure
    assert unsure.message == (
        "its end is not certain yet: as its list says; "
        f"it counts once its runner was silent for {FENCE_BEATS} beats of 30 s"
    )
    watched.host.disk.touch(JOB.pid)
    watched.host.clock.advance((FENCE_BEATS - 1) * BEAT_S)
    assert watched.report(Seen.PENDING).unsure, "a beat was seen meanwhile"
    ended = watched.pass_time(FENCE_BEATS * BEAT_S, Seen.PENDING)
    assert (ended.says, ended.blameless) == (ClusterSays.ENDED, True)


def test_an_attempt_that_has_not_begun_waits_for_as_long_as_it_takes() -> None:
    watched = Watched(has_begun=False)
    assert watched.pass_time(100 * BEAT_S, Seen.PENDING).says is ClusterSays.PENDING


def test_a_runner_that_is_silent_for_ten_beats_is_told_with_the_length_and_ended_by_a_kill() -> None:
    watched = Watched()
    assert watched.pass_time((TOLD_BEATS - 2) * BEAT_S, Seen.RUNNING).message == "as its list says"
    told = watched.pass_time(2 * BEAT_S, Seen.RUNNING)
    assert told.says is ClusterSays.RUNNING
    assert told.message is not None
    assert "silent for 360 s" in told.message
    assert "tenuto kill" in told.message
    stop = StopRecord(1, JobFailureStatus.CANCELLED, watched.machine.clock.now(), "enough")
    request_stop(watched.machine.files, JOB, stop)
    assert watched.report(Seen.RUNNING).says is ClusterSays.ENDED


@pytest.mark.parametrize("beats", [1, 20])
def test_of_a_system_without_a_list_claim_and_beats_tell(beats: int) -> None:
    assert Watched(has_begun=False).pass_time(beats * BEAT_S, Seen.UNLISTED).says is ClusterSays.PENDING
    report = Watched().pass_time(beats * BEAT_S, Seen.UNLISTED)
    assert report.says is (ClusterSays.ENDED if beats > FENCE_BEATS else ClusterSays.RUNNING)
