"""A warm parent's one act before it serves: import what the jobs need, as each of them would have.
Runs the user's imports, and nothing else of the user's.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from types import ModuleType
from typing import Any, NamedTuple

from tenuto.launchers.payload import (
    process_end,  # noqa: F401  or each child would load it at its end
    python_task,
)
from tenuto.launchers.warm import fork_safety
from tenuto.launchers.warm.import_watch import PACKAGES, STANDARD, ImportQuestions
from tenuto.tasks.code import code_of, file_digest
from tenuto.tasks.location import Location, be_process_of_a_job, find_class
from tenuto.tasks.ports import current_job
from tenuto.tasks.schema import schema_of

# The source files that a warm parent has loaded, and whether one of them has changed since.
# Looks at the disk; the launcher decides what follows from a change.


_EVERY_S = 0.1
_TICK_NS = 10_000_000
"""The time of a file's change is as coarse as the kernel's clock."""


class Sources:
    """Everything loaded, but for the standard library."""

    def __init__(self, began_ns: int) -> None:
        """`began_ns`: when the first of them may have been read."""
        self._seen = {file: _state(file) for file in _files(list(sys.modules.values()))}
        # A file written while it was read: the parent may have the old text, and here its new time. A module
        # may also name a file that never was (`torch.ops`): that one changes when the file appears.
        self._changed = next(
            (file for file, state in self._seen.items() if state and state[0] > began_ns - _TICK_NS), None
        )
        self._looked = time.monotonic()

    def changed(self) -> str | None:
        """A file that has changed since the import, if there is one."""
        now = time.monotonic()
        if self._changed is None and now >= self._looked + _EVERY_S:
            self._looked = now
            self._changed = next((file for file, state in self._seen.items() if _state(file) != state), None)
        return self._changed


def _files(modules: list[ModuleType]) -> set[str]:
    files = {getattr(module, "__file__", None) for module in modules}
    return {
        file
        for file in files
        if isinstance(file, str) and (not file.startswith(STANDARD) or file.startswith(PACKAGES))
    }


def _state(file: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


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
    then = fork_safety.before()
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
    why = fork_safety.why_unfit(then, asked, memory_limit)
    if why is not None:
        return UnfitModules(why, fork_safety.why_not_ahead(then, asked) is None)
    loaded = Loaded(asked, Sources(began_ns), printed, digests_of(classes), {})
    gc.collect()
    gc.freeze()
    return loaded


def import_classes(classes: list[list[str]]) -> None:
    """Import the modules of the classes, and work out what each of their jobs would have to otherwise."""
    for module, name, file in classes:
        schema_of(find_class(Location(module, name, file)))


def digests_of(classes: list[list[str]]) -> dict[str, str]:
    """The digest of each file that one of the classes, or of their bases, is written in."""
    found = [find_class(Location(*one)) for one in classes]
    return dict(code_of(found, file_digest).files)


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
    """Keeps the text written to the standard streams, from its making to `taken`."""

    def __init__(self) -> None:
        self._kept = [os.memfd_create(name, os.MFD_CLOEXEC) for name in ("out", "err")]
        for standard, fd in enumerate(self._kept, start=1):
            os.dup2(fd, standard)

    def taken(self) -> tuple[bytes, bytes]:
        for stream in (sys.stdout, sys.stderr):  # or each child would print the buffers again
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
