"""Owns limits and waits in Slurm: time, memory, a job that never starts, a queue of a thousand jobs."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.parts.slurm import PrivateSlurm
from tests.parts.slurm_configuration import Shape
from tests.slurm.drivers import AWAY, CANCEL, Driver, array_size, eventually

HOLD = """
with experiment(HERE / "ws", "x"):
    Hold.C(name="h").submit()
"""
NEVER = """
with experiment(HERE / "ws", "x"):
    held = SlurmLauncher(SlurmOptions(extra=("--hold",)))
    never = SlurmLauncher(SlurmOptions(extra=("--dependency=afterok:BEFORE",)))
    jobs = [
        Hold.C(name="held").submit(launcher=held).job,
        Hold.C(name="never").submit(launcher=never).job,
        Hold.C(name="large").submit(requires="cpu(cores=900)").job,
    ]
    end = time.monotonic() + 60
    while time.monotonic() < end:
        said = [job.state_record.message or "" for job in jobs]
        if all("will not start" in one for one in said):
            break
        time.sleep(0.05)
    note("\\n".join(said))
    jobs[0].wait(60)
    for job in jobs[1:]:
        Scheduler.instance().cancel(job, "enough")
"""


def test_a_job_that_never_starts_says_so_and_can_be_killed(driver: Driver) -> None:
    before = driver.slurm.run("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "false").strip()
    eventually(lambda: (before, "FAILED") in driver.queue(), "the end of what it depends on")
    process = driver.start(driver.script(NEVER.replace("BEFORE", before)))
    said = eventually(driver.ledger, "what the driver says of its jobs", 90)
    start = "it waits in Slurm's queue and will not start: "
    reasons = ("JobHeldUser", "DependencyNeverSatisfied", "PartitionConfig")
    assert said == [f"{start}{reason}" for reason in reasons]
    (held,) = [job["id"] for job in driver.jobs() if _why(driver, job["id"], "will not start: JobHeldUser")]
    driver.tenuto("kill", held)
    assert "CANCELLED" in driver.ended(process, 1)
    assert len(driver.ledger()) == 3, "none of them began"


def _why(driver: Driver, job: str, text: str) -> bool:
    """True if a text is in what `tenuto why` says; a cluster that is slow may not answer it in its time."""
    for _ in range(10):
        said = driver.tenuto("why", job, "--json")
        if "will not start" in said:
            return text in said
    raise AssertionError(said)


SLOW_SBATCH = 'until [ -e "$HERE/may-go" ]; do sleep 0.1; done; $REAL "$@"; touch "$HERE/answered"; exit 0'
"""An sbatch that hangs until a test says that it may go on."""


def cancelled_while_sbatch_hangs(driver: Driver) -> subprocess.Popen[str]:
    """Cancels the only job of a driver, which waits for a file `leave` then."""
    driver.shim("sbatch", SLOW_SBATCH)
    process = driver.start(driver.script(CANCEL))
    eventually(lambda: driver.calls("sbatch"), "the call of sbatch")
    (driver.directory / "cancel").touch()
    eventually((driver.directory / "took_s").exists, "the end of the job")
    assert not (driver.directory / "answered").exists()
    return process


def test_a_job_that_is_queued_after_its_driver_cancelled_it_and_ended_exits_with_75(driver: Driver) -> None:
    process = cancelled_while_sbatch_hangs(driver)
    (driver.directory / "leave").touch()
    assert "CANCELLED" in driver.ended(process, 1)
    (driver.directory / "may-go").touch()
    eventually(
        lambda: [state for _, state in driver.queue()] == ["FAILED"], "the end of what was queued late"
    )
    ((job, _),) = driver.queue()
    assert "ExitCode=75:0" in driver.slurm.run("scontrol", "show", "job", job)
    assert driver.ledger() == [], "it never began"


def test_a_job_that_is_queued_after_its_driver_cancelled_it_is_taken_out_of_the_queue(driver: Driver) -> None:
    driver.close_queue()
    process = cancelled_while_sbatch_hangs(driver)
    (driver.directory / "may-go").touch()
    eventually(lambda: [state for _, state in driver.queue()] == ["CANCELLED"], "the job to be taken out")
    ((job, _),) = driver.queue()
    assert any(call.split()[-1] == job for call in driver.calls("scancel"))
    (driver.directory / "leave").touch()
    assert "CANCELLED" in driver.ended(process, 1)
    assert driver.ledger() == [], "it never began"


def test_slurm_is_told_again_of_a_cancellation_that_it_did_not_hear(driver: Driver) -> None:
    driver.shim("scancel", f'if mkdir "$HERE/away" 2>/dev/null; then echo "{AWAY}" >&2; exit 1; fi')
    driver.close_queue()
    process = driver.start(driver.script(CANCEL))
    (job,) = eventually(lambda: driver.in_state("PENDING"), "a job that waits")
    eventually(lambda: len(driver.calls("squeue")) >= 2, "the driver to know its job")
    (driver.directory / "cancel").touch()
    eventually(lambda: driver.queue() == [(job, "CANCELLED")], "the job to be taken out of the queue")
    (driver.directory / "leave").touch()
    assert "CANCELLED" in driver.ended(process, 1)
    assert (driver.directory / "away").exists()
    assert driver.ledger() == [], "it never began"


@pytest.mark.prove("it measures time")
def test_a_job_is_cancelled_within_five_seconds_while_sbatch_hangs(driver: Driver) -> None:
    process = cancelled_while_sbatch_hangs(driver)
    assert float((driver.directory / "took_s").read_text()) < 5
    (driver.directory / "leave").touch()
    (driver.directory / "may-go").touch()
    driver.ended(process, 1)


def test_a_command_that_kills_a_job_while_sbatch_hangs_is_heard(driver: Driver) -> None:
    driver.shim("sbatch", SLOW_SBATCH)
    process = driver.start(driver.script(HOLD))
    eventually(lambda: driver.calls("sbatch"), "the call of sbatch")
    (job,) = driver.jobs()
    driver.tenuto("kill", job["id"])
    eventually(lambda: driver.jobs()[0]["reason"] == "cancelled", "the marker")
    (driver.directory / "may-go").touch()
    assert "CANCELLED" in driver.ended(process, 1)
    eventually((driver.directory / "answered").exists, "the late answer of sbatch")
    eventually(lambda: not driver.in_state("PENDING") + driver.running(), "the end of what was queued late")
    assert driver.ledger() == [], "what was queued late never begins"


@pytest.mark.prove("Slurm looks at time limits every half minute")
@pytest.mark.watchdog(300)
def test_a_limit_that_is_not_known_is_told_before_it_comes(driver: Driver) -> None:
    script = driver.script(
        """
with experiment(HERE / "ws", "x"):
    assert Long.C().submit().job.result() == 2
""",
        classes="""
class Long(ResumableTask):
    def execute(self):
        note(f"attempt {self.job_attempt}")
        while self.job_attempt == 1:
            if self.remaining_time() == 0:
                raise GracefulTimeout
            time.sleep(0.2)
        return self.job_attempt
""",
    )
    # Slurm tells it a minute before: of a limit of one minute perhaps before the task has begun.
    process = driver.start(script, TENUTO_SLURM__EXTRA="--time=2")
    _, said = process.communicate(timeout=240)
    assert process.returncode == 0, said
    assert driver.began() == ["attempt", "attempt"]


@pytest.mark.prove("Slurm looks at time limits every half minute")
@pytest.mark.watchdog(300)
def test_a_limit_that_comes_without_a_warning_is_a_timeout_by_the_cluster(driver: Driver) -> None:
    (driver.directory / "tenuto.toml").write_text(
        """[slurm]
setup = "trap '' USR1"
wrap = "sh -c '\\"$@\\"; exit $?' sh"
extra = "--time=1"
"""
    )
    process = driver.start(driver.script(HOLD))
    _, said = process.communicate(timeout=200)
    assert process.returncode == 1
    assert "TIMEOUT" in said
    assert "Slurm says TIMEOUT of job" in said
    assert len(driver.ledger()) == 1


@pytest.fixture
def tight_driver(require: Callable[[str], None], tmp_path: Path) -> Iterator[Driver]:
    """Drivers on a cluster that limits memory by control groups."""
    require("slurm")
    require("memory cgroups")
    if not os.path.isdir("/sys/fs/cgroup/memory"):
        pytest.skip("Slurm of Debian 12 limits memory by control groups of version 1 only; NOT tested here")
    tmp_path.chmod(0o755)
    cluster = PrivateSlurm(Shape(memory_groups=True))
    made = Driver(tmp_path, cluster)
    yield made
    made.close()
    cluster.close()


@pytest.mark.slow
def test_a_job_that_takes_too_much_memory_ends_for_memory(tight_driver: Driver) -> None:
    said = tight_driver.run(
        """
with experiment(HERE / "ws", "x"):
    for victim in ("payload", "runner"):
        job = Large.C(victim=victim).submit().job
        job.wait()
        note(f"{victim} {job.failure_status.name}")
""",
        code=1,
        classes="""
class Large(Task):
    victim: Param[str]
    def execute(self):
        if self.victim == "runner":  # the kernel takes the runner for the one to kill
            Path(f"/proc/{os.getppid()}/oom_score_adj").write_text("1000")
        self.kept = b"x" * (400 << 20)
""",
        TENUTO_SLURM__MEMORY_BYTES="100M",
    )
    assert tight_driver.ledger() == ["payload MEMORY", "runner MEMORY"], said


@pytest.mark.prove("a thousand jobs wait for three minutes")
@pytest.mark.watchdog(600)
def test_a_thousand_waiting_jobs_cost_next_to_nothing(driver: Driver) -> None:
    driver.close_queue()
    process = driver.start(
        driver.script("""
with experiment(HERE / "ws", "x"):
    for i in range(1100):
        if i == 100:
            while not (HERE / "more").exists():
                time.sleep(0.1)
        Note.C(name=f"n{i}").submit()
"""),
        TENUTO_SLURM__POLL_S="5",
        TENUTO_SLURM__MAX_JOBS="2000",
    )
    eventually(lambda: len(driver.queue()) >= 100, "a hundred pending jobs", 120)
    eventually(lambda: _is_quiet(process.pid), "a quiet driver")
    descriptors, memory = _descriptors(process.pid), _memory(process.pid)
    (driver.directory / "more").touch()
    eventually(lambda: len(driver.queue()) >= 1100, "a thousand more", 200)
    eventually(lambda: _is_quiet(process.pid), "a quiet driver")
    assert _descriptors(process.pid) - descriptors <= 20
    assert (_memory(process.pid) - memory) / 1000 <= 16 << 10
    before = len(driver.calls("squeue"))
    eventually(lambda: len(driver.calls("squeue")) >= before + 5, "five quiet answers", 200)
    began, used, asked = time.monotonic(), _cpu_s(process.pid), len(driver.calls("squeue"))
    eventually(lambda: time.monotonic() - began > 60, "a minute", 90)
    assert len(driver.calls("squeue")) - asked <= 2
    assert (_cpu_s(process.pid) - used) / (time.monotonic() - began) <= 0.005
    driver.kill(process)


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _is_quiet(pid: int) -> bool:
    """True if a process did next to nothing for two seconds."""
    used, end = _cpu_s(pid), time.monotonic() + 2
    eventually(lambda: time.monotonic() > end, "two seconds")
    return _cpu_s(pid) - used < 0.1


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


NOTES_ANSWERS = 'answer=$($REAL "$@") || exit; echo "$answer $*" >> "$HERE/taken"; echo "$answer"; exit 0'
"""An sbatch that notes the number of each job beside what was asked for."""


@pytest.mark.prove("a cluster of its own, and a hundred jobs")
@pytest.mark.watchdog(300)
def test_arrays_are_no_larger_than_the_cluster_allows(require: Callable[[str], None], tmp_path: Path) -> None:
    require("slurm")
    tmp_path.chmod(0o755)
    cluster = PrivateSlurm(Shape(extra=("MaxArraySize=21",)))
    driver = Driver(tmp_path, cluster)
    driver.shim("sbatch", NOTES_ANSWERS)
    try:
        process = driver.start(
            driver.script("""
with experiment(HERE / "ws", "x"):
    for i in range(100):
        Note.C(name=f"n{i:02}").submit()
"""),
            TENUTO_SLURM__MAX_JOBS="40",
        )
        process.communicate(timeout=240)
        assert process.returncode == 0
        assert driver.began() == [f"n{i:02}" for i in range(100)]
        counts = counts_in_queue(driver)
        assert max(map(array_size, driver.calls("sbatch"))) <= 21
        assert max(counts) == 40, "as many as are allowed, and never more"
        assert counts[-1] == 0
    finally:
        driver.close()
        cluster.close()


def counts_in_queue(driver: Driver) -> list[int]:
    """How many jobs Slurm had after each of their beginnings and ends, by the log of its controller."""
    lines = (driver.directory / "taken").read_text().splitlines()
    sizes = {line.split()[0]: array_size(line) for line in lines}
    taken = re.compile(r"_slurm_rpc_submit_batch_job: JobId=(\d+) ")
    over = re.compile(r"_job_complete: JobId=(\d+)\S* done")
    log = driver.slurm.directory / "log" / "slurmctld.log"
    eventually(lambda: len(over.findall(log.read_text())) >= sum(sizes.values()), "the end of all jobs")
    changes = []
    for line in log.read_text().splitlines():
        if (found := taken.search(line)) is not None:
            changes.append(sizes[found[1]])
        elif over.search(line):
            changes.append(-1)
    return list(itertools.accumulate(changes))


SLOW = """
class Slow(Task):
    def execute(self):
        note(f"{self.remaining_time():.1f}")
        time.sleep(4)
"""
GROWING = """
with experiment(HERE / "ws", "x"):
    Slow.C().submit(requires="duration=2s", retry="timeout: duration*5 to 1m")
"""


def test_a_job_that_ran_out_of_time_asks_slurm_for_more(driver: Driver) -> None:
    driver.ended(driver.start(driver.script(GROWING, classes=SLOW)), 0)
    *began, grown = map(float, driver.ledger())  # an interpreter that starts slowly has nothing left at first
    assert all(left <= 2 for left in began)
    assert 4 < grown <= 10
    (job,) = driver.jobs()
    assert "attempt 1: out of time after 2s; attempt 2: with 10s, done" in driver.tenuto("why", job["id"])
