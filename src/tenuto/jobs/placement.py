"""The place of a task that needs something: its launcher, and what its requirement allots to it there.
Decides for one task; starts nothing. Loaded when the first requirement is met.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tenuto.errors import LauncherNotFound, RequirementError
from tenuto.jobs.submission import Placement
from tenuto.launchers.devices import fitting_devices
from tenuto.launchers.instructions import Limits
from tenuto.launchers.nodes import NODES, TASKS
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.requirements import Alternative, Requirement
from tenuto.launchers.selection import Finder, limits_with, thread_variables
from tenuto.scheduler.tokens import GpuToken, TokenDependency
from tenuto.settings import process_environment
from tenuto.tasks.base import class_name

DeclareGpus = Callable[[Mapping[int, str]], GpuToken]
"""Makes a token of GPUs: number on this machine -> name."""


class Placer(NamedTuple):
    """Finds the place of each task of an experiment that needs something."""

    finder: Finder
    limits: Limits
    """Of a job whose requirement leaves them open."""
    declare_gpus: DeclareGpus

    def place(
        self,
        task: Any,
        given: Any,
        launcher: Launcher | None,
        set_: Mapping[str, str],
        *,
        is_own: bool = False,
    ) -> Placement:
        """The place of one task.

        `given`: the requirement of its submission, or None; `launcher`: the script's choice; `set_`:
        variables of the experiment; `is_own`: it chose the launcher for this submission, so that what the
        launcher says wins over the class of the task. Raises `LauncherNotFound` if nothing satisfies the
        requirement.
        """
        requirement = requirement_of(task, given)
        firm: Callable[[], Launcher] | None = getattr(launcher, "firm", None)
        if is_own and given is None and firm is not None:
            launcher = firm()
        try:
            chosen, alternative, _ = self.finder.choose(requirement, launcher)
        except LauncherNotFound as error:
            raise LauncherNotFound(f"{class_name(task)}: {error}") from None
        if chosen.external:
            limits = limits_with(self.limits, alternative)
            if (asked := chosen.limits) is not None:  # it asks for what the alternative says, or wins over it
                limits = limits._replace(memory_bytes=asked.memory_bytes or limits.memory_bytes)
                if alternative.duration_s is not None:
                    limits = limits._replace(walltime_s=asked.walltime_s)
            variables = thread_variables(alternative.cores, set_) | variables_of(alternative)
            return Placement(chosen, limits, variables, asked=str(alternative))
        variables = thread_variables(alternative.cores or 1, set_, process_environment())
        return Placement(
            chosen,
            limits_with(self.limits, alternative),
            variables | variables_of(alternative),
            alternative.cores_per_node,
            self._gpus(alternative),
            asked=str(alternative),
        )

    def _gpus(self, alternative: Alternative) -> tuple[TokenDependency, ...]:
        """Units of this machine's GPUs: a job that asks for one has it to itself."""
        if alternative.gpus is None:
            return ()
        token = self.declare_gpus(fitting_devices(alternative.gpus))
        return (token.dependency(alternative.gpus.count),)


def variables_of(alternative: Alternative) -> dict[str, str]:
    """What `tenuto.nodes()` reads in a job of several tasks or nodes; none for others."""
    if alternative.nodes is None and alternative.tasks is None:
        return {}
    nodes = alternative.nodes or 1
    return {NODES: str(nodes), TASKS: str(alternative.tasks or nodes)}


def requirement_of(task: Any, given: Any) -> Requirement:
    """What a task needs: as its submission says, or else its class."""
    where = "__requires__" if given is None else "requires"
    try:
        return Requirement.parse(type(task).__requires__ if given is None else given)
    except RequirementError as error:
        told = f"{where} of {class_name(task)} cannot be read:\n{error}"
        raise RequirementError(told, error.text, error.position) from None
