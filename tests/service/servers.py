"""Real servers and nodes for tests: processes of the `tenuto` command, and requests by curl or urllib."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from tests.parts.answers import Answer
from tests.parts.fork_server import PROGRAMS, Forked, fork_server
from tests.service.multipart import CONTENT_TYPE, body, field, file

WAIT_S = 60.0


class Process:
    """A `tenuto` command that serves; ended when the test ends."""

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        self.log_path = cwd / f"log-{time.monotonic_ns()}"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")}
        with open(self.log_path, "wb") as log:
            self._process = _started([python, "-m", "tenuto", *arguments], cwd, {**clean, **(env or {})}, log)
        self.pid = self._process.pid
        self.url = self._ready()

    def _ready(self) -> str:
        assert self._process.stdout is not None
        watchdog = threading.Timer(WAIT_S, self._process.kill)
        watchdog.start()
        line = self._process.stdout.readline()
        watchdog.cancel()
        assert line.startswith("tenuto: "), f"not ready: {line!r}\n{self.log}"
        return line.split(" on ", 1)[1].strip()

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def request(
        self, method: str, path: str, data: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        asked = urllib.request.Request(self.url + path, data, dict(headers or {}), method=method)
        try:
            with urllib.request.urlopen(asked, timeout=WAIT_S) as answer:
                return Answer(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.headers, error.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, **headers: str) -> Answer:
        return self.request("POST", path, b"", headers)

    def upload(
        self,
        script: str = "echo hello > out.txt\n",
        user: str = "1",
        service: str = "example",
        files: Mapping[str, bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        parts = [field("user_id", user), field("service", service), file("run.sh", script.encode())]
        parts += [file(name, content) for name, content in (files or {}).items()]
        return self.request(
            "POST", "/upload", body(*parts), {"Content-Type": CONTENT_TYPE, **(headers or {})}
        )

    def job(self, job_id: int, wait: float = 0) -> Any:
        return self.get(f"/jobs/{job_id}?wait={wait}").json

    def final(self, job_id: int, timeout_s: float = WAIT_S) -> Any:
        """The job, once it is final."""
        until = time.monotonic() + timeout_s
        while True:
            job = self.job(job_id, wait=5)
            if job["status"] in ("Completed", "Failed", "Killed", "Invalid", "Cleaned"):
                return job
            assert time.monotonic() < until, f"job {job_id} is still {job}\n{self.log}"

    def run(self, script: str, **more: Any) -> Any:
        """The job of an upload, once it is final."""
        answer = self.upload(script, **more)
        assert answer.status == 201, answer
        return self.final(answer.json["id"])

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(WAIT_S)

    def stop(self) -> int:
        """Asks it to end; its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(WAIT_S)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(WAIT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()


def _started(
    command: list[str], cwd: Path, environment: Mapping[str, str], log: BinaryIO
) -> subprocess.Popen[str] | Forked:
    """A program, forked from a process that has imported its modules: most of a start is imports."""
    server = fork_server(*PROGRAMS)
    if server.can_run(command, cwd, environment):
        return server.start(command, cwd, environment, log.fileno())
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        start_new_session=True,
    )


def eventually(condition: Callable[[], Any], timeout_s: float = WAIT_S) -> Any:
    """What the condition gives once it is true."""
    until = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.02)
    return found
