"""The slots of launchers, and the ready jobs that wait for them, by priority, depth and age.
It says which job is next, and starts none; slots that processes share are in `shared_slots`.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

from tenuto.launchers.protocols import Launcher
from tenuto.scheduler.entries import Phase

if TYPE_CHECKING:
    from tenuto.scheduler.jobs import Job
    from tenuto.scheduler.owners import Owner

Queue = list[tuple[int, int, int, "Job"]]
"""A heap: the job of the highest priority comes first; of those the one with the most jobs before it, so that
the first evaluation does not wait for the last training; of those the one that was ready first."""


class SlotUsage(NamedTuple):
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


class Slots:
    """One queue for each pool of launchers: two launchers of one name do not stand in each other's way."""

    def __init__(self) -> None:
        self._queues: dict[object, Queue] = {}
        self._launchers: dict[object, Launcher] = {}
        self._turn = 0
        """Grows with each job that is queued: behind its like, or, as a negative number, before them."""
        self._in_use: Counter[object] = Counter()
        self._taken: dict[Job, list[tuple[object, int]]] = {}
        """Pool and number of the slots that a job has, oldest first: submitted again, a job may get
        others before it gave back those of its last try."""
        self._full: set[object] = set()
        """Pools whose next job got no slot of those that processes share; they are left alone until something
        changes."""
        self._has_changed = False
        """A job was queued, or a slot given back, since no job was next."""
        self._stopping: WeakSet[Owner] = WeakSet()
        """The owners that want nothing more to be started."""
        self._is_paused = False
        self._most_jobs: int | None = None
        """How many jobs may have slots at once, while the machine has no descriptors for more."""

    # The queues

    def append(self, job: Job) -> None:
        """Queue a ready job, unless it has a place from before it was cancelled."""
        queue = self._queue(job)
        self._has_changed = True
        if job.pool != job.launcher.pool:
            self._push(queue, job, 1)

    def add_first(self, job: Job) -> None:
        """Queue a job that has waited before others of its priority and depth."""
        self._has_changed = True
        self._push(self._queue(job), job, -1)

    def promote(self, job: Job) -> None:
        """Queue a job whose priority rose once more; the entry at its old place is passed by later."""
        if job.pool is not None:
            self._push(self._queues[job.pool], job, 1, job.pool)

    def next(self) -> Job | None:
        """The job that is to be started next, at the head of its queue; None if none fits.

        A job that no owner wants any more loses its place.
        """
        if self._is_paused or not self._has_changed:
            return None
        for pool, queue in self._queues.items():
            while queue and pool not in self._full and self._fits(queue[0][3], self._in_use[pool]):
                job = queue[0][3]
                has_place = job.pool == pool  # else it was submitted again for another launcher
                if has_place and job.phase is Phase.READY and self.is_wanted(job):
                    return job
                heappop(queue)
                if has_place:
                    job.pool = None
        self._has_changed = False
        self._full.clear()
        return None

    def leave(self, job: Job) -> None:
        """Take the next job out of its queue."""
        assert job.pool is not None
        heappop(self._queues[job.pool])
        job.pool = None

    def note_full(self, job: Job) -> None:
        """Leave the queue of the next job alone: other processes have the slots that it shares with them."""
        self._full.add(job.pool)

    # Owners that stop

    def stop(self, owner: Owner) -> None:
        """Start no job any more that only owners want which stopped; from any thread, at once."""
        self._stopping.add(owner)

    def is_wanted(self, job: Job) -> bool:
        """True if an owner still wants the job to be started."""
        return any(owner not in self._stopping for owner in job.owners)

    # The slots

    def has_room(self, job: Job) -> bool:
        """True if there is a slot for a job that waits for tokens."""
        return not self._is_paused and self._fits(job, self._in_use[job.launcher.pool])

    def take(self, job: Job) -> None:
        """Give a job its slots."""
        pool = job.launcher.pool
        self._taken.setdefault(job, []).append((pool, job.slots))
        self._in_use[pool] += job.slots

    def vacate(self, job: Job) -> None:
        """Take the oldest slots of a job back."""
        taken = self._taken[job]
        pool, slots = taken.pop(0)
        self._in_use[pool] -= slots
        if not taken:
            del self._taken[job]
        self._let_go(pool)
        if self._most_jobs is not None and job.phase is Phase.ENDED:
            self._most_jobs += 1

    def look_again(self) -> None:
        """Look for a next job, also for slots that other processes had."""
        self._has_changed = True

    def started(self) -> int:
        """How many jobs have a slot."""
        return len(self._taken)

    @property
    def is_alone(self) -> bool:
        """True while at most one job has slots."""
        return len(self._taken) <= 1

    def usage(self) -> list[SlotUsage]:
        """The slots of each launcher that had a job so far."""
        return [
            SlotUsage(launcher.name, launcher.slots, self._in_use[pool], self._count_ready(pool))
            for pool, launcher in sorted(self._launchers.items(), key=lambda item: item[1].name)
        ]

    # While the machine is short of something

    def pause(self) -> None:
        """Have no next job until `resume`."""
        self._is_paused = True

    def resume(self) -> None:
        """Have next jobs again."""
        self._is_paused = False
        self._has_changed = True

    def start_fewer(self) -> None:
        """Give slots to half as many jobs at once from now on, one at least; to one more for each that ends.

        Jobs that are started together take descriptors from each other: of sixteen none got all that it
        needs, over and over.
        """
        now = len(self._taken)
        self._most_jobs = max(1, (now if self._most_jobs is None else min(now, self._most_jobs)) // 2)

    def _queue(self, job: Job) -> Queue:
        pool = job.launcher.pool
        queue = self._queues.get(pool)
        if queue is None:
            queue = self._queues[pool] = []
        self._launchers[pool] = job.launcher
        return queue

    def _push(self, queue: Queue, job: Job, side: int, pool: object = None) -> None:
        self._turn += 1
        job.pool = job.launcher.pool if pool is None else pool
        heappush(queue, (-job.priority, -job.depth, side * self._turn, job))

    def _count_ready(self, pool: object) -> int:
        return len({job for *_, job in self._queues[pool] if job.pool == pool and job.phase is Phase.READY})

    def _let_go(self, pool: object) -> None:
        """Keeps an idle launcher no longer if another has its name: experiments come and go for months."""
        launcher = self._launchers.get(pool)
        if launcher is None or self._in_use[pool] or self._queues[pool]:
            return
        if any(other.name == launcher.name for other in self._launchers.values() if other is not launcher):
            for known in (self._queues, self._launchers, self._in_use):
                known.pop(pool, None)

    def _fits(self, job: Job, in_use: int) -> bool:
        """True if the launcher has as many free slots as the job takes.

        A job that takes more than all of them starts when all are free: it was placed by another's slots.
        """
        if self._most_jobs is not None and len(self._taken) >= self._most_jobs:
            return False
        slots = job.launcher.slots
        return 0 < slots >= in_use + min(job.slots, slots)
