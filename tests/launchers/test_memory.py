"""Which kills are taken for want of memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tenuto.launchers.payload.limits import is_large, machine_kills


def test_a_small_process_that_is_killed_was_not_killed_for_its_memory() -> None:
    """Once a job killed by hand counted as MEMORY, because a neighbour had run out of memory meanwhile."""
    assert not is_large(20 << 20)
    assert is_large(8 << 30)


def test_the_kernels_count_can_be_read() -> None:
    assert machine_kills() >= 0


SUPERVISED = """
import os, signal, sys, time
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.runner import supervisor
from tenuto.launchers.payload.limits import BoundedLogs, open_logs
from tenuto.launchers.payload.payload import Payload
from tenuto.launchers.payload.report import open_report
from tenuto.launchers.runner.runner_protocol import SIGNALS
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.machine import this_machine

supervisor.machine_kills = lambda: int(os.path.exists("killed"))  # the kernel's count
supervisor.is_large = lambda size: True
signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
paths = JobPaths(os.getcwd(), "work")
payload = Payload(this_machine(), paths, None, Instructions("t", "j", "../../.."), open_logs(paths),
                  open_report(), -1, None, None, os.getpid())
child = os.fork()
if child == 0:
    time.sleep(float(sys.argv[1]))
    open("killed", "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "0":
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # the runner is that slow
watch = supervisor.Supervisor(payload, child, BoundedLogs(paths, 1 << 20))
watch._events_due = float("inf")
print(watch.supervise().out_of_memory)
"""


@pytest.mark.parametrize("after_s", ["0", "0.5"])
def test_a_kill_for_want_of_memory_in_the_first_second_is_seen(tmp_path: Path, after_s: str) -> None:
    """The kernel's count was first read after a while; a payload that was dead by then was plainly FAILED."""
    run = [sys.executable, "-c", SUPERVISED, after_s]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "True\n", done.stderr
