"""The launcher of a cluster: gathers orders into arrays and submits them, for the follower to watch.
Judges no job, and knows no word of a batch system. An attempt has a claim: submitted twice, it runs once.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tenuto.errors import LauncherNotFound, LaunchRefused
from tenuto.launchers.cluster import submission
from tenuto.launchers.cluster.allocations import (
    Pilots,
    host_of,
    pilot_options,
    pilot_slots,
    shared,
    why_alone,
)
from tenuto.launchers.cluster.dialect import (
    ClusterError,
    ClusterOptions,
    CommandThreads,
    Dialect,
    JobScript,
    SubmissionOutcome,
)
from tenuto.launchers.cluster.follower import ClusterFollower, this_follower
from tenuto.launchers.cluster.submission import Place, SubmittedAttempt
from tenuto.launchers.cluster.tracked import ClusterProcess, Handed
from tenuto.launchers.instructions import Instructions, Limits
from tenuto.launchers.manifest import Header, Order
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.requirements import Alternative, Gpus, Host, Requirement, time_text, unfit
from tenuto.launchers.runner.runner_protocol import LAST_WORDS_S
from tenuto.settings import load_settings
from tenuto.settings.clusters import ClusterSettings
from tenuto.tasks.arguments import guarded
from tenuto.workspace.claims import is_claimed
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.records import LaunchRecord, PidRecord

logger = logging.getLogger("tenuto.cluster")

GATHER_S = 0.1
"""Orders are gathered until so long brings no new one,"""
GATHER_MOST_S = 1.0
"""but no longer than this."""


@dataclass(eq=False)
class Batch:
    """Orders of one workspace and one set of options that are gathered for one submission."""

    began: float
    orders: list[Handed] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None


class Gathering:
    """The orders of one launcher, and of those adapted from it; used in the loop of a scheduler."""

    def __init__(self, submit: Callable[[list[Handed]], None], most: int) -> None:
        self._submit = submit
        self._most = most
        self._batches: dict[tuple[str, ClusterOptions], Batch] = {}

    def add(self, handed: Handed) -> None:
        """An order, which is submitted with those that come in a moment."""
        loop = asyncio.get_running_loop()
        key = handed.root, handed.options
        batch = self._batches.setdefault(key, Batch(loop.time()))
        batch.orders.append(handed)
        if batch.timer is not None:
            batch.timer.cancel()
        rest_s = batch.began + GATHER_MOST_S - loop.time()
        if len(batch.orders) >= self._most or rest_s <= 0:
            self._flush(key)
        else:
            batch.timer = loop.call_later(min(GATHER_S, rest_s), self._flush, key)

    def _flush(self, key: tuple[str, ClusterOptions]) -> None:
        self._submit(self._batches.pop(key).orders)


@guarded
class ClusterLauncher:
    """Runs jobs through the batch system of a cluster."""

    external = True
    lock_path: str | None = None

    def __init__(
        self,
        name: str,
        options: ClusterOptions | None = None,
        *,
        settings: ClusterSettings | None = None,
        cluster: ClusterFollower | None = None,
        grace_s: float | None = None,
    ) -> None:
        """`name`: of the cluster, as in `[clusters.NAME]`. `options`: what each job asks for, in place of
        what the settings say. `settings`: the rest.

        `grace_s`: how long jobs may take to stop, by default as the settings say; asked for on top.
        """
        self.name = name
        self.settings = settings or load_settings().cluster(name)
        self.grace_s = load_settings().grace_s if grace_s is None else grace_s
        self.options = options or ClusterOptions.of(self.settings)
        self.cluster = cluster or this_follower(name)
        self.cluster.use(self.settings)
        self._most_jobs = min(self.settings.max_jobs, self.dialect.most_jobs())
        self.dialect.check(self.options)
        self.arguments()  # what the system has no word for is refused before any job is
        if self.settings.pilots:
            self.dialect.arguments(pilot_options(self.options, self.settings), self.grace_s)
        self._said: frozenset[str] = frozenset() if options is None else options.said()
        """The options that a script chose, by their names,"""
        self._kept: frozenset[str] = frozenset()
        """and those of them that no requirement changes."""
        self._gpus: Gpus | None = None
        """The GPUs that a requirement asked for: options do not say their memory."""
        self._is_placed = False
        """True if the partition was chosen by what jobs need."""
        self._python = self.settings.python or sys.executable
        submitter = ClusterSubmitter(self.cluster, self.settings, self._python, self.grace_s)
        self._pilots: dict[tuple[str, ClusterOptions], Pilots] = {}
        self._gathering = Gathering(submitter.submit, self.settings.array_size)
        self._pools: tuple[object, object] = self, object()
        self._settle()
        if self._why_alone is not None and self.settings.pilots and (options is None or options.time_s):
            told = {"action": "cluster_pilots_unused"}
            logger.warning("jobs get allocations of their own: %s", self._why_alone, extra=told)

    @property
    def dialect(self) -> Dialect:
        return self.cluster.dialect

    @property
    def pool(self) -> object:
        """Launchers that were adapted from one share its slots; jobs of pilots have slots of their own."""
        return self._pools[self._is_piloted]

    def _settle(self) -> None:
        """Derives from the options what schedulers ask for."""
        self._why_alone = why_alone(self.name, self.options, self.settings, self.grace_s)
        # A driver that hands over more than its pilots hold is busy with that while they have nothing to run.
        self.slots: int = pilot_slots(self.settings) if self._is_piloted else self._most_jobs
        # The runner sees to them: not every batch system does, and none sees the jobs of a pilot.
        self.limits: Limits | None = Limits(
            self.options.time_s, self.options.memory_bytes, grace_s=self.grace_s
        )

    @property
    def _is_piloted(self) -> bool:
        return self._why_alone is None

    def adapted(self, alternative: Alternative) -> ClusterLauncher:
        """This launcher, asking the system for what a requirement says; else `LauncherNotFound`."""
        options, offered = self.options, self._offered()
        problem = self.dialect.unsayable(alternative)
        if offered:
            options = replace(options, partition=self._partition(self._needs(alternative), offered))
        elif problem is not None:
            raise LauncherNotFound(problem)
        options = options.adapted(alternative, self._kept)
        if options.partition in offered and offered[options.partition or ""].gpus:
            options = replace(options, gpu_type=None)  # the settings say which GPUs the partition has
        if options == self.options and not self._kept:
            return self
        self.dialect.arguments(options, self.grace_s)
        said = self._said | options.said() - self.options.said()
        return self._copy(
            options=options,
            _said=said,
            _kept=frozenset(),
            _gpus=alternative.gpus or self._gpus,
            _is_placed=bool(offered) and self._may_choose(),
        )

    def held(self, alternative: Alternative) -> Alternative:
        """An alternative whose memory, or else its duration, is held to the most that a partition has.

        For needs that grow: what no partition holds is not asked for.
        """
        hosts, needs = list(self._offered().values()), self._needs(alternative)
        if not hosts or any(unfit(needs, host) is None for host in hosts):
            return alternative
        for need, limit in (("memory_bytes", "memory_bytes"), ("duration_s", "max_duration_s")):
            rest: Any = replace(needs, **{need: None})
            found = [getattr(host, limit) for host in hosts if unfit(rest, host) is None]
            if found and getattr(alternative, need) is not None:
                changes: Any = {need: max(found)}
                return replace(alternative, **changes)
        return alternative

    def _may_choose(self) -> bool:
        """True unless a script chose the partition."""
        return self._is_placed or "partition" not in self._said

    def _offered(self) -> dict[str, Host]:
        """The partitions that jobs may use, as far as the settings tell of them."""
        told = (self.settings.partitions or {}).items()
        offered = {name: host_of(partition, self.grace_s) for name, partition in told}
        own = self.options.partition
        return offered if self._may_choose() else {name: offered[name] for name in offered if name == own}

    def _needs(self, alternative: Alternative) -> Alternative:
        """What jobs need that ask for an alternative besides what this launcher says."""
        asked = self.options.adapted(alternative, self._kept)
        return asked.needs(alternative.gpus or self._gpus)

    def firm(self) -> ClusterLauncher:
        """This launcher, whose own options no requirement changes: a script chose it for one task."""
        return self._copy(_kept=self._said)

    def _copy(self, **changes: Any) -> ClusterLauncher:
        launcher = object.__new__(type(self))
        launcher.__dict__.update(self.__dict__, **changes)
        launcher._settle()
        return launcher

    def _partition(self, alternative: Alternative, hosts: Mapping[str, Host]) -> str:
        """The partition of the settings that an alternative fits best; else `LauncherNotFound`."""
        found = {
            name: match for name, host in hosts.items() if (match := Requirement((alternative,)).match(host))
        }
        if found:
            return max(found, key=lambda name: found[name].score)
        why = "; ".join(f"{name}: {unfit(alternative, host)}" for name, host in hosts.items())
        kept = time_text(self.grace_s + LAST_WORDS_S)
        kept = "" if alternative.duration_s is None else f" (of its time {kept} are for the end of a job)"
        raise LauncherNotFound(f"no partition of {self.name} fits: {why}{kept}")

    @property
    def asked(self) -> str:
        """Its request for each job, as a requirement."""
        return str(self.options.needs(self._gpus))

    def arguments(self) -> list[str]:
        """What the system is asked for each job."""
        return self.dialect.arguments(self.options, self.grace_s)

    def why_refused(self) -> str | None:
        """Why the system would refuse a job, in its words; None if it would take it, or does not answer."""
        try:
            return self.dialect.why_refused(self.arguments())
        except ClusterError:
            return None

    async def start(self, order: StartOrder) -> ClusterProcess:
        """Hand an order over; returns once the system has it. Raises `LaunchRefused` with its words."""
        loop = asyncio.get_running_loop()
        process: asyncio.Future[ClusterProcess] = loop.create_future()

        def answer(result: ClusterProcess | Exception) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, process, result)

        attempt = self.cluster.expect(order.paths, order.launch)
        root = Instructions.of(order.launch).layout(order.paths).root
        line = Order(order.paths.directory, order.paths.script_name, order.launch.nonce)
        handed = Handed(root, line, attempt, self.options, answer)
        (self._pilots_of(root) if self._is_piloted else self._gathering).add(handed)
        return await process

    def _pilots_of(self, root: str) -> Pilots:
        key = root, shared(self.options)
        if key not in self._pilots:
            self._pilots[key] = Pilots(self.cluster, self.settings, self._python, self.grace_s, *key)
        return self._pilots[key]

    def find(self, paths: JobPaths, launch: LaunchRecord, pid: PidRecord | None) -> ClusterProcess | None:
        return self.cluster.process(paths, launch)

    async def sweep(self, paths: JobPaths, launch: LaunchRecord | None) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        """Jobs continue, and are found again by their submissions; pilots end after their last order."""
        for pilots in self._pilots.values():
            pilots.close()
        self._pilots.clear()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({' '.join(self.arguments())})"


@guarded
class SlurmLauncher(ClusterLauncher):
    """Runs jobs through Slurm."""

    def __init__(
        self,
        options: ClusterOptions | None = None,
        *,
        settings: ClusterSettings | None = None,
        cluster: ClusterFollower | None = None,
        grace_s: float | None = None,
    ) -> None:
        """As a `ClusterLauncher`, of the cluster `slurm`."""
        super().__init__("slurm", options, settings=settings, cluster=cluster, grace_s=grace_s)


def _resolve(future: asyncio.Future[ClusterProcess], result: ClusterProcess | Exception) -> None:
    if future.done():
        if isinstance(result, ClusterProcess):
            result.close()
    elif isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


AT_ONCE = 2
FIRST_LOOK_S = 0.2
LONGEST_LOOK_S = 2.0
"""How long the system is not asked again for a place in the queue."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class ClusterSubmitter:
    """Submits the orders of one launcher."""

    def __init__(
        self, follower: ClusterFollower, settings: ClusterSettings, python: str, grace_s: float
    ) -> None:
        self._follower = follower
        self._settings = settings
        self._python = python
        self._grace_s = grace_s
        self._dialect = follower.dialect
        self._calls = CommandThreads(AT_ONCE)
        self._pause = threading.Event()

    def submit(self, orders: list[Handed]) -> None:
        """Submits orders of one workspace and one set of options, in arrays."""
        self._calls.submit(partial(self._submit_all, orders))

    def _submit_all(self, orders: list[Handed]) -> None:
        size = self._array_size()
        while orders:
            count = self._await_place(orders[:size])
            part, orders = orders[:count], orders[count:]
            try:
                self._submit(part)
            except OSError as error:  # the workspace cannot be written
                self._follower.give_up(part, error)
            except Exception as error:
                logger.exception("a submission failed", extra={"action": "cluster_submission_failed"})
                self._follower.give_up(part, LaunchRefused(f"the submission failed: {error}"))
            finally:
                self._follower.limit.release(count)

    def _await_place(self, orders: list[Handed]) -> int:
        """Waits until the queue has a place for one of these orders; returns for how many it has."""
        limit, most = self._follower.limit, self._settings.max_jobs
        pause_s = FIRST_LOOK_S
        while not (count := limit.reserve(len(orders), most)):
            asked = self._follower.machine.clock.monotonic()
            with suppress(ClusterError):
                for suffix, job in limit.look(self._follower.queue(), asked).items():
                    limit.asked_for(suffix, self._dialect.shown(job))
                if count := limit.reserve(len(orders), most):
                    break
            self._pause.wait(pause_s)
            if pause_s < LONGEST_LOOK_S <= 2 * pause_s:
                problem = f"it has {most} jobs of this process, as many as max_jobs allows"
                self._follower.explain([handed.attempt for handed in orders], problem)
            pause_s = min(2 * pause_s, LONGEST_LOOK_S)
        return count

    def _array_size(self) -> int:
        return max(min(self._settings.array_size, self._dialect.largest_array()), 1)

    def _submit(self, orders: list[Handed]) -> None:
        """One submission, until it is answered; where the queue is full, two of half the size."""
        files = self._follower.machine.files
        root, is_array, options = orders[0].root, len(orders) > 1, orders[0].options
        place = Place(Layout(root).launchers, self._follower.new_id(), self._follower.name)
        header = self._follower.header(root, self._settings, is_array=is_array)
        header = header._replace(reuse_s=self._settings.reuse_s)
        lines = [handed.order for handed in orders]
        index = self._dialect.index_expression(is_array=is_array)
        script = submission.script_of(self._dialect, self._python, place, options.time_s, index)
        submission.write(files, place, header, lines, script)
        name = submission.job_name(self._dialect, lines, place)
        arguments = self._dialect.arguments(options, self._grace_s)
        job = JobScript(name, len(orders), arguments, script, place.directory)
        pause_s = FIRST_PAUSE_S
        take = partial(self._take, place, header, orders)
        while True:
            said = self._dialect.submit(job)
            if said.outcome is SubmissionOutcome.TAKEN:
                take(said.text or None, None if pause_s == FIRST_PAUSE_S else name)
                return
            if said.outcome is SubmissionOutcome.REFUSED:
                files.remove_tree(place.directory)
                refused = LaunchRefused(f"{self._dialect.title} refused the job: {said.text}")
                self._follower.give_up(orders, refused)
                return
            if said.outcome is SubmissionOutcome.FULL and len(orders) > 1:
                files.remove_tree(place.directory)
                half = len(orders) // 2
                self._submit(orders[:half])
                self._submit(orders[half:])
                return
            self._follower.explain([handed.attempt for handed in orders], said.text)
            self._pause.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            queued = self._queued(place)
            if queued is not None:
                take(queued, name)
                return
            if all(self._is_claimed(handed) for handed in orders):
                take(None, name)  # all of them were given up meanwhile
                return

    def _queued(self, place: Place) -> str | None:
        """The id of a job whose answer was lost, if the queue shows it."""
        with suppress(ClusterError):
            for row in self._dialect.queue() if self._dialect.has_list else ():
                if row.name.endswith(place.suffix):
                    return row.job.rpartition("_")[0] or row.job
        return None

    def _is_claimed(self, handed: Handed) -> bool:
        return is_claimed(self._follower.machine, handed.attempt.paths, handed.order.nonce)

    def _take(
        self, place: Place, header: Header, orders: Sequence[Handed], job: str | None, doubtful: str | None
    ) -> None:
        """`doubtful`: the name of its jobs, if the system may have them twice: an answer was lost."""
        self._follower.limit.queue(place, len(orders), job)
        if job is not None:
            # A command that found every job of it ended may have cleared the directory away by now.
            with suppress(OSError):
                submission.write_answer(self._follower.machine.files, place, job)
        is_array = len(orders) > 1
        for index, handed in enumerate(orders):
            own = None if job is None else self._dialect.task_id(job, index, is_array=is_array)
            found = SubmittedAttempt(place, index, is_array, own, header)
            self._follower.take(handed, found, doubtful)
