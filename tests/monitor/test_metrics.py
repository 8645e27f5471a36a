"""Owns the curves of the monitor: one job or many, thinned, what came since, and who logged more."""

from __future__ import annotations

import math
from urllib.parse import quote

import pytest

from tenuto.lifecycle.states import JobState
from tenuto.monitor.provider import LocalProvider
from tenuto.testing.contracts.providers import GROUP
from tenuto.testing.fake_source import FakeSource, fake_row
from tenuto.workspace.points import MetricPoint

from .conftest import READY_S, Served


def logged(count: int, begin: float = 0.0) -> list[MetricPoint]:
    return [MetricPoint(step, begin + step, 1 / (step + 1)) for step in range(count)]


@pytest.fixture
def keys(source: FakeSource, local: LocalProvider) -> list[str]:
    """Jobs of the group that logged something, known to the provider."""
    made = [
        source.put(fake_row(GROUP, "my.Train", f"m{n}", JobState.RUNNING, attempt=1, tags={"lr": str(n)})).key
        for n in range(3)
    ]
    for key in made:
        source.curves[key] = {"loss": logged(100), "accuracy": [MetricPoint(0, 1.0, math.nan)]}
    while "epoch" in local.changes(f"{local.epoch}-0", READY_S) and local.jobs(GROUP, "lr=2")["matched"] < 1:
        pass
    return made


def test_a_group_shows_one_metric_of_many_jobs(served: Served, keys: list[str]) -> None:
    found = served.client().get(f"/api/metrics?group={quote(GROUP)}&name=loss&points=10&limit=2").json
    assert found["names"] == ["loss", "accuracy"]
    assert (found["total"], len(found["jobs"])) == (3, 2)
    job = found["jobs"][0]
    assert job["names"] == ["loss", "accuracy"]
    (curve,) = job["curves"]
    assert len(curve["steps"]) == len(curve["values"]) == len(curve["times"]) <= 10
    assert (curve["steps"][0], curve["steps"][-1], curve["total"]) == (0, 99, 100)
    assert (curve["min"], curve["max"], curve["last"]) == (0.01, 1.0, 0.01)


def test_one_job_shows_all_and_what_is_no_number_is_null(served: Served, keys: list[str]) -> None:
    (job,) = served.client().get(f"/api/metrics?key={quote(keys[1])}").json["jobs"]
    assert (job["key"], job["tags"]) == (keys[1], {"lr": "1"})
    assert {one["name"]: one["values"][0] for one in job["curves"]} == {"loss": 1.0, "accuracy": None}
    newer = served.client().get(f"/api/metrics?key={quote(keys[1])}&name=loss&since=97.5").json
    assert newer["jobs"][0]["curves"][0]["steps"] == [98, 99]


@pytest.mark.parametrize(
    ("query", "status"), [("key=nothing", 404), ("group=nothing", 404), ("points=1", 400), ("since=x", 400)]
)
def test_a_wrong_question_is_refused(served: Served, query: str, status: int) -> None:
    assert served.client().get(f"/api/metrics?{query}").status == status


@pytest.mark.parametrize("asked", ["key", "group"])
def test_the_stream_says_which_jobs_logged_more(
    served: Served, source: FakeSource, keys: list[str], asked: str
) -> None:
    stream = served.client().stream(f"/api/events?metrics={quote(keys[0] if asked == 'key' else GROUP)}")
    assert stream.frame()[0] in ("reset", "delta")
    for count in range(101, 200):
        source.curves[keys[0]] = {"loss": logged(count)}
        source.put(fake_row(GROUP, "my.Train", "other", JobState.RUNNING, attempt=count))
        event, data = stream.frame()
        if event == "metrics":
            break
    assert (event, data) == ("metrics", {"keys": [keys[0]]})
    stream.close()
