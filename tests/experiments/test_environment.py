"""Owns what a run records of its surroundings: enough to repeat it, no secret, and no foreign code run."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenuto.errors import DirtyGitError
from tenuto.experiments import environment
from tenuto.experiments.environment import (
    DirtyGitAction,
    Environment,
    GitState,
    capture,
    check_dirty_git,
    dirty_paths,
    git_state,
    installed_packages,
    recorded_variables,
    without_credentials,
)
from tenuto.jobs.driver_command import imposed_command, running_command

PLAIN = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    environment.forget()
    yield
    environment.forget()


class Repository:
    """A repository with one commit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        self.file = path / "train.py"
        self.file.write_text("lr = 0.1\n")
        self.git("add", ".")
        self.git("commit", "-qm", "first")

    def git(self, *arguments: str) -> str:
        who = {
            f"GIT_{role}_{what}": "t@example.org"
            for role in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        command = ["git", "-C", str(self.path), *arguments]
        return subprocess.run(
            command, env=PLAIN | who, capture_output=True, text=True, check=True
        ).stdout.strip()

    def state(self) -> GitState:
        environment.forget()
        return git_state(self.path, PLAIN)


@pytest.fixture
def repository(tmp_path: Path, require: Callable[[str], None]) -> Repository:
    require("git")
    return Repository(tmp_path / "project")


# -- git ---------------------------------------------------------------------------------------------


def test_commit_branch_and_remote_are_recorded(repository: Repository) -> None:
    repository.git("remote", "add", "origin", "https://me:hunter2@example.org/lab/project.git")
    assert repository.state() == GitState(
        str(repository.path),
        commit=repository.git("rev-parse", "HEAD"),
        branch="main",
        dirty=False,
        remote="https://example.org/lab/project.git",
    )


def test_a_path_inside_the_repository_will_do(repository: Repository) -> None:
    inner = repository.path / "src"
    inner.mkdir()
    assert git_state(inner, PLAIN).branch == "main"
    assert git_state(inner, PLAIN).path == str(inner)


def test_changes_make_it_dirty_and_unknown_files_do_not(repository: Repository) -> None:
    (repository.path / "notes.txt").write_text("x")
    assert repository.state().dirty is False
    repository.file.write_text("lr = 0.2\n")
    assert repository.state().dirty is True
    repository.git("add", "train.py")
    assert repository.state().dirty is True


def test_odd_states_of_a_repository(repository: Repository, tmp_path: Path) -> None:
    repository.git("checkout", "-q", "--detach")
    assert (repository.state().branch, repository.state().problem) == (None, None)
    subprocess.run(["git", "init", "-q", "-b", "main", tmp_path / "empty"], check=True, env=PLAIN)
    assert git_state(tmp_path / "empty", PLAIN)[1:4] == (None, "main", False)
    broken = tmp_path / "broken"
    (broken / ".git").mkdir(parents=True)
    assert git_state(broken, PLAIN).dirty is None
    assert git_state(tmp_path / "nowhere", PLAIN).problem == "not a git repository"


def test_without_git_the_run_goes_on(repository: Repository, tmp_path: Path) -> None:
    state = git_state(repository.path, {"PATH": f"{tmp_path}:.", "HOME": "/nonexistent"})
    assert state.problem == "git is not installed"


def test_a_repository_is_looked_at_once(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    first = git_state(repository.path, PLAIN)
    monkeypatch.setattr(subprocess, "Popen", None)
    assert git_state(repository.path, PLAIN) == first


@pytest.mark.watchdog(30)
def test_a_git_that_hangs_is_ended(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\n/bin/sleep 1000 & wait\n")
    fake.chmod(0o755)
    monkeypatch.setattr("tenuto.experiments.environment.TIMEOUT_S", 0.2)
    state = git_state(repository.path, {"PATH": str(fake.parent)})
    assert state.problem == "git took longer than 0.2 s"


def hostile(repository: Repository, traces: Path) -> None:
    """Plants a program in every place from which git may run one; each leaves a file when it runs."""
    traces.mkdir()

    def program(name: str) -> str:
        path = traces.parent / f"run-{name}"
        path.write_text(f"#!/bin/sh\n: > {traces}/{name}\ncat 2>/dev/null\n")
        path.chmod(0o755)
        return str(path)

    for hook in (
        "post-index-change",
        "pre-commit",
        "post-checkout",
        "reference-transaction",
        "fsmonitor-watchman",
    ):
        own = repository.path / ".git" / "hooks" / hook
        own.write_text(Path(program(f"hook-{hook}")).read_text())
        own.chmod(0o755)
    settings = {
        "core.fsmonitor": program("fsmonitor"),
        "core.pager": program("pager"),
        "core.sshCommand": program("ssh"),
        "core.editor": program("editor"),
        "core.askPass": program("askpass"),
        "pager.status": program("pager-status"),
        "diff.external": program("external-diff"),
        "diff.evil.textconv": program("textconv"),
        "diff.evil.command": program("diff-command"),
        "filter.evil.clean": program("clean"),
        "filter.evil.smudge": program("smudge"),
        "filter.evil.required": "true",
        "filter.worse.process": program("process"),
        "filter.two.words.clean": program("clean-dotted"),
        "credential.helper": program("credential"),
        "alias.status": f"!{program('alias')}",
        "gpg.program": program("gpg"),
        "remote.origin.url": f"ext::{program('transport')}",
        "remote.origin.promisor": "true",
        "remote.origin.partialclonefilter": "blob:none",
        "extensions.partialClone": "origin",
        "uploadpack.packObjectsHook": program("pack-hook"),
        "status.submoduleSummary": "true",
    }
    for name, filter_name in (("a.dat", "evil"), ("b.dat", "worse"), ("c.dat", "two.words")):
        (repository.path / name).write_text("1\n")
        with (repository.path / ".gitattributes").open("a") as attributes:
            attributes.write(f"{name} filter={filter_name} diff=evil\n")
    repository.git("add", ".")
    repository.git("commit", "-qm", "attributes")
    for key, value in settings.items():
        repository.git("config", key, value)
    for name in ("a.dat", "b.dat", "c.dat"):
        (repository.path / name).write_text("2\n")  # the same size: only the content can tell
    for trace in traces.iterdir():  # of the planting itself
        trace.unlink()


def test_no_program_of_the_repository_runs(repository: Repository, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    hostile(repository, traces)
    index = (repository.path / ".git" / "index").stat().st_mtime_ns
    state = repository.state()
    assert [trace.name for trace in traces.iterdir()] == []
    assert (state.branch, state.dirty, state.problem) == ("main", True, None)
    assert (repository.path / ".git" / "index").stat().st_mtime_ns == index


def test_the_planted_programs_would_run(repository: Repository, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    hostile(repository, traces)
    subprocess.run(
        ["git", "-C", repository.path, "status"], env=PLAIN, capture_output=True, check=False, timeout=60
    )
    assert {"fsmonitor", "clean"} <= {trace.name for trace in traces.iterdir()}


def test_a_filter_that_cannot_be_switched_off_is_not_risked(repository: Repository) -> None:
    with (repository.path / ".git" / "config").open("a") as config:
        config.write('[filter "a=b"]\n\tclean = touch /tmp/x\n')
    assert repository.state().problem == "the repository names a filter that cannot be switched off"


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://example.org/lab/x.git", "https://example.org/lab/x.git"),
        ("https://SECRET@example.org:8443/x", "https://example.org:8443/x"),
        ("https://me:SECRET@example.org/x?token=SECRET#SECRET", "https://example.org/x"),
        ("https://me:SE@CRET@example.org/x", "https://example.org/x"),
        ("https://me:SEC/RET@example.org/x", "https://***"),
        ("https://me:SEC%40RET@[::1]:80/x", "https://[::1]:80/x"),
        ("https://example.org/SECRET@x", "https://***"),
        ("https://SECRET", "https://SECRET"),
        ("git@example.org:lab/x.git", "example.org:lab/x.git"),
        ("me:SECRET@example.org:x", "example.org:x"),
        ("SEC@RET@example.org:x", "***"),
        ("ssh://git@example.org/x", "ssh://example.org/x"),
        ("ext::sh -c SECRET", "***"),
        ("codecommit::https://SECRET@x", "***"),
        ("https://example.org/\nSECRET", "***"),
        ("/srv/git/x.git", "/srv/git/x.git"),
        ("../x.git", "../x.git"),
        ("file:///srv/x.git", "file:///srv/x.git"),
    ],
)
def test_credentials_are_taken_off_an_address(url: str, kept: str) -> None:
    assert without_credentials(url) == kept


# -- uncommitted changes -----------------------------------------------------------------------------


def surroundings(*states: GitState) -> Environment:
    return Environment({}, {}, "host", {}, states, {})


def test_the_dirty_git_check_ignores_warns_or_raises() -> None:
    state = surroundings(GitState("/a", dirty=True), GitState("/b", dirty=False), GitState("/c"))
    assert dirty_paths(state) == ["/a"]
    assert check_dirty_git(state, DirtyGitAction.IGNORE) is None
    assert "/a" in (check_dirty_git(state, DirtyGitAction.WARN) or "")
    with pytest.raises(DirtyGitError, match=r"/a: .* dirty_git"):
        check_dirty_git(state, DirtyGitAction.ERROR)
    assert check_dirty_git(surroundings(GitState("/b", dirty=False)), DirtyGitAction.ERROR) is None


# -- packages and variables --------------------------------------------------------------------------


def test_packages_are_those_that_importlib_metadata_sees() -> None:
    seen: dict[str, str] = {}
    for found in importlib.metadata.distributions():
        seen.setdefault(re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower(), found.version)
    assert installed_packages() == seen


def test_packages_of_every_form_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Some_Thing-1.2.post1.dist-info").mkdir()
    (tmp_path / "old-0.1-py3.11.egg-info").touch()
    (tmp_path / "mine.egg-info").mkdir()
    (tmp_path / "mine.egg-info" / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 3\n")
    (tmp_path / "half.egg-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "gone"), __file__])
    assert installed_packages() == {"mine": "3", "old": "0.1", "some-thing": "1.2.post1"}


def test_variables_are_recorded_by_name() -> None:
    environ = {
        "LANG": "C",
        "SLURM_JOB_ID": "7",
        "SLURM_JWT": "x",
        "LAB_SITE": "a",
        "LAB_API_KEY": "x",
        "ONE": "1",
    }
    assert recorded_variables(environ) == {"LANG": "C", "SLURM_JOB_ID": "7"}
    assert recorded_variables(environ, ["LAB_*", "*"]) == {"LAB_SITE": "a", "LANG": "C", "SLURM_JOB_ID": "7"}
    assert recorded_variables(environ, ["ONE", "SLURM_JWT"])["SLURM_JWT"] == "x"


def test_a_value_that_is_no_text_or_long_does_not_break_the_file() -> None:
    kept = recorded_variables({"LANG": "\udcff" + "x" * 5000})["LANG"]
    assert len(kept) == 1000
    json.dumps(kept).encode()


# -- secrets -----------------------------------------------------------------------------------------

SECRET_VARIABLES = """
    AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN GITHUB_TOKEN GITLAB_TOKEN HF_TOKEN WANDB_API_KEY OPENAI_API_KEY
    DATABASE_URL PGPASSWORD SSH_AUTH_SOCK SLURM_JWT NPM_TOKEN HTTP_PROXY LD_PRELOAD KRB5CCNAME LAB_PASSWORD
    PIP_INDEX_URL LAB_DSN
""".split()


def test_thirty_planted_secrets_are_not_found(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted: list[str] = []

    def secret() -> str:
        planted.append(f"CANARY{len(planted):02d}x7f3a")
        return planted[-1]

    home = tmp_path / "home"
    home.mkdir()
    environ = {**PLAIN, "HOME": str(home), "LANG": "C", "LAB_SITE": "north"}
    environ |= {name: secret() for name in SECRET_VARIABLES}
    repository.git(
        "remote", "add", "origin", f"https://{secret()}:{secret()}@example.org/x.git?private_token={secret()}"
    )
    repository.git("remote", "add", "backup", f"https://oauth2:{secret()}@example.org/x.git")
    repository.git("config", "http.extraHeader", f"Authorization: Bearer {secret()}")
    repository.git("config", "user.signingkey", secret())
    repository.git("config", f"url.https://{secret()}@example.org/.insteadOf", "https://example.org/")
    (home / ".gitconfig").write_text(f"[credential]\n\thelper = store --file {secret()}\n")
    (home / ".git-credentials").write_text(f"https://x:{secret()}@example.org\n")
    (repository.path / f"untracked-{secret()}.txt").write_text(secret())
    (repository.path / ".env").write_text(f"KEY={secret()}\n")
    repository.file.write_text(f"password = '{secret()}'\n")
    repository.git("stash", "push", "-m", secret())
    repository.file.write_text("changed\n")
    monkeypatch.setattr(sys, "argv", ["train.py", "--api-key", secret()])
    monkeypatch.setattr(sys, "executable", f"/home/{secret()}/bin/python3")
    monkeypatch.setenv("ANOTHER_TOKEN", secret())

    state = capture([repository.path], environ, allow=["LAB_*"])
    written = json.dumps(state.as_json(), indent=1)
    assert len(planted) >= 30
    assert [found for found in planted if found in written] == []
    assert dirty_paths(state) == [str(repository.path)]
    assert state.variables == {"LANG": "C", "LAB_SITE": "north"}
    assert state.as_json()["git"][0]["remote"] == "https://example.org/x.git"
    assert state.as_json()["python"]["executable"] == "python3"


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("tenuto run x.py --token=abc", "tenuto run x.py --token=***"),
        ("tenuto run x.py --api-key abc --lr 0.1", "tenuto run x.py --api-key *** --lr 0.1"),
        ("tenuto run -c auth.password=abc x.py", "tenuto run -c auth.password=*** x.py"),
        ("tenuto run x.py http://ada:abc@host/", "tenuto run x.py http://***@host/"),
        ("tenuto run x.py --max-tokens 5 --tokenizer b", "tenuto run x.py --max-tokens 5 --tokenizer b"),
    ],
)
def test_a_command_is_kept_without_its_secrets(typed: str, kept: str) -> None:
    token = imposed_command.set(tuple(typed.split()))
    try:
        assert " ".join(running_command()) == kept
    finally:
        imposed_command.reset(token)
