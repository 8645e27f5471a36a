"""Owns what a workspace takes (`du`), and runs compared (`diff`) and written out (`export`)."""

from __future__ import annotations

import json
import re
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from tenuto import Param, Task, experiment
from tenuto.cli.commands.export import command as export
from tenuto.experiments.workspace_view import WorkspaceView
from tests.experiments.scripts import run, tenuto

SCRIPT = """
from pathlib import Path
import numpy
from tenuto import Meta, Output, Param, Prepare, Task, experiment, options

class Download(Prepare):
    folder: Meta[Path] = Output("data")
    def execute(self):
        self.folder.mkdir(parents=True)
        (self.folder / "x").write_text("d" * 5000)

class Fit(Task):
    lr: Param[float]
    data: Param[Download]
    model: Meta[Path] = Output("model.pt")
    def execute(self):
        print("fitting <b>", self.lr)
        self.model.write_text("m" * 10000)
        return {"loss": self.lr * 2, "curve": numpy.arange(3)}

if __name__ == "__main__":
    given = options(lr=0.1)
    with experiment(Path(__file__).parent / "ws", "fits"):
        Fit.C(lr=given.lr, data=Download.C()).tag("name", "<i>one").submit()
        Fit.C(lr=5.0, data=Download.C()).tag("name", "two").submit()
"""


def test_runs_are_measured_compared_and_written_out(tmp_path: Path) -> None:
    script = tmp_path / "fit.py"
    script.write_text(SCRIPT)
    for lr in ("0.1", "0.2"):
        assert run(tenuto("run", "-c", f"lr={lr}", script), tmp_path).returncode == 0
    used = json.loads(run(tenuto("du", "--json", "-w", "ws"), tmp_path).stdout)
    assert used["tasks"]["fit.Fit"]["bytes"] > 20_000
    assert used["experiments"]["fits"]["bytes"] > 30_000
    assert used["prepared"]["fit.Download"]["bytes"] >= 5000  # with the record of what it was made of
    assert used["logs"]["bytes"] > 30
    assert used["total"]["bytes"] > 35_000
    shown = run(tenuto("du", "-w", "ws"), tmp_path)
    assert "fit.Download" in shown.stdout

    newer, older = (
        one["run"] for one in json.loads(run(tenuto("runs", "list", "--json", "-w", "ws"), tmp_path).stdout)
    )
    found = json.loads(run(tenuto("diff", "--json", older, newer, "-w", "ws"), tmp_path).stdout)
    assert (found["same"], found["only_first"], found["only_second"]) == (1, [], [])
    (pair,) = found["changed"]
    assert pair["parameters"] == [{"name": "lr", "first": 0.1, "second": 0.2}]
    assert pair["results"] == [{"name": "result.loss", "first": 0.2, "second": 0.4}]
    said = run(tenuto("diff", older, newer, "-w", "ws"), tmp_path).stdout
    assert "lr 0.1 -> 0.2" in said

    assert "run again" not in said
    again = run(tenuto("run", "--rerun", "lr=5.0", "-c", "lr=0.2", script), tmp_path)
    assert again.returncode == 0, again.stderr
    said = run(tenuto("diff", older, "fits", "-w", "ws"), tmp_path).stdout
    assert f"1 of them was run again after fits/{older}, whose results are not kept" in said

    for target in ("out", "out.zip"):
        assert run(tenuto("export", "fits", target, "-w", "ws"), tmp_path).returncode == 0
        again = run(tenuto("export", "fits", target, "-w", "ws"), tmp_path)
        assert again.returncode == 2, "what is there is not written over"
    page = (tmp_path / "out" / "index.html").read_text()
    assert "&lt;i&gt;one" in page
    assert "<i>" not in page
    for once in ("<h2>fit.Fit</h2>", "<th>result.loss</th>", "<th>lr</th>"):
        assert page.count(once) == 1, once
    (kept,) = re.findall("<details><summary>the same in all</summary>(.*?)</details>", page)
    assert "lr" not in re.findall("<dt>(.*?)</dt>", kept), "it varies"
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        names = sorted(archive.namelist())
        jobs = json.loads(archive.read("jobs.json"))
    assert names == sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.*"))
    assert {"run.json", "results.csv", "environment.json", "index.html"} <= set(names)
    packages = {f"provenance/{job['provenance']['packages']}.json" for job in jobs}
    assert packages <= set(names), "what the records name is there"
    assert ">out.txt</a>" in page
    assert sum(name.endswith("/out.txt") for name in names) == 2
    assert sum(name.endswith("/Fit.result-1.npy") for name in names) == 2, "a file of a result is a result"
    assert sorted(job["result"]["loss"] for job in jobs) == [0.4, 10.0]
    assert all(job["parameters"]["lr"] and job["marker"] for job in jobs)
    assert run(tenuto("export", "nothing", "-w", "ws"), tmp_path).returncode == 3

    def clean(*options: str) -> list[str]:
        done = run(tenuto("clean", "--json", "-w", "ws", *options), tmp_path)
        return [one["outcome"] for one in json.loads(done.stdout)]

    assert clean("--older", "1d") == clean("--larger", "1G") == clean("--cache") == []
    assert clean("--older", "0s", "--larger", "10K") == ["would_delete"] * 3
    assert clean("--prepared", "--larger", "1G") == clean("--prepared", "--older", "1d") == []
    assert clean("--prepared", "--older", "0s") == ["would_delete"]
    assert clean("--prepared", "--yes") == ["deleted"]
    assert "prepared" not in run(tenuto("du", "-w", "ws"), tmp_path).stdout
    assert run(tenuto("run", "-c", "lr=0.3", script), tmp_path).returncode == 0, "it is prepared again"
    for wrong in (["--older", "x"], ["--larger", "5q"], ["--prepared", "state=done"], []):
        assert run(tenuto("clean", "-w", "ws", *wrong), tmp_path).returncode == 2, wrong
    assert run(tenuto("jobs", "--sort", "bogus", "-w", "ws"), tmp_path).returncode == 3
    mistyped = run(tenuto("runn"), tmp_path)
    assert (mistyped.returncode, "Did you mean 'run'?" in mistyped.stderr) == (2, True)


class Once(Task):
    number: Param[int]

    def execute(self) -> dict[str, int]:
        return {"one": self.number, "two": 2}


def test_memory_of_an_export_does_not_grow_with_the_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with experiment(tmp_path / "ws", "once"):
        Once.C(number=1).submit()
    jobs_of = WorkspaceView.jobs

    def peak_of(times: int) -> int:
        monkeypatch.setattr(WorkspaceView, "jobs", lambda view, run: jobs_of(view, run) * times)
        target = str(tmp_path / str(times))
        tracemalloc.start()
        done = CliRunner().invoke(export, ["once", target, "-w", str(tmp_path / "ws")])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert done.exit_code == 0, done.output
        assert len(json.loads(Path(target, "jobs.json").read_bytes())) == times
        assert len(Path(target, "results.csv").read_text().splitlines()) == times + 1
        return peak

    peak_of(1)
    few, many = peak_of(10), peak_of(510)
    assert (many - few) / 500 < 3_000, "bytes a job; its dictionaries take ten times as much"
