"""The directory of one sbatch: manifest, script, what runners complain of, and Slurm's answer.
Written in the order in which a crash does no harm; read back by a scheduler that comes later.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from tenuto.errors import TenutoError
from tenuto.launchers.manifest import Header, ManifestUnreadable, Order, encode_manifest, read_order
from tenuto.launchers.runner.terms import ENTRY, PLAIN
from tenuto.launchers.slurm.pilot_orders import VANISHED
from tenuto.settings.slurm import SlurmSettings
from tenuto.workspace.json_bytes import from_json
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import Files

LONGEST_NAME = 40
_ID_BYTES = 64
_NAMED_BY = 8
"""Digits of a submission's id that are in the name of its jobs."""
ARRAY_VARIABLES = ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")
JOB_VARIABLES = ("SLURM_JOB_ID",)
PILOTS = "pilots"
_ORDERS_BYTES = 1 << 28


class Place(NamedTuple):
    """Where one submission is kept."""

    root: str
    """`.launchers` of the workspace."""
    id: str
    """16 hexadecimal digits."""
    kind: str = "slurm"

    @property
    def directory(self) -> str:
        return f"{self.root}/{self.kind}/{self.id}"

    @property
    def manifest(self) -> str:
        return f"{self.directory}/manifest"

    @property
    def script(self) -> str:
        return f"{self.directory}/script.sh"

    @property
    def out(self) -> str:
        return f"{self.directory}/out"

    @property
    def answer(self) -> str:
        return f"{self.directory}/id"

    @property
    def terms(self) -> str:
        """Of a pilot: its bell and its beat."""
        return f"{self.directory}/terms.json"

    @property
    def vanished(self) -> str:
        """Of a pilot: the attempts whose runners left no marker."""
        return f"{self.directory}/{VANISHED}"

    @property
    def suffix(self) -> str:
        """What the names of its jobs end with."""
        return f"-{self.id[:_NAMED_BY]}"


class SubmittedAttempt(NamedTuple):
    """One attempt, as a submission names it."""

    place: Place
    position: int
    """Of its line in the manifest, and so of its task in the array."""
    is_array: bool
    job: str | None
    """Slurm's id of it; None if the answer was never written down."""
    header: Header
    is_pilot: bool = False
    """True if the job is a pilot, which runs others besides."""


def job_name(orders: Sequence[Order], place: Place) -> str:
    """The name of the jobs in Slurm's own lists."""
    names = {order.script_name for order in orders}
    return (names.pop() if len(names) == 1 else "tenuto")[:LONGEST_NAME] + place.suffix


def task_id(job: str, index: int, *, is_array: bool) -> str:
    """Slurm's id of one attempt of a submission."""
    return f"{job}_{index}" if is_array else job


def in_one_array(job: str, other: str) -> bool:
    """Whether two ids are of tasks of the same array."""
    return job.partition("_")[0] == other.partition("_")[0]


def write(files: Files, place: Place, header: Header, orders: Sequence[Order], script: str) -> None:
    """Keeps a submission, before Slurm is told of it."""
    files.make_directory(place.directory)
    files.write(place.script, script.encode())
    files.replace(place.manifest, encode_manifest(header, orders), durable=False)


def write_answer(files: Files, place: Place, job: str) -> None:
    """Keeps Slurm's id of the job, for a scheduler that comes later."""
    files.replace(place.answer, f"{job}\n".encode(), durable=False)


def script_of(settings: SlurmSettings, python: str, place: Place, time_s: float | None) -> str:
    """The script that Slurm runs: one runner, which finds its attempt by the index of its task."""
    runner = [*(settings.wrap or ()), python, *PLAIN, ENTRY, "--claim", python, place.manifest]
    index = "${SLURM_ARRAY_TASK_ID:-0}"
    limit = "-" if time_s is None else f"{time_s:g}"
    setup = f"{settings.setup}\n" if settings.setup else ""
    return f"#!/bin/sh\n{setup}exec {shlex.join(runner)} {index} {limit}\n"


def arguments_of(options: Sequence[str], name: str, place: Place, count: int) -> list[str]:
    """The arguments of sbatch for a submission."""
    output = place.out.replace("%", "%%")
    words = ["--parsable", "--no-requeue", "--open-mode=append", "--input=none", "--chdir=/"]
    words += [f"--job-name={name}", f"--output={output}", *options]
    return [*words, f"--array=0-{count - 1}"] if count > 1 else words


def places(files: Files, layout: Layout) -> list[Place]:
    """Every submission that the workspace keeps."""
    found: list[Place] = []
    for kind in ("slurm", PILOTS):
        with suppress(FileNotFoundError, NotADirectoryError):
            names = files.list(f"{layout.launchers}/{kind}")
            found += [Place(layout.launchers, name, kind) for name in names]
    return found


def attempts_of(files: Files, place: Place) -> Iterator[tuple[Order, SubmittedAttempt]]:
    """The attempts of a submission, in the order of their index; none if it was never written whole."""
    job = None
    with suppress(OSError, ValueError):
        job = files.read(place.answer, _ID_BYTES).decode("ascii").strip() or None
    if place.kind == PILOTS:
        yield from _of_pilot(files, place, job)
        return
    index = 0
    while True:
        try:
            header, order = read_order(files, place.manifest, index)
        except (OSError, ManifestUnreadable):
            return
        is_array = header.job == ARRAY_VARIABLES
        own = None if job is None else task_id(job, index, is_array=is_array)
        yield order, SubmittedAttempt(place, index, is_array, own, header)
        index += 1


def has_vanished(files: Files, found: SubmittedAttempt, nonce: str) -> bool:
    """True if the pilot that had an attempt says that its runner left no marker."""
    with suppress(OSError):
        return nonce.encode() in files.read(found.place.vanished, _ORDERS_BYTES).split(b"\n")
    return False


def _of_pilot(files: Files, place: Place, job: str | None) -> Iterator[tuple[Order, SubmittedAttempt]]:
    """The orders that a pilot was sent."""
    try:
        lines = files.read(place.manifest, _ORDERS_BYTES).split(b"\n")
        terms = from_json(files.read(place.terms, _ID_BYTES * 64))
        header = Header(float(terms["beat_s"]), str(terms["bell"]), JOB_VARIABLES)
    except (OSError, ValueError, KeyError, TypeError, TenutoError):
        return
    for line in lines:
        with suppress(ValueError, TypeError):
            directory, script_name, nonce, *_ = from_json(line)
            order = Order(str(directory), str(script_name), str(nonce))
            yield order, SubmittedAttempt(place, 0, False, job, header, is_pilot=True)
