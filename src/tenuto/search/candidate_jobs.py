"""The job of a claimed candidate: its stored parameters, its limits, its launcher, and a GPU if it gets one.
Submits nothing.
"""

from __future__ import annotations

import json
import os.path
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from tenuto.clock import Clock
from tenuto.errors import SearchError
from tenuto.jobs.retry import StoredWork
from tenuto.jobs.retry_rules import read_rules
from tenuto.jobs.validity import StoredValidity
from tenuto.launchers.devices import visible_devices
from tenuto.launchers.instructions import Limits
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.requirements import Alternative, Requirement
from tenuto.launchers.selection import AUTO, LOCAL, choose_launcher, is_local, node_launcher
from tenuto.scheduler.decisions import NO_RETRY, Allowance, RetryLimits
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.tokens import GpuToken, TokenDependency, declare
from tenuto.search.programs import PROGRAM_TASK
from tenuto.search.rows import Claimed
from tenuto.settings import Settings
from tenuto.tasks.seeds import SEED
from tenuto.tasks.serialization import dumps
from tenuto.workspace.layout import Layout, directory_name
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import Durability
from tenuto.workspace.ports import Machine

LEASE_FILE = "search.lease"


@lru_cache
def needs_of(requires: str | None) -> Alternative | None:
    """What the task of a search asks for, as its definition has it."""
    return None if requires is None else Requirement.parse(requires).alternatives[0]


def _retry(row: Claimed, limits: Limits) -> RetryLimits:
    """The further attempts that the task of a search has by its rules: they are one candidate's."""
    text = row.definition.get("retry")
    if text is None:
        return NO_RETRY
    needs = Allowance(limits.memory_bytes, limits.walltime_s)
    return RetryLimits(rules=read_rules(text, "__retry__"), needs=needs, by_rules=True)


class AgentChange(NamedTuple):
    """What an agent made: a commit, its cost, and the job that evaluates it."""

    commit: str
    cost: float
    task_id: str
    job_id: str
    params: str

    @property
    def directory(self) -> str:
        """The directory of its evaluation, as rows keep it."""
        return os.path.join("jobs", self.task_id, self.job_id)


def change_of(returned: Any) -> AgentChange | None:
    """The change in what the job of an agent returned; None if it returned an outcome, which is a failure."""
    if isinstance(returned, dict) and isinstance(returned.get("evaluation"), dict):
        return AgentChange(returned["commit"], returned["cost"], **returned["evaluation"])
    return None


def repeated(row: Claimed, repeat: int) -> tuple[str, str]:
    """The id and the parameters of a further evaluation of a candidate, which has the next seed."""
    document = json.loads(row.params)
    task = document["objects"][document["value"]["$ref"]]
    place, key = (task, "seed") if task.get("seed") is not None else (task["values"], SEED)
    place[key] = (place[key] + repeat) % (1 << 32)
    return sha256(f"{row.job_id}/{repeat}".encode()).hexdigest(), dumps(document).decode("ascii")


class CandidateJobs:
    """Makes the jobs of one agent."""

    def __init__(
        self,
        settings: Settings,
        workspace: Path,
        clock: Clock,
        *,
        slots: int,
        is_leased: bool,
        gpus: GpuToken | None = None,
    ) -> None:
        self._settings = settings
        self._layout = Layout(str(workspace))
        self._clock = clock
        self._lease_path = str(workspace / LEASE_FILE) if is_leased else None
        self._validity = StoredValidity(this_machine().files)
        self._tokens = () if gpus is None else (TokenDependency(gpus, 1),)
        self._launcher = node_launcher(settings, slots)
        if gpus is not None and self._launcher.external:
            told = "cannot hold the GPUs of this machine: leave them out of the search"
            raise SearchError(f"jobs of {self._launcher.name} {told}")

    @cached_property
    def _agents(self) -> Launcher:
        """The launcher of agents, which have slots of their own; made when the first one runs."""
        kind = self._settings.launcher
        has_own = is_local(kind) and kind != AUTO
        return choose_launcher(kind if has_own else LOCAL, self._settings.search.agent_slots)

    def make(self, row: Claimed, change: AgentChange | None = None, *, once: bool, repeat: int = 0) -> Job:
        """The job of a row, or the one that evaluates what its agent changed.

        `once`: whatever attempt its directory shows is its answer; `repeat`: which of its evaluations.
        """
        is_agent = row.task_id == PROGRAM_TASK and change is None
        named = row if change is None else change
        job_id, params = (named.job_id, named.params) if not repeat else repeated(row, repeat)
        needs = None if is_agent else needs_of(row.definition.get("requires"))
        limits = self._limits(row, needs)
        slots = 1 if needs is None or self._launcher.external else needs.cores_per_node
        job = Job(
            named.task_id,
            job_id,
            layout=self._layout,
            launcher=self._agents if is_agent else self._adapted(needs, limits),
            slots=min(slots, self._launcher.slots),
            work=StoredWork(params.encode("ascii")),
            clock=self._clock,
            tokens=() if is_agent else self._tokens,
            limits=limits,
            retry=_retry(row, limits) if change is None and not is_agent else NO_RETRY,
            durability=Durability(self._settings.durability),
            once=once,
            priority=row.priority,
        )
        job.reuse = self._validity
        return job

    def _adapted(self, needs: Alternative | None, limits: Limits) -> Launcher:
        """The launcher of candidates; a cluster is asked for what they need, and for their limits."""
        of_limits = {"duration_s": limits.walltime_s, "memory_bytes": limits.memory_bytes}
        if not self._launcher.external or (needs is None and not any(of_limits.values())):
            return self._launcher
        made: Any = partial(replace, needs) if needs is not None else Alternative
        return self._launcher.adapted(made(**of_limits))

    def _limits(self, row: Claimed, needs: Alternative | None) -> Limits:
        settings = self._settings
        duration_s, memory_bytes = row.definition.get("walltime_s"), None
        if needs is not None:
            duration_s, memory_bytes = duration_s or needs.duration_s, needs.memory_bytes
        limits = Limits(
            duration_s or settings.walltime_s,
            memory_bytes or settings.memory_bytes,
            settings.log_bytes,
            settings.grace_s,
        )
        if self._lease_path is not None:
            limits = limits._replace(lease_path=self._lease_path, lease_s=settings.search.lease_s)
        return limits

    def close(self) -> None:
        self._launcher.close()
        if "_agents" in self.__dict__:
            self._agents.close()


def gpus_of(settings: Settings, machine: Machine) -> GpuToken:
    """The GPUs that this process may use, shared with everything else on the machine that asks for them.

    Raises `SearchError` if none is visible.
    """
    devices = visible_devices()
    if not devices:
        raise SearchError("--gpus: no GPU is visible here; see nvidia-smi, and CUDA_VISIBLE_DEVICES")
    host = machine.processes.own().host
    token = GpuToken(devices, f"{settings.tokens_path}/{directory_name(host)}")
    declare(machine, token)
    return token
