"""A real Chromium on a real server of made-up jobs; what npm offers for tests is fetched once.

One browser a module: Playwright keeps an event loop running in the main thread, which would break
other tests of the same process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tenuto.jobs.source import Source
from tenuto.monitor.provider import LocalProvider
from tenuto.testing.monitor_demo import demo_sources
from tests.monitor.conftest import READY_S, Served

SWEEP = "experiments:sweep/20260101_1402"
RUNNING = "experiments:demo.Train/00000006aaaaaaaa"
FAILED = "experiments:demo.Train/00000005aaaaaaaa"


@pytest.fixture(scope="session")
def npm(require: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``npm("axe-core")``: the folder of a package, installed for this session."""
    folder = tmp_path_factory.mktemp("npm")

    def install(package: str) -> Path:
        require("npm")
        found = folder / "node_modules" / package
        if not found.exists():
            command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), package]
            done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
            assert done.returncode == 0, done.stderr
        return found

    return install


@pytest.fixture(scope="module")
def browser(require: Callable[[str], None]) -> Iterator[Browser]:
    """The Chromium of this machine."""
    require("chromium")
    with sync_playwright() as driver:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        found = driver.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        yield found
        found.close()


Serve = Callable[..., Served]
"""``serve(source, ...)``: a server of these sources, ended with the test."""


@pytest.fixture
def serve() -> Iterator[Serve]:
    made: list[Served] = []

    def serving(*sources: Source, read_only: bool = False) -> Served:
        provider = LocalProvider(sources, workspace="/ws", version="1", read_only=read_only)
        assert provider.wait_until_loaded(READY_S)
        made.append(Served(provider))
        return made[-1]

    yield serving
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def demo() -> Iterator[Served]:
    """A server of jobs of all doors, in every state; tests do not change them."""
    provider = LocalProvider(demo_sources(40), workspace="/ws", version="1")
    assert provider.wait_until_loaded(READY_S)
    served = Served(provider)
    yield served
    served.close()


class Visitor:
    """Opens pages of a server, logged in, and remembers what went wrong on them."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.troubles: list[str] = []
        self.contexts: list[BrowserContext] = []

    def context(self, **options: object) -> BrowserContext:
        made = self._browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})  # type: ignore[arg-type]
        made.set_default_timeout(30_000)
        made.on("page", self._watch)
        self.contexts.append(made)
        return made

    def _watch(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on(
            "console",
            lambda message: (
                self.troubles.append(message.text)
                if message.type == "error" and "Failed to load resource" not in message.text
                else None
            ),
        )

    def enter(self, served: Served, address: str = "#/", **options: object) -> Page:
        """A page of a browser of its own, logged in, at an address, live.

        The session is made without the page: its login, and the overview after it, cost each test a second.
        """
        client = served.client()
        name, _, value = client.headers["Cookie"].partition("=")
        url = f"http://127.0.0.1:{served.port}"
        cookie = {"name": name, "value": value, "domain": "127.0.0.1", "path": "/", "sameSite": "Strict"}
        key = {"name": "tenuto-key", "value": client.headers["X-Tenuto-Key"]}
        state = {"cookies": [cookie], "origins": [{"origin": url, "localStorage": [key]}]}
        page = self.context(storage_state=state, **options).new_page()
        page.goto(f"{url}/{address}")
        page.locator("main[aria-busy=false] h1").wait_for()
        live(page)
        return page

    def log_in(self, served: Served, port: int = 0, **options: object) -> Page:
        """A page of a browser of its own that followed the link of a server, on a port of a tunnel maybe."""
        page = self.context(**options).new_page()
        page.goto(f"http://127.0.0.1:{port or served.port}/#code={served.server.sessions.new_code()}")
        page.locator("[data-group]").first.wait_for()
        live(page)
        return page

    def go(self, page: Page, address: str) -> None:
        """Another view of the same page."""
        page.evaluate(
            """address => new Promise((changed) => {
                addEventListener("hashchange", () => setTimeout(changed), { once: true });
                if (location.hash === address) changed();
                location.hash = address;
            })""",
            address,
        )
        page.locator("main[aria-busy=false] h1").wait_for()


def drawn(page: Page) -> None:
    """Wait until the browser has drawn what the view made."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def live(page: Page, state: str = "live") -> None:
    """Wait until the page says so of its connection."""
    page.locator("#live", has_text=state).wait_for()


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Visitor]:
    made = Visitor(browser)
    yield made
    for context in made.contexts:
        context.close()
    assert made.troubles == []
