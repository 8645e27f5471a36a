"""Owns what happens to jobs in Slurm when something fails: no job is lost, and none runs twice at once."""

from __future__ import annotations

import json
import signal

import pytest

from tests.slurm.drivers import FAULTS, LOSES_ONE_ANSWER, SAYING, Driver, eventually

HOLD_THREE = """
with experiment(HERE / "ws", "x"):
    for name in "abc":
        Hold.C(name=name).submit()
"""
NOTE = """
with experiment(HERE / "ws", "x"):
    Note.C(name="n").submit()
"""


def test_the_next_driver_awaits_what_runs_and_what_waits(driver: Driver) -> None:
    script = driver.script(HOLD_THREE)
    first = driver.start(script, TENUTO_SLURM__CPUS="3")  # of three jobs two can run at once
    eventually(lambda: (len(driver.running()), len(driver.in_state("PENDING"))) == (2, 1), "a job that waits")
    driver.kill(first)
    submitted, asked = len(driver.calls("sbatch")), len(driver.calls("squeue"))
    second = driver.start(script, TENUTO_SLURM__CPUS="3")
    eventually(lambda: len(driver.calls("squeue")) > asked + 1, "the second driver to look")
    driver.release()
    driver.ended(second)
    assert driver.began() == ["a", "b", "c"]
    assert len(driver.calls("sbatch")) == submitted


@pytest.mark.prove("it is given up after a minute")
def test_a_job_that_was_never_submitted_is_tried_again(driver: Driver) -> None:
    driver.shim("sbatch", "kill -KILL $PPID; exit 1")
    script = driver.script(NOTE)
    driver.start(script).communicate(timeout=60)
    driver.shim("sbatch")
    second = driver.start(script)
    second.communicate(timeout=200)
    assert second.returncode == 0
    assert driver.began() == ["n"]


def test_a_lost_answer_is_found_in_the_queue_and_the_job_says_why_it_waits(driver: Driver) -> None:
    message = "Slurm did not take it yet: Batch job submission failed: Socket timed out"
    driver.shim("sbatch", LOSES_ONE_ANSWER)
    # The queue answers once the job has said it: else the answer might come first.
    driver.shim("squeue", f'until grep -qs "said {message}" "$HERE/ledger"; do sleep 0.1; done')
    driver.run(SAYING + NOTE)
    assert [line.split()[0] for line in driver.ledger() if not line.startswith("said ")] == ["n"]
    assert len(driver.calls("sbatch")) == 1


def test_an_order_that_is_queued_twice_runs_once(driver: Driver) -> None:
    driver.shim("sbatch", LOSES_ONE_ANSWER)
    driver.shim("squeue", '[ "$(grep -c ^sbatch "$HERE/calls")" -ge 2 ] || exit 0')
    driver.close_queue()
    process = driver.start(driver.script(NOTE.replace("Note", "Hold")))
    eventually(lambda: len(driver.in_state("PENDING")) == 2, "an order that is queued twice")
    driver.open_queue()
    eventually(
        lambda: sorted(state for _, state in driver.queue()) == ["COMPLETED", "RUNNING"],
        "the end of the runner that came second, which has not failed",
    )
    driver.release()
    driver.ended(process)
    assert driver.began() == ["n"]


def test_an_order_that_is_left_over_in_the_queue_is_taken_out_and_does_not_fail(driver: Driver) -> None:
    driver.shim("sbatch", LOSES_ONE_ANSWER)
    driver.shim("squeue", '[ "$(grep -c ^sbatch "$HERE/calls")" -ge 2 ] || exit 0')
    driver.close_queue()
    process = driver.start(driver.script(NOTE))
    (_, held) = eventually(
        lambda: len(twice := driver.in_state("PENDING")) == 2 and twice, "it to be queued twice"
    )
    driver.slurm.run("scontrol", "hold", held)
    driver.open_queue()
    driver.ended(process)
    assert sorted(state for _, state in driver.queue()) == ["CANCELLED", "COMPLETED"]
    assert driver.began() == ["n"]


OFTEN = """
from tenuto.launchers.cluster import follower

follower.SLOWEST_S = 0.5
"""
"""Has a driver ask as often as ever, though it hears nothing new."""
LOOKS_UP = """
case "$*" in *"show job"*)
    if grep -qs away "$HERE/fault"; then echo "Unable to contact slurm controller" >&2
    else echo "slurm_load_jobs error: Invalid job id specified" >&2; fi
    exit 1;;
esac
"""
"""A controller that knows no job, or does not answer."""


def test_a_queue_that_tells_nothing_ends_nothing(driver: Driver) -> None:
    driver.shim("squeue", FAULTS)
    driver.shim("scontrol", LOOKS_UP)
    process = driver.start(driver.script(OFTEN + HOLD_THREE))
    eventually(lambda: len(driver.ledger()) == 3, "three running jobs")
    submitted = len(driver.calls("sbatch"))
    fields = driver.calls("squeue")[0].removeprefix("squeue ").split(" ")
    (driver.directory / "old").write_text(driver.slurm.run("squeue", *fields))
    for fault, command, times in (
        ("fails", "squeue", 2),
        ("hangs", "squeue", 1),
        ("old", "squeue", 2),
        ("empty, and the controller is away", "scontrol -o show job", 2),
        ("empty", "scontrol -o show job", 3),  # each job is asked for, and forgotten
        ("empty", "squeue", 2),
    ):
        (driver.directory / "new").write_text(fault)
        (driver.directory / "new").replace(driver.directory / "fault")
        _until_asked(driver, command, times)
    driver.release()
    said = driver.ended(process)
    assert said.count("Slurm does not answer: squeue ended with 1") == 1, "it is said once"
    assert len(driver.calls("sbatch")) == submitted, "nothing was started"
    assert driver.began() == ["a", "b", "c"]
    assert all(job["attempt"] == 1 for job in driver.jobs())


def _until_asked(driver: Driver, command: str, more: int) -> None:
    """Waits until Slurm was asked so many times more."""

    def asked() -> int:
        return sum(call.startswith(command) for call in driver.calls(command.split(maxsplit=1)[0]))

    before = asked()
    eventually(lambda: asked() >= before + more, f"{more} more questions by {command}")


@pytest.mark.parametrize("other", ["spawn", "slurm"])
def test_two_drivers_run_each_job_once(driver: Driver, other: str) -> None:
    first = driver.start(driver.script(HOLD_THREE.replace('"x"', '"one"'), "script.py"))
    eventually(lambda: len(driver.ledger()) == 3, "three running jobs")
    script = driver.script(HOLD_THREE.replace('"x"', '"two"'), "script.py")
    second = driver.start(script, TENUTO_LAUNCHER=other)

    def submitted() -> int:
        """How many jobs the second driver has asked for."""
        lists = driver.workspace.glob("experiments/two/*/jobs.jsonl")
        return sum(len(path.read_text().splitlines()) for path in lists)

    eventually(lambda: submitted() == 3, "the second driver to ask for the jobs")
    driver.release()
    driver.ended(first)
    driver.ended(second)
    assert driver.began() == ["a", "b", "c"]
    assert all(job["attempt"] == 1 for job in driver.jobs())


def test_a_runner_that_is_killed_is_lost_and_a_payload_failed(driver: Driver) -> None:
    said = driver.run(
        """
with experiment(HERE / "ws", "x") as xp:
    jobs = [Kill.C(whom=whom).submit().job for whom in ("runner", "payload")]
    states = {job.paths.directory: (job.wait(), job.failure_status.name) for job in jobs}
    note(sorted(reason for _, reason in states.values()))
""",
        code=1,
        classes="""
class Kill(Task):
    whom: Param[str]
    def execute(self):
        os.kill(os.getppid() if self.whom == "runner" else os.getpid(), signal.SIGKILL)
        time.sleep(60)
""",
    )
    assert "['FAILED', 'LOST']" in driver.ledger(), said
    markers = [json.loads(path.read_bytes()) for path in driver.workspace.glob("jobs/*/*/*.failed")]
    assert [marker["signal"] for marker in markers if marker["reason"] == "FAILED"] == [signal.SIGKILL]
    eventually(lambda: [state for _, state in driver.queue()] == ["FAILED"] * 2, "Slurm to say the same")
