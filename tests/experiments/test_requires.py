"""Owns what a requirement does on this machine: slots, limits, threads, GPUs, under both launchers."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tenuto import LauncherNotFound, Param, RequirementError, RunMode, Task, experiment, nodes
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.key import JobKey
from tenuto.jobs.retry import prepare
from tenuto.scheduler.scheduler import Scheduler
from tenuto.settings import Settings
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine

from .scripts import Place, python, run

BOTH = pytest.mark.parametrize("launcher", ["spawn", "warm"])
TASKS = """
import json, os, time
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent

class Wide(Task):
    __requires__ = "cpu(cores=2, mem=4G) & duration=1h"
    name: Param[str]
    def execute(self):
        with (HERE / "ledger").open("a") as ledger:
            ledger.write(f"enter {self.name}\\n")
        time.sleep(0.1)
        with (HERE / "ledger").open("a") as ledger:
            ledger.write(f"leave {self.name}\\n")
        variables = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CUDA_VISIBLE_DEVICES"]
        return {**{name: os.environ.get(name) for name in variables}, "time": self.remaining_time()}
"""


class Needy(Task):
    """Asks for two cores."""

    __requires__ = "cpu(cores=2)"
    name: Param[str] = "x"

    def execute(self) -> None:
        pass


def settings(**given: object) -> Settings:
    return Settings(**{"slots": 4, **given})  # type: ignore[arg-type]


@BOTH
def test_a_job_takes_as_many_slots_as_cores_and_its_limits_follow(place: Place, launcher: str) -> None:
    place.script(
        """
with experiment(HERE / "ws", "wide") as xp:
    xp.setenv("MKL_NUM_THREADS", "7")
    jobs = [Wide.C(name=name).submit().job for name in "abc"]
    narrow = Wide.C(name="narrow").submit(requires="cpu(cores=1)").job
    for job in jobs:
        seen = job.result()
        assert seen["OMP_NUM_THREADS"] == "2", seen
        assert seen["MKL_NUM_THREADS"] == "7", seen
        assert seen["OPENBLAS_NUM_THREADS"] == "5", seen
        assert 3000 < seen["time"] <= 3600, seen
        assert job.limits.memory_bytes == 4 << 30
    seen = narrow.result()
    assert seen["OMP_NUM_THREADS"] == "1" and seen["time"] is None, seen
""",
        tasks=TASKS,
    )
    done = run(
        python(place.directory / "script.py"),
        place.directory,
        TENUTO_LAUNCHER=launcher,
        TENUTO_SLOTS="3",
        OPENBLAS_NUM_THREADS="5",
    )
    assert done.returncode == 0, done.stderr
    ledger = [line for line in place.ledger() if "narrow" not in line]
    assert [line.split()[0] for line in ledger] == ["enter", "leave"] * 3  # of three slots each takes two


def test_a_job_that_needs_more_than_there_is_is_refused_at_submit(tmp_path: Path) -> None:
    with experiment(tmp_path, "x", settings=settings(slots=1)):
        with pytest.raises(LauncherNotFound, match=r"Needy: no launcher satisfies.*\n.*it offers 1"):
            Needy.C().submit()
        with pytest.raises(RequirementError, match="requires of Needy cannot be read:\ncpu"):
            Needy.C().submit(requires="cpu(core=1)")
        with pytest.raises(RequirementError, match="a requirement is a text"):
            Needy.C().submit(requires=3)
    assert not list(tmp_path.glob("jobs/*/*"))


class Several(Task):
    """Asks for two tasks of two cores."""

    __requires__ = "tasks=2 & cpu(cores=2)"

    def execute(self) -> list[object]:
        return [nodes().size, len(nodes().hosts), os.environ["OMP_NUM_THREADS"]]


def test_a_job_of_several_tasks_takes_slots_for_all_of_them(tmp_path: Path) -> None:
    with experiment(tmp_path, "x", settings=settings()):
        job = Several.C().submit().job
        with pytest.raises(LauncherNotFound, match="2 nodes are asked for, and it has 1"):
            Several.C().submit(requires="nodes=2")
    assert job.slots == 4
    assert job.result() == [2, 1, "2"]


def test_a_requirement_is_no_part_of_the_identity(tmp_path: Path) -> None:
    with experiment(tmp_path, "x", run_mode=RunMode.DRY_RUN, settings=settings()) as xp:
        Needy.C().submit()
        Needy.C().submit(requires="cpu(cores=1)")
        assert len(xp.jobs) == 1


def test_a_gpu_that_is_asked_for_is_held(place: Place) -> None:
    smi = place.directory / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(
        "#!/bin/sh\ncase $1 in *memory*) "
        "printf '0, 8192, NVIDIA V100\\n1, 24576, NVIDIA A10\\n2, 24576, NVIDIA A100-PCIE\\n';; "
        "*) printf '0, GPU-a\\n1, GPU-b\\n2, GPU-c\\n';; esac\n"
    )
    smi.chmod(smi.stat().st_mode | stat.S_IXUSR)
    place.script(
        """
with experiment(HERE / "ws", "gpus") as xp:
    jobs = [Wide.C(name=n).submit(requires="cuda(mem=20G)").job for n in "ab"]
    both = Wide.C(name="both").submit(requires="cuda*3").job
    typed = Wide.C(name="typed").submit(requires="cuda(type=a100)").job
    assert typed.result()["CUDA_VISIBLE_DEVICES"] == "GPU-c"
    assert {job.result()["CUDA_VISIBLE_DEVICES"] for job in jobs} <= {"GPU-b", "GPU-c"}
    assert both.result()["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b,GPU-c"
    try:
        Wide.C(name="four").submit(requires="cuda*4")
    except LauncherNotFound as error:
        assert "cuda*4 is asked for, and it has cuda(mem=8.0G, type=NVIDIA V100)" in str(error), error
    else:
        raise AssertionError
""",
        tasks=TASKS,
    )
    path = f"{smi.parent}:{os.environ['PATH']}"
    tokens = str(place.directory / "tokens")
    done = run(python(place.directory / "script.py"), place.directory, PATH=path, TENUTO_TOKENS_PATH=tokens)
    assert done.returncode == 0, done.stderr


class Broken(Needy):
    """Fails, whatever its cores."""

    def execute(self) -> None:
        raise ValueError("broken")


def test_a_retried_job_takes_as_many_slots_as_before(tmp_path: Path) -> None:
    with experiment(tmp_path, "x", settings=settings(), raise_on_failure=False):
        job = Broken.C().submit().job
    key = JobKey(job.task_id, job.job_id)
    (again,) = prepare(WorkspaceView(Layout(str(tmp_path)), this_machine()), [key], Scheduler.instance()).jobs
    assert (job.slots, again.slots) == (2, 2)
    assert again.work.environment["OMP_NUM_THREADS"] == "2"
