"""The newest page of jobs: the same as the head of the whole list, at the price of a page."""

from contextlib import suppress
from pathlib import Path

import pytest

from tenuto import FailedExperiment, Param, Task, experiment
from tenuto.catalogue import Catalogue
from tenuto.experiments import workspace_view
from tenuto.experiments.workspace_view import WorkspaceView
from tenuto.jobs.key import JobKey
from tenuto.jobs.view import JobReading, ReadDepth


class Paged(Task):
    number: Param[int]

    def execute(self) -> None:
        if self.number == 3:
            raise ValueError("three")


class After(Task):
    before: Param[Paged]

    def execute(self) -> None:
        pass


def fill(place: Path, name: str, numbers: list[int]) -> None:
    with suppress(FailedExperiment), experiment(place, name):
        for number in numbers:
            Paged.C(number=number).submit()


def same(place: Path) -> int:
    """How many jobs there are, once every page was seen to be the head of the list."""
    with Catalogue(place) as catalogue:
        whole = catalogue.jobs()
        for most in (1, 2, 3, 5, len(whole) + 1):
            page, total = catalogue.newest(most)
            assert page == whole[:most]
            assert total == len(whole)
    return len(whole)


@pytest.mark.parametrize("is_live", [False, True])
@pytest.mark.parametrize("numbers", [[1, 2, 3, 4, 5], [1, 2, 1, 5, 2, 1], [3, 1, 3, 7, 3, 2]])
def test_jobs_in_parts_stand_as_those_of_the_whole_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: list[int], is_live: bool
) -> None:
    """Also jobs that are listed twice, those that wait for jobs of an earlier part, and transient ones."""
    with suppress(FailedExperiment), experiment(tmp_path, "one"):
        for number in numbers:
            mode = "transient" if number == 5 else "none"
            After.C(before=Paged.C(number=number).submit(transient=mode)).submit(transient=mode)
    with Catalogue(tmp_path) as catalogue:
        view = catalogue.view
        (run,) = view.find_runs(None)
        run = run._replace(live=is_live)
        lines = view.lines(run)
        seen = {line.job_id: view.look(JobKey(line.task_id, line.job_id)) for line in lines}
        state_record = view.resolved_readings(lines, seen, run)
        whole = [view.listed_row(line, state_record[line.job_id], run) for line in lines]
        for size in (1, 2, 3, 100):
            monkeypatch.setattr(workspace_view, "CHUNK_ROWS", size)
            assert view.jobs(run) == whole


def test_page_is_the_head_of_the_list(tmp_path: Path) -> None:
    fill(tmp_path, "one", [1, 2, 3, 4, 5])
    assert same(tmp_path) == 5


def test_job_of_two_experiments_is_counted_once(tmp_path: Path) -> None:
    fill(tmp_path, "one", [1, 2, 4])
    fill(tmp_path, "two", [2, 4, 5, 6])
    assert same(tmp_path) == 5


def test_job_submitted_again_is_counted_once(tmp_path: Path) -> None:
    fill(tmp_path, "one", [1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 5, 1])
    assert same(tmp_path) == 3


def test_jobs_that_were_never_started_stand_where_others_leave_them(tmp_path: Path) -> None:
    with suppress(FailedExperiment), experiment(tmp_path, "one"):
        for number in (1, 3):
            After.C(before=Paged.C(number=number).submit()).submit()
    assert same(tmp_path) == 4


@pytest.mark.parametrize("garbage", [b"{torn", b'{"job_id":"x","task_id":"y"}\n', b"\0\0\n", b"\n\n"])
def test_garbage_in_a_list_is_passed_over(tmp_path: Path, garbage: bytes) -> None:
    fill(tmp_path, "one", [1, 2, 4])
    (listed,) = tmp_path.glob("experiments/one/*/jobs.jsonl")
    listed.write_bytes(listed.read_bytes() + garbage)
    assert same(tmp_path) == 3


def test_no_jobs_are_a_page_of_none(tmp_path: Path) -> None:
    with Catalogue(tmp_path) as catalogue:
        assert catalogue.newest(10) == ([], 0)


def test_only_the_directories_of_the_page_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, "one", list(range(10, 40)))
    looked: set[JobKey] = set()
    look = WorkspaceView.look

    def noted(view: WorkspaceView, key: JobKey, depth: ReadDepth = ReadDepth.ROW) -> JobReading:
        looked.add(key)
        return look(view, key, depth)

    monkeypatch.setattr(WorkspaceView, "look", noted)
    with Catalogue(tmp_path) as catalogue:
        page, total = catalogue.newest(4)
    assert (len(page), total) == (4, 30)
    assert looked == {row.job_key for row in page}
