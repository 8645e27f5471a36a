"""Owns what the display shows, in windows of any size, and that it leaves no remains on a terminal."""

from __future__ import annotations

import io
from typing import Any, cast

import pytest

from tenuto.experiments.display import ASCII, UNICODE, Shown, ShownJob, rendered, signs_for
from tenuto.jobs.model import Counts
from tenuto.jobs.screen import Above, Screen, ScreenLine, Size, Style
from tenuto.jobs.text import width

MANY = Shown(
    name="a sweep with a long name",
    counts=Counts(waiting=7000, running=64, reused=1000, ran=1900, failed=30, stranded=6),
    remaining_s=4000.0,
    running=[ShownJob(f"Train lr=0.{number} 学习率", number / 64, 12.3, "epoch 3") for number in range(64)],
    failures=[f"Train lr=0.{number}: ValueError: no luck at all with this one" for number in range(20)],
)


@pytest.mark.parametrize("columns", [8, 20, 40, 80, 300])
@pytest.mark.parametrize("rows", [2, 3, 5, 24, 100])
@pytest.mark.parametrize("signs", [UNICODE, ASCII])
def test_the_display_fits_into_any_window(columns: int, rows: int, signs: Any) -> None:
    lines = rendered(MANY, Size(columns, rows), signs)
    assert 1 <= len(lines) <= min(rows - 1, 20)
    assert all(width(line.text) <= columns - 3 for line in lines)


def test_ten_thousand_jobs_are_shown_in_a_few_lines() -> None:
    lines = [line.text for line in rendered(MANY, Size(80, 24))]
    assert "2936/10000  29% ETA  1h06m" in lines[0]
    assert lines[1] == "30 failed · 64 running · 7000 waiting · 1900 ran · 1000 reused · 6 not run"
    assert "  and 53 more running" in lines
    assert sum(line.startswith("✗") for line in lines) == 3


def test_a_narrow_window_keeps_what_matters() -> None:
    lines = [line.text for line in rendered(MANY, Size(40, 24))]
    assert "2936/10000" in lines[0]
    assert "ETA" in lines[0]
    assert all("%" in line for line in lines[2:5])


def test_a_job_that_says_how_far_it_is_has_the_time_that_is_left() -> None:
    running = [ShownJob("Train", 0.25, 30.0, "epoch 3", 90.0), ShownJob("Data", None, 30.0, "")]
    lines = [line.text for line in rendered(Shown("x", Counts(running=2), running=running), Size(100, 24))]
    assert "ETA  1m30s  epoch 3" in lines[2]
    assert "ETA" not in lines[3]


def test_nothing_known_yet_is_no_error() -> None:
    assert rendered(Shown("x", Counts()), Size(80, 24))[0].text.startswith("x ")


def test_a_terminal_that_knows_only_ascii_gets_ascii() -> None:
    assert signs_for(io.TextIOWrapper(io.BytesIO(), encoding="ascii")) is ASCII
    assert signs_for(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")) is UNICODE


# -- the screen, on a terminal that wraps as real ones do -----------------------------------------------


class Terminal(io.StringIO):
    """Understands what a `Screen` writes; narrowed, it wraps its lines anew."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.lines = [""]
        self.columns = columns
        self.row = 0

    def write(self, text: str) -> int:
        at = 0
        while at < len(text):
            if text.startswith("\x1b[", at):
                end = next(i for i in range(at + 2, len(text)) if text[i].isalpha())
                code, number = text[end], text[at + 2 : end]
                if code == "A":
                    self.row -= int(number)
                elif code == "J":
                    assert self.row >= 0
                    self.lines[self.row :] = [""]
                at = end + 1
            elif text[at] == "\n":
                self.row += 1
                self.lines.insert(self.row, "")
                at += 1
            elif text[at] == "\r":
                at += 1
            else:
                self.lines[self.row] += text[at]
                at += 1
        return len(text)

    def narrow(self, columns: int) -> None:
        self.columns = columns
        self.lines = [
            line[i : i + columns] for line in self.lines for i in range(0, max(len(line), 1), columns)
        ]
        self.row = len(self.lines) - 1


def open_screen(columns: int) -> tuple[Terminal, Screen]:
    terminal = Terminal(columns)
    return terminal, Screen(cast("Any", terminal), color=False, size=lambda _: Size(terminal.columns, 24))


def test_lines_are_drawn_over_and_prints_go_above() -> None:
    terminal, screen = open_screen(40)
    screen.draw([ScreenLine("one"), ScreenLine("two")])
    Above(screen).write("printed\nhalf")
    screen.draw([ScreenLine("three")])
    assert terminal.lines == ["printed", "three"]
    screen.clear()
    assert terminal.lines == ["printed", ""]


def test_a_window_made_narrower_keeps_no_remains() -> None:
    terminal, screen = open_screen(60)
    Above(screen).write("printed\n")
    screen.draw([ScreenLine("a" * 57), ScreenLine("b" * 50), ScreenLine("c")])
    terminal.narrow(20)
    screen.draw([ScreenLine("a" * 57), ScreenLine("d")])
    assert terminal.lines == ["printed", "a" * 16 + "…", "d"]


def test_a_question_without_a_line_end_is_shown_when_it_is_flushed() -> None:
    terminal, screen = open_screen(40)
    above = Above(screen)
    above.write("really? ")
    assert terminal.lines == [""]
    above.flush()
    assert terminal.lines[0] == "really? "


def test_colours_come_only_where_they_are_wanted() -> None:
    for color in (True, False):
        stream = io.StringIO()
        Screen(stream, color=color, size=lambda _: Size(80, 24)).draw([ScreenLine("x", Style.BAD)])
        assert ("\x1b[31m" in stream.getvalue()) is color


def test_a_terminal_that_has_gone_is_no_error() -> None:
    refused: list[str] = []

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            refused.append(text)
            raise OSError(5, "Input/output error")

    screen = Screen(Gone(), size=lambda _: Size(80, 24))
    screen.draw([ScreenLine("x")])
    screen.print("y\n")
    screen.clear()
    assert any("x" in text for text in refused)
