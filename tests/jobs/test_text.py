"""Owns what reaches a terminal: no outside string acts on it, widths hold, durations read well."""

from __future__ import annotations

import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tenuto.jobs.text import duration, fit, safe, safe_lines, there_are, truncate, width

ATTACKS = {
    "colour": "\x1b[31mred\x1b[0m",
    "clear": "\x1b[2J\x1b[H",
    "title": "\x1b]0;owned\x07",
    "title, C1": "\x9d0;owned\x9c",
    "clipboard": "\x1b]52;c;cm0gLXJm\x1b\\",
    "link": "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "device query": "\x1b[6n\x1bP$q\x1b\\",
    "overwrite": "rm -rf /\rharmless ",
    "backspace": "evil\b\b\b\bgood",
    "bidi": "\u202egpj.exe\u2066x\u2069\u061c\u200f",
    "line separators": "a\u2028b\u2029c\x85d\x0be\x0cf",
    "newline": "job\nERROR: forged line",
    "surrogate": "\udc9b31m",
    "invisible": "\u200b\ufeff\U000e0041\u00ad",
    "bell": "\x07\x00\x7f",
}
VISIBLE = "\x1b\x9b\x9d\x07\r\b\n\u202e\u2066\u2028\x85\udc9b\u200b"


def acts(text: str, allowed: str = "") -> list[str]:
    """The characters that a terminal would obey."""
    return [
        c
        for c in text
        if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and c not in "\u200c\u200d" + allowed
    ]


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_nothing_acts_on_the_terminal(attack: str) -> None:
    assert not acts(safe(attack))
    assert not acts(safe_lines(attack), "\n\t")
    safe(attack).encode()  # a lone surrogate would otherwise break the print


def test_hidden_characters_are_seen() -> None:
    assert safe("a\x1b]0;t\x07\r\u202eb\U000e0041\tc") == "a\\x1b]0;t\\x07\\r\\u202eb\\U000e0041\\tc"


@given(st.text(st.characters(codec=None) | st.sampled_from(VISIBLE)))
def test_any_text_becomes_harmless_and_stays_so(text: str) -> None:
    assert not acts(safe(text))
    assert safe(safe(text)) == safe(text)
    assert not acts(safe_lines(text), "\n\t")


@pytest.mark.parametrize("text", ["plain", "naïve café", "日本語", "می‌خواهم", "👩‍🔬", "עברית"])
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert safe(text) == text


def test_logs_lose_colours_and_keep_lines() -> None:
    assert safe_lines("\x1b[1;32mok\x1b[0m\tx\r\n10%\r20%\n\x1b[2J") == "ok\tx\n10%\\r20%\n\\x1b[2J"


# -- widths ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "cells"),
    [("", 0), ("abc", 3), ("日本", 4), ("e\u0301", 1), ("❤", 1), ("❤\ufe0f", 2), ("ｱ", 1), ("Ａ", 2)],
)
def test_width(text: str, cells: int) -> None:
    assert width(text) == cells


@pytest.mark.parametrize(
    ("text", "cells", "cut"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdef", 5, "abcd…"),
        ("abcdef", 1, "…"),
        ("abcdef", 0, ""),
        ("abcdef", -3, ""),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("e\u0301e\u0301e\u0301", 2, "e\u0301…"),
        ("❤\u0301\ufe0fa", 2, "❤\u0301…"),
    ],
)
def test_truncation(text: str, cells: int, cut: str) -> None:
    assert truncate(text, cells) == cut


@given(st.text(), st.integers(0, 30))
def test_a_cut_text_fits(text: str, cells: int) -> None:
    cut = truncate(safe(text), cells)
    assert width(cut) <= cells
    assert width(fit(safe(text), cells)) == cells


# Of blocks that Unicode settled long ago: Rich has tables of its own, newer than those of an old Python.
@given(st.text("aé ßΩשع日本語한글カｱＡ❤🔬🎉\u0301\ufe0f\u200d"), st.integers(0, 30))
def test_a_cut_text_fits_also_by_richs_count(text: str, cells: int) -> None:
    assert cell_len(truncate(safe(text), cells)) <= cells


# -- durations ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
        (-5, "0ms"),
        (0, "0ms"),
        (0.0853, "85ms"),
        (0.9996, "1.0s"),
        (4.21, "4.2s"),
        (9.97, "10s"),
        (59.4, "59s"),
        (59.6, "1m00s"),
        (187, "3m07s"),
        (3599.7, "1h00m"),
        (7500, "2h05m"),
        (86_399.9, "1d00h"),
        (4 * 86_400 + 3 * 3600, "4d03h"),
        (1e300, ">999d"),
    ],
)
def test_durations_read_well(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@given(st.floats())
def test_a_duration_takes_at_most_seven_cells(seconds: float) -> None:
    assert width(duration(seconds)) <= 7


def test_a_message_names_few_of_many_and_the_nearest_first() -> None:
    assert there_are("los", ["loss", "lr", "loss"]) == "there are: loss, lr"
    assert there_are("loss", []) == "there are: none"
    many = there_are("name237", (f"name{number}" for number in range(300)))
    assert many.startswith("there are: name23")
    assert many.endswith(" and 280 more")
