"""Slots that all processes of one machine share in one workspace: units of a lock file, held by runners.
Which job is next is decided in `slots`; a launcher that does not share its slots is never looked up here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

from tenuto.errors import TenutoError
from tenuto.scheduler.jobs import Job
from tenuto.scheduler.loop import Loop
from tenuto.scheduler.slots import Slots
from tenuto.workspace.inotify import DirectoryWatch
from tenuto.workspace.layout import SlotPlace
from tenuto.workspace.ports import LockHandle, Machine

logger = logging.getLogger("tenuto.scheduler")

YIELD_S = 1.0
"""How long a scheduler that has its share leaves a free slot to another scheduler that waits."""
_UNLOCKED_AFTER_S = 0.02
"""The kernel tells that a file is closed a moment before the locks on it fall."""
_MOST_SCHEDULERS = 1000
_STRIDE = 1 << 20
"""More than any machine has slots. Byte `unit` of the file is a slot; byte `limit * _STRIDE + unit`, locked
by the same job, tells how many slots the scheduler that started it may use."""
_BYTES = 1 << 62


class SharedSlots:
    """The shared slots as one scheduler sees them; to be used in the loop's thread only.

    A job's runner inherits the lock on its units, so that they stay taken when the scheduler dies.
    """

    def __init__(
        self,
        machine: Machine,
        loop: Loop,
        freed: Callable[[], None],
    ) -> None:
        """`freed` is called when a job that found no free slot may be tried again."""
        self._machine = machine
        self._loop = loop
        self._freed = freed
        self._by_root: dict[str, _WorkspaceSlots] = {}

    def take(self, job: Job) -> bool:
        """Give a job as many units as it takes slots; False if they are not free: then `freed` follows."""
        shared = self._slots_of(job)
        if shared is None:
            return True
        try:
            shared.is_in_job = getattr(job.launcher, "is_in_job", False)
            handles = shared.take(min(job.slots, job.launcher.slots), job.launcher.slots)
        except (OSError, TenutoError):
            # The job's own directory is in the same place, and tells more about the error there.
            logger.warning("slots cannot be shared in %s", shared.place.units, exc_info=True)
            return True
        if handles is None:
            return False
        job.slot_units += handles
        return True

    def has_room(self, job: Job) -> bool:
        """True if a job would get its units now."""
        shared = self._slots_of(job)
        try:
            return shared is None or shared.has_room(min(job.slots, job.launcher.slots), job.launcher.slots)
        except (OSError, TenutoError):
            return True

    def close(self) -> None:
        """Release the watches."""
        for shared in self._by_root.values():
            shared.close()

    def _slots_of(self, job: Job) -> _WorkspaceSlots | None:
        # A launcher says so by this attribute; one of a plug-in, of a node or of a pilot counts for itself.
        if not getattr(job.launcher, "shares_slots", False):
            return None
        root = job.layout.root
        if root not in self._by_root:
            place = job.layout.slots(self._machine.processes.own().host)
            self._by_root[root] = _WorkspaceSlots(self._machine, place, self._loop, self._freed)
        return self._by_root[root]


class _Held(NamedTuple):
    """The units that jobs have, and how many they may have together."""

    units: frozenset[int]
    limit: int

    def has_room(self, amount: int) -> bool:
        """True if so many more may be taken; a job that asks for more than the limit waits for all units."""
        return len(self.units) + min(amount, self.limit) <= self.limit


class _WorkspaceSlots:
    """The slots of one workspace."""

    def __init__(
        self,
        machine: Machine,
        place: SlotPlace,
        loop: Loop,
        freed: Callable[[], None],
    ) -> None:
        self.place = place
        self.is_in_job = False
        """This scheduler runs in a job, which holds a slot meanwhile."""
        self._machine = machine
        self._locks = machine.locks
        self._loop = loop
        self._freed = freed
        self._alarm = TokenAlarm(loop, place.directory, told=self._told, unsure=self._look_again)
        self._own: WeakKeyDictionary[LockHandle, tuple[int, ...]] = WeakKeyDictionary()
        """The units that jobs of this scheduler have, for as long as they have them."""
        self._waiting: LockHandle | None = None
        """Tells other schedulers that this one waits for a slot."""
        self._waiting_in_job: LockHandle | None = None
        self._has_warned = False
        self._is_short = False
        """The last job that asked for units did not get them."""
        self._is_owed = False
        """No slot was free since it took the last one: it need not leave the next one to others."""
        self._yields_until: float | None = None

    def take(self, amount: int, slots: int) -> tuple[LockHandle, ...] | None:
        """Units, all or none; None if they are not free, or left to another scheduler."""
        try:
            handles = self._take(amount, slots)
        except FileNotFoundError:  # the first time, or a person removed it
            self._machine.files.make_directory(self.place.directory)
            handles = self._take(amount, slots)
        if handles is None:
            self._wait(slots)
            return None
        self._is_short, self._is_owed, self._yields_until = False, False, None
        if self._waiting is not None:
            self._loop.post(self._rest_unless_short)
        return handles

    def has_room(self, amount: int, slots: int) -> bool:
        """True if so many units are free."""
        held = self._held(slots, self._locks.locked(self.place.waiting))
        if held.has_room(amount):
            return True
        self._machine.files.make_directory(self.place.directory)
        self._wait(slots)
        return False

    def close(self) -> None:
        """Release the watch."""
        for lock in filter(None, (self._waiting, self._waiting_in_job)):
            lock.close()
        self._alarm.close()

    def _take(self, amount: int, slots: int) -> tuple[LockHandle, ...] | None:
        waiting = self._locks.locked(self.place.waiting)
        if self._yields(amount, slots, waiting):
            return None
        handles = None
        if not waiting and not self._has_other_limits(slots):
            # Most schedulers are alone: they need not look at each unit that others have.
            own = frozenset(unit for units in self._own.values() for unit in units)
            handles = self._lock(_Held(own, slots), amount, slots)
        if handles is None:
            handles = self._lock(self._held(slots, waiting), amount, slots)
        if handles is None:
            self._is_owed, self._yields_until = True, None
        return handles

    def _lock(self, held: _Held, amount: int, slots: int) -> tuple[LockHandle, ...] | None:
        if not held.has_room(amount):
            return None
        free = [unit for unit in range(slots) if unit not in held.units]
        units = free[: min(amount, held.limit)]
        handles = self._locks.try_lock_all(self.place.units, [*units, slots * _STRIDE + units[0]])
        if handles is not None:
            self._own[handles[0]] = tuple(units)
        return handles

    def _has_other_limits(self, slots: int) -> bool:
        """True if a running job was started by a scheduler with fewer or more slots than this one."""
        own, above = slots * _STRIDE, (slots + 1) * _STRIDE
        look = self._locks.is_locked
        return look(self.place.units, _STRIDE, own - _STRIDE) or look(self.place.units, above, _BYTES - above)

    def _held(self, slots: int, waiting: frozenset[int]) -> _Held:
        """The units of all schedulers, and the smallest `slots` of a scheduler that runs jobs or waits."""
        locked = self._locks.locked(self.place.units)
        limits = {byte // _STRIDE for byte in locked if byte >= _STRIDE}
        units = frozenset(byte for byte in locked if byte < _STRIDE)
        return _Held(units, min([_smallest(slots, waiting), *limits]))

    def _yields(self, amount: int, slots: int, waiting: frozenset[int]) -> bool:
        """True while a free slot is left to another scheduler: this one has its share, and took the last."""
        own = sum(map(len, self._own.values()))
        if self._is_owed:
            return False
        others = len(waiting) - (self._waiting is not None)
        if others <= 0 or own + amount <= _smallest(slots, waiting) // (others + 1):
            return False
        now = self._machine.clock.monotonic()
        if self._yields_until is None:
            self._yields_until = now + YIELD_S
            self._loop.later(YIELD_S, self._look_again)
        return now < self._yields_until

    def _wait(self, slots: int) -> None:
        """Have other schedulers know that this one waits, and look again when a slot may be free."""
        self._is_short = True
        if self._waiting is None:
            first = slots * _MOST_SCHEDULERS
            numbers = range(first, first + _MOST_SCHEDULERS)
            locks = (self._locks.try_lock(self.place.waiting, number) for number in numbers)
            self._waiting = next((lock for lock in locks if lock is not None), None)
        if self.is_in_job:
            self._warn_if_all_wait(slots)
        self._alarm.set()

    def _warn_if_all_wait(self, slots: int) -> None:
        """Say once that each running job waits for jobs of its own, so that no slot will ever be free."""
        if self._waiting_in_job is None:
            locks = (self._locks.try_lock(self.place.waiting_in_jobs, n) for n in range(_MOST_SCHEDULERS))
            self._waiting_in_job = next((lock for lock in locks if lock is not None), None)
        running = sum(byte >= _STRIDE for byte in self._locks.locked(self.place.units))
        if not self._has_warned and running <= len(self._locks.locked(self.place.waiting_in_jobs)):
            self._has_warned = True
            logger.warning(
                "every slot (%d) is held by a job that waits for jobs which it started itself, so that none "
                "of these can start: kill one of them, give more slots, or submit the jobs from the script",
                slots,
            )

    def _rest_unless_short(self) -> None:
        if not self._is_short and self._waiting is not None:
            self._waiting.close()
            self._waiting = None
            if self._waiting_in_job is not None:
                self._waiting_in_job.close()
                self._waiting_in_job = None
            self._alarm.rest()

    def _told(self) -> None:
        self._look_again()
        if self._is_short:
            self._loop.later(_UNLOCKED_AFTER_S, self._look_again)

    def _look_again(self) -> None:
        """Have the queue tried again; a queue that asks for nothing waits for nothing."""
        if self._waiting is not None:
            self._is_short = False
            self._freed()
            self._rest_unless_short()


def _smallest(slots: int, waiting: frozenset[int]) -> int:
    """The smallest number of slots of a scheduler and of the schedulers that wait."""
    return min([slots, *(byte // _MOST_SCHEDULERS for byte in waiting)])


# The slots that jobs with tokens take in the same step as their tokens: of a launcher, and of a workspace.
# Which job is next is decided in `tokens`.


class TokenSlots:
    """The slots of one scheduler, as far as jobs with tokens are concerned."""

    def __init__(self, slots: Slots, shared: SharedSlots) -> None:
        self._slots = slots
        self._shared = shared

    def is_wanted(self, job: Job) -> bool:
        """True if an owner still wants the job to be started."""
        return self._slots.is_wanted(job)

    def has_room(self, job: Job) -> bool:
        """True if a slot is free for a job."""
        return self._slots.has_room(job) and self._shared.has_room(job)

    def take(self, job: Job, *, to_run: bool = True) -> bool:
        """Give a job its slots; False if another process took the last one.

        `to_run`: False for a job that another process runs, and that is only waited for.
        """
        if to_run and not self._shared.take(job):
            return False
        self._slots.take(job)
        return True


# When to look at the queue of tokens again: told by the kernel, by a neighbour, or after a while.


POLL_S = 2.0
"""How long a change can stay unseen where the kernel does not tell."""
BUSY_S = 0.005
"""How soon to try again when another scheduler is at the queue; longer each time."""
LONGEST_BUSY_S = 0.2


class TokenAlarm:
    """Calls back in the loop's thread, where it is to be used, too."""

    def __init__(
        self,
        loop: Loop,
        directory: str,
        *,
        told: Callable[[], None],
        unsure: Callable[[], None],
    ) -> None:
        """`told` is called when something changed, `unsure` when nothing was heard for a while."""
        self._loop = loop
        self._directory = directory
        self._told = told
        self._unsure = unsure
        self._watch: DirectoryWatch | None = None
        self._is_polling = False
        self._is_posted = False
        self._is_retrying = False
        self._is_short = False
        """The last look failed for want of something; the trace it left is no reason for another."""
        self._busy_s = BUSY_S

    def set(self) -> None:
        """A job waits."""
        if not self._is_polling:
            self._is_polling = True
            self._loop.later(POLL_S, self._poll)
        if self._watch is None:
            self._watch = self._loop.watch(self._directory)
            if self._watch is not None:
                self._loop.loop.add_reader(self._watch.fileno(), self._changed)
                self.soon()  # for what changed before the watch was there

    def rest(self) -> None:
        """No job waits any more."""
        if self._watch is not None:
            self._loop.loop.remove_reader(self._watch.fileno())
            self.close()

    def soon(self) -> None:
        """Calls `told` once this step of the loop is over."""
        if not self._is_posted:
            self._is_posted = True
            self._loop.post(self._posted)

    def busy(self) -> None:
        """Calls `told` in a moment: another scheduler was faster, or stopped there. One chain of tries."""
        if not self._is_retrying:
            self._is_retrying = True
            self._loop.later(self._busy_s, self._retry)
            self._busy_s = min(2 * self._busy_s, LONGEST_BUSY_S)

    def got_through(self) -> None:
        """No other scheduler was there."""
        self._busy_s = BUSY_S

    def short(self) -> None:
        """A look failed for want of something: only `unsure` is called until one succeeds."""
        self._is_short = True

    def recovered(self) -> None:
        self._is_short = False

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _posted(self) -> None:
        self._is_posted = False
        self._told()

    def _retry(self) -> None:
        self._is_retrying = False
        self._told()

    def _poll(self) -> None:
        self._is_polling = False
        self._unsure()

    def _changed(self) -> None:
        if self._watch is not None:
            self._watch.drain()
            if not self._is_short:  # else it would wake itself for as long as the disk is full
                self._told()
