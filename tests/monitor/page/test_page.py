"""The page in a real browser: large lists, actions, logs, the views that draw.

The numbers in the names are those of the acceptance of the monitor.
"""

from __future__ import annotations

import json
import math
import re
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from playwright.sync_api import Page, Position, Route, expect

from tenuto.cli.commands import jobs as jobs_command
from tenuto.clock import SystemClock
from tenuto.experiments.source import ExperimentSource
from tenuto.jobs.filters import parse_filter
from tenuto.jobs.row import Group, Row
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobState
from tenuto.search import Evolution, Real
from tenuto.search.source import SearchSource
from tenuto.settings import Settings
from tenuto.testing.fake_source import FakeLog, FakeSource, fake_row
from tenuto.workspace.points import MetricPoint
from tests.jobs.workspaces import NOW, RUN, Builder, line
from tests.monitor.conftest import Served
from tests.monitor.page.conftest import FAILED, RUNNING, SWEEP, Serve, Visitor
from tests.search.tasks_for_search import Trade

pytestmark = pytest.mark.slow

GROUP = "experiments:big/1"


def job_address(key: str) -> str:
    return f"#/job?key={quote(key, safe='')}"


def group_source(group: str = GROUP) -> FakeSource:
    source = FakeSource()
    name, _, run = group.partition(":")[2].partition("/")
    started = SystemClock().now()
    source.put_group(Group(group, Door.EXPERIMENTS, name, run, "running", True, started))
    return source


def running_job(source: FakeSource) -> Row:
    started = SystemClock().now() - timedelta(seconds=60)
    row = fake_row(GROUP, "my.Train", "abcdef0123456789", JobState.RUNNING, attempt=2)
    return source.put(row._replace(submitted=started, started=started))


def test_13_ten_thousand_jobs(serve: Serve, visitor: Visitor) -> None:
    source = group_source()
    for number in range(10_000):
        state = JobState.ERROR if number % 100 == 0 else JobState.DONE
        source.put(
            fake_row(GROUP, "my.Train", f"{number:08d}", state, attempt=1, tags={"lr": str(number % 7)})
        )
    page = visitor.enter(serve(source), f"#/jobs?group={GROUP}")
    grid = page.get_by_role("grid")
    rows = page.locator(".rows [role=row]")
    expect(grid).to_have_attribute("aria-rowcount", "10001")
    expect(rows.first).to_have_attribute("data-key", "experiments:my.Train/00000000")
    grid.focus()
    page.keyboard.press("End")
    last = page.locator('[data-key="experiments:my.Train/00009999"]')
    expect(last).to_be_visible()
    expect(last).to_have_attribute("aria-rowindex", "10001")
    assert rows.count() <= 300
    source.put(source.row("experiments:my.Train/00009999")._replace(state=JobState.RUNNING, attempt=2))
    expect(last).to_have_attribute("data-state", "running")
    source.put(fake_row(GROUP, "my.Train", "new", JobState.WAITING))
    expect(grid).to_have_attribute("aria-rowcount", "10002")
    page.keyboard.press("Home")
    expect(page.locator('[data-key="experiments:my.Train/00000000"]')).to_be_visible()
    page.get_by_label("Filter", exact=True).fill("state=error and lr=3")
    page.keyboard.press("Enter")
    expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", "15")
    page.get_by_label("Filter", exact=True).fill("state=erorr and (")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("at character")


def test_a_click_shows_a_job_beside_the_list_and_enter_opens_it(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo, f"#/jobs?group={SWEEP}")
    page.locator(f'.rows [data-key="{FAILED}"]').click()
    beside = page.get_by_role("complementary", name="Job")
    expect(beside.locator("[data-field=state]")).to_have_text("✗ error")
    expect(beside.locator(".line").first).to_have_text("Traceback (most recent call last):")
    page.keyboard.press("k")
    expect(beside.locator("[data-field=id]")).to_have_text("00000004bbbbbbbb")
    page.keyboard.press("Escape")
    expect(beside).to_be_hidden()
    page.keyboard.press("Home")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Train 00000000")
    expect(page.locator("[data-field=id]")).to_have_text("00000000aaaaaaaa")


def test_a_narrow_list_opens_a_job_at_once(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo, f"#/jobs?group={SWEEP}", viewport={"width": 390, "height": 780})
    expect(page.locator(".rows .second").nth(1)).to_contain_text("lr=0.1000")
    page.locator(f'.rows [data-key="{RUNNING}"]').click()
    expect(page.locator("[data-field=id]")).to_have_text("00000006aaaaaaaa")
    log, facts = page.locator(".logbox").bounding_box(), page.locator(".facts").bounding_box()
    assert log is not None
    assert facts is not None
    assert log["y"] < facts["y"], "the log comes before the facts"


def test_one_box_searches_everything_by_words(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo, f"#/job?key={quote(RUNNING, safe='')}")
    page.keyboard.press("/")
    page.keyboard.type("lr must be positive train")
    page.keyboard.press("Enter")
    expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", "6")
    expect(page.locator(".rows [role=row]").first).to_have_attribute("data-state", "error")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keys")
    page.keyboard.press("Escape")
    page.keyboard.press("3")
    expect(page.locator("main h1")).to_have_text("Timeline")


def test_marked_jobs_are_compared_and_exported(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo, f"#/jobs?group={SWEEP}&filter=task~Train")
    rows = page.locator(".rows [role=row]")
    rows.nth(0).locator("input").click()
    rows.nth(2).click(modifiers=["Shift"])
    marked = page.get_by_role("group", name="Marked jobs")
    expect(marked).to_contain_text("3 marked")
    with page.expect_download() as saved:
        marked.get_by_role("button", name="CSV").click()
    assert len(saved.value.path().read_text().splitlines()) == 4
    page.keyboard.press("x")
    expect(page.locator("h1")).to_have_text("Compare 3 jobs")
    row = page.get_by_role("row", name="lr").first
    expect(row.get_by_role("cell")).to_have_text(["0.1000", "0.0500", "0.0333"])
    expect(page.get_by_role("log")).to_have_count(3)
    expect(page.locator("section[aria-label=loss] .plot")).to_have_attribute("data-drawn", "3")
    page.go_back()
    rows.nth(0).locator("input").click()
    marked.get_by_role("button", name="that match").click()
    expect(marked).to_contain_text("40 marked")


def test_a_comparison_marks_the_better_result_and_its_curves_grow(serve: Serve, visitor: Visitor) -> None:
    source = group_source()
    keys = []
    for number, loss in enumerate((0.3, 0.2)):
        row = source.put(fake_row(GROUP, "t.T", f"{number:08}", JobState.DONE, attempt=1))
        source.values[row.key] = {"loss": loss, "accuracy": 1 - loss, "same": 1}
        source.curves[row.key] = {"loss": [MetricPoint(1, 1e9, loss)]}
        keys.append(row.key)
    page = visitor.enter(serve(source), "#/compare?" + "&".join(f"key={quote(key, safe='')}" for key in keys))
    page.get_by_label("also what is the same").click()
    expect(page.get_by_role("row", name="result.same")).to_be_visible()
    expect(page.locator("td.best")).to_have_text(["0.2", "0.8"])
    plot = page.locator("section[aria-label=loss] .plot")
    expect(plot).to_have_attribute("data-drawn", "2")
    source.curves[keys[0]] = {"acc": [MetricPoint(1, 1e9, 0.5)], **source.curves[keys[0]]}
    expect(page.locator("section[aria-label=acc] .plot")).to_have_attribute("data-drawn", "1")


@pytest.mark.parametrize(
    "searched",
    [
        "adam",
        "train adam",
        "state=error adam",
        "adam or not lr<0.1",
        "(adam or eve) state = running",
        """'two words' "my tag"='a b' not x""",
        r'"a \"quoted\" word" lr>=1e-3',
        "android",
        "not (notes order)",
    ],
)
def test_a_search_is_copied_as_a_filter_of_the_command_line(
    demo: Served, visitor: Visitor, searched: str
) -> None:
    page = visitor.enter(demo)
    written = page.evaluate("async (words) => (await import('/static/text.js')).filterOf(words)", searched)
    assert parse_filter(written) == parse_filter(searched, words=True)


def test_a_view_without_an_archive_says_how_to_get_one_and_asks_once(serve: Serve, visitor: Visitor) -> None:
    source = FakeSource(Door.SEARCH)
    group = "search:grid"
    source.put_group(Group(group, Door.SEARCH, "grid", state="RUNNING", live=True))
    source.put(fake_row(group, "grid", "1", JobState.DONE, attempt=1))
    page = visitor.enter(serve(source), f"#/archive?group={group}")
    expect(page.get_by_text("MapElites(")).to_be_visible()
    expect(page.get_by_role("region", name="Archive")).to_be_hidden()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    source.put(fake_row(group, "grid", "2", JobState.DONE, attempt=1))
    visitor.go(page, f"#/jobs?group={group}")
    expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", "3")
    assert not [url for url in asked if "/api/archive" in url]


def test_eight_jobs_have_eight_colours(serve: Serve, visitor: Visitor) -> None:
    source = group_source()
    for number in range(8):
        row = source.put(fake_row(GROUP, "t.T", f"{number:08}", JobState.RUNNING, attempt=1))
        source.curves[row.key] = {"loss": [MetricPoint(1, 1e9, number + 1.0)]}
    page = visitor.enter(serve(source), f"#/curves?group={GROUP}")
    swatches = page.locator(".legendlist .swatch")
    expect(swatches).to_have_count(8)
    colours = swatches.evaluate_all("parts => parts.map((part) => part.style.background)")
    assert len(set(colours)) == 8


def test_what_a_search_queues_is_not_in_the_queue_of_a_cluster(serve: Serve, visitor: Visitor) -> None:
    runs, search = group_source(), FakeSource(Door.SEARCH)
    search.put_group(Group("search:grid", Door.SEARCH, "grid", state="RUNNING", live=True))
    search.put(fake_row("search:grid", "grid", "1", JobState.SCHEDULED, attempt=1))
    runs.put(fake_row(GROUP, "t.T", "abcd", JobState.SCHEDULED, attempt=1))
    page = visitor.enter(serve(runs, search), "#/resources")
    queues = page.locator("section[aria-label='In queues of clusters']")
    expect(queues.locator("tbody tr")).to_have_count(1)
    expect(queues).to_contain_text("T abcd")


def test_a_note_and_a_pin_stay_with_a_run(serve: Serve, visitor: Visitor) -> None:
    source = group_source()
    source.put(fake_row(GROUP, "t.T", "1", JobState.DONE, attempt=1))
    page = visitor.enter(serve(source))
    page.get_by_role("button", name="Note on big").click()
    page.get_by_label("Note", exact=True).fill("lr was too high <b>")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".note")).to_have_text("lr was too high <b>")
    page.get_by_role("button", name="Pin big").click()
    expect(page.get_by_role("button", name="Pin big")).to_have_attribute("aria-pressed", "true")
    page.reload()
    expect(page.locator(".note")).to_have_text("lr was too high <b>")


def test_a_log_has_colours_lines_to_link_to_and_a_file(serve: Serve, visitor: Visitor) -> None:
    source = group_source()
    row = source.put(fake_row(GROUP, "my.Train", "abc", JobState.ERROR, attempt=1))
    text = "".join(f"line {number}\n" for number in range(300)) + "\x1b[1;31mred\x1b[0m <b>\n"
    source.logs[row.key, "err"] = text.encode()
    page = visitor.enter(serve(source), f"{job_address(row.key)}&stream=err&line=7")
    log = page.get_by_role("log")
    expect(log.locator(".linked")).to_have_text("line 6")
    expect(log.locator(".linked")).to_be_in_viewport()
    expect(log.locator("span.f1.bold")).to_have_text("red")
    expect(log.locator(".line").last).to_have_text("red <b>")
    expect(page.get_by_role("button", name="Follow")).to_have_count(0)
    with page.expect_download() as saved:
        page.get_by_role("button", name="download").click()
    assert saved.value.path().read_text() == text


def test_curves_of_many_jobs_and_of_one_are_drawn_live(serve: Serve, visitor: Visitor) -> None:
    source = group_source()
    for number in range(5):
        row = source.put(
            fake_row(GROUP, "t.T", f"{number:08}", JobState.RUNNING, attempt=1, tags={"lr": "1"})
        )
        values = [(step, math.nan if step == 3 else 1 / (step + number)) for step in range(1, 9)]
        source.curves[row.key] = {"loss": [MetricPoint(step, 1e9 + step, value) for step, value in values]}
    page = visitor.enter(serve(source), f"#/curves?group={GROUP}")
    plot = page.locator(".plot")
    expect(plot).to_have_attribute("data-drawn", "5")
    expect(page.locator(".legendlist li").first).to_contain_text("T 00000004")
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 14, box["y"] + box["height"] - 66)
    page.mouse.move(box["x"] + box["width"] - 14, box["y"] + box["height"] - 60)
    expect(plot.locator(".tip")).to_contain_text("step 8")
    first = "experiments:t.T/00000000"
    source.curves[first] = {"loss": [*source.curves[first]["loss"], MetricPoint(9, 1e9 + 9, 0.001)]}
    expect(page.locator(".legendlist li").first).to_contain_text("T 00000000")
    visitor.go(page, job_address("experiments:t.T/00000001"))
    expect(page.locator("section[aria-label=loss] .plot")).to_have_attribute("data-drawn", "1")


def test_a_curve_that_grows_is_drawn_on_and_not_anew(serve: Serve, visitor: Visitor) -> None:
    source = group_source()
    key = source.put(fake_row(GROUP, "t.T", "00000001", JobState.RUNNING, attempt=1)).key
    grow = [MetricPoint(step, 1e9 + step, 1 + step % 7) for step in range(400)]
    source.curves[key] = {"reward": grow[:300]}
    page = visitor.enter(serve(source), f"#/curves?group={GROUP}")
    expect(page.locator(".plot")).to_have_attribute("data-drawn", "1")
    page.evaluate("""() => {
      window.drawn = [];
      const pen = CanvasRenderingContext2D.prototype;
      const [line, copy] = [pen.lineTo, pen.drawImage];
      let count = 0;
      pen.lineTo = function (...at) { count += 1; line.apply(this, at); };
      pen.drawImage = function (...what) { window.drawn.push(count); count = 0; copy.apply(this, what); };
    }""")
    drawn_so_often = """(count) => new Promise((done) => {
      const look = () => window.drawn.length >= count ? done(window.drawn) : setTimeout(look, 10);
      look();
    })"""
    drawn = []
    for count in (301, 302, 303):
        source.curves[key] = {"reward": grow[:count]}
        drawn = page.evaluate(drawn_so_often, count - 300)
    assert drawn[0] > 200, "the scale had no room for more"
    assert drawn[1:] == [1, 1]
    painted = """() => {
      const canvas = document.querySelector(".plot canvas");
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return data.filter((_, at) => at % 4 === 3).reduce((sum, alpha) => sum + (alpha > 100 ? 1 : 0), 0);
    }"""
    assert page.evaluate(painted) > 1_000


def test_one_point_alone_is_drawn_in_the_middle_of_its_plot(serve: Serve, visitor: Visitor) -> None:
    source = group_source()
    row = running_job(source)
    source.curves[row.key] = {"loss": [MetricPoint(0, 1e9, 0.5)]}
    page = visitor.enter(serve(source), f"#/curves?group={GROUP}")
    plot = page.locator(".plot")
    expect(plot).to_have_attribute("data-drawn", "1")
    box = plot.bounding_box()
    assert box is not None
    for right in (20, 24):
        page.mouse.move(box["x"] + box["width"] / 2 + right, box["y"] + box["height"] / 2 - 20)
    expect(plot.locator(".tip")).to_contain_text("step 0")


def test_the_use_of_a_job_and_its_host_is_drawn_beside_its_metrics(serve: Serve, visitor: Visitor) -> None:
    source = group_source()
    row = running_job(source)
    source.put(row._replace(where="node-7"))
    begun = row.started.timestamp() if row.started else 0.0
    source.curves[row.key] = {
        "loss": [MetricPoint(step, begun + step, 1 / (step + 1)) for step in range(5)],
        "system/memory": [MetricPoint(step, begun + 10 * step, 2e9 + step) for step in range(5)],
        "system/host_cpu": [MetricPoint(step, begun + 10 * step, 0.25) for step in range(5)],
    }
    page = visitor.enter(serve(source), job_address(row.key))
    expect(page.locator("section[aria-label=loss] .plot")).to_have_attribute("data-drawn", "1")
    page.get_by_text("Resources over time").click()
    expect(page.locator("section[aria-label=memory]")).to_contain_text("2 GB")
    expect(page.locator("section[aria-label='host cpu'] .plot")).to_have_attribute("data-drawn", "1")
    visitor.go(page, "#/resources")
    hosts = page.locator("section[aria-label=Hosts]")
    expect(hosts.locator("tbody tr")).to_have_text("node-7125 %–")
    expect(hosts.locator(".plot").first).to_have_attribute("data-drawn", "1")


def test_a_list_without_jobs_says_how_to_see_all(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo, "#/jobs?filter=state%3Dunscheduled")
    expect(page.get_by_text("No job matches this search.")).to_be_in_viewport()
    page.get_by_role("link", name="show all jobs").click()
    expect(page.locator(".rows [role=row]").first).to_be_visible()


def test_results_are_saved_as_csv(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo, f"#/results?group={SWEEP}")
    expect(page.locator("circle.best")).to_have_count(1)
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").click()
    first, *lines = saved.value.path().read_text().splitlines()
    assert first.startswith("key,task,id,state,lr,seed,result.accuracy")
    assert len(lines) == page.locator("tbody tr").count()


def test_the_wheel_zooms_the_timeline_and_a_drag_moves_it(six: tuple[Page, Builder]) -> None:
    page, _ = six
    span = page.locator(".span")
    before = span.inner_text()
    box = page.locator("canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    with page.expect_response(lambda answer: "/api/timeline" in answer.url and answer.status == 200):
        page.mouse.wheel(0, -300)
    expect(span).not_to_have_text(before)
    zoomed = span.inner_text()
    with page.expect_response(lambda answer: "/api/timeline" in answer.url and answer.status == 200):
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2 - 80, box["y"] + 60, steps=3)
        page.mouse.up()
    expect(span).not_to_have_text(zoomed)


def test_a_waiting_job_can_be_cancelled(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo, "#/jobs?filter=state%3Dwaiting+kind%3Dservice")
    page.locator(".rows [role=row]").first.click()
    beside = page.get_by_role("complementary", name="Job")
    expect(beside.get_by_role("button", name="Cancel")).to_be_enabled()
    visitor.go(page, f"#/jobs?group={SWEEP}&filter=state%3Dwaiting")
    page.locator(".rows [role=row]").first.click()
    expect(beside.get_by_role("button", name="Cancel")).to_be_enabled()


def test_a_view_that_was_left_does_not_draw_over_a_later_one(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/api/job?*", hold)
    page.evaluate("address => { location.hash = address }", job_address(RUNNING))
    expect(page).to_have_title(re.compile("Job · Tenuto$"))
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    visitor.go(page, f"#/graph?group={SWEEP}")
    while not held:
        page.wait_for_timeout(10)
    with page.expect_response("**/api/job?*"):
        held[0].continue_()
    page.wait_for_timeout(200)
    expect(page.locator("main h1")).to_have_text("Graph")
    assert page.title().endswith("Graph · Tenuto")
    assert page.locator("main > *").count() == 1


def test_19_actions_ask_first_and_name_the_attempt(serve: Serve, visitor: Visitor) -> None:
    source = group_source()
    key = running_job(source).key
    page = visitor.enter(serve(source), job_address(key))
    page.get_by_role("button", name="Kill").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("attempt 2")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert source.row(key).state is JobState.RUNNING

    page.get_by_role("button", name="Kill").click()
    source.put(source.row(key)._replace(attempt=3))
    dialog.get_by_role("button", name="Kill").click()
    expect(page.locator("#said")).to_contain_text("Nothing was done")
    expect(page.locator("#said")).to_contain_text("attempt 3")
    expect(page.locator("[data-field=attempt]")).to_have_text("attempt 3")
    assert source.row(key).state is JobState.RUNNING

    page.get_by_role("button", name="Kill").click()
    dialog.get_by_role("button", name="Kill").click()
    expect(page.locator("[data-field=state]")).to_have_text("✗ error")
    page.get_by_role("button", name="Retry").click()
    dialog.get_by_role("button", name="Retry").click()
    expect(page.locator("[data-field=attempt]")).to_have_text("attempt 4")
    source.put(source.row(key)._replace(state=JobState.DONE))
    page.get_by_role("button", name="Clean").click()
    dialog.get_by_role("button", name="Clean").click()
    expect(page.locator("#said")).to_contain_text("was deleted")


def test_19_marked_jobs_are_asked_for_together(serve: Serve, visitor: Visitor) -> None:
    source = group_source()
    for number in range(3):
        source.put(fake_row(GROUP, "my.Train", f"{number}", JobState.RUNNING, attempt=number + 1))
    page = visitor.enter(serve(source), f"#/jobs?group={GROUP}")
    for number in (0, 2):
        page.locator(f'[data-key="experiments:my.Train/{number}"] input').click()
    page.get_by_role("group", name="Marked jobs").get_by_role("button", name="Kill").click()
    expect(page.get_by_role("dialog")).to_contain_text("attempt 3")
    page.get_by_role("dialog").get_by_role("button", name="Kill").click()
    expect(page.locator('.rows [data-state="error"]')).to_have_count(2)
    assert source.row("experiments:my.Train/1").state is JobState.RUNNING


def test_19_a_read_only_page_has_no_actions(serve: Serve, visitor: Visitor) -> None:
    source = group_source()
    key = running_job(source).key
    page = visitor.enter(serve(source, read_only=True), job_address(key))
    expect(page.get_by_text("read only")).to_be_visible()
    expect(page.get_by_role("button", name="Kill")).to_have_count(0)


def test_20_a_log_is_followed_until_the_person_scrolls_up(serve: Serve, visitor: Visitor) -> None:
    source = group_source()
    key = running_job(source).key
    source.logs[key, "out"] = b"".join(b"line %d\n" % number for number in range(200))
    page = visitor.enter(serve(source), job_address(key))
    log = page.get_by_role("log")
    expect(log.locator(".line").last).to_have_text("line 199")
    source.logs[key, "out"] += b"10 %\r20 %\r30 %\n\xff\xfe bytes\r\n\x1b[31mred\x1b[0m\n"
    expect(log.get_by_text("30 %", exact=True)).to_be_visible()
    expect(log.locator(".line").last).to_have_text("red")
    expect(log.locator(".line").nth(201)).to_have_text("\ufffd\ufffd bytes")
    expect(log.locator(".line").nth(199)).to_have_attribute("data-line", "200")
    expect(log.locator(".line").last).to_have_attribute("title", re.compile(r"^came at \d\d:\d\d:\d\d$"))
    expect(log.locator(".line").first).not_to_have_attribute("title", re.compile("came"))

    log.evaluate("log => { log.scrollTop = 0 }")
    expect(page.get_by_role("button", name="Follow")).to_have_attribute("aria-pressed", "false")
    source.logs[key, "out"] += b"later\n"
    expect(log.locator(".line").last).to_have_text("later")
    assert log.evaluate("log => log.scrollTop") == 0
    page.get_by_role("button", name="Follow").click()
    expect(log.get_by_text("later")).to_be_in_viewport()

    source.logs[key, "out"] = b"a new attempt begins\n"
    source.put(source.row(key)._replace(attempt=3))
    expect(log.locator(".line")).to_have_count(1)
    expect(log.locator(".line")).to_have_text("a new attempt begins")
    source.logs[key, "err"] = b"Traceback (most recent call last):\n"
    page.get_by_role("button", name="err", exact=True).click()
    expect(log.locator(".bad")).to_have_count(1)


class Endless(FakeLog):
    """A log of a gigabyte that takes no memory."""

    def __init__(self, size: int, piece: bytes) -> None:
        super().__init__(b"", 2, has_ended=False)
        self._size, self._piece = size, piece

    def size(self) -> int:
        return self._size

    def read(self, offset: int, limit: int) -> bytes:
        limit = max(min(limit, self._size - offset), 0)
        skip = offset % len(self._piece)
        return (self._piece * (limit // len(self._piece) + 2))[skip : skip + limit]


@pytest.mark.parametrize(
    ("size", "piece", "seen"),
    [(1 << 30, b"0123456789 abcdef\n", "0123456789 abcdef"), (100_000_000, b"x", "characters)")],
    ids=["a gigabyte", "one line of 100 MB"],
)
def test_20_logs_of_any_size(serve: Serve, visitor: Visitor, size: int, piece: bytes, seen: str) -> None:
    source = group_source()
    key = running_job(source).key
    source.log = lambda key, stream, earlier: Endless(size, piece)  # type: ignore[method-assign]
    page = visitor.enter(serve(source), job_address(key))
    log = page.get_by_role("log")
    expect(log.locator(".line").first).to_contain_text(seen)
    assert log.locator(".line").count() <= 5_000
    assert len(log.inner_text()) < 200_000


def test_the_timeline_has_rows_by_task(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo, f"#/timeline?group={SWEEP}")
    with page.expect_response(lambda answer: "by=task" in answer.url and answer.status == 200):
        page.get_by_label("Rows").select_option("task")
    expect(page.get_by_label("Rows")).to_have_value("task")


def test_23_a_bar_of_the_timeline_opens_its_job(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo, f"#/timeline?group={SWEEP}")
    page.locator(f'.bars a[data-bar="{RUNNING} 2"]').focus()
    expect(page.locator(".trail")).to_contain_text("ran ")
    expect(page.locator(".counts")).to_contain_text("now")
    visitor.go(page, "#/timeline")
    canvas = page.locator("canvas")
    box = canvas.bounding_box()
    assert box is not None
    canvas.click(position={"x": box["width"] - 20, "y": 20 + 32 + 5 * 22 + 11})
    expect(page.locator("[data-field=id]")).to_be_visible()


def test_a_bar_tells_its_tags_and_a_double_click_on_it_fits_the_timeline(
    demo: Served, visitor: Visitor
) -> None:
    page = visitor.enter(demo, "#/timeline")
    canvas, span = page.locator("canvas"), page.locator(".span")
    box = canvas.bounding_box()
    assert box is not None
    bar: Position = {"x": box["width"] - 20, "y": 20 + 32 + 5 * 22 + 11}
    canvas.hover(position=bar)
    expect(page.locator(".trail")).to_contain_text("ran ")
    expect(page.locator(".hovered")).to_contain_text("waited")
    with page.expect_response(lambda answer: "/api/timeline" in answer.url and answer.status == 200):
        page.mouse.wheel(0, -300)
    zoomed = span.inner_text()
    canvas.dblclick(position=bar)
    expect(span).not_to_have_text(zoomed)
    page.wait_for_timeout(400)
    expect(canvas).to_be_visible()


def test_23_the_timeline_zooms_at_every_click(demo: Served, visitor: Visitor) -> None:
    """The API takes whole milliseconds; half of an odd span is none."""
    page = visitor.enter(demo, f"#/timeline?group={SWEEP}")
    for name in ["zoom in"] * 15 + ["zoom out"] * 25 + ["fit"]:
        with page.expect_response(lambda answer: "/api/timeline" in answer.url) as answered:
            page.get_by_role("button", name=name).click()
        assert answered.value.status == 200, answered.value.url


def test_23_the_timeline_shows_the_units_of_tokens_that_are_held(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo, f"#/timeline?group={SWEEP}")
    expect(page.locator("[data-token=gpu]")).to_have_text("token gpu: 2 of 2 held")


@pytest.fixture
def six(serve: Serve, visitor: Visitor, tmp_path: Path) -> tuple[Page, Builder]:
    """The timeline of six jobs that ended a minute apart, brushed over the third and the fourth."""
    workspace = Builder(tmp_path / "ws")
    names = [f"job{number}" for number in range(6)]
    for number, name in enumerate(names):
        workspace.job(name, ended=NOW + timedelta(minutes=number))
    workspace.run(*map(line, names))
    first, last = (round((NOW + timedelta(minutes=minutes)).timestamp() * 1000) for minutes in (-1, 6))
    source = ExperimentSource(workspace.view, Settings())
    page = visitor.enter(serve(source), f"#/timeline?group=experiments:sweep/{RUN}&from={first}&to={last}")
    box = page.locator("canvas").bounding_box()
    assert box is not None

    def x(minutes: float) -> float:
        return box["x"] + 130 + (minutes + 1) / 7 * (box["width"] - 138)

    page.mouse.move(x(1.5), box["y"] + 12)
    page.mouse.down()
    page.mouse.move(x(3.5), box["y"] + 12, steps=4)
    page.mouse.up()
    return page, workspace


def test_23_brushing_the_timeline_shows_the_jobs_that_tenuto_jobs_lists(six: tuple[Page, Builder]) -> None:
    page, workspace = six
    brushed = page.locator(".brushed li a")
    expect(brushed).to_have_text(["Train job2", "Train job3"])
    written = page.get_by_label("Filter of what is brushed").input_value()
    done = CliRunner().invoke(jobs_command.command, [written, "-w", workspace.layout.root, "--json"])
    assert {job["id"] for job in json.loads(done.stdout)} == {"job2", "job3"}
    page.get_by_role("link", name="see jobs").click()
    expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", "3")


def test_23_zooming_in_shows_what_is_brushed(six: tuple[Page, Builder]) -> None:
    page, _ = six
    expect(page.locator(".brushed li")).to_have_count(2)
    bars = page.locator(".bars li")
    expect(bars).to_have_count(6)
    page.get_by_role("button", name="zoom in").click()
    expect(bars).to_have_count(2)
    expect(page.locator(".brushed li")).to_have_count(0)
    shown = page.locator(".span").inner_text()
    page.get_by_role("button", name="fit").click()
    expect(page.locator(".span")).not_to_have_text(shown)


def test_23_a_node_of_the_graph_opens_its_jobs(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo, f"#/graph?group={SWEEP}")
    node = page.locator('[data-node="demo.Evaluate"]')
    node.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", "41")
    visitor.go(page, f"#/graph?group={SWEEP}&around={quote(RUNNING, safe='')}")
    page.locator(f'[data-node="{RUNNING}"]').click()
    expect(page.locator("[data-field=id]")).to_have_text("00000006aaaaaaaa")


def test_23_brushing_results_gives_a_filter_of_the_command_line(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo, f"#/results?group={SWEEP}&task=demo.Evaluate")
    expect(page.locator("tbody tr").first).to_be_visible()
    before = page.locator("tbody tr").count()
    picture = page.locator("section[aria-label=Scatter] svg")
    box = picture.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.14, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] - 10, steps=4)
    page.mouse.up()
    written = page.get_by_label("Filter of what is brushed").input_value()
    assert "lr>=" in written
    assert "lr<=" in written
    assert "result.accuracy>=" in written, "the first result over the first tag"
    parse_filter(written)
    rows = page.locator("tbody tr")
    assert 0 < rows.count() < before
    page.get_by_role("link", name="see jobs").click()
    expect(page.get_by_role("grid")).to_have_attribute("aria-label", "Jobs")
    expect(page.locator(".rows [role=row]").first).to_be_visible()
    page.go_back()
    page.locator("tbody a").first.click()
    expect(page.locator("[data-field=id]")).to_be_visible()


def test_23_no_line_is_drawn_through_a_missing_value(serve: Serve, visitor: Visitor) -> None:
    source = group_source()
    for number in range(6):
        row = source.put(fake_row(GROUP, "t.T", f"{number:08}", JobState.DONE))
        source.values[row.key] = (
            {"result.rows": number, "result.size": number, "took_s": 1.0 + number}
            if number % 2
            else {"result.f1": number / 10, "result.recall": number / 5, "took_s": 2.0 + number}
        )
    page = visitor.enter(serve(source), f"#/results?group={GROUP}")
    lines = page.locator("section[aria-label='Parallel coordinates'] polyline")
    expect(lines).to_have_count(6)
    for one in lines.all():
        places = [float(point.partition(",")[0]) for point in (one.get_attribute("points") or "").split()]
        steps = {round(right - left) for left, right in pairwise(places)}
        assert steps == {120}, "a line joins axes that stand beside each other"
    expect(page.locator("section[aria-label=Scatter] circle")).to_have_count(3)


def test_23_a_cell_of_the_archive_opens_its_job(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo, "#/archive")
    cell = page.locator(".map .cell[data-key]").first
    key = cell.get_attribute("data-key") or ""
    cell.hover()
    expect(page.get_by_role("heading", name="Cell")).to_be_visible()
    cell.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page.locator("[data-field=id]")).to_have_text(f"packing#{key.rpartition('/')[2]}")


def test_23_a_cell_shows_where_its_elite_comes_from(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo, "#/archive")
    page.locator('.map .cell[data-key="search:packing/100"]').focus()
    lineage = page.locator("[data-field=lineage]")
    expect(lineage.locator("a")).to_have_text(
        ["packing#80", "packing#60", "packing#40", "packing#20", "packing#0"]
    )
    expect(page.locator(".lineage polyline")).to_have_count(1)
    lineage.locator("a").first.click()
    expect(page.locator("[data-field=needs]")).to_contain_text("packing#60")


def test_a_job_shows_the_trail_of_its_reasons_and_commands_to_copy(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo, permissions=["clipboard-read", "clipboard-write"])
    visitor.go(page, job_address(FAILED.replace("Train", "Evaluate").replace("aaaaaaaa", "bbbbbbbb")))
    because = page.locator("[data-field=because]")
    expect(because.locator("a")).to_have_text(["Train 00000005"])
    expect(because).to_contain_text("lr must be positive")
    page.locator("[data-part=commands] summary").click()
    page.get_by_role("button", name="Copy tenuto logs").click()
    expect(page.locator("#said")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == "tenuto logs -f 00000005"


def test_a_narrow_overview_folds_what_runs_and_what_failed(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo, viewport={"width": 360, "height": 740})
    running = page.locator(".running li").first
    expect(running).to_be_hidden()
    page.get_by_role("heading", name="Now running").click()
    expect(running).to_be_visible()


@pytest.mark.parametrize("width", [1280, 1920])
def test_no_line_of_the_overview_leaves_its_column(demo: Served, visitor: Visitor, width: int) -> None:
    page = visitor.enter(demo, viewport={"width": width, "height": 1000})
    expect(page.locator(".waiting li, [aria-label=Waiting] li").first).to_be_visible()
    outside = """() => [...document.querySelectorAll(".now, .now *")].filter((part) =>
        part.clientWidth && part.scrollWidth > part.clientWidth + 1
        && getComputedStyle(part).overflowX === "visible").length"""
    assert page.evaluate(outside) == 0


def test_a_failure_leads_to_its_jobs(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo)
    page.locator(".failure", has_text="ValueError").get_by_role("link", name="see").click()
    expect(page.locator(f'[data-key="{FAILED}"]').first).to_be_visible()


def test_a_search_shows_its_course_importance_and_slices(
    serve: Serve, visitor: Visitor, tmp_path: Path
) -> None:
    evolution = Evolution(
        "course",
        Trade.C(single=True),
        space={"x": Real(0, 1), "y": Real(0, 1)},
        workdir=tmp_path,
        max_total_jobs=16,
    )
    evolution.run(2)
    database = evolution.open().store.database
    page = visitor.enter(serve(SearchSource(database, str(tmp_path))), "#/results?group=search:course")
    expect(page.get_by_label("Best so far").locator("polyline")).to_have_count(1)
    shares = page.get_by_label("Importance").locator("meter")
    expect(shares).to_have_count(2)
    expect(shares.first).to_have_attribute("aria-label", re.compile("^x: "))
    expect(page.get_by_label("Slices").locator("svg")).to_have_count(2)
    page.get_by_label("Slices").locator("svg").last.click()
    expect(page.get_by_label("Scatter").locator("svg")).to_have_attribute("aria-label", re.compile("over y"))
    evolution.close()


def test_the_ticks_of_the_archive_lie_at_its_cells_on_a_phone(demo: Served, visitor: Visitor) -> None:
    page = visitor.enter(demo, "#/archive")
    page.set_viewport_size({"width": 390, "height": 780})
    page.wait_for_function("innerWidth === 390 && document.querySelector('.ticks.horizontal')?.offsetWidth")
    cells, ticks = page.evaluate(
        """() => [".mapbox .map", ".ticks.horizontal"].map(one => {
            const box = document.querySelector(one).getBoundingClientRect();
            return [box.x, box.width];
        })"""
    )
    assert cells == ticks
