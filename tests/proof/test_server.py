"""A scheduler in a server, in small: `make prove` lets 100,000 jobs through, and submits 1,000 a second."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import pytest

from proof.server import judged_load, judged_months, load
from proof.server.load import Judged, Load, judged, submitted_at_a_rate
from proof.server.months import BATCH, Months, lived_through
from proof.server.witness import Interval, Witness, common_s, merged


def test_owners_come_and_go_and_nothing_stays() -> None:
    months = asyncio.run(lived_through(6 * BATCH))
    assert judged_months(months) == []
    assert months.owners == 6


def test_jobs_that_are_never_forgotten_would_be_seen() -> None:
    found = judged_months(asyncio.run(lived_through(2 * BATCH, forgets=False)))
    assert [violation.what for violation in found] == ["100 jobs are still kept, though all were forgotten"]


def test_an_event_loop_submits_at_a_rate() -> None:
    found = asyncio.run(submitted_at_a_rate(200, 0.5))
    assert found.ended == found.submitted == 100  # how long it stood still is judged on a quiet machine


def test_a_loop_that_a_request_blocks_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    served = load._served

    async def blocking(place: Any, owner: Any, name: str) -> bool:
        if name.endswith("0"):
            time.sleep(0.05)  # noqa: ASYNC251
        return await served(place, owner, name)

    monkeypatch.setattr(load, "_served", blocking)
    assert asyncio.run(load.submitted_at_a_rate(100, 0.5)).stalls.own_s > 0.03


def test_the_promises_of_a_server_are_judged() -> None:
    assert len(judged_load(Load(10, 9, Judged(0.011, 0.011, left_out=0)))) == 2
    assert judged_load(Load(10, 10, Judged(0.009, 0.5, left_out=1))) == []
    assert len(judged_months(Months(1, grown=5 << 20, kept=1, wrong=1))) == 3


def test_a_witness_says_when_it_was_kept_from_waking_up() -> None:
    witness = Witness(min(os.sched_getaffinity(0)))
    witness.is_heard = True
    began = time.perf_counter()
    os.kill(witness.pid, signal.SIGSTOP)
    time.sleep(0.05)
    os.kill(witness.pid, signal.SIGCONT)
    ended = time.perf_counter()
    assert common_s(Interval(began, ended), witness.late()) > 0.04


def test_a_witness_that_others_may_delay_excuses_nothing() -> None:
    witness = Witness(min(os.sched_getaffinity(0)))
    witness.is_heard = False
    assert witness.late() == []


def test_a_stall_is_of_our_making_as_far_as_no_processor_was_taken_away() -> None:
    stalls = [Interval(1.0, 1.25), Interval(2.0, 2.5), Interval(3.0, 4.0)]
    assert judged(stalls, []) == Judged(1.0, 1.0, left_out=0)
    assert judged(stalls, [Interval(3.0, 3.25)]) == Judged(0.75, 1.0, left_out=0)
    assert judged(stalls, [Interval(2.0, 2.125), Interval(3.0, 3.75)]) == Judged(0.375, 1.0, left_out=1)
    assert judged([], []) == Judged(0.0, 0.0, left_out=0)


def test_a_stall_is_excused_for_as_long_as_a_witness_stood_still() -> None:
    of_one, of_other = [Interval(5.0, 6.0), Interval(0.0, 0.8)], [Interval(2.0, 3.0), Interval(0.7, 1.0)]
    others = merged([*of_one, *of_other])
    assert others == [Interval(0.0, 1.0), Interval(2.0, 3.0), Interval(5.0, 6.0)]
    assert common_s(Interval(0.5, 2.25), others) == 0.75
