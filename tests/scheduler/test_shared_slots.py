"""Owns how many slots schedulers have together whose settings differ: real locks, no processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tenuto.scheduler.shared_slots import SharedSlots
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine


class Later:
    """A loop that calls nothing back: the test asks again."""

    loop = None

    def post(self, callback: Callable[..., object], *arguments: Any) -> None:
        callback(*arguments)

    def watch(self, directory: str) -> None:
        pass

    def later(self, delay_s: float, callback: Callable[..., object], *arguments: Any) -> None:
        pass


class Settled:
    """One scheduler with its number of slots, and the jobs that it started."""

    def __init__(self, root: Path, slots: int, *, is_in_job: bool = False) -> None:
        self._layout = Layout(str(root))
        self._launcher = SimpleNamespace(shares_slots=True, slots=slots, is_in_job=is_in_job)
        self.shared = SharedSlots(this_machine(), Later(), lambda: None)
        self.jobs: list[SimpleNamespace] = []

    def start(self, slots: int = 1) -> bool:
        job = SimpleNamespace(launcher=self._launcher, layout=self._layout, slots=slots, slot_units=())
        job.let_go_of_slots = lambda: [handle.close() for handle in job.slot_units]
        if self.shared.take(job):  # type: ignore[arg-type]
            self.jobs.append(job)
            return True
        return False

    def end_one(self) -> None:
        job = self.jobs.pop(0)
        job.let_go_of_slots()
        job.slot_units = ()

    def close(self) -> None:
        while self.jobs:
            self.end_one()
        self.shared.close()


def test_the_smallest_number_of_slots_of_running_jobs_holds_for_all(tmp_path: Path) -> None:
    narrow, wide = Settled(tmp_path, 2), Settled(tmp_path, 4)
    assert narrow.start()
    assert wide.start()
    assert not wide.start(), "two run, and the script of one of them said two"
    assert not narrow.start()
    narrow.end_one()
    narrow.close()
    assert [wide.start() for _ in range(4)] == [True, True, True, False]
    wide.close()


def test_a_waiting_scheduler_with_fewer_slots_gets_its_turn(tmp_path: Path) -> None:
    wide, narrow = Settled(tmp_path, 4), Settled(tmp_path, 2)
    assert [wide.start() for _ in range(4)] == [True] * 4
    assert not narrow.start()
    for _ in range(3):
        assert not narrow.start()
        assert not wide.start(), "the other one waits for room, so this one takes no more than it could"
        wide.end_one()
    assert narrow.start()
    assert not wide.start()
    for one in (wide, narrow):
        one.close()


def test_a_job_larger_than_another_scripts_slots_waits_until_all_are_free(tmp_path: Path) -> None:
    narrow, wide = Settled(tmp_path, 2), Settled(tmp_path, 4)
    assert narrow.start()
    assert not wide.start(slots=4)
    assert not narrow.start(), "its turn was the last one: the other scheduler comes first"
    narrow.end_one()
    assert wide.start(slots=4)
    assert not narrow.start()
    for one in (wide, narrow):
        one.close()


def test_jobs_that_all_wait_for_jobs_of_their_own_are_told_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outer = Settled(tmp_path, 2)
    assert outer.start()
    assert outer.start()
    inner = [Settled(tmp_path, 2, is_in_job=True) for _ in range(2)]
    assert not inner[0].start()
    assert "held by a job that waits" not in caplog.text, "the other job may end"
    assert not inner[1].start()
    assert not inner[1].start()
    assert caplog.text.count("every slot (2) is held by a job that waits for jobs which it started") == 1
    outer.end_one()
    assert inner[0].start()
    for one in (outer, *inner):
        one.close()
