"""A private Slurm for the tests: real daemons on loopback, in a directory of their own, up in a second."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.parts.slurm_configuration import Shape

END_S = 20.0
KEEPER = Path(__file__).with_name("slurm_keeper.py")


class PrivateSlurm:
    """One cluster, which ends with `close`, or with this process."""

    def __init__(self, shape: Shape | None = None) -> None:
        self.shape = shape or Shape()
        self.directory = Path(tempfile.mkdtemp(prefix="tn-slurm-", dir="/tmp"))
        self.directory.chmod(0o755)
        command = [sys.executable, str(KEEPER), str(self.directory), json.dumps(self.shape._asdict())]
        with open(self.directory / "keeper.log", "wb") as log:
            self._keeper = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        answer = self._answer()
        if answer != "up":
            self.close()
            raise RuntimeError(f"the cluster did not start: {answer}")

    @property
    def environment(self) -> dict[str, str]:
        """Variables for every Slurm command, and for the scheduler under test."""
        return {"SLURM_CONF": str(self.directory / "slurm.conf")}

    def run(self, *command: str, check: bool = True, timeout_s: float = 60) -> str:
        """Runs a command of Slurm's; its output."""
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def crash(self, name: str) -> None:
        """Kills a daemon: `slurmctld`, `slurmd.n1` (its jobs go on), `node.n1` (a power failure)."""
        self._tell(f"crash {name}")

    def stop(self, name: str) -> None:
        """Ends a daemon as it is meant to end: it saves its state."""
        self._tell(f"stop {name}")

    def again(self, name: str) -> None:
        """Starts a daemon that was ended."""
        self._tell(f"again {name}")

    def cancel_all(self) -> None:
        """Ends every job, and waits until Slurm shows none: the next test would take it for its own."""
        give_up = time.monotonic() + END_S
        while time.monotonic() < give_up:
            self.run("scancel", "-Q", "--me", check=False)
            if not self.run("squeue", "-h", "-t", "PENDING,RUNNING,COMPLETING", check=False).strip():
                return
            time.sleep(0.1)

    def close(self) -> None:
        """Ends the cluster; nothing of it is left."""
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.close()
        self._keeper.wait(60)
        self._keeper.stdout.close()

    def _tell(self, line: str) -> None:
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(f"{line}\n")
        self._keeper.stdin.flush()
        answer = self._answer()
        if answer != "ok":
            raise RuntimeError(f"{line}: {answer}")

    def _answer(self) -> str:
        assert self._keeper.stdout is not None
        return self._keeper.stdout.readline().strip()
