"""Owns what a script writes while `tenuto run` draws its bars: all is seen, once, and no bar stays behind."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tests.parts.tmux import Tmux

WAIT_S = 60.0
SCRIPT = """
import logging, sys, time
from pathlib import Path
from tenuto import Param, Task, experiment

logging.basicConfig(level=logging.INFO, format="log %(message)s")
HERE = Path(__file__).parent

class Hold(Task):
    name: Param[int]
    def execute(self):
        (HERE / f"begun-{self.name}").touch()
        end = time.monotonic() + 60
        while not (HERE / "release").exists() and time.monotonic() < end:
            time.sleep(0.01)

if __name__ == "__main__":
    with experiment("ws", "x") as xp:
        for name in range(2):
            Hold.C(name=name).submit()
        while len(list(HERE.glob("begun-*"))) < 2:
            time.sleep(0.05)
        for step in range(4):
            time.sleep(0.25)  # the bars are drawn meanwhile
            logging.info("step %d", step)
            sys.stderr.write(f"\\rbar {step}")
            sys.stderr.flush()
        sys.stderr.write("\\rbar whole\\n")
        (HERE / "drawn").touch()
    logging.info("after")
"""


def test_a_script_that_logs_is_heard_and_leaves_no_ghosts(tmux: Tmux, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    run = shlex.join([sys.executable, "-m", "tenuto", "run", "script.py"])
    tmux.start(f"clear; HOME={tmp_path} TENUTO_SLOTS=2 {run}; echo E''ND")
    shown = tmux.until(lambda pane: (tmp_path / "drawn").exists() and "bar whole" in pane)
    assert [line for line in shown.splitlines() if line.startswith("log step")] == [
        f"log step {n}" for n in range(4)
    ]
    assert sum("ETA" in line for line in shown.splitlines()) == 1, shown
    (tmp_path / "release").touch()
    last = tmux.until("\nEND")
    assert [line for line in last.splitlines() if line.startswith(("log step", "log after", "bar"))] == [
        *(f"log step {n}" for n in range(4)),
        "bar whole",
        "log after",
    ], last
    assert "█" not in last, last
    assert "░" not in last, last
