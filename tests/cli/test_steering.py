"""Owns what the commands that change something do: kill, retry, clean, runs prune."""

from __future__ import annotations

import signal

import pytest

from .conftest import TENUTO, Shell

pytestmark = pytest.mark.slow  # each test runs experiments, and several commands on them


def states(shell: Shell) -> dict[str, str]:
    return {job["task"].removeprefix("script."): job["state"] for job in shell.json("jobs", "--all")}


def test_a_killed_job_is_cancelled_and_its_run_goes_on_to_its_end(shell: Shell) -> None:
    process = shell.hold()
    (killed,) = shell.json("kill", "Hold")
    assert killed["outcome"] == "asked"
    assert killed["ended"] is True
    assert process.wait(30) == 1
    (job,) = shell.json("jobs", "task~hold")
    assert (job["state"], job["reason"]) == ("error", "cancelled")
    assert "tenuto kill" in job["message"]
    assert states(shell) == {"Hold": "error", "After": "error"}


def test_a_stale_kill_leaves_a_later_attempt_alone(shell: Shell) -> None:
    shell.hold()
    (refused,) = shell.json("kill", "Hold", "--attempt", "7", check=1)
    assert refused["outcome"] == "stale"
    assert states(shell)["Hold"] == "running"


def test_killing_what_does_not_run_says_so(ended: Shell) -> None:
    (refused,) = ended.json("kill", "Data", check=1)
    assert (refused["outcome"], refused["detail"]) == ("not_running", "it is done")


def test_strays_are_killed_only_when_that_is_confirmed(shell: Shell) -> None:
    process = shell.hold()
    assert shell.json("kill", "--unowned") == []  # its run is alive
    process.kill()
    process.wait()
    (listed,) = shell.json("kill", "--unowned")
    assert listed["outcome"] == "would_kill"
    assert states(shell)["Hold"] == "running"
    (killed,) = shell.json("kill", "--unowned", "--yes")
    assert killed["ended"] is True
    assert states(shell)["Hold"] == "error"


def test_running_jobs_are_killed_by_a_filter(shell: Shell) -> None:
    shell.hold()
    assert shell.json("kill", "--where", "task~nothing", "--yes") == []
    (killed,) = shell.json("kill", "--where", "task~hold", "--yes")
    assert killed["ended"] is True


def test_a_failed_job_is_run_again_from_its_directory(shell: Shell) -> None:
    shell.experiment("sweep", 1, 0.9)
    job = shell.id("task~train")
    (again,) = shell.json("retry", job, check=1)
    assert (again["state"], again["attempt"]) == ("error", 2)
    (shell.here / "fix").touch()
    shell.script.rename(shell.here / "elsewhere.py")
    (shell.here / "elsewhere.py").rename(shell.script)  # the experiment itself is not run
    found = shell.run("retry", job)
    assert found.stdout.splitlines()[-1].startswith(f"done script.Train {job[:8]}")
    assert states(shell)["Train"] == "done"
    assert shell.json("why", job)["attempt"] == 3
    assert shell.json("why", job)["earlier_logs"] == 2


def test_a_job_that_never_started_needs_its_experiment(shell: Shell) -> None:
    shell.experiment("sweep", 1, 0.9)
    (shell.here / "fix").touch()
    found = {one["task"]: one for one in shell.json("retry", "--failed", check=1)}
    assert found["script.Train"]["state"] == "done"
    assert found["script.Evaluate"]["state"] == "refused"
    assert "run the experiment again" in found["script.Evaluate"]["message"]
    assert shell.experiment("sweep", 1, 0.9) == 0
    assert states(shell) == {"Data": "done", "Train": "done", "Evaluate": "done"}


def test_a_job_that_is_done_or_runs_is_not_run_again(shell: Shell, ended: Shell) -> None:
    (refused,) = ended.json("retry", "Data", check=1)
    assert refused["message"] == "it is done"
    shell.hold()
    (refused,) = shell.json("retry", "Hold", check=1)
    assert refused["message"] == "it is running already"


def test_an_interrupted_retry_leaves_the_job_running(shell: Shell) -> None:
    process = shell.hold()
    shell.run("kill", "Hold")
    process.wait(30)
    retry = shell.start(*TENUTO, "retry", "Hold", "-w", str(shell.workspace))
    shell.until(lambda: states(shell)["Hold"] == "running")
    assert retry.stdout is not None
    assert retry.stdout.readline().startswith(b"running")
    retry.send_signal(signal.SIGINT)
    assert retry.wait(30) == 5
    assert states(shell)["Hold"] == "running"
    shell.release()
    shell.until(lambda: states(shell)["Hold"] == "done")


def test_cleaning_shows_sizes_first_and_deletes_on_confirmation(shell: Shell) -> None:
    shell.experiment("sweep", 1, 0.1, 0.9)
    (planned,) = shell.json("clean", "state=error and task~train")
    assert planned["outcome"] == "would_delete"
    assert planned["bytes"] > 0
    assert states(shell)["Train"] in ("done", "error")
    assert "would be deleted" in shell.run("clean", "state=error").stdout
    (deleted,) = shell.json("clean", "state=error and task~train", "--yes")
    assert deleted["outcome"] == "deleted"
    assert shell.json("jobs", "--all", "state=error and task~train") == []
    assert not list((shell.workspace / ".trash").glob("[!.]*"))
    assert shell.experiment("sweep", 1, 0.1, 0.9) == 1  # it is simply run again


def test_a_running_job_is_never_deleted(shell: Shell) -> None:
    process = shell.hold()
    (spared,) = shell.json("clean", "task~hold", "--yes", check=1)
    assert (spared["outcome"], spared["detail"]) == ("in_use", "a live run asked for it")
    process.kill()
    process.wait()
    (spared,) = shell.json("clean", "task~hold", "--yes", check=1)
    assert (spared["outcome"], spared["detail"]) == ("in_use", "it is locked: it runs, or is about to")
    assert states(shell)["Hold"] == "running"


def test_runs_are_pruned_and_their_jobs_become_orphans(shell: Shell) -> None:
    shell.experiment("sweep", 1, 0.1)
    shell.experiment("sweep", 2, 0.1)
    assert shell.json("clean", "--orphans") == []
    (planned,) = shell.json("runs", "prune", "sweep", "--keep-done", "1")
    assert planned["outcome"] == "would_prune"
    assert len(shell.json("runs")) == 2
    (pruned,) = shell.json("runs", "prune", "--keep-done", "1", "--yes")
    assert pruned == {"run": planned["run"], "outcome": "pruned", "bytes": planned["bytes"]}
    assert planned["bytes"] > 0
    assert len(shell.json("runs")) == 1
    assert len(shell.json("clean", "--orphans")) == 3
    assert {one["outcome"] for one in shell.json("clean", "--orphans", "--yes")} == {"deleted"}
    assert len(shell.json("jobs", "--all")) == 3


def test_a_running_experiment_is_not_pruned(shell: Shell) -> None:
    shell.hold()
    found = shell.run("runs", "prune", "hold", "--keep-failed", "0", "--yes", check=4)
    assert "already running" in found.stderr
    assert len(shell.json("runs")) == 1


def test_a_tagged_run_is_found_by_its_tag_and_never_pruned(shell: Shell) -> None:
    for number in (1, 2, 3):
        shell.experiment("sweep", number, 0.1)
    oldest = shell.json("runs")[-1]
    name = f"{oldest['experiment']}/{oldest['run']}"
    assert "is tagged" in shell.run("runs", "tag", name, "paper", "a/b").stderr
    (found,) = shell.json("runs", "list", "--tag", "paper")
    assert (found["run"], found["tags"]) == (oldest["run"], ["a/b", "paper"])
    assert "paper" in shell.run("runs").stdout
    assert "tagged a/b, paper" in shell.run("runs", "show", name).stdout
    pruned = shell.json("runs", "prune", "--keep-done", "1", "--yes")
    assert len(pruned) == 1
    assert [run["tags"] for run in shell.json("runs")] == [[], ["a/b", "paper"]], "and it does not count"
    assert shell.json("clean", "--orphans", "--yes") != []
    shell.experiment("sweep", 1, 0.1)
    shell.run("runs", "untag", name, "paper")
    found = shell.run("runs", "untag", name, "paper", "a/b", check=1)
    assert "was not tagged paper" in found.stderr
    assert shell.json("runs", "list", "--tag", "paper") == []


def test_a_script_can_tag_its_run(shell: Shell) -> None:
    script = shell.script.read_text().replace("as xp:", "as xp:\n        xp.tag('mine')")
    shell.script.write_text(script)
    shell.experiment("sweep", 1, 0.1)
    assert [run["tags"] for run in shell.json("runs")] == [["mine"]]


def test_strays_are_stopped_and_deleted_only_when_that_is_confirmed(shell: Shell) -> None:
    process = shell.hold()
    assert shell.json("clean", "--unowned") == [], "a live run waits for it"
    process.kill()
    process.wait()
    (planned,) = shell.json("clean", "--unowned")
    assert (planned["outcome"], planned["detail"]) == ("would_delete", "it would be stopped first")
    assert planned["bytes"] > 0
    assert states(shell)["Hold"] == "running"
    (deleted,) = shell.json("clean", "--unowned", "--yes")
    assert deleted["outcome"] == "deleted"
    assert not list(shell.workspace.glob("jobs/script.Hold/*"))
    assert shell.run("clean", "--unowned", "--orphans", check=2).returncode == 2


def test_what_a_running_job_depends_on_is_spared(shell: Shell) -> None:
    shell.script.write_text(
        shell.script.read_text()
        .replace("class Hold(Task):", "class Hold(Task):\n    data: Param[Data]")
        .replace('Hold.C(name="held"', 'Hold.C(data=Data.C(n=1).submit(), name="held"')
    )
    process = shell.hold()
    process.kill()
    process.wait()
    (spared,) = shell.json("clean", "task~data", "--yes", check=1)
    assert spared["outcome"] == "in_use"
    assert "runs, and depends on it" in spared["detail"]
