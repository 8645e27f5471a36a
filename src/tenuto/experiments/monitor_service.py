"""The monitor beside an experiment: `tenuto ui` in a process of its own, which ends with the run.
It cannot harm the run: what keeps it from starting is one sentence.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tenuto.errors import TenutoError
from tenuto.experiments.process_service import ProcessService
from tenuto.experiments.run import Run
from tenuto.experiments.services import ServiceState
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine

Say = Callable[[str], None]


def start_monitor(run: Run, port: int, say: Say) -> None:
    """Add the monitor to a run; whatever happens to the monitor, the run goes on."""
    service = MonitorService(run.layout, port, say)
    try:
        this_machine().files.make_directory(run.layout.jobs)
        run.add_service(service)
    except (OSError, TenutoError) as error:
        service.fail(str(error))


class MonitorService(ProcessService):
    """Runs `tenuto ui` for one workspace, and says where to watch."""

    def __init__(self, layout: Layout, port: int, say: Say) -> None:
        command = [sys.executable, "-m", "tenuto", "ui", "-w", layout.root, "--port", "{port}"]
        super().__init__(command, id="monitor", port=port)
        self._workspace = layout.root
        self._say = say
        self._code = this_machine().randomness.nonce()
        self._code_file: Path | None = None
        self._has_failed = False

    def description(self) -> str:
        return "tenuto ui"

    def start(self) -> None:
        assert self.log is not None
        self._code_file = self.log.with_suffix(".code")
        this_machine().files.make_directory(str(self.log.parent))
        descriptor = os.open(self._code_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(self._code)
        self.command = (*self.command, "--code-file", str(self._code_file))
        super().start()

    def stop(self) -> None:
        super().stop()
        self._forget_code()
        if not self._has_failed:
            self._say(f"to look at it again: tenuto ui -w {self._workspace}")

    def move(self, state: ServiceState, message: str | None = None) -> None:
        super().move(state, message)
        if state is ServiceState.RUNNING:
            self._say(f"watch it at {self.url}#code={self._code}")
        elif state is ServiceState.FAILED:
            self.fail(message or "it ended")

    def fail(self, why: str) -> None:
        """Say once that there is no monitor."""
        self._forget_code()
        if not self._has_failed:
            self._has_failed = True
            self._say(f"there is no monitor, and the run goes on: {why}")

    def _forget_code(self) -> None:
        if self._code_file is not None:
            with contextlib.suppress(OSError):
                self._code_file.unlink(missing_ok=True)
