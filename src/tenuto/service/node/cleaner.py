"""The node's cleaner: removes the files of payloads that ended long ago.
Trusts the database's clock, and rests when the wall clock jumped.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenuto.jobs.directories import Outcome
from tenuto.jobs.key import JobKey
from tenuto.jobs.removal import no_keeper, remove
from tenuto.jobs.view import JobsView
from tenuto.service.decisions import CleanerRest
from tenuto.service.log import log
from tenuto.service.node.payloads import PayloadRow, Payloads
from tenuto.service.stage import Stage
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import Machine

if TYPE_CHECKING:
    from tenuto.service.node.node import NodePlan
    from tenuto.service.node.runner import PayloadRunner

FORGET_AFTER = 45
"""Rows are kept this many times as long as files: a server that asks late learns what happened."""
AT_ONCE = 100
FORGOTTEN = 1000
EVERY = 1 << 31
TASK = "payload"


class PayloadCleaner:
    """Cleans once in a while."""

    def __init__(
        self, machine: Machine, layout: Layout, payloads: Payloads, runner: PayloadRunner, plan: NodePlan
    ) -> None:
        self._machine = machine
        self._view = JobsView(layout, machine)
        self._payloads = payloads
        self._runner = runner
        self._max_age_s = plan.max_age_s
        clock = machine.clock
        self._rest = CleanerRest(clock.now().timestamp(), clock.monotonic())
        self._stage = Stage("node_cleaner", self._round, plan.clean_every_s)

    def start(self) -> None:
        """Begins with what a node that was killed left of payloads whose result is packed."""
        self._runner.files.soon(self._tidy)
        self._stage.start()

    def _tidy(self) -> None:
        for row in self._payloads.old(0, EVERY):
            if row.result_bytes is not None:
                shutil.rmtree(self._runner.place(row.key).work, ignore_errors=True)

    async def close(self) -> None:
        await self._stage.close()

    async def _round(self) -> None:
        await asyncio.to_thread(self.clean)

    def clean(self) -> int:
        """Removes what is old; how many payloads."""
        clock = self._machine.clock
        self._rest, ahead = self._rest.round(clock.now().timestamp(), clock.monotonic(), self._max_age_s)
        if ahead:
            log("clock_jumped", 30, ahead_s=round(ahead))
        if self._rest.is_resting(clock.monotonic()):
            return 0
        max_age_ms = int(self._max_age_s * 1000)
        cleaned, failed = 0, set[int]()
        while old := [
            row for row in self._payloads.old(max_age_ms, AT_ONCE + len(failed)) if row.id not in failed
        ]:
            left = self._removed(old)
            failed |= left
            cleaned += len(old) - len(left)
        if cleaned:
            log("cleaned", payloads=cleaned)
        while self._payloads.forget(max_age_ms * FORGET_AFTER, FORGOTTEN) == FORGOTTEN:
            pass
        return cleaned

    def _removed(self, rows: Sequence[PayloadRow]) -> set[int]:
        """Removes the files of payloads; the ids of those that could not be removed now."""
        keys = {
            JobKey(TASK, os.path.basename(self._runner.place(row.key).paths.directory)): row for row in rows
        }
        left = {row.id for row in rows}
        # The row moves last: what a killed node left of a directory is found again by its row.
        for acted in remove(self._view, keys, no_keeper):
            if acted.outcome in (Outcome.DELETED, Outcome.GONE):
                self._payloads.clean(keys[acted.key])
                left.discard(keys[acted.key].id)
            else:
                log("stage_failed", 30, stage="node_cleaner", why=acted.detail)
        return left
