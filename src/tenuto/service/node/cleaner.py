"""The node's cleaner: removes the files of payloads that ended long ago.
Trusts the database's clock, and rests when the wall clock jumped.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from tenuto.jobs.key import JobKey
from tenuto.jobs.outcome import Outcome
from tenuto.jobs.removal import no_keeper, remove
from tenuto.jobs.view import JobsView
from tenuto.service.decisions import Rest
from tenuto.service.log import log
from tenuto.service.node.payloads import Payloads
from tenuto.service.stage import Stage
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import Machine

if TYPE_CHECKING:
    from tenuto.service.node.node import NodePlan
    from tenuto.service.node.runner import PayloadRunner

FORGET_AFTER = 45
"""Rows are kept this many times as long as files: a server that asks late learns what happened."""
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
        self._rest = Rest(clock.now().timestamp(), clock.monotonic())
        self._stage = Stage("node_cleaner", self._round, plan.clean_every_s)

    def start(self) -> None:
        self._stage.start()

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
        old = self._payloads.old(int(self._max_age_s * 1000))
        keys = {
            JobKey(TASK, os.path.basename(self._runner.place(row.key).paths.directory)): row for row in old
        }
        cleaned = []
        # The row moves last: what a killed node left of a directory is found again by its row.
        for acted in remove(self._view, keys, no_keeper):
            if acted.outcome in (Outcome.DELETED, Outcome.GONE):
                cleaned.append(self._payloads.clean(keys[acted.key]))
            else:
                log("stage_failed", 30, stage="node_cleaner", why=acted.detail)
        if cleaned:
            log("cleaned", payloads=len(cleaned))
        self._payloads.forget(int(self._max_age_s * 1000) * FORGET_AFTER)
        return len(cleaned)
