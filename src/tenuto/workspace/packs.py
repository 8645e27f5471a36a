"""Jobs that ended, many of them in one file of their task: `.packs/TASK.pack`, with an index beside it.
A job lies in its pack or in its directory, and where both have it they say the same: the holder of the job's
lock has called `unpack` before it changes the directory. So a reader of files asks the disk, then the pack.
"""

from __future__ import annotations

import contextlib
import errno
import struct
import threading
import zlib
from binascii import crc32
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from tenuto.errors import DirectoryUnusable, FileTooLarge, NotRegularFile
from tenuto.workspace import trash
from tenuto.workspace.layout import JobPaths, name_of_directory, pack_places, script_name
from tenuto.workspace.lines import seal, unseal
from tenuto.workspace.ports import FileKind, Files, FileStat, LockHandle, Machine, is_temporary

LARGEST_FILE = 1 << 20
"""A job that left a larger file stays in its directory."""
MOST_BYTES = 4 << 20
MOST_ENTRIES = 1000
"""So does one with more than this in all."""
_WINDOW = 16 << 20
"""More than the longest record, of which one window has all."""
_NAME = b"tenuto pack "
_HEAD = _NAME + b"1 "
_BEGINS = b'\n{"job":"'
_INDEX_VERSION = 1
_INDEX_LIMIT = 1 << 32
_SPOT = struct.Struct(">QI")
_TAIL = 1000
"""So many records, or a tenth, are read at each start before the index is written anew."""
_KEPT_BYTES = 8 << 20
"""Of the records read last, as they lie in the file: a script looks at 256 jobs before the loop does."""
_BLOCK = 1 << 18
_PATIENCE_S = 60.0
_LOOK_AGAIN_S = 0.01
_KINDS = {"f": FileKind.FILE, "d": FileKind.DIRECTORY, "l": FileKind.LINK}


class PackedFile(NamedTuple):
    """One entry of a job's directory, as it is kept."""

    kind: str
    mode: int
    modified: int
    size: int
    start: int = 0
    """Of its content, in that of all files."""
    target: str = ""
    """Of a link."""


class PackedJob:
    """What a pack has of one job."""

    def __init__(self, entries: Mapping[str, PackedFile], stamp: tuple[int, int], content: bytes) -> None:
        self.entries = entries
        self._stamp = stamp
        self._content = content
        """Of all files, compressed."""
        self.plain: bytes | None = None
        """The same, while it is the job that was read last."""

    def stat(self, name: str) -> FileStat | None:
        """As of the disk; "" is the directory of the job."""
        found = self.entries.get(name)
        if found is None:
            return None
        inode, packed = self._stamp
        return FileStat(_KINDS[found.kind], found.size, inode, found.mode, found.modified or packed)

    def read(self, path: str, name: str, limit: int = LARGEST_FILE) -> bytes:
        """The content of a file; as that of `Files`."""
        found = self.entries.get(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if found.kind != "f":
            raise NotRegularFile(f"{path} is a {_KINDS[found.kind].value}, not a file")
        if found.size > limit:
            raise FileTooLarge(f"{path} has {found.size} bytes, at most {limit} are expected there")
        plain = self.plain
        if plain is None:
            plain = zlib.decompress(self._content)
        return plain[found.start : found.start + found.size]

    def names(self, name: str) -> list[str]:
        """The files of a directory of it."""
        return [one.rpartition("/")[2] for one in self.entries if one and one.rpartition("/")[0] == name]


class Spot(NamedTuple):
    """Where the record of a job lies."""

    start: int
    length: int


class _Record(NamedTuple):
    job: str
    spot: Spot | None
    """None: the job is no longer here."""
    end: int


class Pack:
    """What one process knows of the pack of a task; from any thread."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self._lock = threading.Lock()
        self._seen: FileStat | None = None
        self._read: OrderedDict[tuple[bytes, str, Spot], PackedJob] = OrderedDict()
        """The records read last."""
        self._read_bytes = 0
        self._last: PackedJob | None = None
        self._block = b"", -1, b""
        """A part of the file that was read last: of which pack, where it begins, and the part."""
        self._forget()

    def _forget(self) -> None:
        self.nonce = b""
        self.end = 0
        """Behind the last whole record."""
        self._index, self._width = b"", 0
        self._fresh: dict[str, Spot | None] = {}

    def refresh(self) -> None:
        """Take in the records added since, by any process."""
        found = self._files.stat(self.path)
        if found == self._seen:
            return
        with self._lock:
            if found is None:
                self._forget()
            elif found != self._seen:
                head = self._files.read_range(self.path, 0, 64).partition(b"\n")[0] + b"\n"
                if head != self.nonce or found.size < self.end:
                    self._forget()
                    if found.size and not _is_of_other_version(head):  # a damaged line costs no record
                        self.nonce = head
                        self._load(found.size)
                if self.nonce:
                    self._scan()
            self._seen = found

    def _load(self, size: int) -> None:
        """Take the index, if it is of this pack and whole."""
        try:
            head, _, body = self._files.read(_index_of(self.path), _INDEX_LIMIT).partition(b"\n")
        except OSError:
            return
        said = unseal(head + b"\n") or {}
        if (
            (said.get("version"), said.get("pack")) == (_INDEX_VERSION, self.nonce.decode("latin-1"))
            and said["end"] <= size
            and said["crc"] == crc32(body)
        ):
            self._index, self._width, self.end = body, said["width"], said["end"]

    def _scan(self) -> None:
        for record in _records(self._files, self.path, self.end):
            self._fresh[record.job] = record.spot
            self.end = record.end

    def find(self, job: str) -> Spot | None:
        """Where a job lies; None if it is not here."""
        self.refresh()
        if job in self._fresh:
            return self._fresh[job]
        name = job.encode().ljust(self._width)
        if len(name) != self._width or not self._width:
            return None
        index, width, step = self._index, self._width, self._width + _SPOT.size
        starts = range(0, len(index), step)
        place = bisect_left(starts, name, key=lambda at: index[at : at + width])
        if place == len(starts) or index[starts[place] : starts[place] + width] != name:
            return None
        return Spot(*_SPOT.unpack_from(index, starts[place] + width))

    def jobs(self) -> dict[str, Spot]:
        """All that are here."""
        self.refresh()
        step = self._width + _SPOT.size
        found: dict[str, Spot | None] = {
            self._index[at : at + self._width].rstrip().decode(): Spot(
                *_SPOT.unpack_from(self._index, at + self._width)
            )
            for at in range(0, len(self._index), step)
        }
        found.update(self._fresh)
        return {job: spot for job, spot in found.items() if spot is not None}

    def names(self) -> list[str]:
        """The ids of all that are here."""
        self.refresh()
        step, width, index, fresh = self._width + _SPOT.size, self._width, self._index, self._fresh
        known = [index[at : at + width].rstrip().decode() for at in range(0, len(index), step)]
        if fresh:
            known = [job for job in known if job not in fresh] + [job for job, spot in fresh.items() if spot]
        return known

    def job(self, job: str) -> PackedJob | None:
        spot = self.find(job)
        if spot is None:
            return None
        key = self.nonce, job, spot
        found = self._read.get(key)
        if found is None:
            found = _read_job(self._data(spot), self.path, job, spot)
            with self._lock:
                if self._last is not None:
                    self._last.plain = None
                self._last = found
                self._read_bytes += spot.length * (key not in self._read)
                self._read[key] = found
                while self._read_bytes > _KEPT_BYTES:
                    self._read_bytes -= self._read.popitem(last=False)[0][2].length
        return found

    def _data(self, spot: Spot) -> bytes:
        """A record; beside it what lies near is read, since jobs are listed in about the order of a pack."""
        nonce, begin, block = self._block
        if nonce != self.nonce or not begin <= spot.start <= begin + len(block) - spot.length:
            begin = spot.start - spot.start % _BLOCK
            block = self._files.read_range(self.path, begin, _BLOCK + spot.length)
            self._block = self.nonce, begin, block
        return block[spot.start - begin : spot.start - begin + spot.length]

    def keep_index(self, *, anyway: bool = False) -> None:
        """Write the index, if that spares the next process much; by the holder of the pack's lock."""
        if not anyway and len(self._fresh) < max(_TAIL, len(self._index) // (self._width + _SPOT.size) // 10):
            return
        jobs = self.jobs()
        width = max((len(job.encode()) for job in jobs), default=0)
        body = b"".join(job.encode().ljust(width) + _SPOT.pack(*jobs[job]) for job in sorted(jobs))
        head = {"version": _INDEX_VERSION, "pack": self.nonce.decode("latin-1"), "end": self.end}
        line = seal({**head, "width": width, "crc": crc32(body)})
        with contextlib.suppress(OSError):  # it is never needed
            self._files.replace(_index_of(self.path), line + body, durable=False)
            self._index, self._width, self._fresh = body, width, {}


def _records(files: Files, path: str, offset: int) -> Iterator[_Record]:
    """The whole records from an offset on. A damaged or torn part in between is passed over."""
    while True:
        data = files.read_range(path, offset, _WINDOW)
        at = 0
        while True:
            found = _whole(data, at, offset)
            if found is None:
                is_last, rest = len(data) < _WINDOW, len(data) - at
                if not is_last and rest <= _WINDOW // 2:
                    break  # the next window has all of it
                at = data.find(_BEGINS, at + 1) + 1
                if not at:
                    break
            else:
                at = found.end - offset
                yield found
        if len(data) < _WINDOW:
            return
        offset += at or len(data) - len(_BEGINS)


def _whole(data: bytes, at: int, offset: int) -> _Record | None:
    """The record that begins at a place of a window which lies at an offset, if all of it is there."""
    while data[at : at + 1] == b"\n":
        at += 1
    end = data.find(b"\n", at) + 1
    said = unseal(data[at:end]) if end else None
    if said is None:
        return None
    if said.get("gone"):
        return _Record(said["job"], None, offset + end)
    stop = end + int(said.get("bytes", _WINDOW))
    if data[stop : stop + 1] != b"\n" or crc32(data[end:stop]) != said.get("crc"):
        return None
    return _Record(said["job"], Spot(offset + at, stop - at), offset + stop + 1)


def _read_job(data: bytes, path: str, job: str, spot: Spot) -> PackedJob:
    """The job that a record has; a damaged record gives an unreadable marker."""
    end = data.find(b"\n") + 1
    said = unseal(data[:end]) if end else None
    if said is not None and said.get("job") == job and crc32(data[end:]) == said.get("crc"):
        with contextlib.suppress(zlib.error, ValueError, TypeError, KeyError):
            stamp = said["crc"], said["at"]
            entries = _entries(said["entries"])
            plain = zlib.decompress(data[end:])
            if len(plain) == sum(one.size for one in entries.values() if one.kind == "f"):
                found = PackedJob(entries, stamp, data[end:])
                found.plain = plain
                return found
    task = path.rpartition("/")[2].removesuffix(".pack")
    problem = f"{path} is damaged at byte {spot.start}".encode()
    marker = f"{script_name(name_of_directory(task) or task)}.done"
    entries = {"": PackedFile("d", 0o700, 0, 0), marker: PackedFile("f", 0o600, 0, len(problem))}
    return PackedJob(entries, (spot.start, 0), zlib.compress(problem))


def _entries(said: Sequence[Sequence[Any]]) -> dict[str, PackedFile]:
    """The entries of a record; `ValueError` for a name that leads elsewhere."""
    found: dict[str, PackedFile] = {}
    start = 0
    for name, kind, mode, modified, size, target in said:
        parts = name.split("/") if name else []
        parent = name.rpartition("/")[0] if parts else None
        if any(part in ("", ".", "..") or "\0" in part for part in parts) or name in found:
            raise ValueError(f"{name!r:.100} is no path of a job")
        if parent is not None and (parent not in found or found[parent].kind != "d"):
            raise ValueError(f"{name!r:.100} lies in no directory")
        found[name] = PackedFile(kind, mode & 0o7777, modified, size, start, target)
        start += size if kind == "f" else 0
    return found


# -- what the adapter of the disk asks -----------------------------------------------------------------


_packs: WeakKeyDictionary[Files, dict[str, Pack]] = WeakKeyDictionary()


def pack_at(files: Files, path: str) -> Pack:
    known = _packs.setdefault(files, {})
    return known.get(path) or known.setdefault(path, Pack(files, path))


def find(files: Files, path: str) -> tuple[PackedJob, str] | None:
    """The packed job that a path leads into, and the rest of the path; None if no pack has it."""
    for place, job, name in pack_places(path):
        found = pack_at(files, place).job(job) if job else _FOLDER if files.stat(place) else None
        if found is not None:
            return found, name
    return None


_FOLDER = PackedJob({"": PackedFile("d", 0o700, 0, 0)}, (0, 0), b"")
"""The directory of tasks or jobs, where a copy of the workspace left empty ones out."""


def size_of(files: Files, directory: str) -> int | None:
    """The bytes of a job's record in its pack; None for what is not packed."""
    for place, job, name in pack_places(directory):
        if job and not name and (spot := pack_at(files, place).find(job)) is not None:
            return spot.length
    return None


def names(files: Files, path: str) -> list[str]:
    """What a directory has besides what the disk shows of it."""
    for place, job, name in pack_places(path):
        if files.stat(place) is None:
            continue
        if not place.endswith(".pack"):
            return [one.removesuffix(".pack") for one in files.list(place) if one.endswith(".pack")]
        if not job:
            return pack_at(files, place).names()
        found = pack_at(files, place).job(job)
        if found is not None:
            entry = found.entries.get(name)
            return found.names(name) if entry is not None and entry.kind == "d" else []
    return []


# -- by the holder of a job's lock ---------------------------------------------------------------------


def is_packed(files: Files, directory: str) -> bool:
    """Whether a pack has the job of a directory."""
    return find(files, directory) is not None


def record_of(files: Files, paths: JobPaths, now: int) -> bytes | str:
    """A job as a record, for `append`; or why it stays in its directory."""
    entries: list[list[Any]] = [["", "d", 0o700, 0, 0, ""]]
    contents: list[bytes] = []
    left = MOST_BYTES
    pending = [""]
    own = {path.rpartition("/")[2] for path in (paths.lock, paths.reserve)}
    marker = files.stat(paths.done)
    while pending:
        folder = pending.pop(0)
        for entry in files.list(f"{paths.directory}/{folder}".rstrip("/")):
            if not folder and entry in own:
                continue
            name, path = f"{folder}{entry}", f"{paths.directory}/{folder}{entry}"
            found = files.stat(path)
            if found is None or is_temporary(entry):
                continue
            modified, target, size = 0, "", 0
            if found.kind is FileKind.FILE:
                # The marker of a job that was moved to a new name has the former one, too.
                if found.names > 1 and not (marker and found.inode == marker.inode):
                    return f"{name} has a further name, a hard link"
                if found.size > LARGEST_FILE:
                    return f"{name} has more than {LARGEST_FILE >> 20} MB"
                data = files.read(path, LARGEST_FILE)
                modified, size = files.modified(path) or 0, len(data)
                contents.append(data)
                left -= size
            elif found.kind is FileKind.LINK:
                target = files.read_link(path)
            elif found.kind is FileKind.DIRECTORY:
                pending.append(f"{name}/")
            else:
                return f"{name} is no file, directory or link"
            entries.append([name, found.kind.value[0], found.mode, modified, size, target])
            if left < 0 or len(entries) > MOST_ENTRIES:
                return f"it has more than {MOST_BYTES >> 20} MB or {MOST_ENTRIES} files"
    entries[0][3] = max(entry[3] for entry in entries)
    payload = zlib.compress(b"".join(contents), 1)
    job = paths.directory.rpartition("/")[2]
    said = {"job": job, "bytes": len(payload), "crc": crc32(payload), "at": now, "entries": entries}
    try:
        return seal(said) + payload + b"\n"
    except ValueError as error:  # a name that is no text, or very long ones
        return f"its files cannot be listed: {error}"


def _is_of_other_version(head: bytes) -> bool:
    version = head.removeprefix(_NAME).partition(b" ")[0]
    return head.startswith(_NAME) and version.isdigit() and version != b"1"


def append(machine: Machine, path: str, records: Iterable[bytes]) -> None:
    """Add records to a pack, and have them on the disk on return."""
    files = machine.files
    with contextlib.closing(_locked(machine, path)):
        pack = pack_at(files, path)
        pack.refresh()
        found = files.stat(path)
        data = b"".join(records)
        size = 0 if found is None else found.size
        if size and not pack.nonce:
            raise DirectoryUnusable(
                f"{path} is of another version of Tenuto: use that one to pack these jobs"
            )
        if not pack.nonce:
            head = _HEAD + machine.randomness.nonce().encode() + b"\n"
            files.replace(path, head + data, durable=True)
            files.sync_directory(path.rpartition("/")[0].rpartition("/")[0])
        else:
            file = files.open_append(path)
            try:
                # A record that lacks its last byte must not become whole: its job may have changed since.
                file.append(b"?\n" * (pack.end != size) + data)
                file.sync()
            finally:
                file.close()
        pack.refresh()
        pack.keep_index()


def keep_index(machine: Machine, path: str) -> None:
    """Write the index of a pack, and the pack anew if most of it is of jobs that are gone."""
    files = machine.files
    with contextlib.closing(_locked(machine, path)):
        pack = pack_at(files, path)
        trash.clear_forsaken(machine, path.rpartition("/")[0])
        jobs = pack.jobs()
        live = sum(spot.length + 1 for spot in jobs.values())
        if pack.end > 2 * (live + (1 << 16)):
            _rewrite(machine, pack, jobs)
        pack.keep_index(anyway=True)


def _rewrite(machine: Machine, pack: Pack, jobs: Mapping[str, Spot]) -> None:
    temporary = f"{pack.path}.{machine.processes.own().pid}-anew.tenuto-tmp"
    files = machine.files
    files.remove(temporary)
    file = files.open_append(temporary, exclusive=True)
    try:
        file.append(_HEAD + machine.randomness.nonce().encode() + b"\n")
        for job, spot in sorted(jobs.items(), key=lambda one: one[1]):
            data = files.read_range(pack.path, spot.start, spot.length)
            file.append(data + b"\n" if _whole(data + b"\n", 0, 0) else _in_vain(job))
        file.sync()
        files.rename(temporary, pack.path)
    except OSError:
        files.remove(temporary)
        raise
    finally:
        file.close()
    files.sync_directory(pack.path.rpartition("/")[0])
    pack.refresh()


def _in_vain(job: str) -> bytes:
    """A record that is damaged, for a job whose record was."""
    return seal({"job": job, "bytes": 1, "crc": crc32(b"?"), "at": 0, "entries": []}) + b"?\n"


def forget_job(machine: Machine, paths: JobPaths) -> None:
    """Have a job no longer be in its pack, if it is: by the holder of its lock."""
    for place, job, _ in pack_places(paths.directory):
        if machine.files.stat(place) is not None and pack_at(machine.files, place).find(job) is not None:
            append(machine, place, [seal({"job": job, "gone": True})])


def unpack(machine: Machine, paths: JobPaths) -> None:
    """Put a job that is packed back into its directory; under its lock, before anything there is changed.

    Killed in between, the pack still has it, and the next one that takes the lock does it again.
    """
    files = machine.files
    found = find(files, paths.directory)
    if found is None:
        return
    packed = found[0]
    for name, entry in packed.entries.items():
        path = f"{paths.directory}/{name}"
        if entry.kind == "d":
            files.make_directory(path.rstrip("/"))
        elif entry.kind == "f":
            files.replace(path, packed.read(path, name), durable=False)
            files.dress(path, entry.mode, entry.modified)
    for name, entry in packed.entries.items():
        if entry.kind == "l":  # the last ones, so that nothing is written through them
            files.symlink(entry.target, f"{paths.directory}/{name}")
        elif entry.kind == "d" and name:
            files.dress(f"{paths.directory}/{name}", entry.mode, None)
    files.sync_tree(paths.directory, lambda name: False)
    files.sync_directory(paths.directory.rpartition("/")[0])
    forget_job(machine, paths)  # for good: after a power loss the pack would undo what was changed since


def _index_of(path: str) -> str:
    return path.removesuffix(".pack") + ".index"


def _locked(machine: Machine, path: str) -> LockHandle:
    """The lock of a pack, which is held for moments."""
    machine.files.make_directory(path.rpartition("/")[0])
    give_up, pause = machine.clock.monotonic() + _PATIENCE_S, threading.Event()
    while (lock := machine.locks.try_lock(path.removesuffix(".pack") + ".lock")) is None:
        if machine.clock.monotonic() > give_up:
            raise DirectoryUnusable(f"{path} has been locked for {_PATIENCE_S:g} s by another process")
        pause.wait(_LOOK_AGAIN_S)
    return lock
