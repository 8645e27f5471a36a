"""Owns real servers and nodes for benchmarks: processes of the `tenuto` command, and a client.
Measures their memory and time; judges nothing.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.measure import ENVIRONMENT, Broken

START_S = 60.0
SETTINGS = "[services.example]\nruns_per_user = 1000\nmax_runs = 1000\n"
BOUNDARY = "b" * 24
IDLE_S = 3.0
"""Shorter than any server here keeps a connection that asks nothing."""


def upload_body(script: str, user: int) -> bytes:
    """A multipart body with one file."""
    parts = [("user_id", "", str(user)), ("service", "", "example"), ("file", '; filename="run.sh"', script)]
    text = "".join(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{value}\r\n'
        for name, more, value in parts
    )
    return f"{text}--{BOUNDARY}--\r\n".encode()


class Client:
    """One connection to the server; made anew when it was idle for so long that the server closed it."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._last = time.monotonic()

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"} if body else {}
        if time.monotonic() - self._last > IDLE_S:
            self._connection.close()
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse().read()
        self._last = time.monotonic()
        return answer

    def upload(self, script: str = "true\n", user: int = 1) -> int:
        return int(json.loads(self.ask("POST", "/upload", upload_body(script, user)))["id"])

    def completed(self, job: int) -> None:
        while (status := json.loads(self.ask("GET", f"/jobs/{job}?wait=30"))["status"]) != "Completed":
            if status in ("Failed", "Killed", "Invalid"):
                raise Broken(f"job {job} is {status}")

    def close(self) -> None:
        self._connection.close()


@contextmanager
def served(
    directory: Path, sandbox: str, environment: Mapping[str, str] = ENVIRONMENT
) -> Iterator[tuple[int, int]]:
    """A server with a node: its port and its pid."""
    (directory / "tenuto.toml").write_text(SETTINGS)
    directory.chmod(0o711)  # as root, payloads have uids of their own
    with started(directory, "serve", "--with-node", "--sandbox", sandbox, environment=environment) as found:
        yield found


@contextmanager
def started(
    directory: Path, *command: str, environment: Mapping[str, str] = ENVIRONMENT
) -> Iterator[tuple[int, int]]:
    """A process of the `tenuto` command that serves: its port and its pid."""
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tenuto", *command, "--port", "0"],
            cwd=directory,
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("tenuto: "):
            raise Broken(f"the server did not start: {(directory / 'log').read_text()[-300:]}")
        yield int(line.rsplit(":", 1)[1]), process.pid
    finally:
        process.terminate()
        process.wait(START_S)
        if process.stdout is not None:
            process.stdout.close()


def memory_of(pid: int) -> int:
    """The memory of a process, in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def sockets_of(pid: int) -> int:
    """The sockets that a process has open; its database opens files as it needs them."""
    found = 0
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found += os.readlink(one).startswith("socket:")
    return found


def forget_peak(pid: int) -> None:
    """Has the kernel begin anew with the peak of a process."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_of(pid: int) -> int:
    """The most memory that a process has had, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise Broken("the kernel does not say how much memory a process has had")


def cpu_of(pid: int) -> float:
    """The CPU time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
