"""Owns what `import tenuto` and a job may cost: the modules they must not load, what Tenuto may install."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest
from packaging.requirements import Requirement

HEAVY = """
    asyncio rich click yaml tomllib dataclasses
    fastapi starlette uvicorn pydantic sqlalchemy alembic textual dramatiq loguru
    numpy scipy pandas ribs optuna codecarbon
    multiprocessing concurrent.futures subprocess socket http
    hashlib _hashlib ssl shutil bz2 lzma difflib json inspect importlib.util pathlib urllib ipaddress
    signal
""".split()
JOB = "import tenuto" + "".join(
    f", tenuto.launchers.{module}"
    for module in (
        "runner.claimed",
        "runner.attempt",
        "runner.beats",
        "payload.python_task",
        "payload.process_end",
    )
)
"""What a runner that a cluster starts loads for a task, and its payload."""


def loaded_by(code: str) -> set[str]:
    script = f"import sys; {code}; print(*sys.modules)"
    return set(subprocess.check_output([sys.executable, "-c", script], text=True).split())


def installed_with(name: str) -> set[str]:
    """The distribution and all it requires here, without extras."""
    found: set[str] = set()
    open_ends = [Requirement(name)]
    while open_ends:
        requirement = open_ends.pop()
        key = requirement.name.lower().replace("_", "-")
        extras = requirement.extras or {""}
        for text in importlib.metadata.requires(key) or []:
            child = Requirement(text)
            wanted = child.marker is None or any(child.marker.evaluate({"extra": e}) for e in extras)
            if wanted and child.name.lower().replace("_", "-") not in found | {key}:
                open_ends.append(child)
        found.add(key)
    return found


@pytest.mark.parametrize("code", ["import tenuto", JOB], ids=["import", "job"])
def test_import_tenuto_loads_nothing_heavy(code: str) -> None:
    loaded = loaded_by(code) - loaded_by("pass")  # a .pth file may load modules before us
    may = {"json"} if code == JOB else set()  # for its records
    assert [name for name in HEAVY if name in loaded - may] == []


def compiled_by(statement: str) -> list[str]:
    """The texts that `typing` compiled."""
    script = (
        f"{statement}; import gc, typing; print(*[found for found in gc.get_objects() "
        "if isinstance(found, typing.ForwardRef)])"
    )
    return sorted(subprocess.check_output([sys.executable, "-c", script], text=True).split())


@pytest.mark.parametrize("code", ["import tenuto", JOB], ids=["import", "job"])
def test_import_tenuto_compiles_no_annotation(code: str) -> None:
    """The first text that `typing` compiles costs a millisecond, and each one after it a little.

    So a module that every job loads takes its `NamedTuple` from `light`.
    """
    assert compiled_by(code) == compiled_by("pass")  # a .pth file may load modules before us


def test_the_core_install_stays_under_ten_distributions() -> None:
    core = installed_with("tenuto")
    assert {"tenuto", "click", "pyyaml"} <= core
    assert len(core) < 10, sorted(core)
