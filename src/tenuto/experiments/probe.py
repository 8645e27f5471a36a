"""A probe of a launcher: two small jobs that show whether jobs can run there, and what to know about it.
Leaves nothing behind; the command words what a person is told of it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tenuto.experiments.environment import DirtyGitAction
from tenuto.experiments.experiment import experiment
from tenuto.launchers.protocols import Launcher
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.scheduler import Scheduler
from tenuto.settings import Settings
from tenuto.tasks.hints import Param
from tenuto.tasks.task import Task
from tenuto.workspace.claims import is_claimed
from tenuto.workspace.job_directory import read_launch

ANSWER_S = 120.0
"""How long a probe waits to be answered, and a file to be seen."""
SKEW_S = 5.0
LATE_S = 5.0
_LOOK_S = 0.05
_HELLO, _ANSWER = "hello.json", "answer"


class Finding(NamedTuple):
    """One thing that the probe showed."""

    name: str
    is_good: bool
    found: str
    advice: str = ""
    is_fatal: bool = False


class Probe(Task):
    """Says where it runs, and waits until it is answered through the disk."""

    number: Param[str]

    def execute(self) -> dict[str, Any]:
        facts = {
            "host": socket.gethostname(),
            "python": sys.version.split()[0],
            "executable": sys.executable,
            "tenuto": os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
            "now": time.time(),
        }
        Path(f"{_HELLO}.new").write_text(json.dumps(facts))
        Path(f"{_HELLO}.new").rename(_HELLO)
        waited_s = _until(lambda: os.path.exists(_ANSWER), ANSWER_S)
        return {**facts, "waited_s": waited_s}


class Endless(Task):
    """Runs until it is stopped."""

    number: Param[str]

    def execute(self) -> None:
        while True:
            time.sleep(1)


def probe(launcher: Launcher, directory: Path, settings: Settings, wait_s: float) -> list[Finding]:
    """What two jobs show; `wait_s`: how long the first may take to start."""
    number = os.urandom(4).hex()
    with experiment(
        directory,
        "probe",
        launcher=launcher,
        settings=settings,
        dirty_git=DirtyGitAction.IGNORE,
        register_signals=False,
        raise_on_failure=False,
    ):
        findings = _answered(launcher, number, wait_s)
        if not any(one.is_fatal for one in findings):
            findings.append(_stopped(number, wait_s))
    return findings


def _answered(launcher: Launcher, number: str, wait_s: float) -> list[Finding]:
    began = time.monotonic()
    job: Any = Probe.C(number=number).submit().job
    hello = job.path / _HELLO
    if _until(lambda: hello.exists() or job.state.finished(), wait_s) is None or not hello.exists():
        told = job.standing.message or f"it is {job.state.name} after {time.monotonic() - began:.0f} s"
        Scheduler.instance().cancel(job, "the probe took too long")
        return [Finding("started", False, told, "see the output of the launcher's own tools", is_fatal=True)]
    seen = time.time()
    facts = json.loads(hello.read_text())
    is_locked = Scheduler.instance().machine.locks.is_locked(job.paths.lock)
    (job.path / _ANSWER).touch()
    state = job.wait(ANSWER_S)
    here = sys.version.split()[0]
    result = job.result() if state is JobState.DONE else {}
    late_s = result.get("waited_s")
    return [
        Finding("started", True, f"on {facts['host']}, after {time.monotonic() - began:.1f} s"),
        Finding(
            "python",
            facts["python"] == here,
            f"{facts['python']}, {facts['executable']}",
            f"this one is {here}: set slurm.python, or load the same module there",
        ),
        Finding("tenuto", True, facts["tenuto"]),
        Finding(
            "disk",
            late_s is not None and late_s < LATE_S,
            "seen both ways" + ("" if late_s is None else f", there after {late_s:.1f} s"),
            "what is written here is seen late there: jobs start and stop a little later",
            is_fatal=state is not JobState.DONE,
        ),
        *_claim(launcher, job),
        Finding(
            "locks",
            is_locked,
            "seen across hosts" if is_locked else "a lock there is not seen here",
            "jobs are safe by their claims; the end of a lost one then rests on its beats",
        ),
        Finding(
            "clock",
            abs(seen - facts["now"]) < SKEW_S,
            f"{seen - facts['now']:+.1f} s apart, the disk's delay included",
            "let both hosts follow one clock (NTP); durations are not affected",
        ),
    ]


def _claim(launcher: Launcher, job: Any) -> list[Finding]:
    if not launcher.external:
        return []
    machine = Scheduler.instance().machine
    launch = read_launch(machine.files, job.paths)
    made = launch is not None and is_claimed(machine, job.paths, launch.nonce)
    return [
        Finding("claim", made, "made before the job began" if made else "there is none", is_fatal=not made)
    ]


def _stopped(number: str, wait_s: float) -> Finding:
    job: Any = Endless.C(number=number).submit().job
    if _until(lambda: job.state is JobState.RUNNING or job.state.finished(), wait_s) is None:
        Scheduler.instance().cancel(job, "the probe took too long")
        return Finding("stop", False, "the job to stop did not start in time")
    began = time.monotonic()
    Scheduler.instance().cancel(job, "the probe stops it")
    job.wait(ANSWER_S)
    is_stopped = job.failure_status is JobFailureStatus.CANCELLED
    return Finding(
        "stop", is_stopped, f"heard after {time.monotonic() - began:.1f} s", is_fatal=not is_stopped
    )


def _until(condition: Callable[[], bool], timeout_s: float) -> float | None:
    """Seconds until a condition came true; None if it did not in time."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout_s:
            return None
        time.sleep(_LOOK_S)
    return time.monotonic() - began
