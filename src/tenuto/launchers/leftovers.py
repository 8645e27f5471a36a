"""Ends what a job left running: daemons, forgotten children, what a killed runner could not end any more.
Two ways to find them: as descendants, from the runner that adopted them; from outside, by what they have of
the job: its lock, its stamp, its logs, or the session of its runner.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from tenuto.light import signal
from tenuto.workspace.attempt_files import read_pid
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import DESCENDANTS_BYTE, RUNNER_BYTE, Liveness, Machine, ProcessHandle
from tenuto.workspace.records import LaunchRecord

STAMP = "_TENUTO_ATTEMPT"
"""The variable, in the environment of everything a payload starts, that holds the attempt's nonce."""
SPARE_NAME = "tenuto-spare"
"""The name of a payload's process as long as it waits for its job (see `warm.spare_payload`)."""


def descendants() -> list[int]:
    """Every process below this one. Those that lost their parent are here too, if this is a subreaper."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        parent = _parent(pid)
        if parent is not None:
            children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def kill_descendants() -> None:
    """Send KILL to every process below this one."""
    for pid in descendants():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it ended; nothing else can have its pid yet, since its parent is still below us


def find_leftovers(
    machine: Machine, paths: JobPaths, launch: LaunchRecord | None = None, members: Iterable[int] = ()
) -> list[ProcessHandle]:
    """The processes that an attempt left, seen from outside.

    The stamp finds what the lock cannot: programs started with all descriptors closed, as `subprocess` does.
    Logs and session find processes with another environment besides. Without `launch` only the lock and the
    logs are asked. `members`: pids that are known to be of the attempt.
    """
    pids = {*machine.locks.holders(paths.lock, DESCENDANTS_BYTE), *members, *_writers(paths)}
    if launch is not None:
        pids |= {*_stamped(launch.nonce), *_session(machine, paths, launch.attempt)}
    # A process that has the first byte too is no leftover: a scheduler that prepares the job, or its runner.
    pids -= {*machine.locks.holders(paths.lock, RUNNER_BYTE), machine.processes.own().pid}
    handles = []
    for pid in sorted(pids):
        identity = machine.processes.identify(pid)
        handle = identity and machine.processes.open(identity)
        if handle:
            handles.append(handle)
    return handles


def _told(pid: int, name: str) -> bytes:
    """What the kernel tells of a process; nothing of one that ended, or is not ours to look at."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def _parent(pid: int) -> int | None:
    text = _told(pid, "stat")
    return int(text[text.rindex(b")") + 2 :].split()[1]) if text else None


def _writers(paths: JobPaths) -> Iterator[int]:
    """Processes whose output goes to the job's logs: a person only reads those."""
    for pid in _pids():
        if any(_writes_to(pid, fd, (paths.out, paths.err)) for fd in (1, 2)):
            yield pid


def _writes_to(pid: int, fd: int, logs: tuple[str, ...]) -> bool:
    try:
        if not os.readlink(f"/proc/{pid}/fd/{fd}").startswith(logs):
            return False
    except OSError:
        return False  # it ended, has no such descriptor, or is not ours to look at
    flags = next(
        (line for line in _told(pid, f"fdinfo/{fd}").splitlines() if line.startswith(b"flags:")), b""
    )
    return bool(flags) and int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY


def _session(machine: Machine, paths: JobPaths, attempt: int) -> list[int]:
    """The processes of the session that the dead runner of an attempt led.

    The number of a session is not given to another process while one of its processes lives. Once all have
    gone it may be, and the new leader may die as well: so one must be at home in the job's directory, or a
    spare, which must end with its runner anyway. A spare that was given its job, and has not taken it, holds
    the job's lock in a message: nothing else shows that.
    """
    record = read_pid(machine.files, paths, attempt)
    if record is None or machine.processes.liveness(record.identity) is not Liveness.DEAD:
        return []
    runner = record.identity.pid
    if machine.processes.identify(runner) is not None:
        return []  # the number was given away: nothing of the session is left
    found = [pid for pid in _pids() if _session_of(pid) == runner]
    spare = SPARE_NAME.encode()
    is_ours = any(_is_at_home(pid, paths) or _told(pid, "comm").strip() == spare for pid in found)
    return found if is_ours else []


def _is_at_home(pid: int, paths: JobPaths) -> bool:
    try:
        place = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return False
    return place == paths.directory or place.startswith(f"{paths.directory}/")


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _stamped(nonce: str) -> Iterator[int]:
    wanted = f"{STAMP}={nonce}".encode()
    yield from (pid for pid in _pids() if wanted in _told(pid, "environ").split(b"\0"))


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
