"""Runs the commands of a search of programs, an agent or an evaluator, and ends all that they started.
Inside a job only: this process becomes the parent of what a command leaves behind.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tenuto.launchers.kernel import become_subreaper
from tenuto.launchers.leftovers import descendants, kill_descendants

TAIL = 1_000_000
_CHUNK = 65536
_JOIN_S = 5.0
_SWEEP_S = 0.01
_MOST_SWEEPS = 500


@dataclass(frozen=True, slots=True)
class FinishedCommand:
    """How a command ended: its exit code, None if it ran over its time, and the end of what it printed."""

    code: int | None
    out: str
    err: str

    @property
    def trouble(self) -> str | None:
        """What went wrong, in words; None if nothing did."""
        if self.code is None:
            return "ran over its time and was killed"
        if self.code < 0:
            return f"was ended by signal {-self.code}"
        return f"ended with exit code {self.code}" if self.code else None


def run_command(
    words: Sequence[str], directory: Path, environment: Mapping[str, str], limit_s: float | None
) -> FinishedCommand:
    """Runs a command and ends everything it leaves behind; what it prints goes to the job's logs as well."""
    become_subreaper()
    try:
        process = subprocess.Popen(
            list(words),
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return FinishedCommand(127, "", f"{words[0]}: {error.strerror or error}")
    assert process.stdout is not None
    assert process.stderr is not None
    tails = [_Tail(process.stdout, sys.stdout), _Tail(process.stderr, sys.stderr)]
    try:
        code: int | None = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        _end_all(process)
    out, err = (tail.text() for tail in tails)
    return FinishedCommand(code, out, err)


def _end_all(process: subprocess.Popen[bytes]) -> None:
    """Kills and reaps what is left below this process; gives up on what the kernel cannot end."""
    pause = threading.Event()
    for _ in range(_MOST_SWEEPS):
        if not descendants():
            break
        kill_descendants()
        process.poll()
        _reap()
        pause.wait(_SWEEP_S)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


class _Tail:
    """The end of what a process prints, passed on while it comes."""

    def __init__(self, stream: IO[bytes], echo: IO[str]) -> None:
        self._stream = stream
        self._echo = echo
        self._kept = bytearray()
        self._thread = threading.Thread(target=self._read, name="output", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._stream:
            while chunk := self._stream.read1(_CHUNK):  # type: ignore[attr-defined]
                self._kept += chunk
                if len(self._kept) > 2 * TAIL:
                    del self._kept[:-TAIL]
                self._echo.write(chunk.decode("utf-8", "replace"))
                self._echo.flush()

    def text(self) -> str:
        self._thread.join(_JOIN_S)
        return bytes(self._kept[-TAIL:]).decode("utf-8", "replace")
