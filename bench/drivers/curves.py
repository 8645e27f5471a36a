"""Owns the curves of W11: how soon a browser has drawn many, how it follows them, and what a call costs.

curves.py COUNT POINTS SECONDS, in the directory that `prepare.py` filled; needs Chromium. The page notes its
own frames; lines are appended to all jobs twenty times a second, by this process.
"""

import json
import os
import shutil
import sys
import threading
import time

import listing
from playwright.sync_api import sync_playwright
from server import Server

from tenuto.launchers.payload.assignment import Assignment
from tenuto.launchers.payload.metrics_log import MetricsLog
from tenuto.workspace.machine import this_machine
from tenuto.workspace.points import MetricPoint, line_of

EACH_S = 1 / 20
DRAWN = """([address, count]) => new Promise((shown) => {
  const began = performance.now();
  const look = () => document.querySelector(".plot")?.dataset.drawn === count
    ? requestAnimationFrame(() => shown(performance.now() - began)) : setTimeout(look, 1);
  location.hash = address;
  look();
})"""
FRAMES = """() => {
  window.frames_ = [];
  window.draws = 0;
  let last = performance.now();
  const note = (now) => { window.frames_.push(now - last); last = now; requestAnimationFrame(note); };
  requestAnimationFrame(note);
  new MutationObserver((all) => { window.draws += all.length; })
    .observe(document.querySelector(".plot"), { attributes: true, attributeFilter: ["data-drawn"] });
}"""


def directories(jobs):
    (found,) = [one.path for one in os.scandir("ws/jobs") if os.path.isdir(f"{one.path}/{jobs[0]}")]
    return [f"{found}/{job}" for job in jobs]


def lines(number, first, count):
    now = time.time()
    return b"".join(
        line_of("loss", MetricPoint(step, now, 1 / (1 + step * (number + 1) / 1000)))
        for step in range(first, first + count)
    )


def written(paths, points):
    for number, path in enumerate(paths):
        with open(f"{path}/metrics.jsonl", "wb") as file:
            file.write(lines(number, 0, points))


def logging(paths, points, seconds):
    """Appends a point to every job, twenty times a second."""
    end, step = time.monotonic() + seconds, points
    files = [open(f"{path}/metrics.jsonl", "ab", buffering=0) for path in paths]  # noqa: SIM115
    while (begun := time.monotonic()) < end:
        for number, file in enumerate(files):
            file.write(lines(number, step, 1))
        step += 1
        time.sleep(max(EACH_S - (time.monotonic() - begun), 0))
    for file in files:
        file.close()


def call_us():
    """What a call of `log_metrics` costs, the best of five times a thousand."""
    os.makedirs("logged", exist_ok=True)
    place = os.path.abspath("logged")
    log = MetricsLog(Assignment(place, "T", place, "t.T", "a", 1, machine=this_machine()), goes_on=False)
    took = []
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(1_000):
            log.log({"loss": 0.5}, None)
        took.append(time.perf_counter() - begun)
    log.close()
    return min(took) / 1_000 * 1e6


def shown(server, group, paths, points, seconds):
    with sync_playwright() as driver:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(server.new_link())
        page.locator("[data-group]").first.wait_for()
        asked = [f"#/curves?group={group}", str(len(paths))]
        cold_ms = page.evaluate(DRAWN, asked)
        page.evaluate("location.hash = '#/'")
        page.locator("main[aria-busy=false] [data-group]").first.wait_for()
        drawn_ms = page.evaluate(DRAWN, asked)
        page.locator("main[aria-busy=false] h1").wait_for()
        page.evaluate(FRAMES)
        writer = threading.Thread(target=logging, args=(paths, points, seconds))
        begun = time.monotonic()
        writer.start()
        while writer.is_alive():
            page.wait_for_timeout(100)
        took = time.monotonic() - begun
        draws, frames = page.evaluate("[window.draws, window.frames_]")
        browser.close()
    frames.sort()
    return {
        "curves_cold_s": cold_ms / 1000,
        "curves_drawn_s": drawn_ms / 1000,
        "curves_updates_each_s": draws / took,
        "curves_frame_s": frames[-1] / 1000,
        "curves_frame_99_s": frames[len(frames) * 99 // 100] / 1000,
    }


def main(count, points, seconds):
    run_id, jobs = listing.write("ws", count, "curves")
    paths = directories(jobs)
    written(paths, points)
    with Server() as server:
        server.wait_until_known(count)
        report = shown(server, f"experiments:curves/{run_id}", paths, points, seconds)
    print(json.dumps({**report, "call_us": call_us()}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
