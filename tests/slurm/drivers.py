"""Drivers as a researcher runs them: scripts in processes of their own, whose jobs a private Slurm runs."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.parts.fork_server import ran
from tests.parts.slurm import PrivateSlurm

WAIT_S = 60.0

TASKS = """
import json, os, signal, socket, sys, time
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent

def note(text):
    with (HERE / "ledger").open("a") as ledger:
        ledger.write(f"{text}\\n")

class Note(Task):
    name: Param[str]
    def execute(self):
        note(f"{self.name} {socket.gethostname()}")
        return [self.name, socket.gethostname(), self.job_attempt]

class Hold(Task):
    name: Param[str]
    def execute(self):
        note(f"{self.name} {socket.gethostname()}")
        end = time.monotonic() + 90
        while not (HERE / "release").exists():
            if time.monotonic() > end:
                raise TimeoutError("nobody released this job")
            time.sleep(0.05)
        return [self.name, self.job_attempt]

class After(Task):
    before: Param[Note | Hold]
    def execute(self):
        note(f"after {self.before.name}")
"""


SAYING = """
class Said:
    def job_explained(self, job, message):
        note(f"said {message}")

Scheduler.instance().add_listener(Said())
"""
"""Has a driver note how its jobs explain that they wait."""
GATHERED = """
from tenuto.launchers.cluster import launcher

launcher.GATHER_S = launcher.GATHER_MOST_S = 60.0
"""
"""Has a driver submit as soon as `array_size` jobs are gathered, however slowly the machine does that."""
FAULTS = """
case "$(cat "$HERE/fault" 2>/dev/null)" in
    fails) exit 1;;
    hangs) while grep -qs hangs "$HERE/fault"; do sleep 0.1; done; exit 1;;
    old) cat "$HERE/old"; exit 0;;
    empty*) exit 0;;
esac
"""
"""A command that answers as the file `fault` says."""
AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
"""What a command of Slurm's says while the controller is away."""
CANCEL = """
with experiment(HERE / "ws", "x"):
    job = Hold.C(name="h").submit().job
    while not (HERE / "cancel").exists():
        time.sleep(0.05)
    began = time.monotonic()
    Scheduler.instance().cancel(job, "enough")
    job.wait()
    (HERE / "took_s").write_text(str(time.monotonic() - began))
    while not (HERE / "leave").exists():
        time.sleep(0.05)
"""
"""Has a driver cancel its job when a file `cancel` says so, note how long that took, and wait for `leave`."""
LOST = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
LOSES_ONE_ANSWER = (
    f'if mkdir "$HERE/lost" 2>/dev/null; then $REAL "$@" >/dev/null; echo "{LOST}" >&2; exit 1; fi'
)
"""An sbatch that queues its first job, and whose answer never comes."""


class Driver:
    """A directory with a script, its workspace, and a Slurm; a shim may stand before its commands."""

    def __init__(self, directory: Path, slurm: PrivateSlurm) -> None:
        self.directory = directory
        self.workspace = directory / "ws"
        self.slurm = slurm
        self.shims = directory / "shims"
        self.shims.mkdir()
        self._calls = directory / "calls"
        self._open: list[subprocess.Popen[str]] = []
        self._is_queue_closed = False
        self.jobs_before = max((_number(job) for job, _ in self._rows()), default=0)
        """Slurm's number of the last job before this driver's: tests share a cluster, and its queue."""
        for name in ("sbatch", "squeue", "scancel", "sacct", "scontrol"):
            self.shim(name)

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("TENUTO_", "SLURM_"))
        }
        return {
            **kept,
            **self.slurm.environment,
            "PATH": f"{self.shims}:{os.environ['PATH']}",
            "XDG_CONFIG_HOME": str(self.directory / "config"),
            "TENUTO_LAUNCHER": "slurm",
            "TENUTO_SLURM__POLL_S": "0.5",
            "TENUTO_SLURM__BEAT_S": "1",
            "TENUTO_DIRTY_GIT": "ignore",
        }

    def shim(self, name: str, before: str = "") -> None:
        """Puts a program before a command of Slurm's: it notes the call, does something, and calls it.

        `before`: lines of bash; `$REAL` is the command, and `$HERE` the directory of the drivers.
        """
        real = shutil.which(name)
        assert real is not None
        path = self.shims / name
        new = path.with_suffix(".new")
        new.write_text(
            f'#!/bin/bash\nHERE={self.directory}\necho "{name} $*" >> {self._calls}\n'
            f'REAL={real}\n{before}\nexec $REAL "$@"\n'
        )
        new.chmod(new.stat().st_mode | stat.S_IXUSR)
        new.replace(path)

    def calls(self, name: str) -> list[str]:
        """The calls of a command so far, with their arguments."""
        text = self._calls.read_text() if self._calls.exists() else ""
        return [line for line in text.splitlines() if line.startswith(f"{name} ")]

    def script(self, body: str, name: str = "script.py", classes: str = "") -> Path:
        """Writes a script whose main part is `body`; `classes`: tasks besides the usual ones."""
        path = self.directory / name
        indented = "".join(f"    {line}\n" for line in body.strip().splitlines())
        path.write_text(f"{TASKS}\n{classes}\nif __name__ == '__main__':\n{indented}", encoding="utf-8")
        return path

    def start(self, script: Path, *before: str, **variables: str) -> subprocess.Popen[str]:
        """Starts a driver; it is ended with the test. `before`: a command that runs it."""
        process = subprocess.Popen(
            [*before, sys.executable, str(script)],
            cwd=self.directory,
            env={**self.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self._open.append(process)
        return process

    def ended(self, process: subprocess.Popen[str], code: int = 0) -> str:
        """What a driver said on standard error, once it has ended."""
        _, said = process.communicate(timeout=WAIT_S)
        assert process.returncode == code, said
        return said

    def run(self, body: str, code: int = 0, classes: str = "", **variables: str) -> str:
        """Runs a script to its end; what it said on standard error."""
        return self.ended(self.start(self.script(body, classes=classes), **variables), code)

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Ends a driver as a machine that fails does."""
        process.kill()
        process.communicate()

    def tenuto(self, *arguments: str, code: int | None = 0) -> str:
        """Runs a command of ours on the workspace; what it prints."""
        return self.plain(*arguments, "-w", str(self.workspace), code=code)

    def plain(self, *arguments: str, code: int | None = 0, **variables: str) -> str:
        """Runs a command of ours; what it prints."""
        command = [sys.executable, "-m", "tenuto", *arguments]
        done = ran(command, self.directory, {**self.environment, **variables}, WAIT_S)
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def jobs(self) -> list[Any]:
        """The jobs of the workspace, as the command line shows them."""
        found: list[Any] = json.loads(self.tenuto("jobs", "--all", "--json"))
        return found

    def ledger(self) -> list[str]:
        """What payloads noted when they began."""
        path = self.directory / "ledger"
        return path.read_text().splitlines() if path.exists() else []

    def began(self) -> list[str]:
        """The names of the payloads that began, sorted."""
        return sorted(line.rsplit(" ", 1)[0] for line in self.ledger())

    def release(self) -> None:
        """Lets the held jobs end."""
        (self.directory / "release").touch()

    def queue(self) -> list[tuple[str, str]]:
        """Id and state of each job of this test that Slurm shows, ended ones too."""
        return [(job, state) for job, state in self._rows() if _number(job) > self.jobs_before]

    def in_state(self, state: str) -> list[str]:
        """The jobs of this test that Slurm shows in a state."""
        return [job for job, shown in self.queue() if shown == state]

    def running(self) -> list[str]:
        return self.in_state("RUNNING")

    def close_queue(self) -> None:
        """Has Slurm start no job until `open_queue`, or the end of the test."""
        self._is_queue_closed = True
        self.slurm.run("scontrol", "update", "PartitionName=main", "State=DOWN")

    def open_queue(self) -> None:
        """Has Slurm start jobs again."""
        self.slurm.run("scontrol", "update", "PartitionName=main", "State=UP")
        self._is_queue_closed = False

    def close(self) -> None:
        self.release()
        if self._is_queue_closed:
            self.open_queue()
        for process in self._open:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def _rows(self) -> list[tuple[str, str]]:
        rows = self.slurm.run("squeue", "-h", "-r", "-t", "all", "-O", "JobArrayID:|,State:|")
        return [(row.split("|")[0], row.split("|")[1]) for row in rows.splitlines()]


def _number(job: str) -> int:
    """Of an id such as `12` or `12_3` the number that Slurm counts up."""
    return int(job.partition("_")[0])


def array_size(call: str) -> int:
    """How many jobs a call of sbatch submits."""
    _, is_array, rest = call.partition("--array=0-")
    return int(rest.split()[0]) + 1 if is_array else 1


def eventually(condition: Callable[[], Any], what: str, timeout_s: float = WAIT_S) -> Any:
    """Waits for a condition; returns what made it true."""
    end, pause_s = time.monotonic() + timeout_s, 0.02
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {timeout_s:g} s in vain for {what}"
        time.sleep(pause_s)
        pause_s = min(1.3 * pause_s, 0.25)  # many conditions start a command of Slurm's
    return found
