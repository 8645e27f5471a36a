"""Checks of the Slurm that this machine reaches: its answer, its accounting, its limits.
Asks Slurm, and submits nothing.
"""

from __future__ import annotations

import time

from tenuto.cli.checks import Check, CheckResult
from tenuto.launchers.slurm import commands
from tenuto.launchers.slurm.commands import SlurmError, leading_number
from tenuto.settings import Settings

SLOW_S = 2.0


def check_slurm(settings: Settings) -> list[Check]:
    """What is known of Slurm here; one line if it is not installed."""
    if not commands.is_installed():
        return [Check("slurm", CheckResult.OK, "none here (no sbatch)")]
    began = time.monotonic()
    try:
        found = commands.configuration()
    except SlurmError as error:
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
