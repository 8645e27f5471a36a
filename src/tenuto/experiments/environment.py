"""What a run records about its surroundings: Python, packages, machine, git, a few variables.
It never writes a secret down, and never runs code of the repository it looks at.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, unique
from pathlib import Path
from typing import Any, NamedTuple

from tenuto.errors import DirtyGitError
from tenuto.experiments.git_state import GitState, forget_git, git_state
from tenuto.light import pattern

FORMAT = 1


class Environment(NamedTuple):
    """Everything that goes into environment.json."""

    python: Mapping[str, str]
    platform: Mapping[str, str]
    hostname: str
    packages: Mapping[str, str]
    git: tuple[GitState, ...]
    variables: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """The content of environment.json."""
        return {
            "format": FORMAT,
            "python": dict(self.python),
            "platform": dict(self.platform),
            "hostname": self.hostname,
            "packages": dict(self.packages),
            "git": [state._asdict() for state in self.git],
            "variables": dict(self.variables),
        }


def capture(
    project_paths: Iterable[str | Path], environ: Mapping[str, str], allow: Iterable[str] = ()
) -> Environment:
    """The surroundings of this process. Packages are looked up once, each repository once (see `forget`)."""
    machine = os.uname()
    return Environment(
        python={
            "version": ".".join(map(str, sys.version_info[:3])),
            "implementation": sys.implementation.name,
            "executable": os.path.basename(sys.executable),
        },
        platform={"system": machine.sysname, "release": machine.release, "machine": machine.machine},
        hostname=machine.nodename,
        packages=installed_packages(),
        git=tuple(git_state(path, environ) for path in project_paths),
        variables=recorded_variables(environ, allow),
    )


def forget() -> None:
    """Looks at packages and repositories anew: for a notebook, whose process outlives many runs."""
    _packages.cache_clear()
    forget_git()


# -- uncommitted changes -----------------------------------------------------------------------------


@unique
class DirtyGitAction(Enum):
    """What a run does when a project has uncommitted changes."""

    IGNORE = "ignore"
    WARN = "warn"
    ERROR = "error"


def dirty_paths(state: Environment) -> list[str]:
    """The project paths with uncommitted changes."""
    return [git.path for git in state.git if git.dirty]


def check_dirty_git(state: Environment, action: DirtyGitAction) -> str | None:
    """What to warn of, if anything; raises `DirtyGitError` where that is asked for."""
    paths = dirty_paths(state)
    if not paths or action is DirtyGitAction.IGNORE:
        return None
    problem = f"uncommitted changes in {', '.join(paths)}: the commit on record is not the code that runs"
    if action is DirtyGitAction.ERROR:
        raise DirtyGitError(f'{problem}; commit them, or set dirty_git to "warn" or "ignore"')
    return problem


# -- variables ---------------------------------------------------------------------------------------
# An allow-list, because no list has all names that hold a secret. Whole names only: a prefix such as
# SLURM_ would take SLURM_JWT along.

ALLOWED = frozenset(
    """
    LANG LC_ALL LC_CTYPE LC_NUMERIC TZ PYTHONHASHSEED PYTHONOPTIMIZE PYTHONUTF8 PYTHONDONTWRITEBYTECODE
    CONDA_DEFAULT_ENV OMP_NUM_THREADS OMP_PROC_BIND OMP_PLACES OPENBLAS_NUM_THREADS MKL_NUM_THREADS
    NUMEXPR_NUM_THREADS VECLIB_MAXIMUM_THREADS BLIS_NUM_THREADS RAYON_NUM_THREADS TOKENIZERS_PARALLELISM
    CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUBLAS_WORKSPACE_CONFIG NVIDIA_VISIBLE_DEVICES
    HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES TF_DETERMINISTIC_OPS XLA_FLAGS WORLD_SIZE RANK LOCAL_RANK
    SLURM_JOB_ID SLURM_JOB_NAME SLURM_JOB_PARTITION SLURM_JOB_NODELIST SLURM_JOB_NUM_NODES SLURM_NTASKS
    SLURM_CPUS_PER_TASK SLURM_MEM_PER_NODE SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_PROCID SLURM_LOCALID
    SLURM_CLUSTER_NAME
    """.split()
)
_SECRET = pattern(
    r"KEY|TOKEN|SECRET|PASS|PWD|CRED|AUTH|JWT|COOKIE|SESSION|PRIVATE|URL|URI|DSN", re.IGNORECASE
)
_LONGEST_VALUE = 1000


def recorded_variables(environ: Mapping[str, str], allow: Iterable[str] = ()) -> dict[str, str]:
    """The variables that may be written down: the usual ones, and those that the settings allow.

    ``NAME`` allows one variable. ``PREFIX*`` allows those that do not look like a secret by their name.
    """
    patterns = list(allow)
    names = ALLOWED | {pattern for pattern in patterns if not pattern.endswith("*")}
    prefixes = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*") and pattern != "*")
    return {
        name: value[:_LONGEST_VALUE].encode("utf-8", "replace").decode()
        for name, value in sorted(environ.items())
        if name in names or (prefixes and name.startswith(prefixes) and not _SECRET.search(name))
    }


# -- packages ----------------------------------------------------------------------------------------
# By the names of the directories that installers leave, as importlib.metadata reads them. That module itself
# takes 30 ms to import and half a millisecond a package, which is more than the rest of starting a run.

_NORMAL = pattern(r"[-_.]+")
_INFO = (".dist-info", ".egg-info")


def installed_packages() -> dict[str, str]:
    """Name -> version of what is installed, in the order of the names."""
    return dict(_packages())


@functools.cache
def _packages() -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for folder in dict.fromkeys(sys.path):
        for name, version in _packages_in(folder or "."):
            found.setdefault(_NORMAL.sub("-", name).lower(), version)
    return tuple(sorted(found.items()))


def _packages_in(folder: str) -> Iterator[tuple[str, str]]:
    try:
        entries = sorted(os.listdir(folder))
    except OSError:  # sys.path may name what is not there, or is not a directory
        return
    for entry in entries:
        stem, ending = os.path.splitext(entry)
        if ending not in _INFO:
            continue
        name, _, version = stem.partition("-")
        if ending == ".egg-info":
            version = version.partition("-py")[0]
            if not version:  # of a project under development, which keeps its version inside
                name, version = _read_metadata(os.path.join(folder, entry, "PKG-INFO")) or (name, "")
        if name and version:
            yield name, version


def _read_metadata(path: str) -> tuple[str, str] | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            head = stream.read(4096)
    except OSError:
        return None
    name = re.search(r"^Name: *(\S+)", head, re.MULTILINE)
    version = re.search(r"^Version: *(\S+)", head, re.MULTILINE)
    return (name[1], version[1]) if name and version else None
