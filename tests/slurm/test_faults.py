"""Owns what happens to jobs in Slurm when something fails: no job is lost, and none runs twice at once."""

from __future__ import annotations

import subprocess

import pytest

from tests.slurm.drivers import SAYING, Driver, eventually

HOLD_THREE = """
with experiment(HERE / "ws", "x"):
    for name in "abc":
        Hold.C(name=name).submit()
"""
NOTE = """
with experiment(HERE / "ws", "x"):
    Note.C(name="n").submit()
"""


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_the_next_driver_awaits_what_runs_and_what_waits(driver: Driver) -> None:
    script = driver.script(HOLD_THREE)
    first = driver.start(script, TENUTO_SLURM__CPUS="3")  # of three jobs two can run at once
    eventually(lambda: len(driver.running()) == 2, "two running jobs")
    killed(first)
    submitted = len(driver.calls("sbatch"))
    second = driver.start(script, TENUTO_SLURM__CPUS="3")
    eventually(lambda: len(driver.calls("squeue")) > 3, "the second driver to look")
    driver.release()
    driver.ended(second)
    assert driver.began() == ["a", "b", "c"]
    assert len(driver.calls("sbatch")) == submitted


@pytest.mark.prove("it is given up after a minute")
def test_what_was_never_submitted_is_tried_again(driver: Driver) -> None:
    driver.shim("sbatch", "kill -KILL $PPID; exit 1")
    script = driver.script(NOTE)
    driver.start(script).communicate(timeout=60)
    driver.shim("sbatch")
    second = driver.start(script)
    second.communicate(timeout=100)
    assert second.returncode == 0
    assert driver.began() == ["n"]


def test_a_lost_answer_is_found_in_the_queue_and_the_job_says_why_it_waits(driver: Driver) -> None:
    lost = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    driver.shim(
        "sbatch",
        f'if mkdir {driver.directory}/once 2>/dev/null; then $REAL "$@" >/dev/null; '
        f'echo "{lost}" >&2; exit 1; fi',
    )
    driver.run(SAYING + NOTE)
    said = [line for line in driver.ledger() if line.startswith("said ")]
    assert any(
        "Slurm did not take it yet: Batch job submission failed: Socket timed out" in one for one in said
    )
    assert [line.split()[0] for line in driver.ledger() if line not in said] == ["n"]
    assert len(driver.calls("sbatch")) == 1


def test_an_order_that_is_queued_twice_runs_once(driver: Driver) -> None:
    lost = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    driver.shim(
        "sbatch",
        f'if mkdir {driver.directory}/once 2>/dev/null; then $REAL "$@" >/dev/null; '
        f'echo "{lost}" >&2; exit 1; fi',
    )
    driver.shim("squeue", f"if mkdir {driver.directory}/blind 2>/dev/null; then exit 0; fi")
    driver.run(NOTE)
    assert driver.began() == ["n"]


OLD = '[ -e {0}/old ] || $REAL "$@" > {0}/old; cat {0}/old; exit 0'
"""Answers as it did when it was first asked so."""
UNKNOWN = "slurm_load_jobs error: Invalid job id specified"
HANGS = "sleep 2; exit 1"
AWAY = "slurm_load_jobs error: Unable to contact slurm controller"


@pytest.mark.parametrize(
    ("squeue", "scontrol"),
    [
        ("exit 1", UNKNOWN),
        ("exit 0", UNKNOWN),
        (HANGS, UNKNOWN),
        (OLD, UNKNOWN),
        ("exit 0", AWAY),
    ],
    ids=["fails", "empty", "hangs", "old", "scontrol fails"],
)
def test_a_queue_that_tells_nothing_ends_nothing(driver: Driver, squeue: str, scontrol: str) -> None:
    fault = squeue.replace("{0}", str(driver.directory))
    driver.shim("squeue", f"if [ -e {driver.directory}/ledger ]; then {fault}; fi")
    driver.shim("scontrol", f'case "$*" in *"show job"*) echo "{scontrol}" >&2; exit 1;; esac')
    process = driver.start(driver.script(HOLD_THREE))
    eventually(lambda: len(driver.ledger()) == 3, "three running jobs")
    asked = len(driver.calls("squeue"))
    eventually(lambda: len(driver.calls("squeue")) > asked + 1, "more questions")
    driver.release()
    driver.ended(process)
    assert driver.began() == ["a", "b", "c"]
    assert all(job["attempt"] == 1 for job in driver.jobs())


def test_two_drivers_run_each_job_once(driver: Driver) -> None:
    first = driver.start(driver.script(HOLD_THREE.replace('"x"', '"one"'), "script.py"))
    eventually(lambda: len(driver.ledger()) == 3, "three running jobs")
    script = driver.script(HOLD_THREE.replace('"x"', '"two"'), "script.py")
    second = driver.start(script, TENUTO_LAUNCHER="spawn")
    asked = len(driver.calls("squeue"))
    eventually(lambda: len(driver.calls("squeue")) > asked + 1, "the second driver to look")
    driver.release()
    driver.ended(first)
    driver.ended(second)
    assert driver.began() == ["a", "b", "c"]


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
    assert {state for _, state in driver.queue()[-2:]} == {"FAILED"}
