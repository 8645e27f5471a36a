"""Scripts as people write them: run again, killed and run again, and the lines of the README over HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.behaviour.places import Place, eventually
from tests.service.servers import Process

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
ROBBED = """
import sys, time
from pathlib import Path
from tenuto import Meta, Param, Task, experiment

class Square(Task):
    x: Param[int]
    log: Meta[Path]

    def execute(self):
        with self.log.open("a") as log:
            log.write(f"{self.x}\\n")
        until = time.monotonic() + 60
        while not (self.log.parent / "go").exists() and time.monotonic() < until:
            time.sleep(0.01)
        return self.x**2

if __name__ == "__main__":
    with experiment("ws", "squares") as xp:
        for x in range(4):
            Square.C(x=x, log=Path("log").absolute()).submit()
    assert [row["result"] for row in xp.results()] == [0, 1, 4, 9]
"""


def test_the_script_of_the_readme_reuses_all_when_it_runs_again(place: Callable[[str], Place]) -> None:
    here = place("empty")
    (block,) = [text for text in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "Square" in text]
    (here.root / "squares.py").write_text(block)
    first, second = (here.tenuto("run", "--json", "squares.py") for _ in range(2))
    assert [first.returncode, second.returncode] == [0, 0], first.stderr + second.stderr
    counts = [
        [json.loads(done.stdout)[name] for name in ("jobs", "ran", "reused")] for done in (first, second)
    ]
    assert counts == [[4, 4, 0], [4, 0, 4]]


def test_a_script_that_was_killed_runs_nothing_twice(place: Callable[[str], Place]) -> None:
    here = place("empty")
    (here.root / "robbed.py").write_text(ROBBED)
    first = here.start("robbed.py")
    eventually(lambda: (here.root / "log").exists() and (here.root / "log").read_text())
    first.kill()
    first.communicate()
    (here.root / "go").touch()
    second = here.run("robbed.py")
    assert second.returncode == 0, second.stderr
    assert sorted((here.root / "log").read_text().split()) == ["0", "1", "2", "3"]


def test_the_lines_of_the_readme_upload_and_download(
    place: Callable[[str], Place], require: Callable[[str], None]
) -> None:
    require("curl")
    require("unzip")
    here = place("empty")
    here.root.chmod(0o711)
    (block,) = [text for text in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if "/upload" in text]
    server = Process("serve", "--with-node", "--port", "0", cwd=here.root, env=here.environment)
    try:
        (here.root / "by-hand").mkdir()
        script = block.replace("localhost:5000", server.url.removeprefix("http://"))
        done = subprocess.run(
            ["bash", "-ec", script], cwd=here.root / "by-hand", capture_output=True, text=True, check=False
        )
    finally:
        server.stop()
        server.close()
    assert done.returncode == 0, done.stderr + server.log
    assert done.stdout == "HELLO\n"


def test_a_search_that_was_killed_goes_on(place: Callable[[str], Place]) -> None:
    here = place("empty")
    first = here.start("-m", "tenuto", "evolve", "packing.py")
    eventually(lambda: candidates(here))
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    second = here.tenuto("evolve", "--json", "packing.py")
    assert second.returncode == 0, second.stderr
    (told,) = json.loads(second.stdout)
    assert (told["reason"], told["scheduled"], told["succeeded"], told["failed"]) == ("TOTAL", 8, 7, 1)
    attempts = [one["attempt"] for one in candidates(here)]
    assert len(attempts) == 8
    assert max(attempts) <= 2


def candidates(place: Place) -> list[dict[str, Any]]:
    done = place.tenuto("search", "export", "packing")
    return [json.loads(line) for line in done.stdout.splitlines()] if done.returncode == 0 else []
