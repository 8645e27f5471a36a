"""A private tmux: a real terminal, whose window tests read and whose keyboard is theirs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

WAIT_S = 60.0


class Tmux:
    """A server of tmux of its own, with one window."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]

    def __call__(self, *command: str) -> str:
        done = subprocess.run(
            [*self._server, *command], capture_output=True, text=True, timeout=WAIT_S, check=True
        )
        return done.stdout

    def start(self, command: str, size: tuple[int, int] = (100, 30)) -> None:
        """Give a command to a shell in a window of a width and a height."""
        width, height = map(str, size)
        window = ("-s", "it", "-x", width, "-y", height, "-c", str(self._folder))
        self("new-session", "-d", *window, "env -u COLUMNS -u LINES sh")
        self("set-option", "-g", "escape-time", "0")
        self("send-keys", "-t", "it", command, "Enter")

    def press(self, *keys: str) -> None:
        """Type."""
        self("send-keys", "-t", "it", *keys)

    def until(self, found: str | Callable[[str], bool], *options: str) -> str:
        """Wait for a text or a condition of the window, and return what it shows (``-e``: in colour)."""
        deadline = time.monotonic() + WAIT_S
        while True:
            shown = self("capture-pane", "-p", *options, "-t", "it")
            if found in shown if isinstance(found, str) else found(shown):
                return shown
            assert time.monotonic() < deadline, f"never seen: {found}\n{shown}"
            time.sleep(0.05)

    def close(self) -> None:
        """End the server, if it still runs."""
        subprocess.run([*self._server, "kill-server"], capture_output=True, timeout=WAIT_S, check=False)
