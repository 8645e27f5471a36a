"""Runs of so many jobs that they are not looked at one by one: counts, the newest, what a monitor follows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tenuto import Catalogue, JobState
from tenuto.experiments import followed_run, workspace_view
from tenuto.jobs.row import Row
from tests.experiments.scripts import Place, python, tenuto
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


FILTERS = [
    "state=done",
    "state=error",
    "name=7",
    "name>5 and state=done",
    "not name=x",
    "nosuch=none",
    "id~a",
]


def found(
    place: Place, monkeypatch: pytest.MonkeyPatch, filters: Sequence[str] = FILTERS
) -> tuple[list[list[Row]], int]:
    """What filters find, and at how many jobs of the list they looked; the first one may keep columns."""
    with Catalogue(place.workspace) as catalogue:
        catalogue.rows(filters[0])
    looked: list[object] = []
    look = workspace_view.WorkspaceView._brief
    monkeypatch.setattr(workspace_view.WorkspaceView, "_brief", lambda *a: looked.append(a) or look(*a))
    with Catalogue(place.workspace) as catalogue:
        rows = [catalogue.rows(filter) for filter in filters]
    monkeypatch.undo()
    monkeypatch.setattr(workspace_view, "MOST_COUNTED", 5)
    return rows, len(looked)


def columns_of(place: Place) -> list[Path]:
    return list(place.workspace.glob("experiments/many/*/columns"))


def plainly(
    place: Place, monkeypatch: pytest.MonkeyPatch, filters: Sequence[str] = FILTERS
) -> list[list[Row]]:
    """What filters find job by job."""
    monkeypatch.setattr(workspace_view, "MOST_COUNTED", 100)
    rows = [Catalogue(place.workspace).rows(filter) for filter in filters]
    monkeypatch.setattr(workspace_view, "MOST_COUNTED", 5)
    return rows


def pack(place: Place, *words: str) -> None:
    done = run_command(tenuto("clean", "--pack", "--yes", "-w", "ws", *words), place.directory)
    assert "packed" in done.stderr, done.stderr  # a job that never ran is spared


@pytest.mark.slow
def test_a_filter_over_very_many_packed_jobs_reads_only_those_that_it_finds(
    many: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = plainly(many, monkeypatch)
    assert (found(many, monkeypatch)[0], columns_of(many)) == (wanted, [])  # they lie in directories
    pack(many)
    rows, looked = found(many, monkeypatch)
    assert rows == plainly(many, monkeypatch) == wanted
    assert columns_of(many)
    assert looked < 13 * len(FILTERS)
    with Catalogue(many.workspace) as catalogue:
        assert [row.id for row in catalogue.rows("name=7")] == [row.id for row in wanted[2]]
        _, total = catalogue.newest(1)
    assert total == 13


@pytest.mark.slow
def test_columns_hold_until_a_job_or_the_list_changes(many: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    pack(many)
    found(many, monkeypatch)
    (columns,) = columns_of(many)
    kept = columns.read_bytes()
    done = run_command(tenuto("clean", "--unpack", "--yes", "-w", "ws", "state=error"), many.directory)
    assert done.returncode == 0, done.stderr
    assert found(many, monkeypatch)[0] == plainly(many, monkeypatch)
    assert columns.read_bytes() != kept  # of which one is looked at each time
    run_command(tenuto("clean", "--yes", "-w", "ws", "state=error"), many.directory)
    rows = found(many, monkeypatch)[0]
    assert rows == plainly(many, monkeypatch)
    assert [row.message for row in rows[1]] == ["its directory was removed"]


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"version":1}\n', b"\xff" * 4000])
@pytest.mark.slow
def test_damaged_columns_are_made_anew(damage: bytes, many: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    pack(many)
    wanted, _ = found(many, monkeypatch)
    (columns,) = columns_of(many)
    columns.write_bytes(damage + columns.read_bytes()[len(damage) :] if len(damage) > 100 else damage)
    assert found(many, monkeypatch)[0] == wanted == plainly(many, monkeypatch)


@pytest.mark.slow
def test_columns_of_a_copied_workspace_are_made_anew(
    many: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pack(many)
    wanted, _ = found(many, monkeypatch)
    shutil.copytree(many.workspace, copy := tmp_path / "copy" / "ws", symlinks=True)
    place = Place(copy.parent)
    (columns,) = columns_of(place)
    before = columns.read_bytes()
    assert found(place, monkeypatch)[0] == wanted
    assert columns.read_bytes() != before


STRANDED = """
with experiment(HERE / "ws", "many"):
    for number in range(8):
        note = Note.C(name=str(number))
        if number % 2:
            note.tag("odd", number)
        note.submit()
    bad = Fail.C(name="x").tag("odd", 0).submit()
    After.C(before=bad).submit()
    After.C(before=note).submit()
"""


@pytest.mark.slow
def test_tags_dependents_and_jobs_that_never_ran_are_found_by_columns_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_view, "MOST_COUNTED", 5)
    filters = ["odd>2", "odd=none", "state=error", "reason=dependency", "not odd=3", "before.name=7"]
    place = Place(tmp_path)
    assert run_command(python(place.script(STRANDED)), tmp_path).returncode == 1
    pack(place)
    rows, _ = found(place, monkeypatch, filters)
    assert rows == plainly(place, monkeypatch, filters)
    assert columns_of(place)
    assert all(rows[:4])
