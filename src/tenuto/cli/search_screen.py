"""A search on a terminal, live: the heat map of its archive, the best, counts, rate, cost, failures.
Only shows; lines above the picture stay on the terminal.
"""

from __future__ import annotations

from collections.abc import Collection

from tenuto.clock import Clock, SystemClock
from tenuto.jobs.drawing import HeatmapRow, Pixel, heat_map, spark_line
from tenuto.jobs.screen import Screen, ScreenLine, Style
from tenuto.jobs.text import safe, truncate, width
from tenuto.search.archive import Archive
from tenuto.search.reporter import SearchProgress, SearchResult, duration, last_line, number, rate

DRAW_EVERY_S = 0.15
_GAP = 3
_SIDE = 36
_BELOW = 3


class LiveReporter:
    """Draws a search at the bottom of a terminal."""

    def __init__(self, screen: Screen, *, is_unicode: bool = True, clock: Clock | None = None) -> None:
        self._screen = screen
        self._is_unicode = is_unicode
        self._clock: Clock = clock or SystemClock()
        self._drawn_at = float("-inf")
        self._scores: list[float] = []

    def started(self, progress: SearchProgress) -> None:
        self._scores.clear()
        self._draw(progress)

    def progressed(self, progress: SearchProgress) -> None:
        now = self._clock.monotonic()
        if now - self._drawn_at >= DRAW_EVERY_S:
            self._drawn_at = now
            self._draw(progress)

    def say(self, text: str) -> None:
        self._screen.print(safe(text) + "\n")

    def ended(self, progress: SearchProgress, result: SearchResult) -> None:
        self._draw(progress)
        self._screen.print("")
        picture = [line.painted or line.text for line in self._picture(progress)]
        self._screen.clear()
        if self._screen.is_colored:
            self._screen.print("".join(f"{line}\n" for line in picture))
        else:
            self._screen.print("".join(f"{line.text}\n" for line in self._picture(progress)))
        self._screen.print(last_line(progress, result) + "\n")

    def _draw(self, progress: SearchProgress) -> None:
        archive = progress.archive
        if archive is not None:
            self._scores.append(archive.running_qd_score)
            if len(self._scores) > 2000:
                del self._scores[::2]
        self._screen.draw([*self._picture(progress), *self._below(progress)])

    def _picture(self, progress: SearchProgress) -> list[ScreenLine]:
        size = self._screen.size
        archive = progress.archive
        side = self._side(progress)
        if archive is None or archive.cells == 1 or size.columns < _SIDE + 12 or size.rows < 12:
            return [ScreenLine(text) for text in side]
        columns = size.columns - _SIDE - _GAP - 3
        rows = size.rows - _BELOW - 3
        picture = archive_map(archive, columns, rows, progress.parents)
        return [_beside(row, text, self._is_unicode) for row, text in _zipped(picture, side)]

    def _side(self, progress: SearchProgress) -> list[str]:
        archive = progress.archive
        total = "" if progress.max_total is None else f" of {progress.max_total}"
        lines = [
            f"{progress.name}  {progress.state.lower()}",
            "",
            f"candidates  {progress.ended}{total}",
            f"in flight   {progress.in_flight} ({progress.running} running, {progress.slots} slots)",
            f"failed      {progress.failed}",
        ]
        if progress.reused:
            lines.append(f"reused      {progress.reused}")
        if progress.best_number is not None:
            lines += ["", f"best        {number(progress.best_objective)} (#{progress.best_number})"]
        if archive is not None and archive.cells > 1:
            lines.append(f"cells       {len(archive)} of {archive.cells}")
            lines.append(f"QD score    {number(archive.running_qd_score)}")
            if self._is_unicode:
                lines.append(f"            {spark_line(self._scores, _SIDE - 14)}")
            if len(archive.shape) > 1:
                axes = zip(("across", "up"), archive.bounds, strict=False)
                lines += ["", *(f"{name:<12}{low:.4g} to {high:.4g}" for name, (low, high) in axes)]
            better, parent = ("lighter", "white") if self._screen.is_colored else ("denser", "o")
            lines.append(f"{better} is better" + (f", {parent}: parents" if progress.parents else ""))
        lines += ["", f"rate        {rate(progress)}"]
        if progress.cost:
            lines.append(f"cost        {number(progress.cost)}")
        lines.append(f"time        {duration(progress.elapsed_s)}{_left(progress)}")
        return [truncate(safe(line), _SIDE) for line in lines]

    def _below(self, progress: SearchProgress) -> list[ScreenLine]:
        causes = sorted(progress.failures.items(), key=lambda item: -item[1])[:2]
        return [ScreenLine(f"{count} failed: {safe(cause)}", Style.BAD) for cause, count in causes]


def archive_map(archive: Archive, columns: int, rows: int, parents: Collection[int] = ()) -> list[HeatmapRow]:
    """The picture of an archive: the lighter, the better; the second measure grows upwards."""
    objectives = [elite.objective for elite in archive.elites()]
    low = min(objectives, default=0.0)
    span = max(objectives, default=0.0) - low
    best = archive.best
    is_flipped = best is not None and span > 0 and best.objective == low
    levels: dict[tuple[int, int], Pixel] = {}
    for elite in archive.elites():
        x, y = (*archive.position(elite.cell), 0)[:2]
        level = (elite.objective - low) / span if span > 0 else 1.0
        before = levels.get((x, y), Pixel())
        level = max(1 - level if is_flipped else level, before.level or 0.0)
        levels[x, y] = Pixel(level, elite.cell in parents or before.is_parent)
    across, down = (*archive.shape, 1)[:2]
    return heat_map(levels, (across, down), columns, rows)


def _zipped(picture: list[HeatmapRow], side: list[str]) -> list[tuple[HeatmapRow | None, str]]:
    blank = " " * (width(picture[0].plain) if picture else 0)
    length = max(len(picture), len(side))
    rows: list[HeatmapRow | None] = [*picture, *[HeatmapRow(blank, blank)] * (length - len(picture))]
    return list(zip(rows, [*side, *[""] * (length - len(side))], strict=True))


def _beside(row: HeatmapRow | None, text: str, is_unicode: bool) -> ScreenLine:
    gap = " " * _GAP
    if row is None:
        return ScreenLine(text)
    painted = f"{row.painted}{gap}{text}" if is_unicode else None
    return ScreenLine(f"{row.plain}{gap}{text}", Style.PLAIN, painted)


def _left(progress: SearchProgress) -> str:
    """How long it may still take, where that can be said."""
    if progress.max_total is None or progress.elapsed_s < 2 or progress.ended < 5:
        return ""
    left = (progress.max_total - progress.ended) * progress.elapsed_s / progress.ended
    return f", {duration(left)} left" if left > 1 else ""
