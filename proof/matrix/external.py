"""Owns the external launcher of the kill matrix: writes manifests, and hands them to the cluster of a case.
Judges nothing itself: an `Observer` says what the cluster's words amount to.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from pathlib import Path
from typing import Any

from proof.matrix.case import Case
from proof.matrix.cluster import JOB, TASK, Files
from tenuto.launchers import observation
from tenuto.launchers.instructions import Limits
from tenuto.launchers.manifest import Header, ManifestUnreadable, Order, encode_manifest, read_order
from tenuto.launchers.observation import ClusterEntry, Observer, Seen
from tenuto.launchers.protocols import Launcher, StartOrder
from tenuto.launchers.requirements import Alternative
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.testing.cluster import FakeClusterProcess
from tenuto.workspace.derive import ClusterReport
from tenuto.workspace.derive_table import ClusterSays
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import LaunchRecord, PidRecord

NAME = "cluster"
BEAT_S = 5.0
"""So slow that only beats protect a runner without locks: a busy machine must not be taken for its end."""
FENCED_BEAT_S = 0.1
"""Where the fence has to pass: the cluster confirms nothing of a runner that is killed, or stands still, or a
claim that was written half does not say whose it is."""
FENCED = ("unconfirmed", "forgotten", "lying")
REUSE_S = 60.0
GATHER_S = 0.05
POLL_S = 0.02


def beat_s(case: Case) -> float:
    is_lost = case.runner is not None and (case.fate in FENCED or case.stands)
    struck = (case.scheduler, case.second, case.runner)
    is_claim_torn = any(at is not None and at.startswith("write claim") for at in struck)
    return FENCED_BEAT_S if is_lost or is_claim_torn else BEAT_S


def shorten_patience() -> None:
    """The disk of this machine shows every file at once: what waits for late ones may be short here."""
    observation.SUBMISSION_PATIENCE_S = 0.5
    observation.PATIENCE_S = 0.1


class View:
    """What one scheduler sees of the cluster: a `Cluster`."""

    poll_s = POLL_S

    def __init__(self, machine: Machine, directory: Path, case: Case) -> None:
        self.machine = machine
        self.files = Files(directory)
        self.submissions = Path(Layout(f"{directory}/ws").launchers, NAME)
        self._observer = Observer(machine, beat_s(case))
        self._known: dict[str, list[Order]] = {}
        """The orders of manifests, which are written once."""

    @property
    def cluster(self) -> View:
        return self

    def report(self, paths: JobPaths, launch: LaunchRecord) -> ClusterReport:
        return self._observer.report(paths, launch, lambda job_id: self._see(launch, job_id))

    def process(self, paths: JobPaths, launch: LaunchRecord) -> MatrixProcess:
        return MatrixProcess(self, paths, launch)

    def stop(self, paths: JobPaths, launch: LaunchRecord) -> None:
        for task_id in self.tasks(launch.nonce):
            self.leave_word(self.files.cancelled(task_id))

    def leave_word(self, path: Path, data: bytes = b"") -> None:
        """Has the cluster find a file, whole."""
        self.machine.files.replace(str(path), data, durable=False)

    def tasks(self, nonce: str) -> list[str]:
        """The cluster's ids of the tasks that are to run an attempt, by the manifests that were written."""
        return [
            f"{manifest.parent.name.partition('-')[2]}_{index}"
            for manifest in sorted(self.submissions.glob("*/manifest"))
            for index, order in enumerate(self._orders(str(manifest)))
            if order.nonce == nonce
        ]

    def _orders(self, manifest: str) -> list[Order]:
        if manifest in self._known:
            return self._known[manifest]
        try:
            header, first = read_order(self.machine.files, manifest, 0)
            more = [read_order(self.machine.files, manifest, index)[1] for index in range(1, header.orders)]
        except ManifestUnreadable:
            return []  # its launcher died while it wrote it, and never submitted it
        self._known[manifest] = [first, *more]
        return self._known[manifest]

    def _see(self, launch: LaunchRecord, job_id: str | None) -> ClusterEntry:
        ids = self.tasks(launch.nonce) if job_id is None else [job_id]
        found = [self._entry(task_id) for given in ids for task_id in (given, f"{given}.again")]
        known = sorted((one for one in found if one is not None), key=lambda one: one.seen is Seen.ENDED)
        return known[0] if known else ClusterEntry(Seen.MISSING, message="unknown to the cluster")

    def _entry(self, task_id: str) -> ClusterEntry | None:
        try:
            said = json.loads(self.files.entry(task_id).read_text())
        except FileNotFoundError:
            is_second = task_id.endswith(".again")
            is_submitted = self.files.submission(task_id.partition("_")[0]).exists()
            return ClusterEntry(Seen.PENDING) if is_submitted and not is_second else None
        reason = JobFailureStatus[said.pop("reason", "LOST")]
        return ClusterEntry(Seen[said.pop("seen")], reason=reason, **said)


class MatrixProcess(FakeClusterProcess):
    """A `Process` of the cluster of a case."""

    def __init__(self, view: Any, paths: JobPaths, launch: LaunchRecord) -> None:
        super().__init__(view, paths, launch)

    def kill(self) -> None:
        view: Any = self._view
        for task_id in view.tasks(self._launch.nonce):
            view.leave_word(view.files.killed(task_id))


class MatrixLauncher:
    """An external `Launcher`: what is asked of it within a moment becomes one submission."""

    name = NAME
    external = True
    slots = 10
    lock_path: str | None = None
    limits: Limits | None = None

    def __init__(self, view: View, case: Case) -> None:
        self._view = view
        self._case = case
        self._gathered: list[tuple[StartOrder, asyncio.Future[None]]] = []

    @property
    def pool(self) -> object:
        return self

    def adapted(self, alternative: Alternative) -> Launcher:
        return self

    async def start(self, order: StartOrder) -> MatrixProcess:
        loop = asyncio.get_running_loop()
        submitted = loop.create_future()
        self._gathered.append((order, submitted))
        if self._case.orders == 1:
            self._submit()
        elif len(self._gathered) == 1:
            loop.call_later(GATHER_S, self._submit)
        await submitted
        return MatrixProcess(self._view, order.paths, order.launch)

    def _submit(self) -> None:
        gathered, self._gathered = self._gathered, []
        submission = secrets.token_hex(16)
        directory = self._view.submissions / f"orders-{submission}"
        manifest = f"{directory}/manifest"
        orders = [
            Order(order.paths.directory, order.paths.script_name, order.launch.nonce) for order, _ in gathered
        ]
        reuse_s = REUSE_S if self._case.orders > 1 else 0.0
        header = Header(beat_s(self._case), str(self._view.files.signals), (JOB, TASK), reuse_s)
        files = self._view.machine.files
        files.make_directory(str(directory))
        files.create_exclusive(manifest, encode_manifest(header, orders))
        self._view.leave_word(
            self._view.files.submission(submission), json.dumps([manifest, len(orders)]).encode()
        )
        for _, submitted in gathered:
            submitted.set_result(None)

    def find(self, paths: JobPaths, launch: LaunchRecord, pid: PidRecord | None) -> MatrixProcess | None:
        is_over = self._view.report(paths, launch).says is ClusterSays.ENDED
        return None if is_over else self._view.process(paths, launch)

    async def sweep(self, paths: JobPaths, launch: LaunchRecord | None) -> tuple[int, ...]:
        raise AssertionError("the processes of an external attempt are not on this machine")

    def close(self) -> None:
        pass
