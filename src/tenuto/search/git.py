"""Git for programs: checkouts in job directories, commits without a checkout of the user's, references.
Adds references and objects to the user's repository; runs no hook, no filter and no garbage collection.

A candidate may do anything to its checkout, and to every git directory it finds. So no call trusts one
that a candidate has seen: a call names its git directory, which was made after the candidate's last process
ended, and git looks for a repository nowhere above the directory that it is given.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tenuto.clock import SystemClock
from tenuto.errors import GitError
from tenuto.settings import process_environment

_OPTIONS = (
    "-c core.hooksPath=/dev/null -c gc.auto=0 -c maintenance.auto=false -c core.fsmonitor=false"
    " -c commit.gpgsign=false -c core.quotePath=false -c advice.detachedHead=false -c core.autocrlf=false"
    " -c advice.addEmbeddedRepo=false -c push.recurseSubmodules=no -c submodule.recurse=false"
    " -c protocol.file.allow=always"
).split()
_RECEIVE = "git -c core.hooksPath=/dev/null -c receive.autogc=false -c gc.auto=0 receive-pack"
_AUTHOR = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in (("NAME", "Tenuto"), ("EMAIL", "tenuto@localhost"))
}
_STALE_S = 60.0
_MODULE = "160000 "
_LINK = "120000"
_TOGETHER = 1000
_CACHE = "__pycache__"
_ATTRIBUTES = "* -filter !diff !merge\n"
"""No attribute that a candidate writes names a program of the user's configuration for git to run."""
_POINTER = "version https://git-lfs.github.com/spec/v1"
_KEPT = "^oid sha256:[0-9a-f]\\{64\\}$"
_POINTER_SIZE = 1024
_LOCATING = (
    "GIT_DIR GIT_WORK_TREE GIT_COMMON_DIR GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_NAMESPACE GIT_PREFIX"
    " GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_SHALLOW_FILE GIT_GRAFT_FILE GIT_CONFIG GIT_CONFIG_PARAMETERS"
    " GIT_CONFIG_COUNT"
).split()


class Change(NamedTuple):
    """A file that differs between two commits: the objects that it was and is, zeros where there is none."""

    path: str
    is_link: bool
    before: str
    after: str
    kind: str


class Git:
    """Git in the repository at `path`, or with the files at `path` and a git directory of ours."""

    def __init__(self, path: str | os.PathLike[str], git_dir: str | os.PathLike[str] | None = None) -> None:
        self.path = os.path.abspath(path)
        self._words = ["git", "-C", self.path, *_OPTIONS]
        if git_dir is not None:
            self._words += [f"--git-dir={os.path.abspath(git_dir)}", f"--work-tree={self.path}"]

    def __call__(self, *words: str, text: str | None = None) -> str:
        """Runs a command of git; its output, without the last line end.

        Raises `GitError` with git's words.
        """
        return self._printed(words, text).decode("utf-8", "replace").removesuffix("\n")

    def _printed(self, words: Sequence[str], text: str | None) -> bytes:
        try:
            done = subprocess.run(
                [*self._words, *words],
                input=b"" if text is None else text.encode(),
                capture_output=True,
                env=_environment(self.path),
                check=False,
            )
        except FileNotFoundError:
            raise GitError("git is not installed, and a search of programs needs it") from None
        if done.returncode:
            said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-2000:]
            raise GitError(f"git {words[0]} in {self.path} failed: {said or done.returncode}")
        return done.stdout

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

    def changes(self, before: str, after: str) -> list[Change]:
        """The files that differ between two commits."""
        told = self("diff", "--raw", "-z", "--no-abbrev", "--no-renames", before, after).split("\0")
        return [
            Change(path, about.split()[1] == _LINK, *about.split()[2:])
            for about, path in zip(told[::2], told[1::2], strict=False)
        ]

    def contents(self, objects: Sequence[str]) -> Iterator[bytes]:
        """What these objects hold, in their order; nothing for files that there are not."""
        for first in range(0, len(objects), _TOGETHER):
            told = self._printed(["cat-file", "--batch"], "\n".join(objects[first : first + _TOGETHER]))
            at = 0
            while at < len(told):
                end = told.index(b"\n", at)
                about = told[at:end].split()
                size = int(about[2]) if len(about) == 3 else -1
                yield told[end + 1 : end + 1 + max(size, 0)]
                at = end + 1 + size + 1

    def left_out(self) -> list[str]:
        """The tracked files with changes that are not committed; none of a repository without a checkout."""
        said = self.ask("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames") or ""
        return [entry[3:] for entry in said.split("\0") if entry]

    def modules_of(self, commit: str) -> list[str]:
        """The submodules of a commit."""
        entries = self("ls-tree", "-r", "-z", commit).split("\0")
        return [entry.partition("\t")[2] for entry in entries if entry.startswith(_MODULE)]

    def marked_files(self, commit: str, mark: str) -> list[str]:
        """The files of a commit that contain a mark."""
        found = (
            self.ask("grep", "--no-color", "-z", "-l", "-I", "--fixed-strings", "-e", mark, commit, "--")
            or ""
        )
        return [name.partition(":")[2] for name in found.split("\0") if name]

    def borrow(self, git_dir: Path, files: Path) -> Git:
        """A new git directory for these files, with the objects of this repository; it has no remote."""
        objects, kind = self._layout
        made = Git(files, git_dir)
        made.large = self.large
        made("init", "--quiet", "--template=", f"--object-format={kind}")
        for name, text in (("objects/info/alternates", f"{objects}\n"), ("info/attributes", _ATTRIBUTES)):
            (git_dir / name).parent.mkdir(parents=True, exist_ok=True)
            (git_dir / name).write_text(text)
        shallow = Path(objects).with_name("shallow")
        if shallow.is_file():
            shutil.copyfile(shallow, git_dir / "shallow")
        return made

    @property
    def objects(self) -> str:
        """Where the objects are."""
        return self._layout[0]

    @cached_property
    def _layout(self) -> tuple[str, str]:
        """Where the objects are, and how they are named."""
        told = self("rev-parse", "--path-format=absolute", "--git-path", "objects", "--show-object-format")
        objects, _, kind = told.rpartition("\n")
        return objects, kind

    @cached_property
    def large(self) -> Path:
        """Where git LFS keeps files of this repository, of which commits hold pointers."""
        return Path(self.objects).with_name(self.ask("config", "--get", "lfs.storage") or "lfs") / "objects"

    def large_files(self, commit: str) -> dict[str, Path]:
        """The files of a commit that are pointers of git LFS, and where it keeps what they point to."""
        words = [
            "--no-color",
            "-z",
            "--text",
            "--all-match",
            "-e",
            f"^{_POINTER}$",
            "-e",
            _KEPT,
            commit,
            "--",
        ]
        found = {}
        for line in (self.ask("grep", *words) or "").split("\n"):
            name, _, text = line.partition("\0")
            if text.startswith("oid "):
                found[name.partition(":")[2]] = self._kept(text.rpartition(":")[2])
        return found

    def _kept(self, digest: str) -> Path:
        return self.large / digest[:2] / digest[2:4] / digest

    def check_out(self, commit: str, directory: Path) -> None:
        """Fills an empty directory with the files of a commit, and a repository for agents that use git."""
        made = self.borrow(directory / ".git", directory)
        made("checkout", "--quiet", "--force", "--detach", commit)
        pointers = made.large_files(commit) if self.large.is_dir() else {}
        here = {name: kept for name, kept in pointers.items() if kept.is_file()}
        for name, kept in here.items():
            shutil.copyfile(kept, directory / name)
        made._leave(list(here))

    def _leave(self, paths: Sequence[str]) -> None:
        """Lets git take these files for what the index has of them."""
        if paths:
            self("update-index", "--assume-unchanged", "-z", "--stdin", text="\0".join(paths))

    def _take_in_large(self, parent: str) -> None:
        """Lets files of git LFS be pointers in the index, and keeps what a candidate made of them."""
        taken = []
        for name, kept in (self.large_files(parent) if self.large.is_dir() else {}).items():
            file = Path(self.path, name)
            if os.path.realpath(file) != str(file) or not file.is_file() or _is_pointer(file):
                continue  # removed, or another kind of file
            if not kept.is_file() or not filecmp.cmp(file, kept, shallow=False):
                with file.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
                _keep(file, self._kept(digest))
                size = os.path.getsize(file)
                text = f"{_POINTER}\noid sha256:{digest}\nsize {size}\n"
                mode = "100755" if file.stat().st_mode & stat.S_IXUSR else "100644"
                blob = self("hash-object", "-w", "--stdin", text=text)
                self("update-index", "--cacheinfo", f"{mode},{blob},{name}")
            taken.append(name)
        self._leave(taken)

    def take_in(self, parent: str) -> None:
        """Makes the index what the files are; submodules and compiled modules stay as they are in `parent`.

        Git would look into the repository of a submodule, which is the candidate's, and run what its
        configuration says: the index has none while files are added. Raises `GitError` for files that no
        commit can hold.
        """
        self("read-tree", parent)
        self._take_in_large(parent)
        modules = self._modules()
        if modules:
            self("update-index", "--force-remove", "--", *modules)
        self("add", "--all")
        for path in self._modules():
            if path not in modules:
                raise GitError(f"{path} is a git repository of its own, whose files cannot be committed")
        for path in modules:
            if self("--literal-pathspecs", "ls-files", "--", f"{path}/"):
                raise GitError(f"{path} is a submodule, whose files cannot be changed")
        self.put_back(modules, parent)
        self._leave_out(parent)

    def _leave_out(self, parent: str) -> None:
        """Python runs what `__pycache__` holds in place of the source beside it, if the file says so."""
        there = [path for path in self("ls-files", "-z").split("\0") if _CACHE in path.split("/")]
        if there:
            self("update-index", "--force-remove", "-z", "--stdin", text="\0".join(there))
            before = self.files_of(parent)
            self.put_back([path for path in there if path in before], parent)

    def _modules(self) -> list[str]:
        entries = self("ls-files", "--stage", "-z").split("\0")
        return [entry.partition("\t")[2] for entry in entries if entry.startswith(_MODULE)]

    def put_back(self, paths: Sequence[str], commit: str) -> None:
        """Makes these paths, in the index, what they are in a commit."""
        if paths:
            words = [f"--source={commit}", "--pathspec-from-file=-", "--pathspec-file-nul"]
            text = "\0".join(paths)
            self("--literal-pathspecs", "restore", "--quiet", "--staged", *words, text=text)

    def commit(self, parent: str, message: str) -> str:
        """Commits the index as a child of `parent`, whatever HEAD is."""
        tree = self("write-tree")
        return self("commit-tree", tree, "-p", parent, "-F", "-", text=message)

    def send(self, commit: str, target: Git, reference: str) -> None:
        """Pushes a commit to a reference of another repository."""
        words = ["push", "--quiet", "--no-verify", "--no-signed", f"--receive-pack={_RECEIVE}", target.path]
        try:
            self(*words, f"+{commit}:{reference}")
        except GitError:
            if target.reference(reference) != commit:
                raise

    def reference(self, name: str) -> str | None:
        """The object that a reference stands for; None if there is no such reference."""
        return self.ask("rev-parse", "--verify", "--quiet", name)

    def move(self, reference: str, target: str, before: str | None) -> bool:
        """Lets a reference stand for an object; False if it is not at `before` any more."""
        try:
            self("update-ref", reference, target, before or "")
        except GitError:
            if self.reference(reference) == before:
                raise
            return False
        return True

    def point(self, branch: str, commit: str, before: str | None) -> bool:
        """Lets a branch stand for a commit; False if it is checked out, or not at `before` any more."""
        reference = f"refs/heads/{branch}"
        worktrees = self.ask("worktree", "list", "--porcelain") or ""
        return f"branch {reference}" not in worktrees.splitlines() and self.move(reference, commit, before)

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


def _is_pointer(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(_POINTER_SIZE).startswith(_POINTER.encode())


def _keep(file: Path, target: Path) -> None:
    """Copies a file to its place among those of git LFS, where a reader finds all of it or none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    copy = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.copy(file, copy)
    os.replace(copy, target)


def _environment(path: str) -> dict[str, str]:
    kept = {name: value for name, value in process_environment().items() if not name.startswith("GIT_")}
    ours = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    return {**kept, **_AUTHOR, **ours, "GIT_CEILING_DIRECTORIES": os.path.dirname(os.path.realpath(path))}


def candidate_environment(ceiling: Path) -> dict[str, str]:
    """The environment of a candidate's commands, whose own git finds no repository at or above `ceiling`."""
    kept = {name: value for name, value in process_environment().items() if name not in _LOCATING}
    return {**kept, "GIT_CEILING_DIRECTORIES": os.path.realpath(ceiling)}
