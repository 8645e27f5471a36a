"""The views of the terminal and every key, under Textual's pilot."""

from __future__ import annotations

import pytest

from tenuto.jobs.row import Group
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobState
from tenuto.testing.fake_source import FakeSource, fake_row
from tests.monitor.tui.conftest import FAILED, RUNNING, SWEEP, Terminal, provided, show

GROUP = "experiments:few/1"


def few(count: int = 3, state: JobState = JobState.RUNNING) -> FakeSource:
    source = FakeSource()
    source.put_group(Group(GROUP, Door.EXPERIMENTS, "few", "1", "running", live=True))
    for number in range(count):
        source.put(
            fake_row(GROUP, "my.Train", f"{number:08d}abcd", state, attempt=2, tags={"lr": str(number)})
        )
    return source


def test_the_overview_shows_groups_now_and_failures() -> None:
    async def scenario(terminal: Terminal) -> None:
        text = await terminal.until("evo packing")
        assert "svc haddock" in text
        assert "ValueError: lr must be positive" in text
        assert "train.py:41" in text
        assert "waits for 1 of token gpu (2 of 2 units busy)" in text
        await terminal.until("live ●")
        await terminal.until("belongs to no live run")

    with provided() as provider:
        show(provider, scenario)


def test_enter_opens_a_group_then_a_job_and_escape_comes_back() -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.until("sweep/0101_1402")
        await terminal.press("down", "enter")
        await terminal.until("88ad934f Prepare")
        await terminal.press("down", "enter")
        await terminal.until("attempt 1")
        await terminal.until("epoch 15 loss")
        await terminal.press("escape")
        await terminal.until("88ad934f Prepare")
        await terminal.press("escape")
        assert "88ad934f Prepare" not in await terminal.until("GROUP")

    with provided() as provider:
        show(provider, scenario)


def test_a_change_is_on_the_screen() -> None:
    source = few()

    async def scenario(terminal: Terminal) -> None:
        await terminal.until("00000000 Train")
        row = source.row("experiments:my.Train/00000001abcd")
        source.put(row._replace(progress=0.42, progress_desc="epoch 7"))
        text = await terminal.until("epoch 7")
        assert "42%" in text

    with provided(source) as provider:
        show(provider, scenario, group=GROUP)


def test_a_filter_is_written_and_its_error_points_at_the_character() -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.until("88ad934f Prepare")
        await terminal.press("/")
        await terminal.until("filter:")
        await terminal.type("state=eror")
        await terminal.press("enter")
        text = await terminal.until("^")
        lines = text.splitlines()
        place = next(number for number, line in enumerate(lines) if line.startswith(" filter: state=eror"))
        assert lines[place + 1].index("^ state is never 'eror'") == lines[place].index("eror")
        await terminal.press("home", *["right"] * 8, "r", "enter")
        await terminal.until("filter: state=error")
        await terminal.until(lambda: "Prepare" not in terminal.text and "✗ error" in terminal.text)
        await terminal.press("escape")
        await terminal.until("Prepare")

    with provided() as provider:
        show(provider, scenario, group=SWEEP)


def test_jobs_are_sorted_by_a_column_and_turned_round() -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.until("00000000 Train")
        await terminal.press("s", "S")
        await terminal.until("ID▼")
        text = await terminal.until(
            lambda: terminal.text.index("00000002 ") < terminal.text.index("00000000 ")
        )
        assert text.index("00000002 ") < text.index("00000001 ") < text.index("00000000 ")

    with provided(few()) as provider:
        show(provider, scenario, group=GROUP)


@pytest.mark.parametrize(
    ("key", "action", "became"), [("K", "kill", "was asked to stop"), ("D", "clean", "")]
)
def test_an_action_asks_first_and_names_the_attempt(key: str, action: str, became: str) -> None:
    state = JobState.RUNNING if key == "K" else JobState.DONE
    source = few(2, state)

    async def scenario(terminal: Terminal) -> None:
        await terminal.until("00000000 Train")
        await terminal.press(key)
        text = await terminal.until(f"{action} this job?")
        assert "Train 00000000, attempt 2" in text
        await terminal.press("escape")
        await terminal.until("nothing was done")
        assert source.row("experiments:my.Train/00000000abcd").state is state
        await terminal.press(key, "n", key, "y")
        if key == "K":
            await terminal.until(became)
            await terminal.until("CANCELLED: kille")
        else:
            await terminal.until(lambda: "00000000 Train" not in terminal.text)

    with provided(source) as provider:
        show(provider, scenario, group=GROUP)


def test_an_action_on_another_attempt_does_nothing_and_says_so() -> None:
    source = few(1, JobState.ERROR)

    async def scenario(terminal: Terminal) -> None:
        await terminal.until("✗ error")
        await terminal.press("R")
        await terminal.until("retry this job?")
        row = source.row("experiments:my.Train/00000000abcd")
        source.put(row._replace(attempt=3))
        await terminal.press("y")
        await terminal.until("Nothing was done: you saw Train 00000000 at attempt 2, it is at attempt 3 now")
        assert source.row("experiments:my.Train/00000000abcd").state is JobState.ERROR

    with provided(source) as provider:
        show(provider, scenario, group=GROUP)


def test_marked_jobs_are_acted_on_together_and_compared() -> None:
    source = few(3)
    source.stored["experiments:my.Train/00000000abcd"] = {"lr": 0.1, "seed": 1}
    source.stored["experiments:my.Train/00000001abcd"] = {"lr": 0.2, "seed": 1}

    async def scenario(terminal: Terminal) -> None:
        await terminal.until("00000000 Train")
        await terminal.press("space", "space")
        await terminal.until("2 marked")
        await terminal.press("x")
        text = await terminal.until("0.1  ←  0.2")
        assert "seed" not in text
        await terminal.press("escape", "escape", "*")
        await terminal.until("3 marked")
        await terminal.press("K")
        await terminal.until("kill 3 jobs?")
        await terminal.press("y")
        await terminal.until(lambda: terminal.text.count("✗ error") == 3)

    with provided(source) as provider:
        show(provider, scenario, group=GROUP)


def test_a_failure_is_retried_from_the_overview_with_all_of_its_cause() -> None:
    source = few(30, JobState.ERROR)
    for chunk in list(source.rows(GROUP)):
        for row in chunk:
            source.put(row._replace(message=f"ValueError: {row.id} is bad (train.py:41)"))
    source.put(
        fake_row(GROUP, "my.Train", "other", JobState.ERROR, attempt=1, message="KeyError: 1 (a.py:1)")
    )

    async def scenario(terminal: Terminal) -> None:
        await terminal.until("train.py:41")
        await terminal.press("tab")
        await terminal.press("R")
        await terminal.until("retry 30 jobs?")
        await terminal.press("y")
        await terminal.until("30 retried")
        assert source.row("experiments:my.Train/other").state is JobState.ERROR

    with provided(source) as provider:
        show(provider, scenario)


def test_the_log_follows_stops_when_scrolled_and_shows_the_last_state_of_a_bar() -> None:
    source = few(1)
    key = "experiments:my.Train/00000000abcd"
    source.logs[key, "out"] = b"".join(b"line %d\n" % number for number in range(100)) + b"10%\r20%\r30%"
    source.logs[key, "err"] = b"Traceback\n"

    async def scenario(terminal: Terminal) -> None:
        await terminal.until("00000000 Train")
        await terminal.press("l")
        text = await terminal.until("line 99")
        assert "30%" in text
        assert "20%" not in text
        source.logs[key, "out"] += b"\ra new line\n"
        await terminal.until("a new line")
        await terminal.press("pageup")
        await terminal.until("not following")
        source.logs[key, "out"] += b"one more\n"
        await terminal.until("102 lines")
        assert "one more" not in terminal.text
        await terminal.press("F")
        await terminal.until("one more")
        await terminal.press("g")
        await terminal.until("line 0")
        await terminal.press("e")
        await terminal.until("Traceback")

    with provided(source) as provider:
        show(provider, scenario, group=GROUP)


def test_a_text_is_searched_in_the_log() -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.press("enter")
        await terminal.until("attempt 2 of 4")
        await terminal.until("16 lines, following")
        await terminal.press("/")
        await terminal.until("search:")
        await terminal.type("Epoch 1")
        await terminal.press("enter")
        await terminal.until("/Epoch 1/ 7 of 7")
        assert "not following" in terminal.text
        await terminal.press("n")
        await terminal.until("/Epoch 1/ 1 of 7")
        await terminal.until("epoch 1 loss")
        await terminal.press("N", "N")
        await terminal.until("/Epoch 1/ 6 of 7")
        await terminal.press("/")
        await terminal.type("nothing like it")
        await terminal.press("enter")
        await terminal.until("no line that was read has nothing like it")
        await terminal.press("/", "enter")
        await terminal.until(lambda: "/nothing" not in terminal.text)

    with provided() as provider:
        show(provider, scenario, (120, 24), group=SWEEP, filter="id=00000006aaaaaaaa")


def test_a_log_that_a_new_attempt_replaced_begins_again() -> None:
    source = few(1)
    key = "experiments:my.Train/00000000abcd"
    source.logs[key, "out"] = b"old\n" * 50

    async def scenario(terminal: Terminal) -> None:
        await terminal.until("00000000 Train")
        await terminal.press("l")
        await terminal.until("old")
        source.logs[key, "out"] = b"fresh\n"
        source.put(source.row(key)._replace(attempt=3))
        await terminal.until("fresh")
        assert "old" not in terminal.text

    with provided(source) as provider:
        show(provider, scenario, group=GROUP)


def test_why_events_copy_and_help() -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.until("0000000")
        await terminal.press("w")
        await terminal.until("because")
        await terminal.press("escape", "v")
        await terminal.until("no event of this job is kept")
        await terminal.press("escape", "y")
        await terminal.until("copied: 00000005aaaaaaaa")
        await terminal.press("enter")
        await terminal.until("attempt 1")
        await terminal.until("lr must be positive")
        await terminal.press("y")
        await terminal.until("copied: tenuto logs -f 00000005")
        assert terminal.copied == [FAILED.rpartition("/")[2], "tenuto logs -f 00000005"]
        await terminal.press("?")
        await terminal.until("Keys")

    with provided() as provider:
        show(provider, scenario, group=SWEEP, filter="id=00000005aaaaaaaa")


def test_a_read_only_terminal_does_nothing() -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.until(RUNNING.rpartition("/")[2][:8])
        await terminal.press("K")
        await terminal.until("this only shows")
        assert "▶ running" in await terminal.until("live ●")

    with provided() as provider:
        show(provider, scenario, group=SWEEP, filter="state=running", read_only=True)
