"""A private PostgreSQL for the tests: in a temporary directory, on a Unix socket, without a network port."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.parts.keeper import Kept

# Nothing of the tests survives a power cut, and nothing needs to; a crash of the server loses no commit.
FAST = "fsync=off full_page_writes=off shared_buffers=32MB max_connections=60 wal_level=minimal"
FAST += " max_wal_senders=0"


def _bin(name: str) -> str:
    found = shutil.which(name) or next(
        (str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)), None
    )
    assert found, "require('postgresql') comes first"
    return found


def _demoted() -> list[str]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


class PostgreSQL:
    """A server of its own; `url` names its first database."""

    def __init__(self) -> None:
        self.directory = Path(
            tempfile.mkdtemp(prefix="tn-pg-", dir="/tmp")
        )  # short: a socket's path has 107 bytes
        if os.geteuid() == 0:
            shutil.chown(self.directory, "nobody", "nogroup")
        self._numbers = itertools.count(1)
        try:
            subprocess.run(
                [
                    *_demoted(),
                    *(_bin("initdb"), "-D", str(self.directory / "data"), "-U", "tenuto", "--auth=trust"),
                    *("--no-sync", "--no-instructions", "-E", "UTF8", "--locale=C"),
                ],
                check=True,
                capture_output=True,
            )
            self._start()
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise

    def _start(self) -> None:
        options = [part for setting in FAST.split() for part in ("-c", setting)]
        self._kept = Kept(
            [
                *_demoted(),
                *(_bin("postgres"), "-D", str(self.directory / "data"), "-k", str(self.directory)),
                *("-c", "listen_addresses=", *options),
            ],
            self.directory,
            signal="QUIT",
        )
        self._kept.wait_until(self._answers)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url_of("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def url_of(self, database: str, password: str = "") -> str:
        user = f"tenuto:{password}" if password else "tenuto"
        return f"postgresql://{user}@/{database}?host={self.directory}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        with psycopg.connect(self.url_of(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a database of its own, which is dropped in the end."""
        name = f"t{os.getpid()}_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield self.url_of(name)
        finally:
            self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def restart(self) -> None:
        """Ends every connection at once, as a crash would, and starts again."""
        self._kept.end(keep_directory=True)
        self._start()

    def stop(self) -> None:
        self._kept.end(keep_directory=True)

    def start(self) -> None:
        self._start()

    def end(self) -> None:
        self._kept.end()
