"""Owns how the tests run: the hypothesis profiles, the watchdog, and what may be skipped where."""

from __future__ import annotations

import faulthandler
import gc
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.parts import torque

# A run started in the background ignores what a terminal sends, and so would all that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
for ignored in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(ignored, signal.SIG_DFL)

# Tests start thousands of interpreters: without bytecode each of them would compile what it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

pytest_plugins = ["tests.parts.fixtures"]  # private servers: PostgreSQL, Redis, RabbitMQ

IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}

# No deadline: on a shared machine a slow example says nothing about the code. CI judges a change, and plays
# the same examples each time; new ones are looked for here, and by `make prove`.
settings.register_profile("dev", deadline=None, print_blob=True, derandomize=IN_CI, max_examples=100)
settings.register_profile("check", settings.get_profile("dev"), max_examples=20)
settings.register_profile("prove", settings.get_profile("dev"), derandomize=False, max_examples=10_000)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or "dev"
settings.load_profile(PROFILE)

# -- the watchdog ----------------------------------------------------------------------------------
# A test that hangs must not hang the run. A faulthandler timer lives outside Python, so it fires even
# when the main thread holds the interpreter lock or waits in C; it prints every stack and ends the
# process. Under xdist that is one worker: its test fails and a new worker takes over the rest.

WATCHDOG_S = 3600.0 if PROFILE == "prove" else 120.0
STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STDERR] = os.dup(2)  # taken now, because during a test fd 2 is pytest's capture file


def _arm(config: pytest.Config, seconds: float) -> None:
    crowding = max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0)  # how many processes share a core
    faulthandler.dump_traceback_later(seconds * crowding, exit=True, file=config.stash[STDERR])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    marker = item.get_closest_marker("watchdog")
    _arm(item.config, float(marker.args[0]) if marker else WATCHDOG_S)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_enter_pdb() -> None:
    faulthandler.cancel_dump_traceback_later()  # a person thinking is not a hang


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    _arm(session.config, WATCHDOG_S)  # a thread left behind can also hang the exit of the interpreter


# -- the collector of garbage -------------------------------------------------------------------------
# Modules and tests that were collected stay to the end. A full collection that goes through all of them
# takes half a second, and each worker made twenty: an eighth of the CPU time of `make check`.


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# -- what is left to `make test` and `make prove` ----------------------------------------------------

PROGRAMS = """
    behaviour bench database docs experiments faults proof search service slurm clusters typing
    monitor/page monitor/tui cli/test_adopt.py cli/test_every_door.py cli/test_run.py
    launchers/test_exits.py launchers/test_habits.py launchers/test_interpreters.py
    launchers/test_libraries.py launchers/test_plugins.py launchers/test_spares.py launchers/test_warm.py
    tasks/test_script_identity.py
""".split()
"""Rooms and files whose tests drive whole programs (scripts, servers, browsers): left out of `make check`."""
QUICK = """
    experiments/test_actions.py experiments/test_disk_errors.py experiments/test_history.py
    experiments/test_run_id.py experiments/test_yaml_file.py
    search/test_32_plans.py search/test_heatmap.py
    service/test_archive.py service/test_decisions.py service/test_guard.py service/test_names.py
    service/test_requests.py service/test_uploads.py
""".split()
"""Files of those rooms that start nothing."""


def drives_programs(path: Path) -> bool:
    """Whether the tests of a file, or all tests of a folder, drive whole programs."""
    within = path.relative_to(Path(__file__).parent).as_posix() if path.is_absolute() else path.as_posix()
    if any(f"{quick}/".startswith(f"{within}/") for quick in QUICK):
        return False
    return any(f"{within}/".startswith(f"{place}/") for place in PROGRAMS)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave unread what `make check` leaves out: each worker imports what it collects."""
    if config.option.markexpr != "not slow" or Path(__file__).parent not in collection_path.parents:
        return None
    return drives_programs(collection_path) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with its reason, what takes minutes or measures time; mark what drives whole programs as slow."""
    for item in items:
        if drives_programs(item.path):
            item.add_marker(pytest.mark.slow)
        marker = item.get_closest_marker("prove")
        if marker is not None and PROFILE != "prove":
            item.add_marker(pytest.mark.skip(reason=f"left to `make prove`: {marker.args[0]}"))


# -- what a machine may lack -----------------------------------------------------------------------


def _module(name: str) -> Callable[[], bool]:
    return lambda: importlib.util.find_spec(name) is not None


def _command(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name) is not None


def _can_mount() -> bool:
    return os.geteuid() == 0 and _command("mount")() and _command("umount")()


def _memory_cgroups() -> bool:
    return any(
        os.access(f"/sys/fs/cgroup/{place}", os.W_OK) for place in ("memory/cgroup.procs", "memory.max")
    )


def _works(*command: str) -> Callable[[], bool]:
    return lambda: (
        shutil.which(command[0]) is not None and not subprocess.run(command, check=False).returncode
    )


def _postgresql() -> bool:
    return _command("postgres")() or any(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


COMPONENTS: dict[str, Callable[[], bool]] = {
    "bindfs": _command("bindfs"),
    "bubblewrap": _command("bwrap"),
    "chromium": _command("chromium"),
    "codecarbon": _module("codecarbon"),
    "curl": _command("curl"),
    "git": _command("git"),
    "torque": torque.is_unpacked,
    "gridengine": lambda: Path("/usr/lib/gridengine/sge_qmaster").exists(),
    "right to mount a disk": lambda: os.geteuid() == 0 and _works("unshare", "--mount", "true")(),
    "pid namespace": _works(*"unshare --user --map-root-user --pid --fork --mount-proc true".split()),
    "loop device": lambda: _can_mount() and _command("mkfs.ext4")() and _works("losetup", "--find")(),
    "memory cgroups": _memory_cgroups,
    "mkdocs": lambda: _module("material")() and _module("mkdocstrings")(),
    "mypy": _module("mypy"),
    "npm": _command("npm"),
    "numpy": _module("numpy"),
    "postgresql": _postgresql,
    "pyright": _module("pyright"),
    "rabbitmq": lambda: Path("/usr/lib/rabbitmq/bin/rabbitmq-server").exists(),
    "redis": _command("redis-server"),
    "slurm": lambda: all(map(shutil.which, ("slurmctld", "slurmd", "munged", "sbatch"))),
    "slurmdbd": lambda: all(map(shutil.which, ("slurmdbd", "mariadbd", "sacct"))),
    "sshd": lambda: _command("ssh")() and shutil.which("sshd", path="/usr/sbin:/sbin") is not None,
    "tmpfs": _can_mount,
    "tmux": _command("tmux"),
    "unzip": _command("unzip"),
}


@pytest.fixture(scope="session")
def require() -> Callable[[str], None]:
    """``require("git")``: a missing component skips on a user's machine and fails in CI."""

    def require(component: str) -> None:
        if COMPONENTS[component]():
            return
        message = f"this machine has no {component}, so this behaviour is NOT tested here"
        if IN_CI:
            pytest.fail(message)
        pytest.skip(message)

    return require
