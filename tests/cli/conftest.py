"""Real workspaces for the command line: small experiments, run in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parts.fork_server import fork_server

from .calls import QUIET, call

ESCAPES = "\x1b[31mred\x1b[0m\x1b]0;owned\x07\x9b2J\r\u202egpj [b]x[/b] [@click=quit]"
"""What must never reach a terminal as it is."""

SCRIPT = """
import sys
from pathlib import Path
from tenuto import Meta, Param, Task
from tenuto.tasks.ports import current_job

ESCAPES = "\\x1b[31mred\\x1b[0m\\x1b]0;owned\\x07\\x9b2J\\r\\u202egpj [b]x[/b] [@click=quit]"

class Data(Task):
    n: Param[int]
    def execute(self):
        return self.n

class Train(Task):
    data: Param[Data]
    lr: Param[float]
    fix: Meta[Path]
    def execute(self):
        print(ESCAPES)
        print("trained")
        if self.lr > 0.5 and not self.fix.exists():
            raise ValueError("diverged " + ESCAPES)
        return {"loss": self.lr}

class Evaluate(Task):
    model: Param[Train]
    def execute(self):
        return 1

class Hold(Task):
    name: Param[str]
    release: Meta[Path]
    def execute(self):
        import time
        print("began", flush=True)
        current_job.get().progress(0.25, 0, "a quarter " + ESCAPES)
        deadline = time.monotonic() + 60
        while not self.release.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        print("released", flush=True)

class After(Task):
    before: Param[Hold]
    def execute(self):
        pass

if __name__ == "__main__":
    from tenuto import experiment
    workspace, what, *numbers = sys.argv[1:]
    here = Path(workspace).parent
    with experiment(workspace, what) as xp:
        if what == "hold":
            held = Hold.C(name="held", release=here / "release").submit()
            After.C(before=held).submit()
        else:
            data = Data.C(n=int(numbers[0])).submit()
            for lr in map(float, numbers[1:]):
                model = Train.C(data=data, lr=lr, fix=here / "fix").tag("lr", lr).tag("evil", ESCAPES)
                Evaluate.C(model=model.submit()).submit()
"""

TENUTO = [sys.executable, "-c", "from tenuto.cli import main; main()"]


class Shell:
    """A directory with a script, a workspace, and the command line."""

    def __init__(self, here: Path) -> None:
        self.here = here
        self.workspace = here / "ws"
        self.script = here / "script.py"
        self.script.write_text(SCRIPT, encoding="utf-8")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")},
            "XDG_CONFIG_HOME": str(here / "config"),
            "TENUTO_SLOTS": "2",
        }
        self._open: list[subprocess.Popen[bytes]] = []

    def experiment(self, name: str, *numbers: object) -> int:
        """Runs an experiment to its end."""
        command = self._experiment(name, *numbers)
        return fork_server().run(command, self.here, self.environment, 120).returncode

    def _experiment(self, name: str, *numbers: object) -> list[str]:
        return [sys.executable, str(self.script), str(self.workspace), name, *map(str, numbers)]

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Starts a process that the fixture ends."""
        process = subprocess.Popen(
            command, env=self.environment, cwd=self.here, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._open.append(process)
        return process

    def hold(self) -> subprocess.Popen[bytes]:
        """Starts an experiment whose first job runs until it is released, and waits until it does."""
        process = self.start(*self._experiment("hold"))
        self.until(lambda: any(job["progress"] for job in self.json("jobs", "state=running")), allow=(0, 3))
        return process

    def release(self) -> None:
        """Lets the held job end."""
        (self.here / "release").touch()

    def until(
        self, condition: Callable[[], bool], *, allow: tuple[int, ...] = (0,), timeout_s: float = 30
    ) -> None:
        """Waits for a condition."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                if condition():
                    return
            except AssertionError:
                if allow == (0,):
                    raise
            assert time.monotonic() < deadline, "this never came true"
            time.sleep(0.05)

    def run(self, *arguments: str, check: int | None = 0, **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs a command on the workspace, without a terminal."""
        environment = {**self.environment, **options.pop("environment", {})}
        given = [*arguments, "-w", str(self.workspace)]
        if arguments[0] in QUIET and not options:
            found = call(given, self.here, environment)
        else:
            found = subprocess.run(
                [*TENUTO, *given],
                env=environment,
                cwd=self.here,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
                **options,
            )
        if check is not None:
            assert found.returncode == check, found.stdout + found.stderr
        return found

    def json(self, *arguments: str, check: int | None = 0) -> Any:
        """What a command prints for programs."""
        return json.loads(self.run(*arguments, "--json", check=check).stdout)

    def id(self, *filter_: str) -> str:
        """The id of the one job that a filter matches."""
        (job,) = self.json("jobs", "--all", *filter_)
        found: str = job["id"]
        return found

    def close(self) -> None:
        self.release()
        for process in self._open:
            process.kill()
            process.communicate()
        if (self.workspace / "jobs").is_dir():
            self.run("kill", "--unowned", "--yes", check=None)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="session")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A workspace in which everything has ended, some of it badly. Only to be looked at."""
    made = Shell(tmp_path_factory.mktemp("ended"))
    assert made.experiment("sweep", 1, 0.1) == 0
    assert made.experiment("sweep", 1, 0.1, 0.2, 0.9) == 1
    return made
