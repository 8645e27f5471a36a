"""Fixtures of the job service: servers that end with their test."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tenuto.cli.main import main
from tests.service.asgi import MADE, run
from tests.service.servers import Process

Tenuto = Callable[..., "Ended"]


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def tenuto(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tenuto:
    """``tenuto("token", "list")``: the command in this process, in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("TENUTO_"):
            monkeypatch.delenv(name)

    def call(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["tenuto", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Ended(ended.value.code or 0, said.out, said.err)  # type: ignore[arg-type]

    return call


@pytest.fixture(autouse=True)
def _close_servers() -> Iterator[None]:
    yield
    while MADE:
        run(MADE.pop().close())


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """``start("serve", "--with-node")``: a process of the `tenuto` command that is ready."""
    started: list[Process] = []

    def start(command: str, *arguments: str, **more: object) -> Process:
        if "--port" not in arguments:
            arguments = (*arguments, "--port", "0")
        process = Process(command, *arguments, **{"cwd": tmp_path, **more})  # type: ignore[arg-type]
        started.append(process)
        return process

    yield start
    for process in started:
        process.close()


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that other users may pass through; pytest's own is closed to them."""
    made = Path(tempfile.mkdtemp(prefix="tn-sandbox-", dir="/tmp"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A node without a server and without a sandbox."""
    arguments = ("--sandbox", "none", "--insecure", "--port", "0")
    process = Process("node", *arguments, cwd=tmp_path_factory.mktemp("noded"))
    yield process
    process.close()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A server with a node and no sandbox, for tests that leave nothing behind that others mind."""
    directory = tmp_path_factory.mktemp("served")
    (directory / "tenuto.toml").write_text(
        "[service]\nterminate_wait_s = 60\n"
        "[services.example]\nruns_per_user = 100\nmax_runs = 100\n[services.one]\nruns_per_user = 1\n"
        "[node]\nslots = 4\n"
    )
    process = Process("serve", "--with-node", "--sandbox", "none", "--port", "0", cwd=directory)
    yield process
    process.close()
