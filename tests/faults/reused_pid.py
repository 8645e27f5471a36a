"""A job whose runner's pid belongs to another process by now. To be run in a pid namespace of its own:

unshare --user --map-root-user --pid --fork --mount-proc python reused_pid.py DIRECTORY
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from builders import WAIT_S, abandoned, eventually, oracle

from tenuto.lifecycle.states import JobState
from tenuto.workspace.job_directory import look, read_pid
from tenuto.workspace.ports import Liveness

LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


def reap_all() -> None:
    """As the init of the namespace; a zombie keeps its pid."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def process_with(pid: int) -> subprocess.Popen[bytes]:
    """A process that sleeps, under a chosen pid."""

    def tried() -> subprocess.Popen[bytes] | None:
        LAST_PID.write_text(str(pid - 1))
        process = subprocess.Popen(["sleep", "600"], start_new_session=True)
        if process.pid == pid:
            return process
        process.kill()
        process.wait()
        return None

    found: subprocess.Popen[bytes] = eventually(tried, f"pid {pid}")
    return found


def main(directory: Path) -> None:
    with abandoned(directory) as bench:
        paths = bench.paths("job")
        record = read_pid(bench.machine.files, paths, 1)
        assert record is not None
        reap_all()
        innocent = process_with(record.identity.pid)
        assert look(bench.machine, paths).evidence.liveness is Liveness.DEAD
        assert bench.machine.processes.open(record.identity) is None
        job = bench.command("job", *oracle(directory / "ran"))
        assert job.wait(WAIT_S) is JobState.DONE
        assert job.attempt == 2
        assert innocent.poll() is None
        innocent.kill()
        print("as it should be")


main(Path(sys.argv[1]))
