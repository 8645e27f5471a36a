"""Screenshots of every view of the terminal: ``python docs/terminal_screenshots.py FOLDER [VIEW]...``.
It shows the made-up jobs of `tenuto.testing.monitor_demo` at 80x24, 120x40 and 200x50, as SVG and text, and
as PNG by the Chromium of this machine where there is one; nothing is run.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from textual.pilot import Pilot

from tenuto.monitor.provider import LocalProvider
from tenuto.monitor.tui.app import Top
from tenuto.testing.monitor_demo import demo_sources

SIZES = {"80x24": (80, 24), "120x40": (120, 40), "200x50": (200, 50)}
SWEEP = "experiments:sweep/20260101_1402"
RUNNING = "id=00000006aaaaaaaa"
VIEWS: dict[str, tuple[dict[str, str], list[str]]] = {
    "overview": ({}, []),
    "jobs": ({"group": SWEEP}, ["down"] * 11),
    "job": ({"group": SWEEP, "filter": RUNNING}, ["enter"]),
    "log": ({"group": SWEEP, "filter": RUNNING}, ["l"]),
    "ask": ({"group": SWEEP, "filter": RUNNING}, ["K"]),
    "filter": ({"group": SWEEP}, ["/", *"state=eror", "enter"]),
    "timeline": ({}, ["3", "k"]),
    "graph": ({"group": SWEEP}, ["4"]),
    "results": ({"group": SWEEP}, ["5"]),
    "resources": ({}, ["6"]),
    "archive": ({}, ["7"]),
    "curves": ({"group": SWEEP}, ["8"]),
    "help": ({}, ["?"]),
}
"""Each view: how the application is started, and the keys that lead to it."""
PATIENCE_S = 20.0


def take_all(folder: Path, wanted: list[str]) -> None:
    """Take the pictures of some views, at both sizes."""
    provider = LocalProvider(demo_sources(40), workspace="~/results", version="demo")
    provider.wait_until_loaded(PATIENCE_S)
    try:
        for view in wanted:
            for name, size in SIZES.items():
                asyncio.run(_take(provider, view, size, folder / f"terminal-{view}-{name}"))
    finally:
        provider.close()


async def _take(provider: LocalProvider, view: str, size: tuple[int, int], path: Path) -> None:
    options, keys = VIEWS[view]
    app = Top(provider, **options)  # type: ignore[arg-type]
    async with app.run_test(size=size) as pilot:
        await _settle(app, pilot)
        for key in keys:
            await pilot.press(key)
        await _settle(app, pilot)
        path.with_suffix(".svg").write_text(app.export_screenshot(title="tenuto top"), encoding="utf-8")
        path.with_suffix(".txt").write_text("\n".join(app.text()) + "\n", encoding="utf-8")
    _print(path)


async def _settle(app: Top, pilot: Pilot[None]) -> None:
    """Wait until three answers were drawn: then all that is asked for later is there too."""
    for _ in range(3):
        before, deadline = app.answered, time.monotonic() + PATIENCE_S
        app.renew()
        while app.answered == before and time.monotonic() < deadline:
            await pilot.pause(0.02)


def _print(path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        return
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    window = "--window-size=1000,640" if "80x24" in path.name else "--window-size=2480,1320"
    picture = f"--screenshot={path.with_suffix('.png')}"
    command = [
        chromium,
        "--headless",
        *sandbox,
        "--hide-scrollbars",
        window,
        picture,
        path.with_suffix(".svg").as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    take_all(Path(sys.argv[1]), sys.argv[2:] or list(VIEWS))
