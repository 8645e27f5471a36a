"""Owns what the commands that only look show: status, jobs, logs, why, runs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence

import pytest

from tenuto.jobs.text import width

from .calls import call_at_terminal
from .conftest import ESCAPES, TENUTO, Shell

JOB_KEYS = (
    "id name kind key group task state status reason message experiment run attempt tags depends_on "
    "transient owner where submitted started ended duration_s progress progress_desc eta_s energy_kwh alarm "
    "result"
).split()
RUN_KEYS = "experiment run state live started ended host pid jobs reused failed message carbon tags".split()
WHY_KEYS = [
    *JOB_KEYS,
    *"directory parameters upstream dependencies dependents runs attempts most_attempts".split(),
    *"earlier_logs provenance carbon commands lineage because reuse nearest code next".split(),
]
HARMFUL = ("\x1b", "\x9b", "\x07", "\r", "\u202e")


def on_terminal(shell: Shell, columns: int, *arguments: str) -> str:
    """What a command writes to a terminal of that width."""
    environment = {**shell.environment, "TERM": "xterm-256color", "NO_COLOR": "1"}
    given = [*arguments, "-w", str(shell.workspace)]
    code, written = call_at_terminal(given, shell.here, environment, columns)
    assert code == 0, written
    return written


# -- what they show ----------------------------------------------------------------------------------


def test_status_counts_the_jobs_of_the_last_run(ended: Shell) -> None:
    status = ended.json("status")
    (run,) = status["groups"]
    assert run["experiment"] == "sweep"
    assert run["state"] == "failed"
    assert {state: number for state, number in run["counts"].items() if number} == {"done": 5, "error": 2}
    assert status["running"] == []


def test_jobs_are_listed_with_why_they_failed(ended: Shell) -> None:
    jobs = {(job["task"], job["tags"].get("lr")): job for job in ended.json("jobs")}
    assert len(jobs) == 7
    assert jobs["script.Train", 0.9]["reason"] == "failed"
    assert "diverged" in jobs["script.Train", 0.9]["message"]
    assert jobs["script.Evaluate", 0.9]["reason"] == "dependency"
    assert "script.Train" in jobs["script.Evaluate", 0.9]["message"]
    assert jobs["script.Train", 0.1]["state"] == "done"


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["state=error"], 2),
        (["lr<0.5", "and", "task~train"], 2),
        (["n=1"], 1),
        (["data~Data", "and", "state=done"], 2),
        (["--limit", "3"], 3),
        (["--run", "sweep"], 7),
        (["--all", "task=script.Data"], 1),
        (["state=running"], 0),
    ],
)
def test_jobs_are_chosen_by_fields_tags_and_parameters(
    ended: Shell, arguments: list[str], count: int
) -> None:
    assert len(ended.json("jobs", *arguments)) == count


def test_an_earlier_run_keeps_its_own_list(ended: Shell) -> None:
    runs = ended.json("runs")
    assert [run["state"] for run in runs] == ["failed", "done"]
    older = runs[1]["run"]
    assert len(ended.json("jobs", "--run", older)) == 3
    shown = ended.json("runs", "show", f"sweep/{older}")
    assert len(shown["job_list"]) == 3


@pytest.mark.parametrize(("by", "expected"), [("lr", [0.1, 0.2, 0.9]), ("-lr", [0.9, 0.2, 0.1])])
def test_jobs_are_sorted_by_a_tag(ended: Shell, by: str, expected: list[float]) -> None:
    found = ended.json("jobs", "task~train", f"--sort={by}")
    assert [job["tags"]["lr"] for job in found] == expected


def test_why_names_the_parameter_that_differs_from_the_nearest_job(ended: Shell) -> None:
    why = ended.json("why", ended.id("task~train and lr=0.2"))
    assert why["nearest"]["id"] == ended.id("task~train and lr=0.1")
    assert why["nearest"]["changed"] == [{"parameter": "lr", "here": 0.2, "there": 0.1}]


def test_why_of_a_stranded_job_leads_to_the_cause(ended: Shell) -> None:
    cause = ended.id("task~train and lr=0.9")
    why = ended.json("why", ended.id("task~evaluate and lr=0.9"))
    assert [one["id"] for one in why["dependencies"]] == [cause]
    assert why["next"] == [f"tenuto why {cause[:8]}"]


@pytest.mark.slow
def test_why_says_that_the_code_changed(shell: Shell) -> None:
    shell.experiment("sweep", 1, 0.1)
    job = shell.id("task~train")
    assert shell.json("why", job)["code"] == []
    shell.script.write_text(shell.script.read_text() + "\n# another version\n")
    (sentence,) = shell.json("why", job)["code"]
    assert "has changed since it ran" in sentence


@pytest.mark.slow
def test_why_says_that_a_job_was_not_forked(shell: Shell) -> None:
    shell.script.write_text(f"import random\nrandom.seed(3)\n{shell.script.read_text()}")
    shell.experiment("sweep", 1, 0.1)
    because = " ".join(shell.json("why", shell.id("task~train"))["because"])
    assert "fresh interpreter, since its module seeds `random`" in because
    assert "make generators in execute()" in because
    (marker,) = shell.workspace.glob("jobs/script.Train/*/*.done")
    marker.write_text(marker.read_text().replace('"fresh":', '"spare":"ready","fresh":'))
    because = " ".join(shell.json("why", shell.id("task~train"))["because"])
    assert "it started from a spare, since its module seeds `random`" in because


def test_logs_show_the_tail_of_either_stream(ended: Shell) -> None:
    job = ended.id("task~train and lr=0.9")
    shown = ended.run("logs", job, "-n", "40")
    assert "trained" in shown.stdout
    assert "ValueError: diverged" in shown.stdout, "a failed job also shows why it failed"
    assert "it failed; this is its standard error:" in shown.stderr
    assert ended.run("logs", ended.id("task~train and lr=0.1"), "-n", "1").stdout == "trained\n"
    assert "ValueError: diverged" in ended.run("logs", job, "--err").stdout
    log = ended.json("logs", job)
    assert log["text"].endswith("trained\n")
    assert log["whole"] is True


@pytest.mark.slow
def test_logs_are_followed_until_the_job_ends(shell: Shell) -> None:
    shell.hold()
    following = shell.start(*TENUTO, "logs", "-f", "Hold", "-w", str(shell.workspace))
    assert following.stdout is not None
    assert following.stdout.readline() == b"began\n"
    shell.release()
    assert following.stdout.readline() == b"released\n"
    assert following.wait(30) == 0


@pytest.mark.slow
def test_a_live_run_shows_what_runs_and_what_waits(shell: Shell) -> None:
    shell.hold()
    status = shell.json("status")
    assert status["groups"][0]["live"] is True
    assert status["groups"][0]["counts"]["waiting"] == 1
    (running,) = status["running"]
    assert running["progress"] == 0.25
    assert running["eta_s"] is not None
    (line,) = [line for line in shell.run("status").stdout.splitlines() if "25%" in line]
    assert re.search(r"25% +\d[\d.]*m?s +\d[\d.]*m?s ", line), line
    (waiting,) = shell.json("jobs", "task~after")
    assert waiting["state"] == "waiting"
    assert "script.Hold" in waiting["message"]


@pytest.mark.slow
def test_a_run_whose_process_was_killed_counts_as_interrupted(shell: Shell) -> None:
    process = shell.hold()
    process.kill()
    process.wait()
    (run,) = shell.json("status")["groups"]
    assert run["state"] == "interrupted"
    assert run["live"] is False
    assert "no run waits for 1 of them" in shell.run("status").stdout


# -- for programs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (["jobs"], JOB_KEYS),
        (["runs"], RUN_KEYS),
        (["runs", "list", "sweep"], RUN_KEYS),
        (["runs", "show", "sweep"], [*RUN_KEYS, "git", "job_list"]),
        (["status"], ["workspace", "groups", "running"]),
        (["why", "Data"], WHY_KEYS),
        (["logs", "Data"], ["id", "name", "task", "path", "text", "whole"]),
    ],
)
def test_the_keys_for_programs_are_frozen(ended: Shell, arguments: list[str], keys: Sequence[str]) -> None:
    found = ended.json(*arguments)
    for one in found if isinstance(found, list) else [found]:
        assert list(one) == list(keys)


# -- what must not get through -----------------------------------------------------------------------

EVERY_LOOK = [
    ["status"],
    ["jobs"],
    ["jobs", "--all"],
    ["why", "JOB"],
    ["logs", "JOB"],
    ["logs", "JOB", "--err"],
    ["runs"],
    ["runs", "show", "sweep"],
    ["clean", "state=error"],
]


@pytest.mark.parametrize("arguments", EVERY_LOOK)
def test_outside_strings_do_not_reach_the_terminal(ended: Shell, arguments: list[str]) -> None:
    job = ended.id("task~train and lr=0.9")
    arguments = [job if word == "JOB" else word for word in arguments]
    shown = on_terminal(ended, 500, *arguments)
    plain = ended.run(*arguments)
    programs = ended.run(*arguments, "--json").stdout
    assert not [sign for sign in HARMFUL if sign in shown + plain.stdout + plain.stderr + programs]


def test_the_attack_is_there_and_is_shown_by_its_codes(ended: Shell) -> None:
    assert ended.json("jobs", "lr=0.9 and task~train")[0]["tags"]["evil"] == ESCAPES
    assert r"\x1b]0;owned\x07" in ended.run("jobs").stdout
    assert "[b]x[/b] [@click=quit]" in ended.run("jobs").stdout


def test_without_a_terminal_nothing_is_cut_or_coloured(ended: Shell) -> None:
    text = ended.run("jobs", environment={"COLUMNS": "20"}).stdout
    assert "script.Evaluate" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
@pytest.mark.parametrize("arguments", [["jobs"], ["runs"], ["clean", "state=error"]])
def test_tables_fit_the_window(ended: Shell, columns: int, arguments: list[str]) -> None:
    lines = on_terminal(ended, columns, *arguments).splitlines()
    assert len(lines) >= 2
    assert max(map(width, lines)) <= columns


# -- finding -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["why", "nothing-like-it"], 3, "tenuto jobs --all"),
        (["why", "Train"], 2, "give more of the id"),
        (["runs", "show", "never"], 3, "tenuto runs"),
        (["runs", "list", "never"], 3, "there are: sweep"),
        (["jobs", "state=runing"], 2, "did you mean running?"),
        (["jobs", "lr<"], 2, "expected a value"),
        (["jobs", "--run", "sweep", "--all"], 2, "exclude each other"),
        (["logs", "Data", "-f", "--json"], 2, "exclude each other"),
        (["kill"], 2, "say which"),
        (["retry"], 2, "say which"),
        (["clean"], 2, "say which"),
        (["jobs", "--nope"], 2, "No such option"),
    ],
)
def test_errors_have_their_codes_and_say_what_to_do(
    ended: Shell, arguments: list[str], code: int, says: str
) -> None:
    found = ended.run(*arguments, check=code)
    assert says in found.stderr
    assert "Traceback" not in found.stderr
    assert found.stdout == ""


def test_a_directory_that_is_no_workspace_is_not_found(tmp_path: object, ended: Shell) -> None:
    found = subprocess.run(
        [*TENUTO, "status", "-w", str(tmp_path)],
        env=ended.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 3
    assert "is not a workspace" in found.stderr
    assert not os.listdir(str(tmp_path))


def test_the_workspace_around_the_working_directory_is_taken(ended: Shell) -> None:
    found = subprocess.run(
        [*TENUTO, "runs"],
        env=ended.environment,
        cwd=ended.workspace / "jobs" / "script.Data",
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0
    assert "sweep/" in found.stdout


def test_a_reader_that_leaves_early_is_no_error(ended: Shell) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        [*TENUTO, "jobs", "-w", str(ended.workspace)],
        env=ended.environment,
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    _, errors = process.communicate(timeout=30)
    assert b"Traceback" not in errors
