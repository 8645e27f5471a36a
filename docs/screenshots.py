"""Screenshots of every view of the monitor's page: ``python docs/screenshots.py [FOLDER [VIEW]...]``.
It shows the made-up jobs of `tenuto.testing.monitor_demo` in the Chromium of this machine; nothing is run.
Without a folder it renews the one picture of the documentation; with a folder and without a view it takes
those of the terminal too (`terminal_screenshots`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import terminal_screenshots
from playwright.sync_api import Browser, ViewportSize, sync_playwright

JOB = quote("experiments:demo.Train/00000006aaaaaaaa", safe="")
FAILED = quote("experiments:demo.Train/00000005aaaaaaaa", safe="")
SWEEP = quote("experiments:sweep/20260101_1402", safe="")
VIEWS = {
    "overview": "#/",
    "jobs": f"#/jobs?group={SWEEP}",
    "job": f"#/job?key={JOB}",
    "failed": f"#/job?key={FAILED}",
    "timeline": "#/timeline",
    "curves": f"#/curves?group={SWEEP}",
    "compare": f"#/compare?key={JOB}&key={FAILED}",
    "graph": f"#/graph?group={SWEEP}",
    "around": f"#/graph?group={SWEEP}&around={JOB}",
    "results": f"#/results?group={SWEEP}&task=demo.Evaluate",
    "resources": "#/resources",
    "archive": "#/archive",
    "ask": f"#/job?key={JOB}",
    "empty": "#/jobs?filter=state%3Dunscheduled",
    "login": "#/",
}
PICTURE = Path(__file__).with_name("monitor.png")
PICTURE_SIZE: ViewportSize = {"width": 1100, "height": 620}
LOOKS: dict[str, tuple[ViewportSize, bool]] = {
    "desktop": ({"width": 1280, "height": 800}, False),
    "dark": ({"width": 1280, "height": 800}, True),
    "wide": ({"width": 1920, "height": 1080}, False),
    "narrow": ({"width": 390, "height": 780}, False),
}


def main() -> None:
    """Take the pictures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    wanted = sys.argv[2:] or list(VIEWS)
    command = [sys.executable, "-m", "tenuto.testing.monitor_demo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as driver:
        assert server.stdout is not None
        link = server.stdout.readline().strip()
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        try:
            _take(browser, link, folder, wanted)
        finally:
            browser.close()
            server.terminate()
    if folder is not None and not sys.argv[2:]:
        terminal_screenshots.take_all(folder, list(terminal_screenshots.VIEWS))


def _take(browser: Browser, link: str, folder: Path | None, wanted: list[str]) -> None:
    first = browser.new_context(viewport=PICTURE_SIZE)
    page = first.new_page()
    page.goto(link)
    page.locator("main[aria-busy=false] .sparkline svg").nth(2).wait_for()
    if folder is None:
        page.screenshot(path=PICTURE)
        return
    folder.mkdir(parents=True, exist_ok=True)
    state = first.storage_state()
    address = link.partition("#")[0]
    for look, (size, is_dark) in LOOKS.items():
        for view in wanted:
            context = browser.new_context(
                viewport=size,
                color_scheme="dark" if is_dark else "light",
                storage_state=None if view == "login" else state,
            )
            page = context.new_page()
            page.on("console", lambda message: _say(message.text))
            page.on("pageerror", lambda error: _say(str(error)))
            page.goto(address + VIEWS[view])
            page.locator("main[aria-busy=false] h1").wait_for()
            page.locator("#live", has_text="live" if view != "login" else "logged out").wait_for()
            if view == "ask":
                page.get_by_role("button", name="Kill").click()
            if view == "jobs" and look != "narrow":
                page.locator(".rows .row").nth(14).click()
            page.wait_for_timeout(600)
            page.screenshot(path=folder / f"{view}-{look}.png", full_page=look == "narrow")
            context.close()


def _say(trouble: str) -> None:
    sys.stderr.write(f"{trouble}\n")


if __name__ == "__main__":
    main()
