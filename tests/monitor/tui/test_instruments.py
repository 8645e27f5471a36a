"""Timeline, graph, results, archive, resources and the split view, with their own keys."""

from __future__ import annotations

import re

from tenuto.clock import SystemClock
from tenuto.jobs.row import Group
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobState
from tenuto.testing.fake_source import FakeSource, fake_row
from tenuto.testing.monitor_demo import demo_sources
from tests.monitor.tui.conftest import SWEEP, Terminal, provided, show

WIDE = (200, 50)


def test_the_timeline_goes_from_bar_to_bar_tells_the_trail_and_opens_the_job() -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.press("3")
        await terminal.until("sweep/0101_1402┤")
        row = next(line for line in terminal.text.splitlines() if "token gpu 2" in line)
        assert "█" in row.partition("┤")[2]
        assert "(2)" in terminal.text
        await terminal.press("tab")
        await terminal.until("Prepare 88ad934f waited")
        await terminal.press("tab")
        await terminal.until(lambda: re.search("Train 0000000. waited", terminal.text))
        await terminal.press("shift+tab", "enter")
        await terminal.until("Prepare 88ad934f")

    with provided() as provider:
        show(provider, scenario, group=SWEEP)


def test_the_timeline_is_zoomed_moved_and_fitted() -> None:
    def span(terminal: Terminal) -> str:
        found = re.search(r"\d\d:\d\d:\d\d ── ", terminal.text)
        return found[0] if found else ""

    async def scenario(terminal: Terminal) -> None:
        await terminal.press("3")
        await terminal.until("── ")
        begun = span(terminal)
        await terminal.press("+")
        await terminal.until(lambda: span(terminal) not in ("", begun))
        later = span(terminal)
        await terminal.press("left")
        await terminal.until(lambda: begun < span(terminal) < later)
        await terminal.press("right", "-", "z")
        await terminal.until(lambda: span(terminal) == begun)
        assert begun

    with provided() as provider:
        show(provider, scenario, group=SWEEP)


def test_a_node_of_the_graph_opens_its_jobs_and_a_job_shows_what_is_around_it() -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.press("4")
        text = await terminal.until("┌Evaluate")
        assert "──▶" in text
        await terminal.press("down", "enter")
        await terminal.until("filter: task=demo.T")
        await terminal.until(">00000000 Train")
        await terminal.press("enter")
        await terminal.until("epoch 15")
        await terminal.press("4")
        await terminal.until("around Train 00000000, 2 steps")
        await terminal.until("┌Prepare 88ad934f")
        await terminal.press("-")
        await terminal.until("1 steps")
        await terminal.press("g", "enter")
        await terminal.until("Prepare 88ad934f")
        await terminal.press("escape", "escape")
        await terminal.until("by task")

    with provided() as provider:
        show(provider, scenario, group=SWEEP)


def test_results_are_sorted_filtered_drawn_on_other_axes_and_opened() -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.press("5")
        await terminal.until("ACCURACY▼")
        assert "y result.accuracy" in terminal.text
        await terminal.press("S")
        await terminal.until("ACCURACY▲")
        await terminal.press("y", "x", "L")
        await terminal.until("y result.loss   x seed (log)")
        await terminal.press("p")
        await terminal.until("top 10 %")
        await terminal.press("p", "s", "/")
        await terminal.type("seed=3")
        await terminal.press("enter")
        await terminal.until("filter: seed=3")
        await terminal.press("t")
        await terminal.until("task Train")
        await terminal.press("enter")
        await terminal.until("attempt 1")

    with provided() as provider:
        show(provider, scenario, (120, 24), group=SWEEP)


def test_results_begin_over_the_tag_that_varies() -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.press("5")
        assert "x lr (log)" in await terminal.until("y result.loss")

    source, group = FakeSource(), "experiments:sweep/1"
    source.put_group(Group(group, Door.EXPERIMENTS, "sweep", "1", "done", False))
    for number, lr in enumerate((0.001, 0.1, 1.0)):
        tags = {"same": 1, "lr": lr}
        row = source.put(fake_row(group, "t.T", f"{number:08}", JobState.DONE, attempt=1, tags=tags))
        source.values[row.key] = {"took_s": number + 1.0, "result.loss": lr / 2}
    with provided(source) as provider:
        show(provider, scenario, (120, 24), group=group)


def test_results_of_a_search_show_whole_names() -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.press("5")
        assert "packing#12" in await terminal.until("OBJECTIVE")

    source, group = FakeSource(Door.SEARCH), "search:packing"
    source.put_group(Group(group, Door.SEARCH, "packing", None, "RUNNING", True))
    for number in (11, 12):
        row = source.put(fake_row(group, "packing", str(number), JobState.DONE, attempt=1))
        source.values[row.key] = {"x": float(number), "objective": number / 2}
    with provided(source) as provider:
        show(provider, scenario, group=group)


def test_a_cell_of_the_archive_is_reached_by_arrows_and_opens_its_job() -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.press("7")
        await terminal.until("cell 12,7")
        await terminal.until("replaced   2 times")
        await terminal.until("last by    +0.012")
        await terminal.press("left", "up")
        await terminal.until("cell 11,8")
        await terminal.press("right", "down", "p")
        await terminal.until("parents of packing#236")
        await terminal.press("escape", "enter")
        assert "cell 12,7" not in await terminal.until("✓ done (SUCCEEDED)  attempt 1")

    with provided() as provider:
        show(provider, scenario)


def test_resources_show_tokens_queue_nodes_energy_and_clean_up_and_kill_the_unowned() -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.press("6")
        text = await terminal.until("31 finished jobs belong to no run, 1.2 GB")
        for title in ("tokens", "services of runs", "queue", "nodes", "energy", "clean-up"):
            assert f"─ {title} ─" in text
        assert re.search("node-1:5000 +▶ up", text)
        assert re.search("node-2:5000 +✗ away", text)
        await terminal.press("K")
        await terminal.until("Train 00000006, attempt 2")
        await terminal.press("n", "G", "g", "pagedown")

    with provided() as provider:
        show(provider, scenario, (100, 40))


def test_the_split_view_shows_list_job_log_and_timeline_side_by_side() -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.until("88ad934f Prepare")
        await terminal.press(*["down"] * 11)
        await terminal.until("Train 00000005  ✗ error  attempt 1")
        text = await terminal.until("Traceback")
        for title in ("groups", "over time", "failures", "tokens", "timeline", "log: err"):
            assert f"─ {title}" in text
        for row in [row for chunk in source.rows(SWEEP) for row in chunk if row.state is JobState.RUNNING]:
            source.put(row._replace(state=JobState.DONE, ended=SystemClock().now(), progress=None))
        await terminal.until(lambda: re.search(r"0\.0(5|67) jobs/s", terminal.text))  # one more ended before
        await terminal.press("e")
        await terminal.until("log: out")
        await terminal.until("epoch 15 loss")
        await terminal.press("tab", "z")
        await terminal.until(lambda: "groups" not in terminal.text and "epoch 15 loss" in terminal.text)
        await terminal.press("escape", "tab")
        await terminal.until("─ groups")
        await terminal.press("g", "enter")
        await terminal.until("jobs evo packing")
        await terminal.press("G")
        await terminal.until("packing#259  ▶ running")
        await terminal.pilot.resize_terminal(100, 30)
        await terminal.until(lambda: "─ groups" not in terminal.text and ">packing#259" in terminal.text)

    sources = demo_sources(24)
    source = sources[0]
    with provided(*sources) as provider:
        show(provider, scenario, WIDE, group=SWEEP)


def test_curves_of_a_group_are_drawn_the_best_first_filtered_and_opened() -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.see("8")
        text = await terminal.until("curves sweep/0101_1402  loss")
        assert "┤" in text
        best = next(line for line in text.splitlines() if ">━" in line)
        losses = [float(line.split()[-3]) for line in text.splitlines() if "━ " in line]
        assert len(losses) > 3
        assert losses == sorted(losses)
        await terminal.press("L")
        await terminal.until("loss (log)")
        await terminal.press("y")
        await terminal.until("accuracy (log)")
        await terminal.press("/", *"lr<0.02", "enter")
        await terminal.until("filter: lr<0.02")
        await terminal.until(lambda: "lr=0.1000" not in terminal.text)
        assert "lr=0.0" in terminal.text
        await terminal.press("enter")
        await terminal.until("progress" if "running" in best else "because")

    with provided() as provider:
        show(provider, scenario, (120, 40), group=SWEEP)


def test_a_group_without_metrics_says_how_to_log_some() -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.see("8")
        assert "no job of this group has logged a metric yet" in await terminal.until("log_metrics(")

    with provided() as provider:
        show(provider, scenario, (80, 24), group="search:packing")


def test_the_wide_overview_draws_the_curves_of_the_group_under_the_cursor() -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.until("─ over time evo packing ─")
        assert "the best in front" not in terminal.text
        await terminal.press("down")
        text = await terminal.until("─ loss, ")
        assert text.count(" now ─") == 1

    with provided() as provider:
        show(provider, scenario, WIDE)


def test_the_wide_overview_has_sparkline_and_tokens_beside_it() -> None:
    async def scenario(terminal: Terminal) -> None:
        text = await terminal.until("─ over time evo packing ─")
        assert "─ tokens ─" in text
        waiting = (await terminal.until(" that wait ─")).partition(" that wait ─")[2]
        assert waiting.count("waits for demo.Train") > 3  # what waits fills the rest of the window
        assert "8 curves" in waiting
        await terminal.press("down")
        await terminal.until("─ over time sweep/0101_1402 ─")
        await terminal.until("⣿")

    with provided() as provider:
        show(provider, scenario, WIDE)


def test_the_log_gets_the_whole_window_and_shares_it_again() -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.until(">00000006 Train")
        await terminal.press("enter")
        await terminal.until("params")
        await terminal.press("z")
        await terminal.until(lambda: "params" not in terminal.text and "epoch 15" in terminal.text)
        await terminal.press("z", "v")
        assert "params" in await terminal.until("no event of this job is kept")

    with provided() as provider:
        show(provider, scenario, group=SWEEP, filter="id=00000006aaaaaaaa")
