"""Line 22: every attempt is drawn once, no overlap, bins sum to the whole."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tenuto.clock import SystemClock
from tenuto.experiments.source import ExperimentSource
from tenuto.jobs.row import Door, Row
from tenuto.jobs.source import Moment
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.monitor.provider import LocalProvider
from tenuto.monitor.timeline import (
    MOST_BARS,
    Bar,
    TimelineHistory,
    Timelines,
    TimelineWait,
    bins,
    draw_group,
    held_over,
    joins,
    milliseconds,
    packed,
)
from tenuto.settings import Settings
from tenuto.testing.fake_source import FakeSource
from tenuto.testing.monitor_demo import demo_sources
from tests.jobs.workspaces import NOW as NOW_THERE
from tests.jobs.workspaces import RUN, Builder
from tests.jobs.workspaces import line as job_line

START = datetime(2026, 1, 1, tzinfo=UTC)
NOW = START + timedelta(seconds=200)
BEFORE = NOW_THERE - timedelta(hours=1)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


BARS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 4), st.integers(0, 100), st.none() | st.integers(0, 50)),
    max_size=40,
    unique_by=lambda one: (one[0], one[1]),
).map(
    lambda made: [
        Bar(
            f"k{key}",
            attempt,
            at(start),
            None if length is None else at(start + length),
            JobState.RUNNING if length is None else JobState.DONE,
        )
        for key, attempt, start, length in made
    ]
)

LIVES = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(JobState), st.integers(0, 100), st.integers(0, 3)),
    max_size=60,
)


def moments(lives: list[tuple[int, JobState, int, int]]) -> list[Moment]:
    made = [
        Moment(
            at(second),
            f"k{key}",
            state,
            attempt,
            JobFailureStatus.FAILED if state is JobState.ERROR else None,
        )
        for key, state, second, attempt in lives
    ]
    return sorted(made, key=lambda one: one.at)


@given(BARS)
def test_line_22_bars_on_one_line_never_overlap_and_each_is_drawn_once(bars: list[Bar]) -> None:
    placed = packed(bars, NOW)
    assert Counter(one.bar for one in placed) == Counter(bars)
    lines: dict[int, list[Bar]] = {}
    for line, bar in placed:
        lines.setdefault(line, []).append(bar)
    for written in lines.values():
        written.sort(key=lambda bar: bar.start)
        for before, after in pairwise(written):
            assert before.end is not None
            assert before.end <= after.start
    assert set(lines) == set(range(len(lines)))


@given(BARS, st.integers(1, 50))
def test_line_22_bins_sum_to_the_whole(bars: list[Bar], width: int) -> None:
    made = bins(bars, START, NOW, NOW, width)
    total: Counter[str] = Counter()
    for start, end, counts in made:
        assert start <= end
        total.update(counts)
    assert total == Counter(bar.state.name.lower() for bar in bars)


@given(BARS)
def test_line_22_attempts_of_one_job_are_joined_in_their_order(bars: list[Bar]) -> None:
    placed = packed(bars, NOW)
    made = joins(placed, NOW)
    counted = Counter(bar.key for bar in bars)
    assert Counter(join[4] for join in made) == Counter({key: n - 1 for key, n in counted.items() if n > 1})
    ends = {(one.line, milliseconds(one.bar.end or NOW), one.bar.key) for one in placed}
    starts = {(one.line, milliseconds(one.bar.start), one.bar.key) for one in placed}
    for line, end, next_line, start, key in made:
        assert (line, end, key) in ends
        assert (next_line, start, key) in starts


def test_line_22_the_next_attempt_goes_on_the_line_of_the_one_before() -> None:
    first = Bar("a", 1, at(0), at(10), JobState.ERROR)
    other = Bar("b", 1, at(5), at(40), JobState.DONE)
    again = Bar("a", 2, at(20), None, JobState.RUNNING)
    between = Bar("c", 1, at(11), at(12), JobState.DONE)
    placed = {one.bar: one.line for one in packed([first, other, between, again], NOW)}
    assert placed[again] == placed[first]
    drawn = draw_group(
        [first, other, again], [TimelineWait("a", at(10), at(20), "waits")], START, NOW, NOW, 100
    )
    assert drawn.waits[0][0] == placed[again]
    assert drawn.joins == [[0, milliseconds(at(10)), 0, milliseconds(at(20)), "a"]]


@given(
    BARS,
    st.dictionaries(st.sampled_from([f"k{key}" for key in range(10)]), st.integers(1, 3)),
    st.integers(0, 150),
)
def test_tokens_over_time_are_the_sum_of_what_is_held(
    bars: list[Bar], amounts: dict[str, int], second: int
) -> None:
    asked = {key: {"gpu": amount} for key, amount in amounts.items()}
    steps = held_over(bars, asked, START, NOW, NOW, 100).get("gpu", [])
    for before, after in pairwise(steps):
        assert before[1] <= after[0]
    instant = milliseconds(at(second)) + 500
    held = sum(
        amounts.get(bar.key, 0)
        for bar in bars
        if milliseconds(bar.start) <= instant < milliseconds(bar.end or NOW)
    )
    assert sum(step[2] for step in steps if step[0] <= instant < step[1]) == held


def test_many_steps_of_a_token_become_the_highest_of_each_part_of_the_time() -> None:
    bars = [
        Bar(f"k{number}", 1, at(number / 50), at(number / 50 + 0.01), JobState.DONE)
        for number in range(MOST_BARS + 1)
    ]
    steps = held_over(bars, {bar.key: {"gpu": 2} for bar in bars}, START, NOW, NOW, 40)["gpu"]
    assert len(steps) <= 40
    assert {step[2] for step in steps} == {2}


def test_the_timeline_shows_how_the_tokens_of_all_runs_were_held() -> None:
    provider = LocalProvider(demo_sources(24))
    try:
        assert provider.wait_until_loaded(30)
        (token,) = provider.timeline(["search:packing"])["tokens"]
        assert (token["name"], token["capacity"], token["held"]) == ("gpu", 2, 2)
        assert [step[2] for step in token["steps"]][-1] == 2
        (whole,) = provider.timeline()["tokens"]
        assert {step[2] for step in whole["steps"]} == {1, 2}
    finally:
        provider.close()


def test_the_timeline_of_an_ended_run_ends_with_the_run(tmp_path: Path) -> None:
    workspace = Builder(tmp_path / "ws")
    workspace.job("first", ended=BEFORE)
    workspace.job("last", ended=BEFORE + timedelta(seconds=9))
    workspace.unstarted("never")
    lines = [job_line(name)._replace(submittime=BEFORE) for name in ("first", "last", "never")]
    workspace.run(*lines)
    others = demo_sources(24)
    source = ExperimentSource(workspace.view, Settings())
    provider = LocalProvider([source, *others[1:]])
    try:
        assert provider.wait_until_loaded(30)
        drawn = provider.timeline([f"experiments:sweep/{RUN}"])
        assert drawn["to"] == milliseconds(BEFORE + timedelta(seconds=9))
        assert all(wait[2] <= drawn["to"] for lane in drawn["lanes"] for wait in lane["waits"])
        assert drawn["tokens"] == []
        later = drawn["to"] + 60_000
        assert provider.timeline([f"experiments:sweep/{RUN}"], start=later)["from"] == later
    finally:
        provider.close()


def test_a_timeline_by_task_has_a_lane_for_each_and_every_bar_once() -> None:
    with closing(LocalProvider(demo_sources(16))) as provider:
        assert provider.wait_until_loaded(30)
        group = "experiments:sweep/20260101_1402"
        (whole,) = provider.timeline([group])["lanes"]
        lanes = provider.timeline([group], by="task")["lanes"]
    assert [lane["label"].partition(" ")[0] for lane in lanes] == ["Prepare", "Train", "Evaluate"]
    drawn = [(bar[4], bar[5]) for lane in lanes for bar in lane["bars"]]
    assert sorted(drawn) == sorted((bar[4], bar[5]) for bar in whole["bars"])
    for lane in lanes:
        assert all(f".{lane['label'].partition(' ')[0]}/" in bar[4] for bar in lane["bars"])


def test_line_22_too_many_bars_are_bins() -> None:
    bars = [
        Bar(f"k{number}", 1, at(number / 100), at(1 + number / 100), JobState.DONE)
        for number in range(MOST_BARS + 1)
    ]
    drawn = draw_group(bars, [], START, NOW, NOW, 100)
    assert not drawn.bars
    assert sum(sum(counts.values()) for _, _, counts in drawn.bins) == len(bars)
    assert len(draw_group(bars[:-1], [], START, NOW, NOW, 100).bars) == MOST_BARS


@given(LIVES, st.integers(2, 20))
def test_line_22_counts_over_time_end_with_every_job(
    lives: list[tuple[int, JobState, int, int]], points: int
) -> None:
    told = moments(lives)
    instants, counts = TimelineHistory(told).counts(points)
    if told:
        assert len(instants) == points
        assert sum(numbers[-1] for numbers in counts.values()) == len({one.key for one in told})
        last = Counter({one.key: one.state for one in told}.values())
        assert {state: numbers[-1] for state, numbers in counts.items() if numbers[-1]} == dict(last)


@given(LIVES)
def test_line_22_every_running_attempt_of_a_history_is_one_bar(
    lives: list[tuple[int, JobState, int, int]],
) -> None:
    told = moments(lives)
    bars, waits = TimelineHistory(told).bars()
    begun = 0
    running: set[str] = set()
    for one in told:
        if one.state is JobState.RUNNING:
            begun += one.key not in running
            running.add(one.key)
        else:
            running.discard(one.key)
    seen = [
        bar for bar in bars if bar.end is None or bar.end > bar.start or bar.state is not JobState.RUNNING
    ]
    assert len([bar for bar in bars if bar.end is None]) == len(running)
    assert len(seen) >= begun
    assert all(bar.end is None or bar.end >= bar.start for bar in bars)
    assert all(wait.end is None or wait.end >= wait.start for wait in waits)


def test_a_job_whose_end_the_journal_does_not_know_yet_has_the_end_of_its_row() -> None:
    """The journal of a driver is written in groups: a job's row may be ahead of it."""
    key, group = "experiments:T/j", "experiments:x/r"
    source = FakeSource()
    source.put(
        Row(key, group, Door.EXPERIMENTS, "T", "j", JobState.DONE, attempt=2, started=at(9), ended=at(10))
    )
    source.remember(
        group,
        [
            Moment(at(1), key, JobState.RUNNING, 1),
            Moment(at(2), key, JobState.ERROR, 1, JobFailureStatus.FAILED),
            Moment(at(9), key, JobState.RUNNING, 2),
        ],
    )
    timelines = Timelines({"experiments": source}, lambda _: [source.row(key)], SystemClock())
    history = timelines.of(group)
    _, counts = history.counts(2)
    assert counts[JobState.DONE][-1] == 1
    bars, _ = history.bars()
    assert [(bar.attempt, bar.state, bar.end) for bar in bars] == [
        (1, JobState.ERROR, at(2)),
        (2, JobState.DONE, at(10)),
    ]
