"""The attempts that this process follows in Slurm: by nonce, with the time at which each was last asked for.
Asks no command and judges nothing; its lock is the lock of the whole cluster.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tenuto.launchers.slurm.attempt import SlurmAttempt, Wish
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import LaunchRecord

UNASKED_S = 300.0
"""How long an attempt without a `Process` is followed after the last question about it."""
_DROP_S = 10.0
"""How often such attempts are looked for."""


class Listening:
    """A context in which a listener is told of an attempt."""

    __slots__ = ("_attempt", "_lock", "_tell")

    def __init__(self, lock: threading.RLock, attempt: SlurmAttempt, tell: Callable[[], None]) -> None:
        self._lock = lock
        self._attempt = attempt
        self._tell = tell

    def __enter__(self) -> None:
        with self._lock:
            self._attempt.listeners.append(self._tell)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._attempt.listeners.remove(self._tell)


class Roster:
    """Every attempt that is followed; for any thread."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.lock = threading.RLock()
        self._attempts: dict[str, SlurmAttempt] = {}
        self._asked: dict[str, float] = {}
        self._drop_due = 0.0

    def __len__(self) -> int:
        return len(self._attempts)

    def __contains__(self, nonce: str) -> bool:
        return nonce in self._attempts

    def all(self) -> list[SlurmAttempt]:
        """The attempts at this moment."""
        with self.lock:
            return list(self._attempts.values())

    def known(self, paths: JobPaths, launch: LaunchRecord, beat_s: float) -> SlurmAttempt:
        """The attempt of a launch record; followed from now on if it was not."""
        with self.lock:
            attempt = self._attempts.get(launch.nonce)
            if attempt is None:
                attempt = self._attempts[launch.nonce] = SlurmAttempt(self._machine, paths, launch, beat_s)
            self._asked[launch.nonce] = self._machine.clock.monotonic()
            return attempt

    def keep(self, attempt: SlurmAttempt) -> None:
        """Follows an attempt that may have been let go."""
        with self.lock:
            self._attempts[attempt.launch.nonce] = attempt

    def let_go(self, attempt: SlurmAttempt) -> None:
        """A process of the attempt was closed; one without any, and without a wish, is dropped."""
        with self.lock:
            attempt.processes -= 1
            if not attempt.processes and attempt.wish <= attempt.granted:
                self._drop(attempt.launch.nonce)

    def drop_unasked(self, now: float) -> None:
        """Forgets the attempts that were not asked for in a while."""
        if now < self._drop_due:
            return
        self._drop_due = now + _DROP_S
        with self.lock:
            for nonce, asked in list(self._asked.items()):
                attempt = self._attempts.get(nonce)
                is_needed = attempt is not None and (attempt.processes or attempt.is_submitting)
                if attempt is None or (not is_needed and now - asked > UNASKED_S):
                    self._drop(nonce)

    def open_wishes(self) -> list[SlurmAttempt]:
        """The attempts whose end is wanted and of which Slurm was not told."""
        return [attempt for attempt in self.all() if attempt.wish > attempt.granted]

    def wish(self, attempt: SlurmAttempt, wish: Wish) -> None:
        """Records that an attempt is to end."""
        with self.lock:
            attempt.wish = max(attempt.wish, wish)
            self.keep(attempt)

    def wish_again(self, attempt: SlurmAttempt) -> None:
        """Opens the wish for the end of an attempt again: Slurm was told, and did not hear it."""
        with self.lock:
            attempt.granted = Wish.NONE
            self.keep(attempt)

    def listening(self, attempt: SlurmAttempt, tell: Callable[[], None]) -> Listening:
        """Calls `tell`, in another thread, whenever something new is known of the attempt."""
        return Listening(self.lock, attempt, tell)

    def _drop(self, nonce: str) -> None:
        self._attempts.pop(nonce, None)
        self._asked.pop(nonce, None)
