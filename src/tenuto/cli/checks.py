"""Checks of this machine, each tried for real: what was found, and what to do about it.
A check leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, unique
from pathlib import Path
from typing import NamedTuple

from tenuto import __version__
from tenuto.errors import TenutoError
from tenuto.launchers.carbon.carbon_plan import codecarbon_is_installed
from tenuto.launchers.cluster.dialect import ClusterError, leading_number
from tenuto.launchers.cluster.dialects.slurm import SlurmDialect
from tenuto.launchers.payload.limits import GroupLimit, limit_memory
from tenuto.settings import Settings
from tenuto.workspace.machine import this_machine

LITTLE_DISK = 1 << 30
FEW_INODES = 10_000
FEW_WATCHES = 1024
FEW_DESCRIPTORS = 1024
OLDEST_PYTHON = (3, 11)


@unique
class CheckResult(Enum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(NamedTuple):
    """One check: what was looked at, what was found, and what to do about it."""

    name: str
    verdict: CheckResult
    found: str
    advice: str = ""


def _ok(name: str, found: str) -> Check:
    return Check(name, CheckResult.OK, found)


def check_machine(workspace: Path, environ: Mapping[str, str]) -> list[Check]:
    """Every check; `workspace` is where jobs will be kept, whether it exists or not."""
    place = _existing(workspace)
    checks: list[Callable[[], Check]] = [
        _tenuto,
        _python,
        lambda: _writable(place),
        lambda: _locks(place),
        lambda: _disk(place),
        _pidfd,
        _inotify,
        _descriptors,
        _memory_group,
        lambda: _git(environ),
        lambda: _gpus(environ),
        _energy,
    ]
    return [check() for check in checks]


def _existing(path: Path) -> Path:
    """The directory itself, or the nearest above it that exists: on the file system it would be made on."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _tenuto() -> Check:
    return _ok("tenuto", f"{__version__} in {Path(__file__).parents[1]}")


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return Check("python", CheckResult.FAIL, version, "use Python 3.11 or newer")
    return _ok("python", f"{version}, {sys.executable}")


@contextlib.contextmanager
def _scratch(place: Path) -> Iterator[Path]:
    """A directory of our own on the same file system, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=".tenuto-doctor-", dir=place) as folder:
        yield Path(folder)


def _writable(place: Path) -> Check:
    try:
        with _scratch(place) as folder:
            this_machine().files.replace(f"{folder}/file", b"text", durable=True)
    except OSError as error:
        return Check(
            "workspace",
            CheckResult.FAIL,
            f"{place}: {error.strerror}",
            "choose another workspace, or change its permissions",
        )
    return _ok("workspace", f"{place} can be written")


_HOLD = """
import sys
from tenuto.workspace.locks import system_locks
lock = system_locks().try_lock(sys.argv[1])
print("held" if lock else "taken", flush=True)
sys.stdin.read()
"""


def _locks(place: Path) -> Check:
    """Another process takes a lock, we see it, it is killed, and the lock is free."""
    name = "locks"
    elsewhere = "keep the workspace on a local disk, or on a file system with working locks"
    try:
        with _scratch(place) as folder:
            problem = _try_locks(f"{folder}/lock")
    except (TenutoError, OSError) as error:
        return Check(name, CheckResult.FAIL, str(error), elsewhere)
    if problem:
        return Check(name, CheckResult.FAIL, problem, elsewhere)
    return _ok(name, "held by one process, seen by another, freed by its death")


def _try_locks(path: str) -> str | None:
    locks = this_machine().locks
    command = [sys.executable, "-c", _HOLD, path]
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": root}
    ) as holder:
        assert holder.stdout is not None
        try:
            if holder.stdout.readline().strip() != b"held":
                return "a lock could not be taken"
            if not locks.is_locked(path) or locks.try_lock(path) is not None:
                return "a lock of another process is not seen: two schedulers could run the same job"
        finally:
            holder.send_signal(signal.SIGKILL)
            holder.wait()
    lock = locks.try_lock(path)
    if lock is None:
        return "a lock is not freed when its process dies"
    lock.close()
    return None


def _disk(place: Path) -> Check:
    free = this_machine().files.free_space(str(place))
    found = f"{free.bytes / (1 << 30):.1f} GiB and {free.inodes} files free"
    if free.bytes < LITTLE_DISK or free.inodes < FEW_INODES:
        return Check("disk", CheckResult.WARN, found, "make room: jobs wait while the disk is full")
    return _ok("disk", found)


def _pidfd() -> Check:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError) as error:
        return Check(
            "pidfd", CheckResult.FAIL, f"{error}", "use Linux 5.3 or newer, outside of a strict sandbox"
        )
    return _ok("pidfd", "the end of a job is seen at once")


def _inotify() -> Check:
    limits = {}
    for name in ("max_user_watches", "max_user_instances"):
        try:
            limits[name] = int(Path("/proc/sys/fs/inotify", name).read_text())
        except (OSError, ValueError):
            return Check(
                "inotify", CheckResult.WARN, "not there", "jobs of other runs are seen within two seconds"
            )
    found = ", ".join(f"{name} {value}" for name, value in limits.items())
    if limits["max_user_watches"] < FEW_WATCHES:
        return Check("inotify", CheckResult.WARN, found, "raise it: sysctl fs.inotify.max_user_watches=65536")
    return _ok("inotify", found)


def _descriptors() -> Check:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FEW_DESCRIPTORS:
        return Check("open files", CheckResult.WARN, f"{soft} (at most {hard})", "raise it: ulimit -n 4096")
    return _ok("open files", f"{soft}")


def _memory_group() -> Check:
    limit = None
    with contextlib.suppress(OSError):
        limit = limit_memory(1 << 30, f"doctor-{os.getpid()}")
    if isinstance(limit, GroupLimit):
        limit.close()
        return _ok("cgroup memory", "memory limits hold for a job and all that it starts")
    return Check(
        "cgroup memory",
        CheckResult.WARN,
        "no group can be made here",
        "memory limits then hold for each process by itself; a systemd user session usually gives you groups",
    )


def _git(environ: Mapping[str, str]) -> Check:
    found = _version(["git", "--version"], environ)
    if found is None:
        return Check(
            "git", CheckResult.WARN, "not installed", "install it: runs record the commit of your code"
        )
    return _ok("git", found.removeprefix("git version "))


def _gpus(environ: Mapping[str, str]) -> Check:
    found = _version(["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"], environ)
    if found is None:
        return _ok("gpus", "none found (no nvidia-smi)")
    return _ok("gpus", "; ".join(found.splitlines()))


def _energy() -> Check:
    if codecarbon_is_installed():
        return _ok("energy", "codecarbon is installed: jobs are measured, unless carbon.enabled is false")
    return _ok("energy", "not measured: pip install 'tenuto[carbon]' to have it")


def _version(command: list[str], environ: Mapping[str, str]) -> str | None:
    program = shutil.which(command[0], path=environ.get("PATH"))
    if program is None:
        return None
    try:
        asked = subprocess.run(
            [program, *command[1:]],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip()


# Checks of the Slurm that this machine reaches: its answer, its accounting, its limits.
# Asks Slurm, and submits nothing.


SLOW_S = 2.0


def check_slurm(settings: Settings) -> list[Check]:
    """What is known of Slurm here; one line if it is not installed."""
    dialect = SlurmDialect("slurm", settings.cluster("slurm"))
    if not dialect.is_installed():
        return [Check("slurm", CheckResult.OK, "none here (no sbatch)")]
    began = time.monotonic()
    try:
        found = dialect.configuration()
    except ClusterError as error:
        return [Check("slurm", CheckResult.WARN, str(error), "jobs wait until Slurm's controller answers")]
    took_s = time.monotonic() - began
    answer = f"{found.get('SLURM_VERSION', '?')}, answered in {took_s * 1000:.0f} ms"
    slow = "an answer takes long: a larger slurm.poll_s asks less often" if took_s > SLOW_S else ""
    return [
        Check("slurm", CheckResult.WARN if slow else CheckResult.OK, answer, slow),
        _accounting(found.get("AccountingStorageType", "")),
        Check(
            "slurm arrays", CheckResult.OK, f"at most {found.get('MaxArraySize', '?')} jobs (MaxArraySize)"
        ),
        _memory_of_jobs(leading_number(found.get("MinJobAge", ""), 300)),
        _grace(leading_number(found.get("KillWait", ""), 30), settings.grace_s),
    ]


def _accounting(storage: str) -> Check:
    if "slurmdbd" in storage:
        return Check("slurm accounting", CheckResult.OK, "sacct knows how jobs ended")
    return Check("slurm accounting", CheckResult.OK, "none: the controller is asked how jobs ended")


def _memory_of_jobs(age_s: int) -> Check:
    found = f"Slurm remembers ended jobs for {age_s} s (MinJobAge)"
    if age_s < 30:
        return Check(
            "slurm memory", CheckResult.WARN, found, "ends may be missed, and jobs be fenced for a while"
        )
    return Check("slurm memory", CheckResult.OK, found)


def _grace(kill_wait_s: int, grace_s: float) -> Check:
    found = f"{kill_wait_s} s between TERM and KILL (KillWait)"
    if kill_wait_s < grace_s:
        advice = f"grace_s is {grace_s:g}: what Slurm itself stops may be killed before its grace is over"
        return Check("slurm grace", CheckResult.WARN, found, advice)
    return Check("slurm grace", CheckResult.OK, found)
