"""Tokens with real processes: schedulers that share them, and holders that are killed (F34, F35, F36)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tenuto.errors import TokenError
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.tokens import MOST_OVERTAKINGS
from tenuto.workspace.machine import this_machine

from .builders import WAIT_S, Bench, eventually, runner_pid
from .tokens_for_faults import (
    LAUNCHERS,
    TokenScheduler,
    held,
    ledger,
    payload_pids,
    token_files,
    tokens_in,
    work_of,
)

S = JobState
BOTH = pytest.mark.parametrize("launcher", ["spawn", "warm"])
FOREVER_S = 100.0


@contextlib.contextmanager
def bench_with(tmp_path: Path, launcher: str = "spawn", slots: int = 4) -> Iterator[Bench]:
    made = LAUNCHERS[launcher](this_machine(), slots=slots)
    with Bench(tmp_path / "ws", launcher=made) as bench:
        yield bench
        (tmp_path / "release").touch()
        bench.scheduler.call(made.close)


@BOTH
def test_schedulers_in_several_processes_never_give_out_a_unit_twice(tmp_path: Path, launcher: str) -> None:
    """F34: also where they want the same tokens in another order."""
    tokens = {"a": 3, "b": 2}
    random = Random(1)
    wanted = [
        {name: random.randint(1, tokens[name]) for name in random.sample(["a", "b"], random.randint(1, 2))}
        for _ in range(24)
    ]
    halves = [{f"job-{n}": (0.05, wanted[n]) for n in range(24) if n % 2 == half} for half in range(2)]
    with (
        TokenScheduler(tmp_path, tokens, halves[0], launcher=launcher) as one,
        TokenScheduler(tmp_path, tokens, halves[1], launcher=launcher) as other,
    ):
        states = {**one.states(), **other.states()}
    assert set(states.values()) == {"DONE"}
    assert len(ledger(tmp_path, "enter")) == len(ledger(tmp_path, "leave")) == 24
    assert ledger(tmp_path, "overcommit", "inherited") == []
    assert held(tmp_path, "a") == held(tmp_path, "b") == 0


def test_schedulers_that_submit_the_same_jobs_run_each_once(tmp_path: Path) -> None:
    jobs = {f"job-{n}": (0.02, {"a": 1}) for n in range(8)}
    with TokenScheduler(tmp_path, {"a": 2}, jobs) as one, TokenScheduler(tmp_path, {"a": 2}, jobs) as other:
        assert set(one.states().values()) == set(other.states().values()) == {"DONE"}
    assert sorted(ledger(tmp_path, "enter")) == sorted(f"enter {job}" for job in jobs)
    assert ledger(tmp_path, "overcommit") == []


def test_a_large_request_is_overtaken_ten_times_and_not_once_more_across_processes(tmp_path: Path) -> None:
    """F34: the holder stays, so that the large one is short; then what falls free is kept for it."""
    tokens = {"a": 2}
    with TokenScheduler(tmp_path, tokens, {"holder": (FOREVER_S, {"a": 1})}) as holder:
        eventually(lambda: ledger(tmp_path, "enter"), "the holder to begin")
        with TokenScheduler(tmp_path, tokens, {"large": (0.0, {"a": 2})}) as large:
            eventually(lambda: token_files(tmp_path).queue().tickets, "the large request to have its ticket")
            with TokenScheduler(
                tmp_path, tokens, {f"small-{n}": (0.0, {"a": 1}) for n in range(15)}
            ) as small:
                eventually(
                    lambda: len(ledger(tmp_path, "leave")) == MOST_OVERTAKINGS and held(tmp_path, "a") == 1,
                    "ten overtakings",
                )
                time.sleep(0.3)  # nothing must happen
                assert len(ledger(tmp_path, "enter")) == 1 + MOST_OVERTAKINGS
                (tmp_path / "release").touch()
                states = {**holder.states(), **large.states(), **small.states()}
    assert set(states.values()) == {"DONE"}
    assert ledger(tmp_path, "enter").index("enter large") == 1 + MOST_OVERTAKINGS
    assert ledger(tmp_path, "overcommit") == []


def test_a_job_that_waits_for_a_busy_token_delays_no_other(tmp_path: Path) -> None:
    with bench_with(tmp_path, slots=2) as bench:
        tokens = tokens_in(tmp_path, {"a": 1, "b": 1})
        holder = work_of(tmp_path, "holder", FOREVER_S, {"a": (1, 1)})
        bench.command("holder", *holder, tokens=[tokens["a"].dependency()])
        eventually(lambda: ledger(tmp_path, "enter"), "the holder to begin")
        stuck = [
            bench.command(f"stuck-{n}", "/bin/true", tokens=[token.dependency() for token in tokens.values()])
            for n in range(4)
        ]
        free = bench.command("free", "/bin/true", tokens=[tokens["b"].dependency()])
        plain = bench.command("plain", "/bin/true")
        assert free.wait(WAIT_S) is plain.wait(WAIT_S) is S.DONE
        assert {job.state for job in stuck} == {S.WAITING}
        begun = [S.WAITING, S.READY, S.WAITING]
        eventually(lambda: bench.owner.history["stuck-0"][:3] == begun, "the owner to be told")
        (tmp_path / "release").touch()
        bench.wait()
        assert {job.state for job in stuck} == {S.DONE}


@BOTH
@pytest.mark.parametrize("victim", ["runner", "payload"])
def test_a_killed_holder_frees_its_units(tmp_path: Path, launcher: str, victim: str) -> None:
    """F35."""
    with bench_with(tmp_path, launcher) as bench:
        a = tokens_in(tmp_path, {"a": 3})["a"]
        work = work_of(tmp_path, "holder", FOREVER_S, {"a": (3, 3)})
        holder = bench.command("holder", *work, tokens=[a.dependency(3)])
        eventually(lambda: ledger(tmp_path, "enter"), "the holder to begin")
        waiting = bench.command("next", "/bin/true", tokens=[a.dependency(3)])
        eventually(lambda: waiting.state is S.WAITING and waiting.state_record.message, "the next to wait")
        pid = runner_pid(holder) if victim == "runner" else payload_pids(tmp_path)["holder"]
        os.kill(pid, signal.SIGKILL)
        assert waiting.wait(WAIT_S) is S.DONE
        assert holder.wait(WAIT_S) is S.ERROR
        assert holder.failure_status is (
            JobFailureStatus.LOST if victim == "runner" else JobFailureStatus.FAILED
        )
        eventually(lambda: held(tmp_path, "a") == 0, "all units to be free")


@BOTH
def test_the_units_of_a_killed_scheduler_stay_with_its_jobs(tmp_path: Path, launcher: str) -> None:
    jobs = {"holder": (FOREVER_S, {"a": 2}), "waits": (0.0, {"a": 2})}
    with TokenScheduler(tmp_path, {"a": 2}, jobs, launcher=launcher) as scheduler:
        eventually(lambda: ledger(tmp_path, "enter"), "the holder to begin")
        eventually(lambda: token_files(tmp_path).queue().tickets, "the other to wait")
    files = token_files(tmp_path)
    assert scheduler.process.returncode == -signal.SIGKILL
    assert held(tmp_path, "a") == 2
    assert not {ticket.scheduler for ticket in files.queue().tickets} & files.living()
    with TokenScheduler(tmp_path, {"a": 2}, {**jobs, "new": (0.0, {"a": 1})}, launcher=launcher) as second:
        second.submitted()
        (tmp_path / "release").touch()
        assert set(second.states().values()) == {"DONE"}
    assert sorted(ledger(tmp_path, "enter")) == ["enter holder", "enter new", "enter waits"]
    assert held(tmp_path, "a") == 0


def test_another_process_is_told_when_units_fall_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by looking every two seconds: that is turned off here."""
    monkeypatch.setattr("tenuto.scheduler.shared_slots.POLL_S", 3600.0)
    with TokenScheduler(tmp_path, {"a": 1}, {"holder": (FOREVER_S, {"a": 1})}) as other:
        eventually(lambda: ledger(tmp_path, "enter"), "the holder to begin")
        with bench_with(tmp_path) as bench:
            a = tokens_in(tmp_path, {"a": 1})["a"]
            job = bench.command("mine", "/bin/true", tokens=[a.dependency()])
            eventually(lambda: job.state is S.WAITING and job.state_record.message, "the job to wait")
            os.kill(runner_pid(bench.paths("holder")), signal.SIGKILL)
            assert job.wait(WAIT_S) is S.DONE
        assert other.states() == {"holder": "ERROR"}


def test_two_schedulers_that_wait_do_not_keep_each_other_awake(tmp_path: Path) -> None:
    jobs = {"holder": (FOREVER_S, {"a": 1})}
    with TokenScheduler(tmp_path, {"a": 1}, jobs) as holder:
        eventually(lambda: ledger(tmp_path, "enter"), "the holder to begin")
        with (
            TokenScheduler(tmp_path, {"a": 1}, {"one": (0.0, {"a": 1})}) as one,
            TokenScheduler(tmp_path, {"a": 1}, {"two": (0.0, {"a": 1})}) as two,
        ):
            eventually(lambda: len(token_files(tmp_path).queue().tickets) == 2, "both to wait")
            before = [cpu_s(scheduler.process.pid) for scheduler in (one, two)]
            time.sleep(1.0)  # what is measured is that nothing happens meanwhile
            after = [cpu_s(scheduler.process.pid) for scheduler in (one, two)]
            assert max(b - a for a, b in zip(before, after, strict=True)) < 0.3
            (tmp_path / "release").touch()
            assert {**one.states(), **two.states()} == {"one": "DONE", "two": "DONE"}
        assert holder.states() == {"holder": "DONE"}


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_capacity_can_be_changed_while_units_are_in_use(tmp_path: Path) -> None:
    """F36: more at once; fewer as units fall free; what can never be granted any more ends with a message."""
    with bench_with(tmp_path, slots=8) as bench:
        a = tokens_in(tmp_path, {"a": 2})["a"]
        gates = [tmp_path / f"gate-{n}" for n in range(4)]
        script = 'echo >> "$1.in"; until test -e "$1"; do sleep 0.01; done'
        jobs = [bench.shell(f"job-{n}", script, gates[n], tokens=[a.dependency()]) for n in range(4)]
        eventually(lambda: held(tmp_path, "a") == 2, "two to run")
        pair = bench.command("pair", "/bin/true", tokens=[a.dependency(2)])
        tokens_in(tmp_path, {"a": 3})
        eventually(lambda: held(tmp_path, "a") == 3, "a third")
        tokens_in(tmp_path, {"a": 1})
        assert pair.wait(WAIT_S) is S.ERROR
        assert "has only 1" in (pair.state_record.message or "")
        for gate in gates[:2]:
            gate.touch()
        assert [job.wait(WAIT_S) for job in jobs[:2]] == [S.DONE] * 2
        eventually(lambda: held(tmp_path, "a") == 1, "two to leave")
        with pytest.raises(TimeoutError):
            jobs[3].wait(0.3)
        assert not (tmp_path / "gate-3.in").exists()
        for gate in gates[2:]:
            gate.touch()
        bench.wait()
        assert {job.state for job in jobs} == {S.DONE}


def test_units_that_can_never_be_granted_are_refused_at_submit(tmp_path: Path) -> None:
    """F36."""
    with bench_with(tmp_path) as bench:
        a = tokens_in(tmp_path, {"a": 4})["a"]
        for count in (0, -1, True, 1.5):
            with pytest.raises(TokenError, match="a"):
                a.dependency(count)  # type: ignore[arg-type]
        for count in (0, -3):
            with pytest.raises(TokenError, match="integer from 1 up"):
                tokens_in(tmp_path, {"b": count})
        with pytest.raises(TokenError, match="5 units of token 'a' are asked for, but it has only 4"):
            bench.command("job", "/bin/true", tokens=[a.dependency(5)])
        asked = a.dependency(4)
        tokens_in(tmp_path, {"a": 3})
        with pytest.raises(TokenError, match="has only 3"):
            bench.command("job", "/bin/true", tokens=[asked])
        assert bench.scheduler.counts(bench.owner).unfinished == 0


def test_a_directory_that_cannot_be_used_is_an_error_and_no_hang(tmp_path: Path) -> None:
    with bench_with(tmp_path) as bench:
        a = tokens_in(tmp_path, {"a": 1})["a"]
        for file in (tmp_path / "tokens").rglob("*.*"):
            file.unlink()
        (tmp_path / "tokens" / "a.units").mkdir()
        job = bench.command("job", "/bin/true", tokens=[a.dependency()])
        assert job.wait(WAIT_S) is S.ERROR
        assert "a.units" in (job.state_record.message or "")


@pytest.mark.slow
@pytest.mark.watchdog(300)
@pytest.mark.parametrize(
    ("launcher", "kills"),
    [
        ("spawn", 40),
        ("warm", 80),
        *(
            pytest.param(launcher, kills, marks=pytest.mark.prove("500 kills; a quarter is played always"))
            for launcher, kills in (("spawn", 150), ("warm", 350))
        ),
    ],
)
def test_random_kills_of_holders_leak_nothing(tmp_path: Path, launcher: str, kills: int) -> None:
    """F35: runners and payloads, and now and then the scheduler of them all."""
    capacity = 4
    random = Random(launcher)
    jobs = {f"job-{n}": (FOREVER_S, {"a": random.choice([1, 1, 2])}) for n in range(kills + 40)}
    killed: set[int] = set()
    names: set[str] = set()
    while len(killed) < kills:
        left = {name: spec for name, spec in jobs.items() if name not in names}
        with TokenScheduler(tmp_path, {"a": capacity}, left, launcher=launcher):
            for _ in range(min(25, kills - len(killed))):
                holders = eventually(lambda: alive(tmp_path, killed), "a holder")
                assert held(tmp_path, "a") <= capacity
                name, payload = random.choice(sorted(holders))
                victim = runner_of(payload) if random.random() < 0.5 else payload
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                killed.add(payload)
                names.add(name)
    for _, payload in alive(tmp_path, killed):
        with contextlib.suppress(ProcessLookupError):
            os.kill(runner_of(payload), signal.SIGKILL)
    (tmp_path / "release").touch()
    eventually(lambda: held(tmp_path, "a") == 0, "all units to be free")
    assert ledger(tmp_path, "overcommit", "inherited") == []
    assert not token_files(tmp_path).living()
    with TokenScheduler(tmp_path, {"a": capacity}, {"last": (0.0, {"a": capacity})}) as last:
        assert last.states() == {"last": "DONE"}


def alive(root: Path, killed: set[int]) -> list[tuple[str, int]]:
    """Holders at work: job and payload. A job can be one twice, if its scheduler died with it."""
    return [
        (name, pid)
        for name, pid in payload_pids(root).items()
        if pid not in killed and Path(f"/proc/{pid}/stat").exists()
    ]


def runner_of(payload: int) -> int:
    try:
        return int(Path(f"/proc/{payload}/stat").read_text().rpartition(")")[2].split()[1])
    except FileNotFoundError:
        return payload
