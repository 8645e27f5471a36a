"""Commands that start no job, called in this process: an interpreter for each takes most of a test's time."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import struct
import sys
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import TextIO
from unittest.mock import patch

from tenuto.cli import main

QUIET = frozenset({"status", "jobs", "results", "graph", "files", "logs", "why", "runs", "kill", "clean"})
"""Commands that start nothing, and load nothing of a script."""


def call(arguments: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> CompletedProcess[str]:
    """What a command writes and returns, as if it were a process of its own without a terminal."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code = _called(arguments, cwd, environment, out, err)
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return CompletedProcess(list(arguments), code, *texts)


def call_at_terminal(
    arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], columns: int
) -> tuple[int, str]:
    """The exit code of a command, and what it writes to a terminal of a width; its errors are left out."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    written = bytearray()
    reader = threading.Thread(target=_read, args=(leader, written))
    reader.start()  # a terminal holds 4 kB: a writer waits for its reader
    window = {**environment, "COLUMNS": str(columns)}
    try:
        with open(follower, "w", encoding="utf-8") as out:
            code = _called(arguments, cwd, window, out, io.StringIO())
    finally:
        reader.join()
        os.close(leader)
    return code, written.decode().replace("\r\n", "\n")


def _read(terminal: int, written: bytearray) -> None:
    """Read a terminal until its other side is closed."""
    with contextlib.suppress(OSError):
        while chunk := os.read(terminal, 65536):
            written += chunk


def _called(
    arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], out: TextIO, err: TextIO
) -> int:
    code: object = None
    with (
        _in(cwd),
        patch.dict(os.environ, environment, clear=True),
        patch.object(sys, "argv", ["-c", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code
    return code if isinstance(code, int) else 0


@contextlib.contextmanager
def _in(directory: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)
