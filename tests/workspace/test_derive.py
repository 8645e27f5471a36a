"""`derive_state`: a test per row of its table, and of what counts as evidence."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import pytest

from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.workspace.derive import ClusterReport, Derived, Evidence, derive_state
from tenuto.workspace.derive_table import ROWS, Action, Claimed, ClusterSays, Facts, Launch, Mark, Runner
from tenuto.workspace.markers import Marker, MarkersFound
from tenuto.workspace.ports import Liveness, ProcessIdentity
from tenuto.workspace.records import Corrupt, LaunchRecord, PidRecord

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LAUNCH = LaunchRecord(2, "n2", "spawn", "job", "host", NOW)
EXTERNAL = LAUNCH._replace(launcher="slurm", external=True)
PID = PidRecord(ProcessIdentity("host", "boot", "ns", 12, 345), 2, NOW)
DONE = Marker(2, "n2", result=42)
FAILED = Marker(2, "n2", JobFailureStatus.MEMORY, "64 GB")
CORRUPT = Corrupt("empty")


def cluster(says: ClusterSays) -> ClusterReport:
    return ClusterReport(says)


CASES: dict[str, Evidence] = {
    "done": Evidence(MarkersFound(done=DONE), LAUNCH),
    "failed": Evidence(MarkersFound(failed=FAILED), LAUNCH),
    "contradiction": Evidence(MarkersFound(DONE, FAILED), LAUNCH),
    "unreadable marker": Evidence(MarkersFound(done=CORRUPT), LAUNCH),
    "held after its runner died": Evidence(launch=LAUNCH, pid=PID, liveness=Liveness.DEAD, locked=True),
    "running, launch record unreadable": Evidence(launch=CORRUPT, locked=True),
    "running": Evidence(launch=LAUNCH, pid=PID, liveness=Liveness.ALIVE, locked=True, descendants=True),
    "being prepared": Evidence(locked=True),
    "taken up after a reboot": Evidence(launch=LAUNCH, pid=PID, liveness=Liveness.REBOOTED, locked=True),
    "starting": Evidence(launch=LAUNCH, locked=True),
    "running, lock file replaced": Evidence(launch=LAUNCH, pid=PID, liveness=Liveness.ALIVE),
    "leftovers": Evidence(launch=LAUNCH, pid=PID, liveness=Liveness.DEAD, descendants=True),
    "leftovers in the cluster": Evidence(launch=EXTERNAL, pid=PID, descendants=True),
    "revoked": Evidence(launch=EXTERNAL, claimed=Claimed.REVOKED, cluster=cluster(ClusterSays.RUNNING)),
    "pending in the cluster": Evidence(launch=EXTERNAL, cluster=cluster(ClusterSays.PENDING)),
    "running in the cluster": Evidence(launch=EXTERNAL, cluster=cluster(ClusterSays.RUNNING)),
    "ended in the cluster, never begun": Evidence(launch=EXTERNAL, cluster=cluster(ClusterSays.ENDED)),
    "ended in the cluster": Evidence(
        launch=EXTERNAL, claimed=Claimed.BEGUN, cluster=cluster(ClusterSays.ENDED)
    ),
    "cluster silent, seen running": Evidence(launch=EXTERNAL, pid=PID),
    "cluster silent": Evidence(launch=EXTERNAL),
    "untouched": Evidence(),
    "lost, launch record unreadable": Evidence(launch=CORRUPT),
    "lost before it started": Evidence(launch=LAUNCH),
    "lost in a reboot": Evidence(launch=LAUNCH, pid=PID, liveness=Liveness.REBOOTED),
    "lost": Evidence(launch=LAUNCH, pid=PID, liveness=Liveness.DEAD),
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_row_decides_its_case(row) -> None:
    derived = derive_state(CASES[row.name])
    assert derived.row == row.name
    assert (derived.state, derived.action) == (row.state, row.action)
    assert (derived.reason is not None) == (derived.state is JobState.ERROR)
    assert bool(derived.alarm) == row.alarming
    assert derived.payload_may_have_run == row.payload_may_have_run


def every_combination_of_facts() -> list[Facts]:
    return [
        Facts(*values)
        for values in itertools.product(
            Mark, Launch, (True, False), Runner, (True, False), Claimed, ClusterSays
        )
    ]


def test_every_combination_of_facts_fits_a_row() -> None:
    for facts in every_combination_of_facts():
        assert any(row.fits(facts) for row in ROWS), facts


def test_no_row_is_hidden_by_those_above_it() -> None:
    deciding = {next(row for row in ROWS if row.fits(facts)).name for facts in every_combination_of_facts()}
    assert deciding == {row.name for row in ROWS}
    assert len(ROWS) == len(CASES)


def decide(facts: Facts) -> tuple[JobState, Action]:
    row = next(row for row in ROWS if row.fits(facts))
    return row.state, row.action


def test_a_row_that_asks_for_the_mark_alone_stands_above_all_others_of_that_mark() -> None:
    for mark in {mark for row in ROWS if row.asks_for_mark_alone for mark in row.mark}:
        assert next(row for row in ROWS if mark in row.mark).asks_for_mark_alone, mark


def test_nothing_is_started_while_anything_of_it_may_run() -> None:
    for facts in every_combination_of_facts():
        if facts.mark is Mark.NONE and (facts.locked or facts.descendants or facts.runner is Runner.ALIVE):
            assert decide(facts)[1] is not Action.START, facts


def test_leftovers_are_swept_only_when_the_lock_can_be_had() -> None:
    for facts in every_combination_of_facts():
        if facts.locked:
            assert decide(facts)[1] is not Action.SWEEP, facts


def test_only_a_done_marker_makes_a_job_done() -> None:
    for facts in every_combination_of_facts():
        assert (decide(facts)[0] is JobState.DONE) == (facts.mark is Mark.DONE)


def test_a_silent_cluster_is_never_a_failure() -> None:
    for facts in every_combination_of_facts():
        silent = facts.launch is Launch.EXTERNAL and facts.cluster is ClusterSays.NOTHING
        seen_here = facts.descendants or facts.runner is Runner.DEAD or facts.claimed is Claimed.REVOKED
        if silent and facts.mark is Mark.NONE and not seen_here:
            assert not decide(facts)[0].finished(), facts


def test_the_marker_says_why_and_what_came_out() -> None:
    assert derive_state(CASES["failed"]) == Derived(
        JobState.ERROR,
        Action.KEEP,
        "failed",
        JobFailureStatus.MEMORY,
        "64 GB",
        attempt=2,
        marker=FAILED,
        payload_may_have_run=True,
    )
    done = derive_state(CASES["done"])
    assert done.marker is not None
    assert done.marker.result == 42


def test_a_marker_of_an_older_attempt_is_ignored() -> None:
    old = Evidence(
        MarkersFound(Marker(1, "n1"), Marker(1, "n1", JobFailureStatus.FAILED)), LAUNCH, locked=True
    )
    assert derive_state(old).row == "starting"
    assert derive_state(old).alarm is None


def test_a_marker_of_a_later_attempt_than_the_launch_record_counts() -> None:
    """After a power loss: the marker was synced, the launch record was not."""
    derived = derive_state(Evidence(MarkersFound(done=Marker(3, "n3")), LAUNCH))
    assert (derived.state, derived.attempt) == (JobState.DONE, 3)


def test_a_marker_without_a_launch_record_counts() -> None:
    assert derive_state(Evidence(MarkersFound(done=DONE))).state is JobState.DONE
    assert derive_state(Evidence(MarkersFound(done=DONE), CORRUPT)).state is JobState.DONE


def test_a_marker_of_a_runner_that_was_given_up_is_ignored_with_an_alarm() -> None:
    derived = derive_state(Evidence(MarkersFound(done=Marker(2, "another")), LAUNCH, locked=True))
    assert derived.row == "starting"
    assert derived.alarm is not None
    assert "given up" in derived.alarm


def test_of_two_markers_the_higher_attempt_wins() -> None:
    later_done = MarkersFound(Marker(4, "n4"), Marker(3, "n3", JobFailureStatus.FAILED))
    assert derive_state(Evidence(later_done, LAUNCH)).row == "done"
    later_failed = MarkersFound(Marker(3, "n3"), Marker(4, "n4", JobFailureStatus.FAILED))
    assert derive_state(Evidence(later_failed, LAUNCH)).row == "failed"


@pytest.mark.parametrize(
    "markers",
    [MarkersFound(DONE, CORRUPT), MarkersFound(CORRUPT, None), MarkersFound(CORRUPT, CORRUPT)],
)
def test_an_unreadable_marker_is_never_done(markers: MarkersFound) -> None:
    derived = derive_state(Evidence(markers, LAUNCH))
    assert (derived.state, derived.reason) == (JobState.ERROR, JobFailureStatus.FAILED)
    assert derived.message is not None
    assert derived.message.startswith("CORRUPT")


def test_a_readable_failure_beats_an_unreadable_success() -> None:
    assert derive_state(Evidence(MarkersFound(CORRUPT, FAILED), LAUNCH)).row == "failed"


def test_a_pid_record_of_an_older_attempt_is_ignored() -> None:
    old = PID._replace(attempt=1)
    assert (
        derive_state(Evidence(launch=LAUNCH, pid=old, liveness=Liveness.ALIVE, locked=True)).row == "starting"
    )


def test_an_unreadable_pid_record_is_no_record() -> None:
    assert derive_state(Evidence(launch=LAUNCH, pid=CORRUPT, locked=True)).row == "starting"


def test_a_runner_without_a_launch_record_is_still_running() -> None:
    derived = derive_state(Evidence(pid=PID, liveness=Liveness.ALIVE, locked=True))
    assert (derived.state, derived.attempt) == (JobState.RUNNING, 2)


def test_a_runner_in_another_namespace_whose_lock_is_free_is_lost() -> None:
    """A container that was started anew: only the kernel's lock counts."""
    assert derive_state(Evidence(launch=LAUNCH, pid=PID, liveness=Liveness.UNKNOWN)).row == "lost"


def test_a_job_that_a_cluster_may_run_is_started_again_only_if_it_ended_or_was_revoked() -> None:
    for facts in every_combination_of_facts():
        if facts.launch is Launch.EXTERNAL and facts.mark is Mark.NONE and decide(facts)[1] is Action.START:
            assert facts.cluster is ClusterSays.ENDED or facts.claimed is Claimed.REVOKED, facts


def test_the_cluster_takes_the_blame_for_what_it_did() -> None:
    report = ClusterReport(ClusterSays.ENDED, message="NODE_FAIL", blameless=True)
    assert derive_state(Evidence(launch=EXTERNAL, claimed=Claimed.BEGUN, cluster=report)).blameless
    assert not derive_state(Evidence(MarkersFound(failed=FAILED), EXTERNAL, cluster=report)).blameless


def test_an_attempt_for_which_the_cluster_had_no_machine_never_ran() -> None:
    report = ClusterReport(ClusterSays.ENDED, message="exit code 71", untried=True)
    derived = derive_state(Evidence(launch=EXTERNAL, claimed=Claimed.BEGUN, cluster=report))
    assert (derived.untried, derived.payload_may_have_run) == (True, False)
    assert not derive_state(Evidence(MarkersFound(failed=FAILED), EXTERNAL, cluster=report)).untried


def test_the_cluster_says_why_a_job_ended() -> None:
    report = ClusterReport(ClusterSays.ENDED, JobFailureStatus.TIMEOUT, "TIMEOUT after 4 h")
    derived = derive_state(Evidence(launch=EXTERNAL, cluster=report))
    assert (derived.reason, derived.message) == (JobFailureStatus.TIMEOUT, "TIMEOUT after 4 h")
