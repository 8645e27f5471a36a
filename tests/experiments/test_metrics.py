"""Owns the metrics of real jobs: of a resumed one, of a thread, and as rows of an experiment."""

from __future__ import annotations

import json

from tenuto import Catalogue

from .scripts import Place, python, run

TASKS = """
import os, signal, sys, threading
from pathlib import Path
from tenuto import *
from tenuto import log_metrics

class Train(ResumableTask):
    lr: Param[float]
    def execute(self):
        log_metrics({"loss": self.lr})
        threading.Thread(target=log_metrics, args=({"in thread": 1}, 5)).start()
        if not Path("tried").exists():
            Path("tried").touch()
            raise GracefulTimeout("again")
        return self.lr

class Quiet(Task):
    def execute(self):
        return sorted(name for name in sys.modules if "metrics_log" in name or "workspace.points" in name)
"""


def test_a_resumed_job_goes_on_and_its_points_are_rows(place: Place) -> None:
    script = place.script(
        """
        import json
        with experiment("ws", "curves") as xp:
            jobs = [Train.C(lr=tag(lr)).submit(max_retries=1) for lr in (0.1, 0.2)]
            quiet = Quiet.C().submit()
        print(json.dumps([xp.metrics("loss"), xp.results(Quiet)]))
        """.replace("\n        ", "\n"),
        tasks=TASKS,
    )
    done = run(python(script), place.directory)
    assert done.returncode == 0, done.stderr
    rows, quiet = json.loads(done.stdout)
    assert [(row["lr"], row["step"], row["value"], row["attempt"]) for row in rows] == [
        (lr, step, lr, step + 1) for lr in (0.1, 0.2) for step in (0, 1)
    ]
    assert {row["metric"] for row in rows} == {"loss"}
    assert quiet[0]["result"] == []
    catalogue = Catalogue(place.workspace)
    found = catalogue.metrics("lr=0.2")
    assert {(row["metric"], row["step"]) for row in found} == {("loss", 0), ("loss", 1), ("in thread", 5)}
    assert {row["group"].partition("/")[0] for row in found} == {"curves"}
    assert len(catalogue.metrics(name="loss")) == 4
