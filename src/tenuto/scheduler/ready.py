"""Ready jobs by priority and in the order they came, started as far as their launchers have slots.
It decides which job is next; how one is started is the scheduler's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

from tenuto.launchers.protocols import Launcher
from tenuto.lifecycle.states import JobState
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.shared_slots import SharedSlots

Queue = list[tuple[int, int, int, Job]]
"""A heap: the job of the highest priority comes first; of those the one with the most jobs before it, so that
the first evaluation does not wait for the last training; of those the one that was ready first."""


class Usage(NamedTuple):
    """The slots of one launcher."""

    launcher: str
    slots: int
    used: int
    ready: int
    """Jobs that are ready and wait for a slot."""

    @property
    def free(self) -> int:
        """Slots in which a job could be started now."""
        return max(self.slots - self.used, 0)


class ReadyQueue:
    """One queue for each launcher; to be used in the loop's thread only."""

    def __init__(self, start: Callable[[Job], None], shared: SharedSlots) -> None:
        """`start` is called for a job that has got a slot; `vacate` returns the slot.

        `shared`: the slots that launchers share with those of other processes.
        """
        self._start = start
        self._shared = shared
        self._queues: dict[object, Queue] = {}
        """By the pool of the launchers: two launchers of one name do not stand in each other's way."""
        self._launchers: dict[object, Launcher] = {}
        self._turn = 0
        """Grows with each job that is queued: behind its like, or, as a negative number, before them."""
        self._queue_of: dict[Job, Queue] = {}
        """Where a job is queued, which is there once: it may be cancelled and submitted again meanwhile, also
        for another launcher. Who is started twice asks for its tokens twice, and waits for itself."""
        self._in_use: Counter[object] = Counter()
        self._taken: dict[Job, list[tuple[object, int]]] = {}
        """Pool and number of the slots that a job has, oldest first: submitted again, a job may get
        others before it gave back those of its last try."""
        self._passed_over: set[Job] = set()
        """Jobs that were not started because nobody wanted them any more."""
        self._is_paused = False
        self._most_jobs: int | None = None
        """How many jobs may have slots at once, while the machine has no descriptors for more."""

    def append(self, job: Job) -> None:
        """A job is ready; nothing is started yet."""
        queue = self._queue(job)
        if self._queue_of.get(job) is not queue:
            self._queue_of[job] = queue
            self._turn += 1
            heappush(queue, (-job.priority, -job.depth, self._turn, job))

    def add_first(self, job: Job) -> None:
        """A job is ready that has waited before: it comes before others of its priority and depth."""
        queue = self._queue_of[job] = self._queue(job)
        self._turn += 1
        heappush(queue, (-job.priority, -job.depth, -self._turn, job))
        self.start_what_fits()

    def promote(self, job: Job) -> None:
        """The priority of a job rose; the entry at its old place is passed by later."""
        queue = self._queue_of.get(job)
        if queue is not None:
            self._turn += 1
            heappush(queue, (-job.priority, -job.depth, self._turn, job))

    def want_again(self, job: Job) -> bool:
        """An owner wants a job after all; False if it was not passed over."""
        if job not in self._passed_over:
            return False
        self._passed_over.discard(job)
        self.append(job)
        self.start_what_fits()
        return True

    def has_room(self, job: Job) -> bool:
        """Whether there is a slot for a job that waits elsewhere."""
        is_free = not self._is_paused and self._fits(job, self._in_use[job.launcher.pool])
        return is_free and self._shared.has_room(job)

    def occupy(self, job: Job, *, to_run: bool = True) -> bool:
        """A job that waited elsewhere takes a slot; False if another process took the last one.

        `to_run`: False for a job that another process runs, and that is only waited for.
        """
        if to_run and not self._shared.take(job):
            return False
        self._take(job)
        return True

    def started(self) -> int:
        """How many jobs have a slot."""
        return len(self._taken)

    def vacate(self, job: Job) -> None:
        """The job no longer needs its slot; nothing is started in it yet."""
        self._shared.give_back(job)
        taken = self._taken[job]
        pool, slots = taken.pop(0)
        self._in_use[pool] -= slots
        if not taken:
            del self._taken[job]
        self._let_go(pool)
        if self._most_jobs is not None and job.state.finished():
            self._most_jobs += 1

    def pass_over(self, job: Job) -> None:
        """Keeps a job that no owner wants any more, in case one does."""
        self._passed_over.add(job)

    def pause(self) -> None:
        """Starts nothing until `resume`."""
        self._is_paused = True

    def start_fewer(self) -> None:
        """Give slots to half as many jobs at once from now on, one at least; to one more for each that ends.

        Jobs that are started together take descriptors from each other: of sixteen none got all that it
        needs, over and over.
        """
        now = len(self._taken)
        self._most_jobs = max(1, (now if self._most_jobs is None else min(now, self._most_jobs)) // 2)

    @property
    def is_alone(self) -> bool:
        """True while at most one job has slots."""
        return len(self._taken) <= 1

    def resume(self) -> None:
        """Starts jobs again."""
        self._is_paused = False
        self.start_what_fits()

    def usage(self) -> list[Usage]:
        """The slots of each launcher that had a job so far."""
        ready = Counter(id(queue) for queue in self._queue_of.values())
        return [
            Usage(launcher.name, launcher.slots, self._in_use[pool], ready[id(self._queues[pool])])
            for pool, launcher in sorted(self._launchers.items(), key=lambda item: item[1].name)
        ]

    def _queue(self, job: Job) -> Queue:
        pool = job.launcher.pool
        queue = self._queues.get(pool)
        if queue is None:
            queue = self._queues[pool] = []
        self._launchers[pool] = job.launcher
        return queue

    def _let_go(self, pool: object) -> None:
        """Keeps an idle launcher no longer if another has its name: experiments come and go for months."""
        launcher = self._launchers.get(pool)
        if launcher is None or self._in_use[pool] or self._queues[pool]:
            return
        if any(other.name == launcher.name for other in self._launchers.values() if other is not launcher):
            for known in (self._queues, self._launchers, self._in_use):
                known.pop(pool, None)

    def start_what_fits(self) -> None:
        """Starts what is ready and wanted, as far as there are slots."""
        if self._is_paused:
            return
        for pool, queue in list(self._queues.items()):
            while queue and self._fits(queue[0][3], self._in_use[pool]):
                job = queue[0][3]
                is_due = self._queue_of.get(job) is queue  # else it is queued for another launcher by now
                is_ready = is_due and job.state is JobState.READY
                if is_ready and job.is_wanted() and not self._shared.take(job):
                    break
                heappop(queue)
                if is_due:
                    del self._queue_of[job]
                if not is_ready:
                    continue
                if job.is_wanted():
                    self._take(job)
                    self._start(job)
                else:
                    self._passed_over.add(job)

    def _fits(self, job: Job, in_use: int) -> bool:
        """True if the launcher has as many free slots as the job takes.

        A job that takes more than all of them starts when all are free: it was placed by another's slots.
        """
        if self._most_jobs is not None and len(self._taken) >= self._most_jobs:
            return False
        slots = job.launcher.slots
        return 0 < slots >= in_use + min(job.slots, slots)

    def _take(self, job: Job) -> None:
        pool = job.launcher.pool
        self._taken.setdefault(job, []).append((pool, job.slots))
        self._in_use[pool] += job.slots
