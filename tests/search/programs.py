"""A small repository, agents and evaluators for searches of programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tenuto.search import Evolution, MapElites, Repository

PROGRAM = "A = 1.0\nB = 0.0\n"
EVALUATOR = """
import json, sys
values = {}
exec(open("program.py").read(), values)
print("looked at", values["A"])
if values["A"] > 90:
    sys.exit("too large")
print(json.dumps({"objective": values["A"], "measures": {"a": values["A"], "b": values["B"]},
                  "artifacts": {"said": "a is %s" % values["A"]}, "cost": 0.25}))
"""
AGENT = """
import json, os, random, re, sys
from pathlib import Path
chance = random.Random(os.environ["EVOLVE_SEED"])
prompt = Path(os.environ["EVOLVE_PROMPT"]).read_text()
assert "# Goal\\n\\nmore" in prompt and "objective" in prompt, prompt
assert sys.argv[1] == os.environ["EVOLVE_PARENT"]
Path(os.environ["EVOLVE_REPORT"]).write_text(json.dumps({"cost": 1.0, "notes": "stirred"}))
text = Path("program.py").read_text()
name = chance.choice("AB")
Path("program.py").write_text(re.sub(rf"{name} = .*", f"{name} = {chance.uniform(0, 10):.5f}", text))
"""


REPOSITORY_OPTIONS = (
    "evaluate thresholds protect agent_s evaluate_s confine pass_variables agent_home".split()
)


def git(path: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", path, "-c", "user.name=a", "-c", "user.email=a@b", *words],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def repository(tmp_path: Path, evaluator: str = EVALUATOR, program: str = PROGRAM) -> Path:
    """A repository with a program and its evaluator, and something of the user's that must stay as it is."""
    path = tmp_path / "repository"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    (path / "program.py").write_text(program)
    (path / "evaluate.py").write_text(evaluator)
    git(path, "add", ".")
    git(path, "commit", "-q", "-m", "root")
    (path / "notes.txt").write_text("the user's own\n")
    (path / "staged.txt").write_text("half done\n")
    git(path, "add", "staged.txt")
    return path


def state_of(path: Path) -> list[str]:
    """What a person sees of a repository, our own references left out."""
    heads = git(path, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads").splitlines()
    return [
        git(path, "rev-parse", "HEAD"),
        git(path, "status", "--porcelain"),
        git(path, "diff", "--cached"),
        git(path, "worktree", "list"),
        git(path, "config", "--local", "--list"),
        git(path, "stash", "list"),
        *(line for line in heads if "refs/heads/tenuto/" not in line),
    ]


def programs(tmp_path: Path, agent: str = AGENT, **options: Any) -> Evolution:
    """A search of the programs of a repository in `tmp_path`."""
    file = tmp_path / "agent.py"
    if not file.exists() or file.read_text() != agent:  # a job that outlived its driver may start it now
        file.write_text(agent)
    given: dict[str, Any] = {"goal": "more"}
    for key in (
        "evaluate",
        "thresholds",
        "protect",
        "agent_s",
        "evaluate_s",
        "confine",
        "pass_variables",
        "agent_home",
    ):
        if key in options:
            given[key] = options.pop(key)
    given.setdefault("evaluate", [sys.executable, "evaluate.py"])
    path = options.pop("path", tmp_path / "repository")
    command = options.pop("command", [sys.executable, str(tmp_path / "agent.py"), "{parent}"])
    return Evolution(
        options.pop("name", "stir"),
        Repository(path, agent=command, **given),
        **{
            "sampler": MapElites([5, 5], [(0, 10), (0, 10)], measures=["a", "b"]),
            "workdir": tmp_path / "w",
            **options,
        },
    )
