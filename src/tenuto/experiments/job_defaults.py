"""The defaults of the jobs of an experiment: launchers, limits, places, and the tokens of this machine.
A launcher is made when it is first needed; the experiment closes them. Takes no unit of a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from tenuto.experiments.checked_arguments import RunMode
from tenuto.jobs.submission import Defaults, FormerJobs, Placement
from tenuto.jobs.validity import Validity
from tenuto.launchers.devices import visible_devices
from tenuto.launchers.instructions import CarbonPlan, Limits
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.selection import Launchers, thread_variables
from tenuto.light import late
from tenuto.scheduler.decisions import Allowance
from tenuto.scheduler.tokens import CounterToken, GpuToken, declare
from tenuto.settings import Settings, process_environment
from tenuto.tasks.ports import SubmitOptions
from tenuto.workspace.layout import Layout, directory_name
from tenuto.workspace.markers import Durability
from tenuto.workspace.ports import Files, Machine

if TYPE_CHECKING:
    from tenuto.jobs import placement, retry_rules
    from tenuto.launchers import selection
else:
    placement = late("tenuto.jobs.placement")
    retry_rules = late("tenuto.jobs.retry_rules")
    selection = late("tenuto.launchers.selection")

T = TypeVar("T", bound=CounterToken)


class JobDefaults:
    """The defaults of one experiment."""

    def __init__(
        self,
        settings: Settings,
        launcher: Launcher | str | None,
        carbon_plan: CarbonPlan | None,
        validity: Validity,
        former: FormerJobs,
        declare_gpus: placement.DeclareGpus,
        files: Files,
    ) -> None:
        """`launcher`: the script's choice for all tasks; `declare_gpus`: makes a token of GPUs.

        `files`: of the workspace, for needs that are learned from jobs of the same class.
        """
        self._files = files
        self._learned: dict[str, Allowance] = {}
        """What jobs of a class used, by the directory of their task."""
        self._settings = settings
        self._launcher = launcher
        self._carbon_plan = carbon_plan
        self._validity = validity
        self._former = former
        self._declare_gpus = declare_gpus
        self.launchers: Launchers | None = None
        """The launchers that jobs needed so far."""
        self._placer: placement.Placer | None = None
        self._defaults: Defaults | None = None

    def get(self) -> Defaults:
        """The defaults, made at the first call."""
        if self._defaults is None:
            chosen = self._settings
            launcher = self._chosen_launcher() or self.named(chosen.launcher)
            limits = Limits(chosen.walltime_s, chosen.memory_bytes, chosen.log_bytes, chosen.grace_s)
            self._defaults = Defaults(
                launcher,
                limits,
                self._place,
                chosen.max_retries,
                chosen.max_lost_retries,
                chosen.retry,
                self._needs_used if chosen.learn else None,
                self._carbon_plan,
                Durability(chosen.durability),
                self._validity,
                self._former,
                thread_variables(1, process_environment()),
            )
        return self._defaults

    def named(self, name: str) -> Launcher:
        """A launcher by its name."""
        return self._all_launchers().named(name)

    def _chosen_launcher(self) -> Launcher | None:
        """The launcher that the script chose for all tasks."""
        if isinstance(self._launcher, str):
            self._launcher = self.named(self._launcher)
        return self._launcher

    def _all_launchers(self) -> Launchers:
        if self.launchers is None:
            self.launchers = Launchers(self._settings)
        return self.launchers

    def _needs_used(self, layout: Layout, task_id: str) -> Allowance:
        """What done jobs of a task used; read once for each task."""
        folder = layout.task(task_id)
        if folder not in self._learned:
            self._learned[folder] = retry_rules.needs_used(self._files, layout, task_id)
        return self._learned[folder]

    def _place(self, task: Any, submission: SubmitOptions, environment: Mapping[str, str]) -> Placement:
        """The place of a task that has a requirement."""
        if self._placer is None:
            found = selection.Finder(self._settings, self._all_launchers())
            self._placer = placement.Placer(found, self.get().limits, self._declare_gpus)
        launcher = submission.launcher or self._chosen_launcher()
        is_own = submission.launcher is not None
        return self._placer.place(task, submission.requires, launcher, environment, is_own=is_own)


class MachineTokens:
    """Makes tokens; their files are written only where jobs are run."""

    def __init__(self, machine: Machine, settings: Settings, mode: RunMode) -> None:
        self._machine = machine
        self._path = settings.tokens_path
        self._mode = mode

    def counter(self, name: str, count: int) -> CounterToken:
        """A token of `count` units."""
        return self._declared(CounterToken(name, count, self._directory))

    def gpus(self, devices: Mapping[int, str] | None = None) -> GpuToken:
        """A token with a unit for each GPU, by default for each GPU that this process sees."""
        return self._declared(GpuToken(visible_devices() if devices is None else devices, self._directory))

    @property
    def _directory(self) -> str:
        return f"{self._path}/{directory_name(self._machine.processes.own().host)}"

    def _declared(self, token: T) -> T:
        if self._mode is RunMode.NORMAL:
            declare(self._machine, token)
        return token
