"""Owns what the command line knows of jobs that no run asked for: those of searches and services."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenuto.launchers.instructions import Command
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.lifecycle.states import JobState
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.owners import PlainOwner
from tenuto.scheduler.scheduler import Scheduler
from tenuto.workspace.job_directory import read_launch
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.machine import this_machine

from .conftest import Shell

WAIT_S = 60.0


class CommandWork:
    """A `Work` that runs a command."""

    def __init__(self, *arguments: str) -> None:
        self.arguments = arguments
        self.environment: dict[str, str] = {}

    def params(self, layout: Layout, paths: JobPaths) -> bytes:
        return b"{}"

    def command(self) -> Command:
        return Command(self.arguments)


@pytest.fixture
def submit(shell: Shell) -> Iterator[Callable[..., Job]]:
    """Submits a job for an owner that is no run, to a scheduler in this process."""
    machine = this_machine()
    scheduler, launcher = Scheduler(machine), SpawnLauncher(machine, slots=2)
    layout = Layout(str(shell.workspace))

    def submit(owner: str, job_id: str, *arguments: str) -> Job:
        parts = {"layout": layout, "launcher": launcher, "clock": machine.clock}
        job = Job("work", job_id, work=CommandWork(*arguments), **parts)
        return scheduler.submit(job, PlainOwner(owner))

    yield submit
    for job in list(scheduler.jobs.values()):
        if not job.state.finished():
            scheduler.cancel(job, "the test is over")
            job.wait(WAIT_S)
    scheduler.close()
    launcher.close()


def test_jobs_of_a_search_are_neither_orphans_nor_strays(shell: Shell, submit: Callable[..., Job]) -> None:
    """`clean --orphans` deleted every candidate of a search, and `kill --unowned` ended them."""
    done = submit("search/packing", "0a", "true")
    assert done.wait(WAIT_S) is JobState.DONE
    runs = submit("service/local", "0b", "sleep", "1000000")
    shell.until(lambda: runs.state is JobState.RUNNING)
    assert shell.json("clean", "--orphans", "--yes") == []
    assert shell.json("kill", "--unowned", "--yes") == []
    assert shell.json("clean", "--unowned", "--yes") == []
    assert runs.state is JobState.RUNNING
    found = shell.json("status")
    counts = {one["group"]: one["counts"] for one in found["groups"]}
    assert (counts["search:packing"]["done"], counts["service:local"]["running"]) == (1, 1)
    assert [job["id"] for job in found["running"]] == ["0b"]
    text = shell.run("status").stdout
    assert "packing" in text
    assert "running now: 1" in text


def test_the_first_owner_of_a_job_stays_in_its_launch_record(
    shell: Shell, submit: Callable[..., Job]
) -> None:
    job = submit("search/packing", "0a", "false")
    assert job.wait(WAIT_S) is JobState.ERROR
    again = submit("search/other", "0a", "false")
    assert again.wait(WAIT_S) is JobState.ERROR
    launch = read_launch(this_machine().files, job.paths)
    assert launch is not None
    assert (launch.attempt, launch.owner) == (2, "search/packing")


def test_a_directory_with_other_jobs_is_no_workspace(shell: Shell) -> None:
    (shell.workspace / "jobs" / "request" / "0a" / "files").mkdir(parents=True)
    assert "is not a workspace" in shell.run("status", check=3).stderr
    Path(shell.workspace, "jobs", "request", "0a", ".tenuto").mkdir()
    shell.run("status")
