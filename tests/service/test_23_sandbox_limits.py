"""Limits of a payload in bubblewrap that hold for a node that is no root, and sandboxes that do not start."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tenuto.launchers.confinement import Guest, Sandbox, SandboxMode
from tenuto.lifecycle.service import PayloadState
from tenuto.service.local_node import LocalNode
from tenuto.service.node.node import EmbeddedNode
from tenuto.workspace.machine import this_machine
from tests.service.asgi import run
from tests.service.node_contract import ref
from tests.service.test_05_nodes import ended, job, plan

UID = 61184 + 4095
MIB = 1 << 20


@pytest.fixture
def work(directory: Path, require: Callable[[str], None]) -> Path:
    """A directory of a user who is not root."""
    require("bubblewrap")
    made = directory / "work"
    made.mkdir()
    if os.geteuid() == 0:
        os.chown(made, UID, UID)
        os.chown(directory, UID, UID)
    return made


def confined(work: Path, script: str, **guest: Any) -> subprocess.Popen[str]:
    command = Sandbox(SandboxMode.BWRAP, is_root=False).command(
        Guest(str(work), None, **guest), ["bash", "-c", script]
    )
    user: dict[str, Any] = {"user": UID, "group": UID, "extra_groups": []} if os.geteuid() == 0 else {}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=work, text=True, **pipes, **user)  # type: ignore[call-overload, no-any-return]


def said(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=60)[0]


def test_the_processes_of_one_payload_do_not_fail_another(work: Path) -> None:
    crowd = confined(work, "for i in {1..50}; do sleep 30 & done 2>&-; echo full; read", processes=40)
    try:
        assert crowd.stdout is not None
        line = crowd.stdout.readline()
        while line and "full" not in line:
            line = crowd.stdout.readline()
        other = said(confined(work, "for i in {1..20}; do sleep 0.2 & done; wait; echo fine", processes=40))
        assert other == "fine\n"
    finally:
        crowd.kill()
        crowd.communicate()
    assert "Resource temporarily unavailable" in said(
        confined(work, "for i in {1..60}; do sleep 0.5 & done; wait", processes=40)
    )


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm", "/dev"])
def test_file_systems_in_memory_count(work: Path, place: str) -> None:
    script = f"head -c 20M /dev/zero > {place}/x; stat -c %s {place}/x"
    answer = said(confined(work, script, memory_bytes=8 * MIB))
    assert ("No space left" in answer) or ("Read-only" in answer)
    assert str(20 * MIB) not in answer


def test_a_program_that_began_says_so_outside(work: Path) -> None:
    assert said(confined(work, "echo in; ls /proc/self/fd | wc -l", started="../begun")).startswith("in\n")
    assert (work.parent / "begun").read_text() == "begun\n"


def stumbling(directory: Path, times: int) -> Path:
    """A directory with a `bwrap` that does not start so many times."""
    directory.mkdir()
    (directory / "bwrap").write_text(
        f"#!/bin/sh\necho x >> {directory}/tries\n"
        f"if [ $(wc -l < {directory}/tries) -le {times} ]; then\n"
        "  echo 'bwrap: Creating new namespace failed: /secret/place' >&2; exit 1\nfi\n"
        f'exec {shutil.which("bwrap")} "$@"\n'
    )
    (directory / "bwrap").chmod(0o755)
    directory.chmod(0o755)
    (directory / "tries").touch()
    (directory / "tries").chmod(0o666)
    return directory


@pytest.mark.parametrize(("times", "state"), [(2, PayloadState.COMPLETED), (9, PayloadState.FAILED)])
def test_a_sandbox_that_does_not_start_is_tried_again_three_times(
    times: int, state: PayloadState, directory: Path, require: Callable[[str], None]
) -> None:
    require("bubblewrap")
    path = stumbling(directory / "bin", times)

    async def main() -> tuple[Any, int]:
        made = replace(
            plan(directory / "node"),
            sandbox=Sandbox(SandboxMode.BWRAP, os.geteuid() == 0),
            environment={"PATH": f"{path}:{os.environ['PATH']}"},
        )
        embedded = EmbeddedNode(made, this_machine())
        await embedded.start()
        node, sent = LocalNode(embedded), job(directory, "echo ran >> out; exit 0\n")
        payload = ref(await node.submit(sent), sent)
        retrieved = await ended(node, payload, directory / "got.zip")
        await node.retrieve_partial(payload, str(directory / "got.zip"))
        failing = job(directory, "echo 'bwrap: I only say so' >&2; echo ran >> out; exit 1\n", "k-2")
        again = ref(await node.submit(failing), failing)
        if state is PayloadState.COMPLETED:
            assert (await ended(node, again, directory / "again.zip")).status.exit_code == 1
        await embedded.close()
        return retrieved.status, len((path / "tries").read_text().splitlines())

    status, tries = run(main())
    assert status.state is state
    with zipfile.ZipFile(directory / "got.zip") as made:
        if state is PayloadState.COMPLETED:
            assert made.read("out") == b"ran\n"
            assert tries == 4, "a program that ran is never run again, whatever it says"
        else:
            assert "could not start the sandbox" in status.message
            assert made.read(".tenuto/stderr") == b"", "what bwrap said names places of the operator"
            assert not [name for name in made.namelist() if b"/secret/place" in made.read(name)]
