"""The payload of the kill matrix: writes down that it ran, holds a lock of the test's own, and may kill.
Runs without Tenuto, so that nothing of what is judged helps to judge.

Arguments: DIRECTORY [VICTIM MOMENT] [--in-child]. The ledger has a line for each start and end, with the
attempt's nonce; a line `overlap` says that two payloads were at work at the same time.
"""

import fcntl
import os
import signal
import sys
import time


def main(directory: str, victim: str, moment: str) -> None:
    lock = os.open(f"{directory}/oracle.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note(directory, "overlap")
    note(directory, "start")
    if os.path.exists(f"{directory}/fail-once"):
        os.unlink(f"{directory}/fail-once")
        sys.exit(3)
    strike(directory, victim, "start", moment)
    # Work, so that there is something to come in between of. A child that its parent does not take along when
    # it is killed goes on working until another attempt is under way.
    time.sleep(0.4 if "--in-child" in sys.argv else 0.02)
    strike(directory, victim, "middle", moment)
    note(directory, "end")
    strike(directory, victim, "end", moment)


def note(directory: str, what: str) -> None:
    ledger = os.open(f"{directory}/ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nonce = next(value for name, value in os.environ.items() if name.endswith("TENUTO_ATTEMPT"))
    os.write(ledger, f"{what} {nonce} {os.getpid()}\n".encode())
    os.close(ledger)


def strike(directory: str, victim: str, now: str, moment: str) -> None:
    if now != moment:
        return
    pids = {
        "payload": os.getpid,
        "runner": os.getppid if "--in-child" not in sys.argv else lambda: int(os.environ["RUNNER"]),
        "parent": lambda: parent_of(os.getppid()),
        "scheduler": lambda: int(os.environ["FAULTS_SCHEDULER"]),
    }
    try:
        os.close(os.open(f"{directory}/struck-payload", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(pids[victim](), signal.SIGKILL)


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
main(*sys.argv[1:4])
