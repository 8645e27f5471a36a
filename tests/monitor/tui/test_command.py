"""`tenuto top` as a command: what it needs of a terminal, and how it ends; in real tmux where it must be."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.monitor.tui.conftest import WAIT_S

TENUTO = [sys.executable, "-m", "tenuto"]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace in which nothing was run yet."""
    for room in ("jobs", "experiments"):
        (tmp_path / "ws" / room).mkdir(parents=True)
    return tmp_path / "ws"


class Tmux:
    """A server of tmux of its own, with one window."""

    def __init__(self, folder: Path) -> None:
        self._server = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]

    def __call__(self, *command: str) -> str:
        done = subprocess.run(
            [*self._server, *command], capture_output=True, text=True, timeout=WAIT_S, check=True
        )
        return done.stdout

    def start(self, command: str, size: tuple[int, int]) -> None:
        width, height = size
        self(
            "new-session", "-d", "-s", "it", "-x", str(width), "-y", str(height), "env -u COLUMNS -u LINES sh"
        )
        self("set-option", "-g", "escape-time", "0")
        self("send-keys", "-t", "it", command, "Enter")

    def until(self, text: str) -> str:
        deadline = time.monotonic() + WAIT_S
        while text not in (shown := self("capture-pane", "-p", "-e", "-t", "it")):
            assert time.monotonic() < deadline, f"never seen: {text}\n{shown}"
            time.sleep(0.05)
        return shown


@pytest.fixture
def tmux(require: Callable[[str], None], tmp_path: Path) -> Iterator[Tmux]:
    require("tmux")
    made = Tmux(tmp_path)
    yield made
    subprocess.run([*made._server, "kill-server"], capture_output=True, timeout=WAIT_S, check=False)


def test_without_a_terminal_it_points_to_status_and_exits_with_2(workspace: Path) -> None:
    done = subprocess.run(
        [*TENUTO, "top", "-w", str(workspace)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "tenuto status" in done.stderr


@pytest.mark.slow
def test_q_ends_with_0_and_no_color_writes_no_colour(tmux: Tmux, workspace: Path) -> None:
    top = f"{sys.executable} -m tenuto top -w {workspace}"
    tmux.start(f"NO_COLOR=1 {top}; echo ended with $?", (80, 24))
    shown = tmux.until("no run, service or search is known here yet")
    colours = [f"\x1b[{number}m" for number in (*range(30, 38), *range(40, 48), *range(90, 98))]
    assert not [colour for colour in colours if colour in shown]
    assert "38;" not in shown
    tmux("resize-window", "-t", "it", "-x", "20", "-y", "5")
    tmux("send-keys", "-t", "it", "2")
    tmux.until("jobs")
    tmux("resize-window", "-t", "it", "-x", "200", "-y", "50")
    tmux("send-keys", "-t", "it", "?")
    tmux.until("quit")
    tmux("send-keys", "-t", "it", "q")
    tmux.until("ended with 0")


def test_without_the_extra_one_sentence_says_what_to_install(workspace: Path) -> None:
    script = "import sys; sys.modules['textual'] = None\nfrom tenuto.cli import main\nmain()"
    master, slave = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-c", script, "top", "-w", str(workspace)], stdin=slave, stdout=slave, stderr=slave
    )
    assert done.wait(60) == 2
    assert b"pip install 'tenuto[tui]'" in os.read(master, 65536)
    os.close(master)
    os.close(slave)
