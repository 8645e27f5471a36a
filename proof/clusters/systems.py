"""The places where the script runs, and how each of them is struck: its master, a task, a machine."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tenuto.settings.clusters import ClusterSettings
from tests.clusters.sites import Scripts, Site
from tests.parts.sge import PrivateGridEngine
from tests.parts.slurm import PrivateSlurm
from tests.parts.slurm_configuration import Shape
from tests.parts.sshd import PrivateSshd

QUICK = ClusterSettings(poll_s=0.5, beat_s=1.0)


class Place:
    """A laptop: there is no master, and a task that is killed by hand is LOST."""

    deleted_is = "lost"
    """Why a job ends whose task was deleted by hand."""
    has_machines = False
    """True if one of several machines can go."""

    def __init__(self, site: Site) -> None:
        self.site = site

    def crash_master(self) -> None:
        """Kills what gives jobs out, if there is such a thing."""

    def master_again(self) -> None:
        """Starts it again."""

    def tend(self) -> None:
        """Does what its administrator would by now."""

    def delete(self, scripts: Scripts, name: str) -> None:
        """Ends a running task by hand, behind the back of Tenuto."""
        os.kill(pid_of(scripts, name), signal.SIGKILL)

    def lose(self, host: str) -> None:
        """Has a machine, and all that runs on it, vanish."""


class Slurm(Place):
    """Two nodes, each another host as far as a process can tell."""

    deleted_is = "cancelled"
    has_machines = True

    def __init__(self, cluster: PrivateSlurm) -> None:
        super().__init__(Site("slurm", QUICK, cluster.environment))
        self._cluster = cluster

    def crash_master(self) -> None:
        self._cluster.crash("slurmctld")

    def master_again(self) -> None:
        self._cluster.again("slurmctld")

    def tend(self) -> None:
        # A controller that is killed has lost its last seconds: it starts tasks again that ended meanwhile,
        # and gives up the node that says so, for good.
        for line in self._cluster.run("sinfo", "-h", "-R", "-o", "%E|%n", check=False).splitlines():
            reason, _, node = line.partition("|")
            if reason == "Duplicate jobid":
                self._cluster.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)

    def delete(self, scripts: Scripts, name: str) -> None:
        self._cluster.run("scancel", claimed_by(scripts, name))

    def lose(self, host: str) -> None:
        self._cluster.crash(f"node.{host}")


class GridEngine(Place):
    """One host, so that none can go."""

    deleted_is = "cancelled"

    def __init__(self, cluster: PrivateGridEngine) -> None:
        super().__init__(
            Site("sge", ClusterSettings(dialect="sge", poll_s=0.5, beat_s=1.0), cluster.environment)
        )
        self._cluster = cluster

    def crash_master(self) -> None:
        self._cluster.crash("qmaster")

    def master_again(self) -> None:
        self._cluster.again("qmaster")

    def delete(self, scripts: Scripts, name: str) -> None:
        self._cluster.run("qdel", claimed_by(scripts, name).replace("_", "."))


class Hosts(Place):
    """Two hosts by ssh; their connections are the master."""

    has_machines = True

    def __init__(self, hosts: PrivateSshd) -> None:
        words, slots = tuple(hosts.words), tuple(f"{host}:4" for host in hosts.hosts)
        settings = ClusterSettings(dialect="ssh", poll_s=0.5, beat_s=1.0, submit=words, hosts=slots)
        super().__init__(Site("ssh", settings, {}))
        self._hosts = hosts

    def crash_master(self) -> None:
        for host in self._hosts.hosts:
            self._hosts.stop(host)

    def master_again(self) -> None:
        for host in self._hosts.hosts:
            self._hosts.start(host)

    def lose(self, host: str) -> None:
        self._hosts.stop(host)
        mark = f"TENUTO_SSH_JOB={host}:".encode()
        sessions = {session_of(pid) for pid in pids() if mark in environment_of(pid)} - {None}
        gone = [pid for pid in pids() if session_of(pid) in sessions]
        # All at once, as by a loss of power: a shell that saw its child killed would note the exit code.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in gone:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)


@contextmanager
def laptop() -> Iterator[Place]:
    yield Place(Site("warm", None, {"TENUTO_SLOTS": "4"}))


@contextmanager
def slurm() -> Iterator[Place]:
    cluster = PrivateSlurm(Shape(apart=os.geteuid() == 0, extra=("SlurmdTimeout=4",)))
    try:
        yield Slurm(cluster)
    finally:
        cluster.close()


@contextmanager
def grid_engine() -> Iterator[Place]:
    cluster = PrivateGridEngine()
    try:
        yield GridEngine(cluster)
    finally:
        cluster.close()


@contextmanager
def hosts() -> Iterator[Place]:
    found = PrivateSshd()
    try:
        yield Hosts(found)
    finally:
        found.close()


PLACES: dict[str, Callable[[], object]] = {
    "laptop": laptop,
    "slurm": slurm,
    "grid engine": grid_engine,
    "two hosts by ssh": hosts,
}


def pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def session_of(pid: int) -> int | None:
    with suppress(OSError):
        return os.getsid(pid)
    return None


def environment_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path("/proc", str(pid), "environ").read_bytes()
    return b""


def directory_of(scripts: Scripts, name: str) -> Path:
    """The directory of a job, by the name among its parameters."""
    for path in scripts.workspace.glob("jobs/*/*/params.json"):
        if f'"{name}"' in path.read_text():
            return path.parent
    raise LookupError(f"no job has the name {name}")


def claimed_by(scripts: Scripts, name: str) -> str:
    """The system's id of the task that runs a job, as its claim says."""
    (claim,) = directory_of(scripts, name).glob(".tenuto/claim-*")
    return str(json.loads(claim.read_text())["job"])


def pid_of(scripts: Scripts, name: str) -> int:
    """The runner of a job."""
    (path,) = directory_of(scripts, name).glob("*.pid")
    return int(json.loads(path.read_text())["pid"])
