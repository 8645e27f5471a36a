"""The script of a researcher, the same for every cluster, and what its ledger tells."""

from __future__ import annotations

from typing import NamedTuple

SCRIPT = """
import os, socket, sys, time
from pathlib import Path
from tenuto import Param, Task, experiment

HERE = Path(__file__).parent

def note(*words):
    with open(HERE / "ledger", "a") as ledger:
        ledger.write(" ".join(map(str, words)) + "\\n")

class Job(Task):
    name: Param[str]
    takes_s: Param[float]
    holds: Param[bool] = False

    def execute(self):
        host = os.environ.get("TENUTO_SSH_JOB", "").rpartition(":")[0] or socket.gethostname()
        note("begin", self.name, self.job_attempt, host)
        end = time.monotonic() + (600 if self.holds else self.takes_s)
        while time.monotonic() < end and not (self.holds and (HERE / "release").exists()):
            time.sleep(0.02)
        if self.name == "fails":
            raise ValueError("as it is meant to")
        note("end", self.name, self.job_attempt, host)

if __name__ == "__main__":
    jobs, holding = int((HERE / "jobs").read_text()), 2
    with experiment(HERE / "ws", "proof"):
        for number in range(holding):
            Job.C(name=f"holds{number}", takes_s=0.0, holds=True).submit()
        Job.C(name="fails", takes_s=0.1).submit()
        for number in range(jobs - holding - 1):
            Job.C(name=f"n{number}", takes_s=number % 7 / 20).submit()
"""


class Note(NamedTuple):
    """One line of the ledger."""

    what: str
    name: str
    attempt: int
    host: str


def read(ledger: list[str]) -> list[Note]:
    """What the payloads noted; a payload that was killed in the middle of a line noted nothing."""
    words = [line.split() for line in ledger]
    return [Note(one[0], one[1], int(one[2]), one[3]) for one in words if len(one) == len(Note._fields)]
