"""Owns how cases with real processes are played: dealt out to theatres, programs that play one after another.
Knows no case and no verdict; a theatre reads its cases as JSON, and prints one line of JSON for each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def play(
    module: str, cases: Sequence[Mapping[str, Any]], root: Path, theatres: int, *flags: str
) -> list[dict[str, Any]]:
    """Plays the cases in so many theatres at once; one result for each case, in the order of the cases.

    `module`: the program of a theatre, which is given a directory below `root` and the flags.
    """
    running = []
    for number in range(min(theatres, len(cases))):
        directory = root / f"theatre-{number}"
        directory.mkdir()
        (directory / "cases").write_text(json.dumps(cases[number::theatres]))
        with (directory / "cases").open() as given, (directory / "results").open("w") as told:
            running.append((directory, started(module, directory, *flags, stdin=given, stdout=told)))
    for _, process in running:
        if process.wait() != 0:
            raise RuntimeError(f"a theatre ended with exit code {process.returncode}; see above")
    told_by = [(directory / "results").read_text().splitlines() for directory, _ in running]
    return [json.loads(told_by[at % theatres][at // theatres]) for at in range(len(cases))]


def started(module: str, directory: Path, *flags: str, stdin: Any, stdout: Any) -> subprocess.Popen[str]:
    """A theatre that reads its cases from `stdin`."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", module, str(directory), *flags]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, text=True, env=environment)
