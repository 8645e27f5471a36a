"""Owns that slots hold for all processes that run jobs of one workspace on one machine."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import dedent

from tenuto.workspace.locks import system_locks

from .scripts import TASKS, Place, environment, eventually, python, run, tenuto


@contextmanager
def started(place: Place, command: list[str], slots: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command,
        cwd=place.directory,
        env=environment(TENUTO_SLOTS=str(slots)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def waiting(place: Place) -> frozenset[int]:
    """The numbers of the schedulers that wait for a slot."""
    locks = system_locks()
    found = [locks.locked(str(file)) for file in place.workspace.glob(".slots/*/waiting.lock")]
    return frozenset[int]().union(*found)


def ended(process: subprocess.Popen[str]) -> None:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output


def test_a_second_script_waits_for_a_slot_and_gets_its_turn(place: Place) -> None:
    first = place.script(
        dedent("""
        with experiment("ws", "first"):
            Hold.C(name="held").submit()
            for number in range(8):
                Note.C(name=str(number)).submit(priority=-1)
        """),
        name="first.py",
    )
    second = place.script('with experiment("ws", "second"):\n    Note.C(name="other").submit()', "second.py")
    with started(place, python(first), 1) as one:
        eventually(lambda: place.ledger() == ["held"], "the job of the first script")
        with started(place, python(second), 1) as two:
            eventually(lambda: waiting(place), "the second script to wait")
            assert place.ledger() == ["held"]
            place.release.touch()
            ended(two)
        ended(one)
    assert place.ledger().index("other") < 9, "the first script leaves a slot to the second"
    assert not waiting(place)


def test_adopted_jobs_and_retries_have_the_slots_that_they_hold(place: Place) -> None:
    script = place.script(
        dedent("""
        with experiment("ws", "x", raise_on_failure=False):
            Fail.C(name="bad").submit().wait()
            for name in ("a", "b"):
                Hold.C(name=name).submit()
        """)
    )
    with started(place, python(script), 2) as killed:
        eventually(lambda: sorted(place.ledger()) == ["a", "b", "bad"], "two jobs that are held")
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    place.script(
        dedent("""
        with experiment("ws", "x"):
            for name in ("a", "b"):
                Hold.C(name=name).submit()
            Note.C(name="new").submit(launcher="spawn")
        """)
    )
    failed = next(place.workspace.glob("jobs/*.Fail/*")).name
    with (
        started(place, tenuto("retry", failed, "-w", "ws"), 2) as retry,
        started(place, python(script), 2) as again,
    ):
        eventually(lambda: len(waiting(place)) == 2, "both to wait for a slot")
        assert sorted(place.ledger()) == ["a", "b", "bad"]
        place.release.touch()
        ended(again)
        retry.communicate(timeout=60)
    assert sorted(place.ledger()) == ["a", "b", "bad", "bad", "new"]


def test_a_job_that_another_script_runs_takes_no_second_slot_and_keeps_its_time(place: Place) -> None:
    body = dedent("""
        with experiment("ws", "{}"):
            job = Hold.C(name="held").submit().job
            Note.C(name="{}").submit()
        print(job.starttime.isoformat(), (job.endtime - job.starttime).total_seconds() >= 0)
        """)
    place.script(body.format("first", "one"))
    script = place.directory / "script.py"
    with started(place, python(script), 2) as one:
        eventually(lambda: sorted(place.ledger()) == ["held", "one"], "both jobs of the first script")
        place.script(body.format("second", "two"))
        with started(place, python(script), 2) as two:
            eventually(lambda: "two" in place.ledger(), "the other slot")
            (held,) = place.workspace.glob("jobs/*.Hold/*")
            began = json.loads((held / "Hold.pid").read_text())["started"]
            place.release.touch()
            said, _ = two.communicate(timeout=60)
            assert two.returncode == 0, said
        ended(one)
    assert said.split()[-2:] == [began, "True"]
    assert "1 job was run before: script.py has changed since" in said, "of the first script"


INNER = """
import subprocess

class Outer(Task):
    def execute(self):
        command = [sys.executable, str(HERE / "inner.py")]
        inner = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=HERE)
        told = next(line for line in inner.stderr if "every slot" in line)
        inner.kill()
        inner.communicate()
        return told
"""


def test_a_job_that_waits_for_a_job_of_its_own_for_ever_is_told_so(place: Place) -> None:
    place.script('with experiment("ws", "inner"):\n    Note.C(name="never").submit()', "inner.py")
    body = 'with experiment("ws", "outer"):\n    print(Outer.C().submit().result())'
    script = place.script(body, tasks=TASKS + INNER)
    result = run(python(script), place.directory, TENUTO_SLOTS="1")
    assert "every slot (1) is held by a job that waits for jobs which it started itself" in result.stdout
    assert place.ledger() == []
