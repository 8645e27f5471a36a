"""23, 24: a search that runs is steered from another terminal, and interrupted."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.search.terminal import (
    Evolving,
    eventually,
    eventually_there,
    exported,
    is_over,
    shown,
    tenuto,
    until,
)


def steer(folder: Path, verb: str, *arguments: str) -> int:
    """The exit code of a verb that only searches have, about the search `one`."""
    return do(folder, "search", verb, "one", *arguments)


def do(folder: Path, *words: str) -> int:
    """The exit code of a command."""
    return tenuto(folder, *words, "-w", "workspace").returncode


@pytest.mark.slow
def test_23_a_search_is_steered_while_it_runs(
    folder: Path, evolving: Evolving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENUTO_SEARCH__LEASE_S", "8")  # by a quarter of it a cancelled payload is known of
    process = evolving("--slots", "1", "one.py", "400", "0.3")
    eventually(folder, succeeded=1)
    assert do(folder, "pause", "one") == 0
    paused = shown(folder)
    still = until(folder, lambda found: found["running"] == 0)
    assert (still["state"], still["scheduled"]) == ("PAUSED", paused["scheduled"])
    waiting = [row["number"] for row in exported(folder) if row["status"] in ("PENDING", "QUEUED")]
    assert steer(folder, "priority", str(waiting[-1]), "5") == 0
    assert do(folder, "kill", f"one#{waiting[0]}") == 0
    asked = ("search", "add", "one", "-c", "x=0.125", "--priority", "9", "--json")
    added = json.loads(tenuto(folder, *asked, "-w", "workspace").stdout)
    assert added == {"search": "one", "number": paused["scheduled"] + 1}
    assert "1 slots" in tenuto(folder, "search", "workers", "-w", "workspace").stdout
    gate = folder / "gate"
    gate.touch()  # nothing runs now, and what runs next does not end by itself
    assert do(folder, "resume", "one") == 0
    eventually(folder, scheduled=paused["scheduled"] + 2, cancelled=1)
    assert do(folder, "retry", f"one#{waiting[0]}") == 0
    cancelled = until(folder, lambda found: found["running"] == 1)["cancelled"]
    (running,) = [row for row in exported(folder) if row["status"] == "RUNNING"]
    assert running["priority"] > 0, "what has a priority starts next"
    runner = eventually_there(folder, running["number"])
    assert do(folder, "kill", f"one#{running['number']}") == 0
    until(folder, lambda found: found["cancelled"] > cancelled and is_over(runner))
    best = json.loads(tenuto(folder, "search", "best", "one", "-w", "workspace", "--json").stdout)
    assert best["objective"] == max(row["objective"] or 0 for row in exported(folder))
    gate.unlink()
    assert steer(folder, "drain") == 0
    _, said = process.communicate(timeout=90)
    assert process.returncode == 0, said
    assert said.splitlines()[-1].startswith("one: ended (STOPPED): ")
    ended = shown(folder)
    assert (ended["state"], ended["reason"], ended["unfinished"]) == ("ENDED", "STOPPED", 0)


@pytest.mark.slow
def test_23_a_search_that_is_removed_while_it_runs_ends(
    folder: Path, evolving: Evolving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENUTO_SEARCH__LEASE_S", "8")
    (folder / "gate").touch()
    process = evolving("--slots", "1", "one.py", "400", "0")
    (running,) = [row for row in until_runs(folder) if row["status"] == "RUNNING"]
    runner = eventually_there(folder, running["number"])
    assert steer(folder, "remove", "--yes") == 0
    _, said = process.communicate(timeout=90)
    assert process.returncode == 3, said
    assert "one was removed while it ran" in said
    assert "Traceback" not in said
    assert is_over(runner), "70: its payload was stopped"


def until_runs(folder: Path) -> list[dict[str, object]]:
    until(folder, lambda found: found["running"] == 1)
    return exported(folder)


STUBBORN = """
import os, sys, time
from tenuto import Meta, Param, Task
from tenuto.search import Evolution, RandomSearch, Real

class Stubborn(Task):
    x: Param[float]
    log: Meta[str]
    def execute(self):
        while True:
            try:
                with open(self.log, "a") as file:
                    file.write(f"{time.time()}\\n")
                time.sleep(0.02)
            except BaseException:
                pass

if __name__ == "__main__":
    Evolution("one", Stubborn.C(log=os.path.abspath("log")), space={"x": Real(0, 1)}, sampler=RandomSearch(),
              max_unfinished_jobs=1, max_total_jobs=1).run()
"""
LEASE_S, GRACE_S = 8.0, 2.0
LATE_S = 1.0
"""For the signals to arrive, and for a look at the log."""


@pytest.mark.prove("it measures time")
def test_23_the_payload_of_a_cancelled_candidate_ends_in_time(
    folder: Path, evolving: Evolving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that ignores TERM: a quarter of the lease later it is told, and after the grace it is gone."""
    monkeypatch.setenv("TENUTO_SEARCH__LEASE_S", str(LEASE_S))
    monkeypatch.setenv("TENUTO_GRACE_S", str(GRACE_S))
    (folder / "stubborn.py").write_text(STUBBORN)
    process = evolving("--slots", "1", "stubborn.py")
    log = folder / "log"
    until(folder, lambda found: found["running"] == 1 and log.exists())
    assert do(folder, "kill", "one#1", "--no-wait") == 0
    process.communicate(timeout=90)
    assert process.returncode == 1, "nothing succeeded"
    (row,) = exported(folder)
    assert row["status"] == "CANCELLED"
    last = float(log.read_text().splitlines()[-1])
    assert last - row["completed"] < LEASE_S / 4 + GRACE_S + LATE_S


def running_of(folder: Path, pid: int) -> int:
    """How many candidates the worker in a process runs."""
    found = json.loads(tenuto(folder, "search", "workers", "-w", "workspace", "--json").stdout)
    return sum(one["running"] for one in found if f"-{pid}-" in one["name"])


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
    until(folder, lambda _: running_of(folder, process.pid) == 2)
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
