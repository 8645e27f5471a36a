"""Git for programs: shared clones in job directories, commits without a checkout of the user's, references.
Changes nothing of the user's repository but references of its own; runs no hook and no garbage collection.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tenuto.clock import SystemClock
from tenuto.errors import GitError
from tenuto.settings import process_environment

_OPTIONS = (
    "-c core.hooksPath=/dev/null -c gc.auto=0 -c maintenance.auto=false -c core.fsmonitor=false"
    " -c commit.gpgsign=false -c core.quotePath=false -c advice.detachedHead=false -c core.autocrlf=false"
).split()
_RECEIVE = "git -c core.hooksPath=/dev/null -c receive.autogc=false -c gc.auto=0 receive-pack"
_AUTHOR = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in (("NAME", "Tenuto"), ("EMAIL", "tenuto@localhost"))
}
_STALE_S = 60.0


class Git:
    """Git in one repository."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def __call__(self, *words: str, text: str | None = None) -> str:
        """Runs a command of git; what it prints, without its last line end.

        Raises `GitError` with git's words.
        """
        try:
            done = subprocess.run(
                ["git", "-C", self.path, *_OPTIONS, *words],
                input=text,
                stdin=None if text is not None else subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env=_environment(),
                check=False,
            )
        except FileNotFoundError:
            raise GitError("git is not installed, and a search of programs needs it") from None
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[-2000:]
            raise GitError(f"git {words[0]} in {self.path} failed: {said or done.returncode}")
        return done.stdout.removesuffix("\n")

    def ask(self, *words: str) -> str | None:
        """As a call, but None where git refuses."""
        try:
            return self(*words)
        except GitError:
            return None

    def commit_of(self, name: str) -> str:
        """The commit that a name stands for; `GitError` if there is none."""
        found = self.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        if not found:
            raise GitError(f"{self.path} has no commit {name!r}")
        return found

    def files_of(self, commit: str) -> dict[str, int]:
        """The files of a commit and their sizes."""
        found: dict[str, int] = {}
        for line in self("ls-tree", "-r", "-l", "-z", commit).split("\0"):
            if line:
                about, path = line.split("\t", 1)
                size = about.split()[3]
                found[path] = int(size) if size.isdigit() else 0
        return found

    def clone(self, target: Path) -> Git:
        """A clone that borrows the objects of this repository, without files."""
        self("clone", "--quiet", "--shared", "--no-checkout", "--no-tags", "--", self.path, str(target))
        return Git(target)

    def check_out(self, commit: str) -> None:
        """Makes the files exactly those of a commit; only for a clone of ours."""
        self("checkout", "--quiet", "--force", "--detach", commit)
        self("clean", "-ffdxq")

    def put_back(self, paths: Sequence[str], commit: str) -> None:
        """Makes these paths, in files and index, what they are in a commit."""
        for path in paths:
            self("--literal-pathspecs", "rm", "-rfq", "--ignore-unmatch", "--", path)
            if self.ask("cat-file", "-e", f"{commit}:{path}") is not None:
                self("--literal-pathspecs", "checkout", "--quiet", commit, "--", path)

    def commit(self, parent: str, message: str) -> str:
        """Commits the index as a child of `parent`, whatever HEAD is."""
        tree = self("write-tree")
        return self("commit-tree", tree, "-p", parent, "-F", "-", text=message)

    def send(self, commit: str, reference: str) -> None:
        """Pushes a commit to a reference of the repository that was cloned."""
        origin = self("config", "remote.origin.url")
        target = Git(origin)
        words = ["push", "--quiet", "--no-verify", f"--receive-pack={_RECEIVE}", origin]
        try:
            self(*words, f"+{commit}:{reference}")
        except GitError:
            if target.ask("rev-parse", "--verify", "--quiet", reference) != commit:
                raise

    def point(self, branch: str, commit: str) -> bool:
        """Lets a branch stand for a commit; False if the user has checked it out."""
        reference = f"refs/heads/{branch}"
        worktrees = self.ask("worktree", "list", "--porcelain") or ""
        if f"branch {reference}" in worktrees.splitlines():
            return False
        self("update-ref", reference, commit)
        return True

    def sweep(self, prefix: str) -> None:
        """Removes locks that a killed push left behind among our own references."""
        common = self.ask("rev-parse", "--path-format=absolute", "--git-common-dir")
        directory = Path(common or self.path) / prefix
        for lock in directory.glob("*.lock") if directory.is_dir() else ():
            try:
                if SystemClock().now().timestamp() - lock.stat().st_mtime > _STALE_S:
                    lock.unlink()
            except FileNotFoundError:
                continue


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in process_environment().items() if not name.startswith("GIT_")}
    return {**kept, **_AUTHOR, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
