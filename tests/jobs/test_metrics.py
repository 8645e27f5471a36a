"""Owns the metrics of jobs over time: what a payload writes, what the one reader reads, and their bounds."""

from __future__ import annotations

import itertools
import json
import math
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tenuto import log_metrics
from tenuto.errors import InvalidValue
from tenuto.jobs.metrics import MetricsReader, metric_column, metric_rows, points_in
from tenuto.jobs.row import Row
from tenuto.launchers.payload.assignment import Assignment
from tenuto.launchers.payload.metrics_log import BATCH_S, MetricsLog
from tenuto.lifecycle.owner_names import Door
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.points import MOST_POINTS, Curves, MetricPoint, Points, line_of, thinned

from .workspaces import MACHINE


def log_of(directory: Path, attempt: int = 1, *, goes_on: bool = False) -> MetricsLog:
    return MetricsLog(
        Assignment(str(directory), "Train", str(directory), "my.Train", "a", attempt, machine=MACHINE),
        goes_on=goes_on,
    )


def logged(directory: Path) -> Points:
    return MetricsReader(MACHINE.files).of_job(JobPaths(str(directory), "Train"))


def values(directory: Path, name: str = "loss") -> dict[int, float]:
    return {point.step: point.value for point in logged(directory)[name]}


def eventually(condition: Any) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# Writing


def test_points_are_written_while_the_job_runs_and_at_its_end(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    before = time.monotonic()
    log.log({"loss": 0.5, "accuracy": 0.1}, None)
    eventually((tmp_path / "metrics.jsonl").exists)
    assert time.monotonic() - before < 2 * BATCH_S + 1
    log.log({"loss": 0.25}, None)
    log.log({"loss": 0.125}, 10)
    log.log({"loss": 0.1}, None)
    log.close()
    assert values(tmp_path) == {0: 0.5, 1: 0.25, 10: 0.125, 11: 0.1}
    assert values(tmp_path, "accuracy") == {0: 0.1}
    log.log({"loss": 0.05}, None)  # by a handler of `atexit`
    assert values(tmp_path)[12] == 0.05


def test_each_line_is_json_with_step_time_name_and_value(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    log.log({'lo"ss': 1.0, "nan": math.nan, "inf": math.inf, "minus": -math.inf}, 3)
    log.close()
    lines = [
        json.loads(line, parse_constant=pytest.fail)
        for line in (tmp_path / "metrics.jsonl").read_text().splitlines()
    ]
    assert [(line["name"], line["step"], line["value"]) for line in lines] == [
        ('lo"ss', 3, 1.0), ("nan", 3, "nan"), ("inf", 3, "inf"), ("minus", 3, "-inf")
    ]  # fmt: skip
    assert all(abs(line["time"] - time.time()) < 60 for line in lines)
    read = logged(tmp_path)
    assert math.isnan(read["nan"][0].value)
    assert [read[name][0].value for name in ("inf", "minus")] == [math.inf, -math.inf]


def test_a_later_attempt_counts_where_a_step_comes_twice(tmp_path: Path) -> None:
    first, second = log_of(tmp_path), None
    for step in range(6):
        first.log({"loss": 1.0}, step)
    first.close()
    second = log_of(tmp_path, 2)
    for step in range(4, 9):
        second.log({"loss": 2.0}, step)
    second.close()
    points = logged(tmp_path)["loss"]
    assert [point.step for point in points] == list(range(9))
    assert [point.value for point in points] == [1.0] * 4 + [2.0] * 5
    assert [point.attempt for point in points] == [1] * 4 + [2] * 5


@pytest.mark.parametrize(("goes_on", "steps"), [(True, [0, 1, 2, 3]), (False, [0, 1])])
def test_a_resumed_attempt_counts_on_and_a_fresh_one_begins_anew(
    tmp_path: Path, goes_on: bool, steps: list[int]
) -> None:
    for attempt in (1, 2):
        log = log_of(tmp_path, attempt, goes_on=goes_on)
        log.log({"loss": 1.0}, None)
        log.log({"loss": 0.5}, None)
        log.close()
    assert list(values(tmp_path)) == steps


def test_a_line_that_a_crash_tore_takes_no_other_with_it(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"name": "loss", "step": 0, "value": 1}\n{"name": "lo')
    log = log_of(tmp_path, 2)
    log.log({"loss": 2.0}, 1)
    log.close()
    assert values(tmp_path) == {0: 1.0, 1: 2.0}


def test_at_most_ten_thousand_points_of_a_name_are_kept_evenly(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    count = 35_000
    for step in range(count):
        log.log({"loss": -5.0 if step == 12_345 else 7.0 if step == 23_456 else 1 / (step + 1)}, step)
        if step % 4_000 == 0:
            log._write_batch()
    log.close()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert MOST_POINTS // 4 < len(lines) <= MOST_POINTS
    kept = values(tmp_path)
    assert kept[0] == 1.0
    assert kept[count - 1] == 1 / count
    assert (kept[12_345], kept[23_456]) == (-5.0, 7.0)
    steps = sorted(kept)
    gaps = [after - before for before, after in itertools.pairwise(steps)]
    assert max(gaps) <= 16


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_hides_no_extreme(tmp_path: Path, odd: float) -> None:
    """Neither of an earlier attempt nor of this one."""
    earlier = log_of(tmp_path)
    earlier.log({"loss": odd}, 0)
    earlier.close()
    log = log_of(tmp_path, 2)
    log.log({"loss": odd}, 1)
    log._write_batch()
    for step in range(2, 35_000):
        log.log({"loss": -5.0 if step == 32_345 else 7.0 if step == 33_457 else 1.0}, step)
        if step % 4_000 == 0:
            log._write_batch()
    log.close()
    kept = values(tmp_path)
    assert (kept.get(32_345), kept.get(33_457)) == (-5.0, 7.0)


def test_the_last_value_is_that_of_the_last_attempt(tmp_path: Path) -> None:
    for attempt, steps, value in ((1, 9, 1.0), (2, 3, 2.0)):
        log = log_of(tmp_path, attempt)
        for step in range(steps):
            log.log({"loss": value}, step)
        log.close()
    assert metric_column("loss").of(logged(tmp_path)) == 2.0
    assert metric_column("loss:min").of(logged(tmp_path)) == 1.0


def test_a_file_with_lines_of_the_tasks_own_is_never_written_anew(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 1, "mine": true}\n')
    log = log_of(tmp_path)
    for step in range(MOST_POINTS + 10):
        log.log({"loss": 1.0}, step)
    log.close()
    assert (tmp_path / "metrics.jsonl").read_text().startswith('{"epoch": 1, "mine": true}\n')
    assert MOST_POINTS - 2 <= len(values(tmp_path)) <= MOST_POINTS


def test_a_forked_process_writes_points_of_its_own(tmp_path: Path) -> None:
    from tenuto.launchers.payload.python_task import RunningJob

    job = RunningJob(Assignment(str(tmp_path), "Train", str(tmp_path), "my.Train", "a", 1, machine=MACHINE))
    job.log_metrics({"loss": 1.0}, 0)
    child = os.fork()
    if not child:
        job.log_metrics({"child": 2.0}, 0)
        job.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    job.close()
    assert {name: len(points) for name, points in logged(tmp_path).items()} == {
        "loss": 1,
        "child": 1,
    }


def test_a_forked_child_that_ends_at_once_keeps_its_points(tmp_path: Path) -> None:
    from tenuto.launchers.payload.python_task import RunningJob

    job = RunningJob(Assignment(str(tmp_path), "Train", str(tmp_path), "my.Train", "a", 1, machine=MACHINE))
    job.log_metrics({"loss": 1.0}, 0)
    job.close()
    child = multiprocessing.get_context("fork").Process(target=job.log_metrics, args=({"child": 2.0}, 0))
    child.start()
    child.join()
    assert {name: len(points) for name, points in logged(tmp_path).items()} == {"loss": 1, "child": 1}


def test_a_point_that_cannot_be_written_is_said_once_and_fails_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    log = log_of(tmp_path)
    for _ in range(3):
        log.log({"loss": 1.0}, None)
        log._write_batch()
    log.close()
    assert capsys.readouterr().err.count("metrics cannot be recorded") == 1
    assert logged(tmp_path) == {}


def test_only_the_first_process_of_a_distributed_program_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    log = log_of(tmp_path)
    log.log({"loss": 1.0}, None)
    log.close()
    assert not (tmp_path / "metrics.jsonl").exists()


def test_a_call_takes_less_than_20_us(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    best = min(_timed(log) for _ in range(5))
    log.close()
    assert best < 20e-6


def _timed(log: MetricsLog) -> float:
    begun = time.perf_counter()
    for _ in range(1_000):
        log.log({"loss": 0.31}, None)
    return (time.perf_counter() - begun) / 1_000


# Arguments


class _Tensor:
    def __float__(self) -> float:
        return 3.5


class _Index:
    def __index__(self) -> int:
        return 3


def test_outside_of_a_job_only_the_arguments_are_checked() -> None:
    log_metrics({"loss": 0.5, "n": 3, "ok": True, "t": _Tensor(), "huge": 10**400}, step=_Index())  # type: ignore[arg-type]
    assert log_metrics({}) is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("metrics", "step"),
    [
        ([("loss", 1)], None),
        ("loss", None),
        (None, None),
        ({"": 1.0}, None),
        ({1: 1.0}, None),
        ({"a\nb": 1.0}, None),
        ({"x" * 201: 1.0}, None),
        ({"loss": "0.3"}, None),
        ({"loss": None}, None),
        ({"loss": [1, 2]}, None),
        ({"loss": 1j}, None),
        ({"loss": 1.0}, -1),
        ({"loss": 1.0}, 1 << 53),
        ({"loss": 1.0}, 1.5),
        ({"loss": 1.0}, "1"),
        ({"loss": 1.0}, True),
    ],
)
def test_a_value_that_is_no_metric_is_refused_at_the_call(metrics: Any, step: Any) -> None:
    with pytest.raises(InvalidValue, match=r"log_metrics\("):
        log_metrics(metrics, step)


# Reading


def test_lines_of_other_programs_may_leave_out_step_and_time() -> None:
    found = points_in(
        b'{"name": "loss", "value": 1}\n{"name": "loss", "value": "NaN"}\n'
        b'{"name": "loss", "step": 7.0, "value": 2, "time": "2026-01-01T00:00:00+00:00"}\n'
        b'{"name": "loss", "value": Infinity, "time": 5}\n'
    )["loss"]
    assert [point.step for point in found] == [0, 1, 7, 8]
    assert [point.time for point in found] == [None, None, 1767225600.0, 5.0]
    assert found[3].value == math.inf


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"no json",
        b"[1]",
        b"1],[2",
        b'{"name": 3, "value": 1}',
        b'{"name": "loss"}',
        b'{"name": "loss", "value": "high"}',
        b'{"name": "loss", "value": [1]}',
        b'{"name": "loss", "value": 1, "step": 1.5}',
        b'{"name": "loss", "value": 1, "step": 9007199254740992}',
        b'{"name": "", "value": 1}',
        b"\xff\xfe",
    ],
)
def test_a_line_that_is_no_point_is_passed_over(line: bytes) -> None:
    good = b'{"name": "loss", "step": 3, "value": 1}'
    assert points_in(b"\n".join([good, line, good])) == {"loss": [MetricPoint(3, None, 1.0)]}


def test_a_reader_reads_on_and_sees_a_file_that_was_written_anew(tmp_path: Path) -> None:
    path, reader = tmp_path / "metrics.jsonl", MetricsReader(MACHINE.files)
    assert reader.read(str(path)) == {}
    path.write_text('{"name": "loss", "value": 1}\n{"name": "lo')
    assert len(reader.read(str(path))["loss"]) == 1
    with path.open("a") as file:
        file.write('ss", "value": 2}\n')
    assert [point.value for point in reader.read(str(path))["loss"]] == [1.0, 2.0]
    with path.open("a") as file:  # a program may leave out the end of its last line
        file.write('{"name": "loss", "value": 4}')
    assert [point.value for point in reader.read(str(path))["loss"]] == [1.0, 2.0, 4.0]
    with path.open("a") as file:
        file.write('\n{"name": "loss", "value": 5}\n')
    assert [point.value for point in reader.read(str(path))["loss"]] == [1.0, 2.0, 4.0, 5.0]
    path.with_suffix(".new").write_text('{"name": "loss", "value": 3}\n')
    path.with_suffix(".new").rename(path)
    assert [point.value for point in reader.read(str(path))["loss"]] == [3.0]
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert reader.read(str(path)) == {}


def test_thinning_keeps_both_ends_and_both_extremes() -> None:
    points = [MetricPoint(step, None, math.nan if step % 7 == 0 else math.sin(step)) for step in range(1_000)]
    shown = thinned(points, 50)
    assert len(shown) <= 50
    assert (shown[0], shown[-1]) == (points[0], points[-1])
    finite = [point.value for point in points if math.isfinite(point.value)]
    assert {min(finite), max(finite)} <= {point.value for point in shown}
    assert len(thinned(points, 1)) <= 4
    assert thinned([MetricPoint(step, None, math.nan) for step in range(9)], 4)[0].step == 0


def test_rows_have_the_same_columns_and_tags_do_not_hide_them() -> None:
    one = Row(
        "experiments:t/a", "experiments:x/1", Door.EXPERIMENTS, "t", "a", tags={"lr": "1", "value": "z"}
    )
    two = one._replace(key="experiments:t/b", id="b", tags={})
    rows = list(
        metric_rows(
            [(one, {"loss": [MetricPoint(0, 1.0, 0.5)]}), (two, {"loss": [MetricPoint(0, 1.0, 2.5)]})]
        )
    )
    assert [row["value"] for row in rows] == [0.5, 2.5]
    assert rows[0]["tag.value"] == "z"
    assert rows[0].keys() == rows[1].keys()
    assert not list(metric_rows([(one, {"loss": [MetricPoint(0, 1.0, 0.5)]})], ["accuracy"]))


def test_a_reader_of_very_many_points_remembers_few_and_keeps_them_even() -> None:
    curves = Curves(most=1_000)
    for begin in range(0, 5_000, 500):
        lines = [
            line_of("loss", MetricPoint(n, None, 7.0 if n == 77 else n / 1e6))
            for n in range(begin, begin + 500)
        ]
        curves.add(b"".join(lines))
    assert len(curves.points["loss"]) <= 1_000
    for most in (100, 10):
        found = curves.curve("loss", most)
        assert len(found) <= most
        assert (found[0].step, found[-1].step) == (0, 4_999)
        assert max(point.value for point in found) == 7.0
        apart = [after.step - before.step for before, after in itertools.pairwise(found) if before.step != 77]
        assert max(apart) <= 2.2 * 5_000 / most
