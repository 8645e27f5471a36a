"""`Prepare` work: done once on this machine, before any job that needs it, in the process that submits.
What it makes stays in the workspace or wherever it says; that it was done is recorded in `config/`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from tenuto.errors import PreparationFailed
from tenuto.jobs.validity import PREPARED, SharedRecord, SharedThings, Validness, remove_path
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

    def __init__(
        self, machine: Machine, say: Callable[[str], None], shared: SharedThings, *, remakes: bool
    ) -> None:
        """`remakes`: what was prepared by other code is prepared again."""
        self._machine = machine
        self._shared = shared
        self._remakes = remakes
        self._say = say
        self._done: set[str] = set()
        self.done_here: list[str] = []
        """What this process has done, in order, by type and identity."""

    def prepare(self, task: ConfigBase, layout: Layout, *, really: bool = True) -> None:
        """Does what a task needs prepared, inner configs first, and returns once it is done.

        Raises `DefaultChanged` for what was prepared with other values. Without `really` it only looks.
        """
        if not Prepare.__subclasses__():
            return  # most scripts have none, and their tasks need not be searched
        for config in postorder(task, lambda node: node is not task and node._state.job is not None):
            if isinstance(config, Prepare):
                self._prepare(config, layout) if really else self._look(config, layout)

    def _prepare(self, config: Any, layout: Layout) -> None:
        type_id, key = schema_of(type(config)).id, identity(config)
        paths = layout.prepared(type_id, key)
        if paths.directory in self._done:
            return
        name = f"{type_id} {key[:12]}"
        with closing(self._wait_for_lock(paths, name)):
            record = SharedRecord.read(self._machine.files, self._done_file(paths))
            why = self._why_again(config, layout, paths, record)
            if why is not None:
                self._say(f"preparing {name}{why}")
                made = self._execute(config, layout, name, empties=record is not None)
                record = self._record(config, paths, made, record)
                self.done_here.append(name)
            if record is not None:
                self._shared.remembered(config, PREPARED, record.life)
        self._done.add(paths.directory)

    def _look(self, config: Any, layout: Layout) -> None:
        """Tell what jobs would be made from, if what is to be prepared were."""
        paths = layout.prepared(schema_of(type(config)).id, identity(config))
        record = SharedRecord.read(self._machine.files, self._done_file(paths))
        if record is not None:
            self._why_again(config, layout, paths, record)
            is_same = record.fields.get("code") == self._shared.record(config, "")["code"]
            self._shared.remembered(config, PREPARED, record.life if is_same or not self._remakes else "new")

    def _why_again(
        self, config: Any, layout: Layout, paths: PreparedPaths, record: SharedRecord | None
    ) -> str | None:
        """Why a config is to be prepared, in words; None if it is not."""
        if record is None:
            return None if self._is_done(paths) else ""
        found = self._shared.judged(config, record)
        if found.finding is not Validness.VALID and self._remakes:
            return f" again: {found}"
        gone = [name for name in record.fields.get("outputs") or () if not self._is_there(layout, name)]
        return f" again: {gone[0]} is gone" if gone else None

    def _is_there(self, layout: Layout, name: str) -> bool:
        return self._machine.files.stat(os.path.join(layout.root, name)) is not None

    def _execute(self, config: Any, layout: Layout, name: str, *, empties: bool) -> list[str]:
        """Prepare a config; the generated paths that are there after it, in the workspace.

        `empties`: what was there before is removed first.
        """
        try:
            live = instantiate(config, Path(layout.root))
            for path in generated_paths(live):
                self._machine.files.make_directory(str(path.parent))
                if empties:
                    remove_path(self._machine.files, str(path))
            run_to_end(live.execute())
            made = [os.path.relpath(path, layout.root) for path in generated_paths(live)]
            return [path for path in made if self._is_there(layout, path)]
        except Exception as error:
            raise PreparationFailed(
                f"{name} could not be prepared ({type(error).__name__}: {error}): fix that, and run again; "
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
        return self._machine.files.stat(self._done_file(paths)) is not None

    def _done_file(self, paths: PreparedPaths) -> str:
        return paths.done(self._machine.processes.own().host)

    def _record(
        self, config: Any, paths: PreparedPaths, made: list[str], before: SharedRecord | None
    ) -> SharedRecord:
        """Record that a config is prepared; made again by the same code, it counts as the same."""
        record = self._shared.record(config, self._machine.randomness.nonce())
        if before is not None and before.fields.get("code") == record["code"]:
            record["life"] = before.life
        host = self._machine.processes.own().host
        record |= {"host": host, "since": self._machine.clock.now().isoformat(timespec="seconds")}
        record["outputs"] = made
        self._machine.files.replace(self._done_file(paths), json.dumps(record).encode(), durable=True)
        return SharedRecord(record["life"], record)
