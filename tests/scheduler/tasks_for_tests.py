"""Tasks that jobs of these tests run; a file of its own, since jobs import it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tenuto import Meta, Param, ResumableTask, Task


class Note(Task):
    """Appends its name to a ledger, which the test reads."""

    name: Param[str]
    ledger: Meta[Path]

    def execute(self) -> str:
        with self.ledger.open("a") as ledger:
            ledger.write(f"{self.name}\n")
        return f"noted {self.name}"


class NoteAfter(Note):
    """The same, after another."""

    before: Param[Note]


class Fail(Task):
    """Raises."""

    message: Param[str]

    def execute(self) -> None:
        raise ValueError(self.message)


class AfterFailure(Task):
    """Never runs."""

    before: Param[Fail]

    def execute(self) -> None:
        raise AssertionError("this must not run")


class AfterAfterFailure(Task):
    """Never runs either."""

    before: Param[AfterFailure]

    def execute(self) -> None:
        raise AssertionError("this must not run")


class Hold(Task):
    """Notes that it began, then runs until a file appears."""

    name: Param[str]
    ledger: Meta[Path]
    release: Meta[Path]

    def execute(self) -> int:
        with self.ledger.open("a") as ledger:
            ledger.write(f"{self.name} {os.getpid()}\n")
        deadline = time.monotonic() + 60
        while not self.release.exists():
            if time.monotonic() > deadline:
                raise TimeoutError("nobody released this job")
            time.sleep(0.01)
        return self.job_attempt


class HoldResumable(ResumableTask):
    """The same; it can be started again."""

    name: Param[str]
    ledger: Meta[Path]
    release: Meta[Path]

    execute = Hold.execute
