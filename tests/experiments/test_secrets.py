"""Owns the promise that Tenuto writes no secret down: thirty are planted, and every file is searched."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from .scripts import Place, run, tenuto

VARIABLES = """
    AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN GITHUB_TOKEN GITLAB_TOKEN HF_TOKEN HUGGING_FACE_HUB_TOKEN
    OPENAI_API_KEY ANTHROPIC_API_KEY WANDB_API_KEY COMET_API_KEY NEPTUNE_API_TOKEN MLFLOW_TRACKING_PASSWORD
    DATABASE_URL PGPASSWORD MYSQL_PWD REDIS_URL SLURM_JWT KAGGLE_KEY AZURE_CLIENT_SECRET NPM_TOKEN
    PIP_INDEX_URL SSH_PASSPHRASE GPG_PASSPHRASE MY_PRIVATE_THING LD_SECRET_PATH http_proxy
""".split()
BODY = """
with experiment(HERE / "ws", "secrets") as xp:
    After.C(before=Note.C(name="a").submit()).submit()
    Fail.C(name="b").submit()
    Note.C(name="c").submit(run_mode=RunMode.GENERATE_ONLY)
    xp.save(Note.C(name="d"))
"""


def planted(name: str) -> str:
    return f"canary-{name}-5f1c9d"


def test_no_file_that_tenuto_writes_holds_a_secret(place: Place, require: Callable[[str], None]) -> None:
    require("git")
    url, header = planted("git-url"), planted("git-header")
    for arguments in (
        ["init", "-q"],
        ["remote", "add", "origin", f"https://user:{url}@example.org/x.git?key={planted('git-query')}"],
        ["config", "http.extraHeader", f"Authorization: {header}"],
    ):
        subprocess.run(["git", *arguments], cwd=place.directory, check=True)
    script = place.script(BODY)
    argument = planted("argument")
    secrets = [*map(planted, VARIABLES), url, header, planted("git-query"), argument]
    assert len(secrets) == 30
    environment = {
        name: f"http://user:{planted(name)}@host" if name.endswith(("URL", "proxy")) else planted(name)
        for name in VARIABLES
    }
    for _ in range(2):
        result = run(tenuto("run", script, f"--token={argument}"), place.directory, **environment)
        assert result.returncode == 1, result.stderr
        assert "1 failed" in result.stderr
    written = [path for path in place.workspace.rglob("*") if path.is_file() and not path.is_symlink()]
    assert {path.name for path in written} >= {"environment.json", "launch.json", "params.json", "jobs.jsonl"}
    found = [(secret, path) for path in written for secret in secrets if secret in whole(path)]
    assert not found
    said = result.stdout + result.stderr.replace(f"--token={argument}", "")  # the command, to run it again
    assert not [secret for secret in secrets if secret in said]


def whole(path: Path) -> str:
    """A file's name and content."""
    return f"{path}\n{path.read_bytes().decode(errors='replace')}"
