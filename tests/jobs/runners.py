"""A process that stands for the runner of a job."""

from __future__ import annotations

import subprocess
import sys

from tenuto.workspace import job_directory
from tenuto.workspace.records import PidRecord

from .workspaces import MACHINE, Builder


class Runner:
    """A process that stands for the runner of a job, with its lock held by the test."""

    def __init__(self, workspace: Builder, job_id: str = "busy") -> None:
        self.key = workspace.job(job_id, ended=None)
        self.paths = workspace.layout.job(*self.key)
        self.lock = job_directory.take_lock(MACHINE, self.paths)
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        identity = MACHINE.processes.identify(self.process.pid)
        assert identity is not None
        job_directory.write_pid(MACHINE.files, self.paths, PidRecord(identity, 1, MACHINE.clock.now()))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.lock is not None:
            self.lock.close()
