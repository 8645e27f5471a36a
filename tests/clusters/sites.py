"""The clusters that are real in these tests, and the words by which each is reached."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tenuto.settings.clusters import ClusterSettings

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
    settings: ClusterSettings
    environment: dict[str, str]

    @property
    def toml(self) -> str:
        """The table of the cluster in a user's `tenuto.toml`."""
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
