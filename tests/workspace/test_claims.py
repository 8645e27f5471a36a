"""A claim is made once, by one; it says who made it, and a torn one counts all the same."""

from __future__ import annotations

import pytest

from tenuto.testing import Crash, FakeHost
from tenuto.workspace.claims import Claim, Claimer, claim, claimer, is_claimed, keep_claim
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.records import Corrupt

JOB: JobPaths = Layout("/ws").job("a.Task", "ab12")


@pytest.fixture
def host() -> FakeHost:
    host = FakeHost()
    host.disk.make_directory(JOB.private)
    return host


def test_a_claim_is_made_once(host: FakeHost) -> None:
    runner, scheduler = host.machine(host.start()), host.machine(host.start())
    assert not is_claimed(scheduler, JOB, "n1")
    assert claim(runner, JOB, "n1", Claimer.RUNNER, "17_4")
    assert not claim(scheduler, JOB, "n1", Claimer.SCHEDULER)
    assert not claim(runner, JOB, "n1", Claimer.RUNNER)
    found = claimer(scheduler, JOB, "n1")
    assert isinstance(found, Claim)
    assert (found.by, found.job, found.host) == (Claimer.RUNNER, "17_4", "fakehost")


def test_each_attempt_has_a_claim_of_its_own(host: FakeHost) -> None:
    machine = host.machine(host.start())
    assert claim(machine, JOB, "n1", Claimer.SCHEDULER)
    assert claim(machine, JOB, "n2", Claimer.RUNNER)
    assert claimer(machine, JOB, "n3") is None


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_power_loss_takes_a_claim_that_was_not_synced(host: FakeHost, *, is_kept: bool) -> None:
    machine = host.machine(host.start())
    machine.files.sync_directory(JOB.private)
    assert claim(machine, JOB, "n1", Claimer.RUNNER, "17_4")
    if is_kept:
        keep_claim(machine, JOB, "n1")
    host.disk.power_loss()
    assert isinstance(claimer(machine, JOB, "n1"), Claim) is is_kept


def test_a_claim_that_was_not_made_is_not_made_by_keeping_it(host: FakeHost) -> None:
    machine = host.machine(host.start())
    keep_claim(machine, JOB, "n1")
    assert not is_claimed(machine, JOB, "n1")


def test_a_claim_whose_maker_died_at_it_is_a_claim(host: FakeHost) -> None:
    machine = host.machine(host.start())
    host.disk.crash_after(1)
    with pytest.raises(Crash):
        claim(machine, JOB, "n1", Claimer.RUNNER)
    assert is_claimed(machine, JOB, "n1")
    assert isinstance(claimer(machine, JOB, "n1"), Corrupt)
    assert not claim(machine, JOB, "n1", Claimer.SCHEDULER)
