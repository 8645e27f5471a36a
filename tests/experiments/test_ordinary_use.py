"""Owns what ordinary use runs into: causes of failures, log lines, threads, cleaning."""

from __future__ import annotations

import json

from .scripts import TASKS, Place, python, run, tenuto

FAILING = """
import logging
logging.basicConfig(level=logging.INFO, format="LOG %(levelname)s %(message)s")
with experiment(HERE / "ws", "failing", raise_on_failure=False) as xp:
    tasks = [Fail.C(name="a").submit(), Note.C(name="b").submit(), Threads.C().submit()]
    tasks.append(After.C(before=tasks[0]).submit())
print(tasks[2].result())
for task in (tasks[0], tasks[3]):
    try:
        task.result()
    except TenutoError as error:
        print(type(error).__name__, error)
"""
THREADS = """
class Threads(Task):
    def execute(self):
        return [os.environ.get(name, "-") for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")]
"""


def test_a_failure_says_its_cause_and_is_cleaned_with_what_it_kept_from_running(place: Place) -> None:
    script = place.script(FAILING, tasks=TASKS + THREADS)
    first = run(python(script), place.directory)
    threads, own, after = first.stdout.splitlines()
    assert threads == "['1', '1']", "one slot, one core"
    assert own.startswith("NoResult script.Fail"), own
    assert "it is ERROR (FAILED): ValueError: a is bad" in own
    assert "tenuto why" in own
    assert "(DEPENDENCY): script.Fail" in after
    lines = [line for line in first.stderr.splitlines() if line.startswith("LOG")]
    assert len(lines) == 1, "one line for a run"
    assert "failed, 4 jobs, 0 reused, 2 failed" in lines[0]
    kept = run(python(script), place.directory, OMP_NUM_THREADS="3")
    assert kept.stdout.splitlines()[0] == "['1', '1']", "the job is done, and reused"
    cleaned = run(tenuto("clean", "task~script", "--yes", "--json", "-w", place.workspace), place.directory)
    assert {one["outcome"] for one in json.loads(cleaned.stdout)} == {"deleted"}, cleaned.stdout
    again = run(python(script), place.directory, OMP_NUM_THREADS="3")
    assert again.stdout.splitlines()[0] == "['3', '-']", "what the shell says holds"
