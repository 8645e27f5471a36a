"""Which submissions are still needed: a directory is removed when every attempt in it has left its marker.
One whose attempt left none is kept, for the complaints in it, until the job has another attempt.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress

from tenuto.launchers.manifest import Order
from tenuto.launchers.slurm.submission import Place
from tenuto.workspace.attempt_files import read_launch
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import Marker, read_markers
from tenuto.workspace.ports import Files


class OpenPlaces:
    """The submissions that this process knows, with the attempts that have not ended; for any thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._open: dict[Place, set[str]] = {}

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
            is_over = not nonces
            if is_over:
                del self._open[place]
        if is_over:
            self._remove(place)

    def review(self, place: Place, orders: Sequence[Order]) -> bool:
        """A submission of another process was found: it is removed, and True returned, if nothing of it can
        still begin."""
        if not orders:
            return False  # its manifest is just being written
        nonces = {order.nonce for order in orders if self._is_open(order)}
        with self._lock:
            if nonces:
                self._open.setdefault(place, nonces)
                return False
        self._remove(place)
        return True

    def _is_open(self, order: Order) -> bool:
        paths = JobPaths(order.directory, order.script_name)
        try:
            launch = read_launch(self._files, paths)
            markers = read_markers(self._files, paths)
        except OSError:
            return True
        if launch is None:
            return False  # the job's directory is gone
        is_marked = any(isinstance(m, Marker) and m.nonce == order.nonce for m in markers)
        return launch.nonce == order.nonce and not is_marked

    def _remove(self, place: Place) -> None:
        with suppress(OSError):
            self._files.remove_tree(place.directory)
