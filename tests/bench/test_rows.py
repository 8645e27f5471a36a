"""Owns the rows of the benchmark: how they are judged, kept, tabled and plotted."""

from __future__ import annotations

import json
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from bench import plot, results, table
from bench.measure import Cost, Measured, summarise
from bench.rows import OURS, Row, by_cpu, missing, plain, refs_each, seconds_each, seconds_whole, timed
from bench.w4_memory import growth, line


def measured(wall_s: float, ref_s: float = 0.006, cpu_s: float = 1.0) -> Measured:
    return Measured(summarise([Cost(cpu_s, wall_s)]), summarise([Cost(0.01, ref_s)]), load=0.5)


def row(size: int, x_wall: float, system: str = OURS, workload: str = "W1", case: str = "warm") -> Row:
    return Row(workload=workload, case=case, system=system, size=size, value=1.0, each=0.1, x_wall=x_wall)


# Judging


@pytest.mark.parametrize(("wall_s", "met"), [(2.3, True), (2.5, False)])
def test_a_target_in_references_is_for_one_job(wall_s: float, met: bool) -> None:
    assert timed("W1", "warm", OURS, 1_000, measured(wall_s), refs_each(0.4)).met is met


def test_a_target_in_seconds_moves_with_the_machine() -> None:
    """Twice as slow a machine may take twice as long."""
    assert timed("W3", "again", OURS, 1_000, measured(0.3), seconds_whole(0.2)).met is False
    assert timed("W3", "again", OURS, 1_000, measured(0.3, ref_s=0.012), seconds_whole(0.2)).met is True
    assert timed("W2", "chain", OURS, 100, measured(0.34), seconds_each(0.0035)).met is True
    assert timed("W2", "chain", OURS, 100, measured(0.36), seconds_each(0.0035)).met is False


def test_cpu_time_and_memory_are_judged_as_they_are() -> None:
    cost = summarise([Cost(0.05, 0.1)])
    assert by_cpu("W5", "import", OURS, 1, cost, 0.0, "<= 40 ms", 0.040).met is False
    assert plain("W4", "waiting", OURS, 10, "MB", [30, 34, 99], 0.0, "<= 35 MB", 35.0).met is True


def test_a_row_without_a_target_or_a_figure_is_not_judged() -> None:
    assert timed("W1", "warm", "peer", 10, measured(1.0)).met is None
    assert missing("W1", "warm", OURS, 10, "failed: x").met is None


def test_memory_is_a_base_and_what_each_job_adds() -> None:
    assert line([0, 100, 200], [10.0, 11.0, 12.0]) == pytest.approx((10.0, 0.01))
    (found,) = growth("waiting", OURS, {1_024: 31.0, 2_048: 32.0})
    assert found.note == "30.0 MB +1.00 kB a job"
    assert list(growth("waiting", OURS, {1_024: 31.0})) == []


# Keeping


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    around = {"started": "2026-11-15T10:11:12+00:00", "scale": "tiny"}
    rows = (
        timed("W1", "warm", OURS, 10, measured(1.0), refs_each(0.4)),
        missing("W1", "x", "p", 1, "absent"),
    )
    written = results.Result(around, rows, ("W6, why: peers",))
    page = results.write(written, tmp_path)
    assert page.name == "20261115T101112-tiny.md"
    assert results.read(tmp_path / "20261115T101112-tiny.json") == written
    assert (tmp_path / "20261115T101112-tiny-W1.svg").exists()
    assert not (tmp_path / "20261115T101112-tiny-W2.svg").exists()


def test_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(json.dumps({"rows": []}))
    with pytest.raises(ValueError, match="run the benchmark again"):
        results.read(tmp_path / "old.json")


def test_rows_go_by_workload_and_stay_in_order_within_one() -> None:
    rows = [row(1, 1.0, workload="W2"), row(2, 1.0), row(1, 1.0, "peer", "W2"), row(1, 1.0)]
    found = results.in_order(rows, ["W1", "W2"])
    assert [(r.workload, r.system, r.size) for r in found] == [
        ("W1", OURS, 2),
        ("W1", OURS, 1),
        ("W2", OURS, 1),
        ("W2", "peer", 1),
    ]


# Tables


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.5, "1.5 s"), (0.00251, "2.51 ms"), (3.2e-6, "3.2 us"), (5e-9, "5 ns")]
)
def test_a_time_is_told_in_a_fitting_unit(seconds: float, text: str) -> None:
    assert table.time_text(seconds) == text


def test_the_page_shows_figures_targets_and_what_is_missing() -> None:
    hit = timed("W1", "warm", OURS, 1_000, measured(1.2), refs_each(0.4))
    lost = timed("W1", "spawn", OURS, 1_000, measured(12.0), refs_each(1.1))
    absent = missing("W1", "no-op job", "peer", 10, "absent: could not be installed (a|b)")
    text = table.page([hit, lost, absent], {"cores": 2, "peers": {"make": "4.3"}}, ["W6, why: peers"])
    assert (
        "| W1 | warm | tenuto | 1,000 | 1.2 s | 1.2 ms | 0.2 | 0.1 | 0% | 0.5 | <= 0.4 x ref | hit |  |"
        in text
    )
    assert "| <= 1.1 x ref | MISSED |" in text
    assert "absent: could not be installed (a/b)" in text
    assert "1 of 2 figures with a target hit it; missed: W1 spawn at 1,000." in text
    assert "- peers: make 4.3" in text
    assert "- W6, why: peers" in text


def test_every_line_of_a_table_has_the_same_columns() -> None:
    text = table.columns([row(1, 1.0), missing("W1", "a|b", "p", 1, "x | y")])
    assert len({line.count("|") for line in text.splitlines()}) == 1


# Plots


def test_a_plot_has_a_line_for_each_case_of_ours_and_each_peer() -> None:
    rows = [row(1_000, 0.05), row(100, 0.5), row(100, 30.0, "peer <&>"), row(100, 9.0, workload="W2")]
    lines = {line.label: line.points for line in plot.series_of(rows, "W1")}
    assert lines == {"tenuto: warm": ((100, 0.5), (1_000, 0.05)), "peer <&>": ((100, 30.0),)}
    drawn = plot.svg(rows, "W1", "Throughput & more")
    assert drawn is not None
    texts = [element.text for element in xml.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert {"peer <&>", "tenuto: warm", "Throughput & more", "0.1", "1", "10", "100", "1,000"} <= set(texts)


def test_without_figures_there_is_no_plot() -> None:
    assert plot.svg([missing("W1", "warm", OURS, 1, "failed")], "W1", "title") is None


def test_equal_steps_of_ten_are_equally_far_apart() -> None:
    axis = plot.Axis(1, 1_000, 0, 300)
    assert [axis.at(value) for value in (1, 10, 100, 1_000)] == pytest.approx([0, 100, 200, 300])
    assert axis.ticks() == [1, 10, 100, 1_000]
    assert plot.Axis(1, 60, 0, 300).ticks() == [1, 2, 5, 10, 20, 50]


def test_an_axis_spans_a_decade_at_least() -> None:
    axis = plot.axis([5.0], 0, 100)
    assert axis.high / axis.low >= 10
    assert axis.low < 5.0 < axis.high


@pytest.mark.parametrize(
    ("wanted", "placed"),
    [([10, 11, 50], [10, 20, 50]), ([95, 96, 97], [80, 90, 100]), ([], []), ([-5], [0])],
)
def test_labels_keep_apart_and_inside(wanted: list[float], placed: list[float]) -> None:
    assert plot.spread_out(wanted, 10, 0, 100) == placed
