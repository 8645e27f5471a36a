"""Retry rules: their text, what they refuse, and which attempts follow which causes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from tenuto.errors import RequirementError
from tenuto.jobs.retry_rules import EXAMPLE, begun_with, check_growth, held_rules, read_rules, written
from tenuto.launchers.requirements import Alternative
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.decisions import (
    NO_TRIES,
    Allowance,
    Cause,
    Growth,
    RetryLimits,
    RetryRules,
    Rule,
    Tries,
    after_attempt,
)
from tenuto.workspace.derive import Derived
from tenuto.workspace.derive_table import Action
from tenuto.workspace.markers import Marker

G = 1 << 30
DOUBLED = Rule(growth=Growth("memory_bytes", 2.0, 32.0 * G))


def ended(reason: str, *, blameless: bool = False, marked: bool = True, ran: bool = True) -> Derived:
    status = JobFailureStatus[reason]
    marker = Marker(attempt=1, nonce="n", reason=status) if marked else None
    return Derived(
        JobState.ERROR,
        Action.KEEP,
        "row",
        status,
        marker=marker,
        attempt=1,
        payload_may_have_run=ran,
        blameless=blameless,
    )


LOST = ended("LOST", marked=False)


def limits(
    text: str, memory: int | None = 4 * G, duration_s: float | None = 3600.0, **more: bool
) -> RetryLimits:
    return RetryLimits(rules=read_rules(text, "retry"), needs=Allowance(memory, duration_s), **more)


def test_the_example_of_the_documents_is_read() -> None:
    assert read_rules(EXAMPLE, "retry") == RetryRules(
        memory=DOUBLED,
        timeout=Rule(growth=Growth("duration_s", 2.0, 8 * 3600.0)),
        lost=Rule(3),
        failed=Rule(1, after_s=30.0),
    )


@pytest.mark.parametrize(
    "text",
    [
        "memory: 2 mem*1.5 to 32G after 1m",
        "timeout: duration*2 to 8h",
        "failed: 0",
        "failed: 3 duration*10 to 2d",
        "lost: 1000",
    ],
)
def test_a_rule_is_written_as_it_was_read(text: str) -> None:
    rules = read_rules(text, "retry")
    cause = Cause(text.split(":", maxsplit=1)[0])
    rule = rules.rule(cause)
    assert rule is not None
    assert f"{cause.value}: {written(rule)}" == text
    assert read_rules(f" {text.replace(' ', '   ')} ", "retry") == rules


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected a cause"),
        ("oom: 2", "expected a cause: memory, timeout, lost, failed"),
        ("memory", "expected ':'"),
        ("memory:", "expected a number of further attempts, or a need that grows"),
        ("memory: after 30s", "expected a number of further attempts"),
        ("memory: mem", "expected '*' and a factor"),
        ("memory: mem*2", "expected 'to' and a bound, as in mem*2 to 32G"),
        ("timeout: duration*2 until 8h", "expected 'to' and a bound, as in duration*2 to 8h"),
        ("memory: mem*1 to 8G", "a factor of more than 1"),
        ("memory: mem*0.5 to 8G", "a factor of more than 1"),
        ("memory: mem*2 to 8h", "expected a unit: K, M, G or T"),
        ("memory: mem*2 to 8", "has no unit"),
        ("memory: cores*2 to 8", "expected a number of further attempts"),
        ("lost: mem*2 to 8G", "does not grow"),
        ("lost: 3 duration*2 to 8h", "does not grow"),
        ("failed: -1", "expected a number of further attempts"),
        ("failed: 1.5", "an integer from 0 to 1000"),
        ("failed: 1001", "an integer from 0 to 1000"),
        ("failed: 1 after", "expected a time"),
        ("failed: 1 after 30", "has no unit"),
        ("failed: 1; failed: 2", "failed said twice"),
        ("failed: 1, lost: 2", "expected ';' or the end"),
        ("failed: 1;", "expected a cause"),
        ("failed: 1 2", "expected ';' or the end"),
    ],
)
def test_a_text_that_is_no_rule_is_refused_where_it_breaks(text: str, problem: str) -> None:
    with pytest.raises(RequirementError) as caught:
        read_rules(text, "Train.__retry__")
    assert str(caught.value).startswith("Train.__retry__ cannot be read:")
    assert problem in str(caught.value)


@pytest.mark.parametrize("given", [3, None, ["failed: 1"], b"failed: 1"])
def test_a_rule_that_is_no_text_is_refused(given: object) -> None:
    with pytest.raises(RequirementError, match="is a text, such as"):
        read_rules(given, "submit(retry=)")


def test_a_growth_needs_something_to_begin_with_and_somewhere_to_go() -> None:
    rules = read_rules("memory: mem*2 to 4G", "retry")
    with pytest.raises(RequirementError, match=r'no limit of its memory yet; .*requires="cpu\(mem=4G\)"'):
        check_growth(rules, Allowance(), "retry")
    with pytest.raises(RequirementError, match="begins with 4G; raise the bound"):
        check_growth(rules, Allowance(4 * G), "retry")
    check_growth(rules, Allowance(3 * G), "retry")
    with pytest.raises(RequirementError, match="no limit of its duration yet"):
        check_growth(read_rules("failed: 2 duration*2 to 8h", "retry"), Allowance(4 * G), "retry")


class Small:
    """A launcher whose partitions have 6G."""

    name = "small"

    def held(self, asked: Alternative) -> Alternative:
        return replace(asked, memory_bytes=6 * G)


def test_a_growth_is_held_to_what_a_launcher_has_and_a_sweep_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rules = read_rules("memory: mem*2 to 32G", "retry")
    for _ in range(3):
        (growth,) = [one.growth for one in held_rules(rules, cast(Any, Small()), "Train") if one is not None]
        assert growth is not None
        assert growth.most == 6 * G
    assert caplog.messages == [
        "Train: memory: mem*2 to 32G is limited to 6G, the most that a partition of small has"
    ]


def test_memory_doubles_until_an_attempt_at_the_bound_has_failed() -> None:
    rule, tries, asked = limits("memory: mem*2 to 20G"), NO_TRIES, []
    while True:
        asked.append(rule.needs_of(tries).memory_bytes)
        following = after_attempt(ended("MEMORY"), tries, rule).tries
        if following is None:
            break
        tries = following
    assert asked == [4 * G, 8 * G, 16 * G, 20 * G]


def test_a_count_ends_a_growth_before_its_bound() -> None:
    rule = limits("memory: 1 mem*2 to 32G")
    once = after_attempt(ended("MEMORY"), NO_TRIES, rule).tries
    assert once is not None
    assert rule.needs_of(once) == Allowance(8 * G, 3600.0)
    assert after_attempt(ended("MEMORY"), once, rule).tries is None


@pytest.mark.parametrize("found", [LOST, ended("FAILED"), ended("TIMEOUT"), LOST._replace(blameless=True)])
def test_only_the_named_cause_grows(found: Derived) -> None:
    rule = limits("memory: mem*2 to 32G; timeout: 1; lost: 2; failed: 2")
    following = after_attempt(found, Tries(memory_count=1), rule).tries
    assert following is not None
    assert following.memory_count == 1
    assert rule.needs_of(following).memory_bytes == 8 * G


def test_a_count_of_a_cause_is_its_own() -> None:
    rule = limits("failed: 2; lost: 1")
    tries = after_attempt(ended("FAILED"), NO_TRIES, rule).tries
    assert tries == Tries(failed_count=1)
    tries = after_attempt(LOST, tries or NO_TRIES, rule).tries
    assert tries == Tries(lost_count=1, failed_count=1)
    assert after_attempt(LOST, tries or NO_TRIES, rule).tries is None
    assert after_attempt(ended("FAILED"), tries or NO_TRIES, rule).tries == Tries(
        lost_count=1, failed_count=2
    )


def test_a_cause_that_is_not_named_keeps_its_rule() -> None:
    resumable = limits("failed: 1")._replace(resumable=True, max_retries=1, max_lost_retries=1)
    assert after_attempt(ended("TIMEOUT"), NO_TRIES, resumable).tries == Tries(retry_count=1)
    assert after_attempt(LOST, NO_TRIES, resumable).tries == Tries(lost_count=1)
    assert after_attempt(ended("MEMORY"), NO_TRIES, resumable).tries is None
    named = limits("timeout: 0; lost: 0")._replace(resumable=True, max_retries=3, max_lost_retries=3)
    assert after_attempt(ended("TIMEOUT"), NO_TRIES, named).tries is None
    assert after_attempt(LOST, NO_TRIES, named).tries is None


def test_a_loss_that_is_the_clusters_or_came_before_the_payload_uses_up_no_rule() -> None:
    rule = limits("lost: 0")
    assert after_attempt(LOST._replace(blameless=True), NO_TRIES, rule).tries == Tries(blameless_count=1)
    unstarted = ended("LOST", marked=False, ran=False)
    assert after_attempt(unstarted, NO_TRIES, rule).tries == Tries(lost_count=1)


@pytest.mark.parametrize("reason", ["CANCELLED", "REJECTED", "OUTPUT_LIMIT", "DEPENDENCY"])
def test_no_rule_follows_an_end_that_is_no_cause(reason: str) -> None:
    if reason in JobFailureStatus.__members__:
        generous = limits("memory: 9; timeout: 9; lost: 9; failed: 9")
        assert after_attempt(ended(reason), NO_TRIES, generous).tries is None


def test_a_job_that_runs_once_follows_no_rule() -> None:
    once = limits("memory: mem*2 to 32G; failed: 3; lost: 3; timeout: 3", once=True)
    for found in (ended("MEMORY"), ended("FAILED"), ended("TIMEOUT"), LOST):
        assert after_attempt(found, NO_TRIES, once).tries is None


def test_two_causes_that_grow_one_need_grow_it_together_and_never_beyond_a_bound() -> None:
    rule = limits("memory: mem*2 to 32G; failed: 2 mem*3 to 20G")
    assert rule.needs_of(Tries(memory_count=1, failed_count=1)).memory_bytes == 20 * G
    assert rule.needs_of(Tries(memory_count=900)).memory_bytes == 32 * G
    assert limits("timeout: duration*1.5 to 2h", duration_s=0.5).needs_of(Tries(1)).duration_s == 0.75


def test_limits_come_back_from_the_record_of_an_attempt() -> None:
    rule = limits(EXAMPLE)._replace(resumable=True, max_retries=2)
    assert RetryLimits.of_record(rule.recorded()) == rule
    assert RetryLimits.of_record({}) == RetryLimits()


def test_a_job_begins_with_what_its_siblings_used() -> None:
    rules = read_rules("memory: mem*2 to 8G; timeout: duration*2 to 2h", "retry")
    asked = Allowance(4 * G, 3600.0)
    assert begun_with(rules, asked, Allowance(2 * G, 1800.0)) == Allowance(2 * G, 1800.0)
    assert begun_with(rules, asked, Allowance(20 * G, 0.1)) == Allowance(8 * G, 60.0)
    assert begun_with(rules, asked, Allowance()) == asked
    assert begun_with(read_rules("lost: 2", "retry"), asked, Allowance(G, 1.0)) == asked
