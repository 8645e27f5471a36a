"""Owns what `tenuto.nodes()` tells a process, by the variables of each system and starter."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

import tenuto
from tenuto.launchers.nodes import JobNodes

HERE = socket.gethostname()
TWO = {"JOB_NODES": "2", "JOB_TASKS": "4"}
SLURM = {**TWO, "SLURM_JOB_NODELIST": "a,b[08-10]", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}
STEP = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1", "SLURM_NODEID": "2"}
HOSTS = ("a", "b08", "b09", "b10")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests run in must not matter."""
    for name in os.environ:
        if name.startswith(("SLURM_", "OMPI_", "PMI_", "JOB_", "PBS_", "LSB_", "PE_")) or "RANK" in name:
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, JobNodes((HERE,))),
        ({"SLURM_JOB_NODELIST": "a,b", "SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, JobNodes((HERE,))),
        ({"JOB_NODES": "1", "JOB_TASKS": "3"}, JobNodes((HERE,), 3)),
        ({**SLURM, "JOB_TASKS": "8"}, JobNodes(HOSTS, 8)),
        ({**SLURM, **STEP}, JobNodes(HOSTS, 8, 5, 1, 2)),
        (
            {**TWO, "SLURM_JOB_NODELIST": "r[1-2]n[1,3]x", "RANK": "3", "WORLD_SIZE": "4"},
            JobNodes(("r1n1x", "r1n3x", "r2n1x", "r2n3x"), 4, 3, 0, 3),
        ),
        (
            {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"},
            JobNodes((HERE,), 4, 3, 1, 0),
        ),
    ],
    ids=["outside", "unasked", "here", "slurm", "srun", "torchrun", "openmpi"],
)
def test_nodes_are_those_that_variables_tell(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: JobNodes
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert tenuto.nodes() == expected


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("PBS_NODEFILE", "a\na\nb\nb\n"),
        ("PE_HOSTFILE", "a 2 main.q@a UNDEFINED\nb 2 main.q@b UNDEFINED\n"),
        ("LSB_DJOB_HOSTFILE", "a\na\nb\nb\n"),
    ],
)
def test_hosts_are_read_of_the_file_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    (tmp_path / "hosts").write_text(text)
    for name, value in {**TWO, variable: str(tmp_path / "hosts"), "PMI_RANK": "3", "PMI_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    found = tenuto.nodes()
    assert found == JobNodes(("a", "b"), 4, 3, 1, 1)
    assert (found.tasks_per_node, found.address) == (2, "a")
