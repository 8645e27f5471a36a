"""Owns the promise that pyright and mypy understand configs without a plug-in: what they accept and refuse.

The examples are checked against the installed package, with none of this project's settings.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ACCEPTED, REFUSED = HERE / "accepted.py", HERE / "refused.py"
MYPY_LINE = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: .*\[(?P<rule>[a-z-]+)\]$")
MARK = re.compile(r"# error: (?P<mypy>\S+) \| (?P<pyright>\S+)$")

Found = dict[tuple[str, int], set[str]]
"""The rules that each line of each file broke."""


def mypy(directory: Path) -> Found:
    flags = ["--strict", "--config-file=", "--no-error-summary", f"--cache-dir={directory}"]
    output = run("mypy", *flags, str(ACCEPTED), str(REFUSED), directory=directory)
    found: Found = defaultdict(set)
    for line in output.splitlines():
        if match := MYPY_LINE.match(line):
            found[Path(match["file"]).name, int(match["line"])].add(match["rule"])
    return found


def pyright(directory: Path) -> Found:
    flags = ["--outputjson", "--pythonpath", sys.executable]
    output = run("pyright", *flags, str(ACCEPTED), str(REFUSED), directory=directory)
    found: Found = defaultdict(set)
    for problem in json.loads(output)["generalDiagnostics"]:
        if problem["severity"] == "error":
            line = problem["range"]["start"]["line"] + 1
            found[Path(problem["file"]).name, line].add(problem.get("rule", "no rule"))
    return found


def run(tool: str, *arguments: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", tool, *arguments], cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, f"{tool} was to find errors, and ended with:\n{done.stdout}{done.stderr}"
    return done.stdout


def marks(checker: str) -> Found:
    lines = REFUSED.read_text("utf-8").splitlines()
    marked = {number: match for number, line in enumerate(lines, 1) if (match := MARK.search(line))}
    return {
        (REFUSED.name, number): {match[checker]} for number, match in marked.items() if match[checker] != "-"
    }


@pytest.mark.parametrize("checker", [mypy, pyright], ids=lambda checker: checker.__name__)
def test_a_checker_accepts_and_refuses_what_it_should(
    checker: Callable[[Path], Found], require: Callable[[str], None], tmp_path: Path
) -> None:
    name = checker.__name__
    require(name)
    found, expected = checker(tmp_path), marks(name)
    assert len(expected) > 25
    assert {place: rules for place, rules in found.items() if place not in expected} == {}, (
        "refused, not marked"
    )
    assert sorted(place for place in expected if place not in found) == [], "marked, not refused"
    other = {place: rules for place, rules in found.items() if not expected[place] <= rules}
    assert other == {}, "refused for another reason"


def test_the_accepted_example_also_runs(tmp_path: Path) -> None:
    """Up to where it would submit: what a checker accepts must not be an error when it runs."""
    making, submitting, _ = ACCEPTED.read_text("utf-8").partition("# Submitting")
    assert submitting
    script = tmp_path / "accepted.py"
    script.write_text(making)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
