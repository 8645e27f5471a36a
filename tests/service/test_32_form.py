"""The form of a server in a real Chromium."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.service.servers import Process

WAIT_MS = 60_000
DROP_WITHOUT_ENTRY = """
() => {
  const held = new DataTransfer();
  held.items.add(new File(["x"], "attached é.txt"));
  document.getElementById("drop").dispatchEvent(new DragEvent("drop", { dataTransfer: held }));
}"""
SETTINGS = """
[service]
terminate_wait_s = 60
[services.upper]
description = "Makes <b>letters</b> large"
command = ["bash", "-c", '''
echo "<script>no</script>"; tr a-z A-Z < in.txt > out.txt''']
inputs = ["in.txt", "*.cfg?"]
[services.example]
"""


@pytest.fixture(scope="module")
def browser(require: Callable[[str], None]) -> Iterator[Browser]:
    require("chromium")
    with sync_playwright() as driver:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        found = driver.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        yield found
        found.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page as wide as a phone's, on which nothing may go wrong."""
    context = browser.new_context(viewport={"width": 375, "height": 800}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if "Security Policy" in said.text else None)
    yield page
    seen = [*wrong]  # a page that is closed gives up what it asks for, and says so
    context.close()
    assert seen == []


def fits(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def test_a_person_submits_follows_and_downloads(
    page: Page, start: Callable[..., Process], tmp_path: Path
) -> None:
    (tmp_path / "tenuto.toml").write_text(SETTINGS)
    server = start("serve", "--with-node", "--sandbox", "none")
    page.goto(server.url)
    page.select_option("#service", "upper")
    assert (page.text_content("#about") or "").startswith("Makes <b>letters</b> large")
    assert page.text_content("#needed") == "It takes: in.txt, *.cfg (optional)"
    assert page.text_content("#user-label") == "Your number", "a name is refused"
    page.click("#submit")
    page.wait_for_selector("#problem:has-text('Missing \\'in.txt\\'')")
    chosen = {"name": "in.txt", "mimeType": "text/plain", "buffer": b"hello"}
    page.set_input_files("#files", [chosen])  # type: ignore[list-item]
    page.click("#submit")
    page.wait_for_selector("#state:has-text('Completed')")
    page.wait_for_selector("#log:has-text('no')")  # the log is another stream than the state
    assert "<script>no</script>" in (page.text_content("#log") or "")
    with page.expect_download() as saved:
        page.click("#download")
    with zipfile.ZipFile(saved.value.path()) as packed:
        assert packed.read("out.txt") == b"HELLO"
    with page.expect_download() as one:
        page.click("#results li:has-text('out.txt') button")
    assert (one.value.suggested_filename, Path(one.value.path()).read_bytes()) == ("out.txt", b"HELLO")
    assert fits(page)
    page.reload()
    page.wait_for_selector("#state:has-text('Completed')")  # the address names the job


def test_the_form_works_with_tokens(page: Page, start: Callable[..., Process], tmp_path: Path) -> None:
    server = start("serve", "--with-node", "--sandbox", "none", "--auth", "tokens")
    command = [sys.executable, "-m", "tenuto", "token", "create", "--user", "ada"]
    token = subprocess.check_output(command, cwd=tmp_path, text=True).strip()
    page.goto(server.url)
    page.fill("#token", "tnt_wrong")
    page.click("#enter button")
    page.wait_for_selector("#problem:has-text('not valid')")
    page.fill("#token", token)
    page.click("#enter button")
    page.wait_for_selector("#send:not([hidden])")
    assert not page.is_visible("#user")
    script = b"echo $JOB_USER_ID > who; echo progress: begun; exec sleep 100\n"
    chosen = {"name": "run.sh", "mimeType": "text/plain", "buffer": script}
    page.set_input_files("#files", [chosen])  # type: ignore[list-item]
    page.click("#submit")
    page.wait_for_selector("#state:has-text('Running: begun')")
    assert fits(page)
    page.click("#cancel")
    page.wait_for_selector("#state:has-text('Killed')")
    with page.expect_download() as one:
        page.click("#results li:has-text('who') button")
    assert Path(one.value.path()).read_bytes() == b"ada\n"
    assert token not in page.url
    assert page.evaluate("localStorage.length") == 0


def test_the_form_asks_for_the_user_where_the_token_acts_for_all(
    page: Page, start: Callable[..., Process], tmp_path: Path
) -> None:
    server = start("serve", "--with-node", "--sandbox", "none", "--auth", "tokens")
    command = [sys.executable, "-m", "tenuto", "token", "create", "--user", "web", "--scope", "front"]
    token = subprocess.check_output(command, cwd=tmp_path, text=True).strip()
    page.goto(server.url)
    page.fill("#token", token)
    page.click("#enter button")
    page.wait_for_selector("#send:not([hidden])")
    chosen = {"name": "run.sh", "mimeType": "text/plain", "buffer": b"echo $JOB_USER_ID\n"}
    page.set_input_files("#files", [chosen])  # type: ignore[list-item]
    page.click("#submit")
    page.wait_for_selector("#problem:has-text('user_id')")
    assert page.text_content("#user-label") == "User"
    page.fill("#user", "eve")
    page.click("#submit")
    page.wait_for_selector("#state:has-text('Completed')")
    assert page.text_content("#log") == "eve\n"


def test_a_folder_is_dropped_and_a_long_log_is_shown_to_its_end(
    page: Page, start: Callable[..., Process], tmp_path: Path
) -> None:
    server = start("serve", "--with-node", "--sandbox", "none")
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a b.txt").write_text("deep")
    script = tmp_path / "run.sh"
    script.write_text("cat 'data/sub/a b.txt' > out.txt; yes | head -c 3000000; echo the end\n")
    page.goto(server.url)
    page.wait_for_selector("#send:not([hidden])")
    box = page.locator("#drop").bounding_box()
    assert box is not None
    given = {"items": [], "files": [str(folder), str(script)], "dragOperationsMask": 1}
    session = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        at = {"x": box["x"] + 20, "y": box["y"] + 20}
        session.send("Input.dispatchDragEvent", {"type": kind, "data": given, **at})
    page.wait_for_selector("#chosen li:has-text('data/sub/a b.txt')")
    page.evaluate(DROP_WITHOUT_ENTRY)
    page.wait_for_selector("#chosen li:has-text('attached é.txt')")
    page.click("#submit")
    page.wait_for_selector("#results li:has-text('out.txt')")
    assert (page.text_content("#log") or "").endswith("the end\n")
    with page.expect_download() as one:
        page.click("#results li:has-text('out.txt') button")
    assert Path(one.value.path()).read_bytes() == b"deep"
