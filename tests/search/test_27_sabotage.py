"""27: candidates that turn git against the user's repository, with the workspace inside it, as documented."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import SearchError
from tenuto.search.git import Git
from tests.search.programs import git, programs, repository
from tests.search.terminal import tenuto

SCORE = """echo '{"objective": 1.0, "measures": {"a": 1.0, "b": 0.0}}'\n"""
EDIT = 'echo "# $EVOLVE_SEED" >> program.py\n'
SABOTAGES = {
    "removes": "rm -rf .git",
    "removes and commits": "rm -rf .git; git checkout --detach; git add --all; git commit -qm mine",
    "writes a file": 'rm -rf .git; echo "gitdir: $USERS/.git" > .git',
    "links": 'rm -rf .git; ln -s "$USERS/.git" .git',
    "links itself": 'here=$PWD; cd /; rm -rf "$here"; ln -s "$USERS" "$here"',
    "moves the work tree": 'git config core.worktree "$USERS"',
    "borrows": 'echo "$USERS/.git/objects" > .git/objects/info/alternates; git config core.bare true',
    "hooks": "mkdir -p .git/hooks; "
    "for hook in post-checkout pre-push post-index-change reference-transaction; "
    'do printf "#!/bin/sh\\ntouch $USERS/hooked\\n" > .git/hooks/$hook; chmod +x .git/hooks/$hook; done',
    "configures": 'git config core.hooksPath "$USERS"; git config core.fsmonitor "touch $USERS/hooked"; '
    'git config filter.f.clean "touch $USERS/hooked; cat"; '
    'git config filter.f.smudge "touch $USERS/hooked; cat"; '
    'echo "* filter=f" > .gitattributes; mkdir -p .git/info; echo "* filter=f" > .git/info/attributes',
    "configures the other": 'printf "[core]\\n\\tfsmonitor = touch $USERS/hooked\\n\\tworktree = $USERS\\n" '
    "| tee -a ../git/config ../*/config",
    "pushes": "git push origin HEAD:main; git push origin +HEAD:refs/heads/theirs; git push --all; "
    "git push; git branch -f main; git tag mine",
    "nests": 'mkdir -p sub; echo "gitdir: $USERS/.git" > sub/.git',
    "nests a link": 'mkdir -p sub; ln -s "$USERS/.git" sub/.git; echo x > sub/x',
    "locks": "chmod -R a-w .",
}


def users(tmp_path: Path) -> Path:
    """A user's repository with a remote, and work that is not committed: edited, staged and untracked."""
    path = repository(tmp_path)
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "upstream")
    git(path, "remote", "add", "origin", str(tmp_path / "upstream"))
    git(path, "push", "-q", "origin", "main")
    (path / "program.py").write_text("A = 0.77\nB = 0.0\n")
    return path


def bytes_of(path: Path) -> dict[str, Any]:
    """All that the user has: files, HEAD, index, configuration, references, and those of the remote."""
    files = [
        one
        for one in path.rglob("*")
        if one.is_file() and not {".git", "workspace"} & set(one.relative_to(path).parts)
    ]
    files += [path / ".git" / name for name in ("HEAD", "index", "config")]
    references = git(path, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return {
        "references": [
            one for one in references if not one.startswith(("refs/tenuto/", "refs/heads/tenuto/"))
        ],
        "upstream": git(path.parent / "upstream", "for-each-ref", "--format=%(refname) %(objectname)"),
        **{str(one.relative_to(path)): one.read_bytes() for one in files},
    }


def sabotaged(tmp_path: Path, path: Path, sabotage: str, where: str) -> Any:
    """The result of a search whose agent, first stage, or program does this to its checkout."""
    script = tmp_path / "sabotage.sh"
    script.write_text(f"USERS={path}\n{sabotage}\n")
    agent, first = tmp_path / "agent.sh", tmp_path / "first.sh"
    run = f"sh {script} >/dev/null 2>&1 || true\n"
    agent.write_text(EDIT + (run if where == "agent" else ""))
    first.write_text({"stage": run, "program": "python3 program.py\n"}.get(where, "") + SCORE)
    (tmp_path / "second.sh").write_text(SCORE)
    if where == "program":
        git(path, "stash", "-q")
        (path / "program.py").write_text(f"import os\nos.system({f'sh {script}'!r})\n")
        git(path, "commit", "-qam", "a program that does it")
        git(path, "push", "-q", "origin", "main")
        (path / "program.py").write_text("A = 0.77\n")
    before = bytes_of(path)
    evolution = programs(
        tmp_path,
        confine="none",
        path=path,
        workdir=path / "workspace",
        evaluate=[["sh", str(first)], ["sh", str(tmp_path / "second.sh")]],
        command=["sh", str(agent)],
        max_total_jobs=3,
    )
    result = evolution.run(slots=1)
    after = bytes_of(path)
    assert after.keys() == before.keys()
    assert {name for name in before if before[name] != after[name]} == set()
    git(path, "fsck", "--strict")
    return result


OFTEN = ("removes and commits", "links itself", "hooks", "configures", "pushes")
"""What a first stage and a program try in the suite; an agent, which comes first, tries all."""
MORE = pytest.mark.prove("an agent tries it in the suite")


@pytest.mark.parametrize(
    ("sabotage", "where"),
    [
        pytest.param(one, where, marks=[] if where == "agent" or one in OFTEN else MORE)
        for one in SABOTAGES
        for where in ("agent", "stage", "program")
    ],
)
def test_27_a_candidate_that_turns_git_against_the_user_changes_nothing_of_his(
    tmp_path: Path, sabotage: str, where: str
) -> None:
    path = users(tmp_path)
    result = sabotaged(tmp_path, path, SABOTAGES[sabotage], where)
    words = {row["message"] for row in result.rows()}
    if where != "agent":
        assert (result.succeeded, words) == (3, {None})
    elif sabotage.startswith("nests"):
        assert "sub is a git repository of its own" in str(words)
    elif sabotage == "links itself":
        assert "put a link in its place" in str(words)
    else:
        assert (result.succeeded, words) == (3, {None})
    for row in result.rows():
        if row["status"] == "SUCCEEDED":
            names = git(path, "ls-tree", "-r", "--name-only", row["solution"]).split()
            assert set(names) <= {"program.py", "evaluate.py", ".gitattributes"}  # nothing of the user's


def test_27_the_documented_command_leaves_the_users_edit_alone(tmp_path: Path) -> None:
    path = users(tmp_path)
    before = bytes_of(path)
    words = ["--slots", "1", "--repo", ".", "--agent", f"sh -c '{EDIT.strip()}'", "--max-total", "2"]
    words += ["--evaluate", "sh -c 'rm -rf .git; echo 0.9'", "--evaluate", f"{sys.executable} evaluate.py"]
    done = tenuto(path, "evolve", *words, "--json")
    assert done.returncode == 0, done.stderr
    (summary,) = json.loads(done.stdout)
    assert (summary["scheduled"], summary["succeeded"]) == (2, 2)
    assert bytes_of(path) == before


def test_27_a_checkout_has_no_remote_and_its_git_finds_nothing_above(tmp_path: Path) -> None:
    path = users(tmp_path)
    look = "git remote -v; git branch -a | grep -v detached; git log -1 --format=%H; rm -rf .git; git status"
    (tmp_path / "look.sh").write_text(f"({look}) > {tmp_path}/seen 2>&1\n{SCORE}")
    evolution = programs(
        tmp_path,
        confine="none",
        path=path,
        workdir=path / "w",
        evaluate=["sh", str(tmp_path / "look.sh")],
        max_total_jobs=1,
    )
    assert evolution.run(slots=1).succeeded == 1
    head, *others = (tmp_path / "seen").read_text().splitlines()
    assert head == git(path, "rev-parse", "HEAD")
    assert "not a git repository" in others[0]


def test_27_variables_that_lead_git_elsewhere_are_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = users(tmp_path)
    git(tmp_path, "init", "-q", "other")
    for name, value in {
        "GIT_DIR": "other/.git",
        "GIT_INDEX_FILE": "other/index",
        "GIT_WORK_TREE": "other",
    }.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    try:
        result = programs(tmp_path, path=path, max_total_jobs=2, confine="none").run(slots=1)
    finally:
        monkeypatch.undo()
    assert result.succeeded == 2, result.rows()
    assert git(path, "rev-parse", "tenuto/stir/best")
    assert not (tmp_path / "other" / "index").exists()


def test_27_colours_that_the_user_asks_of_git_are_in_no_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = repository(tmp_path, program="# EVOLVE-BLOCK-START\nA = 1.0\n# EVOLVE-BLOCK-END\nB = 0.0\n")
    (tmp_path / ".gitconfig").write_text("[color]\n\tui = always\n\tgrep = always\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Git(path).marked_files("HEAD", "EVOLVE-BLOCK-START") == ["program.py"]


def test_27_submodules_and_tracked_files_that_are_ignored_stay_in_commits(tmp_path: Path) -> None:
    path = users(tmp_path)
    git(tmp_path, "init", "-q", "library")
    git(tmp_path / "library", "commit", "-q", "--allow-empty", "-m", "first")
    git(
        path,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        str(tmp_path / "library"),
        "lib",
    )
    (path / "kept.log").write_text("tracked\n")
    git(path, "add", "--force", "kept.log")
    (path / ".gitignore").write_text("*.log\n")
    git(path, "add", ".gitignore")
    git(path, "commit", "-qm", "with a submodule")
    agent = tmp_path / "agent.sh"
    agent.write_text(EDIT + "echo y > y.log\n")
    result = programs(tmp_path, path=path, command=["sh", str(agent)], max_total_jobs=2, confine="none").run(
        slots=1
    )
    first, second = (git(path, "ls-tree", "-r", row["solution"]).splitlines() for row in result.rows())
    assert [one for one in first if "program.py" not in one] == [
        one for one in second if "program.py" not in one
    ]
    change = ["sh", "-c", "echo x > lib/x"]
    result = programs(tmp_path, name="b", path=path, command=change, max_total_jobs=2, confine="none").run(
        slots=1
    )
    assert "lib is a submodule, whose files cannot be changed" in result.rows()[1]["message"]


def test_27_a_part_of_a_repository_is_refused_with_the_whole_named(tmp_path: Path) -> None:
    path = users(tmp_path)
    (path / "part").mkdir()
    with pytest.raises(SearchError, match=f"no git repository: give {path}, of which it is a part"):
        programs(tmp_path, path=path / "part").open()
    git(path, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    result = programs(tmp_path, path=tmp_path / "linked", max_total_jobs=2, confine="none").run(slots=1)
    assert result.succeeded == 2


@pytest.mark.parametrize("kind", ["sha256", "shallow", "bare"])
def test_27_repositories_of_every_kind_are_evolved(tmp_path: Path, kind: str) -> None:
    path = repository(tmp_path)
    git(path, "commit", "-qm", "second")
    other = tmp_path / "other"
    if kind == "sha256":
        git(tmp_path, "init", "-q", "--object-format=sha256", str(other))
        for name in ("program.py", "evaluate.py"):
            (other / name).write_bytes((path / name).read_bytes())
        git(other, "add", ".")
        git(other, "commit", "-qm", "root")
    else:
        options = {"shallow": ["--depth=1"], "bare": ["--bare"]}[kind]
        git(tmp_path, "clone", "-q", *options, f"file://{path}", str(other))
    result = programs(tmp_path, path=other, max_total_jobs=3).run(slots=1)
    assert result.succeeded == 3, result.rows()


EVALUATE = """
import json, sys
from pathlib import Path
from tenuto.search.commits import EvolveCommit, _Change
from tenuto.tasks.ports import current_job
current_job.set("a job")
made = _Change(EvolveCommit.C(**json.loads(sys.argv[1])), Path(sys.argv[2])).run()
sys.exit(getattr(made, "failure", None))
"""


def test_27_links_that_an_earlier_attempt_left_in_the_job_are_not_followed(tmp_path: Path) -> None:
    path = users(tmp_path)
    before = bytes_of(path)
    job = tmp_path / "job"
    job.mkdir()
    for name, target in {
        "prompt.md": "program.py",
        "report": "",
        "git": ".git",
        "checkout": "",
    }.items():
        (job / name).symlink_to(path / target)
    root = git(path, "rev-parse", "HEAD")
    task = {
        "parent": root,
        "inspirations": [],
        "agent": ["sh", "-c", EDIT],
        "evaluate": [["sh", "-c", SCORE]],
        "goal": "",
        "draw": 1,
        "evaluators": {},
        "protect": [],
        "thresholds": [],
        "is_smaller_better": False,
        "root": root,
        "repository": str(path),
        "search": "s",
    }
    # In a process of its own, as in a job: it ends all processes below it, and here these are the servers
    # that other tests have started.
    subprocess.run([sys.executable, "-c", EVALUATE, json.dumps(task), str(job)], check=True)
    assert bytes_of(path) == before
    assert sorted(os.listdir(job)) == ["prompt.md", "report"]
    assert not (job / "report").is_symlink()
