"""The commands of a search of programs, an agent or an evaluator: the files that they name, and their runs.
A command is run inside a job only, whose process becomes the parent of what the command leaves behind.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from string import Template
from typing import IO

from tenuto.launchers.kernel import become_subreaper
from tenuto.launchers.leftovers import descendants, kill_descendants
from tenuto.settings import process_environment

TAIL = 1_000_000
LARGE = 1 << 24
"""Bytes of a file that a job does not read before and after each evaluation."""
_RUN = "__main__.py"
"""What Python runs of a directory."""
_SHELL = "();<>|&`"
_KERNEL = ("/proc/", "/sys/", "/dev/")
_CHUNK = 65536
_JOIN_S = 5.0
_SWEEP_S = 0.01
_MOST_SWEEPS = 500


@dataclass(frozen=True, slots=True)
class FinishedCommand:
    """How a command ended: its exit code, None if it ran over its time, and the end of what it printed."""

    code: int | None
    out: str
    err: str

    @property
    def trouble(self) -> str | None:
        """What went wrong, in words; None if nothing did."""
        if self.code is None:
            return "ran over its time and was killed"
        if self.code < 0:
            return f"was ended by signal {-self.code}"
        return f"ended with exit code {self.code}" if self.code else None


# -- the files that commands name --------------------------------------------------------------------


def files_inside(commands: Sequence[Sequence[str]], files: Collection[str]) -> list[str]:
    """Those of the files of a commit that commands name, which run in a checkout of it."""
    words = _named(commands)
    known = {str(folder) for file in files for folder in PurePosixPath(file).parents}
    folders = [folder for folder in map(os.path.normpath, words) if folder in known]
    named = {*words, *(f"{folder}/{word}" for folder in folders for word in (*words, _RUN))}
    normal = set(map(os.path.normpath, named))
    return [file for file in files if file in normal]


def files_outside(
    commands: Sequence[Sequence[str]], checkout: str, most: int | None = None
) -> dict[str, str]:
    """The other files that commands name, with the digest of each (a file larger than `most`: its size).

    The interpreter that runs this is none of them, as it is none where a command says ``{python}``.
    """
    variables = process_environment()
    words = [Template(word).safe_substitute(variables) for word in _named(commands)]
    words += [f"{variables.get('HOME', '')}{word[1:]}" for word in words if word.startswith("~/")]
    python_path = variables.get("PYTHONPATH", "").split(os.pathsep)
    folders = [folder for folder in (*words, *python_path) if os.path.isabs(folder)]
    paths = [word for word in words if os.path.isabs(word)]
    paths += [f"{folder}/{word}" for folder in folders for word in (*words, _RUN)]
    paths += [os.path.normpath(os.path.join(checkout, word)) for word in words if word.startswith("../")]
    left_out = (*_KERNEL, f"{os.path.realpath(os.path.dirname(checkout))}/")
    found = {}
    for path in {os.path.realpath(path): None for path in paths if os.path.isfile(path)}:
        digest = file_digest(path, most)
        if digest and not path.startswith(left_out) and path != os.path.realpath(sys.executable):
            found[path] = digest
    return found


def file_digest(path: str, most: int | None = None) -> str | None:
    """The digest of a file's content, or the size of one larger than `most`; None if it cannot be read."""
    try:
        about = os.stat(path)
        if most is not None and about.st_size > most:
            return f"{about.st_size} bytes"
        return _digest(path, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    except OSError:
        return None


@lru_cache(maxsize=1024)
def _digest(path: str, *state: int) -> str:
    """The digest of a file in this state; kept, since each new candidate asks for it."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _named(commands: Sequence[Sequence[str]]) -> list[str]:
    """The words of commands, also those inside of one that a shell takes apart, and the files of modules."""
    found: dict[str, None] = {}
    waiting = [list(words) for words in commands]
    while waiting:
        words = waiting.pop()
        for before, word in zip(("", *words), words, strict=False):
            if ">" in before or word in found:
                continue  # an output of the shell, or known
            found[word] = None
            module = word if before == "-m" else word[2:] if word.startswith("-m") else ""
            if module:
                path = module.replace(".", "/")
                found |= dict.fromkeys([f"{path}.py", f"{path}/{_RUN}"])
            waiting.append(_parts(word))
            waiting.append([word.partition("=")[2], word.lstrip("@")])
    return [word for word in found if word.strip("./")]


def _parts(word: str) -> list[str]:
    lexer = shlex.shlex(word, posix=True, punctuation_chars=_SHELL)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:  # a quotation mark without its other half
        return word.split()


# -- how commands run --------------------------------------------------------------------------------


def run_command(
    words: Sequence[str], directory: Path, environment: Mapping[str, str], limit_s: float | None
) -> FinishedCommand:
    """Runs a command and ends everything it leaves behind; what it prints goes to the job's logs as well."""
    become_subreaper()
    try:
        process = subprocess.Popen(
            list(words),
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return FinishedCommand(127, "", f"{words[0]}: {error.strerror or error}")
    assert process.stdout is not None
    assert process.stderr is not None
    tails = [_Tail(process.stdout, sys.stdout), _Tail(process.stderr, sys.stderr)]
    try:
        code: int | None = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        _end_all(process)
    out, err = (tail.text() for tail in tails)
    return FinishedCommand(code, out, err)


def _end_all(process: subprocess.Popen[bytes]) -> None:
    """Kills and reaps what is left below this process; gives up on what the kernel cannot end."""
    pause = threading.Event()
    for _ in range(_MOST_SWEEPS):
        if not descendants():
            break
        kill_descendants()
        process.poll()
        _reap()
        pause.wait(_SWEEP_S)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


class _Tail:
    """The end of what a process prints, passed on while it comes."""

    def __init__(self, stream: IO[bytes], echo: IO[str]) -> None:
        self._stream = stream
        self._echo = echo
        self._kept = bytearray()
        self._thread = threading.Thread(target=self._read, name="output", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._stream:
            while chunk := self._stream.read1(_CHUNK):  # type: ignore[attr-defined]
                self._kept += chunk
                if len(self._kept) > 2 * TAIL:
                    del self._kept[:-TAIL]
                self._echo.write(chunk.decode("utf-8", "replace"))
                self._echo.flush()

    def text(self) -> str:
        self._thread.join(_JOIN_S)
        return bytes(self._kept[-TAIL:]).decode("utf-8", "replace")
