"""The git state of a project directory, asked of git: commit, branch, remote, paths that are not committed.
Never waits longer than `TIMEOUT_S`, runs no hook or filter of the repository, and keeps no credentials.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tenuto.light import pattern


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
    return _git_state(top, kept, _script())._replace(path=shown)


def _script() -> str:
    """The file of the program that runs; empty at a prompt."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.realpath(file) if file else ""


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


HIDDEN = "***"
_URL = pattern(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)")
_SCP = pattern(r"([^/:]*):(.*)", re.DOTALL)
_HOST = pattern(r"[A-Za-z0-9._-]*(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?")


def without_credentials(url: str) -> str:
    """A remote's address without user, password, query and fragment; `***` for what cannot be told apart."""
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
