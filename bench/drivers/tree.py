"""Owns one measured command: runs it, ends all it left, prints what it cost; `tree.py TIMEOUT_S COMMAND ...`.

A child subreaper: whatever the command starts stays below this process, so that its CPU time is counted and
nothing outlives the measurement. Told to stop (TERM), or left alone by who started it, it ends everything.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(pid) for pid in file.read().split()]


def end_all():
    """Each that dies hands its children to us, until there are none."""
    while left := children():
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.waitpid(-1, 0)


def stop(*_):
    raise TimeoutError


def run(argv, timeout_s):
    """The exit status of a command; None if it took too long, or a stop was asked for.

    What others left to us is reaped as it ends, as it would be without a benchmark around it.
    """
    try:
        signal.setitimer(signal.ITIMER_REAL, timeout_s)
        pid = os.posix_spawnp(argv[0], argv, os.environ)
        while True:
            ended, status = os.waitpid(-1, 0)
            if ended == pid:
                signal.setitimer(signal.ITIMER_REAL, 0)
                return status
    except TimeoutError:
        return None


def main():
    signal.signal(signal.SIGALRM, stop)
    signal.signal(signal.SIGTERM, stop)
    kernel = ctypes.CDLL(None, use_errno=True)
    kernel.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    kernel.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    began = time.perf_counter()
    status = run(sys.argv[2:], float(sys.argv[1]))
    wall_s = time.perf_counter() - began
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_all()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seen = {
        "cpu_s": used.ru_utime + used.ru_stime,
        "wall_s": wall_s,
        "peak_kb": used.ru_maxrss,
        "timed_out": status is None,
        "exit_code": 0 if status is None else os.waitstatus_to_exitcode(status),
    }
    print("\n" + json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()
