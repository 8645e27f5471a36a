"""Which jobs were found done, so that the next run need not read each: one file a task, in `.markers`.
Never the truth: an entry counts only while the job's directory and its marker are what they were when read.
"""

from __future__ import annotations

import threading
from binascii import crc32
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from tenuto.errors import WorkspaceError
from tenuto.workspace.json_bytes import from_json, to_json
from tenuto.workspace.layout import JobPaths, Layout
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import FileKind, FileStat, Machine

_VERSION = 1
_LIMIT = 1 << 30
_FEWEST = 100
"""Fewer jobs are as quick to read as the index of them."""
_SETTLED_S = 5.0
"""What changed less long ago may change once more in the same tick of the file system's clock, unseen."""
_OF_ONE_JOB = frozenset(("begun", "result", "outputs", "dropped", "made_from"))
"""What the records of a task's jobs do not have in common."""


class MarkerStamp(NamedTuple):
    """What tells that a directory has the entries that it had, and its marker the content.

    An attempt that is opened makes a file in the directory before it changes anything, and a marker gets its
    name by a rename: both change the directory.
    """

    inode: int
    changed: int
    marker_inode: int
    marker_size: int
    marker_changed: int


class KnownEnd(NamedTuple):
    """The state derived of a job that ended well."""

    marker: Marker
    """Without how its process came to be, and its use."""
    life: str


class _OfTask:
    """The entries of one task: in its file, undecoded, and in this process."""

    def __init__(self, path: str, directory: str) -> None:
        self.path = path
        self.directory = directory
        self.shared: list[dict[str, Any]] = []
        """Records that many jobs have, without what each has of its own."""
        self.lines: dict[bytes, bytes] = {}
        self.fresh: dict[str, tuple[MarkerStamp, KnownEnd]] = {}

    def load(self, data: bytes) -> None:
        """Take what a file has, if it is whole."""
        head, _, body = data.partition(b"\n")
        with suppress(ValueError, KeyError, TypeError):
            said = from_json(head)
            if said["version"] == _VERSION and said["crc"] == crc32(body):
                self.shared = [dict(one) for one in said["shared"]]
                self.lines = {line[: line.index(b" ")]: line for line in body.splitlines()}

    def encoded(self, names: frozenset[str]) -> bytes:
        """The file, with the fresh entries; jobs whose directory is gone are left out."""
        numbers = {to_json(one): number for number, one in enumerate(self.shared)}
        for job_id, (stamp, end) in self.fresh.items():
            record = end.marker.record
            shared = to_json({name: record[name] for name in record if name not in _OF_ONE_JOB})
            own = {name: record[name] for name in record if name in _OF_ONE_JOB}
            number = numbers.setdefault(shared, len(numbers))
            line = to_json([*stamp, *_plain(end), own, number])
            self.lines[job_id.encode()] = job_id.encode() + b" " + line
        body = b"\n".join(line for job, line in self.lines.items() if job.decode() in names)
        head = {"version": _VERSION, "crc": crc32(body), "shared": [from_json(one) for one in numbers]}
        return to_json(head) + b"\n" + body

    def find(self, job_id: str) -> tuple[MarkerStamp, KnownEnd] | None:
        """The entry of a job."""
        line = self.lines.get(job_id.encode())
        if line is None:
            return self.fresh.get(job_id)
        try:
            fields = from_json(line[len(job_id) + 1 :])
            return MarkerStamp(*fields[:5]), _known(fields[5:-2], {**self.shared[fields[-1]], **fields[-2]})
        except (ValueError, TypeError, IndexError):
            return None


class MarkerIndex:
    """The entries of all workspaces that a process uses; from any thread."""

    def __init__(self, machine: Machine, *, fewest: int = _FEWEST) -> None:
        """`fewest`: for fewer jobs that were read anew no file is written."""
        self._files = machine.files
        self._clock = machine.clock
        self._fewest = fewest
        self._tasks: dict[tuple[str, str], _OfTask] = {}
        """By the directory of a workspace, and a task."""
        self._lock = threading.Lock()

    def stamp(self, place: FileStat | None, paths: JobPaths) -> MarkerStamp | None:
        """What the files of a job show before they are read; None if it cannot have ended well.

        `place`: the kind of its directory.
        """
        if place is None or place.kind is not FileKind.DIRECTORY:
            return None
        marker = self._files.stat_file(paths.done)
        if marker is None or marker.kind is not FileKind.FILE:
            return None
        return MarkerStamp(place.inode, place.changed, marker.inode, marker.size, marker.changed)

    def find(self, layout: Layout, task_id: str, job_id: str, stamp: MarkerStamp) -> KnownEnd | None:
        """The facts about a job whose files are as they were."""
        found = self._of_task(layout, task_id).find(job_id)
        return found[1] if found is not None and found[0] == stamp else None

    def note(self, layout: Layout, task_id: str, job_id: str, stamp: MarkerStamp, end: KnownEnd) -> None:
        """Have a job that was read be known; `stamp` was taken before that."""
        settled = (self._clock.now().timestamp() - _SETTLED_S) * 1e9
        if max(stamp.changed, stamp.marker_changed) < settled:
            task = self._of_task(layout, task_id)
            end = KnownEnd(end.marker._replace(usage={}, provenance={}, launch={}), end.life)
            with self._lock:
                task.lines.pop(job_id.encode(), None)
                task.fresh[job_id] = stamp, end

    def keep(self) -> None:
        """Write what this process has read anew; a disk that is full keeps nothing.

        Another process may write, too: the last one wins, and what the other had read is read once more.
        """
        with self._lock:
            for key, task in list(self._tasks.items()):
                if len(task.fresh) >= self._fewest:
                    with suppress(OSError, WorkspaceError):
                        now = self._read(task)
                        now.fresh = task.fresh
                        data = now.encoded(frozenset(self._files.list(task.directory)))
                        self._files.make_directory(task.path.rpartition("/")[0])
                        self._files.replace(task.path, data, durable=False)
                        del self._tasks[key]

    def _of_task(self, layout: Layout, task_id: str) -> _OfTask:
        key = layout.root, task_id
        task = self._tasks.get(key)
        if task is None:
            with self._lock:
                new = _OfTask(layout.marker_index(task_id), layout.task(task_id))
                task = self._tasks[key] = self._tasks.get(key) or self._read(new)
        return task

    def _read(self, task: _OfTask) -> _OfTask:
        read = _OfTask(task.path, task.directory)
        with suppress(OSError, WorkspaceError):
            read.load(self._files.read(task.path, _LIMIT))
        return read


def _plain(end: KnownEnd) -> list[Any]:
    marker = end.marker
    times = [one.isoformat() if one else None for one in (marker.starttime, marker.endtime)]
    return [
        marker.attempt,
        marker.nonce,
        marker.message,
        marker.exit_code,
        *times,
        marker.result,
        marker.result_stored,
        marker.flags,
        marker.params_bytes,
        end.life,
    ]


def _known(fields: list[Any], record: Mapping[str, Any]) -> KnownEnd:
    attempt, nonce, message, exit_code, start, end, result, stored, flags, params_bytes, life = fields
    marker = Marker(
        attempt=attempt,
        nonce=nonce,
        message=message,
        exit_code=exit_code,
        starttime=datetime.fromisoformat(start) if start else None,
        endtime=datetime.fromisoformat(end) if end else None,
        result=result,
        result_stored=stored,
        record=record,
        flags=tuple(flags),
        params_bytes=params_bytes,
    )
    return KnownEnd(marker, life)
