"""Owns jobs that are tried again behind the back of their run: every view shows what became of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.experiments import source
from tenuto.experiments.source import open_source
from tenuto.monitor.provider import LocalProvider
from tenuto.settings import Settings

WAIT_S = 60.0
SCRIPT = """
import sys, time
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent

class Flaky(Task):
    name: Param[str]
    def execute(self):
        if not (HERE / "flag").exists():
            raise RuntimeError("no flag")
        return 1

class Hold(Task):
    def execute(self):
        while not (HERE / "release").exists():
            time.sleep(0.05)

if __name__ == "__main__":
    with experiment(HERE / "ws", sys.argv[1], raise_on_failure=False):
        Flaky.C(name="a").submit()
        Flaky.C(name="b").submit()
        if "live" in sys.argv:
            Hold.C().submit()
"""
Until = Callable[[Callable[[], Any], str], Any]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "script.py").write_text(SCRIPT)
    yield tmp_path
    (tmp_path / "release").touch()


def begin(here: Path, *words: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "TENUTO_DIRTY_GIT": "ignore", "XDG_CONFIG_HOME": str(here / "config")}
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=here,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def run(here: Path, *words: str) -> int:
    return begin(here, *words).wait(WAIT_S)


def eventually(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)
    return found


@pytest.fixture
def provider(
    here: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LocalProvider]:
    """A monitor of a run with two failed jobs: that has ended, that lives, or that lies on a network disk."""
    is_live = getattr(request, "param", "ended") == "live"
    if getattr(request, "param", "ended") == "far":
        monkeypatch.setattr(source, "remote_kind", lambda path: "nfs")
    process = begin(here, "script.py", "x", *(["live"] if is_live else []))
    if not is_live:
        process.wait(WAIT_S)
    eventually(lambda: len(list(here.glob("ws/jobs/*Flaky/*/*.failed"))) == 2, "two failures")
    made = LocalProvider([open_source(str(here / "ws"), Settings())], workspace=str(here / "ws"))
    assert made.wait_until_loaded(WAIT_S)
    eventually(lambda: [job["state"] for job in flaky(made)] == ["error"] * 2, "what is shown first")
    yield made
    made.close()
    (here / "release").touch()
    process.wait(WAIT_S)


def flaky(provider: LocalProvider, group: str = "experiments:x") -> list[Any]:
    return [
        job
        for one in provider.groups()["groups"]
        if one["group"].startswith(group)
        for job in provider.jobs(one["group"])["jobs"]
        if job["task"].endswith("Flaky")
    ]


def shown(provider: LocalProvider, key: str, attempt: int, state: str = "done") -> bool:
    return any((job["key"], job["attempt"], job["state"]) == (key, attempt, state) for job in flaky(provider))


def retry_by_page(provider: LocalProvider, here: Path, job: Any) -> None:
    (outcome,) = provider.act("retry", [(job["key"], job["attempt"])], by="a test")["outcomes"]
    assert outcome["outcome"] == "retried", outcome


def retry_by_command(provider: LocalProvider, here: Path, job: Any) -> None:
    run(here, "-m", "tenuto", "retry", job["id"], "-w", "ws")


@pytest.mark.parametrize("provider", ["ended", "live", "far"], indirect=True)
@pytest.mark.parametrize("retry", [retry_by_page, retry_by_command])
def test_a_retried_job_that_ends_at_once_is_shown_as_it_is(
    provider: LocalProvider, here: Path, retry: Callable[[LocalProvider, Path, Any], None]
) -> None:
    job, other = flaky(provider)
    group = job["group"]
    retry(provider, here, job)  # it fails again
    eventually(lambda: shown(provider, job["key"], 2, "error"), "the second failure")
    since = provider.changes(None, 0)
    (here / "flag").touch()
    retry(provider, here, {**job, "attempt": 2})  # a second retry means the attempt that is shown
    eventually(lambda: shown(provider, job["key"], 3), "the success")
    delta: Any = provider.changes(f"{since['epoch']}-{since['seq']}", 5.0)
    assert [(one["state"], one["attempt"]) for one in delta["jobs"] if one["key"] == job["key"]] == [
        ("done", 3)
    ]
    (shown_group,) = [one for one in provider.overview()["groups"] if one["group"] == group]
    assert (shown_group["counts"]["done"], shown_group["counts"]["error"]) == (1, 1)
    failures = [one for failure in provider.overview()["failures"] for one in failure["jobs"]]
    assert [one["key"] if isinstance(one, dict) else one for one in failures] == [other["key"]]
    assert provider.jobs(group, filter="state=done")["matched"] == 1
    (lane,) = provider.timeline([group])["lanes"]
    bars = sorted((bar[5], bar[3]) for bar in lane["bars"] if bar[4] == job["key"])
    assert bars == [(1, "error"), (2, "error"), (3, "done")]
    assert provider.history(group)["counts"]["done"][-1] == 1
    assert [one["attempt"] for one in provider.job(job["key"])["attempts"]] == [1, 2, 3]


def test_a_job_that_another_experiment_runs_again_is_shown_in_both(
    provider: LocalProvider, here: Path
) -> None:
    job, _ = flaky(provider)
    (here / "flag").touch()
    assert run(here, "script.py", "other") == 0
    eventually(lambda: [one["state"] for one in flaky(provider)] == ["done"] * 2, "the first experiment")
    eventually(lambda: len(flaky(provider, "experiments:other")) == 2, "the other experiment")
    assert shown(provider, job["key"], 2)


def test_a_job_whose_retry_left_no_word_is_shown(provider: LocalProvider, here: Path) -> None:
    job, _ = flaky(provider)
    (here / "flag").touch()
    (here / "ws" / ".events" / "retries").write_text("no journal can be written here")
    process = begin(here, "-m", "tenuto", "retry", job["id"], "-w", "ws")
    eventually(lambda: list(here.glob(f"ws/jobs/*/{job['id']}/*.done")), "the marker")
    process.send_signal(signal.SIGKILL)
    process.wait(WAIT_S)
    assert eventually(lambda: shown(provider, job["key"], 2), "the success")


def test_a_job_that_is_cleaned_by_a_command_is_shown(provider: LocalProvider, here: Path) -> None:
    job, _ = flaky(provider)
    assert run(here, "-m", "tenuto", "clean", f"id={job['id']}", "--yes", "-w", "ws") == 0
    eventually(lambda: "was removed" in str(job_of(provider, job["key"])["message"]), "the removal")


def job_of(provider: LocalProvider, key: str) -> Any:
    return next(job for job in flaky(provider) if job["key"] == key)
