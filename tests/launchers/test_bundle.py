"""The bundle: the modules of a cluster's runner and of its payload, from one file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenuto.launchers.manifest import Header, Order, encode_manifest
from tenuto.launchers.runner.terms import ENTRY, PLAIN
from tenuto.launchers.slurm import bundles
from tenuto.launchers.slurm.bundles import bundle_of
from tenuto.testing.jobs import JobBench
from tenuto.workspace.attempt_files import read_result
from tenuto.workspace.layout import Layout
from tenuto.workspace.markers import Marker, read_markers
from tenuto.workspace.ports import Machine
from tests.parts.origins import Origins

Run = Callable[[str | None], Any]


@pytest.fixture
def run(tmp_path: Path, machine: Machine) -> Run:
    """Runs the task as a cluster would, with a bundle or without; what the task returned."""

    def run(bundle: str | None) -> Any:
        bench = JobBench(str(tmp_path / "ws"), machine, launcher="far", external=True)
        job = bench.task(Origins.C(number=1))
        manifest = tmp_path / "manifest"
        order = Order(job.paths.directory, job.paths.script_name, job.launch.nonce)
        manifest.write_bytes(encode_manifest(Header(30.0), [order]))
        modules = [] if bundle is None else ["--bundle", bundle]
        command = [
            sys.executable,
            *PLAIN,
            ENTRY,
            *modules,
            "--claim",
            sys.executable,
            str(manifest),
            "0",
            "-",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        marker = read_markers(machine.files, job.paths).done
        assert isinstance(marker, Marker)
        return read_result(machine.files, job.paths, marker)

    return run


@pytest.fixture
def bundle(tmp_path: Path, machine: Machine) -> Path:
    path = bundle_of(machine.files, Layout(str(tmp_path / "ws")))
    assert path is not None
    return Path(path)


def test_every_module_of_tenuto_that_a_job_loads_comes_from_the_bundle(run: Run, bundle: Path) -> None:
    came = run(str(bundle))
    assert came["others"] == ["tenuto", "tenuto.launchers", "tenuto.launchers.bundle"], "what opens it"
    assert came["typing"] == "_BundleLoader"
    assert "_Bundle" not in came["finders"], "what a task imports comes from its own file"


@pytest.mark.parametrize(
    "trouble", ["missing", "empty", "of another Python", "cut off", "a directory", "open to others"]
)
def test_a_job_runs_without_a_bundle_that_cannot_be_used(run: Run, bundle: Path, trouble: str) -> None:
    data = bundle.read_bytes()
    bundle.unlink()
    if trouble == "a directory":
        bundle.mkdir()
    elif trouble != "missing":
        other = data.replace(sys.version.split()[0].encode(), b"2.7.18", 1)
        contents = {"empty": b"", "of another Python": other, "cut off": data[:-1], "open to others": data}
        bundle.write_bytes(contents[trouble])
        bundle.chmod(0o664 if trouble == "open to others" else 0o644)
    came = run(str(bundle))
    assert "tenuto.launchers.runner.attempt" in came["others"]
    assert came["typing"] == "SourceFileLoader"


def test_a_bundle_is_written_once_and_again_for_other_modules(
    bundle: Path, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(str(tmp_path / "ws"))
    written = bundle.stat().st_ino
    assert bundle_of(machine.files, layout) == str(bundle)
    assert bundle.stat().st_ino == written
    monkeypatch.setattr(bundles, "_LIBRARY", ["typing"])
    other = bundle_of(machine.files, layout)
    assert other != str(bundle)
    assert [str(path) for path in bundle.parent.iterdir()] == [other], "the former one is of no use"


def test_a_workspace_that_cannot_be_written_has_no_bundle(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert bundle_of(machine.files, Layout(str(tmp_path / "file"))) is None
