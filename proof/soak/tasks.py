"""The tasks of the soak: what a planned job becomes. A file of its own, since jobs import it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from proof.soak import oracle
from proof.soak.plan import CAPACITY, Kind, PlannedJob
from tenuto import CommandTask, Meta, Param, ResumableTask, Task
from tenuto.errors import GracefulTimeout


class Worked(Task):
    """Works for a while, in Python."""

    number: Param[int]
    place: Meta[Path]
    seconds: Meta[float]
    tokens: Meta[dict[str, int]]
    fails: Meta[bool]
    daemon: Meta[bool]

    def execute(self) -> int:
        wanted = [(name, CAPACITY[name], amount) for name, amount in self.tokens.items()]
        oracle.work(str(self.place), str(self.number), self.seconds, wanted, self.daemon)
        if self.fails:
            raise ValueError("on purpose")
        oracle.note(str(self.place), str(self.number), "end")
        return self.number


class Resumed(ResumableTask):
    """Needs two tries: the first runs out of time, by itself or because the walltime is over."""

    number: Param[int]
    place: Meta[Path]
    seconds: Meta[float]
    dallies: Meta[bool]

    def execute(self) -> int:
        oracle.work(str(self.place), str(self.number), self.seconds)
        checkpoint = Path("checkpoint")
        if not checkpoint.exists():
            checkpoint.touch()
            while self.dallies and (left := self.remaining_time()) is not None and left > 0:
                time.sleep(0.02)
            raise GracefulTimeout("no time left")
        oracle.note(str(self.place), str(self.number), "end")
        return self.number


def task_of(job: PlannedJob, place: Path) -> Any:
    """The task of a planned job; its dependencies are not added yet."""
    if job.kind is Kind.RESUMABLE:
        return Resumed.C(number=job.number, place=place, seconds=job.seconds, dallies=job.dallies)
    if job.kind is Kind.TASK:
        return Worked.C(
            number=job.number,
            place=place,
            seconds=job.seconds,
            tokens=dict(job.tokens),
            fails=job.fails,
            daemon=job.daemon,
        )
    wanted = [word for name, amount in job.tokens for word in (name, str(CAPACITY[name]), str(amount))]
    flags = [str(int(job.fails)), str(int(job.daemon))]
    command = [sys.executable, "-I", "-S", oracle.__file__, str(place), str(job.number), str(job.seconds)]
    return CommandTask.C(command=[*command, *flags, *wanted])
