"""Commands know jobs of every kind: one workspace with an experiment, a search and a service."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tenuto import Catalogue, experiment
from tenuto.errors import Ambiguous, BadQuestion, FilterError, NotFound, ParameterError
from tenuto.lifecycle.service import ServiceState
from tenuto.lifecycle.states import JobState
from tenuto.monitor.provider import LocalProvider
from tenuto.service.data_paths import DataPaths
from tenuto.service.decisions import Quota
from tenuto.service.requests import Requests
from tenuto.service.rows import NewJob
from tenuto.service.tables import MIGRATIONS, opened
from tenuto.workspace.machine import this_machine
from tenuto.workspace.processes import process_text
from tests.search.terminal import tenuto

SCRIPT = """
from tenuto import Param, Task, experiment
from tenuto.search import Evolution, GridSearch, Integer, Outcome

class Square(Task):
    x: Param[int]
    def execute(self):
        print("squared", flush=True)
        if self.x == 3:
            raise ValueError("three")
        return {"y": self.x ** 2}

class Score(Task):
    n: Param[int]
    def execute(self):
        print("scored", flush=True)
        if self.n == 2:
            raise ValueError("two")
        return Outcome(float(self.n), metrics={"n2": self.n ** 2})

if __name__ == "__main__":
    try:
        with experiment("workspace", "squares"):
            for x in (1, 2, 3):
                Square.C(x=x).tag("x", x).submit()
    except Exception:
        pass
    Evolution("packing", Score, space={"n": Integer(1, 3)}, sampler=GridSearch()).run()
"""
SETTINGS = '[service]\ndatabase = "db.sqlite"\ndata = "data"\npoll_s = 1\n'


def upload_some(folder: Path, service: str = "dock") -> None:
    """Rows of a service, as a server leaves them: Completed, Failed, Queued."""
    database = opened(folder / "db.sqlite", MIGRATIONS, 10.0)
    requests, places = Requests(database, "me"), DataPaths(str(folder / "data"))
    places.make()
    for n in range(3):
        requests.add(NewJob("ada", service, f"{service}{n}"))
        places.open_job(f"{service}{n}")
    ends = (ServiceState.COMPLETED, ServiceState.FAILED)
    for row, end in zip(requests.claim(service, Quota(2, 2), ["n"] * 2), ends, strict=True):
        moved = requests.move(row, ServiceState.SUBMITTED, "")
        assert moved is not None
        assert requests.move(moved, end, "exit code 7" if end is ServiceState.FAILED else "") is not None
    with zipfile.ZipFile(places.job(f"{service}0").result, "w") as result:
        result.writestr(".tenuto/stdout", "what it printed\n")
    database.close()


def in_a_process(folder: Path, *arguments: str) -> None:
    """The command in a process of its own, which takes its scheduler along when it ends."""
    subprocess.run([sys.executable, "-m", "tenuto", *arguments], cwd=folder, capture_output=True, check=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doors")
    (folder / "doors.py").write_text(SCRIPT)
    (folder / "tenuto.toml").write_text(SETTINGS)
    in_a_process(folder, "evolve", "--slots", "2", "doors.py")
    upload_some(folder)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy, for commands that change something."""
    return Path(shutil.copytree(made, tmp_path / "copy", symlinks=True))


def said(folder: Path, *arguments: str, code: int = 0) -> str:
    found = tenuto(folder, *arguments, "-w", "workspace")
    assert found.returncode == code, found.stdout + found.stderr
    return found.stdout + found.stderr


def plain(folder: Path, *arguments: str, code: int = 0) -> Any:
    found = tenuto(folder, *arguments, "-w", "workspace", "--json")
    assert found.returncode == code, found.stdout + found.stderr
    return json.loads(found.stdout)


def test_jobs_of_every_door_are_listed_newest_first(made: Path) -> None:
    jobs = plain(made, "jobs")
    assert {job["kind"] for job in jobs} == {"experiment", "search", "service"}
    assert len(jobs) == 9
    submitted = [job["submitted"] for job in jobs]
    assert submitted == sorted(submitted, reverse=True)
    candidates = [job for job in jobs if job["kind"] == "search"]
    assert sorted(job["name"] for job in candidates) == ["packing#1", "packing#2", "packing#3"]
    assert all(job["id"] == job["name"] for job in candidates)


@pytest.mark.parametrize(
    ("filter_", "count"),
    [
        ("kind=experiment", 3),
        ("kind=search", 3),
        ("kind=service", 3),
        ("group=squares", 3),
        ("group=packing", 3),
        ("group=dock and state=error", 1),
        ("owner=ada", 3),
        ("kind=search and n=3", 1),
        ("result.objective>2 and result.n2=9", 1),
        ("kind!=service", 6),
        ("name=packing#2", 1),
    ],
)
def test_jobs_are_chosen_by_kind_group_and_owner(made: Path, filter_: str, count: int) -> None:
    assert len(plain(made, "jobs", filter_)) == count


def test_every_job_is_listed_once_with_all(made: Path) -> None:
    """The evaluations of candidates lie in the workspace, too, and are not listed a second time."""
    jobs = plain(made, "jobs", "--all")
    assert len(jobs) == len({job["key"] for job in jobs}) == 9


def test_the_jobs_of_the_command_line_are_those_of_the_page(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    with Catalogue("workspace") as catalogue:
        provider = LocalProvider(catalogue.sources, workspace="workspace")
        try:
            deadline = time.monotonic() + 60
            shown: dict[str, Any] = {}
            while len(shown) < 9:
                assert time.monotonic() < deadline, shown.keys()
                for group in provider.groups()["groups"]:
                    shown.update((job["key"], job) for job in provider.jobs(group["group"])["jobs"])
        finally:
            provider.close()
    for job in plain(made, "jobs"):
        assert job == json.loads(json.dumps(shown[job["key"]]))


def test_status_shows_groups_of_every_door_and_all_of_one(made: Path) -> None:
    groups = {group["name"]: group for group in plain(made, "status")["groups"]}
    assert {group["kind"] for group in groups.values()} == {"experiment", "search", "service"}
    assert groups["packing"]["counts"]["done"] == 2
    assert groups["dock"]["counts"]["waiting"] == 1
    assert groups["squares"]["counts"]["error"] == 1
    search = plain(made, "status", "packing")
    assert (search["state"], search["reason"], search["succeeded"], search["best"]["number"]) == (
        "ENDED",
        "EXHAUSTED",
        2,
        3,
    )
    assert "packing" in said(made, "status")
    assert plain(made, "status", "dock")["counts"]["error"] == 1
    assert plain(made, "status", "squares")["experiment"] == "squares"


def test_status_takes_several_names_and_filters(made: Path) -> None:
    both = plain(made, "status", "packing", "dock")["groups"]
    assert [(one["name"], one["total"]) for one in both] == [("packing", 3), ("dock", 3)]
    (found,) = plain(made, "status", "kind=search", "state=error")["groups"]
    assert (found["name"], found["counts"]["error"], found["counts"]["done"]) == ("packing", 1, 0)


def test_a_group_that_is_not_there_is_no_overview(made: Path) -> None:
    assert plain(made, "top", "packing")["groups"]
    assert "no run, service or search is called 'nothing'" in said(made, "top", "nothing", "--json", code=3)


def test_results_of_a_search_have_its_parameters(made: Path) -> None:
    rows = plain(made, "results", "kind=search")
    assert sorted((row["parameters"]["n"], row["result"]["objective"]) for row in rows) == [
        (1, 1.0),
        (3, 3.0),
    ]
    with Catalogue(made / "workspace") as catalogue:
        assert {row["result.objective"] for row in catalogue.results("kind=search")} == {1.0, 3.0}


@pytest.mark.parametrize(
    ("command", "job", "says"),
    [
        ("why", "packing#2", "two"),
        ("why", "dock#2", "exit code 7"),
        ("logs", "packing#1", "scored"),
        ("logs", "dock#1", "what it printed"),
        ("files", "packing#1", "jobs/"),
        ("files", "dock#1", "result.zip"),
    ],
)
def test_a_job_of_every_door_is_looked_at_by_its_name(made: Path, command: str, job: str, says: str) -> None:
    assert says in said(made, command, job)
    assert (plain(made, command, job)["id"], plain(made, command, job)["name"]) == (job, job)


def test_a_drawn_job_has_its_id_and_its_name(made: Path) -> None:
    jobs = {(one["id"], one["name"]) for one in plain(made, "jobs", "kind=experiment")}
    drawn = plain(made, "graph", "kind=experiment")
    assert {(node["id"], node["name"]) for node in drawn} == jobs
    assert {node["name"] for node in plain(made, "graph", "dock", "packing")} >= {"dock#1", "packing#1"}


def test_why_has_the_same_fields_for_every_door(made: Path) -> None:
    failed = plain(made, "jobs", "kind=experiment and state=error")[0]["id"]
    fields = plain(made, "why", failed).keys()
    for job in ("packing#2", "dock#2"):
        found = plain(made, "why", job)
        assert {"id", "name", "kind", "because", "next", "parameters", "attempts", "commands"} <= found.keys()
        assert found.keys() <= fields


def test_a_job_that_is_not_there_is_not_found(made: Path) -> None:
    for job in ("packing#9", "dock#9", "nothing#1", "packing#x", "#1"):
        assert "no job is called" in said(made, "why", job, code=3)


@pytest.mark.parametrize("job", ["packing#99", "dock#99", "nothere#1", "packing#x"])
def test_the_status_of_a_job_that_is_not_there_speaks_of_jobs(made: Path, job: str) -> None:
    assert f"no job is called '{job}'" in said(made, "status", job, code=3)


@pytest.mark.parametrize("command", ["logs", "why", "files", "status"])
def test_a_candidate_without_an_agent_has_no_log_of_one(made: Path, command: str) -> None:
    assert "packing#1 has no agent" in said(made, command, "packing#1/agent", code=3)


@pytest.mark.parametrize("command", ["jobs", "status", "kill", "results"])
@pytest.mark.parametrize("word", ["kind=serach", "kind!=runs", "kind=search or kind=x"])
def test_a_kind_that_there_is_not_is_refused(made: Path, command: str, word: str) -> None:
    assert "it is one of experiment, search, service" in said(made, command, word, code=2)


def test_a_job_of_another_service_is_named(folder: Path) -> None:
    upload_some(folder, "fold")
    assert "fold#4" in said(folder, "why", "dock#4", code=3)


def test_a_name_of_two_kinds_needs_the_kind(folder: Path) -> None:
    upload_some(folder, "packing")
    assert "--kind search" in said(folder, "status", "packing", code=2)
    assert plain(folder, "status", "packing", "--kind", "search")["kind"] == "search"
    assert plain(folder, "status", "packing", "kind=search")["kind"] == "search"
    for command in ("jobs", "results", "graph", "kill", "clean", "wait", "metrics"):
        assert "--kind search" in said(folder, command, "packing", code=2)
    for kind in ("--kind=search", "kind=search"):
        assert {job["kind"] for job in plain(folder, "jobs", "packing", kind)} == {"search"}
        assert plain(folder, "results", "packing", kind)
        assert plain(folder, "wait", "packing", kind)["groups"] == ["packing"]
    assert {one["kind"] for one in plain(folder, "jobs", "--kind", "service")} == {"service"}
    assert plain(folder, "why", "packing#1")["kind"] == "search"  # job 1 is of another service
    assert plain(folder, "why", "packing#4")["kind"] == "service"
    assert "dock#1" in said(folder, "why", "packing#1", "--kind", "service", code=3)
    assert [one["name"] for one in plain(folder, "kill", "--kind", "service", "state=waiting")] != []
    assert plain(folder, "kill", "--kind", "search", "state=waiting") == []
    for command in ("why", "logs", "files"):
        assert plain(folder, command, "packing#2", "kind=search")["name"] == "packing#2"
    assert plain(folder, "pause", "packing", "kind=search", code=1)["group"] == "search:packing"
    assert "--kind search" in said(folder, "top", "packing", "--json", code=2)
    assert plain(folder, "top", "packing", "--kind", "search")
    with Catalogue(folder / "workspace") as catalogue, pytest.raises(NotFound):
        catalogue.group("nothing")


def test_kill_cancels_what_waits(folder: Path) -> None:
    assert plain(folder, "kill", "--where", "kind=service")[0]["outcome"] == "would_kill"
    (killed,) = plain(folder, "kill", "dock#3")
    assert (killed["name"], killed["outcome"], killed["ended"]) == ("dock#3", "asked", True)
    assert plain(folder, "why", "dock#3")["status"] == "Killed"
    assert plain(folder, "kill", "packing#1", code=1)[0]["outcome"] == "not_running"


def test_failed_jobs_of_one_kind_or_group_are_retried_and_no_others(folder: Path) -> None:
    asked = [("--kind", "service"), ("dock",), ("packing",)]
    told = [plain(folder, "retry", "--failed", *one, code=one != ("packing",)) for one in asked]
    names = [[one["name"] for one in jobs] for jobs in told]
    assert names == [["dock#2"], ["dock#2"], ["packing#2"]]


def test_retry_refuses_a_payload_and_hands_a_candidate_on(folder: Path) -> None:
    (refused,) = plain(folder, "retry", "dock#2", code=1)
    assert (refused["outcome"], refused["message"]) == (
        "refused",
        "a payload is never run again: upload it anew",
    )
    (retried,) = plain(folder, "retry", "--failed", "--run", "packing")
    assert (retried["name"], retried["outcome"]) == ("packing#2", "retried")
    assert plain(folder, "why", "packing#2")["state"] == "waiting"


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        (("packing#2",), ["packing#2"]),
        (("dock#1", "packing#3"), ["dock#1", "packing#3"]),
        (("packing",), ["packing#3", "packing#2", "packing#1"]),
        (("dock", "packing#1"), ["dock#3", "dock#2", "dock#1", "packing#1"]),
        (("kind=search", "and", "state=error"), ["packing#2"]),
        (("packing#1", "owner=ada"), ["packing#1", "dock#3", "dock#2", "dock#1"]),
        (("kind=search", "state=error"), ["packing#2"]),
        (("state=done", "packing#2", "owner=ada"), ["packing#2", "dock#1"]),
        (("packing", "kind=search"), ["packing#3", "packing#2", "packing#1"]),
        (("--kind", "search", "state=error"), ["packing#2"]),
    ],
)
def test_jobs_are_listed_and_drawn_by_name_group_and_filter(
    made: Path, chosen: tuple[str, ...], names: list[str]
) -> None:
    every = {job["name"]: job for job in plain(made, "jobs")}
    assert plain(made, "jobs", *chosen) == [every[name] for name in names]
    drawn = [node["detail"] for node in plain(made, "graph", *chosen)]
    assert sorted(drawn) == sorted(names)
    done = [name for name in names if every[name]["state"] == "done" and every[name]["result"]]
    assert sorted(row["name"] for row in plain(made, "results", *chosen)) == sorted(done)


def test_a_job_of_an_experiment_is_listed_by_the_beginning_of_its_id(made: Path) -> None:
    failed = plain(made, "jobs", "kind=experiment and state=error")[0]
    for name in (failed["id"], failed["name"], f"doors.Square/{failed['name']}"):
        assert plain(made, "jobs", name) == [failed]
        assert plain(made, "status", name) == failed
    assert len(plain(made, "jobs", "squares")) == 3
    assert "--run" in said(made, "jobs", failed["name"], "--run", "squares", code=2)


@pytest.mark.parametrize("word", ["packing#2", "dock#1"])
def test_the_status_of_a_job_is_its_row(made: Path, word: str) -> None:
    assert plain(made, "status", word) == plain(made, "jobs", f"name={word}")[0]
    assert word in said(made, "status", word)


@pytest.mark.parametrize(
    ("filter_", "counted"),
    [
        ("kind=search", {"packing": {"done": 2, "error": 1}}),
        ("owner=ada", {"dock": {"done": 1, "error": 1, "waiting": 1}}),
        ("state=error", {"packing": {"error": 1}, "dock": {"error": 1}, "squares": {"error": 1}}),
        ("group=squares and state=done", {"squares": {"done": 2}}),
        ("state=running", {}),
    ],
)
def test_the_status_of_a_filter_counts_what_matches(
    made: Path, filter_: str, counted: dict[str, dict[str, int]]
) -> None:
    groups = plain(made, "status", filter_)["groups"]
    found = {one["name"]: {state: n for state, n in one["counts"].items() if n} for one in groups}
    assert found == counted
    assert said(made, "status", filter_)


@pytest.mark.parametrize("command", ["why", "logs", "files"])
def test_a_command_for_one_job_takes_a_filter_that_one_matches(made: Path, command: str) -> None:
    assert plain(made, command, "kind=search and state=error") == plain(made, command, "packing#2")
    assert plain(made, command, "name=dock#1") == plain(made, command, "dock#1")
    for word in ("kind=search", "packing"):
        assert "packing#3, packing#2, packing#1; name one" in said(made, command, word, code=2)
    assert "no job matches" in said(made, command, "state=running", code=3)
    for word in ("nothing", ""):
        assert f"service is called {word!r}" in said(made, command, word, code=3)


@pytest.mark.parametrize("word", ["kind=service", "dock", "owner=ada", "group=dock"])
def test_kill_takes_a_group_or_a_filter_and_asks_first(folder: Path, word: str) -> None:
    (would,) = plain(folder, "kill", word)
    assert (would["name"], would["outcome"]) == ("dock#3", "would_kill")
    (killed,) = plain(folder, "kill", word, "--yes")
    assert (killed["name"], killed["outcome"]) == ("dock#3", "asked")
    assert plain(folder, "kill", word, "--yes") == []


def test_retry_takes_what_failed_of_a_group_or_a_filter(folder: Path) -> None:
    for word in ("packing", "kind=search"):
        with sqlite3.connect(folder / "workspace" / "search.db") as connection:
            connection.execute("UPDATE evolution_jobs SET status = 'FAILED' WHERE number = 2")
        (retried,) = plain(folder, "retry", word)
        assert (retried["name"], retried["outcome"]) == ("packing#2", "retried")
    (refused,) = plain(folder, "retry", "owner=ada", code=1)
    assert (refused["name"], refused["outcome"]) == ("dock#2", "refused")
    assert plain(folder, "retry", "state=done") == []
    assert "nothing failed" in said(folder, "retry", "state=done")


@pytest.mark.parametrize(
    ("word", "names", "says"),
    [
        ("packing#2", ["packing#2"], "tenuto search remove"),
        ("dock#1", ["dock#1"], "max_age"),
        ("kind=service", ["dock#3", "dock#2", "dock#1"], "max_age"),
        ("packing", ["packing#3", "packing#2", "packing#1"], "tenuto search remove"),
    ],
)
def test_clean_refuses_what_it_was_asked_for_and_cannot_delete(
    folder: Path, word: str, names: list[str], says: str
) -> None:
    refused = plain(folder, "clean", word, "--yes", code=1)
    assert [(one["name"], one["outcome"]) for one in refused] == [(name, "refused") for name in names]
    assert all(says in one["detail"] for one in refused)
    assert "nothing was deleted" in said(folder, "clean", word, "--yes", code=1)


def test_clean_deletes_a_job_by_its_name(folder: Path) -> None:
    failed = plain(folder, "jobs", "kind=experiment and state=error")[0]
    (deleted,) = plain(folder, "clean", failed["name"], "--yes")
    assert (deleted["id"], deleted["outcome"]) == (failed["id"], "deleted")
    assert "No such file" in said(folder, "files", failed["name"], code=3)


def test_one_job_is_not_paused(folder: Path) -> None:
    failed = plain(folder, "jobs", "kind=experiment and state=error")[0]["name"]
    for command in ("pause", "resume"):
        for word in ("packing#2", "dock#1", failed):
            refused = plain(folder, command, word, code=1)
            assert (refused["outcome"], word in refused["detail"]) == ("refused", True)
        assert f"it is ENDED, and cannot be {command}d" in said(folder, command, "packing", code=1)
        assert [one["group"] for one in plain(folder, command, "kind=search", code=1)] == ["search:packing"]
        assert "no run, search or service" in said(folder, command, "state=running", code=3)
    for word in ("dock", "squares"):
        assert "never paused" in said(folder, "resume", word, code=1)


def test_a_search_is_paused_by_a_filter(folder: Path) -> None:
    with sqlite3.connect(folder / "workspace" / "search.db") as connection:
        connection.execute("UPDATE searches SET state = 'RUNNING', reason = NULL")
    (paused,) = plain(folder, "pause", "kind=search")
    assert (paused["group"], paused["outcome"]) == ("search:packing", "asked")
    assert plain(folder, "status", "packing")["state"] == "PAUSED"
    assert plain(folder, "resume", "packing")["outcome"] == "asked"


def test_a_script_pauses_groups_and_no_jobs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with Catalogue("workspace") as catalogue:
        (acted,) = catalogue.act("pause", ["dock"])
        assert (acted.outcome.value, "cannot be paused" in acted.detail) == ("refused", True)
        with pytest.raises(NotFound, match="no run, search or service is called 'dock#1'"):
            catalogue.act("pause", [catalogue.row("dock#1")])
        with pytest.raises(BadQuestion, match="pause has no dry run"):
            catalogue.act("pause", ["dock"], dry_run=True)
        with pytest.raises(BadQuestion, match=r"give their rows to act\(\)"):
            catalogue.steer("kill", catalogue.group("dock"))


def test_several_names_and_filters_are_awaited(folder: Path) -> None:
    assert plain(folder, "wait", "packing#1", "dock#1")["counts"]["done"] == 2
    both = plain(folder, "wait", "packing#1", "state=done and kind=service")
    assert both["groups"] == ["packing", "dock"]
    assert plain(folder, "wait", "kind=service", "and", "state=done")["counts"]["done"] == 1
    assert "no job matches" in said(folder, "wait", "state=running", code=3)


def test_clean_keeps_candidates_and_payloads(folder: Path) -> None:
    words = said(folder, "clean", "state=error", "--yes")
    assert "1 job deleted" in words
    assert "tenuto search remove" in words
    assert "max_age" in words
    failed = {job["kind"]: job["reason"] for job in plain(folder, "jobs", "--all", "state=error")}
    assert failed == {"search": "failed", "service": "failed"}


def test_only_a_search_can_be_paused(folder: Path) -> None:
    assert "Ctrl-C" in said(folder, "pause", "squares", code=1)
    assert "cannot be paused" in said(folder, "pause", "dock", code=1)
    assert plain(folder, "pause", "packing", code=1)["outcome"] == "refused"  # it has ended


def test_programs_are_told_what_was_done(folder: Path) -> None:
    run = str(plain(folder, "runs", "list")[0]["run"])
    tagged = plain(folder, "runs", "tag", "squares", "good", "old")
    assert (tagged["run"].endswith(run), tagged["tags"]) == (True, ["good", "old"])
    untagged = plain(folder, "runs", "untag", "squares", "old", "none", code=1)
    assert (untagged["tags"], untagged["removed"]) == (["good"], ["old"])
    assert len(plain(folder, "search", "export", "packing")) == 3
    given = plain(folder, "search", "priority", "packing", "1", "7", code=1)
    assert given == {"search": "packing", "candidate": 1, "priority": 7, "changed": False}
    assert plain(folder, "search", "drain", "packing", code=1)["changed"] is False
    kept = {"search": "packing", "candidates": 3, "removed": False}
    assert plain(folder, "search", "remove", "packing", code=1) == kept
    assert plain(folder, "search", "remove", "packing", "--yes") == {**kept, "removed": True}
    skill = tenuto(folder, "skill", "--json", "--install", "skills")
    assert json.loads(skill.stdout) == {"path": "skills/tenuto/SKILL.md"}


def test_no_command_makes_a_database(made: Path, tmp_path: Path) -> None:
    (tmp_path / "tenuto.toml").write_text(SETTINGS)
    shutil.copytree(made / "workspace", tmp_path / "workspace", symlinks=True)
    (tmp_path / "workspace" / "search.db").unlink()
    for command in (["jobs"], ["status"], ["results"], ["why", "dock#1"], ["kill", "dock#1"]):
        tenuto(tmp_path, *command, "-w", "workspace")
    assert not (tmp_path / "db.sqlite").exists()
    assert not (tmp_path / "workspace" / "search.db").exists()


def test_a_service_alone_needs_no_workspace(tmp_path: Path) -> None:
    (tmp_path / "tenuto.toml").write_text(SETTINGS)
    upload_some(tmp_path)
    found = tenuto(tmp_path, "jobs", "--json")
    assert [job["name"] for job in json.loads(found.stdout)] == ["dock#3", "dock#2", "dock#1"]
    for declared in ("[service]\nport = 5000\n", "[service]\n", "[services]\n", "service = {}\n"):
        (tmp_path / "tenuto.toml").write_text(declared)  # as it is by default
        assert len(json.loads(tenuto(tmp_path, "jobs", "--json").stdout)) == 3
    (tmp_path / "tenuto.toml").unlink()
    undeclared = tenuto(tmp_path, "jobs")
    assert undeclared.returncode == 3
    assert "write [service] database" in undeclared.stderr


def test_a_tag_of_the_name_of_a_field_is_found(tmp_path: Path) -> None:
    """People call their own things kind, name and group."""
    (tmp_path / "own.py").write_text(
        "from tenuto import Param, Task, experiment\n"
        "class T(Task):\n    kind: Param[str]\n    def execute(self):\n        return 1\n"
        "if __name__ == '__main__':\n    with experiment('workspace', 'own'):\n"
        "        for kind in ('sgd', 'adam'):\n            T.C(kind=kind).tag('group', kind).submit()\n"
    )
    in_a_process(tmp_path, "run", "own.py")
    for filter_ in ("kind=sgd", "group=sgd", "kind=sgd and state=done"):
        assert len(plain(tmp_path, "jobs", filter_)) == 1, filter_
    assert len(plain(tmp_path, "jobs", "group=own")) == 2


def test_a_number_sign_is_no_part_of_a_name(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="without #"):
        experiment(tmp_path, "a#1")


def test_a_catalogue_asks_and_steers_from_a_script(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with Catalogue("workspace") as catalogue:
        assert {group.name for group in catalogue.groups()} == {"squares", "packing", "dock"}
        (failed,) = catalogue.rows("kind=search and state=error")
        assert (failed.name, failed.state) == ("packing#2", JobState.ERROR)
        assert catalogue.detail("packing#2").row == failed
        assert [acted.outcome.value for acted in catalogue.act("kill", ["dock#3"], dry_run=True)] == [
            "would_kill"
        ]
        assert [acted.outcome.value for acted in catalogue.act("retry", [failed])] == ["retried"]
        with pytest.raises(Ambiguous):
            catalogue.row("Square")
        with pytest.raises(BadQuestion, match="one of experiment, search, service"):
            catalogue.groups("experiments")
        with pytest.raises(BadQuestion, match="one of kill, retry"):
            catalogue.act("explode", ["dock#3"])
        with pytest.raises(FilterError):
            catalogue.rows("state=")
        with pytest.raises(NotFound, match="'colour' to sort by"):
            catalogue.rows(sort="-colour")
        search = catalogue.group("packing", kind="search")
        assert [acted.outcome.value for acted in catalogue.act("pause", [search])] == ["asked"]
        with pytest.raises(BadQuestion, match="kill is for jobs"):
            catalogue.act("kill", [search])


def test_a_catalogue_of_no_workspace_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound, match="no workspace"):
        Catalogue("nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_search_is_awaited_and_of_a_service_only_jobs(folder: Path) -> None:
    ended = plain(folder, "wait", "packing")
    assert (ended["state"], ended["counts"]["done"], ended["counts"]["error"]) == ("done", 2, 1)
    assert "dock#1" in said(folder, "wait", "dock", code=2)
    assert plain(folder, "wait", "dock#1", "dock#2", code=1)["failed"][0]["name"] == "dock#2"
    assert plain(folder, "wait", "dock#3", "--timeout", "0.1", code=6)["left"] == ["dock#3"]
    assert plain(folder, "wait", "kind=service and state=done")["counts"]["done"] == 1


def test_a_group_beside_a_filter_is_awaited_as_a_group(folder: Path) -> None:
    both = plain(
        folder, "wait", "packing", "kind=service and state=done"
    )  # a failed candidate fails no search
    assert (both["state"], both["groups"]) == ("done", ["packing", "dock"])
    assert plain(folder, "wait", "kind=service", "and", "state=done")["groups"] == ["dock"]
    assert "no job matches" in said(folder, "wait", "packing", "state=running", code=3)


def test_a_retried_candidate_of_an_ended_search_needs_a_driver(made: Path, folder: Path) -> None:
    command = f"cd {made} && tenuto evolve --slots 2 doors.py"
    database = next(folder.glob("workspace/search.db"))
    with sqlite3.connect(database) as connection:  # the scheduler was at work a moment ago
        connection.execute("UPDATE searches SET active_at = 0")
    assert f"start {command}, or tenuto worker" in said(folder, "retry", "packing#2")
    left = plain(folder, "wait", "packing", "--timeout", "20", code=1)
    assert (left["state"], left["take_up"]) == ("unattended", [command])
    (group,) = [one for one in plain(folder, "status")["groups"] if one["kind"] == "search"]
    assert group["take_up"] == command
    assert "its driver is gone" in said(folder, "status")


def test_a_search_whose_driver_was_killed_is_not_awaited_for_ever(made: Path, folder: Path) -> None:
    command = f"cd {made} && tenuto evolve --slots 2 doors.py"
    with sqlite3.connect(next(folder.glob("workspace/search.db"))) as connection:
        connection.execute(
            "UPDATE searches SET active_at = 0, state = 'RUNNING', reason = NULL, ended_at = NULL"
        )
        connection.execute("UPDATE evolution_jobs SET status = 'RUNNING' WHERE number = 1")
        connection.execute("UPDATE evolution_jobs SET status = 'QUEUED' WHERE number = 3")
    for name in ("packing", "packing#1", "packing#3"):
        left = plain(folder, "wait", name, "--timeout", "20", code=1)
        assert (left["state"], left["take_up"]) == ("unattended", [command])
    assert f"no driver is at work for packing: {command}" in said(folder, "wait")


def test_a_service_whose_server_was_killed_is_not_awaited_for_ever(folder: Path) -> None:
    with sqlite3.connect(folder / "db.sqlite") as connection:
        connection.execute("UPDATE members SET seen_at = 0")
    assert left_service(folder) == LEFT


def test_a_service_whose_server_was_stopped_is_not_awaited_for_ever(folder: Path) -> None:
    with sqlite3.connect(folder / "db.sqlite") as connection:
        connection.execute("DELETE FROM members")
    assert left_service(folder) == LEFT


def test_a_server_of_this_machine_that_is_gone_is_known_at_once(folder: Path) -> None:
    gone = this_machine().processes.own()._replace(start_time=1)
    with sqlite3.connect(folder / "db.sqlite") as connection:
        (count,) = connection.execute("SELECT count(*) FROM members").fetchone()
        assert count == 1
        connection.execute("UPDATE members SET process = ?", (process_text(gone),))
    assert left_service(folder) == LEFT


def test_a_worker_that_lives_works_whatever_the_clock_shows(folder: Path) -> None:
    said(folder, "retry", "packing#2")
    values = ("worker", "here", process_text(this_machine().processes.own()))
    with sqlite3.connect(next(folder.glob("workspace/search.db"))) as connection:
        connection.execute("UPDATE searches SET active_at = 0")
        connection.execute("DELETE FROM members")
        connection.execute(
            "INSERT INTO members (id, kind, host, process, started_at, seen_at) VALUES ('w', ?, ?, ?, 0, 0)",
            values,
        )
    (group,) = [one for one in plain(folder, "status")["groups"] if one["kind"] == "search"]
    assert (group["live"], group["take_up"]) == (True, None)


LEFT = ("unattended", ["tenuto serve"], True)


def left_service(folder: Path) -> tuple[str, list[str], bool]:
    """What is said of a service without a server: by a wait, and by the status."""
    left = plain(folder, "wait", "dock#3", "--timeout", "20", code=1)
    sentence = "dock: its driver is gone, and 1 of its jobs have not ended: tenuto serve"
    return left["state"], left["take_up"], sentence in said(folder, "status")
