"""The directory of one sbatch: manifest, script, what runners complain of, and Slurm's answer.
Written in the order in which a crash does no harm; read back by a scheduler that comes later.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from tenuto.errors import TenutoError
from tenuto.launchers.manifest import (
    Header,
    ManifestUnreadable,
    Order,
    encode_manifest,
    read_order,
    setup_path,
)
from tenuto.launchers.runner.terms import ENTRY, PLAIN, SETUP_FAILED
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
_INDEX = "${SLURM_ARRAY_TASK_ID:-0}"
_SETUP = """tenuto_said={said}
tenuto_failed() {{
    tenuto_code=$?
    trap - EXIT
    set +e
    exec 1>&3 2>&4 3>&- 4>&-
    cat "$tenuto_said"
    printf '\\n%s\\n' "$tenuto_code" >>"$tenuto_said"
    case $tenuto_code in
        0|138|143) ;;
        *) {mark} ;;
    esac
    exit {code}
}}
exec 3>&1 4>&2
true >"$tenuto_said" && exec >"$tenuto_said" 2>&1
trap tenuto_failed EXIT
set -e
eval {setup}
trap - EXIT
exec 1>&3 2>&4 3>&- 4>&-
"""
"""The lines before a runner. What a setup says is kept, and its failure ends the script: `trap` also sees an
`exit`. A shell that is told to end has no failed setup (0 in bash; 138 and 143, of a command of the setup's):
Slurm says why, and its word counts before the exit code.
"""


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
    runner = shlex.join([python, *PLAIN, ENTRY, "--claim", python, place.manifest])
    runner += f" {_INDEX} " + ("-" if time_s is None else f"{time_s:g}")
    return script_around(settings, place, runner, marks_failed_setup=True)


def script_around(settings: SlurmSettings, place: Place, runner: str, *, marks_failed_setup: bool) -> str:
    """A script that runs the setup, and then becomes a runner.

    `marks_failed_setup`: a setup that fails has the same runner mark its attempt. The exit code 78 has the
    driver do so where the runner cannot: there is no Python without the setup, or a pilot has many attempts.
    Dash would drop the functions that bash exports, such as `module`.
    """
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    begin = f"#!{shell}{' -l' if settings.login_shell else ''}\n"
    start = " ".join(["exec", *map(shlex.quote, settings.wrap or ()), f"{runner}\n"])
    if not settings.setup:
        return begin + start
    said = f"{shlex.quote(setup_path(place.manifest, ''))}{_INDEX}"
    mark = f'{runner} "$tenuto_said" && exit 0' if marks_failed_setup else ":"
    setup = shlex.quote(settings.setup)
    return begin + _SETUP.format(said=said, mark=mark, setup=setup, code=SETUP_FAILED) + start


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
