"""Owns `tenuto graph`, `tenuto files` and `tenuto run -m`."""

from __future__ import annotations

import subprocess
from typing import Any
from xml.etree import ElementTree

import pytest

from tenuto.jobs.drawing import graph_dot as dot
from tenuto.jobs.drawing import graph_lines as text_lines
from tenuto.jobs.drawing import graph_svg as svg
from tenuto.jobs.drawing import job_nodes, layers, task_nodes
from tenuto.jobs.row import Row
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobState

from .conftest import ESCAPES, TENUTO, Shell


def job(task: str, job_id: str, state: JobState, **more: Any) -> Row:
    return Row(f"experiments:{task}/{job_id}", "", Door.EXPERIMENTS, task, job_id, state, **more)


DIAMOND = [
    job("m.Data", "d", JobState.DONE),
    job("m.Train", "a", JobState.DONE, depends_on=("d",), tags={"lr": ESCAPES}),
    job("m.Train", "b", JobState.ERROR, depends_on=("d",), tags={"lr": "<2>"}),
    job("m.Compare", "c", JobState.WAITING, depends_on=("a", "b", "elsewhere")),
]
MODULE = """
import sys
from pathlib import Path
from tenuto import Param, Task, experiment

class Double(Task):
    x: Param[int]
    def execute(self):
        Path("out.txt").write_text("four")
        return 2 * self.x

if __name__ == "__main__":
    with experiment("ws", "doubles"):
        print(Double.C(x=int(sys.argv[1])).submit().result())
"""


def test_a_graph_is_a_tree_from_what_waits_for_nothing() -> None:
    lines = list(text_lines(job_nodes(DIAMOND)))
    assert lines[0] == "m.Data  d  done"
    assert lines[2] == "│  └─ m.Compare  c  waiting"
    assert lines[3:] == ["└─ m.Train  lr=<2>  error", "   └─ m.Compare  c  waiting"]
    assert "\x1b" not in "".join(lines)


def test_tasks_that_wait_for_each_other_are_all_drawn() -> None:
    jobs = [
        job("A", "a1", JobState.DONE, depends_on=()),
        job("B", "b1", JobState.DONE, depends_on=("a1",)),
        job("A", "a2", JobState.DONE, depends_on=("b1",)),
    ]
    nodes = task_nodes(jobs)
    assert [line.split()[1] for line in text_lines(nodes)][:2] == ["2", "B"]
    assert sorted(node.id for layer in layers(nodes) for node in layer) == ["A", "B"]
    assert len(list(svg(nodes))) > 2


@pytest.mark.slow
def test_a_long_chain_is_drawn() -> None:
    jobs = [job("T", str(n), JobState.DONE, depends_on=(str(n - 1),) if n else ()) for n in range(1500)]
    assert len(list(text_lines(job_nodes(jobs)))) == 1500
    assert len(layers(job_nodes(jobs))) == 1500


def test_dot_and_svg_have_every_job_and_edge() -> None:
    nodes = job_nodes(DIAMOND)
    written = "\n".join(dot(nodes))
    assert written.count("->") == 4
    assert written.count("[label=") == 4
    picture = ElementTree.fromstring("\n".join(svg(nodes)))
    named = [one.tag.rpartition("}")[2] for one in picture.iter()]
    assert named.count("rect") == 4
    assert named.count("path") == 4
    assert "\x1b" not in written


def test_the_graph_of_a_run(ended: Shell) -> None:
    assert "script.Data" in ended.run("graph").stdout
    assert len(ended.json("graph")) == 7
    tasks = {node["title"]: node for node in ended.json("graph", "--tasks")}
    assert tasks["script.Train"]["needs"] == ["script.Data"]
    assert tasks["script.Train"]["states"] == {"done": 2, "error": 1}
    assert ended.run("graph", "--svg").stdout.startswith("<svg")
    assert "exclude each other" in ended.run("graph", "--svg", "--dot", check=2).stderr


@pytest.mark.slow
def test_the_files_of_a_job_and_a_module(shell: Shell) -> None:
    package = shell.here / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "double.py").write_text(MODULE, encoding="utf-8")

    def tenuto(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*TENUTO, *arguments],
            cwd=shell.here,
            env=shell.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    done = tenuto("run", "-m", "pkg.double", "2")
    assert (done.returncode, done.stdout) == (0, "4\n"), done.stderr
    (job,) = shell.json("jobs")
    assert job["task"] == "pkg.double.Double"
    (file,) = shell.json("files", job["id"])["files"]
    assert file == {"path": "out.txt", "kind": "file", "bytes": 4, "made_by_task": True}
    assert "out.txt" in shell.run("files", job["id"]).stdout
    every = [one["path"] for one in shell.json("files", job["id"], "--all")["files"]]
    assert {"Double.done", "params.json", "out.txt"} <= set(every)
    missing = tenuto("run", "-m", "pkg.nope")
    assert missing.returncode == 3
    assert "there is no module 'pkg.nope'" in missing.stderr
    assert "Traceback" not in missing.stderr
    assert "1 reused" in tenuto("plan", "-m", "pkg.double", "2").stdout
