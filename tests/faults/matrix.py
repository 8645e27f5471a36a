"""Plays cases of the kill matrix: real schedulers, runners and payloads, each killed where the case says.
Runs as a program of its own, so that it can fork schedulers before any thread exists:

    python matrix.py DIRECTORY < cases.json     (prints one line of JSON for each case)
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import stat
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE))

from killing import Strike, Watcher  # noqa: E402  its neighbour

from tenuto.launchers.instructions import Command  # noqa: E402
from tenuto.launchers.runner.kernel import become_subreaper  # noqa: E402
from tenuto.launchers.spawn import SpawnLauncher  # noqa: E402
from tenuto.launchers.warm.launcher import WarmLauncher  # noqa: E402
from tenuto.lifecycle.states import JobState  # noqa: E402
from tenuto.scheduler.base import Scheduler  # noqa: E402
from tenuto.scheduler.decisions import RetryLimits  # noqa: E402
from tenuto.scheduler.jobs import Job  # noqa: E402
from tenuto.scheduler.tokens import CounterToken, declare  # noqa: E402
from tenuto.testing.owner import FakeOwner  # noqa: E402
from tenuto.workspace.job_directory import look, read_locks, read_pid, read_status  # noqa: E402
from tenuto.workspace.layout import JobPaths, Layout, TokenPlace  # noqa: E402
from tenuto.workspace.machine import this_machine  # noqa: E402
from tenuto.workspace.ports import DESCENDANTS_BYTE, RUNNER_BYTE, is_temporary  # noqa: E402
from tenuto.workspace.records import LaunchRecord  # noqa: E402
from tenuto.workspace.tokens import TokenFiles  # noqa: E402

TASK_ID, JOB_ID = "oracle", "job"
DEADLINE_S = 30.0
HOLD_S = 0.3
BEFORE = 99
"""The number of the scheduler that runs the job into its first failure."""
PARAMS = b'{"nothing": true}'
LAUNCHERS = {"spawn": SpawnLauncher, "warm": WarmLauncher}


class Case(NamedTuple):
    """Who dies where. An operation is named as `killing` names it."""

    scheduler: str | None = None
    """The first scheduler, before this operation."""
    runner: str | None = None
    """The first runner that gets there, before this operation."""
    payload: str | None = None
    """The first payload that gets there, before this operation of its own before it becomes the program."""
    victim: str | None = None
    """Whom the program kills: payload (itself), runner, the runner's parent if it is warm, or scheduler."""
    moment: str | None = None
    """When: start, middle or end of its work."""
    in_child: bool = False
    """The work is done by a child of the payload, which holds none of its descriptors."""
    together: bool = False
    """The second scheduler does not wait for the end of the first."""
    launcher: str = "spawn"
    parent: str | None = None
    """The first warm parent, before this operation."""
    token: bool = False
    """The job needs both units of a token."""
    busy: bool = False
    """The token is in use when the first scheduler comes, so that it has to queue."""
    again: bool = False
    """The job had failed before, so that its directory is full of what the attempt before left."""

    def blows(self) -> int:
        struck = (self.scheduler, self.parent, self.runner, self.payload, self.victim)
        return sum(what is not None for what in struck)

    def repeats(self) -> int:
        """How often the work may have to be repeated."""
        killed = (self.runner is not None, self.payload is not None, self.victim in ("runner", "payload"))
        return sum(killed) + self.again

    def may_fail(self) -> bool:
        """A payload that dies alone has failed, and is not tried again until it is submitted again."""
        return self.payload is not None or self.victim == "payload"


class Work:
    """A `Work` that runs the oracle."""

    environment: Mapping[str, str] = {}

    def __init__(self, directory: Path, case: Case) -> None:
        self._arguments = (
            *(sys.executable, "-I", "-S", str(HERE / "oracle.py")),
            *(str(directory), case.victim or "", case.moment or ""),
            *(["--start-child"] if case.in_child else []),
        )

    def params(self, layout: Layout, paths: JobPaths) -> bytes:
        return PARAMS

    def command(self) -> Command:
        return Command(self._arguments)


def write_interpreter(directory: Path) -> Path:
    """A file that a launcher can run as if it were Python, and that runs `killed_runner`."""
    path = directory / "killed-python"
    path.write_text(f"#!/bin/sh\nexec '{sys.executable}' -I -S '{HERE / 'killed_runner.py'}' \"$@\"\n")
    path.chmod(stat.S_IRWXU)
    return path


class Theatre:
    """Plays one case after another; the parent also of processes whose own was killed."""

    def __init__(self, root: Path) -> None:
        become_subreaper()
        self._root = root
        self._interpreter = str(write_interpreter(root))
        self._played = 0

    def play(self, case: Case, *, trace: bool = False) -> dict[str, Any]:
        """What was wrong, if anything, and how it went."""
        self._played += 1
        began = time.monotonic()
        directory = self._root / f"case-{self._played}"
        directory.mkdir()
        if case.again:
            self._fail_once(directory)
        if case.busy:
            self._hold_token(directory)
        schedulers = self._schedule(case, directory, trace)
        problems = [*self._end_of_all(), *judged(case, directory, schedulers)]
        struck = sorted(path.name for path in directory.glob("struck-*"))
        if not problems and not trace:
            shutil.rmtree(directory)
        return {
            "case": case._asdict(),
            "problems": problems,
            "schedulers": schedulers,
            "struck": struck,
            "seconds": round(time.monotonic() - began, 3),
            "directory": str(directory),
        }

    def _fail_once(self, directory: Path) -> None:
        (directory / "fail-once").touch()
        end = ended(self._start(Case(), directory, BEFORE), directory, BEFORE)
        assert end == "ERROR FAILED exited with code 3", end

    def _hold_token(self, directory: Path) -> None:
        """Somebody has a unit for a while."""
        tokens = TokenFiles(this_machine(), TokenPlace(token_in(directory).directory))
        if os.fork() == 0:
            try:
                held = tokens.take("pair", (1,))
                time.sleep(HOLD_S)
                del held
            finally:
                os._exit(0)
        while not tokens.state("pair").held:
            time.sleep(0.001)

    def _schedule(self, case: Case, directory: Path, trace: bool) -> list[str]:
        """Scheduler after scheduler, until one that came after the first sees the job done."""
        ends: list[str] = []
        pids = [self._start(case, directory, 0, trace)]
        while len(ends) < 2 + case.blows():
            if len(pids) == 1 and case.together:
                pids.append(self._start(case, directory, 1))
            end = ended(pids[len(ends)], directory, len(ends))
            ends.append(end)
            if end == "DONE" and len(ends) > 1:
                break
            if len(pids) == len(ends):
                pids.append(self._start(case, directory, len(pids)))
        for pid in pids[len(ends) :]:
            ends.append(ended(pid, directory, len(ends)))
        return ends

    def _start(self, case: Case, directory: Path, number: int, trace: bool = False) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            _be_scheduler(case, directory, number, self._interpreter, trace)
        finally:
            os._exit(99)

    def _end_of_all(self) -> list[str]:
        """Everything that the case started must be gone, or go now."""
        deadline = time.monotonic() + 5.0
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return []
            if pid == 0:
                if time.monotonic() > deadline:
                    return [f"still running: {self._kill_all()}"]
                time.sleep(0.002)

    def _kill_all(self) -> list[str]:
        found = []
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        for pid in map(int, children):
            found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return found


def _be_scheduler(case: Case, directory: Path, number: int, interpreter: str, trace: bool) -> None:
    os.environ["FAULTS_DIRECTORY"] = str(directory)
    os.environ["FAULTS_SCHEDULER"] = str(os.getpid())
    for who in ("parent", "runner", "payload"):
        if getattr(case, who) is not None:
            os.environ[f"FAULTS_{who.upper()}"] = getattr(case, who)
    if trace:
        os.environ["FAULTS_TRACE"] = "1"
    machine = this_machine()
    job = Job(
        TASK_ID,
        JOB_ID,
        layout=Layout(f"{directory}/ws"),
        launcher=LAUNCHERS[case.launcher](machine, slots=1, python=interpreter),
        work=Work(directory, case),
        clock=machine.clock,
        retry=RetryLimits(max_lost_retries=2),
        tokens=[token_in(directory).dependency(2)] if case.token else [],
    )
    scheduler = Scheduler(machine)
    if number == 0:
        strike = Strike(case.scheduler, f"{directory}/struck-scheduler")
        Watcher(strike, f"{directory}/trace-scheduler" if trace else None).install()
    job = scheduler.submit(job, FakeOwner())
    state = job.wait(DEADLINE_S)
    message = f"{state.name} {job.standing.reason and job.standing.reason.name} {job.standing.message}"
    (directory / f"end-{number}").write_text("DONE" if state is JobState.DONE else message)
    os._exit(0)


def token_in(directory: Path) -> CounterToken:
    token = CounterToken("pair", 2, f"{directory}/tokens")
    declare(this_machine(), token)
    return token


def ended(pid: int, directory: Path, number: int) -> str:
    """How a scheduler ended: killed, or with what it says of the job."""
    handle = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    if not poll.poll((DEADLINE_S + 5) * 1000):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return "stuck"
    os.close(handle)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == -signal.SIGKILL:
        return "killed"
    return (directory / f"end-{number}").read_text() if code == 0 else f"exit code {code}"


def judged(case: Case, directory: Path, schedulers: list[str]) -> list[str]:
    """Everything that must hold, whatever was killed; what does not."""
    paths = Layout(f"{directory}/ws").job(TASK_ID, JOB_ID)
    machine = this_machine()
    found = look(machine, paths)
    problems: list[str] = []

    def must(holds: bool, otherwise: object) -> None:
        if not holds:
            problems.append(str(otherwise))

    failures = [end for end in schedulers if end not in ("DONE", "killed")]
    must(schedulers[-1] == "DONE", f"the last scheduler ended with: {schedulers[-1]}")
    must(case.may_fail() or not failures, f"a scheduler failed: {failures}")
    killed = "ERROR FAILED exited with code 247" if case.in_child else "ERROR FAILED was ended by SIGKILL"
    must(all(end.startswith(killed) for end in failures), failures)
    must(found.derived.row == "done", f"the directory says {found.derived}")
    problems += _by_ledger(case, directory, found.derived.marker.nonce if found.derived.marker else "")
    must(isinstance(found.evidence.launch, LaunchRecord), f"launch.json: {found.evidence.launch}")
    must(read_pid(machine.files, paths, found.derived.attempt) is not None, "the pid record cannot be read")
    must(read_status(machine.files, paths) is not None, "status.json cannot be read")
    must(Path(paths.params).read_bytes() == PARAMS, "params.json is damaged")
    for byte in (RUNNER_BYTE, DESCENDANTS_BYTE):
        must(not machine.locks.is_locked(paths.lock, byte), f"byte {byte} of the lock is held")
    tokens = TokenFiles(machine, TokenPlace(f"{directory}/tokens"))
    must(not tokens.state("pair").held, "units of the token are held")
    must(not tokens.living(), "a scheduler counts as alive")
    locks = read_locks(machine.files, paths, found.derived.attempt)
    must(not case.token or (locks is not None and locks.tokens == (("pair", (0, 1)),)), f"locks: {locks}")
    for path in Path(paths.directory).rglob("*"):
        # Of the status, which can be had from the marker, nobody clears away the copy of a killed writer.
        must(not is_temporary(path.name) or path.name.startswith("status.json"), f"{path.name} is left")
        must("corrupt" not in path.name, f"{path.name} is there")
    return problems


def _by_ledger(case: Case, directory: Path, nonce: str) -> list[str]:
    ledger = directory / "ledger"
    entries = [line.split() for line in ledger.read_text().splitlines()] if ledger.exists() else []
    starts = [attempt for what, attempt, _ in entries if what == "start"]
    problems = []
    if any(what == "overlap" for what, *_ in entries):
        problems.append(f"two payloads at the same time: {entries}")
    if nonce not in starts or nonce not in [attempt for what, attempt, _ in entries if what == "end"]:
        problems.append(f"it counts as done, but its work is not in the ledger: {entries}")
    if len(set(starts)) < len(starts):
        problems.append(f"one attempt ran twice: {entries}")
    if len(starts) > 1 + case.repeats():
        problems.append(f"it ran {len(starts)} times: {entries}")
    return problems


def main(root: str) -> None:
    theatre = Theatre(Path(root))
    for fields in json.load(sys.stdin):
        print(json.dumps(theatre.play(Case(**fields))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
