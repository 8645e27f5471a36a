"""Owns scripts of a researcher whose jobs a cluster runs: the same script on each, and whatever dies."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clusters.sites import Scripts, Site
from tests.parts.sge import PrivateGridEngine
from tests.slurm.drivers import eventually

WAIT_S = 90.0
MANY = """
class Fails(Task):
    def execute(self):
        note("failed")
        raise ValueError("as it is meant to")

if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        for number in range(JOBS):
            Note.C(name=f"n{number}").submit()
        Fails.C().submit()
"""
HOLD = """
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        for number in range(2):
            Hold.C(name=f"h{number}").submit()
"""


JOB_OF = {"sge": r"job \d+\.\d+ of sge ran it"}
"""How a system itself writes the id of a task, if it is not as Slurm does."""


@pytest.fixture
def scripts(tmp_path: Path, site: Site) -> Iterator[Scripts]:
    tmp_path.chmod(0o755)
    made = Scripts(tmp_path, site)
    yield made
    made.close()


ALIKE = pytest.mark.prove("one dialect is enough for each change; one script runs over all")
EACH = ["sge", *(pytest.param(name, marks=ALIKE) for name in ("generic", "ssh", "pbs"))]


def names(scripts: Scripts) -> list[str]:
    return sorted(line.split()[0] for line in scripts.ledger())


def test_one_script_runs_on_every_cluster_and_each_job_once(scripts: Scripts) -> None:
    body = MANY.replace("JOBS", "5")
    assert "as it is meant to" in scripts.ended(scripts.start(body), 1)
    assert names(scripts) == ["failed", *(f"n{number}" for number in range(5))]
    states = sorted(job["state"] for job in scripts.jobs())
    assert states == ["done"] * 5 + ["error"]
    done = next(job for job in scripts.jobs() if job["state"] == "done")
    why = scripts.tenuto("why", done["id"], "-w", str(scripts.workspace))
    assert re.search(JOB_OF.get(scripts.name, rf"job \S+ of {scripts.name} ran it"), why)


@pytest.mark.parametrize("site", EACH, indirect=True)
def test_a_driver_that_is_killed_leaves_jobs_that_the_next_one_finds(scripts: Scripts) -> None:
    for _ in range(2):
        process = scripts.start(HOLD)
        eventually(lambda: len(scripts.ledger()) == 2, "two running jobs")
        scripts.kill(process)
    process = scripts.start(HOLD)
    (scripts.directory / "release").touch()
    scripts.ended(process, 0)
    assert names(scripts) == ["h0", "h1"]


@pytest.mark.parametrize("site", EACH, indirect=True)
def test_a_running_job_is_killed_from_the_command_line(scripts: Scripts) -> None:
    process = scripts.start(HOLD)
    eventually(lambda: len(scripts.ledger()) == 2, "two running jobs")
    scripts.kill(process)
    (first, _) = scripts.jobs()
    scripts.tenuto("kill", first["id"], "-w", str(scripts.workspace))
    found = {job["id"]: (job["state"], job["reason"]) for job in scripts.jobs()}
    assert found.pop(first["id"]) == ("error", "cancelled")
    assert [state for state, _ in found.values()] == ["running"]


@pytest.mark.parametrize("site", ["sge"], indirect=True)
def test_the_commands_know_the_cluster(scripts: Scripts) -> None:
    rows = {row["name"]: row for row in json.loads(scripts.tenuto("launchers", "list", "--json"))}
    assert rows["sge"]["usable"]
    assert rows["sge"]["default"]
    checks = {row["name"]: row for row in json.loads(scripts.tenuto("doctor", "--json"))["checks"]}
    assert re.fullmatch(r"Grid Engine, by qsub, \d+ jobs, answered in \d+ ms", checks["sge"]["found"])
    probe = scripts.tenuto("launchers", "test", "-w", str(scripts.directory), "--wait", "60", "--json")
    assert not [row for row in json.loads(probe) if row["is_fatal"]]


@pytest.mark.parametrize("site", ["sge"], indirect=True)
def test_a_task_that_is_deleted_by_hand_is_cancelled(
    scripts: Scripts, grid_engine: PrivateGridEngine
) -> None:
    process = scripts.start(HOLD)
    eventually(lambda: len(scripts.ledger()) == 2, "two running jobs")
    claims = [json.loads(path.read_text()) for path in scripts.workspace.glob("jobs/*/*/.tenuto/claim-*")]
    grid_engine.run("qdel", claims[0]["job"].replace("_", "."))
    eventually(lambda: "error" in [job["state"] for job in scripts.jobs()], "the end of one")
    (scripts.directory / "release").touch()
    scripts.ended(process, 1)
    assert sorted((job["state"], job["reason"]) for job in scripts.jobs()) == [
        ("done", None),
        ("error", "cancelled"),
    ]
    (told,) = [job["message"] for job in scripts.jobs() if job["state"] == "error"]
    assert told.startswith("Grid Engine says failed 100 of job ")


@pytest.mark.parametrize("site", ["sge"], indirect=True)
def test_a_master_that_is_killed_loses_no_job(scripts: Scripts, grid_engine: PrivateGridEngine) -> None:
    process = scripts.start(HOLD)
    eventually(lambda: len(scripts.ledger()) == 2, "two running jobs")
    grid_engine.crash("qmaster")
    (scripts.directory / "release").touch()
    try:
        scripts.ended(process, 0)
    finally:
        grid_engine.again("qmaster")
    assert names(scripts) == ["h0", "h1"]


STARVES = """
GROUP = "/sys/fs/cgroup/memory/tenuto-test-" + HERE.name

class Starves(Task):
    __requires__ = "cpu(mem=100M)"
    __retry__ = "memory: mem*2 to 300M"
    def execute(self):
        note(f"attempt {self.job_attempt}")
        if self.job_attempt > 1:
            return "enough"
        os.makedirs(GROUP)
        Path(GROUP, "memory.limit_in_bytes").write_text("80M")
        Path(f"/proc/{os.getppid()}/oom_score_adj").write_text("1000")  # the kernel kills the runner first
        shell = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
        for pid in (shell, os.getppid(), os.getpid()):
            Path(GROUP, "cgroup.procs").write_text(str(pid))
        self.kept = b"x" * (90 << 20)
        time.sleep(60)

if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        starved = Starves.C().submit()
    assert starved.result() == "enough"
"""


@pytest.mark.parametrize("site", ["sge", "ssh"], indirect=True)
def test_a_runner_that_is_killed_for_want_of_memory_grows(
    scripts: Scripts, require: Callable[[str], None]
) -> None:
    require("memory cgroups")
    if not os.path.isdir("/sys/fs/cgroup/memory"):
        pytest.skip("the control group of the test is one of version 1; NOT tested here")
    try:
        scripts.ended(scripts.start(STARVES), 0)
    finally:
        Path(f"/sys/fs/cgroup/memory/tenuto-test-{scripts.directory.name}").rmdir()
    (launch,) = scripts.workspace.glob("jobs/*/*/.tenuto/launch.json")
    found = json.loads(launch.read_text())
    assert [(one["reason"], one["memory_bytes"] >> 20) for one in found["earlier"]] == [("MEMORY", 100)]
    assert found["instructions"]["limits"]["memory_bytes"] == 200 << 20
    assert scripts.ledger() == ["attempt 1", "attempt 2"]


ANOTHER = """
class Kills(Task):
    __retry__ = "memory: mem*2 to 300M; lost: 0"
    def execute(self):
        note("began")
        group = "/sys/fs/cgroup/memory/tenuto-test-" + HERE.name
        os.makedirs(group)
        Path(group, "memory.limit_in_bytes").write_text("30M")
        starve = f"echo $$ >{group}/cgroup.procs; exec {sys.executable} -c 'bytearray(90 << 20)'"
        os.system(starve)
        os.rmdir(group)
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)

if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        Kills.C().submit(requires="cpu(mem=100M)")
"""


@pytest.mark.parametrize("site", ["sge", "ssh"], indirect=True)
def test_a_runner_that_is_killed_while_another_job_starves_is_lost_and_does_not_grow(
    scripts: Scripts, require: Callable[[str], None]
) -> None:
    require("memory cgroups")
    if not os.path.isdir("/sys/fs/cgroup/memory"):
        pytest.skip("the control group of the test is one of version 1; NOT tested here")
    before = Path("/proc/vmstat").read_text().partition("oom_kill ")[2].split()[0]
    scripts.ended(scripts.start(ANOTHER), 1)
    assert Path("/proc/vmstat").read_text().partition("oom_kill ")[2].split()[0] != before
    assert [(job["state"], job["reason"]) for job in scripts.jobs()] == [("error", "lost")]
    assert scripts.ledger() == ["began"]


LARGE = """
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        Note.C(name="fits").submit(requires="cpu(mem=100M)")
        Note.C(name="both").submit(requires="duration=1h & cpu(mem=100M, cores=2)")
        Note.C(name="large").submit(requires="cpu(mem=900T)")
"""


@pytest.mark.parametrize("site", ["sge"], indirect=True)
def test_memory_can_be_asked_of_grid_engine_and_what_no_host_has_is_refused(scripts: Scripts) -> None:
    said = scripts.ended(scripts.start(LARGE), 1)
    assert "900T of memory are asked for, and no host has more than" in said
    assert names(scripts) == ["both", "fits"]


GROWS = """
class Hungry(Task):
    __requires__ = "cpu(mem=100M)"
    __retry__ = "memory: mem*2 to 800M"
    def execute(self):
        note(f"attempt {self.job_attempt}")
        self.kept = bytearray(600 << 20)

if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        Hungry.C().submit()
"""


@pytest.mark.parametrize("site", ["sge"], indirect=True)
def test_a_need_grows_to_what_the_largest_partition_has_and_no_further(scripts: Scripts) -> None:
    settings = scripts.directory / "config" / "tenuto" / "tenuto.toml"
    settings.write_text(settings.read_text() + '[clusters.sge.partitions."main.q"]\nmemory = "150M"\n')
    said = scripts.ended(scripts.start(GROWS), 1)
    assert "mem*2 to 800M is limited to 150M, the most that a partition of sge has" in said
    (launch,) = scripts.workspace.glob("jobs/*/*/.tenuto/launch.json")
    found = json.loads(launch.read_text())
    assert [one["memory_bytes"] >> 20 for one in found["earlier"]] == [100]
    assert found["instructions"]["limits"]["memory_bytes"] == 150 << 20
    assert [(job["state"], job["reason"]) for job in scripts.jobs()] == [("error", "memory")]
    assert scripts.ledger() == ["attempt 1", "attempt 2"]


SEARCH = """
from tenuto.search import Evolution, RandomSearch, Real

class Candidate(Task):
    __requires__ = "cpu(mem=100M) & duration=1m"
    __retry__ = "failed: 1"
    x: Param[float]
    def execute(self):
        note(f"attempt {self.job_attempt} {os.environ.get('JOB_ID')}")
        if self.job_attempt == 1:
            raise ValueError("as it is meant to")
        return self.x

if __name__ == "__main__":
    given = {"space": {"x": Real(0, 1)}, "sampler": RandomSearch(), "max_total_jobs": 2}
    found = Evolution("s", Candidate.C(), workdir=HERE / "ws", **given)
    assert found.run(slots=2).succeeded == 2
"""


@pytest.mark.parametrize("site", ["sge"], indirect=True)
def test_candidates_of_a_search_run_on_the_cluster_with_what_their_task_asks_for(scripts: Scripts) -> None:
    scripts.ended(scripts.start(SEARCH), 0)
    words = [line.split() for line in scripts.ledger()]
    assert [attempt for _, attempt, _ in words] == ["1", "1", "2", "2"]
    assert all(job.isdecimal() for *_, job in words)
    scripts_of = [path.read_text() for path in scripts.workspace.glob("jobs/*/*/.tenuto/launch.json")]
    limits = [json.loads(text)["instructions"]["limits"] for text in scripts_of]
    assert [(one["memory_bytes"], one["walltime_s"]) for one in limits] == [(100 << 20, 60.0)] * 2
