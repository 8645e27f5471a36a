"""Owns what a scheduler of the kill matrix does: submits the job, waits for it, and says how it ended.
Runs in a process that the theatre forked, and never returns from it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from proof.matrix.case import DONE, FAILED, Case
from proof.matrix.external import MatrixLauncher, View, shorten_patience
from proof.matrix.killing import Strike, Watcher, claim
from proof.matrix.task_oracle import TaskOracle
from tenuto.launchers.clusters import Clusters
from tenuto.launchers.forking_launcher import DirectLauncher
from tenuto.launchers.instructions import Command
from tenuto.launchers.outputs import TaskOutput
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.launchers.warm.launcher import WarmLauncher
from tenuto.lifecycle.events import Event
from tenuto.lifecycle.states import JobState
from tenuto.scheduler.decisions import RetryLimits
from tenuto.scheduler.jobs import Job, TaskWork
from tenuto.scheduler.scheduler import Scheduler
from tenuto.scheduler.tokens import CounterToken, declare
from tenuto.testing.jobs import FakeOwner
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import Machine
from tests.parts.spares import SpareLauncher

HERE = Path(__file__).parent
TASK_ID, JOB_ID, NEXT_ID = "oracle", "job", "next"
TOKEN = "pair"
DEADLINE_S = 30.0
PARAMS = b'{"nothing": true}'
UNWANTED = "no longer wanted"
LAUNCHERS: dict[str, Any] = {
    "direct": DirectLauncher,
    "spawn": SpawnLauncher,
    "warm": WarmLauncher,
    "spare": SpareLauncher,
}
LASTING = ("lying", "forgotten")
"""Fates under which a cluster is silent of work, or says that it ended, while it goes on."""
LASTS_S = 0.6
"""How long such work lasts: enough for a scheduler to take it for ended."""


class Work:
    """A `Work` that runs the oracle."""

    def __init__(self, directory: Path, case: Case, job_id: str) -> None:
        lasts_s = LASTS_S if case.lasts_s is None and case.fate in LASTING else case.lasts_s
        self._arguments = (
            *(sys.executable, "-I", "-S", str(HERE / "oracle.py")),
            *(str(directory), job_id, case.victim or "", case.moment or ""),
            *(["--until-seen"] if case.seen else []),
            *(["--until-ended"] if case.cancel == "running" else []),
            *([] if lasts_s is None else ["--long", str(lasts_s)]),
            *(["--fails"] if case.end == FAILED else []),
            *(["--start-child"] if case.in_child else []),
        )
        # The runner of a cluster has the environment of the cluster, and not of its scheduler.
        is_elsewhere = case.launcher == "cluster"
        self.environment: Mapping[str, str] = {"FAULTS_SCHEDULER": str(os.getpid())} if is_elsewhere else {}
        is_task = case.launcher in ("spawn", "spare")
        self._task: Any = TaskOracle.C(command=list(self._arguments)) if is_task else None

    def params(self, layout: Layout, paths: JobPaths) -> bytes:
        return PARAMS if self._task is None else TaskWork(self._task).params(layout, paths)

    def command(self) -> Command | None:
        return Command(self._arguments) if self._task is None else None

    def output(self, output: TaskOutput, method: Callable[..., Any]) -> Any:
        raise AssertionError("the oracle registers none")


class Seeing(FakeOwner):
    """Lets the work go on once it has seen it run, and the other job, if there is one, wait for its units."""

    def __init__(self, directory: Path, job_ids: Sequence[str]) -> None:
        super().__init__()
        self._sign = f"{directory}/seen"
        self._job_ids = job_ids

    def hear(self, event: Event) -> None:
        super().hear(event)
        if all(self._was_seen(job_id) for job_id in self._job_ids):
            claim(self._sign)

    def _was_seen(self, job_id: str) -> bool:
        history = self.history.get(job_id, [])
        if job_id == JOB_ID:
            return JobState.RUNNING in history
        was_refused = history[-2:] == [JobState.READY, JobState.WAITING]
        return was_refused or (bool(history) and history[-1].finished())


def token_in(directory: Path) -> CounterToken:
    token = CounterToken(TOKEN, 2, f"{directory}/tokens")
    declare(this_machine(), token)
    return token


def be_scheduler(case: Case, directory: Path, number: int, interpreter: str, *, trace: bool) -> None:
    """The first scheduler has number 0."""
    os.environ["FAULTS_DIRECTORY"] = str(directory)
    os.environ["FAULTS_SCHEDULER"] = str(os.getpid())
    for who in ("parent", "runner", "payload"):
        if getattr(case, who) is not None:
            os.environ[f"FAULTS_{who.upper()}"] = getattr(case, who)
    if trace:
        os.environ["FAULTS_TRACE"] = "1"
    logging.basicConfig(filename=directory / "log", force=True)  # beside what is kept of a case gone wrong
    machine = this_machine()
    view = View(machine, directory, case)
    launcher = _launcher(case, machine, view, interpreter)
    jobs = [_job(case, directory, machine, launcher, job_id) for job_id in (JOB_ID, NEXT_ID)[: case.orders]]
    is_watched = number == 0 or (number == 1 and (trace or case.second is not None))
    if case.token and not is_watched:
        jobs.append(_job(Case(token=True), directory, machine, DirectLauncher(machine, slots=2), NEXT_ID))
    scheduler = Scheduler(machine, clusters=Clusters({MatrixLauncher.name: view}))
    owner = Seeing(directory, [job.job_id for job in jobs]) if number else FakeOwner()
    if is_watched:
        who, at = [("scheduler", case.scheduler), ("second", case.second)][number]
        blow = signal.SIGKILL if number or case.blow == "kill" else signal.SIGSTOP
        strike = Strike(at, f"{directory}/struck-{who}", blow)
        Watcher(strike, f"{directory}/trace-{who}" if trace else None, looks=case.seen).install()
    jobs = [scheduler.submit(job, owner) for job in jobs]
    claim(f"{directory}/submitted-{number}")
    if case.cancel is not None:
        _cancel(scheduler, jobs[0], case, directory)
    for job in jobs:
        job.wait(DEADLINE_S)
    (directory / f"end-{number}").write_text(next((_failure(job) for job in jobs if _failure(job)), DONE))
    os._exit(0)


def _launcher(case: Case, machine: Machine, view: View, interpreter: str) -> Launcher:
    if case.launcher == "cluster":
        shorten_patience()
        return MatrixLauncher(view, case)
    launcher: Launcher = LAUNCHERS[case.launcher](machine, slots=2, python=interpreter)
    return launcher


def _cancel(scheduler: Scheduler, job: Job, case: Case, directory: Path) -> None:
    """Cancels a job that its cluster has: pending, with a runner that stands still, or running."""

    def has_come() -> bool:
        is_there = job.process is not None if case.cancel == "pending" else job.state is JobState.RUNNING
        does_stand = not case.stands or (directory / "struck-runner").exists()
        return (is_there and does_stand) or job.state.finished()

    deadline = time.monotonic() + DEADLINE_S
    while not has_come() and time.monotonic() < deadline:
        time.sleep(0.002)
    scheduler.cancel(job, UNWANTED)


def _job(case: Case, directory: Path, machine: Machine, launcher: Launcher, job_id: str) -> Job:
    return Job(
        TASK_ID,
        job_id,
        layout=Layout(f"{directory}/ws"),
        launcher=launcher,
        work=Work(directory, case, job_id),
        clock=machine.clock,
        retry=RetryLimits(max_lost_retries=2),
        tokens=[token_in(directory).dependency(2)] if case.token else [],
    )


def _failure(job: Job) -> str:
    if job.state is JobState.DONE:
        return "" if Path(job.paths.done).exists() else "DONE, but there is no marker"
    return " ".join(
        map(str, (job.state.name, job.failure_status and job.failure_status.name, job.state_record.message))
    )
