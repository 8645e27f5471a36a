"""What every `StateProvider` must do. Subclass, and give the fixtures `source` and `provider`.

`source` is a `FakeSource` of the experiments that the provider shows; `provider` is whole when it is given.
"""

from __future__ import annotations

import time

import pytest

from tenuto.errors import BadQuestion, FilterError, NotFound
from tenuto.jobs.row import Group
from tenuto.lifecycle.states import JobState
from tenuto.monitor import shapes
from tenuto.monitor.state_provider import StateProvider
from tenuto.testing.fake_source import FakeSource, fake_row

GROUP = "experiments:sweep/1"
DEADLINE_S = 20.0


def fill(source: FakeSource) -> None:
    """A group with a job in each of four states."""
    source.put_group(Group(GROUP, source.door, "sweep", "1", "running", True))
    for number, state in enumerate((JobState.DONE, JobState.RUNNING, JobState.WAITING, JobState.ERROR)):
        tags = {"lr": str(number / 10)}
        needs = (f"id{number - 1}",) if number else ()
        row = fake_row(GROUP, "my.Train", f"id{number}", state, attempt=1, tags=tags, depends_on=needs)
        source.put(row)
        source.logs[row.key, "out"] = b"one\ntwo\nthree\n"
        source.stored[row.key] = {"epochs": number}


def key(number: int) -> str:
    """The key of a job that `fill` made."""
    return f"experiments:my.Train/id{number}"


def catch_up(provider: StateProvider, since: str | None, until: str) -> list[shapes.Job]:
    """The jobs of deltas until one is in a state, by a deadline."""
    found: list[shapes.Job] = []
    ends = time.monotonic() + DEADLINE_S
    while time.monotonic() < ends:
        delta = provider.changes(since, 1.0)
        since = f"{delta['epoch']}-{delta['seq']}"
        if "reset" not in delta:
            found += delta["jobs"]
        if any(job["state"] == until for job in found):
            return found
    raise AssertionError(f"no job became {until} within {DEADLINE_S} s")


class ProviderContract:
    def test_answers_say_which_state_they_show(self, provider: StateProvider) -> None:
        for answer in (provider.about(), provider.overview(), provider.jobs(), provider.groups()):
            assert {"epoch", "seq", "now"} <= answer.keys()
        assert provider.about()["kinds"] == ["experiment"]

    def test_the_overview_counts_every_job(self, provider: StateProvider) -> None:
        (group,) = provider.overview()["groups"]
        assert group["known"] == group["total"] == 4
        assert sum(group["counts"].values()) == 4
        assert [job["id"] for job in provider.overview()["running"]] == ["id1"]
        assert provider.overview()["failures"][0]["total"] == 1

    def test_a_window_is_a_part_of_all(self, provider: StateProvider) -> None:
        every = provider.jobs(GROUP)["jobs"]
        assert [job["id"] for job in every] == ["id0", "id1", "id2", "id3"]
        window = provider.jobs(GROUP, offset=1, limit=2)
        assert [job["key"] for job in window["jobs"]] == [job["key"] for job in every[1:3]]
        assert window["matched"] == 4

    def test_filters_know_fields_tags_and_parameters(self, provider: StateProvider) -> None:
        def ids(filter: str, sort: str = "") -> list[str]:
            return [job["id"] for job in provider.jobs(GROUP, filter, sort)["jobs"]]

        assert ids("state=error") == ["id3"]
        assert ids("lr>=0.2") == ["id2", "id3"]
        assert ids("epochs<2", "-lr") == ["id1", "id0"]
        with pytest.raises(FilterError) as wrong:
            ids("state=errr")
        assert wrong.value.position == 6
        with pytest.raises(FilterError):
            ids("task~/x/")

    def test_an_id_that_is_not_there_is_said_so(self, provider: StateProvider) -> None:
        with pytest.raises(NotFound):
            provider.job("experiments:my.Train/nope")
        with pytest.raises(NotFound):
            provider.jobs("experiments:nope/1")
        with pytest.raises(NotFound):
            provider.why("service:nope/1")
        with pytest.raises(NotFound):
            provider.queue()

    def test_a_job_has_all_its_fields(self, provider: StateProvider) -> None:
        job = provider.job(key(1))
        assert job["parameters"] == {"epochs": 1}
        assert [one["id"] for one in job["dependencies"]] == ["id0"]
        assert [one["id"] for one in job["dependents"]] == ["id2"]
        assert shapes.JobDetail.__annotations__.keys() <= job.keys()
        assert provider.why(key(1))["because"]

    def test_a_log_is_given_by_its_tail_or_from_an_offset(self, provider: StateProvider) -> None:
        assert provider.log(key(0))["text"] == "one\ntwo\nthree\n"
        assert provider.log(key(0), tail=8)["text"] == "three\n"
        part = provider.log(key(0), start=4, limit=4)
        assert (part["text"], part["next"], part["whole"]) == ("two\n", 8, False)

    def test_graph_timeline_history_and_results_show_each_job_once(self, provider: StateProvider) -> None:
        (node,) = provider.graph(GROUP)["nodes"]
        assert node["total"] == 4
        assert len(provider.graph(GROUP, around=key(1), depth=1)["nodes"]) == 3
        history = provider.history(GROUP, 10)
        assert sum(numbers[-1] for numbers in history["counts"].values()) == 4
        assert provider.results(GROUP)["total"] == 1
        assert {lane["group"] for lane in provider.timeline()["lanes"]} == {GROUP}

    def test_a_client_without_a_number_begins_anew(self, provider: StateProvider) -> None:
        assert "reset" in provider.changes(None, 0.5)
        assert "reset" in provider.changes("another-3", 0.5)

    def test_a_change_reaches_a_client(self, provider: StateProvider, source: FakeSource) -> None:
        first = provider.changes(None, 1.0)
        since = f"{first['epoch']}-{first['seq']}"
        source.put(source.row(key(2))._replace(state=JobState.SCHEDULED))
        found = catch_up(provider, since, "scheduled")
        assert [job["id"] for job in found] == ["id2"]

    def test_an_action_names_the_attempt_it_means(self, provider: StateProvider, source: FakeSource) -> None:
        (stale,) = provider.act("kill", [(key(1), 7)])["outcomes"]
        assert (stale["outcome"], stale["attempt"]) == ("stale", 1)
        (dry,) = provider.act("kill", [(key(1), 1)], dry_run=True)["outcomes"]
        assert dry["outcome"] == "would_kill"
        assert source.row(key(1)).state is JobState.RUNNING
        (asked,) = provider.act("kill", [(key(1), 1)])["outcomes"]
        assert asked["outcome"] == "asked"
        (again,) = provider.act("kill", [(key(1), 1)])["outcomes"]
        assert again["outcome"] == "not_running"
        with pytest.raises(BadQuestion):
            provider.act("dance", [(key(1), 1)])
