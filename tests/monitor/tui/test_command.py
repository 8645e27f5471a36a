"""`tenuto top` as a command: what it needs of a terminal, and how it ends; in real tmux where it must be."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
import unicodedata
from pathlib import Path

import pytest

from tenuto.jobs.text import safe
from tests.monitor.hostile import HOSTILE
from tests.monitor.tui.conftest import WAIT_S
from tests.parts.tmux import Tmux

ROOT = Path(__file__).parents[3]
TENUTO = [sys.executable, "-m", "tenuto"]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace in which nothing was run yet."""
    for room in ("jobs", "experiments"):
        (tmp_path / "ws" / room).mkdir(parents=True)
    return tmp_path / "ws"


def test_without_a_terminal_it_points_to_status_and_exits_with_2(workspace: Path) -> None:
    done = subprocess.run(
        [*TENUTO, "top", "-w", str(workspace)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "tenuto status" in done.stderr


def test_a_dumb_terminal_is_pointed_to_status(workspace: Path) -> None:
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "dumb"}
    command = [*TENUTO, "top", "-w", str(workspace)]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment) as done:
        assert done.wait(60) == 2
    assert b"tenuto status" in os.read(master, 65536)
    os.close(master)
    os.close(slave)


@pytest.mark.slow
def test_q_ends_with_0_and_no_color_writes_no_colour(tmux: Tmux, workspace: Path) -> None:
    top = f"{sys.executable} -m tenuto top -w {workspace}"
    tmux.start(f"NO_COLOR=1 {top}; echo ended with $?", (80, 24))
    shown = tmux.until("no run, service or search is known here yet", "-e")
    colours = [f"\x1b[{number}m" for number in (*range(30, 38), *range(40, 48), *range(90, 98))]
    assert not [colour for colour in colours if colour in shown]
    assert "38;" not in shown
    tmux("resize-window", "-t", "it", "-x", "20", "-y", "5")
    tmux.press("2")
    tmux.until("jobs")
    tmux("resize-window", "-t", "it", "-x", "200", "-y", "50")
    tmux.press("?")
    tmux.until("quit")
    tmux.press("q")
    tmux.until("ended with 0")


def test_without_the_extra_one_sentence_says_what_to_install(workspace: Path) -> None:
    script = "import sys; sys.modules['textual'] = None\nfrom tenuto.cli import main\nmain()"
    master, slave = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-c", script, "top", "-w", str(workspace)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm"},
    )
    assert done.wait(60) == 2
    assert b"pip install 'tenuto[tui]'" in os.read(master, 65536)
    os.close(master)
    os.close(slave)


_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?<>=$]*[A-Za-z]|[=>78]|\]22;[a-z]*(?:\x1b\\|\x07))")
"""What Textual writes: control sequences, and the shape of the pointer."""
_HOSTILE = """
from tenuto.monitor.provider import LocalProvider
from tenuto.monitor.tui.app import Top
from tests.monitor.hostile import GROUP, hostile_source
provider = LocalProvider([hostile_source()], workspace="/ws")
provider.wait_until_loaded(30)
Top(provider, group=GROUP).run(mouse=False)
provider.close()
"""


class Pty:
    """A process on a terminal of its own; all that it writes is kept."""

    def __init__(self, script: str, size: tuple[int, int]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", script], stdin=slave, stdout=slave, stderr=slave, env=environment
        )
        os.close(slave)
        self.written = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the other end was closed
            while data := os.read(self._master, 65_536):
                self.written += data

    def press(self, key: str, shows: str) -> None:
        """A key, and then a text that was not written before it."""
        begin = len(self.written)
        os.write(self._master, key.encode())
        self.until(shows, begin)

    def until(self, text: str, begin: int = 0) -> None:
        deadline = time.monotonic() + WAIT_S
        while text.encode() not in self.written[begin:]:
            assert time.monotonic() < deadline, f"never seen: {text}\n{self.written[begin:]!r}"
            assert self.process.poll() is None, self.written
            time.sleep(0.02)

    def end(self) -> str:
        """Press q; the process ends with 0."""
        os.write(self._master, b"q")
        assert self.process.wait(WAIT_S) == 0
        self._reader.join(WAIT_S)
        os.close(self._master)
        return self.written.decode("utf-8", "replace")


@pytest.mark.slow
def test_16_hostile_strings_write_no_escape_sequence_but_textuals_own() -> None:
    terminal = Pty(_HOSTILE, (120, 60))
    terminal.until("\\x1b[31mred")
    for key, shows in (
        ("3", "timeline"),
        ("4", "graph"),
        ("5", "results"),
        ("6", "resources"),
        ("7", "archive"),
    ):
        terminal.press(key, shows)
    terminal.press("1", "GROUP")
    terminal.press("2", "TASK")
    terminal.press("\r", "because")
    terminal.press("w", "why")
    written = terminal.end()
    plain = _SEQUENCE.sub("", written)
    assert "\x1b" not in plain
    controls = {character for character in plain if unicodedata.category(character) in ("Cc", "Cf")}
    assert controls <= {"\r", "\n", "\u200c", "\u200d"}
    for text in HOSTILE:
        if safe(text) != text:
            assert text not in written or text in ("a\rb", "a\nb")
