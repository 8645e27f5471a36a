"""What the server counts, for Prometheus.
A registry of its own for each server: nothing of the process leaks in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tenuto.lifecycle.service import ServiceState
from tenuto.service.rows import JobRow

BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 86400)


class NodeFigures(NamedTuple):
    """A node as its server knows it."""

    is_up: bool
    slots: int


class Metrics:
    """The figures of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        registry = self._registry
        self._jobs = Gauge(
            "tenuto_service_jobs", "Jobs by service and state", ["service", "state"], registry=registry
        )
        self._uploads = Counter(
            "tenuto_service_uploads",
            "Uploads by service and outcome",
            ["service", "outcome"],
            registry=registry,
        )
        self._wait = Histogram(
            "tenuto_service_wait_seconds",
            "From upload to start",
            ["service"],
            buckets=BUCKETS,
            registry=registry,
        )
        self._run = Histogram(
            "tenuto_service_run_seconds", "From start to end", ["service"], buckets=BUCKETS, registry=registry
        )
        self._node_up = Gauge("tenuto_service_node_up", "1 if a node answers", ["node"], registry=registry)
        self._node_slots = Gauge(
            "tenuto_service_node_slots", "Slots; 0 while it takes nothing", ["node"], registry=registry
        )
        self._queue_age = Gauge(
            "tenuto_service_queue_age_seconds", "Age of the oldest queued job", ["service"], registry=registry
        )
        self._disk_free = Gauge("tenuto_service_disk_free_bytes", "Room for data", registry=registry)
        self._bytes = Counter(
            "tenuto_service_bytes",
            "Bytes of uploads (in) and results (out)",
            ["direction"],
            registry=registry,
        )
        self._refused = Counter(
            "tenuto_service_tokens_refused", "Requests without a valid token", registry=registry
        )
        self._callbacks = Counter(
            "tenuto_service_callbacks", "Tries of callbacks", ["outcome"], registry=registry
        )
        self._http = Histogram(
            "tenuto_service_http_seconds", "Time of answers", ["route", "code"], registry=registry
        )
        self._errors = Counter(
            "tenuto_service_stage_errors", "Rounds of stages that raised", ["stage"], registry=registry
        )

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
