"""A warm parent's one act before it serves: import what the jobs need, as each of them would have.
Runs the user's imports, and nothing else of the user's.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from typing import Any, NamedTuple

from tenuto.launchers.payload import (
    process_end,  # noqa: F401  or each child would load it at its end
    python_task,
)
from tenuto.launchers.warm import fitness
from tenuto.launchers.warm.import_watch import ImportQuestions
from tenuto.launchers.warm.source_files import Sources
from tenuto.tasks.location import Location, be_process_of_a_job, find_class
from tenuto.tasks.ports import current_job
from tenuto.tasks.schema import schema_of

_LONGEST_OUTPUT = 1 << 20


class Loaded(NamedTuple):
    """What the parent knows of itself once everything is imported; in a payload, the `Preloaded`."""

    asked: ImportQuestions
    sources: Sources
    printed: tuple[bytes, bytes]
    """What the imports wrote to standard output and standard error."""
    digests: dict[str, str]
    provenance: dict[str, str]

    def settle(self) -> None:
        for standard, text in enumerate(self.printed, start=1):
            if text:
                os.write(standard, text)
        draw_anew()


class UnfitModules(NamedTuple):
    """Why a process with these modules must not be forked."""

    why: str
    spares_help: bool
    """The modules may be imported ahead of time by an interpreter that is used once."""


def load(
    classes: list[list[str]], import_path: list[str], environment: dict[str, str], memory_limit: int
) -> Loaded | UnfitModules:
    """Import the modules of the classes; if the process must not be forked after that, the reason."""
    began_ns = time.time_ns()
    look_like_a_job(import_path)
    os.environ.update(environment)
    random.random()  # so that the words of its state stay as they are for hundreds of numbers
    then = fitness.before()
    asked = ImportQuestions()
    output = Output()
    asked.watch()
    try:
        import_classes(classes)
    except BaseException as error:  # noqa: BLE001  the job will say it better: it fails in its own log
        return UnfitModules(f"cannot be imported ({type(error).__name__}: {error})"[:500], False)
    finally:
        asked.stop()
        printed = output.taken()
    gc.collect()
    why = fitness.why_unfit(then, asked, memory_limit)
    if why is not None:
        return UnfitModules(why, fitness.why_not_ahead(then, asked) is None)
    loaded = Loaded(asked, Sources(began_ns), printed, digests_of(classes), {})
    gc.collect()
    gc.freeze()
    return loaded


def draw_anew() -> None:
    """Seed the generators of random numbers that a fork shares; `random` does so itself.

    PyTorch passes the seed on to CUDA, once the task touches that.
    """
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    seed_torch = getattr(sys.modules.get("torch"), "manual_seed", None)
    if seed_torch is not None:
        seed_torch(int.from_bytes(os.urandom(8), "big") >> 1)


def import_classes(classes: list[list[str]]) -> None:
    """Import the modules of the classes, and work out what each of their jobs would have to otherwise."""
    for module, name, file in classes:
        schema_of(find_class(Location(module, name, file)))


def digests_of(classes: list[list[str]]) -> dict[str, str]:
    """The SHA-256 of each file that one of the classes is written in."""
    files = {getattr(sys.modules[module], "__file__", None) for module, _, _ in classes}
    return {file: python_task.digest(file) for file in files if file}


def look_like_a_job(import_path: list[str]) -> None:
    """Be, to a module that is imported, what the process of a job is."""
    be_process_of_a_job()
    os.chdir("/")  # where no relative path leads to a file
    python_task.complete_package()
    python_task.look_like_a_plain_program()
    sys.path[:] = import_path
    # An experiment that a script opens while it is imported must fail here as it does in a job.
    inside: Any = object()
    current_job.set(inside)


class Output:
    """Keeps what is written to the standard streams, from its making to `taken`."""

    def __init__(self) -> None:
        self._kept = [os.memfd_create(name, os.MFD_CLOEXEC) for name in ("out", "err")]
        for standard, fd in enumerate(self._kept, start=1):
            os.dup2(fd, standard)

    def taken(self) -> tuple[bytes, bytes]:
        for stream in (sys.stdout, sys.stderr):  # or each child would print again what is in the buffers
            if stream is not None and not stream.closed:
                stream.flush()
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        texts = []
        for standard, fd in enumerate(self._kept, start=1):
            os.dup2(nowhere, standard)
            texts.append(os.pread(fd, _LONGEST_OUTPUT, 0))
            os.close(fd)
        os.close(nowhere)
        return texts[0], texts[1]
