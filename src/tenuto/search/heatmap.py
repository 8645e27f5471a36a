"""The heat map of an archive in half blocks: two cells of the picture in each cell of the terminal.
Pure: makes text; knows no terminal.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from tenuto.search.archive import Archive

# Cividis, which people see alike however they see colours; from dark to light, of the 256 colours.
PALETTE = (17, 18, 24, 60, 59, 66, 102, 101, 137, 143, 179, 185, 221, 227)
PARENT = 231
EMPTY = 236
SHADES = " .:-=+*#%@"
_RESET = "\x1b[0m"


class HeatmapRow(NamedTuple):
    """One line of the picture: plain, and with colours."""

    plain: str
    painted: str


class Pixel(NamedTuple):
    """One cell of the picture: how good its elite is, from 0 to 1; None if it is empty."""

    level: float | None = None
    is_parent: bool = False


def heat_map(archive: Archive, columns: int, rows: int, parents: Collection[int] = ()) -> list[HeatmapRow]:
    """The picture of an archive in so many columns and rows; the second measure grows upwards."""
    pixels = _pixels(archive, columns, 2 * rows, frozenset(parents))
    if len(pixels) % 2:
        pixels.append([Pixel()] * len(pixels[0]))
    lines = []
    for at in range(0, len(pixels), 2):
        upper, lower = pixels[at], pixels[at + 1]
        pairs = list(zip(upper, lower, strict=True))
        lines.append(HeatmapRow("".join(_shade(a, b) for a, b in pairs), _painted(pairs)))
    return lines


def _pixels(archive: Archive, columns: int, rows: int, parents: frozenset[int]) -> list[list[Pixel]]:
    width, height = _size(archive)
    levels: dict[tuple[int, int], Pixel] = {}
    scale = _Scale(archive)
    for elite in archive.elites():
        position = archive.position(elite.cell)
        x = position[0]
        y = position[1] if len(position) > 1 else 0
        before = levels.get((x, y), Pixel())
        level = max(scale.level(elite.objective), before.level or 0.0)
        levels[x, y] = Pixel(level, elite.cell in parents or before.is_parent)
    across, down = _fit(width, columns), _fit(height, rows)
    return [
        [_best(levels, xs, ys) for xs in across]
        for ys in reversed(down)  # the largest at the top
    ]


def _size(archive: Archive) -> tuple[int, int]:
    shape = archive.shape
    return shape[0], shape[1] if len(shape) > 1 else 1


def _fit(count: int, room: int) -> list[range]:
    """Which cells each pixel shows: several where there are too many, one repeated where there are few."""
    if count <= room:
        times = min(max(1, room // count), 6)
        return [range(at, at + 1) for at in range(count) for _ in range(times)]
    return [range(at * count // room, (at + 1) * count // room) for at in range(room)]


def _best(levels: dict[tuple[int, int], Pixel], xs: range, ys: range) -> Pixel:
    found = [levels[x, y] for x in xs for y in ys if (x, y) in levels]
    if not found:
        return Pixel()
    return Pixel(max(pixel.level or 0.0 for pixel in found), any(pixel.is_parent for pixel in found))


class _Scale:
    """From the worst elite to the best."""

    def __init__(self, archive: Archive) -> None:
        objectives = [elite.objective for elite in archive.elites()]
        self._low = min(objectives, default=0.0)
        self._span = max(objectives, default=0.0) - self._low
        best = archive.best
        self._is_flipped = best is not None and self._span > 0 and best.objective == self._low

    def level(self, objective: float) -> float:
        level = (objective - self._low) / self._span if self._span > 0 else 1.0
        return 1 - level if self._is_flipped else level


def _shade(upper: Pixel, lower: Pixel) -> str:
    found = [pixel.level for pixel in (upper, lower) if pixel.level is not None]
    if not found:
        return SHADES[0]
    if upper.is_parent or lower.is_parent:
        return "o"
    return SHADES[1 + min(int(max(found) * (len(SHADES) - 1)), len(SHADES) - 2)]


def _color(pixel: Pixel) -> int:
    if pixel.level is None:
        return EMPTY
    if pixel.is_parent:
        return PARENT
    return PALETTE[min(int(pixel.level * len(PALETTE)), len(PALETTE) - 1)]


def _painted(pairs: Sequence[tuple[Pixel, Pixel]]) -> str:
    parts = []
    before = None
    for upper, lower in pairs:
        colors = (_color(upper), _color(lower))
        if colors != before:
            parts.append(f"\x1b[38;5;{colors[0]};48;5;{colors[1]}m")
            before = colors
        parts.append("▀")
    return "".join([*parts, _RESET])


def spark_line(values: Sequence[float], columns: int) -> str:
    """The course of a number in one line of blocks."""
    signs = "▁▂▃▄▅▆▇█"
    if not values:
        return ""
    if len(values) > columns:
        values = [values[at * len(values) // columns] for at in range(columns - 1)] + [values[-1]]
    low, high = min(values), max(values)
    span = high - low
    return "".join(signs[min(int((v - low) / span * 8), 7)] if span > 0 else signs[0] for v in values)
