"""Owns pilots where no list shows how they ended: Grid Engine, hosts by ssh, words of the settings alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.sites import Scripts, Site
from tests.parts.sge import PrivateGridEngine
from tests.slurm.drivers import eventually

ALIKE = pytest.mark.prove("one dialect is enough for each change")
EACH = ["sge", *(pytest.param(name, marks=ALIKE) for name in ("generic", "ssh"))]
PILOTS = "pilots = 1\npilot_cpus = 2\npilot_time_s = 120.0\npilot_idle_s = 0.5\n"
WAVES = """
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        for wave in "ab":
            jobs = [Note.C(name=wave + number).submit().job for number in "123"]
            for job in jobs:
                job.wait(60)
            ended = time.monotonic() + 60
            while wave == "a" and (HERE / "busy").exists() is False and time.monotonic() < ended:
                time.sleep(0.1)
"""
TWO = """
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        for name in ("h0", "h1"):
            Hold.C(name=name).submit()
"""


@pytest.fixture
def scripts(tmp_path: Path, site: Site) -> Iterator[Scripts]:
    tmp_path.chmod(0o755)
    made = Scripts(tmp_path, site)
    settings = tmp_path / "config" / "tenuto" / "tenuto.toml"
    settings.write_text(settings.read_text() + PILOTS)
    yield made
    made.close()


def pilots(scripts: Scripts) -> int:
    """Processes of pilots that live."""
    found = 0
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = command.read_bytes().split(b"\0")
        except OSError:
            continue
        found += b"tenuto.launchers.cluster.allocation" in words and str(
            scripts.directory
        ).encode() in b" ".join(words)
    return found


def names(scripts: Scripts) -> list[str]:
    return sorted(line.split()[0] for line in scripts.ledger())


@pytest.mark.parametrize("site", EACH, indirect=True)
def test_a_pilot_that_was_idle_too_long_makes_room_for_another(scripts: Scripts) -> None:
    process = scripts.start(WAVES)
    eventually(lambda: names(scripts) == ["a1", "a2", "a3"], "the first jobs")
    eventually(lambda: not pilots(scripts), "the end of their pilot")
    (scripts.directory / "busy").touch()
    scripts.ended(process, 0)
    assert names(scripts) == ["a1", "a2", "a3", "b1", "b2", "b3"]
    assert {job["state"] for job in scripts.jobs()} == {"done"}


@pytest.mark.parametrize("site", EACH, indirect=True)
def test_a_pilot_whose_setup_fails_fails_its_jobs(scripts: Scripts) -> None:
    settings = scripts.directory / "config" / "tenuto" / "tenuto.toml"
    settings.write_text(settings.read_text() + "setup = 'module load cuda'\n")
    scripts.ended(scripts.start(TWO), 1)
    assert {(job["state"], job["reason"], job["message"]) for job in scripts.jobs()} == {
        ("error", "failed", "setup: module: command not found (exit code 127)")
    }
    assert scripts.ledger() == []


@pytest.mark.parametrize("site", ["sge"], indirect=True)
def test_a_pilot_that_is_deleted_by_hand_ends_with_its_jobs_which_run_again(
    scripts: Scripts, grid_engine: PrivateGridEngine
) -> None:
    process = scripts.start(TWO)
    eventually(lambda: len(scripts.ledger()) == 2, "two running jobs")
    claims = [json.loads(path.read_text()) for path in scripts.workspace.glob("jobs/*/*/.tenuto/claim-*")]
    pids = [json.loads(path.read_text())["pid"] for path in scripts.workspace.glob("jobs/*/*/*.pid")]
    grid_engine.run("qdel", claims[0]["job"])
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the end of both runners")
    eventually(lambda: len(scripts.ledger()) == 4, "both jobs in another pilot")
    (scripts.directory / "release").touch()
    scripts.ended(process, 0)
    assert names(scripts) == ["h0", "h0", "h1", "h1"]
