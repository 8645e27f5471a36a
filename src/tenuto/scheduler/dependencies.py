"""Which jobs wait for which: a waiting job is an entry here, no coroutine and no descriptor.
Pure bookkeeping over anything hashable; states and time are the scheduler's business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

J = TypeVar("J", bound=Hashable)


class WaitingGraph(Generic[J]):
    """Counts what each job still waits for; every end is passed on once, without recursion."""

    def __init__(self) -> None:
        self._missing: dict[J, int] = {}
        self._dependents: dict[J, dict[J, None]] = {}
        """No list: a job that was withdrawn, or stranded by one end, and enters again before the others ended
        would be there twice, and one of them would count for two."""

    def __len__(self) -> int:
        return len(self._missing)

    def __contains__(self, job: J) -> bool:
        return job in self._missing

    def add(self, job: J, unfinished: Iterable[J]) -> bool:
        """Enters a job with what it waits for; True if that is nothing, and it was not entered."""
        awaited = dict.fromkeys(unfinished)
        if not awaited:
            return True
        self._missing[job] = len(awaited)
        for other in awaited:
            self._dependents.setdefault(other, {})[job] = None
        return False

    def done(self, job: J) -> list[J]:
        """A job ended well: those that now wait for nothing, in the order they came."""
        ready = []
        for dependent in self._dependents.pop(job, ()):
            if dependent in self._missing:
                self._missing[dependent] -= 1
                if not self._missing[dependent]:
                    del self._missing[dependent]
                    ready.append(dependent)
        return ready

    def failed(self, job: J) -> list[J]:
        """A job ended badly: all that waited for it, directly or not, nearest first."""
        stranded = []
        pending = deque([job])
        while pending:
            for dependent in self._dependents.pop(pending.popleft(), ()):
                if self._missing.pop(dependent, None) is not None:
                    stranded.append(dependent)
                    pending.append(dependent)
        return stranded

    def is_awaited(self, job: J) -> bool:
        """Whether a job still waits for another."""
        return any(dependent in self._missing for dependent in self._dependents.get(job, ()))

    def withdraw(self, job: J) -> bool:
        """Takes out a job that no longer waits; False if it did not."""
        return self._missing.pop(job, None) is not None
