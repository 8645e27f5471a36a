"""The launchers of this machine keep the contract of launchers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tenuto.testing.contracts.launchers import LocalLauncherContract
from tenuto.testing.jobs import JobBench, ReadyJob
from tenuto.workspace.ports import Machine

PROGRAM = """
class Program(CommandTask):
    pass
"""


@pytest.mark.parametrize("launcher", ["direct", "spawn", "warm"], indirect=True)
class TestLocalLaunchers(LocalLauncherContract):
    pass


class ProgramBench(JobBench):
    """Its commands are Python tasks, which become the program."""

    def __init__(self, root: str, machine: Machine, program: Any, import_path: list[str]) -> None:
        super().__init__(root, machine)
        self._program = program
        self._import_path = import_path

    def command(self, *arguments: str, **options: Any) -> ReadyJob:
        task = self._program.C(command=list(arguments))
        return self.task(task, import_path=self._import_path, **options)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["spare"], indirect=True)
class TestSpares(LocalLauncherContract):
    @pytest.fixture
    def bench(self, bench: JobBench, module: Callable[[str], ModuleType], tmp_path: Path) -> JobBench:
        import_path = [str(tmp_path / "code"), *sys.path]
        return ProgramBench(bench.layout.root, bench.machine, module(PROGRAM).Program, import_path)
