"""Owns which failures count as one."""

from __future__ import annotations

from tenuto.jobs.causes import grouped
from tenuto.lifecycle.states import JobFailureStatus

FAILED, TIMEOUT = JobFailureStatus.FAILED, JobFailureStatus.TIMEOUT


def test_one_kind_of_error_at_one_place_is_one_cause_and_the_largest_comes_first() -> None:
    causes = grouped(
        [
            ("a", TIMEOUT, "it ran out of time"),
            ("b", FAILED, "ValueError: lr is 1 (train.py:4)"),
            ("c", FAILED, "ValueError: lr is 2 (train.py:4)"),
            ("d", FAILED, "ValueError: lr is 2 (train.py:9)"),
            ("e", None, "KeyError: 'x'"),
        ]
    )
    assert [(cause.jobs, cause.error, cause.place, cause.messages) for cause in causes] == [
        (("b", "c"), "ValueError: lr is 1", "train.py:4", 2),
        (("a",), "it ran out of time", "", 1),
        (("d",), "ValueError: lr is 2", "train.py:9", 1),
        (("e",), "KeyError: 'x'", "", 1),
    ]
    assert causes[-1].reason is FAILED


def test_jobs_that_others_stranded_are_no_cause() -> None:
    assert grouped([("a", JobFailureStatus.DEPENDENCY, "b failed")]) == []


def test_without_a_message_the_reason_speaks() -> None:
    assert grouped([("a", TIMEOUT, None)])[0].error == TIMEOUT.meaning
