"""The servers that this user runs: one file each, so that `tenuto ui --login` finds them.
The file holds the secret that asks for codes: only its user may read it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from tenuto.errors import MonitorError
from tenuto.jobs.tcp_ports import LOCALHOST

ANSWER_S = 5.0


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """As a browser on this machine calls it."""
        host = LOCALHOST if self.host in ("0.0.0.0", "::", "") else self.host
        return f"http://[{host}]:{self.port}/" if ":" in host else f"http://{host}:{self.port}/"


class Registration(NamedTuple):
    """A server that runs."""

    port: int
    pid: int
    host: str
    workspace: str
    bearer: str


def register(directory: Path, registration: Registration) -> Path:
    """Write the file of a server, readable by its user only."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = directory.stat()
    if found.st_uid != os.geteuid():
        raise MonitorError(f"{directory} belongs to another user: set XDG_STATE_HOME to a directory of yours")
    directory.chmod(0o700)
    path = directory / f"{registration.port}.json"
    temporary = directory / f".{registration.port}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(registration._asdict(), file)
    temporary.rename(path)
    return path


def unregister(path: Path, pid: int) -> None:
    """Remove the file of a server, unless another server took its place."""
    found = _read(path)
    if found is not None and found.pid == pid:
        path.unlink(missing_ok=True)


def registrations(directory: Path) -> list[Registration]:
    """The servers that said they run; a killed one may be among them."""
    try:
        paths = sorted(directory.glob("*.json"))
    except OSError:
        return []
    return [found for path in paths if (found := _read(path)) is not None]


def new_code(server: Registration) -> str | None:
    """A code of a server that runs; None if it does not answer: it was killed."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=ANSWER_S)
    try:
        connection.request("POST", "/api/codes", headers={"Authorization": f"Bearer {server.bearer}"})
        response = connection.getresponse()
        answer: Any = json.loads(response.read())
        return str(answer["code"]) if response.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        return None
    finally:
        connection.close()


def _read(path: Path) -> Registration | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            fields = json.loads(file.read(65_536))
        return Registration(
            int(fields["port"]),
            int(fields["pid"]),
            str(fields["host"]),
            str(fields["workspace"]),
            str(fields["bearer"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
