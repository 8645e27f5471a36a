"""The clusters that are real in these tests, and the words by which each is reached."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tenuto.settings.clusters import ClusterSettings
from tests.parts.fork_server import ran
from tests.slurm.drivers import TASKS

NAMES = ("sge", "generic", "ssh", "pbs")
GENERIC: dict[str, Any] = {
    "submit": (
        *("sbatch", "--parsable", "--no-requeue", "--chdir=/", "--job-name={name}", "--output={out}"),
        *("{options}", "[", "--array=0-{last}", "]", "{script}"),
    ),
    "options": {"time": "--time={minutes}", "cores": "--cpus-per-task={n}", "memory": "--mem={mib}M"},
    "variables": {
        "job": "SLURM_JOB_ID",
        "array": "SLURM_ARRAY_JOB_ID",
        "index": "SLURM_ARRAY_TASK_ID",
    },
    "cancel": ("scancel", "{ids}"),
    "later": ("unable to contact", "socket timed out"),
}
"""Slurm, as a site would describe a system that Tenuto has no dialect for: no list, no end."""

PBS: dict[str, Any] = {
    "variables": {"job": "SLURM_JOB_ID"},
    "list": ("sh", "-c", "qstat | awk 'NR > 2 { print $1, $5, \"-\", $2 }'"),
    "end": (),
    "signal": (),
    "largest_array": 1,
}
"""Slurm by the commands of PBS, as a site would mend the dialect: its `qdel` knows no task of an array."""


class Site(NamedTuple):
    """A cluster, as the settings of a user name it."""

    name: str
    settings: ClusterSettings | None
    """None: its jobs run on this machine."""
    environment: dict[str, str]

    @property
    def toml(self) -> str:
        """The table of the cluster in a user's `tenuto.toml`."""
        if self.settings is None:
            return ""
        default = ClusterSettings()
        lines = [f"[clusters.{self.name}]"]
        for field in dataclasses.fields(self.settings):
            value = getattr(self.settings, field.name)
            if value != getattr(default, field.name):
                lines.append(f"{field.name} = {_text(value)}")
        return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {_text(one)}" for name, one in value.items()) + "}"
    return json.dumps(value)


WAIT_S = 90.0


class Scripts:
    """A directory with a script, its workspace, and the settings that name a cluster."""

    def __init__(self, directory: Path, site: Site, tasks: str = TASKS) -> None:
        """`tasks`: what every script of the directory begins with."""
        self.directory = directory
        self.name = site.name
        self._tasks = tasks
        self.workspace = directory / "ws"
        (directory / "config" / "tenuto").mkdir(parents=True)
        settings = f'launcher = "{site.name}"\ndirty_git = "ignore"\n{site.toml}'
        (directory / "config" / "tenuto" / "tenuto.toml").write_text(settings)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")}
        self.environment = {**kept, **site.environment, "XDG_CONFIG_HOME": str(directory / "config")}
        self._open: list[subprocess.Popen[str]] = []

    def start(self, body: str) -> subprocess.Popen[str]:
        path = self.directory / "script.py"
        path.write_text(self._tasks + body)
        process = subprocess.Popen(
            [sys.executable, str(path)],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self._open.append(process)
        return process

    def ended(self, process: subprocess.Popen[str], code: int) -> str:
        _, said = process.communicate(timeout=WAIT_S)
        assert process.returncode == code, said
        return said

    def kill(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate()

    @property
    def exit_codes(self) -> list[int | None]:
        """Of the drivers, in their order."""
        return [process.poll() for process in self._open]

    def tenuto(self, *arguments: str, code: int | None = 0) -> str:
        done = ran([sys.executable, "-m", "tenuto", *arguments], self.directory, self.environment, WAIT_S)
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def jobs(self) -> list[Any]:
        found: list[Any] = json.loads(self.tenuto("jobs", "--all", "--json", "-w", str(self.workspace)))
        return found

    def ledger(self) -> list[str]:
        path = self.directory / "ledger"
        return sorted(path.read_text().splitlines()) if path.exists() else []

    def close(self) -> None:
        (self.directory / "release").touch()
        for process in self._open:
            if process.poll() is None:
                self.kill(process)
