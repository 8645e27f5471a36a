"""The commands of a search of programs, an agent or an evaluator: the files that they name, and their runs.
A command is run inside a job only, whose process becomes the parent of what the command leaves behind.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shlex
import shutil
import site
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from string import Template
from typing import IO, NamedTuple

from tenuto.clock import SystemClock
from tenuto.errors import SearchError
from tenuto.launchers.confinement import SYSTEM, Guest, Private, bwrap, passed_on
from tenuto.launchers.kernel import become_subreaper
from tenuto.launchers.leftovers import descendants, kill_descendants
from tenuto.search.git import candidate_environment
from tenuto.settings import process_environment
from tenuto.tasks.ports import current_job

TAIL = 1_000_000
LARGE = 1 << 24
"""Bytes of a file that a job does not read before and after each evaluation."""
_RUN = "__main__.py"
"""What Python runs of a directory."""
_SHELL = "();<>|&`"
_KERNEL = ("/proc/", "/sys/", "/dev/")
_OWN = f"{Path(__file__).resolve().parents[1]}/"
"""Tenuto's own modules, which a PYTHONPATH may name: hundreds of files, and none is the evaluator's."""
_CHUNK = 65536
_JOIN_S = 5.0
_SWEEP_S = 0.01
_MOST_SWEEPS = 500


@dataclass(frozen=True, slots=True)
class FinishedCommand:
    """How a command ended: its exit code, None if it ran over its time, and the end of its output."""

    code: int | None
    out: str
    err: str
    seconds: float = 0.0
    is_missing: bool = False
    """The program could not be started."""
    is_unconfined: bool = False
    """Its sandbox could not be started, and so it was not."""

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
    """The other files that commands name, and what those of Python import from beside them, with digests.

    A file larger than `most` has its size for one. The interpreter that runs this is none of the files, as
    it is none where a command says ``{python}``.
    """
    variables = process_environment()
    words = [Template(word).safe_substitute(variables) for word in _named(commands)]
    words += [f"{variables.get('HOME', '')}{word[1:]}" for word in words if word.startswith("~/")]
    python_path = variables.get("PYTHONPATH", "").split(os.pathsep)
    folders = [folder for folder in (*words, *python_path) if os.path.isabs(folder)]
    paths = [word for word in words if os.path.isabs(word)]
    paths += [f"{folder}/{word}" for folder in folders for word in (*words, _RUN)]
    paths += [os.path.normpath(os.path.join(checkout, word)) for word in words if word.startswith("../")]
    left_out = (*_KERNEL, _OWN, f"{os.path.realpath(os.path.dirname(checkout))}/")
    found: dict[str, str] = {}
    seen: set[str] = set()
    while paths:
        path = paths.pop()
        if path in seen or not os.path.isfile(path):  # most are not there, and a real path takes long
            continue
        seen.add(path)
        real = os.path.realpath(path)
        if real in found:
            continue
        digest = file_digest(real, most)
        if digest and not real.startswith(left_out) and real != os.path.realpath(sys.executable):
            found[real] = digest
            paths += [one for name in _imports(path) for one in _modules(name, path, folders)]
    return dict(sorted(found.items()))


def _imports(path: str) -> frozenset[str]:
    about = os.stat(path)
    is_python = path.endswith(".py") and about.st_size <= LARGE
    return _imports_in(path, about.st_ino, about.st_size, about.st_mtime_ns) if is_python else frozenset()


@lru_cache(maxsize=1024)
def _imports_in(path: str, *state: int) -> frozenset[str]:
    """What a file in this state imports; kept, as its digest is."""
    with open(path, "rb") as stream:
        return frozenset(imports_of(stream.read()))


def _modules(name: str, importer: str, folders: Sequence[str]) -> list[str]:
    """Where a module that a file imports may lie: beside the file, or in a directory that commands name."""
    dotted = name.lstrip(".")
    up = len(name) - len(dotted)
    own = os.path.dirname(importer)
    places = [os.path.normpath(f"{own}/{'../' * (up - 1)}")] if up else [own, *folders]
    parts = dotted.split(".")
    stems = ["/".join(parts[: at + 1]) for at in range(len(parts))]
    return [f"{place}/{stem}{end}" for place in places for stem in stems for end in (".py", "/__init__.py")]


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


class CommandRules(NamedTuple):
    """What a command of a candidate may see, use and write besides its directory."""

    is_confined: bool = False
    pass_variables: tuple[str, ...] = ()
    workspace: str = ""
    """Hidden, but for places shown or writable in it."""
    shown: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    network: bool = False
    home: str | None = None


UNCONFINED = CommandRules()
_GPUS = "CUDA_VISIBLE_DEVICES"
_VARIABLES = ("PATH", "LANG", _GPUS)
_HOME = "/tmp"


def confined(words: Sequence[str], directory: Path, rules: CommandRules) -> tuple[list[str], dict[str, str]]:
    """A command line inside of bubblewrap, and the variables that it has."""
    variables = passed_on(process_environment(), (*_VARIABLES, *rules.pass_variables))
    variables["HOME"] = rules.home or _HOME
    writable = (*rules.writable, *(() if rules.home is None else (rules.home,)))
    guest = Guest(
        str(directory),
        None,
        rules.network,
        tuple(places_of(words, rules, variables.get("PATH", os.defpath))),
        gpus=_GPUS in variables,
        inside=str(directory),
        writable=writable,
    )
    private = Private(directories=(rules.workspace,) if rules.workspace else ())
    return [*bwrap(guest, private), *words], variables


def places_of(words: Sequence[str], rules: CommandRules, path: str) -> list[str]:
    """What a confined command must read besides the system: its program, Python, the files that it names."""
    program = shutil.which(words[0], path=path) or words[0]
    wanted = [sys.prefix, sys.base_prefix, *_installed(), *_installation(program)]
    wanted += _installation(os.path.realpath(program))
    for folder in filter(os.path.isabs, path.split(os.pathsep)):  # a script calls programs in it
        wanted += _installation(f"{folder}/any")
    home = process_environment().get("HOME", "/")
    for word in _named([words]):
        if os.path.isabs(word) and os.path.isfile(word):
            folder = os.path.dirname(word)
            is_wide = folder == "/" or f"{home}/".startswith(f"{folder}/") or folder == tempfile.gettempdir()
            wanted.append(word if is_wide else folder)  # its neighbours may be imported
        elif os.path.isabs(word) and os.path.isdir(word):
            wanted.append(word)
    found: dict[str, None] = {}
    for place in sorted(
        {os.path.abspath(one) for one in wanted if os.path.isabs(one) and os.path.exists(one)}
    ):
        is_known = any(place == one or place.startswith(f"{one}/") for one in (*found, *SYSTEM))
        if place not in _OWN_PLACES and not is_known and not _is_hidden(place, rules.workspace):
            found[place] = None
    return [*found, *rules.shown]


@lru_cache
def _installed() -> tuple[str, ...]:
    """Packages beyond the interpreter's own directories: the user's, and those installed to be edited.

    Not `sys.path`: a script's own directory is there, often the repository with its secrets.
    """
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    files = [file for folder in folders for file in Path(folder).glob("*.pth")]
    lines = [line.strip() for file in files for line in file.read_text("utf-8", "replace").splitlines()]
    editable = [line for line in lines if os.path.isabs(line) and not os.path.exists(f"{line}/.git")]
    return (*folders, *editable)


_OWN_PLACES = ("/", "/tmp", "/dev", "/proc", "/sys", "/home", "/root", "/var", "/run")
"""Never shown as a whole: the sandbox has its own, or they are of other people."""


def _is_hidden(place: str, workspace: str) -> bool:
    return bool(workspace) and f"{place}/".startswith(f"{workspace}/")


def _installation(program: str) -> list[str]:
    """The directories of an installation that a program lies in, such as those of a virtual environment."""
    folder = os.path.dirname(os.path.abspath(program))
    prefix = os.path.dirname(folder)
    if os.path.basename(folder) == "shims":  # of pyenv, asdf and their like, which look beside it
        return [prefix]
    if os.path.basename(folder) != "bin" or any(prefix == one or prefix == "/" for one in SYSTEM):
        return [os.path.abspath(program)]
    if os.path.exists(f"{prefix}/pyvenv.cfg") or os.path.isdir(f"{prefix}/conda-meta"):
        return [prefix]
    return [f"{prefix}/{name}" for name in ("bin", "lib", "lib64", "libexec")]


def module_name(path: str, is_link: bool = False) -> str | None:
    """The module at the top of a checkout that a file is, or is part of; None if it is no module.

    `is_link`: the file is a link, perhaps to the directory of a package.
    """
    first, _, rest = path.partition("/")
    if rest:
        return first if rest.partition(".")[0] == "__init__" else None
    stem, _, ending = first.partition(".")
    return stem if ending.endswith(("py", "so", "pyc")) or (is_link and not ending) else None


def imports_of(source: str | bytes) -> set[str]:
    """The modules that a Python file may import, relative ones with their dots; of no Python file none."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = f"{'.' * node.level}{node.module or ''}"
            found |= {f"{module}{'.' if node.module else ''}{alias.name}" for alias in node.names}
    return found


def imported_names(source: str) -> set[str]:
    """The modules that a Python file imports, by the first part of their names, but for relative ones."""
    return {name.partition(".")[0] for name in imports_of(source)} - {""}


def run_command(
    words: Sequence[str],
    directory: Path,
    environment: Mapping[str, str],
    limit_s: float | None,
    rules: CommandRules = UNCONFINED,
) -> FinishedCommand:
    """Runs a command and ends everything it leaves behind; its output goes to the job's logs as well.

    `environment`: variables besides those that the rules let through.

    Raises `SearchError` outside of a job: it ends every process below its own, also those of its caller.
    """
    if current_job.get() is None:
        raise SearchError(f"{shlex.join(words)[:80]}: commands of candidates run inside of their jobs only")
    become_subreaper()
    variables = candidate_environment(directory.parent)
    line = list(words)
    if rules.is_confined:
        line, passed = confined(words, directory, rules)
        variables = {**passed, "GIT_CEILING_DIRECTORIES": str(directory.parent)}
    began = SystemClock().monotonic()
    try:
        process = subprocess.Popen(
            line,
            cwd=directory,
            env={**variables, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        is_sandbox = rules.is_confined
        said = f"{line[0]}: {error.strerror or error}"
        return FinishedCommand(127, "", said, is_missing=not is_sandbox, is_unconfined=is_sandbox)
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
    is_missing = rules.is_confined and code == 1 and f"bwrap: execvp {words[0]}" in err
    is_unconfined = (
        rules.is_confined and code == 1 and err.startswith("bwrap: ") and not is_missing and not out
    )
    seconds = SystemClock().monotonic() - began
    return FinishedCommand(code, out, err, seconds, is_missing, is_unconfined)


def _end_all(process: subprocess.Popen[bytes]) -> None:
    """Kills and reaps the processes left below this one; gives up on those that the kernel cannot end."""
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
