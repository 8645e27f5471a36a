"""A scheduler of the soak, as a program: goes through its waves, each until all is as it must be.

    python -m proof.soak scheduler '{"root": ..., "who": ..., ...}'

What it was through with is kept in a file, as a person would know; the scheduler after it
goes on there. `closing` instead submits every job of the plan once more and says how each stands.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from proof.descriptors import open_files
from proof.soak import oracle
from proof.soak.bugs import plant
from proof.soak.plan import CAPACITY, Fate, Kind, PlannedJob, Wave, draw
from proof.soak.tasks import task_of
from tenuto import JobFailureStatus, JobState, TransientMode, experiment
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.selection import choose_launcher
from tenuto.settings import CarbonSettings, Settings

SLOTS = 4
WALLTIME_S = 3.0
_LOCK_S = 120.0
_MANY = 1_000_000
LAUNCHERS = ("warm", "spawn", "mixed")
"""Of each scheduler; `mixed` gives every other job to the other one."""


class Orders(NamedTuple):
    """What a scheduler is told."""

    root: str
    who: int
    seed: int
    jobs: int
    begin: float
    """When the soak began, on the monotonic clock of the machine."""
    seconds: float
    """Over how long the waves are spread."""
    closing: bool = False
    bug: str = ""
    """What is planted in this scheduler; nothing, as a rule."""

    @property
    def place(self) -> Path:
        return Path(self.root)

    @property
    def ended(self) -> Path:
        """A line for each wave that this scheduler is through with, and how large it was then."""
        return self.place / f"ended-{self.who}"

    @property
    def answers(self) -> Path:
        return self.place / "answers.json"


def main(orders: Orders) -> None:
    if orders.bug:
        plant(orders.bug)
    waves = draw(orders.seed, orders.jobs)
    if orders.closing:
        submitter = _Submitter(orders)
        submitter.submit([job for wave in waves for job in wave.jobs])
        orders.answers.write_text(json.dumps(submitter.answers))
        return
    through = {json.loads(line)["wave"] for line in _lines(orders.ended)}
    submitter = _Submitter(orders)
    for wave in waves:
        if orders.who in wave.schedulers and wave.number not in through:
            due = orders.begin + orders.seconds * wave.number / len(waves)
            time.sleep(max(0.0, due - time.monotonic()))
            _see_through(submitter, wave)
            _append(orders.ended, {"wave": wave.number, **measured()})


def _see_through(submitter: _Submitter, wave: Wave) -> None:
    """Submit a wave, and what failed without being meant to again, until nothing does."""
    while True:
        states = submitter.submit(wave.jobs)
        wrong = [job.number for job in wave.jobs if not is_settled(job, *states[job.number])]
        if not wrong:
            return
        print(f"wave {wave.number} again: {[(number, states[number]) for number in wrong]}", flush=True)


def is_settled(job: PlannedJob, state: str, reason: str | None = None, message: str | None = None) -> bool:
    """Whether a job needs not be submitted once more."""
    if job.fate is Fate.DONE:
        return state == JobState.DONE.name
    if job.fate is Fate.PASSING:
        return state in (JobState.DONE.name, JobState.UNSCHEDULED.name)
    wanted = JobFailureStatus.FAILED if job.fails else JobFailureStatus.DEPENDENCY
    return (state, reason) == (JobState.ERROR.name, wanted.name)


class _Submitter:
    """Submits jobs in experiments of its own."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._launcher = LAUNCHERS[orders.who % len(LAUNCHERS)]
        self._plain = Settings(
            launcher="warm" if self._launcher == "mixed" else self._launcher,
            slots=SLOTS,
            max_retries=_MANY,
            max_lost_retries=_MANY,
            tokens_path=orders.place / "tokens",
            carbon=CarbonSettings(enabled=False),
        )
        self._limited = replace(self._plain, walltime_s=WALLTIME_S, grace_s=2.0)
        self.answers: dict[int, dict[str, Any]] = {}
        """Of each job at last: its state, its result, and whether its log has what the attempt printed."""

    def submit(self, jobs: Iterable[PlannedJob]) -> dict[int, tuple[str, str | None, str | None]]:
        """How each job stands once all ended."""
        name = "closing" if self._orders.closing else f"soak-{self._orders.who}"
        other = choose_launcher("spawn", SLOTS) if self._launcher == "mixed" else None
        jobs = list(jobs)
        submitted: dict[int, Any] = {}
        with self._experiment(name, limited=False) as xp:
            tokens = {token: xp.token(token, count) for token, count in CAPACITY.items()}
            for job in jobs:
                if job.kind is not Kind.RESUMABLE:
                    submitted[job.number] = _submit(job, self._orders.place, submitted, tokens, other)
            with self._experiment(f"{name}-limited", limited=True):
                for job in jobs:
                    if job.kind is Kind.RESUMABLE:
                        submitted[job.number] = _submit(job, self._orders.place, submitted, tokens, other)
        for job in jobs:
            found = submitted[job.number].job
            if self._orders.closing:
                self.answers[job.number] = _answer(found)
            if found.state is JobState.DONE and found.marker is not None and not self._orders.closing:
                oracle.note(self._orders.root, str(job.number), "seen", found.marker.nonce)
        return {number: _standing(task.job) for number, task in submitted.items()}

    def _experiment(self, name: str, *, limited: bool) -> experiment:
        return experiment(
            self._orders.place / "ws",
            name,
            settings=self._limited if limited else self._plain,
            raise_on_failure=False,
            register_signals=False,
            wait_for_lock_s=_LOCK_S,
            project_paths=[self._orders.place],
        )


def _submit(
    job: PlannedJob, place: Path, before: dict[int, Any], tokens: dict[str, Any], other: Launcher | None
) -> Any:
    task = task_of(job, place)
    task.add_dependencies(*(before[needed] for needed in job.needs))
    task.add_dependencies(*(tokens[name].dependency(amount) for name, amount in job.tokens))
    transient = None
    if job.fate is Fate.PASSING:
        transient = TransientMode.REMOVE if job.removed else TransientMode.TRANSIENT
    task.submit(transient=transient, launcher=other if job.number % 2 else None)
    return task


def _answer(job: Any) -> dict[str, Any]:
    answer = {"state": job.state.name}
    if job.state is JobState.DONE and job.stdout.parent.exists():  # one that is transient may be removed
        whole = job.marker is None or job.marker.nonce in job.stdout.read_text()
        answer |= {"result": job.result(), "log_is_whole": whole}
    return answer


def _standing(job: Any) -> tuple[str, str | None, str | None]:
    return job.state.name, job.failure_status and job.failure_status.name, job.state_record.message


def measured() -> dict[str, Any]:
    """How large this process is: memory in bytes, and its open descriptors.

    Rings of objects that nothing needs wait for Python's collector, up to a quarter of all there are.
    """
    gc.collect()
    with open("/proc/self/statm") as stream:
        pages = int(stream.read().split()[1])
    links = [name.partition("[")[0].removesuffix(":") for name in open_files().values()]
    return {
        "at": time.monotonic(),
        "rss": pages * os.sysconf("SC_PAGESIZE"),
        "descriptors": sorted(links),
    }


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _append(path: Path, content: dict[str, Any]) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, f"{json.dumps(content)}\n".encode())
    finally:
        os.close(file)
