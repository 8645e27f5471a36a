"""Owns the private clusters of these tests: one of each kind a session, and no job outlives its test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.launchers.cluster.follower import ClusterFollower
from tenuto.launchers.cluster.launcher import SlurmLauncher
from tenuto.settings.clusters import ClusterSettings
from tenuto.testing.jobs import JobBench
from tenuto.workspace.machine import this_machine
from tests.parts.slurm import PrivateSlurm
from tests.parts.slurm_configuration import Shape
from tests.slurm.drivers import Driver

DEADLINE_S = 90.0
QUICK = ClusterSettings(poll_s=0.5, beat_s=1.0)
"""Settings for a cluster that decides within a second."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.xdist_group("slurm"))


@pytest.fixture(scope="session")
def apart(require: Callable[[str], None]) -> Iterator[PrivateSlurm]:
    """A cluster whose nodes are other hosts, as far as a process can tell."""
    require("slurm")
    require("right to mount a disk")
    cluster = PrivateSlurm(Shape(apart=True))
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def beside(require: Callable[[str], None]) -> Iterator[PrivateSlurm]:
    """A cluster whose nodes are this host."""
    require("slurm")
    cluster = PrivateSlurm(Shape())
    yield cluster
    cluster.close()


@pytest.fixture(params=["apart", "beside"])
def slurm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateSlurm]:
    """Each kind of cluster; commands of this process go to it."""
    cluster: PrivateSlurm = request.getfixturevalue(request.param)
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    yield cluster
    cluster.cancel_all()


@pytest.fixture
def launcher(slurm: PrivateSlurm) -> SlurmLauncher:
    return SlurmLauncher(settings=QUICK, cluster=ClusterFollower(QUICK))


@pytest.fixture
def bench(tmp_path: Path) -> JobBench:
    tmp_path.chmod(0o755)
    return JobBench(str(tmp_path / "workspace"), this_machine(), launcher="slurm", external=True)


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(DEADLINE_S):
                return await coroutine

        return asyncio.run(bounded())

    return run


@pytest.fixture
def own_driver(require: Callable[[str], None], tmp_path: Path) -> Iterator[Driver]:
    """A place for drivers, on a cluster that a test may break."""
    require("slurm")
    require("right to mount a disk")
    cluster = PrivateSlurm(Shape(apart=True, extra=("SlurmdTimeout=4",)))
    tmp_path.chmod(0o755)
    made = Driver(tmp_path, cluster)
    yield made
    made.close()
    cluster.close()


@pytest.fixture
def driver(apart: PrivateSlurm, tmp_path: Path) -> Iterator[Driver]:
    """A place for drivers, on nodes apart."""
    tmp_path.chmod(0o755)
    made = Driver(tmp_path, apart)
    yield made
    made.close()
    apart.cancel_all()
