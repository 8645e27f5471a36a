"""How a payload is kept apart from its machine: bubblewrap, a uid of its own, or not at all.
Makes command lines and tries them; the runner starts payloads, with the limits of `launchers`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from enum import Enum, unique
from typing import NamedTuple

from tenuto.errors import UnsafeService

FIRST_UID = 61184
UIDS = 4096
INSIDE = "/work"
"""Where a payload sees its directory inside the sandbox."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt")
_TRY_S = 10.0


@unique
class SandboxMode(Enum):
    """How payloads are kept apart."""

    BWRAP = "bwrap"
    UID = "uid"
    NONE = "none"


class Guest(NamedTuple):
    """What one payload may have."""

    work: str
    uid: int | None
    """Its own uid; None: the node's."""
    network: bool = False
    paths: tuple[str, ...] = ()
    """Places that it may read, besides those of the system."""


class Sandbox(NamedTuple):
    """The sandbox of a node."""

    mode: SandboxMode
    is_root: bool

    def uid_of(self, payload_id: int) -> int | None:
        """The uid of a payload: one of its own if the node may give it one, and keeps payloads apart."""
        if not self.is_root or self.mode is SandboxMode.NONE:
            return None
        return FIRST_UID + payload_id % UIDS

    def command(self, guest: Guest, program: Sequence[str]) -> tuple[str, ...]:
        """The command line of a payload, to be run in its directory."""
        if self.mode is not SandboxMode.BWRAP:
            return tuple(program)
        return (*bwrap(guest), *program)

    def home(self, guest: Guest) -> str:
        """The directory of a payload, as it sees it."""
        return INSIDE if self.mode is SandboxMode.BWRAP else guest.work


def bwrap(guest: Guest) -> list[str]:
    """The arguments of bubblewrap: everything of its own but what it may read, and its directory."""
    line = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session"]
    if guest.network:
        line.append("--share-net")
    for path in _SYSTEM:
        if os.path.islink(path):
            line += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            line += ["--ro-bind", path, path]
    for path in guest.paths:
        line += ["--ro-bind", path, path]
    line += ["--tmpfs", "/tmp", "--dev", "/dev", "--proc", "/proc"]
    return [*line, "--bind", guest.work, INSIDE, "--chdir", INSIDE, "--"]


def may_change_uid(wanted: str) -> bool:
    """Whether payloads may get uids of their own, which pass through the directories above theirs."""
    return os.geteuid() == 0 and wanted != SandboxMode.NONE.value


def choose(wanted: str, data: str, *, must: bool) -> Sandbox:
    """The sandbox that was asked for, tried out in the node's directory; raises `UnsafeService`.

    ``must``: without any sandbox the node must not run, unless that was asked for by name.
    """
    is_root = os.geteuid() == 0
    why: list[str] = []
    if wanted in ("auto", "bwrap"):
        sandbox = Sandbox(SandboxMode.BWRAP, is_root)
        problem = _trial(sandbox, data)
        if problem is None:
            return sandbox
        why.append(f"bubblewrap: {problem}")
    if wanted in ("auto", "uid"):
        if is_root:
            sandbox = Sandbox(SandboxMode.UID, is_root)
            problem = _trial(sandbox, data)
            if problem is None:
                return sandbox
            why.append(f"uid: {problem}")
        else:
            why.append("uid: only root can give payloads a uid of their own")
    if wanted in ("bwrap", "uid") or (wanted == "auto" and must):
        raise UnsafeService(
            f"no sandbox for what users upload ({'; '.join(why)}): install bubblewrap, or allow their "
            "programs everything that this account may do with --sandbox none"
        )
    return Sandbox(SandboxMode.NONE, is_root)


def _trial(sandbox: Sandbox, data: str) -> str | None:
    """What keeps a sandbox from working here; None if it works."""
    if sandbox.mode is SandboxMode.BWRAP and shutil.which("bwrap") is None:
        return "it is not installed"
    work = os.path.join(data, ".sandbox-trial")
    os.makedirs(work, mode=0o700, exist_ok=True)
    uid = sandbox.uid_of(0)
    try:
        if uid is not None:
            os.chown(work, uid, uid)
        command = sandbox.command(Guest(work, uid), ["/bin/sh", "-c", "touch x"])
        try:
            ended = subprocess.run(
                command,
                cwd=work,
                user=uid,
                group=uid,
                extra_groups=[] if uid is not None else None,
                capture_output=True,
                text=True,
                timeout=_TRY_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
        if ended.returncode == 0:
            return None
        said = ended.stderr.strip()[:200]
        if "ermission denied" in said and uid is not None:
            return f"{said} (the directories above {data} must let other users pass: chmod a+x)"
        return said or f"exit code {ended.returncode}"
    finally:
        shutil.rmtree(work, ignore_errors=True)


def hand_over(work: str, uid: int) -> None:
    """Gives the files of a payload to its uid alone."""
    for name in os.listdir(work):
        os.chown(os.path.join(work, name), uid, uid, follow_symlinks=False)
    os.chmod(work, 0o700)
    os.chown(work, uid, uid)
