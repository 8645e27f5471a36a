"""`tenuto evolve` and `tenuto search`: what they print, exit with, and do to a search that runs."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from tenuto.cli.exit_codes import exit_code
from tenuto.cli.main import commands
from tenuto.errors import TenutoError

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


@pytest.fixture
def evolving(folder: Path) -> Iterator[Evolving]:
    """``evolving("one.py", "400", "0")``: `tenuto evolve` beside the test, ended with it."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tenuto", "evolve", *arguments],
            cwd=folder,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    (folder / "gate").unlink(missing_ok=True)
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one.py").write_text(SCRIPT)
    return tmp_path


def shown(folder: Path) -> dict[str, Any]:
    found = tenuto(folder, "search", "show", "one", "-w", "workspace", "--json")
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


def test_a_search_is_run_shown_and_exported(folder: Path) -> None:
    ran = tenuto(folder, "evolve", "--slots", "2", "--json", "one.py", "12", "0")
    assert ran.returncode == 0, ran.stderr
    [summary] = json.loads(ran.stdout)
    assert (summary["name"], summary["state"], summary["reason"], summary["scheduled"]) == (
        "one",
        "ENDED",
        "TOTAL",
        12,
    )
    assert "one: started, 0 of 12 candidates" in ran.stderr
    assert "one: ended (TOTAL): 12 candidates," in ran.stderr
    assert "\x1b" not in ran.stderr
    found = shown(folder)
    assert (
        list(found)
        == (
            "name state reason message scheduled told unfinished pending queued running succeeded "
            "failed cancelled "
            "reused cost best cells filled qd_score created started ended"
        ).split()
    )
    assert (found["scheduled"], found["told"], found["cells"]) == (12, 12, 16)
    assert found["cost"] == 0.5 * found["succeeded"]
    assert found["qd_score"] == pytest.approx(summary["qd_score"])
    exported = tenuto(folder, "search", "export", "one", "-w", "workspace").stdout.splitlines()
    rows = [json.loads(line) for line in exported]
    assert (
        list(rows[0])
        == (
            "id number status priority attempt objective measures cost metrics values solution parent "
            "inspirations island cell told reused failure message task job directory worker created "
            "scheduled started completed"
        ).split()
    )
    best = json.loads(tenuto(folder, "search", "best", "one", "-w", "workspace", "--json").stdout)
    assert best["objective"] == max(row["objective"] for row in rows if row["objective"] is not None)
    there = tenuto(folder, "search", "best", "one", "--cell", "3,0", "-w", "workspace", "--json").stdout
    assert json.loads(there)["cell"] == 12
    table = tenuto(
        folder, "search", "export", "one", "--format", "csv", "-w", "workspace"
    ).stdout.splitlines()
    assert len(table) == 13
    assert "one  ended (TOTAL)" in tenuto(folder, "search", "list", "-w", "workspace").stdout


def test_23_a_candidate_is_added_without_the_script(folder: Path) -> None:
    tenuto(folder, "evolve", "--slots", "2", "one.py", "2", "0")
    assert (
        tenuto(folder, "search", "add", "one", "-c", "x=0.25", "-w", "workspace").returncode == 2
    )  # the cap
    tenuto(folder, "evolve", "--slots", "2", "--once", "--no-workers", "one.py", "9", "0")
    for values in (["x=0.5", "-c", "y=1"], ["y=1"], ["x=true"], []):
        arguments = ["-c", *values] if values else []
        assert tenuto(folder, "search", "add", "one", *arguments, "-w", "workspace").returncode == 2, values
    before = shown(folder)["scheduled"]
    added = tenuto(folder, "search", "add", "one", "-c", "x=0.25", "--priority", "3", "-w", "workspace")
    assert added.returncode == 0, added.stderr
    assert f"candidate {before + 1} is added" in added.stderr
    tenuto(folder, "evolve", "--slots", "2", "one.py", "9", "0")
    rows = tenuto(folder, "search", "export", "one", "-w", "workspace").stdout.splitlines()
    row = next(row for row in map(json.loads, rows) if row["number"] == before + 1)
    assert (row["values"], row["status"], row["objective"], row["priority"]) == (
        {"x": 0.25},
        "SUCCEEDED",
        0.25,
        3,
    )


ENDS = """
import sys
from tenuto import Param, Task
from tenuto.search import Evolution, GridSearch, Integer, MapElites, Outcome, RandomSearch

class End(Task):
    n: Param[int]
    def execute(self):
        if self.n > 1000:
            return Outcome(failure="too large")
        return Outcome(float(self.n), [0.5], cost=1.0)

OPTIONS = {
    "TOTAL": {"max_total_jobs": 3},
    "TIME": {"max_seconds": 0.01},
    "COST": {"max_cost": 3.0},
    "TARGET": {"target": 0.0},
    "STALL": {"stall": 2},
    "FAILING": {"space": {"n": Integer(2000, 9000)}},
    "EXHAUSTED": {"space": {"n": Integer(1, 3)}, "sampler": GridSearch()},
}
if __name__ == "__main__":
    reason = sys.argv[1]
    given = {"space": {"n": Integer(0, 1000)}, "sampler": MapElites([1], [(0, 1)], start=99)}
    given |= OPTIONS[reason]
    Evolution(reason.lower(), End, max_unfinished_jobs=2, seed=2, **given).run()
"""


def test_22_each_end_has_its_exit_code_and_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENUTO_SEARCH__SEED_POPULATION", "2")
    (tmp_path / "ends.py").write_text(ENDS)
    for reason in ("TOTAL", "TIME", "COST", "TARGET", "STALL", "FAILING", "EXHAUSTED"):
        ran = tenuto(tmp_path, "evolve", "--slots", "2", "--json", "ends.py", reason)
        (summary,) = json.loads(ran.stdout)
        if reason != "TIME":  # of which a busy machine may have had too little for anything to succeed
            assert ran.returncode == (1 if reason == "FAILING" else 0), (reason, ran.stderr)
        assert (summary["state"], summary["reason"]) == ("ENDED", reason)
        assert ran.stderr.splitlines()[-1].startswith(f"{reason.lower()}: ended ({reason}): "), ran.stderr
        exported = tenuto(tmp_path, "search", "export", reason.lower(), "-w", "workspace").stdout.splitlines()
        rows = [json.loads(line) for line in exported]
        ended = [row for row in rows if row["status"] != "CANCELLED"]
        assert all(row["told"] for row in rows), (reason, rows)
        if reason == "COST":
            assert 3.0 <= sum(row["cost"] for row in ended) <= 3.0 + 2, "no more than what was in flight"


def test_exit_codes(folder: Path) -> None:
    assert tenuto(folder, "evolve").returncode == 2
    assert tenuto(folder, "search", "show", "one", "-w", "workspace").returncode == 3
    tenuto(folder, "evolve", "--slots", "2", "one.py", "2", "0")
    for verb in ("pause", "resume", "drain"):
        assert tenuto(folder, "search", verb, "one", "-w", "workspace").returncode == 1, verb
    assert tenuto(folder, "search", "cancel", "one", "-w", "workspace").returncode == 1
    assert tenuto(folder, "search", "show", "two", "-w", "workspace").returncode == 3
    (folder / "one.py").write_text(SCRIPT.replace("Real(0, 1)", "Real(0, 2)"))
    refused = tenuto(folder, "evolve", "one.py", "2", "0")
    assert refused.returncode == 2
    assert "space.x.high was 1, and is 2 now" in refused.stderr
    (folder / "one.py").write_text(
        SCRIPT.replace("x > 0.9", "x > -1").replace('"one"', '"bad"').replace("seed=2", "seed=3")
    )
    failing = tenuto(folder, "evolve", "one.py", "3", "0")
    assert failing.returncode == 1
    assert "3 failed: ValueError: too large" in failing.stderr
    assert "\x1b" not in failing.stderr
    assert tenuto(folder, "search", "remove", "one", "-w", "workspace").returncode == 1
    assert tenuto(folder, "search", "remove", "one", "--yes", "-w", "workspace").returncode == 0
    assert tenuto(folder, "search", "show", "one", "-w", "workspace").returncode == 3


@pytest.mark.slow
def test_23_a_search_is_steered_while_it_runs(
    folder: Path, evolving: Evolving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENUTO_SEARCH__LEASE_S", "8")  # by a quarter of it a cancelled payload is known of
    process = evolving("--slots", "1", "one.py", "400", "0.3")
    eventually(folder, succeeded=1)
    assert tenuto(folder, "search", "pause", "one", "-w", "workspace").returncode == 0
    paused = shown(folder)
    still = until(folder, lambda found: found["running"] == 0)
    assert (still["state"], still["scheduled"]) == ("PAUSED", paused["scheduled"])
    waiting = [row["number"] for row in exported(folder) if row["status"] in ("PENDING", "QUEUED")]
    assert (
        tenuto(folder, "search", "priority", "one", str(waiting[-1]), "5", "-w", "workspace").returncode == 0
    )
    assert tenuto(folder, "search", "cancel", "one", str(waiting[0]), "-w", "workspace").returncode == 0
    assert "1 slots" in tenuto(folder, "search", "workers", "-w", "workspace").stdout
    gate = folder / "gate"
    gate.touch()  # nothing runs now, and what runs next does not end by itself
    assert tenuto(folder, "search", "resume", "one", "-w", "workspace").returncode == 0
    eventually(folder, scheduled=paused["scheduled"] + 1, cancelled=1)
    assert tenuto(folder, "search", "retry", "one", str(waiting[0]), "-w", "workspace").returncode == 0
    running = until(folder, lambda found: found["running"] == 1)["cancelled"]
    (number,) = [row["number"] for row in exported(folder) if row["status"] == "RUNNING"]
    runner = json.loads(eventually_there(folder, number).read_text())["pid"]
    assert tenuto(folder, "search", "cancel", "one", str(number), "-w", "workspace").returncode == 0
    until(folder, lambda found: found["cancelled"] > running and not Path(f"/proc/{runner}").exists())
    gate.unlink()
    assert tenuto(folder, "search", "drain", "one", "-w", "workspace").returncode == 0
    _, said = process.communicate(timeout=90)
    assert process.returncode == 0, said
    assert said.splitlines()[-1].startswith("one: ended (STOPPED): ")
    ended = shown(folder)
    assert (ended["state"], ended["reason"], ended["unfinished"]) == ("ENDED", "STOPPED", 0)


@pytest.mark.slow
def test_24_an_interrupt_drains_a_second_one_leaves_a_third_ends_at_once(
    folder: Path, evolving: Evolving
) -> None:
    gate = folder / "gate"
    gate.touch()
    process = evolving("--slots", "2", "one.py", "400", "0")
    eventually(folder, running=1)
    process.send_signal(signal.SIGINT)
    gate.unlink()
    _, said = process.communicate(timeout=90)
    assert process.returncode == 5, said
    assert "nothing more is started" in said
    drained = shown(folder)
    assert (drained["running"], drained["state"]) == (0, "RUNNING")
    gate.touch()
    process = evolving("--slots", "2", "one.py", "400", "0")
    eventually(folder, running=2)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)  # two of one kind may arrive as one
    _, said = process.communicate(timeout=90)
    assert process.returncode == 5, said
    assert shown(folder)["running"] == 2  # their jobs go on, and the next run adopts them
    process = evolving("--slots", "2", "one.py", "400", "0")
    deadline = time.monotonic() + 90
    while f"-{process.pid}-" not in tenuto(folder, "search", "workers", "-w", "workspace", "--json").stdout:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    while "nothing more is started" not in process.stderr.readline():
        assert process.poll() is None
    for second_and_third in (signal.SIGTERM, signal.SIGINT):  # the third ends it at once, whatever runs
        process.send_signal(second_and_third)
    assert process.wait(90) == 5
    gate.unlink()
    last = tenuto(folder, "evolve", "--slots", "2", "--once", "one.py", "400", "0.1")
    assert last.returncode == 0, last.stderr


def test_34_the_demo_is_a_script_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENUTO_SEARCH__MAX_TOTAL_JOBS", "3")
    (tmp_path / "tenuto-search-demo").mkdir()
    source = (Path(__file__).parents[2] / "examples" / "arm.py").read_text()
    (tmp_path / "tenuto-search-demo" / "arm.py").write_text(source.replace("TOTAL = 1500", "TOTAL = 6"))
    ran = tenuto(tmp_path, "evolve", "--demo")
    assert ran.returncode == 0, ran.stderr
    assert "tenuto-search-demo/arm.py" in ran.stderr
    assert "the arm reaches" in ran.stdout
    assert "arm: ended (TOTAL): 6 candidates" in ran.stderr


def test_the_example_of_objects_runs(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "objects.py"
    (tmp_path / "objects.py").write_text(example.read_text().replace("TOTAL = 300", "TOTAL = 8"))
    done = tenuto(tmp_path, "evolve", "objects.py")
    assert done.returncode == 0, done.stderr
    assert "tour: ended (TOTAL): 8 candidates, 8 succeeded" in done.stderr
