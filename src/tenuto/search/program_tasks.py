"""Programs of a search as tasks: a proposal becomes the config that changes and evaluates a commit.
Asks git for the commit to begin with; runs no agent.
"""

from __future__ import annotations

import json
import os.path
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenuto.errors import GitError, SearchError
from tenuto.search.commits import EvolveCommit, files_inside, files_outside
from tenuto.search.git import Git
from tenuto.search.programs import AS_IT_IS
from tenuto.search.repository import Repository

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def program_task(
    repository: Repository,
    values: Any,
    context: Any,
    search: str,
    maximize: bool,
    evaluators: Mapping[str, str],
) -> EvolveCommit:
    """The config of a proposal; raises `SearchError` for values that name no commit.

    `evaluators`: the files that evaluate, as `evaluator_files` finds them.
    """
    values = complete_values(repository, values)
    is_child = values["draw"] != AS_IT_IS
    made: EvolveCommit = EvolveCommit.C(
        parent=values["parent"],
        inspirations=list(values["inspirations"]),
        agent=list(repository.agent) if is_child else [],
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
    )
    return made


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
    """Refuses, at the call, what is no repository, or has no such root."""
    if not os.path.isdir(repository.path):
        raise SearchError(f"Repository({repository.path!r}): there is no such directory")
    git = Git(repository.path)
    if git.ask("rev-parse", "--git-dir") is None:
        git("version")  # says so if git itself is missing
        above = next((top for top in Path(repository.path).parents if (top / ".git").exists()), None)
        remedy = "git init, and commit" if above is None else f"give {above}, of which it is a part"
        raise SearchError(f"Repository({repository.path!r}) is no git repository: {remedy}")
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


def root_of(repository: Repository) -> str:
    """The commit to begin with."""
    return Git(repository.path).commit_of(repository.root)
