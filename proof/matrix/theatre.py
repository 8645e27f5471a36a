"""Plays cases of the kill matrix: real schedulers, runners and payloads, each killed where the case says.
Runs as a program of its own, so that it can fork schedulers before any thread exists:

    python -m proof.matrix.theatre DIRECTORY < cases.json     (prints one line of JSON for each case)
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import select
import shutil
import signal
import stat
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proof.matrix.bugs import BUGS
from proof.matrix.case import Case
from proof.matrix.cluster import Files, MatrixCluster
from proof.matrix.judge import judged
from proof.matrix.scheduler import DEADLINE_S, HERE, TOKEN, be_scheduler, token_in
from tenuto.launchers.kernel import become_subreaper
from tenuto.workspace.machine import this_machine
from tenuto.workspace.token_files import TokenFiles, TokenPlace

HOLD_S = 0.3
IDLE_S = 0.03
ASKING_S = 1.5
"""How long a scheduler may take that asks a cluster, and so is never idle, until it gets no further."""
BEFORE = 99
"""The number of the scheduler that runs the job into its first failure."""


class Theatre:
    """Plays one case after another; the parent also of processes whose own was killed."""

    def __init__(self, root: Path) -> None:
        become_subreaper()
        self._root = root
        self._interpreter = str(_write_interpreter(root))
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
            _hold_token(directory)
        cluster = self._open_cluster(case, directory, trace) if case.launcher == "cluster" else None
        schedulers = self._schedule(case, directory, trace)
        if cluster is not None:
            Files(directory).closing.touch()
            _wait_for(lambda: _is_over(cluster))  # it starts what is pending, one task after another
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
        end = _ended(self._start(Case(), directory, BEFORE), directory, BEFORE)
        assert end == "ERROR FAILED exited with code 3", end

    def _schedule(self, case: Case, directory: Path, trace: bool) -> list[str]:
        """Scheduler after scheduler, until one that nobody means to kill sees the job done."""
        ends: list[str] = []
        pids = [self._start(case, directory, 0, trace)]
        if case.blow != "kill":
            pids.append(self._start_beside(case, directory, pids[0], trace))
        while len(ends) < 2 + case.blows():
            if len(pids) == 1 and case.together:
                pids.append(self._start(case, directory, 1, trace))
            end = _ended(pids[len(ends)], directory, len(ends))
            ends.append(end)
            if end == case.end and len(ends) >= case.schedulers() + trace:
                break
            if len(pids) == len(ends):
                pids.append(self._start(case, directory, len(pids), trace))
        for pid in pids[len(ends) :]:
            ends.append(_ended(pid, directory, len(ends)))
        return ends

    def _start(self, case: Case, directory: Path, number: int, trace: bool = False) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            be_scheduler(case, directory, number, self._interpreter, trace=trace and number < 2)
        except BaseException:  # noqa: BLE001  it is judged by its exit code; this is for the reader of a case
            (directory / f"raised-{number}").write_text(traceback.format_exc())
        finally:
            os._exit(99)

    def _open_cluster(self, case: Case, directory: Path, trace: bool) -> int:
        files = Files(directory)
        files.directory.mkdir()
        files.signals.touch()
        pid = os.fork()
        if pid:
            return pid
        try:
            MatrixCluster(case, directory, self._interpreter, trace=trace).serve()
        except BaseException:  # noqa: BLE001  the case is judged; this is for its reader
            (directory / "raised-cluster").write_text(traceback.format_exc())
        finally:
            os._exit(0)

    def _start_beside(self, case: Case, directory: Path, first: int, trace: bool) -> int:
        """The second scheduler, while the first stands still where it is to be struck; then the blow."""
        came = os.waitid(os.P_PID, first, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        second = self._start(case, directory, 1, trace)
        if came is not None and came.si_code == os.CLD_STOPPED:
            _wait_for(lambda: (directory / "submitted-1").exists() or _is_over(second))
            patience_s = ASKING_S if case.launcher == "cluster" else DEADLINE_S
            _wait_for(lambda: _is_over(second) or _is_idle(second), patience_s)
            os.kill(first, signal.SIGKILL if case.blow == "late" else signal.SIGCONT)
        return second

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


def _write_interpreter(directory: Path) -> Path:
    """A file that a launcher can run as if it were Python, and that runs `killed_runner`."""
    path = directory / "killed-python"
    path.write_text(f"#!/bin/sh\nexec '{sys.executable}' -I -S '{HERE / 'killed_runner.py'}' \"$@\"\n")
    path.chmod(stat.S_IRWXU)
    return path


def _hold_token(directory: Path) -> None:
    """A process has a unit until a scheduler queues for it, and the lock by which payloads see each other."""
    place = TokenPlace(token_in(directory).directory)
    tokens = TokenFiles(this_machine(), place)
    if os.fork() == 0:
        try:
            with (directory / "oracle.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                held = tokens.take(TOKEN, (1,))
                _wait_for(Path(place.queue).exists)
                time.sleep(HOLD_S)  # after its ticket the scheduler looks once whether it is the first
            del held
        finally:
            os._exit(0)
    _wait_for(lambda: bool(tokens.state(TOKEN).held))


def _ended(pid: int, directory: Path, number: int) -> str:
    """How a scheduler ended: killed, or with what it says of the job."""
    handle = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    is_late = not poll.poll((DEADLINE_S + 5) * 1000)
    os.close(handle)
    if is_late:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return "stuck"
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == -signal.SIGKILL:
        return "killed"
    return (directory / f"end-{number}").read_text() if code == 0 else f"exit code {code}"


def _wait_for(condition: Callable[[], bool], patience_s: float = DEADLINE_S) -> None:
    """Until it holds; not for ever, since a process that never gets there is found to be stuck by others."""
    deadline = time.monotonic() + patience_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)


def _is_over(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def _is_idle(pid: int) -> bool:
    """It gets no further by itself: all its threads sleep, and none was given the processor for a while."""
    before = _threads(pid)
    time.sleep(IDLE_S)
    return _threads(pid) == before and all(sleeps for sleeps, _ in before)


def _threads(pid: int) -> list[tuple[bool, str]]:
    """Whether each of them sleeps, and how often it was given the processor."""
    try:
        statuses = [path.read_text() for path in sorted(Path(f"/proc/{pid}/task").glob("*/status"))]
    except (FileNotFoundError, ProcessLookupError):
        return [(False, "")]  # one has just ended
    return [("State:\tS" in status, status.partition("\nvoluntary")[2]) for status in statuses]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--trace", action="store_true", help="write down the operations of each process")
    parser.add_argument("--planted", choices=BUGS, help="with this bug in each scheduler")
    given = parser.parse_args()
    theatre = Theatre(given.root)
    if given.planted:
        BUGS[given.planted].plant()
    for fields in json.load(sys.stdin):
        print(json.dumps(theatre.play(Case(**fields), trace=given.trace)), flush=True)


if __name__ == "__main__":
    main()
