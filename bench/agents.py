"""Owns what a coding agent needs for twelve ordinary tasks: how many commands, and how many bytes they print.

``python -m bench.agents [--json] [TASK...]``. It measures no time. Each task is done as an agent would do it
that has read `tenuto skill`: by commands with ``--json``, without polling. Exit code 1 if one takes more than
its budget.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.measure import Broken
from bench.served import served

SWEEP = """
import sys, time
from pathlib import Path
from tenuto import Param, Task, experiment, log_metrics, tag

class Train(Task):
    lr: Param[float]

    def execute(self):
        for step in range(3):
            log_metrics({"loss": self.lr / (step + 1)}, step=step)
        if self.lr > 0.5 and not Path("../../../../mended").exists():
            raise ValueError("diverged")
        return {"loss": self.lr / 3}

if __name__ == "__main__":
    with experiment("ws", "sweep"):
        for lr in (0.1, 0.2, 0.9):
            Train.C(lr=tag(lr)).submit()
"""
LONG = """
import time
from pathlib import Path
from tenuto import Param, ResumableTask, experiment, tag

class Hold(ResumableTask):
    number: Param[int]

    def execute(self):
        while not Path("../../../../release").exists():
            time.sleep(0.05)
        return self.number

if __name__ == "__main__":
    with experiment("ws", "long"):
        for number in range(3):
            Hold.C(number=tag(number)).submit()
"""
SEARCH = """
import time
from tenuto import Param, Task
from tenuto.search import Evolution, Real

class Pack(Task):
    x: Param[float]

    def execute(self):
        time.sleep(0.2)
        return {"objective": self.x}

if __name__ == "__main__":
    Evolution("packing", Pack, space={"x": Real(0, 1)}, max_total_jobs=500, workdir="ws").run()
"""


class Missed(Exception):
    """A command did not say what the task is about."""


class Budget(NamedTuple):
    """The most that a task may take."""

    commands: int
    size: int


class Session:
    """What one agent does in one directory; commands that only prepare are not counted."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.commands = 0
        self.size = 0
        clean = {name: text for name, text in os.environ.items() if not name.startswith("TENUTO_")}
        homes = {f"XDG_{kind}_HOME": str(place / ".home") for kind in ("CONFIG", "STATE", "CACHE", "DATA")}
        self._environment = {**clean, **homes, "AI_AGENT": "1", "TENUTO_SLOTS": "2"}

    def prepare(self, *words: str, codes: Sequence[int] = (0,)) -> Any:
        """Runs a command before the task begins."""
        return self._run(words, codes)[1]

    def tenuto(self, *words: str, codes: Sequence[int] = (0,)) -> Any:
        """Runs a command of the task; what it prints, as values if that is JSON."""
        size, told = self._run(words, codes)
        self.commands += 1
        self.size += size
        return told

    def _run(self, words: Sequence[str], codes: Sequence[int]) -> tuple[int, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "tenuto", *words],
            cwd=self.place,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
        if done.returncode not in codes:
            raise Missed(f"tenuto {' '.join(words)}: exit code {done.returncode}: {done.stderr.decode()}")
        size = len(done.stdout) + len(done.stderr)
        try:
            return size, json.loads(done.stdout)
        except ValueError:
            return size, done.stdout.decode()

    def script(self, text: str, name: str = "script.py") -> str:
        (self.place / name).write_text(text)
        return name


def expect(condition: object, told: object) -> None:
    """Raises `Missed` unless a command told what an agent has to know."""
    if not condition:
        raise Missed(f"not told in {str(told)[:2000]}")


def ran(session: Session) -> None:
    """The sweep has run, and one of its three jobs has failed."""
    session.prepare("run", session.script(SWEEP), codes=(1,))


def run_a_sweep(session: Session) -> None:
    name = session.script(SWEEP)
    begun = session.tenuto("run", "--detach", "--json", name)
    told = session.tenuto("wait", "--json", begun["name"], codes=(1,))
    expect(told["counts"]["done"] == 2 and len(told["failed"]) == 1, told)


def find_a_cause(session: Session) -> None:
    ran(session)
    failed = session.tenuto("jobs", "--json", "state=error")
    told = session.tenuto("why", "--json", failed[0]["id"])
    expect("ValueError: diverged" in str(told), told)


def read_a_log(session: Session) -> None:
    ran(session)
    failed = session.prepare("jobs", "--json", "state=error")
    told = session.tenuto("logs", "--err", "--lines", "5", failed[0]["id"])
    expect("ValueError: diverged" in told, told)


def retry_what_failed(session: Session) -> None:
    ran(session)
    (session.place / "mended").touch()
    session.tenuto("retry", "--failed", "--json")
    told = session.tenuto("wait", "--json", "sweep")
    expect(told["counts"]["done"] == 3, told)


def find_the_best(session: Session) -> None:
    ran(session)
    told = session.tenuto("results", "--json", "--limit", "1")
    expect(told[0]["tags"]["lr"] == 0.1, told)


def compare_curves(session: Session) -> None:
    ran(session)
    told = session.tenuto("results", "--json", "--metric", "loss:min")
    expect(len(told) == 3 and "loss:min" in str(told), told)


def stop_a_run(session: Session) -> None:
    session.prepare("run", "--detach", "--json", session.script(LONG))
    end = time.monotonic() + 60  # a run comes back once it has begun, and its job may not run yet
    while not session.prepare("jobs", "state=running", "--json"):
        expect(time.monotonic() < end, "no job of the run runs")
    stopped = session.tenuto("kill", "--where", "state=running", "--yes", "--json")
    expect(stopped, stopped)
    (session.place / "release").touch()
    session.prepare("wait", codes=(0, 1))


def resume_a_run(session: Session) -> None:
    name = session.script(LONG)
    begun = session.prepare("run", "--detach", "--json", name)
    os.kill(begun["pid"], 9)
    left = session.tenuto("wait", "--json", "--timeout", "1", "long", codes=(1, 6))
    (session.place / "release").touch()
    expect(name in str(left["take_up"]) or left["state"] == "working", left)
    told = session.tenuto("run", "--json", name)
    expect("done" in str(told), told)


def compare_runs(session: Session) -> None:
    ran(session)
    (session.place / "mended").touch()
    session.prepare("run", session.script(SWEEP.replace("0.2,", "0.3,")))
    runs = [f"sweep/{one['run']}" for one in session.prepare("runs", "list", "--json")]
    told = session.tenuto("diff", "--json", *runs[:2])
    expect("0.3" in str(told), told)


def see_what_would_run(session: Session) -> None:
    ran(session)
    told = session.tenuto("plan", "--json", session.script(SWEEP.replace("0.2,", "0.2, 0.3,")))
    expect("0.3" in str(told), told)


def upload_a_job(session: Session) -> None:
    (session.place / "run.sh").write_text("echo 42 > answer.txt\n")
    with served(session.place, "none") as (port, _):
        told = session.tenuto(
            "submit", "run.sh", "--service", "example", "--url", f"http://127.0.0.1:{port}", "--user", "1",
            "--wait", "-o", "out", "--json",
        )  # fmt: skip
    expect((session.place / "out" / "answer.txt").read_text() == "42\n", told)


def steer_a_search(session: Session) -> None:
    begun = session.prepare("evolve", "--detach", "--json", session.script(SEARCH))
    session.prepare("wait", "--any", "packing", "-w", "ws")
    session.tenuto("pause", "packing", "--json", "-w", "ws")
    told = session.tenuto("search", "best", "packing", "--json", "-w", "ws")
    expect("objective" in str(told), told)
    session.tenuto("resume", "packing", "--json", "-w", "ws")
    os.kill(begun["pid"], 2)


TASKS: Mapping[str, tuple[Callable[[Session], None], Budget]] = {
    "run a sweep": (run_a_sweep, Budget(2, 3_000)),
    "find the cause of a failure": (find_a_cause, Budget(2, 5_000)),
    "read the log of a failure": (read_a_log, Budget(1, 1_000)),
    "retry what failed": (retry_what_failed, Budget(2, 2_000)),
    "find the best result": (find_the_best, Budget(1, 1_000)),
    "compare curves": (compare_curves, Budget(1, 3_000)),
    "stop a run": (stop_a_run, Budget(1, 1_000)),
    "resume a run": (resume_a_run, Budget(2, 5_000)),
    "compare two runs": (compare_runs, Budget(1, 3_000)),
    "see what would run": (see_what_would_run, Budget(1, 3_000)),
    "upload a job": (upload_a_job, Budget(1, 1_000)),
    "steer a search": (steer_a_search, Budget(3, 2_000)),
}


class Outcome(NamedTuple):
    """What one task took."""

    task: str
    commands: int
    size: int
    budget: Budget
    problem: str = ""

    @property
    def is_good(self) -> bool:
        return not self.problem and self.commands <= self.budget.commands and self.size <= self.budget.size


def done(task: str, directory: Path) -> Outcome:
    """Does one task in an empty directory."""
    work, budget = TASKS[task]
    place = directory / task.replace(" ", "-")
    place.mkdir(parents=True)
    session = Session(place)
    try:
        work(session)
    except (Missed, Broken, LookupError, TypeError, OSError, subprocess.TimeoutExpired) as error:
        return Outcome(task, session.commands, session.size, budget, f"{type(error).__name__}: {error}")
    return Outcome(task, session.commands, session.size, budget)


def main(wanted: Sequence[str]) -> int:
    """Prints what each task took; 1 if one took more than its budget."""
    as_json = "--json" in wanted
    names = [name for name in wanted if name != "--json"] or list(TASKS)
    unknown = [name for name in names if name not in TASKS]
    if unknown:
        sys.exit(f"no task is called {unknown[0]!r}; there are: {', '.join(TASKS)}")
    directory = Path(tempfile.mkdtemp(prefix="tenuto-agents-"))
    try:
        outcomes = [done(name, directory) for name in names]
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if as_json:
        print(json.dumps([{**one._asdict(), "budget": one.budget._asdict()} for one in outcomes], indent=1))
    else:
        print("| Task | commands | budget | bytes | budget |\n| --- | --: | --: | --: | --: |")
        for one in outcomes:
            most = one.budget
            print(f"| {one.task} | {one.commands} | {most.commands} | {one.size:,} | {most.size:,} |")
        for one in outcomes:
            if one.problem:
                print(f"\n{one.task}: {one.problem}")
    return 0 if all(one.is_good for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
