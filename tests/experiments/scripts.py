"""Scripts as a user would write them, run in processes of their own, with or without a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.parts.fork_server import fork_server

WAIT_S = 90.0

NAMES = """
    Choices, CommandTask, Config, Constant, DataPath, GracefulExperimentExit, GracefulTimeout, InputFile,
    JobFailureStatus, JobState, LightweightTask, Meta, Option, Param, PathGenerator, Prepare, ResumableTask,
    STDERR, STDOUT, Task, TaskCancelled, TenutoError, TransientMode, cache, copyconfig, deprecate, explain,
    field, former_identity, grid, help, identity, initializer, input_file, param_group, partial,
    pathgenerator, progress, sealed_set, setmeta, stop_tags, tag, tags, tagspath, tqdm
"""
"""What tasks are written with: nearly nothing has to be imported for these, and for all public names what
takes 0.3 CPU s. What runs a task imports only these; the main part of a script imports all.
"""
FEW, ALL = f"from tenuto import {' '.join(NAMES.split())}", "from tenuto import *"
TASKS = """
import os, sys, time
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent

def note(text):
    with (HERE / "ledger").open("a") as ledger:
        ledger.write(f"{text}\\n")

class Note(Task):
    name: Param[str]
    def execute(self):
        note(self.name)
        return self.name

class Hold(Task):
    name: Param[str]
    def execute(self):
        note(self.name)
        end = time.monotonic() + 60
        while not (HERE / "release").exists():
            if time.monotonic() > end:
                raise TimeoutError("nobody released this job")
            time.sleep(0.01)
        return self.name

class Fail(Task):
    name: Param[str]
    def execute(self):
        note(self.name)
        raise ValueError(f"{self.name} is bad")

class After(Task):
    before: Param[Note | Hold | Fail]
    def execute(self):
        note("after " + self.before.name)
"""


class Place:
    """A directory with a script, the ledger its jobs write, and the file that releases them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.workspace = directory / "ws"
        self.release = directory / "release"

    def script(self, body: str, name: str = "script.py", tasks: str = TASKS) -> Path:
        """Writes a script whose main part is `body`."""
        path = self.directory / name
        indented = "".join(f"    {line}\n" for line in [ALL, *body.strip().splitlines()])
        text = f"{tasks.replace(ALL, FEW)}\nif __name__ == '__main__':\n{indented}"
        path.write_text(text, encoding="utf-8")
        return path

    def ledger(self) -> list[str]:
        """What jobs noted, in the order they began."""
        path = self.directory / "ledger"
        return path.read_text().splitlines() if path.exists() else []

    def state(self, name: str) -> str:
        """The state of the newest run of an experiment."""
        import json

        runs = sorted(p for p in (self.workspace / "experiments" / name).iterdir() if p.is_dir())
        return str(json.loads((runs[-1] / "status.json").read_text())["state"])


def python(script: Path) -> list[str]:
    """The command that runs a script by itself."""
    return [sys.executable, str(script)]


def tenuto(*arguments: str | Path) -> list[str]:
    """A command of ours."""
    return [sys.executable, "-m", "tenuto", *map(str, arguments)]


def environment(**variables: str) -> dict[str, str]:
    """A small environment, in which settings of this machine count for nothing."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    kept |= {"HOME": "/nonexistent", "TERM": "xterm", "TENUTO_SLOTS": "2", "LANG": "C.UTF-8"}
    return kept | variables


def run(command: list[str], cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    server, given = fork_server(), environment(**variables)
    if server.can_run(command, cwd, given):
        return server.run(command, cwd, given, WAIT_S * 2)
    return subprocess.run(
        command,
        cwd=cwd,
        env=given,
        capture_output=True,
        text=True,
        timeout=WAIT_S * 2,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def eventually(condition: Callable[[], object], what: str) -> None:
    """Waits for a condition."""
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {WAIT_S:g} s in vain for {what}")
        time.sleep(0.01)


class Terminal:
    """A process at a terminal of its own, whose keyboard is ours."""

    def __init__(
        self, command: list[str], cwd: Path, size: tuple[int, int] = (24, 80), **variables: str
    ) -> None:
        self._master, slave = pty.openpty()
        self.resize(*size)
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment(**variables),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=_take_terminal,  # noqa: PLW1509  a terminal cannot be taken otherwise
        )
        os.close(slave)
        self._seen = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._master, 65536):
                self._seen += data

    @property
    def seen(self) -> str:
        """All that was written to the terminal so far."""
        return self._seen.decode(errors="replace")

    def press(self, keys: bytes) -> None:
        """Types."""
        os.write(self._master, keys)

    def resize(self, rows: int, columns: int) -> None:
        """Makes the window another size."""
        import struct

        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def hang_up(self) -> None:
        """Closes the window."""
        master, self._master = self._master, -1
        os.kill(self.process.pid, signal.SIGHUP)  # as the kernel does; a thread still reads the terminal
        os.close(master)

    def wait(self) -> int:
        """The exit code."""
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        """Ends what is left."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._master >= 0:
            self._reader.join(1)
            os.close(self._master)


def _take_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def terminal(command: list[str], cwd: Path, **options: str) -> Iterator[Terminal]:
    """A process at a terminal, ended in any case."""
    opened = Terminal(command, cwd, **options)
    try:
        yield opened
    finally:
        opened.close()
