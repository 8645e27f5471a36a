"""`tenuto evolve` and `tenuto search`: what they print, exit with, and do to a search that runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.search.terminal import SCRIPT, shown, tenuto


def test_a_search_is_run_shown_and_exported(folder: Path) -> None:
    ran = tenuto(folder, "evolve", "--slots", "2", "--json", "one.py", "12", "0")
    assert ran.returncode == 0, ran.stderr
    [summary] = json.loads(ran.stdout)
    assert (summary["name"], summary["state"], summary["reason"], summary["scheduled"]) == (
        "one",
        "ENDED",
        "TOTAL",
        12,
    )
    assert "one: started, 0 of 12 candidates" in ran.stderr
    assert "one: ended (TOTAL): 12 candidates," in ran.stderr
    assert "\x1b" not in ran.stderr
    found = shown(folder)
    of_a_search = (
        "name state reason message scheduled told unfinished pending queued running succeeded failed "
        "cancelled reused cost best cells filled qd_score started ended"
    ).split()
    assert set(of_a_search) <= found.keys()
    assert (found["scheduled"], found["told"], found["cells"]) == (12, 12, 16)
    assert found["cost"] == 0.5 * found["succeeded"]
    assert found["qd_score"] == pytest.approx(summary["qd_score"])
    exported = tenuto(folder, "search", "export", "one", "-w", "workspace").stdout.splitlines()
    rows = [json.loads(line) for line in exported]
    assert (
        list(rows[0])
        == (
            "id number status priority attempt objective measures cost metrics values solution parent "
            "inspirations island cell order reused failure message task job directory worker created "
            "scheduled started completed"
        ).split()
    )
    best = json.loads(tenuto(folder, "search", "best", "one", "-w", "workspace", "--json").stdout)
    assert best["objective"] == max(row["objective"] for row in rows if row["objective"] is not None)
    there = tenuto(folder, "search", "best", "one", "--cell", "3,0", "-w", "workspace", "--json").stdout
    assert json.loads(there)["cell"] == 12
    table = tenuto(
        folder, "search", "export", "one", "--format", "csv", "-w", "workspace"
    ).stdout.splitlines()
    assert len(table) == 13
    assert "ENDED (TOTAL)" in tenuto(folder, "status", "-w", "workspace").stdout


def test_23_a_candidate_is_added_without_the_script(folder: Path) -> None:
    tenuto(folder, "evolve", "--slots", "2", "one.py", "2", "0")
    assert (
        tenuto(folder, "search", "add", "one", "-c", "x=0.25", "-w", "workspace").returncode == 2
    )  # the cap
    tenuto(folder, "evolve", "--slots", "2", "--once", "--no-workers", "one.py", "9", "0")
    for values in (["x=0.5", "-c", "y=1"], ["y=1"], ["x=true"], []):
        arguments = ["-c", *values] if values else []
        assert tenuto(folder, "search", "add", "one", *arguments, "-w", "workspace").returncode == 2, values
    before = shown(folder)["scheduled"]
    added = tenuto(folder, "search", "add", "one", "-c", "x=0.25", "--priority", "3", "-w", "workspace")
    assert added.returncode == 0, added.stderr
    assert f"candidate {before + 1} is added" in added.stderr
    tenuto(folder, "evolve", "--slots", "2", "one.py", "9", "0")
    rows = tenuto(folder, "search", "export", "one", "-w", "workspace").stdout.splitlines()
    row = next(row for row in map(json.loads, rows) if row["number"] == before + 1)
    assert (row["values"], row["status"], row["objective"], row["priority"]) == (
        {"x": 0.25},
        "SUCCEEDED",
        0.25,
        3,
    )


def test_exit_codes(folder: Path) -> None:
    assert tenuto(folder, "evolve").returncode == 2
    assert tenuto(folder, "status", "one", "-w", "workspace").returncode == 3
    tenuto(folder, "evolve", "--slots", "2", "one.py", "2", "0")
    for command in (["pause"], ["resume"], ["search", "drain"]):
        assert tenuto(folder, *command, "one", "-w", "workspace").returncode == 1, command
    assert tenuto(folder, "kill", "one#1", "-w", "workspace").returncode == 1
    assert tenuto(folder, "status", "two", "-w", "workspace").returncode == 3
    (folder / "one.py").write_text(SCRIPT.replace("Real(0, 1)", "Real(0, 2)"))
    refused = tenuto(folder, "evolve", "one.py", "2", "0")
    assert refused.returncode == 2
    assert "space.x.high was 1, and is 2 now" in refused.stderr
    (folder / "one.py").write_text(
        SCRIPT.replace("x > 0.9", "x > -1").replace('"one"', '"bad"').replace("seed=2", "seed=3")
    )
    failing = tenuto(folder, "evolve", "one.py", "3", "0")
    assert failing.returncode == 1
    assert "3 failed: ValueError: too large" in failing.stderr
    assert "\x1b" not in failing.stderr
    for said, *words in (
        ("candidate 1 is SUCCEEDED", "priority", "one", "1", "5"),
        ("it has no candidate 99", "priority", "one", "99", "5"),
        ("it is ENDED already", "drain", "one"),
        ("no worker is at work", "workers"),
    ):
        assert said in tenuto(folder, "search", *words, "-w", "workspace").stderr
    assert tenuto(folder, "search", "remove", "one", "-w", "workspace").returncode == 1
    assert tenuto(folder, "search", "remove", "one", "--yes", "-w", "workspace").returncode == 0
    assert tenuto(folder, "status", "one", "-w", "workspace").returncode == 3


HOSTILE = """
from tenuto import Param, Task
from tenuto.search import Choice, Evolution, GridSearch, Outcome

class Hostile(Task):
    x: Param[str]
    def execute(self):
        if "fails" in self.x:
            raise ValueError("no \\x1b]0;owned\\x07[red]way[/red]")
        title = "\\x1b]0;owned\\x07"
        artifacts = {f"log{title}": f"first\\n\\x1b[2Jsecond \\u202e{'x' * 9999}", "plain": "fine"}
        return Outcome(1.0, metrics={title: title}, solution=title, artifacts=artifacts)

if __name__ == "__main__":
    space = {"x": Choice(["good \\x1b[31m", "fails \\x9b31m"])}
    Evolution("one", Hostile, space=space, sampler=GridSearch()).run()
"""


def test_34_hostile_names_messages_and_artifacts_are_shown_as_text(folder: Path) -> None:
    (folder / "hostile.py").write_text(HOSTILE)
    ran = tenuto(folder, "evolve", "--slots", "1", "hostile.py")
    assert ran.returncode == 0, ran.stderr
    assert "failed: ValueError: no \\x1b]0;owned" in ran.stderr
    best = tenuto(folder, "search", "best", "one", "-w", "workspace").stdout
    assert "artifact    log\\x1b]0;owned\\x07: first\\n\\x1b[2Jsecond \\u202e" in best
    assert "artifact    plain: fine\n" in best
    assert max(map(len, best.splitlines())) < 300
    for words in ("status one", "status", "jobs", "search export one"):
        shown = tenuto(folder, *words.split(), "-w", "workspace")
        assert shown.returncode == 0, shown.stderr
        best += shown.stdout
    assert not set(ran.stderr + best) & set("\x1b\x07\x9b\r\u202e")


def test_34_the_demo_is_a_script_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENUTO_SEARCH__MAX_TOTAL_JOBS", "3")
    (tmp_path / "tenuto-search-demo").mkdir()
    source = (Path(__file__).parents[2] / "examples" / "arm.py").read_text()
    (tmp_path / "tenuto-search-demo" / "arm.py").write_text(source.replace("TOTAL = 1500", "TOTAL = 6"))
    ran = tenuto(tmp_path, "evolve", "--demo")
    assert ran.returncode == 0, ran.stderr
    assert "tenuto-search-demo/arm.py" in ran.stderr
    assert "tenuto results arm -w tenuto-search-demo/workspace" in ran.stderr
    assert tenuto(tmp_path, "results", "arm", "-w", "tenuto-search-demo/workspace").returncode == 0
    assert "the arm reaches" in ran.stdout
    assert "arm: ended (TOTAL): 6 candidates" in ran.stderr


def test_the_example_of_objects_runs(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "objects.py"
    (tmp_path / "objects.py").write_text(example.read_text().replace("TOTAL = 300", "TOTAL = 8"))
    done = tenuto(tmp_path, "evolve", "objects.py")
    assert done.returncode == 0, done.stderr
    assert "tour: ended (TOTAL): 8 candidates, 8 succeeded" in done.stderr


def test_the_name_of_a_search_outranks_the_beginning_of_an_id(folder: Path) -> None:
    tenuto(folder, "evolve", "--slots", "2", "one.py", "2", "0")
    name = next((folder / "workspace" / "jobs").glob("*/*")).name[:3]
    named = SCRIPT.replace('"one"', f'"{name}"').replace("start=6", 'start=6, measures=["up", "down"]')
    (folder / "two.py").write_text(named.replace("seed=2", "seed=9"))
    tenuto(folder, "evolve", "--slots", "2", "two.py", "3", "0")
    rows = json.loads(tenuto(folder, "jobs", name, "--json", "-w", "workspace").stdout)
    assert [row["name"] for row in rows] == [f"{name}#3", f"{name}#2", f"{name}#1"]
    shown = tenuto(folder, "results", name, "-w", "workspace").stdout
    assert "result.up" in shown
    assert "measure 0" not in shown
