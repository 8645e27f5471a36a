"""Owns the curves of the monitor: one job or many, thinned, what came since, and who logged more."""

from __future__ import annotations

import math
from array import array
from base64 import b64decode
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
    ("values", "bits"),
    [
        ([0.1, math.nan, 0.3], 32),
        ([1e9, 1e9 + 0.25, 1e9 + 0.5], 64),
        ([1.0, 1e300, 1e-300], 64),
        ([0.0, 0.0, 0.0], 64),
    ],
)
@pytest.mark.parametrize("steps", [[5, 7, 9], [1, 2, 10**15], [3, 4, 6]])
def test_a_plot_gets_packed_points_without_times(
    served: Served, source: FakeSource, keys: list[str], values: list[float], bits: int, steps: list[int]
) -> None:
    points = zip(steps, (10.0, None, 30.5), values, strict=True)
    source.curves[keys[1]] = {"loss": [MetricPoint(*point) for point in points]}
    address = f"/api/metrics?key={quote(keys[1])}&packed="
    (curve,) = served.client().get(f"{address}steps").json["jobs"][0]["curves"]
    packed = curve["packed"]
    assert (curve["steps"], curve["times"], curve["values"], curve["total"]) == ([], [], [], 3)
    assert (packed["bits"], packed["times"], packed["newest"]) == (bits, None, 30.5)
    found = array("f" if bits == 32 else "d", b64decode(packed["values"]))
    assert list(found) == pytest.approx(values, rel=1e-6 if bits == 32 else 0, abs=0, nan_ok=True)
    assert (packed["even"], packed["steps"]) == ((True, [5, 2]) if steps[0] == 5 else (False, steps))
    (timed,) = served.client().get(f"{address}times").json["jobs"][0]["curves"]
    times = list(array("d", b64decode(timed["packed"]["times"])))
    assert times == pytest.approx([10.0, math.nan, 30.5], nan_ok=True)


def test_a_packed_curve_may_have_no_points(served: Served, keys: list[str]) -> None:
    asked = f"/api/metrics?key={quote(keys[1])}&name=loss&since=1000&packed=steps"
    (curve,) = served.client().get(asked).json["jobs"][0]["curves"]
    assert (curve["packed"]["steps"], curve["packed"]["values"], curve["packed"]["newest"]) == ([], "", None)


@pytest.mark.parametrize(
    ("query", "status"),
    [("key=nothing", 404), ("group=nothing", 404), ("points=1", 400), ("since=x", 400), ("packed=yes", 400)],
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


def test_results_are_read_once_for_a_picture(source: FakeSource, local: LocalProvider) -> None:
    asked: list[str] = []
    read = source.results

    def results(group: str) -> object:
        asked.append(group)
        return read(group)

    source.results = results  # type: ignore[method-assign,assignment]
    local.results(GROUP)
    while local.changes(f"{local.epoch}-0", 0.1).get("seq") != local.results(GROUP)["seq"]:
        pass
    before = len(asked)
    assert local.results(GROUP)["rows"] == local.results(GROUP)["rows"]
    assert len(asked) == before
    source.put(fake_row(GROUP, "my.Train", "new", JobState.DONE, attempt=1))
    while not local.jobs(GROUP, "id=new")["matched"]:
        local.changes(f"{local.epoch}-{local.results(GROUP)['seq']}", 0.1)
    local.results(GROUP)
    assert len(asked) > before
