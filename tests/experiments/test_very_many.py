"""Runs of so many jobs that they are not looked at one by one: counts, the newest, what a monitor follows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenuto import Catalogue, JobState
from tenuto.experiments import followed_run, workspace_view
from tests.experiments.scripts import Place, python
from tests.experiments.scripts import run as run_command

BODY = """
from tenuto.experiments import run
run.COUNTED_EACH = 4
with experiment(HERE / "ws", "many"):
    for number in range(12):
        Note.C(name=str(number)).submit()
    Fail.C(name="x").submit()
"""


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(workspace_view, "MOST_COUNTED", 5)
    place = Place(tmp_path)
    assert run_command(python(place.script(BODY)), tmp_path).returncode == 1
    return place


def status_of(place: Place) -> Path:
    (path,) = place.workspace.glob("experiments/many/*/status.json")
    return path


def test_the_counts_of_very_many_jobs_are_those_that_their_run_wrote(many: Place) -> None:
    catalogue = Catalogue(many.workspace)
    (group,) = catalogue.groups()
    assert catalogue.counts(group) == {JobState.DONE: 12, JobState.ERROR: 1}
    status = json.loads(status_of(many).read_text())
    status_of(many).write_text(json.dumps({**status, "counts": {"done": 99}}))
    assert catalogue.counts(group) == {JobState.DONE: 99}


@pytest.mark.parametrize("counts", [None, [], {"no": 1}, {"done": "x"}, {"done": 1}])
def test_counts_that_cannot_be_read_or_are_few_are_made_anew(many: Place, counts: object) -> None:
    status = json.loads(status_of(many).read_text())
    status_of(many).write_text(json.dumps({**status, "counts": counts}))
    catalogue = Catalogue(many.workspace)
    (group,) = catalogue.groups()
    assert group.state == "failed"
    assert catalogue.counts(group) == {JobState.DONE: 12, JobState.ERROR: 1}


KILLED = """
import json, signal, time
from tenuto.experiments import run
run.COUNTED_EACH = 4
with experiment(HERE / "ws", "many") as xp:
    for number in range(12):
        Note.C(name=str(number)).submit()
    while json.loads(Path(xp.run.paths.status).read_bytes()).get("counts", {}).get("done", 0) < 8:
        time.sleep(0.01)  # some more may have ended when they were counted
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_has_written_its_counts_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_view, "MOST_COUNTED", 5)
    place = Place(tmp_path)
    assert run_command(python(place.script(KILLED)), tmp_path).returncode == -9
    catalogue = Catalogue(place.workspace)
    (group,) = catalogue.groups()
    counts = catalogue.counts(group)
    written = json.loads(status_of(place).read_text())["counts"]
    assert counts == {JobState[state.upper()]: number for state, number in written.items()}
    assert (counts[JobState.DONE] >= 8, sum(counts.values())) == (True, 12)


def test_the_newest_are_those_of_the_whole_list(many: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, total = Catalogue(many.workspace).newest(3)
    monkeypatch.setattr(workspace_view, "MOST_COUNTED", 100)
    assert (rows, total) == Catalogue(many.workspace).newest(3)
    assert total == 13


def test_a_monitor_follows_the_last_jobs(many: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_run, "MOST_FOLLOWED", 4)
    catalogue = Catalogue(many.workspace)
    (group,) = catalogue.groups()
    followed = [row for chunk in catalogue.experiments.rows(group.group) for row in chunk]
    newest, _ = catalogue.newest(13)
    assert 3 <= len(followed) <= 6
    assert [row.id for row in followed] == [row.id for row in newest[: len(followed)]][::-1]
