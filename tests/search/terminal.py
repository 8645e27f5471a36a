"""`tenuto` as a person types it: commands in this process, and what they say of the search `one`."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tenuto.cli.exit_codes import exit_code
from tenuto.cli.main import commands
from tenuto.errors import TenutoError
from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import Liveness, ProcessIdentity

SCRIPT = """
import os, sys, time
from tenuto import Meta, Param, Task
from tenuto.search import Evolution, MapElites, Outcome, Real

class One(Task):
    x: Param[float]
    seconds: Meta[float] = 0.0
    gate: Meta[str] = ""
    def execute(self):
        time.sleep(self.seconds)
        while os.path.exists(self.gate):
            time.sleep(0.05)
        if self.x > 0.9:
            raise ValueError("too large \\x1b[31m")
        return Outcome(self.x, [self.x, 1 - self.x], cost=0.5)

if __name__ == "__main__":
    task = One.C(seconds=float(sys.argv[2]), gate=os.path.abspath("gate"))
    Evolution("one", task, space={"x": Real(0, 1)}, seed=2,
              sampler=MapElites([4, 4], [(0, 1), (0, 1)], start=6), max_total_jobs=int(sys.argv[1]),
              max_unfinished_jobs=6).run()
"""


def tenuto(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in this process: a new interpreter for each takes too long."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = commands(list(arguments), standalone_mode=False)
        except TenutoError as error:
            err.write(str(error))
            code = exit_code(error)
        except click.UsageError as error:
            err.write(error.format_message())
            code = error.exit_code
    return subprocess.CompletedProcess(arguments, code or 0, out.getvalue(), err.getvalue())


Evolving = Callable[..., subprocess.Popen[str]]


def shown(folder: Path) -> dict[str, Any]:
    found = tenuto(folder, "status", "one", "-w", "workspace", "--json")
    return dict(json.loads(found.stdout)) if found.returncode == 0 else {}


def until(folder: Path, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The search, once the condition holds."""
    deadline = time.monotonic() + 90
    while not ((found := shown(folder)) and is_so(found)):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def exported(folder: Path) -> list[dict[str, Any]]:
    said = tenuto(folder, "search", "export", "one", "-w", "workspace").stdout
    return [json.loads(line) for line in said.splitlines()]


def eventually_there(folder: Path, number: int) -> Path:
    """The record of the runner of a candidate, once there is one."""
    job = next(row["job"] for row in exported(folder) if row["number"] == number)
    deadline = time.monotonic() + 90
    while not (found := list((folder / "workspace" / "jobs").glob(f"*/{job}/*.pid"))):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found[0]


def eventually(folder: Path, **wanted: int) -> dict[str, Any]:
    """The search, once its counters have come that far."""
    return until(folder, lambda found: all(found[key] >= value for key, value in wanted.items()))


def is_over(record: Path) -> bool:
    """Whether the runner that left a record has ended."""
    kept = json.loads(record.read_text())
    runner = ProcessIdentity(**{key: kept[key] for key in ProcessIdentity._fields})
    return this_machine().processes.liveness(runner) is not Liveness.ALIVE
