"""Whether a process that imported a task's modules may be forked, so that a child is as good as a fresh one.
Each rule answers with the end of the sentence "the module ...", or None.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

from tenuto.launchers.warm.import_watch import STANDARD, ImportQuestions

_INSTALLED = ("/site-packages/", "/dist-packages/")
_MOST = 100_000
"""Objects looked at: a module that holds more than that holds data, not generators."""


def is_installed(module: ModuleType) -> bool:
    """True for the standard library, installed packages and Tenuto itself; False for a file of the user's."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return True
    name = str(getattr(module, "__name__", ""))
    return (
        file.startswith(STANDARD)
        or any(part in file for part in _INSTALLED)
        or name.partition(".")[0] == "tenuto"
    )


def held_by_users_modules() -> Iterator[tuple[str, Any]]:
    """Each object that a module of the user's refers to, however indirectly, with the module's name.

    Objects of other modules (their classes, functions and globals) are not gone through: the values behind
    them is theirs.
    """
    modules = [module for module in list(sys.modules.values()) if hasattr(module, "__dict__")]
    users = [module for module in modules if not is_installed(module)]
    names = {module.__name__ for module in users}
    seen = {id(module.__dict__) for module in modules}
    looked = 0
    for module in users:
        pending = list(module.__dict__.values())
        while pending and looked < _MOST:
            one = pending.pop()
            if id(one) in seen or isinstance(one, ModuleType | BuiltinFunctionType):
                continue
            if isinstance(one, type | FunctionType) and getattr(one, "__module__", None) not in names:
                continue
            seen.add(id(one))
            looked += 1
            yield module.__name__, one
            pending.extend(gc.get_referents(one))


MEMORY_LIMIT = 2 << 30
"""Of memory that only the parent has: the kernel copies its page tables in 18 ms a GB, twice for each job. An
import that leaves more behind takes seconds. Memory mapped from files (500 MB of PyTorch's) costs nothing."""
_POOLS = ("openblas",)
"""Libraries whose threads end before a fork and come back when they are needed. Each has a test."""
_MENDED = frozenset((b"jemalloc_bg_thd",))
"""Names of threads whose library is told of every fork, and does without them in the child: jemalloc, which
comes with pyarrow, and so with pandas. Each has a test."""
_SMALL_SEED = 1 << 32
"""PyTorch seeds itself with 53 random bits or more: a smaller seed is one that a module chose."""
_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/")


class Before(NamedTuple):
    """What the process was like when nothing of the user's was loaded."""

    descriptors: frozenset[int]
    signals: tuple[Any, ...]
    random_words: tuple[int, ...]


def before() -> Before:
    return Before(frozenset(_descriptors()), _signals(), _random_words())


def why_unfit(then: Before, asked: ImportQuestions, memory_limit: int = MEMORY_LIMIT) -> str | None:
    """The first rule that is broken; None if the process may be forked."""
    rules: list[Callable[[], str | None]] = [
        lambda: _uses_gpu(then),
        _starts_threads,
        _starts_processes,
        lambda: keeps_files_open(then),
        lambda: _handles_signals(then),
        lambda: _has_random_numbers_of_its_own(then),
        lambda: _asks_where_it_is(asked),
        lambda: too_large(memory_limit),
    ]
    return next((why for rule in rules if (why := rule())), None)


def too_large(limit: int = MEMORY_LIMIT) -> str | None:
    """Judges by pages that only this process has, since those are what a fork costs."""
    size = private_bytes()
    return f"fills {size >> 20} MB of memory, which makes a fork slow" if size > limit else None


def private_bytes() -> int:
    """The memory that only this process has."""
    with open("/proc/self/smaps_rollup", "rb") as stream:
        fields = dict(line.split()[:2] for line in stream if line.startswith(b"Private_Dirty:"))
    return int(fields[b"Private_Dirty:"]) << 10


def why_not_ahead(then: Before, asked: ImportQuestions) -> str | None:
    """The reason why modules cannot be imported before there is a job, even for one that is never forked."""
    rules: list[Callable[[], str | None]] = [
        _starts_processes,
        lambda: _handles_signals(then),
        lambda: _asks_where_it_is(asked),
    ]
    return next((why for rule in rules if (why := rule())), None)


def _asks_where_it_is(asked: ImportQuestions) -> str | None:
    return asked.directory and f"asks for the working directory while it is imported ({asked.directory})"


def _uses_gpu(then: Before) -> str | None:
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return "uses CUDA while it is imported"
    devices = [path for path in _opened(then).values() if path.startswith(_DEVICES)]
    return f"opens a GPU while it is imported ({devices[0]})" if devices else None


def _starts_threads() -> str | None:
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if others:
        return f"starts threads while it is imported ({others[0]})"
    if _threads() == 1:
        return None
    if _has_library(_POOLS):
        _try_fork()  # a pool that is right with forks is gone now
    return "starts threads while it is imported" if _threads() > 1 else None


def _starts_processes() -> str | None:
    with open(f"/proc/self/task/{os.getpid()}/children") as stream:
        return "starts processes while it is imported" if stream.read().strip() else None


def keeps_files_open(then: Before) -> str | None:
    """Whether something that was opened since is open."""
    opened = sorted(_opened(then).values())
    return f"leaves files or sockets open while it is imported ({opened[0]})" if opened else None


def _handles_signals(then: Before) -> str | None:
    return None if _signals() == then.signals else "handles signals from its import on"


def _has_random_numbers_of_its_own(then: Before) -> str | None:
    if _random_words() != then.random_words:
        return "seeds `random` while it is imported"
    numpy_random: Any = sys.modules.get("numpy.random")
    kinds: tuple[type, ...] = (sys.modules["random"].Random,)
    known: tuple[Any, ...] = (sys.modules["random"]._inst,)
    if numpy_random is not None:
        shared = numpy_random.mtrand._rand
        if shared._bit_generator.seed_seq is None:
            return "seeds `numpy.random` while it is imported"
        kinds += (numpy_random.Generator, numpy_random.RandomState)
        known += (shared,)
    shared = getattr(sys.modules.get("torch"), "default_generator", None)
    if shared is not None:
        if shared.initial_seed() < _SMALL_SEED:
            return "seeds `torch` while it is imported"
        kinds += (type(shared),)
        known += (shared,)
    system: type = sys.modules["random"].SystemRandom
    for module, made in held_by_users_modules():
        if type(made) in kinds and not isinstance(made, system) and not any(made is k for k in known):
            return f"makes a generator of random numbers while it is imported ({module})"
    return None


def _descriptors() -> Iterator[int]:
    for name in os.listdir("/proc/self/fd"):
        try:
            os.fstat(int(name))
        except OSError:
            continue  # the one that listed them
        yield int(name)


def _opened(then: Before) -> dict[int, str]:
    found = {}
    for fd in set(_descriptors()) - then.descriptors:
        try:
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue  # closed meanwhile
    return found


def _signals() -> tuple[Any, ...]:
    return tuple(signal.getsignal(number) for number in sorted(signal.valid_signals()))


def _random_words() -> tuple[int, ...]:
    """The words that seeding sets, and drawing leaves alone for a long while."""
    random: Any = sys.modules["random"]
    return tuple(random.getstate()[1][:-1])


def _threads() -> int:
    """The number of threads of this process, but for threads that no child misses."""
    return sum(_thread_name(task) not in _MENDED for task in os.listdir("/proc/self/task"))


def _thread_name(task: str) -> bytes:
    try:
        with open(f"/proc/self/task/{task}/comm", "rb") as stream:
            return stream.read().rstrip()
    except OSError:
        return b""  # it has ended meanwhile, and is counted this time


def _has_library(names: tuple[str, ...]) -> bool:
    with open("/proc/self/maps") as stream:
        maps = stream.read()
    return any(name in maps for name in names)


def _try_fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
