"""Owns the screen of W11: how soon a browser shows the first rows of many jobs, and a change of one.

screen.py COUNT CHANGES, in the directory that `prepare.py` filled; needs Chromium. The browser notes when
a row is in its document; both clocks are the machine's.
"""

import json
import os
import shutil
import statistics
import sys
from datetime import UTC, datetime

import listing
from ends import Ends
from playwright.sync_api import sync_playwright
from server import Server

FIRST_ROWS = """address => new Promise((shown) => {
  const began = performance.now();
  const look = () => document.querySelector(".rows [role=row][data-key]")
    ? requestAnimationFrame(() => shown(performance.now() - began)) : setTimeout(look, 1);
  location.hash = address;
  look();
})"""
NOTE = """key => {
  const row = document.querySelector(`[data-key="${key}"]`);
  window.changes = [];
  const noted = () => window.changes.push([row.dataset.state, Date.now()]);
  new MutationObserver(() => requestAnimationFrame(noted)).observe(row, { attributes: true });
}"""
SEEN = "([state, number]) => window.changes.slice(number).find((one) => one[0] === state)"


def shown(server, ends, group, job_id, changes):
    """How long a browser takes to show a group, and changes of one of its jobs."""
    with sync_playwright() as driver:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(server.new_link())
        page.locator("[data-group]").first.wait_for()
        first_rows = []
        for _ in range(5):
            first_rows.append(page.evaluate(FIRST_ROWS, f"#/jobs?group={group}") / 1000)
            page.evaluate("location.hash = '#/'")
            page.locator("main[aria-busy=false] [data-group]").first.wait_for()
        page.evaluate(FIRST_ROWS, f"#/jobs?group={group}")
        page.locator("main[aria-busy=false] h1").wait_for()
        page.evaluate(NOTE, f"experiments:bench_tasks.Work/{job_id}")
        took = []
        for number in range(changes):
            noted = page.evaluate("window.changes.length")
            failed = number % 2 == 0
            written = ends.end(job_id, failed=failed)
            wanted = ["error" if failed else "done", noted]
            _, at = page.wait_for_function(SEEN, arg=wanted, polling=20).json_value()
            took.append((datetime.fromtimestamp(at / 1000, UTC) - written).total_seconds())
        rows = page.locator(".rows [role=row]").count()
        browser.close()
    return {
        "screen_rows_s": statistics.median(first_rows),
        "screen_change_s": statistics.median(took),
        "document_rows": rows,
    }


def main(count, changes):
    run_id, jobs = listing.write("ws", count)
    ends = Ends(os.path.abspath("ws"), "listed", run_id)
    with Server() as server:
        server.wait_until_known(count)
        report = shown(server, ends, f"experiments:listed/{run_id}", jobs[3], changes)
    print(json.dumps(report))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
