"""What every `Source` must do. Subclass, and give the fixtures `source` and `group`: a door with some jobs.

`group` is the key of a group that has at least three jobs, one of which is DONE and one ERROR.
"""

from __future__ import annotations

import pytest

from tenuto.errors import TenutoError
from tenuto.jobs.row import Row
from tenuto.jobs.source import CHUNK_ROWS, ActedAs, Action, Source, Target
from tenuto.lifecycle.states import JobState


def all_rows(source: Source, group: str) -> list[Row]:
    """The rows of a group in one list."""
    return [row for chunk in source.rows(group) for row in chunk]


class SourceContract:
    def test_a_group_is_listed_once_and_belongs_to_the_door(self, source: Source, group: str) -> None:
        names = [one.group for one in source.groups()]
        assert group in names
        assert len(set(names)) == len(names)
        assert all(one.door is source.door for one in source.groups())
        assert all(name.startswith(f"{source.door.value}:") for name in names)

    def test_rows_come_in_chunks_each_job_once(self, source: Source, group: str) -> None:
        chunks = list(source.rows(group))
        assert all(0 < len(chunk) <= CHUNK_ROWS for chunk in chunks)
        rows = [row for chunk in chunks for row in chunk]
        assert len({row.key for row in rows}) == len(rows) >= 3
        assert {row.group for row in rows} == {group}
        assert all(row.key.startswith(f"{source.door.value}:{row.task}/") for row in rows)
        assert all(list(source.find(row.id)) == [row.key] for row in rows)
        assert all(isinstance(row.state, JobState) for row in rows)

    def test_rows_are_in_the_order_of_submission(self, source: Source, group: str) -> None:
        submitted = [row.submitted for row in all_rows(source, group) if row.submitted is not None]
        assert submitted == sorted(submitted)

    def test_a_job_is_listed_once_and_counted_by_its_state(self, source: Source, group: str) -> None:
        every = [row for chunk in source.every() for row in chunk]
        assert len({row.key for row in every}) == len(every) >= 3
        listed = [row for chunk in source.listed() for row in chunk]
        assert len({row.key for row in listed}) == len(listed)
        assert {row.key for row in listed if row.attempt} <= {row.key for row in every}
        counts = source.counts(group)
        for state in JobState:
            assert counts.get(state, 0) == sum(row.state is state for row in all_rows(source, group))

    def test_a_name_that_no_job_has_finds_nothing(self, source: Source, group: str) -> None:
        assert not source.find("nothing-is-called-so")
        assert not source.find("nothing-is-called-so#1")

    def test_a_group_that_is_not_there_has_no_rows(self, source: Source, group: str) -> None:
        assert not all_rows(source, f"{group}-not-there")

    def test_a_feed_of_which_nothing_was_asked_tells_nothing(self, source: Source, group: str) -> None:
        feed = source.feed()
        try:
            assert not feed.read((), 100).rows
        finally:
            feed.close()

    def test_every_row_has_a_detail_and_a_reason(self, source: Source, group: str) -> None:
        for row in all_rows(source, group)[:5]:
            detail = source.detail(row.key)
            assert detail.row.key == row.key
            assert detail.row.state is row.state
            why = source.why(row.key)
            assert isinstance(why.because, tuple)

    def test_a_key_that_is_not_there_is_an_error_of_ours(self, source: Source, group: str) -> None:
        key = f"{source.door.value}:no.such.Task/0000"
        with pytest.raises(TenutoError):
            source.detail(key)
        with pytest.raises(TenutoError):
            source.log(key, "out", 0)

    def test_a_log_is_read_in_parts(self, source: Source, group: str) -> None:
        done = next(row for row in all_rows(source, group) if row.state is JobState.DONE)
        log = source.log(done.key, "out", 0)
        whole = log.read(0, 1 << 20)
        assert len(whole) == log.size()
        assert log.read(0, 3) + log.read(3, 1 << 20) == whole
        assert log.read(log.size(), 10) == b""
        assert log.ended()

    def test_moments_are_oldest_first(self, source: Source, group: str) -> None:
        moments = list(source.moments(group))
        assert [one.at for one in moments] == sorted(one.at for one in moments)

    def test_results_are_of_jobs_of_the_group(self, source: Source, group: str) -> None:
        keys = {row.key for row in all_rows(source, group)}
        assert {one.key for one in source.results(group)} <= keys

    @pytest.mark.parametrize("action", [Action.KILL, Action.RETRY, Action.CLEAN])
    def test_an_action_on_another_attempt_does_nothing(
        self, source: Source, group: str, action: Action
    ) -> None:
        before = all_rows(source, group)
        failed = next(row for row in before if row.state is JobState.ERROR and row.attempt)
        target = Target(failed.key, failed.attempt + 7)
        (acted,) = source.act(action, [target], dry_run=False, by="a test")
        assert acted.outcome in (ActedAs.STALE, ActedAs.NOT_RUNNING, ActedAs.REFUSED, ActedAs.IN_USE)
        assert all_rows(source, group) == before

    def test_a_dry_run_changes_nothing(self, source: Source, group: str) -> None:
        before = all_rows(source, group)
        failed = next(row for row in before if row.state is JobState.ERROR and row.attempt)
        for action in (Action.KILL, Action.RETRY, Action.CLEAN):
            source.act(action, [Target(failed.key, failed.attempt)], dry_run=True, by="a test")
        assert all_rows(source, group) == before

    def test_a_kill_of_what_does_not_run_says_so(self, source: Source, group: str) -> None:
        done = next(row for row in all_rows(source, group) if row.state is JobState.DONE)
        (acted,) = source.act(Action.KILL, [Target(done.key, done.attempt)], dry_run=False, by="a test")
        assert acted.outcome is ActedAs.NOT_RUNNING
