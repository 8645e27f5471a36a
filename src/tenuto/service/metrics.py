"""What the server counts, for Prometheus.
A registry of its own for each server: nothing of the process leaks in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import MetricWrapperBase

from tenuto.lifecycle.service import ServiceState
from tenuto.service.rows import JobRow

BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 86400)

T = TypeVar("T", bound=MetricWrapperBase)


class NodeFigures(NamedTuple):
    """A node as its server knows it."""

    is_up: bool
    slots: int


class Metrics:
    """The figures of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()

        def made(kind: type[T], name: str, text: str, *labels: str, **more: Any) -> T:
            return kind(f"tenuto_service_{name}", text, labels, registry=self._registry, **more)

        self._jobs = made(Gauge, "jobs", "Jobs by service and state", "service", "state")
        self._uploads = made(Counter, "uploads", "Uploads by service and outcome", "service", "outcome")
        self._wait = made(Histogram, "wait_seconds", "From upload to start", "service", buckets=BUCKETS)
        self._run = made(Histogram, "run_seconds", "From start to end", "service", buckets=BUCKETS)
        self._node_up = made(Gauge, "node_up", "1 if a node answers", "node")
        self._node_slots = made(Gauge, "node_slots", "Slots; 0 while it takes nothing", "node")
        self._queue_age = made(Gauge, "queue_age_seconds", "Age of the oldest queued job", "service")
        self._disk_free = made(Gauge, "disk_free_bytes", "Room for data")
        self._bytes = made(Counter, "bytes", "Bytes of uploads (in) and results (out)", "direction")
        self._refused = made(Counter, "tokens_refused", "Requests without a valid token")
        self._callbacks = made(Counter, "callbacks", "Tries of callbacks", "outcome")
        self._http = made(Histogram, "http_seconds", "Time of answers", "route", "code")
        self._errors = made(Counter, "stage_errors", "Rounds of stages that raised", "stage")

    def uploaded(self, service: str, outcome: str) -> None:
        self._uploads.labels(service, outcome).inc()

    def took(self, size: int) -> None:
        """The files of an upload were accepted."""
        self._bytes.labels("in").inc(size)

    def refused_token(self) -> None:
        self._refused.inc()

    def called(self, outcome: str) -> None:
        self._callbacks.labels(outcome).inc()

    def moved(self, row: JobRow) -> None:
        """A job reached a state: its times are known."""
        if row.state.is_final and row.ended_at is not None and row.state is not ServiceState.CLEANED:
            began = row.started_at or row.ended_at
            self._wait.labels(row.service).observe(max(began - row.created_at, 0) / 1000)
            self._run.labels(row.service).observe(max(row.ended_at - began, 0) / 1000)
            self._bytes.labels("out").inc(row.result_bytes or 0)

    def answered(self, route: str, code: int, took_s: float) -> None:
        self._http.labels(route, str(code)).observe(took_s)

    def stage_failed(self, stage: str) -> None:
        self._errors.labels(stage).inc()

    def text(
        self,
        counts: Mapping[tuple[str, ServiceState], int],
        services: Iterable[str],
        nodes: Mapping[str, NodeFigures],
        queue_age_s: Mapping[str, float],
        free_bytes: int,
    ) -> bytes:
        """The figures as Prometheus reads them."""
        self._disk_free.set(free_bytes)
        for gauge in (self._jobs, self._queue_age, self._node_up, self._node_slots):
            gauge.clear()  # a service or node that is gone must not be told as it was last
        for service in {*services, *(service for service, _ in counts)}:
            self._queue_age.labels(service).set(queue_age_s.get(service, 0.0))
            for state in ServiceState:
                self._jobs.labels(service, state.value).set(counts.get((service, state), 0))
        for name, node in nodes.items():
            self._node_up.labels(name).set(int(node.is_up))
            self._node_slots.labels(name).set(node.slots)
        return generate_latest(self._registry)
