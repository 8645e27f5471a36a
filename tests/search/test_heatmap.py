"""34: the picture of an archive, in both forms, kept as golden frames."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pytest

from tenuto.cli.commands.evolve import open_reporter
from tenuto.cli.search_screen import LiveReporter, archive_map
from tenuto.jobs.drawing import spark_line
from tenuto.jobs.screen import Screen, Size
from tenuto.jobs.text import width
from tenuto.search.archive import Archive
from tenuto.search.reporter import SearchProgress, SearchResult
from tenuto.testing.clock import FakeClock

GOLDEN = Path(__file__).with_name("golden")


def archive(maximize: bool = True) -> Archive:
    made = Archive([6, 4], [(0, 6), (0, 4)], maximize=maximize)
    for number, (x, y) in enumerate([(0, 0), (1, 1), (2, 2), (3, 3), (5, 0)], 1):
        made.add(number, {}, float(number), [x + 0.5, y + 0.5])
    return made


def test_34_a_map_without_colours_is_shades() -> None:
    rows = archive_map(archive(), 6, 2, parents=[archive().index([5.5, 0.5])])
    assert [row.plain for row in rows] == ["  +#  ", ".-   o"]


def test_34_a_map_with_colours_has_the_same_width() -> None:
    for row in archive_map(archive(), 24, 8):
        assert len(re.sub(r"\x1b\[[0-9;]*m", "", row.painted)) == len(row.plain) == 24
        assert row.painted.endswith("\x1b[0m")


def test_34_the_best_is_lightest_where_smaller_is_better() -> None:
    assert [row.plain for row in archive_map(archive(maximize=False), 6, 2)] == ["  +-  ", "@#   ."]


def test_34_more_cells_than_places_show_the_best_of_each() -> None:
    many = Archive([100, 100], [(0, 1), (0, 1)])
    many.add(1, {}, 1.0, [0.0, 0.0])
    many.add(2, {}, 0.0, [0.99, 0.99])
    assert [row.plain for row in archive_map(many, 4, 2)] == ["   .", "@   "]


def test_34_a_spark_line_fits() -> None:
    assert spark_line([0, 1, 2, 3], 10) == "▁▃▆█"
    assert len(spark_line(list(range(1000)), 12)) == 12
    assert spark_line([], 5) == ""
    assert spark_line([2, 2], 5) == "▁▁"


def progress(**changes: object) -> SearchProgress:
    values: dict[str, object] = {
        "name": "pack\x1b[31m",
        "state": "RUNNING",
        "scheduled": 12,
        "max_total": 100,
        "ended": 10,
        "in_flight": 2,
        "running": 2,
        "succeeded": 8,
        "failed": 2,
        "reused": 1,
        "cost": 1.5,
        "elapsed_s": 4.0,
        "best_number": 5,
        "best_objective": 5.0,
        "archive": archive(),
        "slots": 2,
        "failures": {"\x1b]0;owned\x07 [b]x[/b]": 2},
        **changes,
    }
    return SearchProgress(**values)  # type: ignore[arg-type]


def drawn(columns: int, rows: int, color: bool = False) -> str:
    stream = io.StringIO()
    screen = Screen(stream, color=color, size=lambda _: Size(columns, rows))
    reporter = LiveReporter(screen, clock=FakeClock())
    reporter.started(progress())
    return stream.getvalue()


def test_34_a_frame_fits_and_shows_hostile_text_as_text() -> None:
    for columns, rows in ((80, 24), (200, 60), (40, 10)):
        frame = drawn(columns, rows)
        lines = frame.split("\n")
        assert len(lines) < rows
        assert all(width(line) <= columns for line in lines)
        assert "\x1b]0" not in frame
        assert "\x1b[31m" not in frame


@pytest.mark.parametrize("color", [True, False], ids=["color", "plain"])
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (200, 60)])
def test_34_a_frame_is_golden(columns: int, rows: int, color: bool) -> None:
    """Looked at by a person; drawn anew by deleting the file and running this with GOLDEN=1."""
    path = GOLDEN / f"{columns}x{rows}-{'color' if color else 'plain'}.txt"
    frame = drawn(columns, rows, color=color)
    if os.environ.get("GOLDEN") and not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(frame, "utf-8")
    assert frame == path.read_text("utf-8")


def test_34_the_frame_of_a_small_terminal_is_golden() -> None:
    frame = [line.rstrip() for line in drawn(80, 24).split("\n")]
    side = [re.sub(r"^[ .:=+*#%@o-]{6,36}(?=   )", "", line).strip() for line in frame]
    assert "candidates  10 of 100" in side
    assert "in flight   2 (2 running, 2 slots)" in side
    assert "best        5 (#5)" in side
    assert "cells       5 of 24" in side
    assert "rate        2.5/s" in side
    assert "time        4 s, 36 s left" in side


def test_34_the_end_leaves_the_picture_and_the_last_line() -> None:
    stream = io.StringIO()
    reporter = LiveReporter(Screen(stream, color=True, size=lambda _: Size(80, 24)), clock=FakeClock())
    result = SearchResult("pack", "ENDED", "TOTAL", None, 10, 8, 2, 1, 1.5, None, archive())
    reporter.started(progress())
    reporter.ended(progress(), result)
    last = stream.getvalue().rstrip("\n").split("\n")[-1]
    assert (
        last
        == "pack: ended (TOTAL): 10 candidates, 8 succeeded, 2 failed, 1 reused; 5 of 24 cells; QD 15; 4 s"
    )


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("term", "no_color", "is_live"),
    [
        ("xterm-256color", None, True),
        ("xterm-256color", "1", True),
        ("dumb", None, False),
        (None, None, False),
    ],
)
def test_34_the_face_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, term: str | None, no_color: str | None, is_live: bool
) -> None:
    for name, value in (("TERM", term), ("NO_COLOR", no_color)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    reporter = open_reporter()
    assert (reporter is not None) is is_live
    if reporter is not None:
        reporter.started(progress())
        frame = stream.getvalue()
        assert "candidates" in frame
        assert bool(re.search(r"\x1b\[[0-9;]*[34]8;", frame)) is (no_color is None)
    monkeypatch.setattr("sys.stderr", io.StringIO())  # a pipe
    assert open_reporter() is None
