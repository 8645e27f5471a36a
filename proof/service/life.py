"""Owns one life of a server or node: a process forked from this one, which has imported everything before.
Starting costs a hundredth of a second instead of one; nothing but imports is shared.
"""

from __future__ import annotations

import http.client
import os
import select
import signal
import sys
import time
import traceback
from pathlib import Path

from proof.service.bugs import BUGS
from proof.service.points import arm, clean_when_told
from tenuto.cli.commands import node as _node_command  # noqa: F401  imported here, and not in each child
from tenuto.cli.commands import serve as _serve_command  # noqa: F401
from tenuto.cli.main import main
from tenuto.launchers.kernel import die_with_parent

START_S = 60.0


class NotReady(Exception):
    """A process did not say that it is ready: it was killed first, or something is wrong."""


class Life:
    """A process of `tenuto serve` or `tenuto node`, from its start to its death."""

    def __init__(
        self, directory: Path, arguments: list[str], point: str | None = None, bug: str = ""
    ) -> None:
        """`point`: where the process is to die; `bug`: what is planted in it."""
        self.directory = directory
        self._arguments = arguments
        self._ready, write = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._ready)
            self._live(write, point, bug)
        os.close(write)
        self._dead = False
        self.port = 0

    def _live(self, write: int, point: str | None, bug: str) -> None:
        """The child; never returns."""
        code = 1
        try:
            os.setsid()
            die_with_parent(signal.SIGKILL)
            os.chdir(self.directory)
            log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(write, 1)
            os.dup2(log, 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for name in [name for name in os.environ if name.startswith("TENUTO_")]:
                del os.environ[name]
            clean_when_told(str(self.directory.parent / "clean"))
            if bug:
                BUGS[bug].plant()
            if point is not None:
                arm(point, str(self.directory.parent / f"struck-{point}"))
            sys.argv = ["tenuto", *self._arguments]
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException:  # noqa: BLE001  a child must not return into the parent's code
            traceback.print_exc()
        finally:
            os._exit(code)

    def wait_until_ready(self) -> None:
        """Reads the ready line; `NotReady` if the process ends before."""
        line = b""
        until = time.monotonic() + START_S
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([self._ready], [], [], max(0.0, until - time.monotonic()))
            piece = os.read(self._ready, 1000) if readable else b""
            if not piece:
                raise NotReady(self.log()[-2000:])
            line += piece
        self.port = int(line.decode().strip().rpartition(":")[2])

    def is_dead(self) -> bool:
        """Whether the process has ended."""
        if not self._dead:
            self._dead = os.waitpid(self.pid, os.WNOHANG)[0] != 0
        return self._dead

    def end(self) -> None:
        """Kills the process, if it lives."""
        if not self.is_dead():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self._dead = True
        os.close(self._ready)

    def log(self) -> str:
        try:
            return (self.directory / "log").read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Code and body of one answer; `OSError` or `HTTPException` if there is none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
