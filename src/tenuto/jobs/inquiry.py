"""Questions of a command to the clusters that have jobs of a workspace: for two seconds in all, no longer.
Waits for no job, and changes none.
"""

from __future__ import annotations

from tenuto.launchers.clusters import Clusters
from tenuto.workspace.derive import ClusterReport
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import LaunchRecord

PATIENCE_S = 2.0


class Inquiry:
    """What one command asks."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.clusters = Clusters()
        self._left_s = PATIENCE_S

    def __call__(self, paths: JobPaths, launch: LaunchRecord) -> ClusterReport:
        """What the cluster of an attempt knows of it."""
        began = self._machine.clock.monotonic()
        report = self.clusters.report_within(paths, launch, self._left_s)
        self._left_s = max(self._left_s - (self._machine.clock.monotonic() - began), 0.0)
        return report
