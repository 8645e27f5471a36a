"""Commands that start no job, called in this process: an interpreter for each takes most of a test's time."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from unittest.mock import patch

from tenuto.cli import main

QUIET = frozenset({"status", "jobs", "results", "graph", "files", "logs", "why", "runs", "kill", "clean"})
"""Commands that start nothing, and load nothing of a script."""


def call(arguments: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> CompletedProcess[str]:
    """What a command writes and returns, as if it were a process of its own without a terminal."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
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
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return CompletedProcess(list(arguments), code if isinstance(code, int) else 0, *texts)


@contextlib.contextmanager
def _in(directory: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)
