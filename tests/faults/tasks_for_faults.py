"""Tasks that jobs of these tests run; a file of its own, since jobs import it."""

from __future__ import annotations

import time
from pathlib import Path

from tenuto import Meta, Param, ResumableTask, Task
from tenuto.errors import GracefulTimeout


class Checkpointed(ResumableTask):
    """Does one step in each try, keeps it in its directory, and stops in time."""

    steps: Param[int]

    def execute(self) -> list[int]:
        print(f"attempt {self.job_attempt}")
        checkpoint = Path("checkpoint")
        done = [int(line) for line in checkpoint.read_text().splitlines()] if checkpoint.exists() else []
        done.append(self.job_attempt)
        checkpoint.write_text("".join(f"{step}\n" for step in done))
        if len(done) == self.steps:
            return done
        while (left := self.remaining_time()) is not None and left > 0:
            time.sleep(min(left, 0.05))
        raise GracefulTimeout("no time left")


class Greedy(Task):
    """Takes memory until it is stopped."""

    megabytes: Param[int]
    started: Meta[Path]

    def execute(self) -> int:
        self.started.touch()
        return len([bytearray(b"x" * (1 << 20)) for _ in range(self.megabytes)])
