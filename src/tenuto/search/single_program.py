"""One program file as a repository, so that a search can vary it: kept in the workspace, made once.
Leaves the file itself as it is.
"""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from pathlib import Path

from tenuto.errors import SearchError
from tenuto.search.git import Git
from tenuto.search.openevolve import OpenEvolveConfig, stages_of
from tenuto.search.repository import Repository

_ADAPTER = ("{python}", "-m", "tenuto.search.openevolve_evaluator")


def program_repository(
    program: Path,
    evaluator: Path,
    directory: Path,
    *,
    agent: list[str],
    goal: str,
    config: OpenEvolveConfig,
    features: Sequence[str],
) -> Repository:
    """A repository in `directory` that holds the program, evaluated by a file in OpenEvolve's form.

    `features`: the names of the measures, which are no part of the fitness.
    Raises `SearchError` if the directory holds another program: its search began with that one.
    """
    _commit(program, directory)
    stages = stages_of(evaluator.read_text("utf-8"), str(evaluator)) if config.cascade_evaluation else 0
    stages = min(stages, len(config.cascade_thresholds) + 1)  # OpenEvolve runs no stage without a threshold
    words: tuple[str, ...] = (*_ADAPTER, os.path.abspath(evaluator), f"{{directory}}/{program.name}")
    last = ("--features", ",".join(features))
    commands = [(*words, str(stage), *last) for stage in range(1, stages + 1)] or [(*words, *last)]
    return Repository(
        directory,
        agent=agent,
        evaluate=commands,
        goal=goal,
        evaluate_s=config.timeout,
        thresholds=config.cascade_thresholds[: len(commands) - 1],
    )


def _commit(program: Path, directory: Path) -> None:
    text = program.read_bytes()
    git = Git(directory)
    if (directory / ".git").exists() and git.ask("rev-parse", "--verify", "--quiet", "HEAD"):
        if (directory / program.name).is_file() and (directory / program.name).read_bytes() == text:
            return
        raise SearchError(
            f"{program} changed since its search began with what lies in {directory}: "
            f"give the search another name (--name)"
        )
    directory.mkdir(parents=True, exist_ok=True)
    git("init", "--quiet")
    (directory / program.name).write_bytes(text)
    git("add", "--", program.name)
    git("commit", "--quiet", "--no-verify", "--message", f"Begin with {program.name}")
