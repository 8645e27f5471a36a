"""The page for every reader: axe-core, keyboard, 360 px; and a connection through a tunnel that breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tenuto.lifecycle.states import JobState
from tenuto.testing.fake_source import FakeSource
from tests.monitor.conftest import Served
from tests.monitor.page.conftest import FAILED, RUNNING, SWEEP, Serve, Visitor, drawn, live
from tests.monitor.tunnel import Tunnel

pytestmark = pytest.mark.slow

GROUP = quote(SWEEP, safe="")
VIEWS = {
    "overview": "#/",
    "jobs": f"#/jobs?group={GROUP}",
    "job": f"#/job?key={quote(RUNNING, safe='')}",
    "timeline": "#/timeline",
    "graph": f"#/graph?group={GROUP}",
    "results": f"#/results?group={GROUP}",
    "resources": "#/resources",
    "curves": f"#/curves?group={GROUP}",
    "compare": f"#/compare?key={quote(RUNNING, safe='')}&key={quote(FAILED, safe='')}",
    "archive": "#/archive",
}


RULES = {
    "light": """{ runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"],
      rules: { "target-size": { enabled: true } }, resultTypes: ["violations"] }""",
    "dark": """{ runOnly: { type: "rule", values: ["color-contrast"] }, resultTypes: ["violations"] }""",
}
"""The size of targets is one of them; a dark page differs from a light one in its colours only."""


TOO_SMALL = """[...document.querySelectorAll("button, select, summary, nav a, .chip, .button, .map .cell")]
  .filter((one) => one.checkVisibility())
  .map((one) => [one.outerHTML.slice(0, 80), one.getBoundingClientRect()])
  .filter(([, size]) => size.width < 24 || size.height < 24).map(([text]) => text)"""


def violations(page: Page, look: str) -> list[str]:
    """What axe finds serious or critical."""
    found = page.evaluate(f"() => axe.run(document, {RULES[look]})")
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
    ]


def test_17_axe_finds_nothing_serious(demo: Served, visitor: Visitor, npm: Callable[[str], Path]) -> None:
    script = (npm("axe-core") / "axe.min.js").read_text()
    page = visitor.enter(demo, reduced_motion="reduce", bypass_csp=True)
    page.evaluate("script => { (0, eval)(script) }", script)
    found = {}
    assert page.locator(".fill").first.evaluate("one => getComputedStyle(one).transitionDuration") == "0s"
    for name, address in VIEWS.items():
        visitor.go(page, address)
        for look in RULES:
            page.emulate_media(color_scheme="light" if look == "light" else "dark")
            drawn(page)
            if troubles := violations(page, look):
                found[name, look] = troubles
    assert found == {}


def test_17_nothing_scrolls_sideways_at_360_pixels(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo, viewport={"width": 360, "height": 740})
    for name, address in VIEWS.items():
        visitor.go(page, address)
        drawn(page)
        widths = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert widths[0] <= widths[1], name
        assert page.evaluate(TOO_SMALL) == [], name


def test_17_a_keyboard_is_enough(serve: Serve, visitor: Visitor, source: FakeSource) -> None:
    page = visitor.enter(serve(source))
    page.get_by_role("link", name="Jobs", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator(".rows [role=row]").first).to_be_visible()
    expect(page.get_by_role("grid")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    expect(page.get_by_role("group", name="Marked jobs")).to_contain_text("1 marked")
    page.keyboard.press("Enter")
    expect(page.locator("[data-field=state]")).to_have_text("▶ running")
    page.get_by_role("button", name="Kill").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("[data-field=state]")).to_have_text("✗ error")


@pytest.fixture
def tunnel() -> Iterator[Callable[[int], Tunnel]]:
    made: list[Tunnel] = []

    def to(port: int) -> Tunnel:
        made.append(Tunnel(port))
        return made[-1]

    yield to
    for one in made:
        one.close()


def test_18_a_cut_tunnel_heals_without_loss(
    serve: Serve, visitor: Visitor, source: FakeSource, tunnel: Callable[[int], Tunnel]
) -> None:
    served = serve(source)
    through = tunnel(served.port)
    page = visitor.log_in(served, through.port)
    assert "code=" not in page.url
    visitor.go(page, "#/jobs?group=experiments:sweep/1")
    page.evaluate("window.sameDocument = true")
    job = page.locator('[data-key="experiments:my.Train/id1"]')
    expect(job).to_have_attribute("data-state", "running")
    through.cut()
    live(page, "reconnecting")
    source.put(source.row("experiments:my.Train/id1")._replace(state=JobState.DONE))
    page.wait_for_timeout(3_000)
    through.open()
    live(page)
    expect(job).to_have_attribute("data-state", "done")
    assert page.evaluate("window.sameDocument") is True


def test_18_logging_out_ends_every_tab_of_a_browser(
    serve: Serve, visitor: Visitor, source: FakeSource
) -> None:
    served = serve(source)
    page = visitor.enter(served)
    other = visitor.enter(served)
    second = page.context.new_page()
    second.goto(f"http://127.0.0.1:{served.port}/#/jobs")
    expect(second.locator(".rows [role=row]").first).to_be_visible()
    live(second)
    page.locator("#more summary").click()
    page.get_by_role("button", name="log out").click()
    live(page, "logged out")
    live(second, "logged out")
    expect(second.get_by_role("heading", name="Log in")).to_be_visible()
    live(other)
    page.get_by_label("Code or link").fill("http://x/#code=wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not valid")
    page.get_by_label("Code or link").fill(served.server.link(served.server.sessions.new_code()))
    page.keyboard.press("Enter")
    live(page)
