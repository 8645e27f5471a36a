"""The fence passes after three beats without a sign of life, by the clock of the one who watches."""

from __future__ import annotations

import pytest

from tenuto.launchers.observation import MARKER_PATIENCE_S, PATIENCE_S, Fence, marker_patience_s
from tenuto.testing import FakeHost
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.ports import RUNNER_BYTE

JOB: JobPaths = Layout("/ws").job("a.Task", "ab12")


@pytest.fixture
def host() -> FakeHost:
    host = FakeHost()
    host.disk.make_directory(JOB.private)
    host.disk.write(JOB.pid, b"{}")
    return host


def test_the_fence_passes_after_three_silent_beats(host: FakeHost) -> None:
    fence = Fence(host.machine(), JOB, 30.0)
    host.clock.advance(89.0)
    assert not fence.has_passed()
    host.clock.advance(1.0)
    assert fence.has_passed()


def test_each_beat_begins_the_wait_anew(host: FakeHost) -> None:
    fence = Fence(host.machine(), JOB, 30.0)
    for _ in range(5):
        host.clock.advance(60.0)
        host.disk.touch(JOB.pid)
        assert not fence.has_passed()
    host.clock.jump(3600.0)
    assert not fence.has_passed(), "a clock that somebody sets is no time"
    host.clock.advance(90.0)
    assert fence.has_passed()


def test_the_fence_never_passes_while_the_lock_is_held(host: FakeHost) -> None:
    machine = host.machine(host.start())
    lock = machine.locks.try_lock(JOB.lock, RUNNER_BYTE)
    assert lock is not None
    fence = Fence(host.machine(), JOB, 30.0)
    host.clock.advance(600.0)
    assert not fence.has_passed()
    lock.close()
    host.clock.advance(89.0)
    assert not fence.has_passed()
    host.clock.advance(2.0)
    assert fence.has_passed()


@pytest.mark.parametrize(
    ("exit_code", "patience_s"),
    [(0, MARKER_PATIENCE_S), (3, MARKER_PATIENCE_S), (1, MARKER_PATIENCE_S)]
    + [(code, PATIENCE_S) for code in (None, 70, 74, 75, 143)],
)
def test_a_marker_that_was_written_is_waited_for(exit_code: int | None, patience_s: float) -> None:
    assert marker_patience_s(exit_code) == patience_s
