"""Which submissions are still needed: a directory is removed when every attempt in it has left its marker.
One of another process is kept until Slurm shows none of its tasks: a task that starts reads its manifest, and
would wait a minute for one that is gone. One whose attempt left no marker is kept, for the complaints in it,
until the job has another attempt.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from tenuto.clock import Clock
from tenuto.launchers.manifest import Order
from tenuto.launchers.slurm.commands import SlurmRow
from tenuto.launchers.slurm.states import meaning_of
from tenuto.launchers.slurm.submission import Place, job_name
from tenuto.workspace.attempt_files import read_launch
from tenuto.workspace.derive_table import ClusterSays
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import has_marker
from tenuto.workspace.ports import Files


class OpenPlaces:
    """The submissions that this process knows, with the attempts that have not ended; for any thread."""

    def __init__(self, files: Files, clock: Clock, drop: Callable[[str], None]) -> None:
        """`drop`: takes the waiting tasks of a submission, by the name of its jobs, out of Slurm's queue."""
        self._files = files
        self._clock = clock
        self._drop = drop
        self._lock = threading.Lock()
        self._open: dict[Place, set[str]] = {}
        self._names: dict[Place, str] = {}
        """What other processes submitted, and the name of its jobs."""
        self._over: dict[Place, float] = {}
        """What other processes submitted that is over, and since when."""

    def add(self, place: Place, nonce: str) -> None:
        """An attempt was submitted."""
        with self._lock:
            self._open.setdefault(place, set()).add(nonce)

    def settle(self, place: Place, nonce: str) -> None:
        """An attempt has left its marker."""
        with self._lock:
            nonces = self._open.get(place)
            if nonces is None:
                return
            nonces.discard(nonce)
            if nonces:
                return
            del self._open[place]
            name = self._names.pop(place, None)
        if name is None:
            self._remove(place)  # this process takes each needless task away
        else:
            self._leave(place, name)

    def review(self, place: Place, orders: Sequence[Order]) -> None:
        """A submission was found in a workspace, perhaps one of another process."""
        if not orders:
            return  # its manifest is just being written
        nonces = {order.nonce for order in orders if self._is_open(order)}
        name = job_name(orders, place)
        with self._lock:
            if place in self._open or place in self._over:
                return
            if nonces:
                self._open[place] = nonces
                self._names[place] = name
                return
        self._leave(place, name)

    def sweep(self, rows: Iterable[SlurmRow], asked: float) -> None:
        """Removes what is over and of which Slurm, when it was asked, had nothing that may still begin."""
        with self._lock:
            over = [place for place, since in self._over.items() if since < asked]
        if not over:
            return
        names = [row.name for row in rows if meaning_of(row.state).says is not ClusterSays.ENDED]
        for place in over:
            if not any(name.endswith(place.suffix) for name in names):
                with self._lock:
                    self._over.pop(place, None)
                self._remove(place)

    def _leave(self, place: Place, name: str) -> None:
        with self._lock:
            self._over[place] = self._clock.monotonic()
        self._drop(name)

    def _is_open(self, order: Order) -> bool:
        paths = JobPaths(order.directory, order.script_name)
        try:
            launch = read_launch(self._files, paths)
            is_marked = has_marker(self._files, paths, order.nonce)
        except OSError:
            return True
        if launch is None:
            return False  # the job's directory is gone
        return launch.nonce == order.nonce and not is_marked

    def _remove(self, place: Place) -> None:
        with suppress(OSError):
            self._files.remove_tree(place.directory)
