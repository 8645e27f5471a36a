"""The payload of the kill matrix: writes down that it ran, holds a lock of the test's own, and may kill.
Runs without Tenuto, so that nothing of what is judged helps to judge.

Arguments: DIRECTORY JOB [VICTIM MOMENT], and any of --until-seen, --until-ended, --long SECONDS, --fails,
--in-child.
The ledger has a line for each start and end, with the job and the attempt's nonce; a line `overlap` says that
two payloads were at work at the same time, `unseen` that no later scheduler ever saw the work that was to
last until one did, or ended the work that was to last until then.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 2.0
"""How long the payload of another job that had the same units may still be there if its runner is dead: the
kernel ends it an instant after the units were given back. One of the same job must be gone before."""
SEEN_S = 20.0
ANOTHER_S = 20.0


def main(directory: str, job: str, victim: str, moment: str) -> None:
    lock = os.open(f"{directory}/oracle.lock", os.O_RDWR | os.O_CREAT, 0o600)
    if not eventually(lambda: is_mine(lock), PATIENCE_S if is_orphan_of_another(lock, job) else 0.0):
        note(directory, "overlap")
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{job} {runner()}".encode(), 0)
    note(directory, "start")
    if os.path.exists(f"{directory}/fail-once"):
        os.unlink(f"{directory}/fail-once")
        sys.exit(3)
    strike(directory, victim, "start", moment)
    if "--until-seen" in sys.argv and not eventually(lambda: os.path.exists(f"{directory}/seen"), SEEN_S):
        note(directory, "unseen")
    if "--until-ended" in sys.argv:  # by a signal, which no scheduler may fail to send
        eventually(lambda: False, SEEN_S)
        note(directory, "unseen")
    if "--long" in sys.argv:
        lines = entries(directory)
        eventually(lambda: entries(directory) > lines, float(sys.argv[sys.argv.index("--long") + 1]))
    time.sleep(0.02)  # work, so that there is something to come in between of
    strike(directory, victim, "middle", moment)
    note(directory, "end")
    strike(directory, victim, "end", moment)
    if "--fails" in sys.argv:
        sys.exit(3)


def is_orphan_of_another(lock: int, job: str) -> bool:
    """Whether who wrote last that it has the lock belongs to another job, whose runner is dead."""
    other, _, pid = os.pread(lock, 100, 0).decode().partition(" ")
    return other not in ("", job) and not is_alive(pid)


def is_alive(pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stream:
            return stream.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def runner() -> int:
    return int(os.environ["RUNNER"]) if "--in-child" in sys.argv else os.getppid()


def is_mine(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def eventually(condition: Callable[[], bool], patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.001)
    return True


def note(directory: str, what: str) -> None:
    ledger = os.open(f"{directory}/ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nonce = next(value for name, value in os.environ.items() if name.endswith("TENUTO_ATTEMPT"))
    os.write(ledger, f"{what} {sys.argv[2]} {nonce} {os.getpid()}\n".encode())
    os.close(ledger)


def strike(directory: str, victim: str, now: str, moment: str) -> None:
    if now != moment:
        return
    pids: dict[str, Callable[[], int]] = {
        "payload": os.getpid,
        "runner": runner,
        "parent": lambda: parent_of(os.getppid()),
        "scheduler": lambda: int(os.environ["FAULTS_SCHEDULER"]),
    }
    try:
        os.close(os.open(f"{directory}/struck-payload", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(pids[victim](), signal.SIGKILL)
    if victim == "runner" and "--in-child" in sys.argv:
        # Its parent does not take it along: it goes on working until another attempt is under way.
        lines = entries(directory)
        eventually(lambda: entries(directory) > lines, ANOTHER_S)


def entries(directory: str) -> int:
    with open(f"{directory}/ledger") as stream:
        return len(stream.readlines())


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as stream:
        return int(stream.read().rpartition(")")[2].split()[1])


if "--start-child" in sys.argv:
    # As `subprocess` does it: a child that holds none of the descriptors its parent has.
    os.environ["RUNNER"] = str(os.getppid())
    arguments = [sys.executable, "-I", "-S", __file__, *sys.argv[1:-1], "--in-child"]
    os.closerange(3, 256)
    pid = os.posix_spawn(sys.executable, arguments, os.environ)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
main(*sys.argv[1:5])
