"""Keeps a private server of the tests: it ends, and its directory goes, also when the test is killed.

A shell is the server's parent and reads from a pipe whose other end the test process holds. At the end of the
file, which the kernel delivers whatever ended the test process, it stops the server and clears up.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

_KEEP = """
signal=$1; directory=$2; shift 2
"$@" </dev/null >"$directory/server.log" 2>&1 &
server=$!
echo $server
read -r end
kill -$signal $server 2>/dev/null
(sleep 30; kill -KILL $server 2>/dev/null) & late=$!
wait $server 2>/dev/null
kill $late 2>/dev/null
[ "$end" = keep ] || rm -rf "$directory"
"""
START_S = 120.0


class Kept:
    """A server that runs until `end`, or until this process has ended."""

    def __init__(
        self,
        command: list[str],
        directory: Path,
        signal: str = "TERM",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _KEEP, "keeper", signal, str(directory), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(environment) if environment is not None else None,
            start_new_session=True,
            text=True,
        )
        assert self._shell.stdout is not None
        self.pid = int(self._shell.stdout.readline())

    def wait_until(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_S
        while not ready():
            if self._shell.poll() is not None or time.monotonic() > deadline:
                log = self.directory / "server.log"
                said = log.read_text() if log.exists() else ""
                self.end(keep_directory=True)
                raise RuntimeError(f"the server did not start:\n{said}")
            time.sleep(0.02)

    def end(self, keep_directory: bool = False) -> None:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the server ended by itself, and its shell with it
            self._shell.stdin.write("keep\n" if keep_directory else "\n")
            self._shell.stdin.close()
        self._shell.stdout.close()
        self._shell.wait(60)
