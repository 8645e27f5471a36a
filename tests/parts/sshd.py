"""A private sshd for the tests: each loopback address is a host, with a key that lets this user in."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from tests.parts.keeper import Kept
from tests.parts.ports import free_port

PROGRAM = shutil.which("sshd", path="/usr/sbin:/sbin") or "sshd"


class PrivateSshd:
    """The hosts 127.0.0.1, 127.0.0.2 and so on, each with a daemon of its own."""

    def __init__(self, hosts: int = 2) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="tn-sshd-", dir="/tmp"))
        self.port = free_port()
        self.hosts = [f"127.0.0.{number}" for number in range(1, hosts + 1)]
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # where sshd separates its privileges
        for name in ("host", "user"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.directory / name)]
            subprocess.run(command, check=True)
        shutil.copy(self.directory / "user.pub", self.directory / "authorized")
        (self.directory / "authorized").chmod(0o600)
        self._kept: dict[str, Kept] = {}
        for host in self.hosts:
            self.start(host)

    @property
    def words(self) -> list[str]:
        """How these hosts are reached."""
        options: tuple[str, ...] = (
            "BatchMode=yes",
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
        )
        options += ("ConnectTimeout=5", f"IdentityFile={self.directory}/user", "IdentitiesOnly=yes")
        return ["ssh", "-p", str(self.port), "-l", getpass.getuser(), *(f"-o{one}" for one in options)]

    def start(self, host: str) -> None:
        place = self.directory / host
        place.mkdir(exist_ok=True)
        (place / "config").write_text(
            f"ListenAddress {host}\nPort {self.port}\nHostKey {self.directory}/host\nPidFile none\n"
            f"AuthorizedKeysFile {self.directory}/authorized\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n"
        )
        self._kept[host] = Kept([PROGRAM, "-D", "-e", "-f", str(place / "config")], place)

        def listens() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex((host, self.port)) == 0

        self._kept[host].wait_until(listens)

    def stop(self, host: str) -> None:
        """The host answers no more; jobs on it go on."""
        self._kept.pop(host).end()

    def close(self) -> None:
        for kept in self._kept.values():
            kept.end()
        shutil.rmtree(self.directory, ignore_errors=True)
