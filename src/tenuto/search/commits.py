"""The two tasks of a search of programs: an agent changes a commit, commands evaluate what became of it.
Run inside jobs; touch the repository only to add a reference to the commit.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from tenuto.errors import GitError, WorkspaceError
from tenuto.search.git import Git
from tenuto.search.outcome import Outcome, as_outcome, is_finite
from tenuto.search.program_commands import (
    LARGE,
    CommandRules,
    FinishedCommand,
    file_digest,
    files_inside,
    files_outside,
    imported_names,
    module_name,
    run_command,
)
from tenuto.search.programs import AS_IT_IS
from tenuto.settings import process_environment
from tenuto.tasks import Meta, Param, Task
from tenuto.tasks.identity import identity
from tenuto.tasks.live import seal
from tenuto.tasks.schema import schema_of
from tenuto.tasks.serialization import dumps, job_document
from tenuto.workspace.files import DiskFiles
from tenuto.workspace.layout import Layout
from tenuto.workspace.tree_removal import remove_tree

# The marks that say which part of a program may change: `EVOLVE-BLOCK-START` and `EVOLVE-BLOCK-END`.
# Pure: compares texts.


START = "EVOLVE-BLOCK-START"
END = "EVOLVE-BLOCK-END"


def is_marked(text: str) -> bool:
    """Whether a text says which part of it may change."""
    return START in text


def outside(text: str) -> list[str]:
    """The lines that may not change: everything but the lines between two marks."""
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


# The prompt of an agent: the goal, the program it changes, others that may inspire it, the failures.
# Pure: text of values.


_LONGEST = 4000


class PromptRules(NamedTuple):
    """What an agent has to keep to."""

    is_smaller_better: bool = False
    protected: Sequence[str] = ()
    marked: Sequence[str] = ()
    """The files in which only the lines between marks may change."""
    agent_s: float | None = None
    evaluate_s: float | None = None


def prompt_text(goal: str, context: Mapping[str, Any], rules: PromptRules, diff: Callable[[str], str]) -> str:
    """What an agent reads. `diff(commit)`: how that commit differs from the parent."""
    parent = context.get("parent", {})
    better = "smaller" if rules.is_smaller_better else "larger"
    parts = [f"# Goal\n\n{goal.strip() or 'Improve the objective of the program.'}"]
    parts.append(f"The objective is a number: {better} is better.")
    parts.append(f"# The program\n\nIt lies in the working directory. Change it there.\n\n{_scores(parent)}")
    parts += _rules(rules)
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


def _rules(rules: PromptRules) -> list[str]:
    """The cause of a void change, in words."""
    parts = []
    if rules.marked:
        parts.append(
            f"In these files change only the lines between `{START}` and `{END}`: a change of any other "
            f"line, or of the marks, fails the program.\n\n{_listed(rules.marked)}"
        )
    if rules.protected:
        parts.append(
            f"These files are put back before the program is evaluated:\n\n{_listed(rules.protected)}"
        )
    limits = [
        f"{who} is stopped after {limit_s:g} s"
        for who, limit_s in (("your change", rules.agent_s), ("its evaluation", rules.evaluate_s))
        if limit_s is not None
    ]
    if limits:
        parts.append(f"Limits: {'; '.join(limits)}. What runs over its time has failed.")
    return parts


def _listed(paths: Sequence[str]) -> str:
    return "\n".join(f"- {path}" for path in paths)


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


AT_ONCE_S = 10.0
"""An agent that failed within this time, and changed nothing, did not begin to work."""
IDLE_S = 1.0
"""The same for one that ended well, changed nothing and left no report."""
_ARTIFACT = 4000
_REPORT = 1 << 20
_DIFF = 4000
_COST = "a finite number of 0 or more"
_CHECKOUT = "checkout"
_GIT_DIR = "git"
_STANDARD = sys.stdlib_module_names
_AT_ONCE = {"pytest": {"conftest"}, "PYTHONPATH": {"sitecustomize", "usercustomize"}}
"""Modules that are imported before anything that an evaluator asks for, where its command says this."""


class EvolveCommit(Task):
    """One program: a commit that an agent makes of its parent; says which job evaluates it."""

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
    salt: Meta[str] = ""
    confined: Meta[bool] = False
    pass_variables: Meta[str] = ""
    agent_home: Meta[str | None] = None
    workspace: Meta[str] = ""

    def execute(self) -> Any:
        return _Change(self, Path.cwd()).run()


class EvaluateCommit(Task):
    """The evaluation of a tree: candidates with the same files share it."""

    tree: Param[str]
    root: Param[str]
    evaluate: Param[list[list[str]]]
    evaluators: Param[dict[str, str]]
    protect: Param[list[str]]
    thresholds: Param[list[float]]
    is_smaller_better: Param[bool]
    repository: Meta[str]
    commit: Meta[str]
    candidate: Meta[str]
    evaluate_s: Meta[float | None] = None
    confined: Meta[bool] = False
    pass_variables: Meta[str] = ""
    workspace: Meta[str] = ""

    def execute(self) -> Any:
        return {"candidate": self.candidate, "outcome": Evaluation(self, Path.cwd()).run()._asdict()}


_SHARED = (
    "root evaluate evaluators protect thresholds is_smaller_better repository evaluate_s confined "
    "pass_variables workspace"
).split()
"""The parameters that an evaluation has from the change that it follows."""


class ProgramFailed(Exception):
    """The candidate failed, with the cause."""

    def __init__(self, message: str, finished: FinishedCommand | None = None, name: str = "") -> None:
        super().__init__(message)
        tails = {} if finished is None else {f"{name} stdout": finished.out, f"{name} stderr": finished.err}
        self.artifacts = {key: text[-_ARTIFACT:] for key, text in tails.items() if text.strip()}


class SurroundingsFailed(Exception):
    """The candidate could not be tried: the fault is its surroundings', and others would meet it as well."""


class Workplace:
    """The checkout of a program in the directory of a job, and git directories that no candidate has seen."""

    def __init__(self, repository: str, directory: Path) -> None:
        self.directory = directory = Path(os.path.realpath(directory))
        self.checkout = directory / _CHECKOUT
        self._git_dir = directory / _GIT_DIR
        self.repository = Git(repository)

    def check_out(self, commit: str) -> None:
        """Makes the checkout anew: nothing that a candidate left there is kept, or followed."""
        self.make(self.checkout)
        self.repository.check_out(commit, self.checkout)

    def git(self) -> Git:
        """Git with the files of the checkout, and a git directory that no candidate has seen."""
        self.make(self._git_dir)
        if not self.checkout.is_dir() or os.path.realpath(self.checkout) != str(self.checkout):
            raise ProgramFailed("the agent removed its working directory, or put a link in its place")
        return self.repository.borrow(self._git_dir, self.checkout)

    def clear(self) -> None:
        """Removes checkout and git directory."""
        for path in (self.checkout, self._git_dir):
            with contextlib.suppress(OSError, ProgramFailed):
                self.remove(path)

    def make(self, directory: Path) -> None:
        """Makes a directory of the job anew, whatever a candidate put there."""
        self.remove(directory)
        directory.mkdir()

    def remove(self, path: Path) -> None:
        """Removes a path of the job, whatever a candidate put there."""
        if os.path.realpath(self.directory) != str(self.directory):
            raise ProgramFailed("the directory of the job was replaced")
        try:
            path.unlink(missing_ok=True)
        except (IsADirectoryError, PermissionError):
            remove_tree(str(path))


class _Change:
    """The change of one commit, in the directory of its job."""

    def __init__(self, task: EvolveCommit, directory: Path) -> None:
        self._task = task
        self._place = Workplace(task.repository, directory)
        self._report = self._place.directory / "report" / "report.json"
        self._prompt = self._place.directory / "prompt.md"
        self._cost = 0.0
        self._notes = ""
        self._is_reported = False

    def run(self) -> Any:
        """The commit, and the job that evaluates it; an `Outcome` with a failure if there is none."""
        task = self._task
        commit: str | None = None
        try:
            check_evaluator(task.evaluators)
            commit = self._given() if task.draw == AS_IT_IS else self._changed()
            tree = self._place.repository("rev-parse", f"{commit}^{{tree}}")
        except (ProgramFailed, GitError, OSError) as error:
            artifacts = getattr(error, "artifacts", {})
            return Outcome(failure=str(error), artifacts=artifacts, cost=self._cost, solution=commit)
        finally:
            self._place.clear()
        return {"commit": commit, "cost": self._cost, "evaluation": self._evaluation(commit, tree)}

    def _evaluation(self, commit: str, tree: str) -> dict[str, str]:
        """The job that evaluates a tree: its name and its parameters."""
        task = self._task
        shared = {name: getattr(task, name) for name in _SHARED}
        candidate = self._place.directory.name
        made = EvaluateCommit.C(tree=tree, commit=commit, candidate=candidate, **shared)
        seal(made, to_run=True)
        job_id = identity(made)
        if task.salt:
            job_id = sha256(f"{task.salt}/{job_id}".encode()).hexdigest()
        layout = Layout(str(self._place.directory.parents[2]))
        name = schema_of(EvaluateCommit).id
        document = job_document(made, layout.job(name, job_id).directory, layout.partials, sys.path)
        return {"task_id": name, "job_id": job_id, "params": dumps(document).decode("ascii")}

    def _given(self) -> str:
        """The commit as it is, but for what is protected, which is put back if the commit changes it."""
        task = self._task
        if task.parent == task.root:
            return task.parent
        self._place.make(self._place.checkout)
        git = self._place.git()
        git("read-tree", task.parent)
        git.put_back(protected_paths(task, git), task.root)
        if git("write-tree") == git("rev-parse", f"{task.parent}^{{tree}}"):
            return task.parent
        self._notes = "Put back what is protected"
        commit = git.commit(task.parent, self._message())
        git.send(commit, self._place.repository, f"refs/tenuto/{task.search}/{commit[:12]}")
        return commit

    # -- the agent ---------------------------------------------------------------------------------

    def _changed(self) -> str:
        task = self._task
        self._place.check_out(task.parent)
        git = self._place.git()
        protected = protected_paths(task, git)
        context = json.loads(task.context)
        self._place.remove(self._prompt)  # an agent of an earlier attempt may have made a link of it
        self._prompt.write_text(
            prompt_text(
                task.goal,
                context,
                PromptRules(
                    task.is_smaller_better,
                    protected,
                    git.marked_files(task.parent, START),
                    task.agent_s,
                    task.evaluate_s,
                ),
                lambda commit: _diff(git, task.parent, commit),
            ),
            "utf-8",
        )
        finished = self._run_agent()
        git = self._place.git()
        git.take_in(task.parent)
        git.put_back(protected, task.root)
        is_unchanged = git("write-tree") == git("rev-parse", f"{task.parent}^{{tree}}")
        self._judge_agent(finished, is_unchanged)
        commit = git.commit(task.parent, self._message())
        self._check_blocks(git, commit)
        self._check_shadows(git, commit)
        git.send(commit, self._place.repository, f"refs/tenuto/{task.search}/{commit[:12]}")
        return commit

    def _judge_agent(self, finished: FinishedCommand, is_unchanged: bool) -> None:
        """Raises if the agent failed or changed nothing; `SurroundingsFailed` if it hardly began."""
        said = f"the agent {finished.trouble}{_last(finished.err or finished.out)}"
        if finished.is_unconfined:
            raise SurroundingsFailed(f"the sandbox could not be started: {finished.err.strip()[-300:]}")
        if finished.is_missing:
            raise SurroundingsFailed(said)
        is_idle = is_unchanged and not self._is_reported
        if finished.trouble is not None:
            if is_idle and finished.code is not None and finished.seconds < AT_ONCE_S:
                raise SurroundingsFailed(said)
            raise ProgramFailed(said, finished, "agent")
        if is_unchanged:
            words = f"the agent changed nothing{_last(finished.err or finished.out)}"
            if is_idle and finished.seconds < IDLE_S:
                raise SurroundingsFailed(words)
            raise ProgramFailed(words, finished, "agent")

    def _run_agent(self) -> FinishedCommand:
        task = self._task
        self._place.make(self._report.parent)
        prompt, seed = str(self._prompt), str(task.draw)
        known = {"{prompt}": prompt, "{seed}": seed, "{parent}": task.parent, "{python}": sys.executable}
        environment = {
            "EVOLVE_PROMPT": prompt,
            "EVOLVE_PARENT": task.parent,
            "EVOLVE_INSPIRATIONS": " ".join(task.inspirations),
            "EVOLVE_SEED": seed,
            "EVOLVE_REPORT": str(self._report),
        }
        rules = CommandRules(
            task.confined,
            tuple(task.pass_variables.split()),
            task.workspace,
            shown=(self._place.repository.objects, prompt),
            writable=(str(self._report.parent),),
            network=True,
            home=task.agent_home,
        )
        finished = run_command(
            _filled(task.agent, known), self._place.checkout, environment, task.agent_s, rules
        )
        self._read_report()
        if self._cost < 0:
            cost, self._cost = self._cost, 0.0
            raise ProgramFailed(f"the agent reported a cost of {cost!r}, not {_COST}", finished, "agent")
        return finished

    def _read_report(self) -> None:
        """Reads what the agent left there, unless it is no file: a pipe or a device would never end."""
        try:
            report = json.loads(DiskFiles().read(str(self._report), _REPORT).decode("utf-8", "replace"))
        except (OSError, WorkspaceError, ValueError, RecursionError):
            return
        if isinstance(report, dict):
            self._is_reported = True
            cost = report.get("cost")
            self._cost = float(cost or 0.0) if is_finite(cost) else 0.0
            notes = str(report.get("notes") or "")[:_ARTIFACT]
            # What no commit can say: NUL, and half a character.
            self._notes = (
                notes.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            )

    def _message(self) -> str:
        task = self._task
        first, _, rest = self._notes.strip().partition("\n")
        body = f"{rest.strip()}\n\n" if rest.strip() else ""
        return (
            f"{first or f'Candidate of {task.search}'}\n\n{body}"
            f"Tenuto-Search: {task.search}\nTenuto-Parent: {task.parent}\n"
        )

    def _check_shadows(self, git: Git, commit: str) -> None:
        """Refuses a new file that Python would import in place of a module that the evaluator asks for."""
        files = files_inside(self._task.evaluate, git.files_of(self._task.root))
        folders = {"", *(f"{os.path.dirname(path)}/" for path in files if "/" in path)}
        new = {
            name: change.path  # Python looks beside the file that it runs
            for change in git.changes(self._task.root, commit)
            if change.kind == "A" or change.is_link
            for folder in folders
            if change.path.startswith(folder)
            and (name := module_name(change.path.removeprefix(folder), change.is_link)) is not None
        }
        installed = [sysconfig.get_path(one) for one in ("purelib", "platlib")]
        said = f"{self._task.evaluate} {self._task.pass_variables}"
        if not all(map(os.path.isabs, process_environment().get("PYTHONPATH", "/").split(os.pathsep))):
            said += " PYTHONPATH"  # of the caller, and leads into the checkout
        own = _STANDARD.union(*(names for word, names in _AT_ONCE.items() if word in said))
        shadowed = {one for one in new if one in own or PathFinder.find_spec(one, installed)}
        if new:
            objects = [f"{self._task.root}:{path}" for path in files if "\n" not in path]
            texts = [text.decode("utf-8", "replace") for text in git.contents(objects)]
            outside = [path for path in self._task.evaluators if os.path.isabs(path) and path.endswith(".py")]
            texts += [Path(path).read_text("utf-8", "replace") for path in outside]
            shadowed |= new.keys() & {name for text in texts for name in imported_names(text)}
        if shadowed:
            name = min(shadowed)
            raise ProgramFailed(
                f"the agent added {new[name]}, which would take the place of the module {name}"
            )

    def _check_blocks(self, git: Git, commit: str) -> None:
        changes = git.changes(self._task.parent, commit)
        objects = [one for change in changes for one in (change.before, change.after)]
        texts = (text.decode("utf-8", "replace") for text in git.contents(objects))
        for change, before, after in zip(changes, texts, texts, strict=True):
            line = changed_outside(before, after) if is_marked(before) else None
            if line is not None:
                raise ProgramFailed(
                    f"the agent changed {change.path} outside its EVOLVE-BLOCK marks, at: {line.strip()}"
                )


class Evaluation:
    """The evaluation of one commit, in the directory of its job."""

    def __init__(self, task: EvaluateCommit, directory: Path) -> None:
        self._task = task
        self._place = Workplace(task.repository, directory)
        self._metrics = self._place.directory / "metrics.json"

    def run(self) -> Outcome:
        """What the commit is worth."""
        try:
            outcome = self._evaluated(self._task.commit)
        except (ProgramFailed, GitError, OSError) as error:
            outcome = Outcome(failure=str(error), artifacts=getattr(error, "artifacts", {}))
        finally:
            self._place.clear()
        return outcome._replace(solution=self._task.commit)

    def _evaluated(self, commit: str) -> Outcome:
        """Runs one stage after the other; the last one that was reached says what the candidate is worth."""
        task = self._task
        costs: list[Any] = []
        metrics: dict[str, Any] = {}
        artifacts: dict[str, Any] = {}
        outcome = Outcome()
        check_evaluator(task.evaluators)
        before = self._evaluator_files()
        self._place.check_out(commit)
        computed = self._measures(self._place.git(), commit)
        for stage, words in enumerate(task.evaluate, 1):
            if stage > 1:
                self._place.check_out(commit)
            self._place.remove(self._metrics)
            self._metrics.write_text(json.dumps(metrics))
            outcome = self._stage(commit, words, stage)
            costs.append(outcome.cost)
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
        sound = [cost for cost in costs if is_finite(cost) and cost >= 0]
        if outcome.failure is None and len(sound) < len(costs):
            cost = next(cost for cost in costs if cost not in sound)
            outcome = outcome._replace(failure=f"the cost is {cost!r:.60}, not {_COST}")
        return outcome._replace(
            cost=math.fsum(sound), metrics={**computed, **metrics}, artifacts=artifacts, measures=measures
        )

    def _stage(self, commit: str, words: list[str], stage: int) -> Outcome:
        environment = {"EVOLVE_COMMIT": commit, "EVOLVE_METRICS": str(self._metrics)}
        rules = CommandRules(
            self._task.confined,
            tuple(self._task.pass_variables.split()),
            self._task.workspace,
            shown=(self._place.repository.objects, str(self._metrics)),
        )
        known = {"{python}": sys.executable, "{commit}": commit, "{directory}": str(self._place.checkout)}
        filled = _filled(words, known)
        finished = run_command(filled, self._place.checkout, environment, self._task.evaluate_s, rules)
        name = "evaluator" if len(self._task.evaluate) == 1 else f"stage {stage} of the evaluator"
        if finished.is_unconfined:
            raise SurroundingsFailed(f"the sandbox could not be started: {finished.err.strip()[-300:]}")
        if finished.is_missing and commit != self._task.root:
            raise SurroundingsFailed(f"the {name} could not be started: {finished.err}")
        lines = finished.out.strip().splitlines()
        try:
            outcome = as_outcome(json.loads(lines[-1])) if lines else None
        except (ValueError, RecursionError):
            outcome = None
        if finished.trouble is not None or outcome is None:
            trouble = finished.trouble or f"printed no outcome as its last line{_last(finished.out)}"
            said = _last(finished.err) if finished.trouble else ""
            failed = ProgramFailed(f"the {name} {trouble}{said}", finished, "evaluator")
            cost = outcome.cost if outcome is not None else 0.0
            return Outcome(failure=str(failed), artifacts=failed.artifacts, cost=cost)
        return outcome

    def _evaluator_files(self) -> dict[str, str]:
        return files_outside(self._task.evaluate, str(self._place.checkout), LARGE)

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
        protected = set(protected_paths(self._task, git))
        sizes = [
            sum(size for path, size in git.files_of(one).items() if path not in protected)
            for one in (self._task.root, commit)
        ]
        counted = git("diff", "--numstat", "--no-renames", "-z", self._task.root, commit).split("\0")
        changed = sum(int(count) for line in counted for count in line.split("\t")[:2] if count.isdigit())
        differing = git.changes(self._task.root, commit)
        objects = [one for change in differing for one in (change.before, change.after)]
        lines = sum(text.count(b"\n") + 1 for text in git.contents(objects))
        return {
            "complexity": sizes[1] / sizes[0] if sizes[0] else 0.0,
            "diversity": min(changed / lines, 1.0) if lines else 0.0,
        }


def protected_paths(task: EvolveCommit | EvaluateCommit, git: Git) -> list[str]:
    """The paths that are put back: those given, else the files that the evaluate commands name."""
    return list(task.protect) or files_inside(task.evaluate, git.files_of(task.root))


def check_evaluator(evaluators: Mapping[str, str]) -> None:
    """Refuses to continue with another evaluator than that of the candidates before."""
    for path, digest in evaluators.items():
        found = file_digest(path, LARGE) if os.path.isabs(path) else digest
        if found is None or (found != digest and not found.endswith("bytes")):
            raise SurroundingsFailed(
                f"the evaluator is not that of the search: {path} was changed or removed"
            )


def _diff(git: Git, before: str, after: str) -> str:
    return (git.ask("diff", "--no-color", "--no-ext-diff", "--no-textconv", before, after) or "")[: 2 * _DIFF]


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


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
