"""Every view at every size, and over hostile strings: exact lines, no raise, nothing but printable text."""

from __future__ import annotations

import itertools

import pytest

from tenuto.jobs.text import safe
from tenuto.monitor.tui.cells import cells
from tenuto.monitor.tui.help import VIEWS
from tests.monitor.hostile import GROUP, HOSTILE, hostile_source
from tests.monitor.tui.conftest import SEARCH, SWEEP, Terminal, provided, show

SIZES = [(80, 24), (200, 50), (20, 5), (1, 1)]
MORE_SIZES = [(140, 40), (3, 2), (40, 12), (10, 60)]


def wrong(terminal: Terminal, sizes: list[tuple[int, int]] = SIZES) -> list[tuple[int, int]]:
    """The sizes at which the window has other lines and cells than it should, or text that is not safe."""
    drawn = {(room, height): terminal.app.frame(room, height) for room, height in sizes}
    return [
        (room, height)
        for (room, height), lines in drawn.items()
        if len(lines) != height
        or any(cells(line) != room for line in lines)
        or any(safe(one.text) != one.text for line in lines for one in line)
    ]


def test_every_view_is_drawn_at_every_size() -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.until("live ●")
        for group, number in itertools.product((None, SWEEP, SEARCH), range(len(VIEWS))):
            terminal.app.group = group
            await terminal.see(str(number + 1))
            if group is not None and number:
                terminal.app.group = group
                await terminal.answer()
            assert wrong(terminal, SIZES + MORE_SIZES) == []
            for key in ("tab", "enter", "?", "escape"):
                await terminal.press(key)
            assert wrong(terminal) == []

    with provided() as provider:
        show(provider, scenario)


@pytest.mark.parametrize("size", [(200, 50), (20, 5), (1, 1)])
def test_the_application_lives_at_a_size_and_q_ends_it_at_any_screen(size: tuple[int, int]) -> None:
    async def scenario(terminal: Terminal) -> None:
        for number in range(len(VIEWS)):
            await terminal.see(str(number + 1))
        for key in ("2", "K", "l", "/"):
            await terminal.press(key)
        await terminal.pilot.resize_terminal(80, 24)
        await terminal.until(lambda: len(terminal.app.text()) == 24)
        await terminal.press("escape")
        await terminal.press("q")
        assert terminal.app.return_code == 0
        assert not terminal.app.is_running

    with provided() as provider:
        show(provider, scenario, size)


def test_q_ends_every_screen() -> None:
    screens = [[str(number + 1)] for number in range(len(VIEWS))]
    screens += [["2", "enter"], ["2", "l"], ["2", "w"], ["?"], ["2", "G", "D"], ["2", "/"]]
    with provided() as provider:
        for keys in screens:

            async def scenario(terminal: Terminal, keys: list[str] = keys) -> None:
                for key in keys:
                    await terminal.see(key)
                await terminal.press("ctrl+c" if keys[-1] == "/" else "q")  # a filter takes q as text
                assert not terminal.app.is_running
                assert terminal.app.return_code == 0

            show(provider, scenario)


def test_16_hostile_strings_are_text_in_every_view() -> None:
    source = hostile_source()

    async def scenario(terminal: Terminal) -> None:
        for number in range(len(VIEWS)):
            await terminal.see(str(number + 1))
            assert wrong(terminal) == []
        await terminal.see("2")
        for place, text in enumerate(HOSTILE):
            if place % 5 == 0:
                await terminal.see("enter")
                await terminal.until(lambda text=text: safe(text)[:8] in terminal.text)
                assert wrong(terminal, SIZES[:1]) == []
                await terminal.press("v", "escape", "escape", "K", "n")
            await terminal.press("down")

    with provided(source) as provider:
        show(provider, scenario, group=GROUP)
