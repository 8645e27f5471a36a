"""What a run records about its surroundings: Python, packages, machine, git, a few variables.
It never writes a secret down, and never runs code of the repository it looks at.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, unique
from pathlib import Path
from typing import Any, NamedTuple

from tenuto.errors import DirtyGitError
from tenuto.jobs.driver_command import running_script
from tenuto.light import pattern
from tenuto.settings.urls import HIDDEN
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import Files

# The git state of a project directory, asked of git: commit, branch, remote, paths that are not committed.
# Never waits longer than `TIMEOUT_S`, runs no hook or filter of the repository, and keeps no credentials.


class GitState(NamedTuple):
    """The state of a project's repository; ``problem`` says why something is not known."""

    path: str
    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    """Whether a tracked file differs from the commit. Files that git does not know do not count."""
    remote: str | None = None
    problem: str | None = None


TIMEOUT_S = 5.0
_LONGEST_OUTPUT = 1_000_000

# Looking at a repository must not run what its author put there. Hooks and the file system monitor are
# switched off; no command used here runs a textconv or an external diff; index writes, which run a hook, are
# off with the optional locks. Two more doors are easy to forget: `git status` runs the clean filters that
# the repository's own configuration names, so these are listed first (reading configuration runs nothing)
# and emptied one by one; and in a partial clone it may fetch, so that no transport is allowed.
_QUIET = """
    --no-pager --no-optional-locks --literal-pathspecs
    -c core.fsmonitor= -c core.hooksPath=/dev/null -c core.untrackedCache=false -c core.pager=cat
    -c diff.external= -c protocol.allow=never -c safe.bareRepository=explicit -c submodule.recurse=false
    -c status.submoduleSummary=false -c color.ui=false
""".split()
_PASSED_ON = ("PATH", "HOME", "XDG_CONFIG_HOME")
_FILTER = pattern(r"filter\.(.+)\.[^.]*", re.DOTALL)


class _GitFailed(Exception):
    """Git did not answer; the message says why."""


def git_state(path: str | Path, environ: Mapping[str, str]) -> GitState:
    """The state of the repository that a path lies in; looked up once in the life of this process."""
    shown = os.fspath(path)
    folder = os.path.realpath(shown)
    top = next((p for p in (folder, *map(str, Path(folder).parents)) if os.path.lexists(f"{p}/.git")), None)
    if top is None:
        return GitState(shown, problem="not a git repository")
    kept = tuple((name, environ[name]) for name in _PASSED_ON if name in environ)
    if os.path.isfile(folder):  # such as the YAML file that describes an experiment
        return _git_state(top, kept, folder)._replace(path=os.path.dirname(shown))
    return _git_state(top, kept, running_script())._replace(path=shown)


def forget_git() -> None:
    """Ask git anew from now on."""
    _git_state.cache_clear()


@functools.lru_cache(maxsize=256)
def _git_state(top: str, kept: tuple[tuple[str, str], ...], script: str) -> GitState:
    git = _Git(top, dict(kept))
    commit = branch = remote = None
    try:
        configuration = git.configuration()
        remote = _remote(configuration)
        options = _without_filters(configuration)
        headers, dirty = git.status(options)
        dirty = dirty or git.leaves_out(script)
        commit = headers.get("branch.oid")
        branch = headers.get("branch.head")
    except _GitFailed as failure:
        return GitState(top, remote=remote, problem=str(failure))
    return GitState(
        top,
        None if commit == "(initial)" else commit,
        None if branch == "(detached)" else branch,
        dirty,
        remote,
    )


class _Git:
    """Git on one repository, with nothing of ours but the path and the home in its environment."""

    def __init__(self, top: str, variables: Mapping[str, str]) -> None:
        search = [p for p in variables.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(p)]
        self._program = next((f"{p}/git" for p in search if os.access(f"{p}/git", os.X_OK)), None)
        self._top = top
        self._environ = {
            **variables,
            "PATH": os.pathsep.join(search),
            "LC_ALL": "C",
            "GIT_ALLOW_PROTOCOL": "none",
            "GIT_ASKPASS": "true",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
        }

    def configuration(self) -> list[tuple[str, str]]:
        """The remotes and filters that the configuration names, in its order."""
        pattern = r"^(remote\..*\.url|filter\..*)$"
        out = self._run(["config", "--null", "--get-regexp", pattern], allowed=(0, 1))
        pairs = [entry.partition("\n") for entry in out.split("\0") if entry]
        return [(key, value) for key, _, value in pairs]

    def status(self, options: list[str]) -> tuple[dict[str, str], bool]:
        """The header lines of the status, and whether a tracked file changed."""
        command = "status --porcelain=v2 --branch --untracked-files=no --ignore-submodules=dirty -z".split()
        lines = [line for line in self._run([*options, *command]).split("\0") if line]
        headers = [line[2:].partition(" ") for line in lines if line.startswith("# ")]
        return {key: value for key, _, value in headers}, any(not line.startswith("# ") for line in lines)

    def diff(self, options: list[str]) -> str:
        """What differs from the commit; no program of the repository is asked."""
        return self._run([*options, *"diff --no-ext-diff --no-textconv --no-color HEAD".split()])

    def leaves_out(self, file: str) -> bool:
        """True if a file lies in the repository, and no commit will ever have it: it was never added."""
        inside = os.path.relpath(file, self._top) if file else ".."
        if inside.startswith("..") or "/.git/" in file or "-packages/" in file or not os.path.isfile(file):
            return False
        return not self._run(["ls-files", "--", inside])

    def _run(self, arguments: list[str], allowed: tuple[int, ...] = (0,)) -> str:
        if self._program is None:
            raise _GitFailed("git is not installed")
        try:
            process = subprocess.Popen(
                [self._program, "-C", self._top, *_QUIET, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._environ,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise _GitFailed(f"git cannot be started: {error.strerror}") from None
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            _end(process.pid)

        timer = threading.Timer(TIMEOUT_S, expire)
        timer.daemon = True
        timer.start()
        assert process.stdout is not None
        with process.stdout:
            out = process.stdout.read(_LONGEST_OUTPUT)
            cut = len(out) == _LONGEST_OUTPUT
            if cut:
                _end(process.pid)
        code = process.wait()
        timer.cancel()
        if expired.is_set():
            raise _GitFailed(f"git took longer than {TIMEOUT_S:g} s")
        if not cut and code not in allowed:
            raise _GitFailed(f"git failed with exit code {code}; run git status there to see why")
        return out.decode("utf-8", "replace")


def _end(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended by itself meanwhile


def _without_filters(configuration: Iterable[tuple[str, str]]) -> list[str]:
    drivers = dict.fromkeys(m[1] for key, _ in configuration if (m := _FILTER.fullmatch(key)))
    options: list[str] = []
    for driver in drivers:
        if "=" in driver or not driver.isprintable():  # git could not be told to leave it out
            raise _GitFailed("the repository names a filter that cannot be switched off")
        for setting in ("clean=", "smudge=", "process=", "required=false"):
            options += ["-c", f"filter.{driver}.{setting}"]
    return options


def _remote(configuration: Iterable[tuple[str, str]]) -> str | None:
    urls: dict[str, str] = {}
    for key, value in configuration:
        if key.startswith("remote."):
            urls.setdefault(key, value)
    chosen = urls.get("remote.origin.url") or next(iter(urls.values()), None)
    return without_credentials(chosen) if chosen else None


_URL = pattern(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)")
_SCP = pattern(r"([^/:]*):(.*)", re.DOTALL)
_HOST = pattern(r"[A-Za-z0-9._-]*(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?")


def without_credentials(url: str) -> str:
    """A remote's address without user, password, query and fragment; `***` if it has no clear parts."""
    if not url.isprintable() or "::" in url.partition("/")[0]:
        return HIDDEN
    if match := _URL.match(url):
        scheme, authority, path = match.groups()
        host = authority.rpartition("@")[2]
        # A password with a slash in it moves the @ into the path, and the user into the host.
        if "@" in path or "%40" in path or ";" in path or not _HOST.fullmatch(host):
            return f"{scheme}://{HIDDEN}"
        return f"{scheme}://{host}{path}"
    if "@" in url or ":" in url:
        match = _SCP.fullmatch(url.partition("?")[0].rpartition("@")[2])
        if match is None or not _HOST.fullmatch(match[1]) or url.count("@") > 1:
            return HIDDEN
        return f"{match[1]}:{match[2]}"
    return url.partition("?")[0]


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


_LONGEST_DIFF = 1 << 20
_MOST_KEPT = 1000
"""Files in `provenance/`: after so many no more uncommitted changes are kept, only their digests."""


def keep_provenance(
    files: Files, layout: Layout, state: Environment, environ: Mapping[str, str]
) -> dict[str, Any]:
    """The part of a job's record about these surroundings; long texts are kept once in the workspace."""
    packages = json.dumps(dict(state.packages), indent=1, sort_keys=True).encode()
    where: dict[str, Any] = {"python": state.python["version"], "packages": _kept(files, layout, packages)}
    git = next((one for one in state.git if one.commit), None)
    if git is not None:
        where |= {"commit": git.commit, "dirty": bool(git.dirty)}
        diff = git_diff(git.path, environ) if git.dirty else b""
        if diff:
            where["diff"] = _kept(files, layout, diff, ".diff")
    return where


def _kept(files: Files, layout: Layout, content: bytes, kind: str = ".json") -> str:
    """The name of a file in `provenance/` that has this content, as far as that is not full."""
    digest = hashlib.sha256(content).hexdigest()[:16]
    path = layout.provenance(f"{digest}{kind}")
    with contextlib.suppress(OSError):  # it is told without, too
        folder = path.rpartition("/")[0]
        files.make_directory(folder)
        if files.stat(path) is None and len(files.list(folder)) < _MOST_KEPT:
            files.replace(path, content, durable=False)
    return digest


def git_diff(path: str, environ: Mapping[str, str]) -> bytes:
    """The uncommitted changes of the repository that a path lies in, cut; empty if git does not tell."""
    folder = os.path.realpath(path)
    top = next((p for p in (folder, *map(str, Path(folder).parents)) if os.path.lexists(f"{p}/.git")), None)
    if top is None:
        return b""
    git = _Git(top, {name: environ[name] for name in _PASSED_ON if name in environ})
    try:
        return git.diff(_without_filters(git.configuration())).encode()[:_LONGEST_DIFF]
    except _GitFailed:
        return b""


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
    """The variables that may be written down: the usual ones, and the names that the settings allow.

    ``NAME`` allows one variable. ``PREFIX*`` allows variables that do not look like a secret by their name.
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
    """Name -> version of each installed package, in the order of the names."""
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
    except OSError:  # sys.path may name a missing folder, or a file
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
