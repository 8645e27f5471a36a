"""Answers for attempts that another system runs: by the launcher that their record names.
Starts nothing, and loads nothing of a cluster before the first attempt of it is asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from tenuto.errors import LauncherNotFound, SettingsError
from tenuto.launchers.protocols import Process
from tenuto.light import late
from tenuto.settings import SLURM, load_settings
from tenuto.workspace.derive import ClusterReport
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.records import LaunchRecord

if TYPE_CHECKING:
    import importlib.metadata as metadata

    from tenuto.launchers.cluster import follower
else:
    metadata = late("importlib.metadata")
    follower = late("tenuto.launchers.cluster.follower")

logger = logging.getLogger("tenuto.launchers")


class Cluster(Protocol):
    """What one system knows of the attempts that were handed over to it. No call waits for the system."""

    def report(self, paths: JobPaths, launch: LaunchRecord) -> ClusterReport:
        """The state of an attempt now.

        `ENDED` is said only if the system confirmed the end, or the fence has passed; an unknown state
        is `NOTHING`, and never an end.
        """
        ...

    def process(self, paths: JobPaths, launch: LaunchRecord) -> Process | None:
        """The process of an attempt, pending or running; None if the system is known to have ended it."""
        ...

    def stop(self, paths: JobPaths, launch: LaunchRecord) -> None:
        """Ask the system to end an attempt, pending or running; the caller has written `stop.json` before."""
        ...


class Clusters:
    """All clusters that a process asks; each is made when its first attempt is asked for."""

    def __init__(self, known: Mapping[str, Cluster] | None = None) -> None:
        """`known`: name of a launcher -> its cluster, where the caller has it already."""
        self._known: dict[str, Cluster | None] = dict(known or {})

    def report(self, paths: JobPaths, launch: LaunchRecord) -> ClusterReport:
        """What the cluster knows of an attempt; nothing if no cluster of that name can be had here."""
        cluster = self._of(launch)
        if cluster is None:
            return ClusterReport(message=f"no launcher called {launch.launcher!r} can be asked here")
        return cluster.report(paths, launch)

    def report_within(self, paths: JobPaths, launch: LaunchRecord, timeout_s: float) -> ClusterReport:
        """Like `report`, for a caller that asks once: it waits for an answer, if that takes no longer."""
        cluster = self._of(launch)
        patient = getattr(cluster, "report_within", None)
        if patient is None:
            return self.report(paths, launch)
        answer: ClusterReport = patient(paths, launch, timeout_s)
        return answer

    def told(
        self, paths: JobPaths, launch: LaunchRecord, tell: Callable[[], None]
    ) -> AbstractContextManager[None]:
        """While this lasts, `tell` is called, in any thread, when `report` may say something new.

        A cluster without `told` says nothing of its own accord.
        """
        telling = getattr(self._of(launch), "told", None)
        if telling is None:
            return nullcontext()
        context: AbstractContextManager[None] = telling(paths, launch, tell)
        return context

    def process(self, paths: JobPaths, launch: LaunchRecord) -> Process | None:
        """The process of an attempt, pending or running."""
        cluster = self._of(launch)
        return None if cluster is None else cluster.process(paths, launch)

    def job(self, paths: JobPaths, launch: LaunchRecord) -> str | None:
        """The id of an attempt's job in the cluster's own lists; None if it is not known, or has ended."""
        process = self.process(paths, launch)
        if process is None:
            return None
        found: str | None = process.describe().get("job")
        process.close()
        return found

    def stop(self, paths: JobPaths, launch: LaunchRecord) -> None:
        """Ask the cluster to end an attempt, pending or running."""
        cluster = self._of(launch)
        if cluster is not None:
            cluster.stop(paths, launch)

    def _of(self, launch: LaunchRecord) -> Cluster | None:
        name = launch.launcher
        if name not in self._known:
            self._known[name] = _loaded(name)
        return self._known[name]


def _loaded(name: str) -> Cluster | None:
    try:
        if name == SLURM or name in load_settings().clusters:
            return follower.this_follower(name)
        cluster: Cluster = load_plugin(name).cluster()
        return cluster
    except (ImportError, AttributeError, LauncherNotFound, SettingsError) as error:
        problem = str(error)
    logger.warning(
        "jobs of launcher %s cannot be asked for: %s", name, problem, extra={"action": "cluster_unknown"}
    )
    return None


# Launchers that other distributions bring, by entry points; `tenuto.testing` has contract suites for them.

GROUP = "tenuto.launchers"


def plugin_names() -> list[str]:
    """The names of the launchers that are installed besides our own."""
    return sorted({point.name for point in metadata.entry_points(group=GROUP)})


def load_plugin(name: str) -> Any:
    """What an entry point leads to: called with the settings, it makes a launcher.

    Of an external launcher's, its attribute `cluster`, called without arguments, gives the `Cluster` that
    answers for its attempts. Raises `LauncherNotFound` if there is none of that name, or it cannot be loaded.
    """
    for point in metadata.entry_points(group=GROUP, name=name):
        try:
            return point.load()
        except Exception as error:
            raise LauncherNotFound(
                f"the launcher {name!r} ({point.value}) cannot be loaded: {error}"
            ) from error
    installed = ", ".join(plugin_names()) or "none"
    raise LauncherNotFound(f"there is no launcher {name!r}; installed besides our own: {installed}")
