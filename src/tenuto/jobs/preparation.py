"""`Prepare` work: done once on this machine, before any job that needs it, in the process that submits.
What it makes stays in the workspace or wherever it says; that it was done is recorded in `config/`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from tenuto.errors import PreparationFailed
from tenuto.tasks.base import ConfigBase
from tenuto.tasks.graph import postorder
from tenuto.tasks.identity import identity
from tenuto.tasks.live import generated_paths, instantiate
from tenuto.tasks.schema import schema_of
from tenuto.tasks.task import Prepare, run_to_end
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import LockHandle, Machine
from tenuto.workspace.run_paths import PreparedPaths

_PAUSE_S = 0.1


class Preparations:
    """What was prepared while an experiment is open; asks the disk once for each config."""

    def __init__(self, machine: Machine, say: Callable[[str], None]) -> None:
        self._machine = machine
        self._say = say
        self._done: set[str] = set()
        self.done_here: list[str] = []
        """What this process has done, in order, by type and identity."""

    def prepare(self, task: ConfigBase, layout: Layout) -> None:
        """Does what a task needs prepared, inner configs first, and returns once it is done."""
        if not Prepare.__subclasses__():
            return  # most scripts have none, and their tasks need not be searched
        for config in postorder(task, lambda node: node is not task and node._state.job is not None):
            if isinstance(config, Prepare):
                self._prepare(config, layout)

    def _prepare(self, config: Any, layout: Layout) -> None:
        type_id, key = schema_of(type(config)).id, identity(config)
        paths = layout.prepared(type_id, key)
        if paths.directory in self._done:
            return
        name = f"{type_id} {key[:12]}"
        with closing(self._wait_for_lock(paths, name)):
            if not self._is_done(paths):
                self._say(f"preparing {name}")
                self._execute(config, layout, name)
                self._record(paths)
                self.done_here.append(name)
        self._done.add(paths.directory)

    def _execute(self, config: Any, layout: Layout, name: str) -> None:
        try:
            live = instantiate(config, Path(layout.root))
            for path in generated_paths(live):
                self._machine.files.make_directory(str(path.parent))
            run_to_end(live.execute())
        except Exception as error:
            raise PreparationFailed(
                f"{name} could not be prepared ({type(error).__name__}: {error}): mend that, and run again; "
                f"nothing that needs it was started"
            ) from error

    def _wait_for_lock(self, paths: PreparedPaths, name: str) -> LockHandle:
        self._machine.files.make_directory(paths.directory)
        said = False
        while (lock := self._machine.locks.try_lock(paths.lock)) is None:
            if not said:
                self._say(f"waiting for {name}, which another process prepares")
                said = True
            time.sleep(_PAUSE_S)
        return lock

    def _is_done(self, paths: PreparedPaths) -> bool:
        return self._machine.files.stat(paths.done(self._machine.processes.own().host)) is not None

    def _record(self, paths: PreparedPaths) -> None:
        host = self._machine.processes.own().host
        record = {"host": host, "since": self._machine.clock.now().isoformat(timespec="seconds")}
        self._machine.files.replace(paths.done(host), json.dumps(record).encode(), durable=True)
