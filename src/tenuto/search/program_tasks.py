"""Programs of a search as tasks: a proposal becomes the config that changes and evaluates a commit.
Asks git for the commit to begin with; runs no agent.
"""

from __future__ import annotations

import json
import os.path
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tenuto.errors import GitError, SearchError
from tenuto.launchers.confinement import Sandbox, SandboxMode, trial
from tenuto.search.commits import EvolveCommit
from tenuto.search.git import Git
from tenuto.search.program_commands import files_inside, files_outside
from tenuto.search.programs import AS_IT_IS, Repository
from tenuto.settings import process_environment

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def program_task(
    repository: Repository,
    values: Any,
    context: Any,
    search: str,
    maximize: bool,
    evaluators: Mapping[str, str],
    salt: str = "",
    workspace: str = "",
) -> EvolveCommit:
    """The config of a proposal; raises `SearchError` for values that name no commit.

    `evaluators`: the files that evaluate, as `evaluator_files` finds them; `salt`: of a search that looks
    nothing up, which sets its evaluations apart; `workspace`: what no command sees but its own checkout.
    """
    values = complete_values(repository, values)
    is_child = values["draw"] != AS_IT_IS
    made: EvolveCommit = EvolveCommit.C(
        parent=values["parent"],
        inspirations=list(values["inspirations"]),
        agent=list(agent_for(repository, values["draw"])) if is_child else [],
        evaluate=[list(command) for command in repository.evaluate],
        goal=repository.goal if is_child else "",
        draw=values["draw"],
        evaluators=dict(evaluators),
        protect=list(repository.protect),
        thresholds=list(repository.thresholds),
        is_smaller_better=not maximize,
        root=(context or {}).get("root") or values["parent"],
        repository=repository.path,
        search=search,
        context=json.dumps(context or {}),
        agent_s=repository.agent_s,
        evaluate_s=repository.evaluate_s,
        salt=salt,
        confined=confined_by(repository) is None,
        pass_variables=" ".join(repository.pass_variables),
        agent_home=repository.agent_home,
        workspace=workspace,
    )
    return made


def agent_for(repository: Repository, draw: int) -> tuple[str, ...]:
    """The agent of the candidate with that draw: a function of the draw alone."""
    return Random(f"agent/{draw}").choices(repository.agents, repository.weights)[0]


def confined_by(repository: Repository) -> str | None:
    """Why the commands of a repository are not confined on this machine; None if they are."""
    return "it was asked for" if repository.confine == "none" else _trouble_of_sandbox()


@cache
def _trouble_of_sandbox() -> str | None:
    with tempfile.TemporaryDirectory(prefix="tenuto-confined-") as directory:
        return trial(Sandbox(SandboxMode.BWRAP, is_root=False), directory)


def evaluator_files(repository: Repository, checkout: str) -> dict[str, str]:
    """The files that the evaluate commands name, which run in `checkout`, each with its digest.

    Files of the repository are those of the root, wherever the user's checkout stands.
    """
    listed = Git(repository.path)("ls-tree", "-r", "-z", root_of(repository)).split("\0")
    inside = {path: about.split()[2] for about, _, path in (line.partition("\t") for line in listed) if path}
    named = {path: inside[path] for path in files_inside(repository.evaluate, inside)}
    return named | files_outside(repository.evaluate, checkout)


def complete_values(repository: Repository, values: Any) -> dict[str, Any]:
    """Values as a sampler gives them; `{"commit": name}` stands for a commit to be evaluated as it is."""
    if isinstance(values, dict) and set(values) == {"commit"}:
        commit = Git(repository.path).commit_of(str(values["commit"]))
        return {"parent": commit, "inspirations": [], "draw": AS_IT_IS}
    is_whole = isinstance(values, dict) and {"parent", "inspirations", "draw"} <= set(values)
    if not is_whole or not _COMMIT.fullmatch(str(values["parent"])):
        raise SearchError(
            f'{values!r:.80} is no program: give {{"commit": "name"}} for a commit of {repository.path}'
        )
    return dict(values)


def check_repository(repository: Repository) -> None:
    """Refuses, at the call, a path that is no repository, or has no such root."""
    if not os.path.isdir(repository.path):
        raise SearchError(f"Repository({repository.path!r}): there is no such directory")
    git = Git(repository.path)
    try:
        git("rev-parse", "--git-dir")
    except GitError as error:
        if "not a git repository" not in str(error):  # of another owner, broken, or git is missing
            raise SearchError(f"Repository({repository.path!r}): {error}") from None
        above = next((top for top in Path(repository.path).parents if (top / ".git").exists()), None)
        remedy = "git init, and commit" if above is None else f"give {above}, of which it is a part"
        raise SearchError(f"Repository({repository.path!r}) is no git repository: {remedy}") from None
    try:
        root = root_of(repository)
    except GitError:
        raise SearchError(
            f"Repository({repository.path!r}, root={repository.root!r}): no such commit; commit first"
        ) from None
    files = git.files_of(root)
    for path in repository.protect:
        if path not in files and not any(name.startswith(f"{path.rstrip('/')}/") for name in files):
            raise SearchError(f"Repository: protect={path!r} names nothing of the commit {root[:12]}")


_INTERPRETERS = re.compile(r"(python[0-9.]*|pypy[0-9.]*|bash|sh|dash|zsh|node|ruby|perl)$")


def remarks_on(repository: Repository) -> list[str]:
    """What a person may not expect of a search in this repository, in sentences."""
    git = Git(repository.path)
    found = []
    changed = git.left_out() if repository.root == "HEAD" else []
    if changed:
        found.append(
            f"what is not committed is left out: {', '.join(changed[:5])}{', ...' if changed[5:] else ''}"
        )
    modules = git.modules_of(root_of(repository))
    if modules:
        found.append(f"submodules are not checked out: {', '.join(modules[:5])}")
    away = [path for path, kept in git.large_files(root_of(repository)).items() if not kept.is_file()]
    if away:
        found.append(f"files of git LFS are pointers here: {', '.join(away[:5])} (git lfs pull)")
    if repository.confine == "auto" and (trouble := confined_by(repository)) is not None:
        found.append(
            f"agents and evaluations are not confined, and may do what you may (bubblewrap: {trouble})"
        )
    return found


def ignore_workspace(repository: Repository, workspace: str) -> None:
    """Keeps a workspace that lies in the repository out of `git status`."""
    is_inside = os.path.realpath(workspace).startswith(f"{os.path.realpath(repository.path)}/")
    ignoring = Path(workspace, ".gitignore")
    if is_inside and not ignoring.exists():
        ignoring.parent.mkdir(parents=True, exist_ok=True)
        ignoring.write_text("*\n")


def check_commands(repository: Repository) -> None:
    """Refuses commands of which it is plain, on the machine that runs them, that none could be started."""
    files = Git(repository.path).files_of(root_of(repository))
    named = [("agent", words) for words in repository.agents] + [
        ("evaluate", words) for words in repository.evaluate
    ]
    for option, words in named:
        program = sys.executable if words[0] == "{python}" else words[0]
        if "{" in program:
            continue
        if "/" not in program:
            if shutil.which(program, path=process_environment().get("PATH")) is None:
                raise SearchError(
                    f"{option}: there is no program {program!r} on the PATH; give its whole path"
                )
        else:
            _check_file(option, program, files, repository.path)
        script = _script(program, words[1:])
        if script is not None:
            _check_file(option, script, files, repository.path)


def _script(program: str, words: Sequence[str]) -> str | None:
    """The file that an interpreter is told to run; None if it runs something else, or an unusual command."""
    if not _INTERPRETERS.match(os.path.basename(program)) or not words:
        return None
    first = words[0]
    is_plain = not first.startswith("-") and "{" not in first and "$" not in first
    return first if is_plain else None


def _check_file(option: str, path: str, files: Mapping[str, int], repository: str) -> None:
    if os.path.isabs(path):
        if not os.path.exists(path):
            raise SearchError(f"{option}: there is no file {path}")
    elif os.path.normpath(path) not in files and not path.startswith("../"):
        here = f"; give its whole path, {os.path.abspath(path)}" if os.path.exists(path) else ""
        raise SearchError(
            f"{option}: {path} is no file of the commit that the search of {repository} begins with{here}"
        )


def root_of(repository: Repository) -> str:
    """The commit to begin with."""
    return Git(repository.path).commit_of(repository.root)
