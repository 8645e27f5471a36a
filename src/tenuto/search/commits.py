"""The task of a search of programs: an agent changes a commit, commands evaluate what became of it.
Runs inside a job; touches the repository only to add a reference to the commit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from string import Template
from typing import IO, Any

from tenuto.errors import GitError
from tenuto.launchers.kernel import become_subreaper
from tenuto.launchers.leftovers import descendants, kill_descendants
from tenuto.search.git import Git, candidate_environment
from tenuto.search.outcome import Outcome, as_outcome
from tenuto.search.programs import AS_IT_IS
from tenuto.settings import process_environment
from tenuto.tasks import Meta, Param, Task
from tenuto.workspace.tree_removal import remove_tree

# The marks that say which part of a program may change: `EVOLVE-BLOCK-START` and `EVOLVE-BLOCK-END`.
# Pure: compares texts.


START = "EVOLVE-BLOCK-START"
END = "EVOLVE-BLOCK-END"


def is_marked(text: str) -> bool:
    """Whether a text says which part of it may change."""
    return START in text


def outside(text: str) -> list[str]:
    """The lines that may not change: everything but what lies between two marks."""
    kept = []
    is_inside = False
    for line in text.splitlines():
        if END in line:
            is_inside = False
        if not is_inside:
            kept.append(line)
        if START in line:
            is_inside = True
    return kept


def changed_outside(before: str, after: str) -> str | None:
    """The first line outside the marks that a change touched, as it was or is; None if it touched none."""
    first, second = outside(before), outside(after)
    for old, new in zip(first, second, strict=False):
        if old != new:
            return old or new
    if len(first) != len(second):
        return (first if len(first) > len(second) else second)[min(len(first), len(second))]
    return None


# The prompt of an agent: the goal, the program it changes, others that may inspire it, what failed.
# Pure: text of values.


_LONGEST = 4000


def prompt_text(
    goal: str, context: Mapping[str, Any], protected: Sequence[str], diff: Callable[[str], str]
) -> str:
    """What an agent reads. `diff(commit)`: how that commit differs from the parent."""
    parent = context.get("parent", {})
    parts = [f"# Goal\n\n{goal.strip() or 'Improve the objective of the program.'}"]
    parts.append(f"# The program\n\nIt lies in the working directory. Change it there.\n\n{_scores(parent)}")
    if protected:
        names = "\n".join(f"- {path}" for path in protected)
        parts.append(f"These files are put back before the program is evaluated:\n\n{names}")
    parts += [
        f"## {name} (of its evaluation)\n\n{_fenced(text)}"
        for name, text in parent.get("artifacts", {}).items()
    ]
    for other in context.get("inspirations", ()):
        changes = diff(other["commit"])
        parts.append(
            f"# Another program, {other['commit'][:12]}\n\n{_scores(other)}\n\nIt differs from yours by:\n\n"
            f"{_fenced(changes, 'diff')}"
        )
    best = context.get("best", ())
    if best:
        lines = "\n".join(f"- {other['commit'][:12]}: {_scores(other)}" for other in best)
        parts.append(f"# The best so far\n\n{lines}")
    failures = context.get("failures", ())
    if failures:
        parts.append(
            "# What failed\n\nThe last changes of this program that could not be evaluated:\n\n"
            + "\n\n".join(_fenced(text) for text in failures)
        )
    return "\n\n".join(parts) + "\n"


def _scores(record: Mapping[str, Any]) -> str:
    if record.get("objective") is None:
        return "It was not evaluated yet."
    shown = {"objective": record["objective"], **record.get("metrics", {})}
    return ", ".join(f"{name} {_shown_number(value)}" for name, value in shown.items())


def _shown_number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:200]


def _fenced(text: str, kind: str = "") -> str:
    """A block of text, with a fence that the text itself does not contain."""
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\n[{len(text) - _LONGEST} characters more]"
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{kind}\n{text.rstrip()}\n{fence}"


# The commands of a search of programs, an agent or an evaluator: the files that they name, and their runs.
# A command is run inside a job only, whose process becomes the parent of what the command leaves behind.


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


_ARTIFACT = 4000
_DIFF = 4000
_CHECKOUT = "checkout"
_GIT_DIR = "git"


class EvolveCommit(Task):
    """One program: a commit, changed by an agent and evaluated."""

    parent: Param[str]
    inspirations: Param[list[str]]
    agent: Param[list[str]]
    evaluate: Param[list[list[str]]]
    goal: Param[str]
    draw: Param[int]
    evaluators: Param[dict[str, str]]
    protect: Param[list[str]]
    thresholds: Param[list[float]]
    is_smaller_better: Param[bool]
    root: Param[str]
    repository: Meta[str]
    search: Meta[str]
    context: Meta[str] = "{}"
    agent_s: Meta[float | None] = None
    evaluate_s: Meta[float | None] = None

    def execute(self) -> Outcome:
        return Evaluation(self, Path.cwd()).run()


class ProgramFailed(Exception):
    """The candidate failed, with what is known of it."""

    def __init__(self, message: str, finished: FinishedCommand | None = None, name: str = "") -> None:
        super().__init__(message)
        tails = {} if finished is None else {f"{name} stdout": finished.out, f"{name} stderr": finished.err}
        self.artifacts = {key: text[-_ARTIFACT:] for key, text in tails.items() if text.strip()}


class Evaluation:
    """The evaluation of one commit, in the directory of its job."""

    def __init__(self, task: EvolveCommit, directory: Path) -> None:
        self._task = task
        self._directory = directory = Path(os.path.realpath(directory))
        self._checkout = directory / _CHECKOUT
        self._git_dir = directory / _GIT_DIR
        self._repository = Git(task.repository)
        self._report = directory / "report.json"
        self._prompt = directory / "prompt.md"
        self._metrics = directory / "metrics.json"
        self._cost = 0.0
        self._notes = ""
        self._commit: str | None = None

    def run(self) -> Outcome:
        task = self._task
        try:
            self._commit = None if task.draw != AS_IT_IS else task.parent
            if self._commit is None:
                self._commit = self._changed()
            outcome = self._evaluated(self._commit)
        except (ProgramFailed, GitError, OSError) as error:
            outcome = Outcome(failure=str(error), artifacts=getattr(error, "artifacts", {}))
        finally:
            for path in (self._checkout, self._git_dir):
                with contextlib.suppress(OSError, ProgramFailed):
                    self._remove(path)
        return outcome._replace(cost=_number(outcome.cost) + self._cost, solution=self._commit)

    def _check_out(self, commit: str) -> None:
        """Makes the checkout anew: nothing that a candidate left there is kept, or followed."""
        self._make(self._checkout)
        self._repository.check_out(commit, self._checkout)

    def _git(self) -> Git:
        """Git with the files of the checkout, and a git directory that no candidate has seen."""
        self._make(self._git_dir)
        if not self._checkout.is_dir() or os.path.realpath(self._checkout) != str(self._checkout):
            raise ProgramFailed("the agent removed its working directory, or put a link in its place")
        return self._repository.borrow(self._git_dir, self._checkout)

    def _make(self, directory: Path) -> None:
        self._remove(directory)
        directory.mkdir()

    def _remove(self, path: Path) -> None:
        """Removes a path of the job, whatever a candidate put there."""
        if os.path.realpath(self._directory) != str(self._directory):
            raise ProgramFailed("the directory of the job was replaced")
        try:
            path.unlink(missing_ok=True)
        except (IsADirectoryError, PermissionError):
            remove_tree(str(path))

    # -- the agent ---------------------------------------------------------------------------------

    def _changed(self) -> str:
        task = self._task
        self._check_evaluator()
        self._check_out(task.parent)
        git = self._git()
        protected = self._protected(git)
        context = json.loads(task.context)
        self._remove(self._prompt)  # an agent of an earlier attempt may have made a link of it
        self._prompt.write_text(
            prompt_text(task.goal, context, protected, lambda commit: _diff(git, task.parent, commit)),
            "utf-8",
        )
        self._run_agent()
        git = self._git()
        git.take_in(task.parent)
        git.put_back(protected, task.root)
        if git("write-tree") == git("rev-parse", f"{task.parent}^{{tree}}"):
            raise ProgramFailed("the agent changed nothing")
        commit = git.commit(task.parent, self._message())
        self._check_blocks(git, commit)
        git.send(commit, self._repository, f"refs/tenuto/{task.search}/{commit[:12]}")
        return commit

    def _run_agent(self) -> None:
        task = self._task
        self._remove(self._report)
        prompt, seed = str(self._prompt), str(task.draw)
        known = {"{prompt}": prompt, "{seed}": seed, "{parent}": task.parent, "{python}": sys.executable}
        environment = {
            **candidate_environment(self._directory),
            "EVOLVE_PROMPT": prompt,
            "EVOLVE_PARENT": task.parent,
            "EVOLVE_INSPIRATIONS": " ".join(task.inspirations),
            "EVOLVE_SEED": seed,
            "EVOLVE_REPORT": str(self._report),
        }
        finished = run_command(_filled(task.agent, known), self._checkout, environment, task.agent_s)
        self._read_report()
        if finished.trouble is not None:
            raise ProgramFailed(f"the agent {finished.trouble}{_last(finished.err)}", finished, "agent")

    def _read_report(self) -> None:
        try:
            report = json.loads(self._report.read_text("utf-8", "replace"))
        except (FileNotFoundError, ValueError):
            return
        if isinstance(report, dict):
            self._cost += _number(report.get("cost"))
            self._notes = str(report.get("notes") or "")[:_ARTIFACT]

    def _message(self) -> str:
        task = self._task
        first, _, rest = self._notes.strip().partition("\n")
        body = f"{rest.strip()}\n\n" if rest.strip() else ""
        return (
            f"{first or f'Candidate of {task.search}'}\n\n{body}"
            f"Tenuto-Search: {task.search}\nTenuto-Parent: {task.parent}\n"
        )

    def _protected(self, git: Git) -> list[str]:
        """The paths that are put back: those given, else the files that the evaluate commands name."""
        task = self._task
        if task.protect:
            return list(task.protect)
        return files_inside(task.evaluate, git.files_of(task.root))

    def _check_blocks(self, git: Git, commit: str) -> None:
        changed = git("diff", "--name-only", "-z", "--no-renames", self._task.parent, commit).split("\0")
        for path in filter(None, changed):
            before = git.ask("show", f"{self._task.parent}:{path}") or ""
            if not is_marked(before):
                continue
            line = changed_outside(before, git.ask("show", f"{commit}:{path}") or "")
            if line is not None:
                raise ProgramFailed(
                    f"the agent changed {path} outside its EVOLVE-BLOCK marks, at: {line.strip()}"
                )

    # -- the evaluation ----------------------------------------------------------------------------

    def _evaluated(self, commit: str) -> Outcome:
        """Runs one stage after the other; the last one that was reached says what the candidate is worth."""
        task = self._task
        cost = 0.0
        metrics: dict[str, Any] = {}
        artifacts: dict[str, Any] = {}
        outcome = Outcome()
        self._check_evaluator()
        before = self._evaluator_files()
        self._check_out(commit)
        computed = self._measures(self._git(), commit)
        for stage, words in enumerate(task.evaluate, 1):
            if stage > 1:
                self._check_out(commit)
            self._remove(self._metrics)
            self._metrics.write_text(json.dumps(metrics))
            outcome = self._stage(commit, words, stage)
            cost += _number(outcome.cost)
            metrics |= _mapping(outcome.metrics)
            artifacts |= _mapping(outcome.artifacts)
            score = metrics.pop("stage_score", outcome.objective) if len(task.evaluate) > 1 else None
            if outcome.failure is not None or not self._is_reached(score, stage):
                break
        if len(task.evaluate) > 1:
            metrics["stage"] = stage
        after = self._evaluator_files()
        if outcome.failure is None and after != before:
            path = min(path for path, _ in before.items() ^ after.items())
            outcome = outcome._replace(
                failure=f"the evaluation wrote {path}, which counts as part of the evaluator, since the "
                f"evaluate command names it: write into the working directory, or name it in a script"
            )
        measures = outcome.measures
        if isinstance(measures, dict):
            measures = {**computed, **measures}
        return outcome._replace(
            cost=cost, metrics={**computed, **metrics}, artifacts=artifacts, measures=measures
        )

    def _stage(self, commit: str, words: list[str], stage: int) -> Outcome:
        environment = {**candidate_environment(self._directory), "EVOLVE_COMMIT": commit}
        environment["EVOLVE_METRICS"] = str(self._metrics)
        known = {"{python}": sys.executable, "{commit}": commit, "{directory}": str(self._checkout)}
        finished = run_command(_filled(words, known), self._checkout, environment, self._task.evaluate_s)
        name = "evaluator" if len(self._task.evaluate) == 1 else f"stage {stage} of the evaluator"
        lines = finished.out.strip().splitlines()
        try:
            outcome = as_outcome(json.loads(lines[-1])) if lines else None
        except ValueError:
            outcome = None
        if finished.trouble is not None or outcome is None:
            trouble = finished.trouble or f"printed no outcome as its last line{_last(finished.out)}"
            said = _last(finished.err) if finished.trouble else ""
            failed = ProgramFailed(f"the {name} {trouble}{said}", finished, "evaluator")
            cost = _number(outcome.cost) if outcome is not None else 0.0
            return Outcome(failure=str(failed), artifacts=failed.artifacts, cost=cost)
        return outcome

    def _evaluator_files(self) -> dict[str, str]:
        return files_outside(self._task.evaluate, str(self._checkout), LARGE)

    def _check_evaluator(self) -> None:
        """Refuses to go on with another evaluator than that of the candidates before."""
        for path, digest in self._task.evaluators.items():
            found = file_digest(path, LARGE) if os.path.isabs(path) else digest
            if found is None or (found != digest and not found.endswith("bytes")):
                raise ProgramFailed(f"the evaluator is not that of the search: {path} was changed or removed")

    def _is_reached(self, score: Any, stage: int) -> bool:
        """Whether the score of a stage is good enough for the next one."""
        if stage > len(self._task.thresholds):
            return True
        if isinstance(score, bool) or not isinstance(score, int | float):
            return False
        threshold = self._task.thresholds[stage - 1]
        return score <= threshold if self._task.is_smaller_better else score >= threshold

    def _measures(self, git: Git, commit: str) -> dict[str, float]:
        """How large the program is against the root, and which part of its changed files' lines differ."""
        protected = set(self._protected(git))
        sizes = [
            sum(size for path, size in git.files_of(one).items() if path not in protected)
            for one in (self._task.root, commit)
        ]
        changed = 0
        names = []
        for line in git("diff", "--numstat", "--no-renames", "-z", self._task.root, commit).split("\0"):
            if line:
                added, deleted, name = line.split("\t", 2)
                changed += sum(int(count) for count in (added, deleted) if count.isdigit())
                names.append(name)
        lines = sum(
            (git.ask("show", f"{one}:{name}") or "").count("\n") + 1
            for name in names
            for one in (self._task.root, commit)
        )
        return {
            "complexity": sizes[1] / sizes[0] if sizes[0] else 0.0,
            "diversity": min(changed / lines, 1.0) if lines else 0.0,
        }


def _diff(git: Git, before: str, after: str) -> str:
    return (git.ask("diff", "--no-color", "--no-ext-diff", before, after) or "")[: 2 * _DIFF]


def _filled(words: list[str], known: dict[str, str]) -> list[str]:
    filled = []
    for word in words:
        for name, value in known.items():
            word = word.replace(name, value)
        filled.append(word)
    return filled


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return f": {lines[-1][:300]}" if lines else ""


def _number(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) != float("inf") and value == value else 0.0


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
