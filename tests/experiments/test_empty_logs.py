"""Owns what scripts and dependents see of the logs of a job that printed nothing, and so keeps none."""

from __future__ import annotations

import json
from pathlib import Path

from tenuto import STDERR, STDOUT, CommandTask, Meta, Param, PathGenerator, Task, experiment, field

from .scripts import run, tenuto


class Silent(Task):
    x: Param[int] = 0

    def execute(self) -> int:
        return self.x


class Heard(CommandTask):
    """Its output is what it prints, which may be nothing."""

    printed: Meta[Path] = field(default_factory=PathGenerator(STDOUT))
    complained: Meta[Path] = field(default_factory=PathGenerator(STDERR))


class Reads(Task):
    heard: Param[Heard]

    def execute(self) -> list[str]:
        return [self.heard.printed.read_text(), self.heard.complained.read_text()]


def test_an_empty_log_of_a_done_job_is_made_again_for_a_script_that_asks(tmp_path: Path) -> None:
    for _ in ("run", "found done"):
        with experiment(tmp_path / "ws", "x"):
            task = Silent.C().submit()
            task.result()
        before = {path.name for path in task.jobpath.iterdir()}
        assert task.stdout().read_text() == task.stderr().read_text() == ""
        after = {path.name for path in task.jobpath.iterdir()}
        assert after - before <= {"Silent.out", "Silent.err"}
        for log in (task.stdout(), task.stderr()):
            assert log.stat().st_mode & 0o077 == 0
            log.unlink()
    with experiment(tmp_path / "ws", "x"):
        assert Silent.C().submit().result() == 0
    assert list(task.jobpath.glob("Silent.*t")) == [], "nobody asked for it"


def test_the_log_of_a_job_that_is_not_done_is_not_made(tmp_path: Path) -> None:
    with experiment(tmp_path / "ws", "x", run_mode="dry_run"):
        task = Silent.C().submit()
    assert not task.stdout().exists()


def test_a_log_that_is_an_output_stays_though_it_is_empty(tmp_path: Path) -> None:
    with experiment(tmp_path / "ws", "x"):
        heard = Heard.C(command=["true"]).submit()
        reads = Reads.C(heard=heard).submit()
    assert reads.result() == ["", ""]
    assert heard.printed.read_text() == heard.complained.read_text() == ""


def test_logs_says_of_a_done_job_that_it_printed_nothing(tmp_path: Path) -> None:
    with experiment(tmp_path / "ws", "x"):
        Silent.C().submit()
    said = run(tenuto("logs", "Silent", "-w", "ws"), tmp_path)
    assert (said.returncode, said.stdout) == (0, "")
    assert "it printed nothing; " in said.stderr
    for err in ((), ("--err",)):
        told = run(tenuto("logs", "Silent", "-w", "ws", "--json", *err), tmp_path)
        assert (json.loads(told.stdout)["text"], json.loads(told.stdout)["whole"]) == ("", True)
