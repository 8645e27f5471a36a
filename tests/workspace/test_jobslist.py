"""`jobs.jsonl`: durable within 100 ms, readable after a crash."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tenuto.lifecycle.states import TransientMode
from tenuto.testing import Crash, FakeDisk
from tenuto.workspace import lines
from tenuto.workspace.files import DiskFiles
from tenuto.workspace.jobslist import (
    JobLine,
    JobLinks,
    JobsList,
    JobsRead,
    last_listed,
    lines_about,
    listed_jobs,
    read_jobs,
    start_of_last,
)
from tenuto.workspace.layout import Layout

NOW = datetime(2030, 1, 1, tzinfo=UTC)
RUN = Layout("/ws").run("sweep", "1")


def line(job_id: str, **more) -> JobLine:
    return JobLine(job_id, "task", NOW, **more)


@pytest.fixture
def disk() -> FakeDisk:
    disk = FakeDisk()
    disk.make_directory(RUN.directory)
    return disk


def test_every_job_is_listed_as_it_was_submitted(disk: FakeDisk) -> None:
    full = line("b", tags={"lr": "0.1"}, depends_on=("a",), transient=TransientMode.REMOVE, max_retries=3)
    jobs = JobsList(disk, RUN)
    jobs.append(line("a"))
    jobs.append(full)
    jobs.close()
    assert read_jobs(disk, RUN) == JobsRead([line("a"), full], 0)


def test_the_last_line_of_a_job_counts(disk: FakeDisk) -> None:
    jobs = JobsList(disk, RUN)
    jobs.append(line("a"))
    jobs.append(line("a", max_retries=2))
    assert read_jobs(disk, RUN).jobs == [line("a", max_retries=2)]


def test_a_list_is_read_on_from_where_a_reader_stopped(disk: FakeDisk) -> None:
    jobs = JobsList(disk, RUN)
    jobs.append(line("a"))
    jobs.append(line("b"))
    first, second = listed_jobs(disk, RUN)
    assert (first.job, second.job) == (line("a"), line("b"))
    assert [found.job for found in listed_jobs(disk, RUN, first.end)] == [line("b")]
    assert list(listed_jobs(disk, RUN, second.end)) == []
    jobs.append(line("c"))
    assert [found.job for found in listed_jobs(disk, RUN, second.end)] == [line("c")]


def test_a_line_that_cannot_be_read_is_told_and_passed_over(disk: FakeDisk) -> None:
    jobs = JobsList(disk, RUN)
    jobs.append(line("a"))
    jobs.close()
    torn = disk.open_append(RUN.jobs_list)
    torn.append(b"garbage\n")
    torn.close()
    found = list(listed_jobs(disk, RUN))
    assert [one.job for one in found] == [line("a"), None]
    assert found[1].end == found[0].end + len(b"garbage\n")


def test_some_jobs_and_their_dependents_are_found_without_decoding_the_rest(
    disk: FakeDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = JobsList(disk, RUN)
    for number in range(100):
        jobs.append(line(f"job{number:03d}"))
    jobs.append(line("needs it", depends_on=("job042",)))
    jobs.append(line("job042", max_retries=2))
    decoded = []
    unseal = lines.unseal
    monkeypatch.setattr(lines, "unseal", lambda text: decoded.append(text) or unseal(text))
    found = lines_about(disk, RUN, {"job042"})
    assert found == [line("job042", max_retries=2), line("needs it", depends_on=("job042",))]
    assert len(decoded) == 3


def test_no_file_is_an_empty_list(disk: FakeDisk) -> None:
    assert read_jobs(disk, RUN) == JobsRead([], 0)
    disk.symlink("/etc/passwd", RUN.jobs_list)
    assert read_jobs(disk, RUN) == JobsRead([], 0)


def test_lines_are_synced_together(disk: FakeDisk) -> None:
    jobs = JobsList(disk, RUN)
    for job_id in "abc":
        jobs.append(line(job_id))
    jobs.sync()
    assert [operation for operation, _ in disk.operations].count("sync") == 1
    jobs.append(line("d"))
    disk.power_loss()
    assert [job.job_id for job in read_jobs(disk, RUN).jobs] == ["a", "b", "c"]


def test_a_line_torn_by_a_crash_costs_only_itself(disk: FakeDisk) -> None:
    jobs = JobsList(disk, RUN)
    jobs.append(line("a"))
    disk.crash_after(0)
    with pytest.raises(Crash):
        jobs.append(line("b"))
    after = JobsList(disk, RUN)
    after.append(line("c"))
    assert read_jobs(disk, RUN) == JobsRead([line("a"), line("c")], 1)


def test_a_line_torn_by_a_full_disk_is_sealed(disk: FakeDisk) -> None:
    jobs = JobsList(disk, RUN)
    disk.fail_after(0, 28)
    with pytest.raises(OSError, match="No space"):
        jobs.append(line("a"))
    jobs.append(line("b"))
    assert read_jobs(disk, RUN) == JobsRead([line("b")], 1)


def test_a_line_that_is_no_job_is_counted(disk: FakeDisk) -> None:
    from tenuto.workspace.lines import seal

    disk.write(RUN.jobs_list, seal({"job_id": 3}) + seal({"job_id": "a", "transient": "EVIL"}) + b"garbage\n")
    assert read_jobs(disk, RUN) == JobsRead([], 3)


def test_the_link_of_a_job_leads_to_its_directory_also_after_a_move(tmp_path) -> None:
    files = DiskFiles()
    layout = Layout(f"{tmp_path}/ws")
    job = layout.job("a.Task", "ab12")
    files.make_directory(job.directory)
    files.write(job.params, b"{}")
    run = layout.run("sweep", "1")
    JobLinks(files, run).add("a.Task", "ab12")
    JobLinks(files, run).add("a.Task", "ab12")
    (tmp_path / "ws").rename(tmp_path / "moved")
    link = tmp_path / "moved/experiments/sweep/1/jobs/a.Task/ab12"
    assert link.is_symlink()
    assert (link / "params.json").read_text() == "{}"


def test_a_run_shares_the_links_of_the_run_before_and_keeps_them_when_that_is_removed(tmp_path) -> None:
    files = DiskFiles()
    layout = Layout(f"{tmp_path}/ws")
    before, run = layout.run("sweep", "1"), layout.run("sweep", "2")
    JobLinks(files, before).add("a.Task", "ab12")
    links = JobLinks(files, run, before)
    links.add("a.Task", "ab12")
    links.add("a.Task", "cd34")
    first, second = (Path(one.job_link("a.Task", "ab12")) for one in (before, run))
    assert first.lstat().st_ino == second.lstat().st_ino
    links.add("a.Task", "ab12")  # listed once more
    files.remove_tree(before.directory)
    for job_id in ("ab12", "cd34"):
        assert files.read_link(run.job_link("a.Task", job_id)) == run.job_link_target("a.Task", job_id)


def test_a_run_with_other_jobs_soon_asks_no_more_for_links_to_share(disk: FakeDisk) -> None:
    links = JobLinks(disk, RUN, Layout("/ws").run("sweep", "0"))
    for number in range(20):
        links.add("a.Task", f"{number}")
    asked = [operation for operation, _ in disk.operations if operation in ("link", "symlink")]
    assert asked.count("symlink") == 20
    assert asked.count("link") < 10


def test_the_end_of_a_long_list_is_read_without_the_rest(disk: FakeDisk) -> None:
    jobs = JobsList(disk, RUN)
    for number in range(5_000):
        jobs.append(line(f"job{number:04}"))
    jobs.append(line("job4998", max_retries=2))
    jobs.close()
    found = last_listed(disk, RUN, 3)
    assert found == [line("job4997"), line("job4999"), line("job4998", max_retries=2)]
    start = start_of_last(disk, RUN, 1_000)
    read = [one.job.job_id for one in listed_jobs(disk, RUN, start) if one.job is not None]
    assert read[0] == f"job{5_001 - len(read):04}"
    assert len(read) == pytest.approx(1_000, rel=0.05)
    assert start_of_last(disk, RUN, 100_000) == 0
    torn = disk.open_append(RUN.jobs_list)
    torn.append(b"garbage\n")
    torn.close()
    assert last_listed(disk, RUN, 3) == found
    assert last_listed(disk, RUN, 6_000) is not None
    assert last_listed(disk, RUN, 2, {b'job4998","task_id":"task'}) == [line("job4997"), line("job4999")]


def test_a_name_is_found_wherever_the_windows_of_a_reader_part(
    disk: FakeDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = JobsList(disk, RUN)
    for number in range(40):
        jobs.append(line(f"job{number:03}", depends_on=(f"job{number - 1:03}",) if number else ()))
    jobs.close()
    for size in range(50, 700, 13):
        monkeypatch.setattr(lines, "_CHUNK", size)
        assert [one.job_id for one in lines_about(disk, RUN, {"job020"})] == ["job020", "job021"]
