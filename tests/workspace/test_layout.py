"""Every path of a workspace, and which ids may name a directory."""

from __future__ import annotations

import posixpath
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenuto.errors import InvalidName
from tenuto.workspace.layout import (
    ROOT_FROM_JOB,
    JobPaths,
    Layout,
    directory_name,
    script_name,
)
from tenuto.workspace.token_files import TokenPlace


def test_the_layout_is_the_one_of_the_documentation() -> None:
    layout = Layout("/ws/")
    job = layout.job("my.module.Train", "ab12")
    directory = "/ws/jobs/my.module.Train/ab12"
    assert job.directory == directory
    assert job.launch == f"{directory}/.tenuto/launch.json"
    assert job.status == f"{directory}/.tenuto/status.json"
    assert job.stop == f"{directory}/.tenuto/stop.json"
    assert job.task_outputs == f"{directory}/.tenuto/task-outputs.jsonl"
    assert job.params == f"{directory}/params.json"
    assert job.locks == f"{directory}/locks.json"
    assert job.result == f"{directory}/.tenuto/result.json"
    for suffix, path in {
        "py": job.script,
        "out": job.out,
        "err": job.err,
        "done": job.done,
        "failed": job.failed,
        "pid": job.pid,
        "lock": job.lock,
    }.items():
        assert path == f"{directory}/Train.{suffix}"
    run = layout.run("sweep", "20300101_120000.1")
    assert run.directory == "/ws/experiments/sweep/20300101_120000.1"
    assert run.environment == f"{run.directory}/environment.json"
    assert run.status == f"{run.directory}/status.json"
    assert run.jobs_list == f"{run.directory}/jobs.jsonl"
    assert run.events == f"{run.directory}/events"
    assert run.jobs == f"{run.directory}/jobs"
    assert run.results == f"{run.directory}/results"
    assert run.data == f"{run.directory}/data"
    assert layout.experiment_lock("sweep") == "/ws/experiments/sweep/lock"
    assert layout.experiment_journal("sweep").path(0) == "/ws/.events/experiments/sweep/events-0.jsonl"
    assert layout.job_journal("a.T", "ab12").path(3) == "/ws/.events/jobs/a.T/event-ab12-3.jsonl"
    assert (layout.partials, layout.config, layout.trash) == ("/ws/partials", "/ws/config", "/ws/.trash")


def test_a_relative_workspace_is_refused() -> None:
    with pytest.raises(InvalidName, match="absolute"):
        Layout("ws")


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("my_module.Train-2", "my_module.Train-2"),
        ("a/b", "a~2fb"),
        ("..", "~2e~2e"),
        (".", "~2e"),
        (".hidden", "~2ehidden"),
        ("-rf", "~2drf"),
        ("end.", "end~2e"),
        ("a b", "a~20b"),
        ("a~2fb", "a~7e2fb"),
        ("é", "~c3~a9"),
        ("../../etc/passwd", "~2e.~2f..~2fetc~2fpasswd"),
    ],
)
def test_an_unsafe_id_is_spelled_safely(name: str, safe: str) -> None:
    assert directory_name(name) == safe


@pytest.mark.parametrize("name", ["", "\0", "a\nb", "\u202e", "\ud800", "x" * 201, "é" * 60, "/" * 300])
def test_an_id_that_cannot_name_a_directory_is_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        directory_name(name)


def test_composed_and_decomposed_letters_stay_apart() -> None:
    name = "é"
    assert directory_name(unicodedata.normalize("NFC", name)) != directory_name(
        unicodedata.normalize("NFD", name)
    )


names = st.text(min_size=1, max_size=40) | st.text(alphabet="a.-~/2e", min_size=1, max_size=8)


@given(names, names)
@example("..", "~2e~2e")
@example("a/", "a~2f")
def test_different_ids_have_different_safe_directories(one: str, other: str) -> None:
    try:
        first, second = directory_name(one), directory_name(other)
    except InvalidName:
        return
    assert (first == second) == (one == other)
    for name in (first, second):
        assert name.isascii()
        assert not set(name) & set("/\0 ")
        assert name[0] not in ".-"
        assert len(name) <= 200


@given(names)
def test_a_script_name_is_never_empty_or_unsafe(task_id: str) -> None:
    try:
        name = script_name(task_id)
    except InvalidName:
        return
    assert name
    assert not set(name) & set("/\0.")


@pytest.mark.parametrize("job_id", ["", "..", "a/b", "A1", "-a", "a" * 129, "é", "a b"])
def test_a_job_id_that_is_no_hash_is_refused(job_id: str) -> None:
    with pytest.raises(InvalidName):
        Layout("/ws").job("task", job_id)
    with pytest.raises(InvalidName):
        Layout("/ws").job_journal("task", job_id)


@pytest.mark.parametrize(
    "name",
    [
        "events-.jsonl",
        "events-01.jsonl",
        "events-x.jsonl",
        "events-1.json",
        "events-٣.jsonl",
        "event-1.jsonl",
    ],
)
def test_a_file_of_another_kind_is_not_taken_for_a_journal(name: str) -> None:
    assert Layout("/ws").experiment_journal("sweep").number(name) is None


def test_the_number_of_a_journal_file_is_found_again() -> None:
    place = Layout("/ws").job_journal("task", "a-1")
    assert place.number(place.file_name(12)) == 12
    assert Layout("/ws").job_journal("task", "a").number(place.file_name(12)) is None


def test_the_files_of_tokens_cannot_be_mistaken_for_each_other() -> None:
    place = TokenPlace("/tokens/host")
    names = ["gpu", "queue", "schedulers", "mutex", "queue.token", "a/b"]
    paths = [place.queue, place.schedulers, place.mutex]
    paths += [path for name in names for path in (place.capacity(name), place.units(name))]
    assert len(set(paths)) == len(paths)
    assert place.units("gpu") == "/tokens/host/gpu.units"
    assert place.units("/run/one.lock") == "/run/one.lock"


def test_the_workspace_is_found_from_a_job() -> None:
    layout = Layout("/ws")
    assert posixpath.normpath(f"{layout.job('a.Task', 'ab12').directory}/{ROOT_FROM_JOB}") == layout.root


def test_files_of_tenuto_in_a_job_are_told_apart_from_files_of_its_task() -> None:
    paths = JobPaths("/ws/jobs/a.Train/ab", "Train")
    ours = [paths.params, paths.locks, paths.private, paths.out, paths.err, f"{paths.err}.12", paths.done]
    ours += [paths.failed, f"{paths.done}.corrupt-1", paths.pid, paths.lock, paths.reserve, paths.script]
    assert all(paths.is_own(path.rpartition("/")[2]) for path in ours)
    theirs = ["Train", "Train.csv", "Train.out.csv", "params.json.bak", "other.out", "model", "TrainX.out"]
    assert not any(map(paths.is_own, theirs))
