"""Owns the private clusters of these tests: Grid Engine, Slurm by plain words, and hosts by ssh."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tenuto.launchers.cluster.follower import ClusterFollower
from tenuto.launchers.cluster.launcher import ClusterLauncher
from tenuto.settings.clusters import ClusterSettings
from tenuto.testing.jobs import JobBench
from tenuto.workspace.machine import this_machine
from tests.clusters.sites import GENERIC, NAMES, PBS, Site
from tests.parts import torque
from tests.parts.sge import PrivateGridEngine
from tests.parts.slurm import PrivateSlurm
from tests.parts.slurm_configuration import Shape
from tests.parts.sshd import PrivateSshd

DEADLINE_S = 90.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.xdist_group("clusters"))


@pytest.fixture(scope="session")
def grid_engine(require: Callable[[str], None]) -> Iterator[PrivateGridEngine]:
    require("gridengine")
    cluster = PrivateGridEngine()
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def plain_slurm(require: Callable[[str], None]) -> Iterator[PrivateSlurm]:
    require("slurm")
    cluster = PrivateSlurm(Shape())
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def hosts(require: Callable[[str], None]) -> Iterator[PrivateSshd]:
    require("sshd")
    found = PrivateSshd()
    yield found
    found.close()


@pytest.fixture(params=NAMES)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """Each kind of cluster that is real here."""
    quick = ClusterSettings(dialect=request.param, poll_s=0.5, beat_s=1.0)
    if request.param == "sge":
        engine: PrivateGridEngine = request.getfixturevalue("grid_engine")
        yield Site("sge", quick, engine.environment)
        engine.cancel_all()
    elif request.param == "generic":
        slurm: PrivateSlurm = request.getfixturevalue("plain_slurm")
        yield Site("generic", replace(quick, **GENERIC), slurm.environment)
        slurm.cancel_all()
    elif request.param == "pbs":
        request.getfixturevalue("require")("torque")
        beside: PrivateSlurm = request.getfixturevalue("plain_slurm")
        yield Site("pbs", replace(quick, **PBS), {**beside.environment, **torque.environment()})
        beside.cancel_all()
    else:
        found: PrivateSshd = request.getfixturevalue("hosts")
        settings = replace(quick, submit=tuple(found.words), hosts=tuple(f"{host}:4" for host in found.hosts))
        yield Site("ssh", settings, {})


@pytest.fixture
def launcher(site: Site, monkeypatch: pytest.MonkeyPatch) -> ClusterLauncher:
    for name, value in site.environment.items():
        monkeypatch.setenv(name, value)
    follower = ClusterFollower(site.settings, name=site.name)
    return ClusterLauncher(site.name, settings=site.settings, cluster=follower)


@pytest.fixture
def bench(tmp_path: Path, site: Site) -> JobBench:
    tmp_path.chmod(0o755)
    return JobBench(str(tmp_path / "workspace"), this_machine(), launcher=site.name, external=True)


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(DEADLINE_S):
                return await coroutine

        return asyncio.run(bounded())

    return run
