"""The contract suites of samplers and queues, run by every one that ships."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tenuto.search import (
    Choice,
    GridSearch,
    Integer,
    MapElites,
    OptunaSampler,
    RandomSearch,
    Real,
    RibsSampler,
)
from tenuto.search.dramatiq_queue import DramatiqListener, DramatiqQueue
from tenuto.search.queues import Queue
from tenuto.search.spaces import Domain, Objects
from tenuto.settings import Url
from tenuto.testing.contracts.queues import Heard, QueueContract
from tenuto.testing.contracts.samplers import SamplerContract
from tests.parts.redis import Redis
from tests.search.test_21_ribs import SPACE, built

PLAIN: dict[str, Any] = {
    "random": RandomSearch(),
    "grid": GridSearch(2),
    "map-elites": MapElites([4, 4], [(0, 1), (0, 1)]),
    "islands": MapElites(16, [(0, 1), (0, 1)], islands=3, migrate_every=5),
    "optuna": OptunaSampler("random"),
    "optuna-tpe": OptunaSampler("tpe"),
}


class TestPlainSamplers(SamplerContract):
    @pytest.fixture(params=PLAIN)
    def sampler(self, request: pytest.FixtureRequest) -> Any:
        return PLAIN[request.param]

    @pytest.fixture
    def space(self) -> Mapping[str, Any]:
        return {"x": Real(0, 1, shape=2), "n": Integer(1, 9), "kind": Choice(["a", "b"])}


class TestSamplersOfObjects(SamplerContract):
    @pytest.fixture
    def sampler(self) -> Any:
        return MapElites([8], [(0, 1)])

    @pytest.fixture
    def domain(self) -> Domain:
        return Objects(
            lambda rng: [rng.random() for _ in range(3)],
            lambda parent, inspirations, rng: [x + rng.gauss(0, 1) for x in parent],
        )


class TestRibs(SamplerContract):
    @pytest.fixture
    def sampler(self) -> Any:
        return RibsSampler(*built(3))

    @pytest.fixture
    def space(self) -> Mapping[str, Any]:
        return SPACE


class TestRedis(QueueContract):
    @pytest.fixture
    def queue(self, redis: Redis) -> Iterator[Queue]:
        queue = DramatiqQueue(Url(redis.url), "contract")
        yield queue
        queue.close()

    @pytest.fixture
    def heard(self, redis: Redis) -> Iterator[Heard]:
        heard = Heard()
        listener = DramatiqListener(Url(redis.url), "contract", heard.wake)
        listener.start()
        yield heard
        listener.close()
        redis.empty()
