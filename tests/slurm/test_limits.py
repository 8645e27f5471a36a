"""Owns limits and waits in Slurm: time, memory, a job that never starts, a queue of a thousand jobs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.parts.slurm import PrivateSlurm
from tests.parts.slurm_configuration import Shape
from tests.slurm.drivers import SAYING, Driver, eventually

HOLD = """
with experiment(HERE / "ws", "x"):
    Hold.C(name="h").submit()
"""


def test_a_held_job_says_that_it_will_not_start(driver: Driver) -> None:
    process = driver.start(driver.script(SAYING + HOLD), TENUTO_SLURM__EXTRA="--hold")
    eventually(lambda: driver.workspace.exists() and driver.calls("sbatch"), "the call of sbatch")
    eventually(lambda: [job for job, state in driver.queue() if state == "PENDING"], "a held job")
    (job,) = driver.jobs()
    why = json.loads(driver.tenuto("why", job["id"], "--json"))
    assert "will not start: JobHeldUser" in json.dumps(why)
    eventually(
        lambda: "said it waits in Slurm's queue and will not start: JobHeldUser" in driver.ledger(),
        "its driver",
    )
    driver.tenuto("kill", job["id"])
    assert "CANCELLED" in driver.ended(process, 1)
    assert all(line.startswith("said ") for line in driver.ledger())


def test_a_dependency_that_never_comes_and_a_job_that_is_too_large_say_so(driver: Driver) -> None:
    before = driver.slurm.run("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "false").strip()
    eventually(lambda: (before, "FAILED") in driver.queue(), "the end of what it depends on")
    driver.run(
        f"""
with experiment(HERE / "ws", "x"):
    never = SlurmLauncher(SlurmOptions(extra=("--dependency=afterok:{before}",)))
    jobs = [
        Hold.C(name="never").submit(launcher=never).job,
        Hold.C(name="large").submit(requires="cpu(cores=900)").job,
    ]
    end = time.monotonic() + 40
    while time.monotonic() < end:
        said = [job.standing.message or "" for job in jobs]
        if all("will not start" in one for one in said):
            break
        time.sleep(0.05)
    for job, message in zip(jobs, said):
        note(message)
        Scheduler.instance().cancel(job, "enough")
""",
        code=1,
    )
    start = "it waits in Slurm's queue and will not start: "
    assert driver.ledger() == [f"{start}DependencyNeverSatisfied", f"{start}PartitionConfig"]


SLOW_SBATCH = '$REAL "$@"; touch %s/answered; exit 0'


def test_a_job_is_cancelled_while_sbatch_hangs(driver: Driver) -> None:
    driver.shim("sbatch", f"sleep 8; {SLOW_SBATCH % driver.directory}")
    said = driver.run(
        """
with experiment(HERE / "ws", "x"):
    job = Hold.C(name="h").submit().job
    while not (HERE / "calls").exists() or "sbatch" not in (HERE / "calls").read_text():
        time.sleep(0.05)
    began = time.monotonic()
    Scheduler.instance().cancel(job, "enough")
    job.wait()
    assert time.monotonic() - began < 5
""",
        code=1,
    )
    assert "CANCELLED" in said
    assert driver.ledger() == []


def test_a_command_that_kills_a_job_while_sbatch_hangs_is_heard(driver: Driver) -> None:
    may_go = driver.directory / "may-go"
    driver.shim("sbatch", f"until [ -e {may_go} ]; do sleep 0.1; done; {SLOW_SBATCH % driver.directory}")
    process = driver.start(driver.script(HOLD))
    eventually(lambda: driver.calls("sbatch"), "the call of sbatch")
    (job,) = driver.jobs()
    driver.tenuto("kill", job["id"])
    assert driver.jobs()[0]["reason"] == "cancelled"
    may_go.touch()
    assert "CANCELLED" in driver.ended(process, 1)
    eventually((driver.directory / "answered").exists, "the late answer of sbatch")
    assert driver.ledger() == [], "what was queued late never begins"


@pytest.mark.prove("Slurm looks at time limits every half minute")
def test_a_limit_that_is_not_known_is_told_before_it_comes(driver: Driver) -> None:
    driver.run(
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
        TENUTO_SLURM__EXTRA="--time=1",
    )
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
    driver.slurm.run("scontrol", "update", "PartitionName=main", "State=DOWN")
    try:
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
        assert (_memory(process.pid) - memory) / 1000 <= 24 << 10
        before = len(driver.calls("squeue"))
        eventually(lambda: len(driver.calls("squeue")) >= before + 5, "five quiet answers", 200)
        began, used, asked = time.monotonic(), _cpu_s(process.pid), len(driver.calls("squeue"))
        eventually(lambda: time.monotonic() - began > 60, "a minute", 90)
        assert len(driver.calls("squeue")) - asked <= 2
        assert (_cpu_s(process.pid) - used) / (time.monotonic() - began) <= 0.005
        process.kill()
        process.communicate()
    finally:
        driver.slurm.run("scontrol", "update", "PartitionName=main", "State=UP")


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


@pytest.mark.slow
def test_arrays_are_no_larger_than_the_cluster_allows(require: Callable[[str], None], tmp_path: Path) -> None:
    require("slurm")
    tmp_path.chmod(0o755)
    cluster = PrivateSlurm(Shape(extra=("MaxArraySize=5",)))
    driver = Driver(tmp_path, cluster)
    try:
        driver.run("""
with experiment(HERE / "ws", "x"):
    for i in range(12):
        Note.C(name=f"n{i:02}").submit()
""")
        assert driver.began() == [f"n{i:02}" for i in range(12)]
        largest = max(int(call.split("--array=0-")[1].split()[0]) for call in driver.calls("sbatch"))
        assert largest == 4
    finally:
        driver.close()
        cluster.close()
