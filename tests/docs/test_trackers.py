"""Owns that the recipes for trackers work where a package is installed: a resumed job goes on in its run."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tenuto import Catalogue

PAGE = Path(__file__).parents[2] / "docs" / "progress.md"
BLOCKS = re.findall(
    r"<!-- no-run: needs (\w+); .*?-->\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL
)
MAIN = """
if __name__ == "__main__":
    from tenuto import experiment

    with experiment("ws", "tracked", raise_on_failure=False):
        Tracked.C(lr=0.5).submit()
"""
FAILS = """
write_text = Path.write_text
def failing(self, text, *more, **named):
    write_text(self, text, *more, **named)
    if self.name == "epoch" and text == "2" and not Path("failed").exists():
        write_text(Path("failed"), "once")
        raise RuntimeError("the first attempt ends here")
Path.write_text = failing
"""


@pytest.mark.slow
@pytest.mark.parametrize(("package", "block"), BLOCKS, ids=[name for name, _ in BLOCKS])
def test_a_resumed_job_goes_on_in_the_run_of_its_tracker(package: str, block: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    (tmp_path / "script.py").write_text(block + FAILS + MAIN)
    offline = {"WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    for _ in range(2):
        subprocess.run(
            [sys.executable, "script.py"],
            cwd=tmp_path,
            env={**os.environ, **offline},
            timeout=110,
            check=False,
        )
    with Catalogue(tmp_path / "ws") as catalogue:
        (row,) = catalogue.rows()
        points = catalogue.metrics(name="loss")
    job = tmp_path / "ws" / "jobs" / row.task / row.id
    assert row.state.name == "DONE", (job / "Tracked.err").read_text()
    assert (row.attempt, [point["step"] for point in points]) == (2, [0, 1, 2, 3])
    if package == "wandb":
        assert {path.name.rpartition("-")[2] for path in job.glob("wandb/offline-run-*")} == {row.id}
    if package == "tensorboardX":
        assert len(list(job.glob("tensorboard/events*"))) == 2


def test_there_is_a_recipe_for_each_tracker() -> None:
    assert [name for name, _ in BLOCKS] == ["wandb", "mlflow", "tensorboardX"]
