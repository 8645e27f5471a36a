"""Owns what a task may say of its progress."""

from __future__ import annotations

import contextlib
from typing import Any, cast

import pytest

from tenuto import progress, tqdm
from tenuto.tasks.ports import JobContext, current_job


class Heard:
    """A job that remembers what it was told."""

    def __init__(self) -> None:
        self.said: list[tuple[float, int, str | None]] = []

    def progress(self, value: float, level: int, desc: str | None) -> None:
        self.said.append((value, level, desc))


@pytest.fixture
def heard() -> Any:
    job = Heard()
    token = current_job.set(cast("JobContext", job))
    yield job
    current_job.reset(token)


def test_outside_of_a_job_progress_is_heard_by_nobody() -> None:
    progress(0.5)
    assert list(tqdm([1, 2])) == [1, 2]


def test_progress_reaches_the_job(heard: Heard) -> None:
    progress(0.25, desc="epoch 1")
    progress(0.5, 1)
    assert heard.said == [(0.25, 0, "epoch 1"), (0.5, 1, None)]


def test_progress_is_also_printed_where_the_log_of_a_job_is(
    heard: Heard, capsys: pytest.CaptureFixture[str]
) -> None:
    progress(0.25, desc="epoch 1", console=True)
    progress(0.5, 1, console=True)
    assert heard.said == [(0.25, 0, "epoch 1"), (0.5, 1, None)]
    assert capsys.readouterr() == ("", " 25% epoch 1\n   50%\n")


def test_a_loop_reports_what_is_done(heard: Heard) -> None:
    assert list(tqdm("ab", "letters", level=1)) == ["a", "b"]
    assert heard.said == [(0.0, 1, "letters"), (0.5, 1, "letters"), (1.0, 1, "letters")]


def test_a_loop_without_a_length_reports_nothing_unless_told(heard: Heard) -> None:
    assert list(tqdm(iter("ab"))) == ["a", "b"]
    assert heard.said == []
    assert list(tqdm(iter("ab"), total=4)) == ["a", "b"]
    assert [value for value, _, _ in heard.said] == [0.0, 0.25, 0.5]


def test_a_loop_inside_another_reports_one_level_deeper(heard: Heard) -> None:
    for _ in tqdm(range(2), "outer"):
        for _ in tqdm(range(1), "inner"):
            pass
    levels = [(level, desc) for _, level, desc in heard.said]
    inside = [(1, "inner"), (1, "inner")]
    assert levels == [(0, "outer"), *inside, (0, "outer"), *inside, (0, "outer")]


def test_a_loop_that_was_left_early_gives_its_level_back(heard: Heard) -> None:
    for _ in range(2):
        for _ in tqdm(range(3)):
            break
    with contextlib.suppress(KeyError):
        for _ in tqdm(range(3)):
            raise KeyError
    tqdm(total=3)  # nobody keeps it
    assert {level for _, level, _ in heard.said} == {0}


def test_threads_have_loops_of_their_own(heard: Heard) -> None:
    import threading
    from contextvars import copy_context

    with tqdm(total=1):
        thread = threading.Thread(target=copy_context().run, args=(list, tqdm([1], "there")))
        thread.start()
        thread.join()
    assert (1.0, 0, "there") in heard.said


def test_a_bar_can_be_moved_by_hand(heard: Heard) -> None:
    with tqdm(total=10, desc="bytes", unit="B", leave=False) as bar:
        bar.update(5)
        bar.set_postfix(loss=0.123456, step=3)
        bar.set_description("words")
        bar.update(50)
        assert bar.n == 55
        bar.reset(total=11)
    bar.update(1)  # closed: says nothing
    assert heard.said == [
        (0.0, 0, "bytes"),
        (0.5, 0, "bytes"),
        (0.5, 0, "bytes, loss=0.123, step=3"),
        (0.5, 0, "words, loss=0.123, step=3"),
        (1.0, 0, "words, loss=0.123, step=3"),
        (0.0, 0, "words, loss=0.123, step=3"),
    ]


def test_a_bar_takes_the_arguments_of_tqdm_and_no_others(
    heard: Heard, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = tqdm([1, 2], "all", None, ncols=80, mininterval=1, ascii=True, dynamic_ncols=True, position=0)
    assert len(bar) == 2
    assert list(bar) == [1, 2]
    tqdm.write("in between")
    assert capsys.readouterr().out == "in between\n"
    with pytest.raises(TypeError, match="colur"):
        tqdm([1], colur="green")
    assert list(tqdm([1], disable=True)) == [1]
    assert len(heard.said) == 3
    assert tqdm(total=0)
