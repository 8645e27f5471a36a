"""Owns pilots: many short jobs in one allocation, none lost and none twice, whatever ends first."""

from __future__ import annotations

import pytest

from tests.slurm.drivers import Driver, eventually

PILOT = {
    "TENUTO_SLURM__PILOTS": "1",
    "TENUTO_SLURM__PILOT_CPUS": "2",
    "TENUTO_SLURM__PILOT_IDLE_S": "90",  # a crowded machine may be slow to send the next order
}
NOTES = """
with experiment(HERE / "ws", "x"):
    notes = [Note.C(name=f"n{i:02}").submit() for i in range(12)]
    After.C(before=notes[0]).submit()
    assert {note.job.result()[2] for note in notes} == {1}
"""
HOLD = """
with experiment(HERE / "ws", "x"):
    Hold.C(name="h").submit()
"""


def test_one_allocation_runs_many_jobs_and_is_given_back(driver: Driver) -> None:
    driver.run(NOTES, **PILOT)
    assert driver.began() == sorted(["after", *(f"n{i:02}" for i in range(12))])
    assert len(driver.calls("sbatch")) == 1
    eventually(lambda: not driver.running(), "the end of the pilot")


def test_a_job_that_wants_more_than_a_pilot_has_gets_its_own(driver: Driver) -> None:
    driver.run(
        """
with experiment(HERE / "ws", "x"):
    Note.C(name="wide").submit(requires="cpu(cores=3)")
    Note.C(name="narrow").submit()
""",
        **PILOT,
    )
    calls = driver.calls("sbatch")
    assert len(calls) == 2
    assert sum("--cpus-per-task=3" in call for call in calls) == 1


def test_jobs_of_a_pilot_that_is_cancelled_run_again(driver: Driver) -> None:
    process = driver.start(driver.script(HOLD), **PILOT)
    eventually(driver.ledger, "the payload")
    driver.slurm.run("scancel", *driver.running())
    eventually(lambda: len(driver.ledger()) == 2, "the second attempt")
    driver.release()
    driver.ended(process)
    (job,) = driver.jobs()
    assert (job["state"], job["attempt"]) == ("done", 2)


def test_another_driver_awaits_the_jobs_of_a_pilot(driver: Driver) -> None:
    script = driver.script(HOLD)
    first = driver.start(script, **{**PILOT, "TENUTO_SLURM__PILOT_IDLE_S": "3"})
    eventually(driver.ledger, "the payload")
    driver.kill(first)
    submitted, asked = len(driver.calls("sbatch")), len(driver.calls("squeue"))
    second = driver.start(script, **PILOT)
    eventually(lambda: len(driver.calls("squeue")) > asked + 1, "the second driver to look")
    driver.release()
    driver.ended(second)
    assert driver.began() == ["h"]
    assert len(driver.calls("sbatch")) == submitted
    eventually(lambda: not driver.running(), "the pilot to be idle for long enough")


def test_a_job_in_a_pilot_is_killed_alone(driver: Driver) -> None:
    process = driver.start(
        driver.script("""
with experiment(HERE / "ws", "x"):
    Hold.C(name="a").submit()
    Hold.C(name="b").submit()
"""),
        **PILOT,
    )
    eventually(lambda: len(driver.ledger()) == 2, "two payloads")
    first = driver.jobs()[0]
    driver.tenuto("kill", first["id"])
    driver.release()
    driver.ended(process, 1)
    assert sorted(job["state"] for job in driver.jobs()) == ["done", "error"]
    assert driver.began() == ["a", "b"]


@pytest.mark.parametrize("how", ["time_s", "duration"])
def test_a_job_as_long_as_a_pilot_runs_in_one(driver: Driver, how: str) -> None:
    variables = {"TENUTO_SLURM__TIME_S": "3600"} if how == "time_s" else {}
    needs = "" if how == "time_s" else "requires='duration=1h'"
    driver.run(
        f"""
with experiment(HERE / "ws", "x"):
    jobs = [Note.C(name=f"n{{i}}").submit({needs}).job for i in range(3)]
    assert [job.result()[2] for job in jobs] == [1, 1, 1]
""",
        **{**PILOT, "TENUTO_SLURM__PILOT_CPUS": "1", "TENUTO_SLURM__PILOT_TIME_S": "3600", **variables},
    )
    assert driver.began() == ["n0", "n1", "n2"]
    calls = driver.calls("sbatch")
    assert all("--time=61" in call and "pilot-" in call for call in calls), calls


@pytest.mark.parametrize("how", ["time_s", "duration"])
def test_a_job_in_a_pilot_has_the_time_that_it_asked_for(driver: Driver, how: str) -> None:
    variables = {"TENUTO_SLURM__TIME_S": "3"} if how == "time_s" else {}
    needs = "" if how == "time_s" else "requires='duration=3s'"
    driver.run(
        f"""
with suppress(Exception), experiment(HERE / "ws", "x"):
    Late.C(name="late").submit({needs})
""",
        classes="""
from contextlib import suppress

class Late(Note):
    def execute(self):
        time.sleep(60)
""",
        **{**PILOT, **variables},
    )
    (job,) = driver.jobs()
    assert (job["state"], job["reason"], job["message"]) == ("error", "timeout", "it ran longer than 3 s")


@pytest.mark.parametrize("pilots", ["0", "1"])
def test_a_time_limit_of_the_settings_can_grow(driver: Driver, pilots: str) -> None:
    driver.run(
        """
with experiment(HERE / "ws", "x"):
    assert Late.C(name="late").submit(retry="timeout: duration*10 to 1m").job.result() == 2
""",
        classes="""
class Late(Note):
    def execute(self):
        mark = HERE / "before"
        if mark.exists():
            return 2
        mark.touch()
        time.sleep(60)
""",
        **{**PILOT, "TENUTO_SLURM__PILOTS": pilots, "TENUTO_SLURM__TIME_S": "3"},
    )
    (job,) = driver.jobs()
    assert (job["state"], job["attempt"]) == ("done", 2)


def test_a_job_that_waits_for_a_pilot_with_time_does_not_wait_for_an_idle_one(driver: Driver) -> None:
    """The first pilot has 60 s and a reserve: after 20 s the second job no longer fits."""
    driver.run(
        """
with experiment(HERE / "ws", "x"):
    Sleep.C(name="n0").submit(requires="duration=60s").job.result()
    Sleep.C(name="n1").submit(requires="duration=60s")
""",
        classes="""
class Sleep(Note):
    def execute(self):
        time.sleep(20 if self.name == "n0" else 0)
        super().execute()
""",
        **{**PILOT, "TENUTO_SLURM__PILOT_TIME_S": "60"},
    )
    assert driver.began() == ["n0", "n1"]
    assert len(driver.calls("sbatch")) == 2


def test_a_driver_says_that_its_jobs_are_too_long_for_its_pilots(driver: Driver) -> None:
    said = driver.run(
        """
with experiment(HERE / "ws", "x"):
    Note.C(name="n").submit()
""",
        **{**PILOT, "TENUTO_SLURM__TIME_S": "14400"},
    )
    assert "slurm.time_s (14400) is more than slurm.pilot_time_s (3600)" in said


@pytest.mark.slow
def test_pilots_that_run_nothing_are_given_up(driver: Driver) -> None:
    (driver.directory / "tenuto.toml").write_text('[slurm]\nwrap = "true"\n')
    said = driver.run(HOLD, code=1, **PILOT)
    assert "3 pilots in a row" in said
    assert len(driver.calls("sbatch")) == 3


def test_a_runner_that_is_killed_in_a_pilot_is_seen_at_once(driver: Driver) -> None:
    said = driver.run(
        """
with experiment(HERE / "ws", "x"):
    held = Hold.C(name="h").submit()
    killed = Kill.C().submit().job
    killed.wait()
    note(killed.failure_status.name)
    (HERE / "release").touch()
    held.job.wait()
""",
        code=1,
        classes="""
class Kill(Task):
    def execute(self):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
""",
        **PILOT,
    )
    assert "KILLED: its runner vanished in pilot" in said
    assert "LOST" in driver.ledger()
    assert sorted(job["state"] for job in driver.jobs()) == ["done", "error"]


@pytest.mark.slow
def test_a_node_that_is_short_of_something_costs_a_job_in_a_pilot_no_try(driver: Driver) -> None:
    """A runner whose pid record cannot be written says so, and its pilot starts it again."""
    (driver.directory / "sitecustomize.py").write_text(
        f"""
import errno, os
opened = os.open
def open_(path, *arguments, **named):
    if ".pid" in str(path):
        try:
            os.rmdir({str(driver.directory / "short")!r})
        except FileNotFoundError:
            return opened(path, *arguments, **named)
        raise OSError(errno.ENOSPC, "No space left on device")
    return opened(path, *arguments, **named)
os.open = open_
"""
    )
    (driver.directory / "short").mkdir()
    driver.run(
        """
with experiment(HERE / "ws", "x"):
    assert Note.C(name="n").submit().job.result()[2] == 1
""",
        PYTHONPATH=str(driver.directory),
        **PILOT,
    )
    assert not (driver.directory / "short").exists()
    assert driver.began() == ["n"]


@pytest.mark.prove("Slurm looks at time limits every half minute")
@pytest.mark.slow
@pytest.mark.watchdog(300)
def test_jobs_of_a_pilot_whose_time_is_over_run_again(driver: Driver) -> None:
    process = driver.start(
        driver.script(
            """
with experiment(HERE / "ws", "x"):
    jobs = [Second.C(name=name).submit().job for name in "abcdef"]
    note(sorted(job.result() for job in jobs))
""",
            classes="""
class Second(Task):
    name: Param[str]
    def execute(self):
        note(self.name)
        while self.job_attempt == 1 and self.name in "ab":
            time.sleep(0.1)
        return self.job_attempt
""",
        ),
        **{**PILOT, "TENUTO_SLURM__PILOT_TIME_S": "60"},
    )
    _, said = process.communicate(timeout=250)
    assert process.returncode == 0, said
    assert driver.ledger().count("a") == 2
    assert all(driver.ledger().count(name) == 1 for name in "cdef"), "they had not begun, and ran once"
    assert len(driver.calls("sbatch")) >= 2
